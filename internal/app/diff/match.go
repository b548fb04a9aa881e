package diff

import (
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// matching says which node of the old side is which of the new one.
type matching struct {
	o, n        *side
	byStructure bool // identities say nothing
	to, from    map[topo.ID]*Match
}

// match pairs the nodes of two sides: devices by what they are, functions by
// their slot, then by their position, and the rest by what they belong to.
func match(o, n *side, byStructure bool) *matching {
	m := &matching{o: o, n: n, byStructure: byStructure, to: map[topo.ID]*Match{}, from: map[topo.ID]*Match{}}
	if !byStructure {
		m.identities()
	}
	m.hostBridges()
	m.places()
	m.slots()
	m.orders()
	m.otherModels()
	for _, kind := range deviceKinds {
		m.onFunctions(kind)
		m.withoutFunctions(kind)
	}
	m.rest()
	return m
}

// pair notes that two nodes are the same, unless either has a match already.
func (m *matching) pair(o, n topo.ID, by Method, why string) *Match {
	if m.to[o] != nil || m.from[n] != nil || o == "" || n == "" {
		return nil
	}
	p := &Match{Old: o, New: n, By: by, Why: why}
	m.to[o], m.from[n] = p, p
	return p
}

// identities pairs devices that are the same by what they are, and their
// functions. What two devices of one side share identifies none.
func (m *matching) identities() {
	find := func(s *side) (map[string]device, []string) {
		count, first := map[string]int{}, map[string]device{}
		var order []string
		for _, d := range s.all {
			if d.unique != "" {
				count[d.unique]++
				first[d.unique] = d
				order = append(order, d.unique)
			}
		}
		for key, k := range count {
			if k > 1 {
				delete(first, key)
			}
		}
		return first, order
	}
	olds, order := find(m.o)
	news, _ := find(m.n)
	for _, key := range order {
		o, ok1 := olds[key]
		n, ok2 := news[key]
		if !ok1 || !ok2 || o.kind != n.kind {
			continue
		}
		m.pair(o.id, n.id, ByIdentity, "same "+o.why)
		m.pair(o.pci, n.pci, ByIdentity, "same "+o.why)
	}
}

// functions lists a side's functions that have no match, in the order of addresses.
func (m *matching) functions(s *side, matched map[topo.ID]*Match) []*topo.PCIDevice {
	var out []*topo.PCIDevice
	for i := range s.t.PCIDevices {
		if d := &s.t.PCIDevices[i]; matched[d.ID] == nil {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, byAddress)
	return out
}

// slots pairs functions at one address that are of the same make and hang from
// elsewhere, or of which one side knows less of the tree.
func (m *matching) slots() {
	for _, o := range m.functions(m.o, m.to) {
		if n := m.n.pci[o.ID]; n != nil && sameModel(o, n) {
			m.pairSlot(o, n, BySlot, "same slot")
		}
	}
}

// pairSlot pairs functions in one place and notes where their devices are known
// not to be the same.
func (m *matching) pairSlot(o, n *topo.PCIDevice, by Method, why string) {
	if o.BDF == n.BDF {
		by, why = BySlot, "same slot"
	}
	if p := m.pair(o.ID, n.ID, by, why); p != nil && !m.byStructure {
		p.Replaced = m.otherDevice(o, n)
	}
}

// otherDevice says whether two functions have devices of one kind that are known
// to be different ones. A virtual function's addresses are set by software.
func (m *matching) otherDevice(o, n *topo.PCIDevice) bool {
	if o.PF != "" || n.PF != "" {
		return false
	}
	differs := false
	for _, kind := range deviceKinds {
		a, ok1 := m.o.deviceOf(o.ID, kind)
		b, ok2 := m.n.deviceOf(n.ID, kind)
		if !ok1 || !ok2 || a.unique == "" || b.unique == "" || a.why != b.why {
			continue
		}
		if a.unique == b.unique {
			return false
		}
		differs = true
	}
	return differs
}

// sameModel says whether two functions are of the same make, as far as known.
func sameModel(o, n *topo.PCIDevice) bool {
	same := func(a, b topo.HexID) bool { return a == b || a == "" || b == "" }
	return same(o.Vendor, n.Vendor) && same(o.Device, n.Device)
}

// hostBridges pairs root buses: by their number where the same ones are there,
// else by their order where there are as many.
func (m *matching) hostBridges() {
	olds, news := bridgesInUse(m.o), bridgesInUse(m.n)
	there := map[topo.ID]bool{}
	for _, id := range news {
		there[id] = true
	}
	same := 0
	for _, id := range olds {
		if there[id] {
			same++
		}
	}
	if same < len(olds) && len(olds) == len(news) {
		for i := range olds {
			m.pair(olds[i], news[i], ByPosition, "same place in the order of root buses")
		}
		return
	}
	for _, id := range olds {
		if there[id] {
			m.pair(id, id, BySlot, "same root bus")
		}
	}
}

// bridgesInUse lists the host bridges with functions below, in their order.
func bridgesInUse(s *side) []topo.ID {
	used := map[topo.ID]bool{}
	for i := range s.t.PCIDevices {
		used[s.t.PCIDevices[i].Parent] = true
	}
	var out []topo.ID
	for i := range s.t.HostBridges {
		if hb := &s.t.HostBridges[i]; used[hb.ID] {
			out = append(out, hb.ID)
		}
	}
	return out
}

// places pairs functions of one make at the same place below their host bridge:
// one slot, whatever its bus is numbered.
func (m *matching) places() {
	bridge := func(s *side, id topo.ID) string {
		if p := m.to[id]; s == m.o && p != nil {
			id = p.New
		}
		return string(id)
	}
	m.inOrder("same place in the tree", true, func(s *side, d *topo.PCIDevice) string {
		hb, way := s.steps(d)
		return bridge(s, hb) + " " + way
	})
}

// orders pairs what is left: devices of one make in the order of their addresses
// on a NUMA node, then on the host. A function that stands for no device is
// only where it was.
func (m *matching) orders() {
	m.inOrder("same order on its NUMA node", false, func(s *side, d *topo.PCIDevice) string {
		if len(s.devices[d.ID]) == 0 {
			return ""
		}
		return string(s.devices[d.ID][0].kind) + " " + numberText(d.NUMA)
	})
	m.inOrder("same order on the host", false, func(s *side, d *topo.PCIDevice) string {
		if len(s.devices[d.ID]) == 0 {
			return ""
		}
		return string(s.devices[d.ID][0].kind)
	})
}

// inOrder pairs functions of one make and one key, first with first; "" takes
// no part. In one place another device may stand; elsewhere devices whose
// identity both sides know are not the same, or they would have a match.
func (m *matching) inOrder(why string, place bool, key func(*side, *topo.PCIDevice) string) {
	groups := func(s *side, list []*topo.PCIDevice) (map[string][]*topo.PCIDevice, []string) {
		out := map[string][]*topo.PCIDevice{}
		var order []string
		for _, d := range list {
			k := key(s, d)
			if k == "" {
				continue
			}
			k = strings.Join([]string{k, string(d.Vendor), string(d.Device), string(d.SubVendor), string(d.SubDevice)}, " ")
			if out[k] == nil {
				order = append(order, k)
			}
			out[k] = append(out[k], d)
		}
		return out, order
	}
	olds, order := groups(m.o, m.functions(m.o, m.to))
	news, _ := groups(m.n, m.functions(m.n, m.from))
	for _, k := range order {
		if place || m.byStructure && len(olds[k]) == len(news[k]) {
			m.firstWithFirst(olds[k], news[k], why)
		}
		if place || m.byStructure { // of two hosts, unlike numbers say nothing
			continue
		}
		oldKnown, oldNot := m.splitKnown(m.o, olds[k])
		newKnown, newNot := m.splitKnown(m.n, news[k])
		m.firstWithFirst(oldNot, newNot, why)
		m.firstWithFirst(unmatched(oldNot, m.to), newKnown, why)
		m.firstWithFirst(oldKnown, unmatched(newNot, m.from), why)
	}
}

func (m *matching) firstWithFirst(olds, news []*topo.PCIDevice, why string) {
	for i := range min(len(olds), len(news)) {
		m.pairSlot(olds[i], news[i], ByPosition, why)
	}
}

// splitKnown parts functions with a device of known identity from the others.
func (m *matching) splitKnown(s *side, list []*topo.PCIDevice) (known, not []*topo.PCIDevice) {
	for _, d := range list {
		if slices.ContainsFunc(s.devices[d.ID], func(x device) bool { return x.unique != "" }) {
			known = append(known, d)
		} else {
			not = append(not, d)
		}
	}
	return known, not
}

func unmatched(list []*topo.PCIDevice, matched map[topo.ID]*Match) []*topo.PCIDevice {
	var out []*topo.PCIDevice
	for _, d := range list {
		if matched[d.ID] == nil {
			out = append(out, d)
		}
	}
	return out
}

// otherModels pairs devices of one kind and different make in one slot: the
// slot goes on with another device.
func (m *matching) otherModels() {
	for _, o := range m.functions(m.o, m.to) {
		n := m.n.pci[o.ID]
		if n == nil || len(m.o.devices[o.ID]) == 0 || len(m.n.devices[n.ID]) == 0 ||
			m.o.devices[o.ID][0].kind != m.n.devices[n.ID][0].kind {
			continue
		}
		if p := m.pair(o.ID, n.ID, BySlot, "same slot"); p != nil {
			p.Replaced = true
		}
	}
}
