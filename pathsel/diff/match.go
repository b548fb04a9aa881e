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

// key is something by which both sides know nodes.
type key struct {
	nodes func(*side) []*node
	of    func(*node) string // nodes with the key "" are left out
	pair  pairing
}

// pairing pairs nodes of one key, which have no match yet; each list is in its side's order.
type pairing func(m *matching, olds, news []*node)

// keys are the ways to recognise a node, the surest first: devices and their functions by
// what they are, functions by their place in the tree, their slot, then their order, devices
// by their function, then by name, and the rest by what they belong to. What one key pairs
// stays so.
var keys = []key{
	{devicesOf, func(n *node) string { return n.unique }, identical},
	{(*side).bridgesInUse, func(*node) string { return "root bus" }, renumberedBridges},
	{func(s *side) []*node { return s.bridges }, idOf, first(BySlot, "same root bus")},
	{functionsOf, keyOf(placeOf, modelOf), inOrder(functions("same place in the tree"))},
	{functionsOf, idOf, sameSlot},
	{functionsWithDevices, keyOf(deviceKindOf, numaOf, modelOf), alike("same order on its NUMA node")},
	{functionsWithDevices, keyOf(deviceKindOf, modelOf), alike("same order on the host")},
	{functionsWithDevices, keyOf(deviceKindOf, idOf), otherModel},
	{devicesOf, keyOf(kindOf, basisOf, nameOf), inOrder(inherit)},
	{devicesOf, keyOf(kindOf, basisOf), inOrder(inherit)},
	{devicesOf, keyOf(kindOf, nameOf), sameName},
	{devicesOf, kindOf, withoutAddresses},
	{func(s *side) []*node { return s.numa }, idOf, first(ByName, "same number")},
	{func(s *side) []*node { return s.packages }, idOf, first(ByName, "same number")},
	{func(s *side) []*node { return s.ports }, keyOf(basisOf, portNumberOf), inOrder(inherit)},
}

// match pairs the nodes of two sides.
func match(older, newer *side, byStructure bool) {
	m := &matching{older, newer, byStructure}
	for _, k := range keys {
		m.by(k)
	}
}

// by pairs the nodes that have one key.
func (m *matching) by(k key) {
	groups := map[string]*[2][]*node{}
	var order []string
	for i, s := range []*side{m.old, m.new} {
		for _, n := range k.nodes(s) {
			x := k.of(n)
			if x == "" || n.match != nil {
				continue
			}
			if groups[x] == nil {
				groups[x] = &[2][]*node{}
				order = append(order, x)
			}
			groups[x][i] = append(groups[x][i], n)
		}
	}
	for _, x := range order {
		if g := groups[x]; len(g[0]) > 0 && len(g[1]) > 0 {
			k.pair(m, g[0], g[1])
		}
	}
}

// same notes that two nodes are the same, unless either has a match already.
func same(o, n *node, by Method, why string) *Match {
	if o == nil || n == nil || o.match != nil || n.match != nil {
		return nil
	}
	p := &Match{Old: o.ID, New: n.ID, By: by, Why: why}
	o.match, n.match = p, p
	o.other, n.other = n, o
	return p
}

// The lists of nodes.

func devicesOf(s *side) []*node   { return s.devices }
func functionsOf(s *side) []*node { return s.functions }

// functionsWithDevices leaves out functions without a device, which are recognised by their place only.
func functionsWithDevices(s *side) []*node {
	return slices.DeleteFunc(slices.Clone(s.functions), func(n *node) bool { return len(n.devices) == 0 })
}

// bridgesInUse lists the host bridges with functions below.
func (s *side) bridgesInUse() []*node {
	return slices.DeleteFunc(slices.Clone(s.bridges), func(n *node) bool { return len(s.index.Children(n.ID)) == 0 })
}

// The keys, and what they are joined from.

func idOf(n *node) string         { return string(n.ID) }
func nameOf(n *node) string       { return n.name }
func kindOf(n *node) string       { return string(n.kind) }
func deviceKindOf(n *node) string { return string(n.devices[0].kind) }

// numaOf is a function's NUMA node, "?" where that is not known.
func numaOf(n *node) string {
	if numa := n.pci().NUMA; numa != nil {
		return strconv.Itoa(*numa)
	}
	return "?"
}

// keyOf joins keys; if one of them is "", so is the result.
func keyOf(parts ...func(*node) string) func(*node) string {
	return func(n *node) string {
		all := make([]string, len(parts))
		for i, part := range parts {
			if all[i] = part(n); all[i] == "" {
				return ""
			}
		}
		return strings.Join(all, " ")
	}
}

// modelOf is what a function says that it is.
func modelOf(n *node) string {
	d := n.pci()
	return strings.Join([]string{string(d.Vendor), string(d.Device), string(d.SubVendor), string(d.SubDevice)}, " ")
}

// placeOf is one slot, whatever its bus is numbered.
func placeOf(n *node) string {
	bridge, way := n.way()
	if b := n.side.nodes[bridge]; b != nil && b.match != nil {
		bridge = b.match.New
	}
	return string(bridge) + " " + way
}

