package diff

import (
	"slices"
	"strconv"

	"github.com/topoctl/topoctl/discover/topo"
)

// onFunctions pairs the devices of one kind that are on matched functions: those
// of one name first, the rest in their order.
func (m *matching) onFunctions(kind topo.Kind) {
	for i := range m.o.t.PCIDevices {
		p := m.to[m.o.t.PCIDevices[i].ID]
		if p == nil {
			continue
		}
		olds, news := only(m.o.devices[p.Old], kind, m.to), only(m.n.devices[p.New], kind, m.from)
		byName := make(map[string]device, len(news))
		for _, n := range news {
			byName[n.name] = n
		}
		for _, o := range olds {
			if n, ok := byName[o.name]; ok {
				m.inherit(o, n, p)
			}
		}
		olds, news = only(olds, kind, m.to), only(news, kind, m.from)
		for k := range min(len(olds), len(news)) {
			m.inherit(olds[k], news[k], p)
		}
	}
}

// only lists the devices of a kind that have no match.
func only(list []device, kind topo.Kind, matched map[topo.ID]*Match) []device {
	var out []device
	for _, d := range list {
		if d.kind == kind && matched[d.id] == nil {
			out = append(out, d)
		}
	}
	return out
}

// inherit pairs two devices as their functions are paired.
func (m *matching) inherit(o, n device, fn *Match) {
	if p := m.pair(o.id, n.id, fn.By, fn.Why); p != nil {
		p.Replaced = fn.Replaced
	}
}

// withoutFunctions pairs devices by name where at least one side does not know
// the function: software devices, virtual interfaces, other tools' files.
func (m *matching) withoutFunctions(kind topo.Kind) {
	byName := map[string]device{}
	for _, n := range only(m.n.all, kind, m.from) {
		byName[n.name] = n
	}
	for _, o := range only(m.o.all, kind, m.to) {
		n, ok := byName[o.name]
		if !ok || o.pci != "" && n.pci != "" && !m.oneCard(o, n) || !m.byStructure && o.unique != "" && o.why == n.why && o.unique != n.unique {
			continue
		}
		m.pair(o.id, n.id, ByName, "same name")
	}
	m.unaddressed(kind)
}

// oneCard says whether two devices are on one card: another tool's file may take
// a card's functions for one.
func (m *matching) oneCard(o, n device) bool {
	return m.o.imported != m.n.imported && o.bdf != nil && n.bdf != nil && o.bdf.Slot() == n.bdf.Slot()
}

// unaddressed pairs devices in their order where one side has no address of any
// and both have as many: some tools' files number devices and name them not.
func (m *matching) unaddressed(kind topo.Kind) {
	olds, news := only(m.o.all, kind, m.to), only(m.n.all, kind, m.from)
	addressed := func(d device) bool { return d.pci != "" }
	if len(olds) != len(news) || !m.o.imported && !m.n.imported ||
		slices.ContainsFunc(olds, addressed) && slices.ContainsFunc(news, addressed) {
		return
	}
	for i := range olds {
		m.pair(olds[i].id, news[i].id, ByPosition, sameOrder)
	}
}

// sameOrder is why devices without addresses match.
const sameOrder = "same order, and no addresses"

// rest pairs what has no address of its own: by number.
func (m *matching) rest() {
	there := map[topo.ID]bool{}
	for i := range m.n.t.NUMANodes {
		there[m.n.t.NUMANodes[i].ID] = true
	}
	for i := range m.n.t.Packages {
		there[m.n.t.Packages[i].ID] = true
	}
	for i := range m.n.t.HostBridges {
		there[m.n.t.HostBridges[i].ID] = true
	}
	same := func(id topo.ID, by Method, why string) {
		if there[id] {
			m.pair(id, id, by, why)
		}
	}
	for i := range m.o.t.NUMANodes {
		same(m.o.t.NUMANodes[i].ID, ByName, "same number")
	}
	for i := range m.o.t.Packages {
		same(m.o.t.Packages[i].ID, ByName, "same number")
	}
	for i := range m.o.t.HostBridges {
		same(m.o.t.HostBridges[i].ID, BySlot, "same root bus")
	}
	m.ports()
}

// ports pairs the ports of matched devices by number.
func (m *matching) ports() {
	byNumber := map[string]topo.ID{}
	for i := range m.n.t.Ports {
		p := &m.n.t.Ports[i]
		byNumber[string(p.RDMA)+"/"+strconv.Itoa(p.Number)] = p.ID
	}
	for i := range m.o.t.Ports {
		p := &m.o.t.Ports[i]
		if dev := m.to[p.RDMA]; dev != nil {
			if port := m.pair(p.ID, byNumber[string(dev.New)+"/"+strconv.Itoa(p.Number)], dev.By, dev.Why); port != nil {
				port.Replaced = dev.Replaced
			}
		}
	}
}

// current gives the new side's ID of a node of the old side. One that is not
// there gets a name that no node of the new side has; what is no node stays.
func (m *matching) current(id topo.ID) topo.ID {
	switch p := m.to[id]; {
	case p != nil:
		return p.New
	case m.o.nodes[id]:
		return "old " + id
	}
	return id
}

// own is current for a node of the new side.
func (m *matching) own(id topo.ID) topo.ID {
	if m.n.nodes[id] && m.from[id] == nil {
		return "new " + id
	}
	return id
}
