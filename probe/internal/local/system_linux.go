package local

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/engine/memory"

	"github.com/topoctl/topoctl/internal/cpuset"
	"github.com/topoctl/topoctl/probe/internal/lane"
)

// thisSystem is the system that this process runs on.
func thisSystem() system {
	return system{
		allowed: allowedCPUs, pin: pinThread, available: availableMemory, alloc: memory.Alloc, load: lane.LoadNow,
		smaps: func() string { return lane.FileText("/proc/self/smaps") },
	}
}

// maxCPU bounds the numbers of CPUs: those that an affinity mask of x/sys/unix has.
const maxCPU = 1024

func allowedCPUs() (cpuset.Set, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return cpuset.Set{}, fmt.Errorf("sched_getaffinity: %w", err)
	}
	var out []int
	for cpu := range maxCPU {
		if set.IsSet(cpu) {
			out = append(out, cpu)
		}
	}
	return cpuset.Of(out...), nil
}

// pinThread ties the calling goroutine to a CPU until undo. If undo fails the thread ends with the
// goroutine, so that no other goroutine inherits its CPU.
func pinThread(cpu int) (undo func(), err error) {
	runtime.LockOSThread()
	var before, only unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("sched_getaffinity: %w", err)
	}
	only.Set(cpu)
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("sched_setaffinity to CPU %d: %w", cpu, err)
	}
	return func() {
		if unix.SchedSetaffinity(0, &before) == nil {
			runtime.UnlockOSThread()
		}
	}, nil
}

// availableMemory is what can be allocated without evicting others: what the system has, or the cgroup
// leaves.
func availableMemory() (bytes int64, ok bool) {
	m, ok := cpuset.MemoryLeft(os.DirFS("/"))
	return m.Left, ok
}