// basis is what a node stands on: a device on its function, a port on its RDMA device.
func (n *node) basis() *node {
	if p, ok := n.value.(*topo.Port); ok {
		return n.side.nodes[p.RDMA]
	}
	return n.function
}

// basisOf is what a node stands on, where that is paired.
func basisOf(n *node) string {
	if b := n.basis(); b != nil && b.match != nil {
		return string(b.match.New)
	}
	return ""
}

func portNumberOf(n *node) string {
	p, _ := n.value.(*topo.Port)
	return strconv.Itoa(p.Number)
}

// The pairings.

// first pairs the first of both lists.
func first(by Method, why string) pairing {
	return func(_ *matching, olds, news []*node) { same(olds[0], news[0], by, why) }
}

// inOrder pairs the first with the first, and so on.
func inOrder(pairs func(m *matching, o, n *node)) pairing {
	return func(m *matching, olds, news []*node) {
		for i := range min(len(olds), len(news)) {
			pairs(m, olds[i], news[i])
		}
	}
}

// inherit pairs two nodes as what they stand on is paired.
func inherit(_ *matching, o, n *node) {
	from := o.basis().match
	if p := same(o, n, from.By, from.Why); p != nil {
		p.Replaced = from.Replaced
	}
}

// functions pairs functions and notes where their devices are known not to be the same.
func functions(why string) func(m *matching, o, n *node) {
	return func(m *matching, o, n *node) {
		by, why := ByPosition, why
		if *o.address == *n.address {
			by, why = BySlot, "same slot"
		}
		if p := same(o, n, by, why); p != nil && !m.byStructure {
			p.Replaced = otherDevice(o, n)
		}
	}
}

// identical pairs the devices with the same identity, and their functions. An identity that two devices of
// one side share identifies neither.
func identical(m *matching, olds, news []*node) {
	if len(olds) == 1 && len(news) == 1 && !m.byStructure {
		o, n := olds[0], news[0]
		same(o, n, ByIdentity, "same "+o.why)
		same(o.function, n.function, ByIdentity, "same "+o.why)
	}
}

// renumberedBridges pairs root buses by their order, where there are as many and not all of
// them have the numbers that they had.
func renumberedBridges(m *matching, olds, news []*node) {
	renumbered := slices.ContainsFunc(olds, func(o *node) bool { return !slices.Contains(news, m.new.nodes[o.ID]) })
	if renumbered && len(olds) == len(news) {
		inOrder(func(_ *matching, o, n *node) { same(o, n, ByPosition, "same place in the order of root buses") })(m, olds, news)
	}
}

// sameSlot pairs functions of one model, as far as that is known.
func sameSlot(m *matching, olds, news []*node) {
	agree := func(a, b topo.HexID) bool { return a == b || a == "" || b == "" }
	o, n := olds[0].pci(), news[0].pci()
	if agree(o.Vendor, n.Vendor) && agree(o.Device, n.Device) {
		functions("")(m, olds[0], news[0])
	}
}

// alike pairs the rest in order. Two devices with known identities are not the same, or they would have a match
// already. Between two hosts, devices are paired only if both have the same number of them.
func alike(why string) pairing {
	pairs := inOrder(functions(why))
	return func(m *matching, olds, news []*node) {
		if m.byStructure {
			if len(olds) == len(news) {
				pairs(m, olds, news)
			}
			return
		}
		pairs(m, unpaired(olds, false), unpaired(news, false))
		pairs(m, unpaired(olds, false), unpaired(news, true))
		pairs(m, unpaired(olds, true), unpaired(news, false))
	}
}

// unpaired lists the functions without a match that have a device of known identity, or those that have none.
func unpaired(list []*node, known bool) []*node {
	return slices.DeleteFunc(slices.Clone(list), func(n *node) bool {
		return n.match != nil || known != slices.ContainsFunc(n.devices, func(d *node) bool { return d.unique != "" })
	})
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

// otherModel pairs a slot with itself, in which there now is a device of another model.
func otherModel(_ *matching, olds, news []*node) {
	same(olds[0], news[0], BySlot, "same slot").Replaced = true
}

// sameName pairs devices whose PCI function is not known on one side: software devices, virtual interfaces, and
// devices in the files of other tools.
func sameName(m *matching, olds, news []*node) {
	o, n := olds[0], news[0]
	if o.function != nil && n.function != nil && !oneCard(o, n) || !m.byStructure && o.unique != "" && o.why == n.why && o.unique != n.unique {
		return
	}
	same(o, n, ByName, "same name")
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
func withoutAddresses(m *matching, olds, news []*node) {
	addressed := func(n *node) bool { return n.function != nil }
	if len(olds) != len(news) || !m.old.imported && !m.new.imported ||
		slices.ContainsFunc(olds, addressed) && slices.ContainsFunc(news, addressed) {
		return
	}
	inOrder(func(_ *matching, o, n *node) { same(o, n, ByPosition, sameOrder) })(m, olds, news)
}
