package shm

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

func supported() error { return nil }

func randomName() string { return strings.ToLower(rand.Text())[:12] }

// checkPeer lets in processes of our user and of root: only those could also
// reach our memory by other means.
func checkPeer(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var inner error
	err = raw.Control(func(fd uintptr) {
		cred, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, inner); err != nil {
		return fmt.Errorf("who the peer is: %w", err)
	}
	return allowed(int(cred.Uid), os.Geteuid())
}

func allowed(peer, ours int) error {
	if peer != ours && peer != 0 {
		return fmt.Errorf("the peer's process belongs to user %d, ours to %d", peer, ours)
	}
	return nil
}

// prefault makes the pages of a mapping known to our page tables in one call: one
// fault for each would cost more than copying the page.
func prefault(b []byte, write bool) {
	advice := unix.MADV_POPULATE_READ
	if write {
		advice = unix.MADV_POPULATE_WRITE
	}
	// Kernels before 5.14 do not know it; then every page faults when it is touched.
	_ = unix.Madvise(b, advice)
}

// hostNodes are the NUMA nodes that this process may run on.
func hostNodes() []node {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return nil
	}
	return readNodes(os.DirFS("/sys/devices/system/node"), allowed.IsSet)
}

// enter keeps the calling thread on the node. Where that is refused, it runs
// anywhere.
func (n node) enter() {
	var set unix.CPUSet
	for cpu := range n.cpus.All() {
		set.Set(cpu)
	}
	_ = unix.SchedSetaffinity(0, &set)
}
