package topo

import "slices"

// Nearness is how much a topology shows of which NICs are near which GPUs.
type Nearness uint8

// The kinds of Nearness.
const (
	NearnessShown  Nearness = iota // all there is, as on physical machines
	NearnessByNUMA                 // a virtual machine that shows no PCIe switch, only NUMA nodes
	NearnessHidden                 // a virtual machine that shows neither: its devices stand side by side
)

// Guest says whether the host is known to be a virtual machine.
func (h *Host) Guest() bool { return h.Virtual != "" && h.Virtual != "none" }

// Nearness says whether the classes between GPUs and NICs tell how the hardware is built, or only how a
// hypervisor presents it. What topoctl remap took from the hypervisor's host tells it.
func (t *Topology) Nearness() Nearness {
	if f, _ := t.Host.Facts.Get("fingerprint"); !t.Host.Guest() || t.Derived == nil || len(t.GPUs) == 0 || f.Source == SourceRemap {
		return NearnessShown
	}
	x := NewIndex(t)
	type device struct{ id, function ID }
	var others []device // that a GPU is compared with: the NICs, and the GPUs before it
	for i := range t.RDMADevices {
		if r := &t.RDMADevices[i]; !r.Software {
			others = append(others, device{r.ID, r.PCI})
		}
	}
	if len(others) == 0 {
		for _, id := range t.nics() {
			d := device{id: id}
			if n := x.Netdev(id); n != nil {
				d.function = n.PCI
			}
			others = append(others, d)
		}
	}
	out := NearnessHidden
	for i := range t.GPUs {
		g := &t.GPUs[i]
		for _, d := range others {
			r, _ := x.Relation(g.ID, d.id)
			asserted := t.Asserted != nil && (r.Class.Kind == ClassPIX || r.Class.Kind == ClassPXB)
			if _, root, ok := x.Crossing(g.PCI, d.function); asserted || ok && !root {
				return NearnessShown
			}
			if r.Class.Kind == ClassSYS && x.GPU(d.id) == nil {
				out = NearnessByNUMA
			}
		}
		others = append(others, device{g.ID, g.PCI})
	}
	return out
}

// Unknown are what cannot be told of the host, in sentences: what its origin lacks, and what a hypervisor hides.
func (t *Topology) Unknown() []string {
	if t.Nearness() == NearnessHidden {
		return append(slices.Clone(t.Host.Lacks), "which NIC is near which GPU: this virtual machine hides it")
	}
	return t.Host.Lacks
}

// Of is a class between a GPU and another device, as far as it can be believed: where the hypervisor hides
// what is near, only direct links are known.
func (n Nearness) Of(c Class) Class {
	if n == NearnessHidden && c.Kind >= ClassPIX {
		return Class{}
	}
	return c
}
