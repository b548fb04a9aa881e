package local

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// A thread is on the CPU that it is tied to, and afterwards where it was before.
func TestPinThread(t *testing.T) {
	allowed, err := allowedCPUs()
	cpus := slices.Collect(allowed.All())
	if err != nil || len(cpus) == 0 {
		t.Fatalf("%v, %v", cpus, err)
	}
	now := func() unix.CPUSet {
		t.Helper()
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(0, &set); err != nil {
			t.Fatal(err)
		}
		return set
	}
	for _, cpu := range cpus[:min(len(cpus), 4)] {
		before := now()
		undo, err := pinThread(cpu)
		if err != nil {
			t.Fatal(err)
		}
		if set := now(); set.Count() != 1 || !set.IsSet(cpu) {
			t.Errorf("CPU %d: %v", cpu, set)
		}
		undo()
		if now() != before {
			t.Errorf("CPU %d: %v, before %v", cpu, now(), before)
		}
	}
	before := now()
	if _, err := pinThread(maxCPU - 1); err == nil {
		t.Skipf("this machine has %d CPUs: none is missing", maxCPU)
	}
	if now() != before {
		t.Error("a CPU that is not there has changed where the thread runs")
	}
}

func TestSystem(t *testing.T) {
	if n, ok := availableMemory(); !ok || n < 1<<20 {
		t.Errorf("%d bytes are available, %v", n, ok)
	}
}
