package topo_test

import (
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
)

// What differs from one minute, one user or one driver to the next on one host leaves
// the fingerprint as it is.
func TestFingerprintOfAnUnchangedHost(t *testing.T) {
	memory := func(bytes ...int64) func(*topo.Topology) {
		return func(h *topo.Topology) {
			for i, b := range bytes {
				h.NUMANodes[i].MemoryBytes = &b
			}
		}
	}
	const gib = 1 << 30
	full := memory(512*gib, 512*gib)
	host := func(changes ...func(*topo.Topology)) string {
		h := build(t, twoSockets)
		for _, change := range changes {
			change(h)
		}
		return h.Fingerprint()
	}
	base := host(full)
	for what, change := range map[string]func(*topo.Topology){
		"a balloon":           memory(500*gib, 300*gib),
		"memory of the host":  func(h *topo.Topology) { h.Host.MemoryBytes = ptr[int64](gib) },
		"the driver's model":  func(h *topo.Topology) { h.GPUs[0].Model, h.GPUs[0].KnownFrom = "NVIDIA H100 80GB HBM3", "driver" },
		"the driver's NUMA":   func(h *topo.Topology) { h.GPUs[0].NUMA = nil },
		"read as root":        func(h *topo.Topology) { h.PCIDevices[0].Role = topo.RoleBridge },
		"another kernel":      func(h *topo.Topology) { h.Host.Kernel, h.Host.GPUDriver = "6.14", "570.1" },
		"fewer CPUs for this": func(h *topo.Topology) { h.Host.AllowedCPUs = "0" },
		"virtual functions": func(h *topo.Topology) {
			vf := h.PCIDevices[0]
			vf.ID, vf.PF = "pci:vf", vf.ID
			h.PCIDevices = append(h.PCIDevices, vf)
		},
	} {
		if host(full, change) != base {
			t.Errorf("%s: another fingerprint", what)
		}
	}
	for what, change := range map[string]func(*topo.Topology){
		"a node without memory":   memory(512*gib, 0),
		"memory that nobody told": func(h *topo.Topology) { h.NUMANodes[1].MemoryBytes = nil },
		"a node more": func(h *topo.Topology) {
			h.NUMANodes = append(h.NUMANodes, topo.NUMANode{Index: 2, MemoryBytes: ptr[int64](gib)})
		},
		"fewer processors": func(h *topo.Topology) { h.NUMANodes[1].CPUs = "0-1" },
		"other processors": func(h *topo.Topology) { h.Host.CPUModel = "other" },
		"another card": func(h *topo.Topology) {
			h.PCIDevices[len(h.PCIDevices)-1].Device = "0x1021"
		},
	} {
		if host(full, change) == base {
			t.Errorf("%s: the same fingerprint", what)
		}
	}
	// The memory of a GPU is a node's only while its driver is there.
	owned := func(bytes int64, owner topo.ID) func(*topo.Topology) {
		return func(h *topo.Topology) {
			h.NUMANodes = append(h.NUMANodes, topo.NUMANode{Index: 2, MemoryBytes: &bytes, Owner: owner})
		}
	}
	if host(full, owned(0, "")) != host(full, owned(96*gib, "gpu:0")) {
		t.Error("the driver's coming changes the fingerprint")
	}
	// A GPU of which no PCI function is known is told by its model.
	model := func(name string) func(*topo.Topology) {
		return func(h *topo.Topology) { h.GPUs[0].PCI, h.GPUs[0].Model = "", name }
	}
	if host(full, model("a")) == host(full, model("b")) {
		t.Error("GPUs without PCI function are all alike")
	}
}
