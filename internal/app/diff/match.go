package diff

import (
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// matching finds out which node of the old side is which of the new one.
type matching struct {
	old, new    *side
	byStructure bool // identities say nothing
}

// match pairs the nodes of two sides: devices and their functions by what they are,
// functions by their place in the tree, their slot, then their order, devices by their
// function, then by name, and the rest by what they belong to. What is paired once stays so.
func match(older, newer *side, byStructure bool) *matching {
	m := &matching{older, newer, byStructure}
	if !byStructure {
		m.identities()
	}
	m.hostBridges()
	m.functions()
	for _, kind := range deviceKinds {
		m.devices(kind)
	}
	m.rest()
	return m
}

// pair notes that two nodes are the same, unless either has a match already.
func (m *matching) pair(o, n *node, by Method, why string) *Match {
	if o == nil || n == nil || o.match != nil || n.match != nil {
		return nil
	}
	p := &Match{Old: o.ID, New: n.ID, By: by, Why: why}
	o.match, n.match = p, p
	o.other, n.other = n, o
	return p
}

// inherit pairs two nodes as what they stand on is paired.
func (m *matching) inherit(o, n *node, from *Match) {
	if p := m.pair(o, n, from.By, from.Why); p != nil {
		p.Replaced = from.Replaced
	}
}

// byKey hands nodes without a match that have one key to pair, in the order of the old
// ones. What has the key "" takes no part.
func byKey(olds, news []*node, key func(*node) string, pair func(olds, news []*node)) {
	groups := map[string]*[2][]*node{}
	var order []string
	for i, list := range [][]*node{olds, news} {
		for _, n := range list {
			k := key(n)
			if k == "" || n.match != nil {
				continue
			}
			if groups[k] == nil {
				groups[k] = &[2][]*node{}
				order = append(order, k)
			}
			groups[k][i] = append(groups[k][i], n)
		}
	}
	for _, k := range order {
		if g := groups[k]; len(g[0]) > 0 && len(g[1]) > 0 {
			pair(g[0], g[1])
		}
	}
}

// firstWithFirst pairs two lists in their order.
func firstWithFirst(olds, news []*node, pair func(o, n *node)) {
	for i := range min(len(olds), len(news)) {
		pair(olds[i], news[i])
	}
}

func unmatched(list []*node) []*node {
	return slices.DeleteFunc(slices.Clone(list), func(n *node) bool { return n.match != nil })
}

// identities pairs devices that are the same by what they are, and their functions.
// What two devices of one side share identifies none.
func (m *matching) identities() {
	byKey(m.old.devices, m.new.devices, func(n *node) string { return n.unique }, func(olds, news []*node) {
		if len(olds) == 1 && len(news) == 1 {
			o, n := olds[0], news[0]
			m.pair(o, n, ByIdentity, "same "+o.why)
			m.pair(o.function, n.function, ByIdentity, "same "+o.why)
		}
	})
}

// hostBridges pairs root buses: by their number where the same ones are there, else by
// their order where there are as many.
func (m *matching) hostBridges() {
	olds, news := m.old.bridgesInUse(), m.new.bridgesInUse()
	same := 0
	for _, o := range olds {
		if slices.Contains(news, m.new.nodes[o.ID]) {
			same++
		}
	}
	if same < len(olds) && len(olds) == len(news) {
		firstWithFirst(olds, news, func(o, n *node) { m.pair(o, n, ByPosition, "same place in the order of root buses") })
		return
	}
	byKey(olds, news, idOf, func(olds, news []*node) { m.pair(olds[0], news[0], BySlot, "same root bus") })
}

func idOf(n *node) string { return string(n.ID) }

// bridgesInUse lists the host bridges with functions below.
func (s *side) bridgesInUse() []*node {
	return slices.DeleteFunc(slices.Clone(s.bridges), func(n *node) bool { return len(s.index.Children(n.ID)) == 0 })
}

// functions pairs PCI functions.
func (m *matching) functions() {
	place := func(n *node) string { // one slot, whatever its bus is numbered
		bridge, way := n.way()
		if b := n.side.nodes[bridge]; b != nil && b.match != nil {
			bridge = b.match.New
		}
		return string(bridge) + " " + way
	}
	byKey(m.old.functions, m.new.functions, ofOneMake(place), func(olds, news []*node) {
		firstWithFirst(olds, news, m.pairFunctions("same place in the tree"))
	})
	byKey(m.old.functions, m.new.functions, idOf, func(olds, news []*node) {
		if sameModel(olds[0].pci(), news[0].pci()) {
			m.pairFunctions("")(olds[0], news[0])
		}
	})
	m.inOrder("same order on its NUMA node", func(n *node) string {
		return string(n.devices[0].kind) + " " + numberText(n.pci().NUMA)
	})
	m.inOrder("same order on the host", func(n *node) string { return string(n.devices[0].kind) })
	byKey(m.old.functions, m.new.functions, idOf, func(olds, news []*node) {
		o, n := olds[0], news[0]
		if len(o.devices) > 0 && len(n.devices) > 0 && o.devices[0].kind == n.devices[0].kind {
			m.pair(o, n, BySlot, "same slot").Replaced = true // the slot goes on with a device of another make
		}
	})
}

// ofOneMake keeps functions of different makes apart.
func ofOneMake(key func(*node) string) func(*node) string {
	return func(n *node) string {
		d := n.pci()
		return strings.Join([]string{key(n), string(d.Vendor), string(d.Device), string(d.SubVendor), string(d.SubDevice)}, " ")
	}
}

// sameModel says whether two functions are of the same make, as far as known.
func sameModel(o, n *topo.PCIDevice) bool {
	same := func(a, b topo.HexID) bool { return a == b || a == "" || b == "" }
	return same(o.Vendor, n.Vendor) && same(o.Device, n.Device)
}

// inOrder pairs what is left: functions of one make with devices, first with first.
// Devices whose identity both sides know are not the same, or they would have a match.
// A function that stands for no device is only where it was.
func (m *matching) inOrder(why string, key func(*node) string) {
	pair := m.pairFunctions(why)
	withDevices := func(n *node) bool { return len(n.devices) == 0 }
	olds := slices.DeleteFunc(slices.Clone(m.old.functions), withDevices)
	news := slices.DeleteFunc(slices.Clone(m.new.functions), withDevices)
	byKey(olds, news, ofOneMake(key), func(olds, news []*node) {
		if m.byStructure {
			if len(olds) == len(news) { // of two hosts, unlike numbers say nothing
				firstWithFirst(olds, news, pair)
			}
			return
		}
		oldKnown, oldUnknown := splitByIdentity(olds)
		newKnown, newUnknown := splitByIdentity(news)
		firstWithFirst(oldUnknown, newUnknown, pair)
		firstWithFirst(unmatched(oldUnknown), newKnown, pair)
		firstWithFirst(oldKnown, unmatched(newUnknown), pair)
	})
}

// splitByIdentity parts functions with a device of known identity from the others.
func splitByIdentity(list []*node) (known, unknown []*node) {
	for _, n := range list {
		if slices.ContainsFunc(n.devices, func(d *node) bool { return d.unique != "" }) {
			known = append(known, n)
		} else {
			unknown = append(unknown, n)
		}
	}
	return known, unknown
}

// pairFunctions pairs functions and notes where their devices are known not to be the same.
func (m *matching) pairFunctions(why string) func(o, n *node) {
	return func(o, n *node) {
		by, why := ByPosition, why
		if *o.address == *n.address {
			by, why = BySlot, "same slot"
		}
		if p := m.pair(o, n, by, why); p != nil && !m.byStructure {
			p.Replaced = otherDevice(o, n)
		}
	}
}

// otherDevice says whether two functions have devices of one kind that are known to be
// different ones. A virtual function's addresses are set by software.
func otherDevice(o, n *node) bool {
	if o.pci().PF != "" || n.pci().PF != "" {
		return false
	}
	differs := false
	for _, kind := range deviceKinds {
		a, b := o.device(kind), n.device(kind)
		if a == nil || b == nil || a.unique == "" || b.unique == "" || a.why != b.why {
			continue
		}
		if a.unique == b.unique {
			return false
		}
		differs = true
	}
	return differs
}

// devices pairs the devices of one kind that are on matched functions, those of one name
// first, the rest in their order; then by name those of which a side does not know the
// function: software devices, virtual interfaces, other tools' files.
func (m *matching) devices(kind topo.Kind) {
	ofKind := func(s *side) []*node {
		return slices.DeleteFunc(slices.Clone(s.devices), func(n *node) bool { return n.kind != kind })
	}
	olds, news := ofKind(m.old), ofKind(m.new)
	onFunction := func(n *node) string {
		if n.function == nil || n.function.match == nil {
			return ""
		}
		return string(n.function.match.New)
	}
	inherit := func(o, n *node) { m.inherit(o, n, o.function.match) }
	byKey(olds, news, func(n *node) string {
		if onFunction(n) == "" {
			return ""
		}
		return onFunction(n) + " " + n.name
	}, func(olds, news []*node) { inherit(olds[0], news[0]) })
	byKey(olds, news, onFunction, func(olds, news []*node) { firstWithFirst(olds, news, inherit) })
	byKey(olds, news, func(n *node) string { return n.name }, func(olds, news []*node) {
		o, n := olds[0], news[len(news)-1]
		if o.function != nil && n.function != nil && !oneCard(o, n) || !m.byStructure && o.unique != "" && o.why == n.why && o.unique != n.unique {
			return
		}
		m.pair(o, n, ByName, "same name")
	})
	m.withoutAddresses(unmatched(olds), unmatched(news))
}

// oneCard says whether two devices are on one card: another tool's file may take a
// card's functions for one.
func oneCard(o, n *node) bool {
	return o.side.imported != n.side.imported && o.address != nil && n.address != nil && o.address.Slot() == n.address.Slot()
}

// sameOrder is why devices without addresses match.
const sameOrder = "same order, and no addresses"

// withoutAddresses pairs devices in their order where one side has no address of any and
// both have as many: some tools' files number devices and do not name them.
func (m *matching) withoutAddresses(olds, news []*node) {
	addressed := func(n *node) bool { return n.function != nil }
	if len(olds) != len(news) || !m.old.imported && !m.new.imported ||
		slices.ContainsFunc(olds, addressed) && slices.ContainsFunc(news, addressed) {
		return
	}
	firstWithFirst(olds, news, func(o, n *node) { m.pair(o, n, ByPosition, sameOrder) })
}

// rest pairs what has no identity of its own by number: ports of matched devices too.
func (m *matching) rest() {
	sameID := func(olds, news []*node, by Method, why string) {
		byKey(olds, news, idOf, func(olds, news []*node) { m.pair(olds[0], news[0], by, why) })
	}
	sameID(m.old.numa, m.new.numa, ByName, "same number")
	sameID(m.old.packages, m.new.packages, ByName, "same number")
	sameID(m.old.bridges, m.new.bridges, BySlot, "same root bus")
	device := func(n *node) *node {
		p, _ := n.value.(*topo.Port)
		return n.side.nodes[p.RDMA]
	}
	byKey(m.old.ports, m.new.ports, func(n *node) string {
		d := device(n)
		if d == nil || d.match == nil {
			return ""
		}
		p, _ := n.value.(*topo.Port)
		return string(d.match.New) + "/" + strconv.Itoa(p.Number)
	}, func(olds, news []*node) { m.inherit(olds[0], news[len(news)-1], device(olds[0]).match) })
}
