package shm

import (
	"os"

	"golang.org/x/sys/unix"
)

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
	for _, cpu := range n.cpus {
		set.Set(cpu)
	}
	_ = unix.SchedSetaffinity(0, &set)
}
