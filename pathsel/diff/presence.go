package diff

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// presence reports what is on one side only, and what is another one in the same
// place.
func (c *comparer) presence() {
	c.only(Removed, c.old, c.new)
	c.only(Added, c.new, c.old)
	c.replaced()
}

// only reports the nodes of one side that have no match on the other.
func (c *comparer) only(kind Kind, s, other *side) {
	for _, d := range s.devices {
		if d.match == nil && !d.reportedWithOther() {
			c.present(kind, other, d)
		}
	}
	for _, fn := range s.functions {
		if fn.match != nil || len(fn.devices) > 0 {
			continue // matched, or reported with its device
		}
		if up := fn.parent(); up != nil && up.kind == topo.KindPCI && up.upstreamOf() != nil && fn.pci().Role == topo.RoleDownstream && up.match == nil {
			continue // a port of a switch that is reported
		}
		c.present(kind, other, fn.face())
	}
	for _, p := range s.ports {
		if port, _ := p.value.(*topo.Port); p.match == nil && s.nodes[port.RDMA] != nil && s.nodes[port.RDMA].match != nil {
			c.present(kind, other, p)
		}
	}
	used := s.bridgesInUse()
	for _, n := range slices.Concat(s.numa, s.packages, s.bridges) {
		if n.match == nil && !slices.Contains(used, n) {
			c.present(kind, other, n)
		}
	}
}

// reportedWithOther says whether a device is reported with a more important one of the same
// function that came or went as a whole.
func (n *node) reportedWithOther() bool {
	if isContainerEnd(n) {
		return true
	}
	fn := n.function
	return fn != nil && fn.match == nil && fn.devices[0] != n && fn.devices[0].match == nil
}

// present reports one node that is on one side only, unless the other side may
// lack it though the host has it.
func (c *comparer) present(kind Kind, other *side, n *node) {
	at, fn := "", n.function
	if n.address != nil {
		at = n.address.String()
	}
	node := Node{Kind: n.kind, Name: n.name}
	if n.kind == topo.KindPort {
		node.Name = n.ID.Name()
	}
	if kind == Removed {
		node.Old, node.OldAddress, node.OldEvidence = string(n.ID), at, n.Evidence
	} else {
		node.New, node.NewAddress, node.NewEvidence = string(n.ID), at, n.Evidence
	}
	if reason := other.whyUnlisted(n); reason != "" {
		c.omitFor("presence", node, other, reason)
		return
	}
	f := finding{kind: kind, attr: "presence"}
	if fn != nil {
		if pf := n.side.nodes[fn.pci().PF]; pf != nil {
			f.note = "virtual function of " + pf.face().name
		} else if fn.match != nil && n.kind != topo.KindPCI {
			f.note = "its PCI function is there on both sides"
		}
		if fn.match == nil {
			for _, d := range fn.devices {
				if d != n {
					node.With = append(node.With, d.name)
				}
			}
		}
	}
	f.node = node
	if kind == Removed {
		f.old = word(n.makeOf())
	} else {
		f.new = word(n.makeOf())
	}
	c.add(f)
}

// whyUnlisted says why a side may not list a node that the other has although the host has
// it, "" where it would.
func (s *side) whyUnlisted(n *node) string {
	switch inTree := n.kind == topo.KindPCI || n.kind == topo.KindSwitch || n.kind == topo.KindHostBridge; {
	case s.imported && (inTree || !s.has(n.kind)):
		return "a file of another tool (" + s.t.Origin + ") does not say"
	case n.side.imported && inTree:
		return "was not read, and " + n.side.t.Origin + " has its own tree"
	}
	about := func(id topo.ID, explains func(*topo.Warning) bool) string {
		for _, w := range s.warned[id] {
			if explains(w) {
				return fmt.Sprintf("%s: %s: %s (%s)", w.Code, w.Subject, w.Detail, w.Evidence)
			}
		}
		return ""
	}
	subjects := []topo.ID{n.ID}
	if n.function != nil {
		subjects = append(subjects, n.function.ID)
	}
	if port, ok := n.value.(*topo.Port); ok {
		subjects = append(subjects, port.RDMA)
	}
	for _, id := range subjects {
		if reason := about(id, (*topo.Warning).Partial); reason != "" {
			return reason
		}
	}
	if n.function != nil { // what is below a bridge that vanished went with it
		for d := range n.side.index.Climb(n.function.ID) {
			if reason := about(d.Parent, func(w *topo.Warning) bool { return w.Code == topo.CodeVanished }); reason != "" {
				return reason
			}
		}
	}
	return ""
}

