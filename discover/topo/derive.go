package topo

import (
	"cmp"
	"slices"
	"strings"
)

// Derive computes what follows from the observed nodes: order of the lists,
// roles of bridges, switches, cards, links, relations and the fingerprint. It
// replaces what an earlier Derive computed and keeps links that a source gave.
// Every producer of a Topology calls it once, after the last change.
func (t *Topology) Derive() {
	t.stampKinds()
	t.sortNodes()
	observed := NewIndex(t) // without what the next steps derive
	t.assignRoles(observed)
	t.deriveSwitches(observed)
	t.deriveNICs(observed)
	t.markImplausible(observed)
	t.deriveLinks(observed)
	t.sortWarnings()
	t.Host.Fingerprint = t.fingerprint(observed)
	t.deriveRelations()
}

func (t *Topology) stampKinds() {
	stamp(t.Packages, KindPackage)
	stamp(t.NUMANodes, KindNUMA)
	stamp(t.HostBridges, KindHostBridge)
	stamp(t.PCIDevices, KindPCI)
	stamp(t.GPUs, KindGPU)
	stamp(t.RDMADevices, KindRDMA)
	stamp(t.Ports, KindPort)
	stamp(t.Netdevs, KindNetdev)
	stamp(t.NVMes, KindNVMe)
	stamp(t.NVSwitches, KindNVSwitch)
}

func stamp[T any](list []T, kind Kind) {
	for i := range list {
		any(&list[i]).(noder).common().Kind = kind
	}
}

func (t *Topology) sortNodes() {
	slices.SortStableFunc(t.Packages, func(a, b Package) int { return cmp.Compare(a.Index, b.Index) })
	slices.SortStableFunc(t.NUMANodes, func(a, b NUMANode) int { return cmp.Compare(a.Index, b.Index) })
	slices.SortStableFunc(t.HostBridges, func(a, b HostBridge) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Bus, b.Bus), NaturalCompare(string(a.ID), string(b.ID)))
	})
	slices.SortStableFunc(t.PCIDevices, func(a, b PCIDevice) int { return a.BDF.Compare(b.BDF) })
	slices.SortStableFunc(t.GPUs, func(a, b GPU) int { return cmp.Compare(a.Index, b.Index) })
	sortByID(t.RDMADevices)
	sortByID(t.Ports)
	sortByID(t.Netdevs)
	sortByID(t.NVMes)
	slices.SortStableFunc(t.NVSwitches, func(a, b NVSwitch) int { return NaturalCompare(string(a.ID), string(b.ID)) })
}

func sortByID[T any](list []T) {
	slices.SortStableFunc(list, func(a, b T) int {
		return NaturalCompare(string(any(&a).(noder).common().ID), string(any(&b).(noder).common().ID))
	})
}

func (t *Topology) sortWarnings() {
	slices.SortStableFunc(t.Warnings, func(a, b Warning) int {
		return cmp.Or(strings.Compare(string(a.Code), string(b.Code)), NaturalCompare(string(a.Subject), string(b.Subject)),
			strings.Compare(a.Detail, b.Detail), strings.Compare(a.Evidence, b.Evidence))
	})
	t.Warnings = slices.Compact(t.Warnings)
}

// IsBridge says whether the function's class is a PCI-to-PCI bridge.
func (d *PCIDevice) IsBridge() bool { return d.Class.Uint()>>8 == 0x0604 }

// assignRoles gives bridges whose configuration space could not be read the
// role that their place implies: on a root bus a root port, and below it upstream
// and downstream ports in turn. A bridge with several slots on its bus that
// itself hangs from a downstream port is a conventional bridge.
func (t *Topology) assignRoles(x *Index) {
	var role func(d *PCIDevice, depth int) PCIRole
	role = func(d *PCIDevice, depth int) PCIRole {
		if d.Role != "" || depth > maxDepth {
			return d.Role
		}
		if !d.IsBridge() {
			d.Role = RoleEndpoint
			return d.Role
		}
		parent := x.PCIDevice(d.Parent)
		if parent == nil {
			d.Role = RoleRootPort
			return d.Role
		}
		switch role(parent, depth+1) {
		case RoleRootPort, RoleDownstream:
			d.Role = RoleUpstream
			// A bridge whose bus holds endpoints only is no switch: a switch
			// has ports below its upstream port.
			if !slices.ContainsFunc(x.Children(d.ID), (*PCIDevice).IsBridge) {
				d.Role = RoleBridge
			}
		case RoleUpstream:
			d.Role = RoleDownstream
		default:
			d.Role = RoleBridge
		}
		return d.Role
	}
	for i := range t.PCIDevices {
		role(&t.PCIDevices[i], 0)
	}
}

// maxDepth bounds every climb of the PCI tree; real trees are below 16, and a
// hostile document could hold a cycle.
const maxDepth = 64

func (t *Topology) deriveSwitches(x *Index) {
	t.Switches = nil
	for i := range t.PCIDevices {
		d := &t.PCIDevices[i]
		if d.Role != RoleUpstream {
			continue
		}
		s := Switch{
			Node:     Node{ID: SwitchID(d.BDF), Kind: KindSwitch, Evidence: d.Evidence, Facts: Facts{{"upstream", SourceDerived, "role of PCI functions"}}},
			Upstream: d.ID, Downstream: []ID{}, Name: d.DeviceName, NUMA: d.NUMA,
		}
		for _, port := range x.Children(d.ID) {
			if port.Role == RoleDownstream {
				s.Downstream = append(s.Downstream, port.ID)
			}
		}
		t.Switches = append(t.Switches, s)
	}
}

// isNetworkFunction says whether a PCI function is a NIC's: class 0x02, or the
// parent of an RDMA device (BlueField and data-direct functions have others).
func (x *Index) isNetworkFunction(d *PCIDevice) bool {
	return d.Class.Uint()>>16 == 0x02 || len(x.On(d.ID).RDMADevices) > 0
}

// deriveNICs groups network functions into cards by slot. A virtual function
// is a card of its own, because it shares its physical function's port.
func (t *Topology) deriveNICs(x *Index) {
	t.NICs = nil
	bySlot := map[string]int{}
	slotOf := map[ID]string{}
	for i := range t.PCIDevices {
		d := &t.PCIDevices[i]
		if !x.isNetworkFunction(d) {
			continue
		}
		slot := d.BDF.Slot()
		if d.PF != "" {
			slot = d.BDF.String()
		}
		slotOf[d.ID] = slot
		n, ok := bySlot[slot]
		if !ok {
			n = len(t.NICs)
			bySlot[slot] = n
			t.NICs = append(t.NICs, NIC{
				Node:  Node{ID: NICID(slot), Kind: KindNIC, Evidence: d.Evidence, Facts: Facts{{"functions", SourceDerived, "PCI functions of one slot"}}},
				Model: d.DeviceName, NUMA: d.NUMA,
			})
		}
		t.NICs[n].Functions = append(t.NICs[n].Functions, d.ID)
	}
	for i := range t.PCIDevices {
		d := &t.PCIDevices[i]
		if slot, ok := slotOf[d.ID]; ok && d.PF != "" {
			if pf, ok := slotOf[d.PF]; ok {
				t.NICs[bySlot[slot]].VFOf = NICID(pf)
			}
		}
	}
	for i := range t.RDMADevices {
		r := &t.RDMADevices[i]
		r.NIC = ""
		if slot, ok := slotOf[r.PCI]; ok {
			r.NIC = NICID(slot)
		}
	}
}
