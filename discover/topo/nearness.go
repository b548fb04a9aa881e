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
	nics, function := []ID{}, map[ID]ID{}
	for i := range t.RDMADevices {
		if r := &t.RDMADevices[i]; !r.Software {
			nics, function[r.ID] = append(nics, r.ID), r.PCI
		}
	}
	if len(nics) == 0 {
		nics = t.nics()
		for _, id := range nics {
			if n := x.Netdev(id); n != nil {
				function[id] = n.PCI
			}
		}
	}
	out := NearnessHidden
	for i := range t.GPUs {
		g := &t.GPUs[i]
		others := slices.Clone(nics)
		for j := range t.GPUs[:i] {
			others, function[t.GPUs[j].ID] = append(others, t.GPUs[j].ID), t.GPUs[j].PCI
		}
		for k, id := range others {
			r, _ := x.Relation(g.ID, id)
			asserted := t.Asserted != nil && (r.Class.Kind == ClassPIX || r.Class.Kind == ClassPXB)
			if asserted || len(x.SwitchPorts(g.PCI, function[id])) > 0 {
				return NearnessShown
			}
			if k < len(nics) && r.Class.Kind == ClassSYS {
				out = NearnessByNUMA
			}
		}
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

// SwitchPorts are the switch ports that a transfer between two functions enters and leaves a common
// switch by. It is empty for functions that meet nowhere below the root, or on one port.
func (x *Index) SwitchPorts(a, b ID) []*PCIDevice {
	up, down := slices.Collect(x.Climb(a)), slices.Collect(x.Climb(b))
	i, j := len(up), len(down)
	for i > 0 && j > 0 && up[i-1] == down[j-1] {
		i, j = i-1, j-1
	}
	if i == len(up) || i == 0 || j == 0 {
		return nil // nothing in common, or one above the other
	}
	ports := []*PCIDevice{up[i-1], down[j-1]}
	if slices.ContainsFunc(ports, func(d *PCIDevice) bool { return !d.IsBridge() || d.Role == RoleBridge }) {
		return nil
	}
	return ports
}
