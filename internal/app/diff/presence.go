package diff

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// presence reports what is on one side only, and what is another one in the same
// place.
func (c *comparer) presence() {
	c.only(Removed, c.old, c.new, c.m.to)
	c.only(Added, c.new, c.old, c.m.from)
	c.replaced()
}

// only reports the nodes of one side that have no match on the other.
func (c *comparer) only(kind Kind, s, other *side, matched map[topo.ID]*Match) {
	for _, d := range s.all {
		if matched[d.id] == nil && !c.foldsInto(s, d, matched) {
			c.present(kind, s, other, d, matched)
		}
	}
	for i := range s.t.PCIDevices {
		fn := &s.t.PCIDevices[i]
		if matched[fn.ID] != nil || len(s.devices[fn.ID]) > 0 {
			continue // matched, or told by its device
		}
		if up := s.pci[fn.Parent]; up != nil && s.switches[up.ID] != nil && fn.Role == topo.RoleDownstream && matched[up.ID] == nil {
			continue // a port of a switch that is told
		}
		c.present(kind, s, other, s.face(fn), matched)
	}
	for i := range s.t.Ports {
		p := &s.t.Ports[i]
		if matched[p.ID] == nil && matched[p.RDMA] != nil {
			c.present(kind, s, other, device{kind: topo.KindPort, id: p.ID, name: p.ID.Name(), node: &p.Node}, matched)
		}
	}
	for i := range s.t.NUMANodes {
		if n := &s.t.NUMANodes[i]; matched[n.ID] == nil {
			c.present(kind, s, other, device{kind: topo.KindNUMA, id: n.ID, name: string(n.ID), node: &n.Node}, matched)
		}
	}
	for i := range s.t.Packages {
		if p := &s.t.Packages[i]; matched[p.ID] == nil {
			c.present(kind, s, other, device{kind: topo.KindPackage, id: p.ID, name: string(p.ID), node: &p.Node}, matched)
		}
	}
	used := map[topo.ID]bool{}
	for _, id := range bridgesInUse(s) {
		used[id] = true
	}
	for i := range s.t.HostBridges {
		if h := &s.t.HostBridges[i]; matched[h.ID] == nil && !used[h.ID] {
			c.present(kind, s, other, device{kind: topo.KindHostBridge, id: h.ID, name: "root bus " + h.ID.Name(), node: &h.Node}, matched)
		}
	}
}

// foldsInto says whether a device is told by a more important one of the same
// function that came or went as a whole.
func (c *comparer) foldsInto(s *side, d device, matched map[topo.ID]*Match) bool {
	if d.kind == topo.KindNetdev {
		if n := s.netdevs[d.name]; n != nil && comesAndGoes(n) {
			return true
		}
	}
	return d.pci != "" && matched[d.pci] == nil && s.devices[d.pci][0].id != d.id && matched[s.devices[d.pci][0].id] == nil
}

// present reports one node that is on one side only, unless the other side could
// not tell it.
func (c *comparer) present(kind Kind, s, other *side, d device, matched map[topo.ID]*Match) {
	node := Node{Kind: d.kind, Name: d.name}
	at := ""
	if d.bdf != nil {
		at = d.bdf.String()
	}
	if s == c.old {
		node.Old, node.OldAddress, node.OldEvidence = string(d.id), at, d.node.Evidence
	} else {
		node.New, node.NewAddress, node.NewEvidence = string(d.id), at, d.node.Evidence
	}
	if reason := other.blind(s, d); reason != "" {
		c.omitFor("presence", node, other, reason)
		return
	}
	fn := s.pci[d.pci]
	what := word(c.modelOfDevice(s, d))
	note := ""
	switch {
	case fn != nil && fn.PF != "" && s.pci[fn.PF] != nil:
		note = "virtual function of " + s.face(s.pci[fn.PF]).name
	case fn != nil && matched[fn.ID] != nil && d.kind != topo.KindPCI:
		note = "its PCI function is there on both sides"
	}
	if matched[d.pci] == nil {
		for _, x := range s.devices[d.pci] {
			if x.id != d.id {
				node.With = append(node.With, x.name)
			}
		}
	}
	f := finding{kind: kind, attr: "presence", node: node, note: note}
	if kind == Removed {
		f.old = what
	} else {
		f.new = what
	}
	c.add(f)
}

// modelOfDevice says in words what a device is: of GPUs and drives what they say
// themselves, of others the name of the PCI function.
func (c *comparer) modelOfDevice(s *side, d device) string {
	function := s.modelOf(s.pci[d.pci])
	if d.kind == topo.KindGPU || d.kind == topo.KindNVMe {
		return cmp.Or(d.model, function)
	}
	return cmp.Or(function, d.model)
}