// has says whether a side has any node of a kind.
func (s *side) has(kind topo.Kind) bool {
	return slices.ContainsFunc(slices.Concat(s.devices, s.ports, s.numa, s.packages), func(n *node) bool { return n.kind == kind })
}

// replaced reports devices that have another one in their place: the slot is the
// same, what is in it is not. Both are reported by the most important device.
func (c *comparer) replaced() {
	for _, o := range c.old.functions {
		if o.match == nil || !o.match.Replaced {
			continue
		}
		n := o.other
		p := pairOf(o)
		x, y := o.device(p.kind), n.device(p.kind)
		node := c.node(p, "")
		gone := Node{Kind: p.kind, Old: node.Old, OldAddress: o.address.String(), OldEvidence: node.OldEvidence}
		came := Node{Kind: p.kind, New: node.New, NewAddress: n.address.String(), NewEvidence: node.NewEvidence}
		if x != nil {
			gone.Name = x.name
		}
		if y != nil {
			came.Name = y.name
		}
		c.add(finding{kind: Removed, attr: "presence", node: gone, old: word(c.described(x)), note: "replaced"})
		c.add(finding{kind: Added, attr: "presence", node: came, new: word(c.described(y)), note: "in its place"})
	}
}

// described is what a device is, in words.
func (c *comparer) described(n *node) string {
	if n == nil {
		return ""
	}
	s := n.makeOf()
	if n.unique != "" && c.identities == IdentitiesCompared {
		s += ", " + n.why + " " + n.unique[strings.LastIndexByte(n.unique, ' ')+1:]
	}
	return s
}

// places reports devices in another slot, and slots whose bus numbers changed.
func (c *comparer) places() {
	if c.old.imported || c.new.imported {
		return
	}
	for _, o := range c.old.functions {
		if o.other == nil {
			continue
		}
		n, p := o.other, pairOf(o)
		node := c.node(p, "parent")
		node.OldAddress, node.NewAddress = o.address.String(), n.address.String()
		switch {
		case c.atOtherPlace(o, n):
			c.reported[nodeAttr{node.New, "numa_node"}] = true // the slot implies it
			c.add(finding{kind: Moved, attr: "slot", node: node, old: word(node.OldAddress + onNUMA(o)), new: word(node.NewAddress + onNUMA(n)), note: p.match.Why})
		case *o.address != *n.address && c.compares("pci_address") && len(o.devices) > 0:
			c.add(finding{kind: Renumbered, attr: "pci_address", node: node, old: word(node.OldAddress), new: word(node.NewAddress), note: p.match.Why})
		}
	}
}

func onNUMA(n *node) string {
	if d := n.pci(); d.NUMA != nil {
		return fmt.Sprintf(" (NUMA node %d)", *d.NUMA)
	}
	return ""
}

// atOtherPlace says whether a function hangs from another place: at another
// address another way down from its host bridge, at the same address another
// bridge above.
func (c *comparer) atOtherPlace(o, n *node) bool {
	if *o.address == *n.address {
		up, down := o.parent(), n.parent()
		return up != nil && down != nil && up.match != nil && down.match != nil && up.other != down
	}
	x, way := o.way()
	y, other := n.way()
	bridge := c.old.nodes[x]
	return bridge == nil || bridge.match == nil || bridge.match.New != y || way != other
}
