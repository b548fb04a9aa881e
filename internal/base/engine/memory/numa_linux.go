package memory

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bind has the pages placed on the nodes: one binds, several interleave.
func (b *Block) bind(nodes []int) error {
	if len(nodes) == 0 {
		return nil
	}
	var mask [(maxNode + 64) / 64]uint64
	for _, n := range nodes {
		// The kernel drops nodes that do not exist from a mask with others.
		_, err := os.Stat(fmt.Sprintf("/sys/devices/system/node/node%d", n))
		if _, sysfs := os.Stat("/sys/devices/system/node"); err != nil && sysfs == nil {
			return fmt.Errorf("NUMA node %d does not exist", n)
		}
		mask[n/64] |= 1 << (n % 64)
	}
	policy := unix.MPOL_BIND
	if len(nodes) > 1 {
		policy = unix.MPOL_INTERLEAVE
	}
	// The kernel takes one less than maxnode bits.
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, b.area.start, b.area.size, uintptr(policy),
		uintptr(unsafe.Pointer(&mask[0])), uintptr(len(mask)*64+1), 0)
	if errno == 0 {
		b.info.Nodes = nodes
		return nil
	}
	if errors.Is(errno, unix.ENOSYS) && slices.Equal(nodes, []int{0}) {
		b.note("NUMA: this kernel has one node and binds nothing")
		return nil
	}
	if errors.Is(errno, unix.EPERM) {
		return fmt.Errorf("bind to NUMA nodes %v: mbind: %w (containers need CAP_SYS_NICE or a seccomp profile that allows it)", nodes, errno)
	}
	return fmt.Errorf("bind to NUMA nodes %v: mbind: %w (not online, or not in this process's cpuset)", nodes, errno)
}