// blind says why a side cannot tell a node that the other has, "" where it
// could: it would be there if it was there.
func (s *side) blind(other *side, d device) string {
	why := "a file of another tool (" + s.t.Origin + ") does not tell"
	switch inTree := d.kind == topo.KindPCI || d.kind == topo.KindSwitch || d.kind == topo.KindHostBridge; {
	case s.imported && (inTree || s.count(d.kind) == 0):
		return why
	case other.imported && inTree:
		return "not in what was read, and " + other.t.Origin + " has trees of its own"
	}
	for _, id := range []topo.ID{d.id, d.pci} {
		for _, w := range s.warned[id] {
			if id != "" && w.Partial() {
				return fmt.Sprintf("%s: %s: %s (%s)", w.Code, w.Subject, w.Detail, w.Evidence)
			}
		}
	}
	if rdma, _, ok := strings.Cut(d.id.Name(), "/"); ok && d.kind == topo.KindPort {
		for _, w := range s.warned[s.sameRDMA(rdma)] {
			if w.Partial() {
				return fmt.Sprintf("%s: %s: %s (%s)", w.Code, w.Subject, w.Detail, w.Evidence)
			}
		}
	}
	fn := other.pci[d.pci]
	for range maxDepth { // what is below a bridge that vanished went with it
		if fn == nil {
			break
		}
		for _, w := range s.warned[fn.Parent] {
			if w.Code == topo.CodeVanished {
				return fmt.Sprintf("%s: %s: %s (%s)", w.Code, w.Subject, w.Detail, w.Evidence)
			}
		}
		fn = other.pci[fn.Parent]
	}
	return ""
}

// sameRDMA is the ID of an RDMA device by its name.
func (s *side) sameRDMA(name string) topo.ID { return topo.RDMAID(name) }

// count is how many nodes of a kind a side has.
func (s *side) count(kind topo.Kind) int {
	switch kind {
	case topo.KindNUMA:
		return len(s.t.NUMANodes)
	case topo.KindPackage:
		return len(s.t.Packages)
	case topo.KindPort:
		return len(s.t.Ports)
	}
	n := 0
	for _, d := range s.all {
		if d.kind == kind {
			n++
		}
	}
	return n
}

// replaced reports devices that have another one in their place: the slot is the
// same, what is in it is not. Both are told by the most important device.
func (c *comparer) replaced() {
	for i := range c.old.t.PCIDevices {
		o := &c.old.t.PCIDevices[i]
		m := c.m.to[o.ID]
		if m == nil || !m.Replaced {
			continue
		}
		n := c.new.pci[m.New]
		f := c.face(o, n)
		x, _ := c.old.deviceOf(o.ID, f.kind)
		y, _ := c.new.deviceOf(n.ID, f.kind)
		gone := c.node(f.kind, f.o, nil, nil, x.name, "")
		gone.OldAddress = o.BDF.String()
		came := c.node(f.kind, nil, f.n, nil, y.name, "")
		came.NewAddress = n.BDF.String()
		c.add(finding{kind: Removed, attr: "presence", node: gone, old: word(c.modelOfDevice(c.old, x) + c.identityOf(x)), note: "replaced"})
		c.add(finding{kind: Added, attr: "presence", node: came, new: word(c.modelOfDevice(c.new, y) + c.identityOf(y)), note: "in its place"})
	}
}

// identityOf is what a device is, in words.
func (c *comparer) identityOf(d device) string {
	if d.unique == "" || c.identities != IdentitiesCompared {
		return ""
	}
	return ", " + d.why + " " + d.unique[strings.LastIndexByte(d.unique, ' ')+1:]
}

// places reports devices in another slot, and slots whose bus numbers changed.
func (c *comparer) places() {
	for i := range c.old.t.PCIDevices {
		o := &c.old.t.PCIDevices[i]
		m := c.m.to[o.ID]
		if m == nil || c.old.imported || c.new.imported {
			continue
		}
		n := c.new.pci[m.New]
		f := c.face(o, n)
		node := c.node(f.kind, f.o, f.n, m, f.name, "parent")
		node.OldAddress, node.NewAddress = o.BDF.String(), n.BDF.String()
		switch {
		case c.atOtherPlace(o, n):
			c.told[[2]string{string(f.n.ID), "numa_node"}] = true // the slot tells it
			c.add(finding{kind: Moved, attr: "slot", node: node, old: word(node.OldAddress + onNUMA(o)), new: word(node.NewAddress + onNUMA(n)), note: m.Why})
		case o.BDF != n.BDF && c.compares("pci_address") && len(c.old.devices[o.ID]) > 0:
			c.add(finding{kind: Renumbered, attr: "pci_address", node: node, old: word(node.OldAddress), new: word(node.NewAddress), note: m.Why})
		}
	}
}

func onNUMA(d *topo.PCIDevice) string {
	if d.NUMA == nil {
		return ""
	}
	return fmt.Sprintf(" (NUMA node %d)", *d.NUMA)
}

// atOtherPlace says whether a function hangs from another place: at another
// address another way down from its host bridge, at the same address another
// bridge above.
func (c *comparer) atOtherPlace(o, n *topo.PCIDevice) bool {
	if o.BDF == n.BDF {
		up, down := c.m.to[o.Parent], c.m.from[n.Parent]
		return up != nil && down != nil && up != down
	}
	x, way := c.old.steps(o)
	y, other := c.new.steps(n)
	bridge := c.m.to[x]
	return bridge == nil || bridge.New != y || way != other
}
