package plan

import (
	"cmp"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
)

// mostRate bounds rates, so that reports take them and sums of them fit.
const mostRate topo.Rate = 400_000_000_000_000 // bytes/s

// link is a directed link of the host; for the same arguments always the same one.
func (h *host) link(id topo.LinkID, dir topo.Direction) *probe.Link {
	direction := "down"
	if dir == topo.Up {
		direction = "up"
	}
	key := probe.Key(h.name, id, direction)
	if l, ok := h.b.links[key]; ok {
		return l
	}
	l, ok := h.g.Link(id)
	if !ok { // a wire that the topology does not list, or memory
		l = topo.Link{ID: id, Kind: topo.LinkPort, Basis: topo.BasisUnknown}
		if node, ok := strings.CutPrefix(string(id), "memory:"); ok {
			l.Kind, l.A = probe.LinkMemory, pathsel.Location(node).Node()
		}
	}
	if l.BytesPerSec != nil {
		rate := min(max(*l.BytesPerSec, 0), mostRate)
		l.BytesPerSec = &rate
	}
	out := &probe.Link{Key: key, Host: h.name, Link: id, Kind: l.Kind, Direction: direction, BytesPerSec: l.BytesPerSec, Basis: l.Basis}
	out.Name, out.On = h.describe(&l)
	h.b.links[key] = out
	return out
}

// linkWords are what links are called that are neither a wire nor PCIe.
var linkWords = map[topo.LinkKind]string{topo.LinkRootComplex: "root complex", topo.LinkSocket: "socket link", probe.LinkMemory: "memory", topo.LinkC2C: "C2C link",
	topo.LinkNVLink: "NVLink", topo.LinkXGMI: "xGMI link"}

// describe names a link and the devices that it is part of, the nearest first.
func (h *host) describe(l *topo.Link) (name string, on []string) {
	switch l.Kind {
	case topo.LinkPort:
		return h.describeWire(l)
	case topo.LinkPCIe:
		return h.describePCIe(l)
	}
	a, b := l.A, l.B
	if a == topo.FabricID {
		a, b = b, a
	}
	for _, id := range []topo.ID{a, b} {
		switch short := string(pathsel.LocationOf(id)); {
		case id == topo.FabricID:
			on = append(on, h.device("switch", id, "NVSwitches"))
		case isNUMA(id):
			on = append(on, h.device("numa", id, short))
		case strings.HasPrefix(short, "gpu:"):
			on = append(on, h.device("gpu", id, short))
		}
	}
	near := h.prefix + string(pathsel.LocationOf(a))
	switch {
	case l.Kind == topo.LinkRootComplex:
		name = " " + h.prefix + strings.TrimPrefix(string(l.ID), "rc:")
	case l.Kind == probe.LinkMemory, l.Kind == topo.LinkC2C, b == topo.FabricID:
		name = " of " + near
	default:
		name = " " + near + " - " + string(pathsel.LocationOf(b))
	}
	return cmp.Or(linkWords[l.Kind], "link") + name, append(on, h.self())
}

func (h *host) describeWire(l *topo.Link) (name string, on []string) {
	nic, shown := l.A, strings.TrimPrefix(string(l.ID), "port:")
	if strings.HasPrefix(string(nic), "rdma:") && len(h.index.Ports(nic)) == 1 {
		shown = nic.Name()
	}
	if nic == "" {
		nic = topo.NetdevID(shown)
	}
	on = append(on, h.device("nic", nic, nic.Name()))
	on = append(on, h.card(nic)...)
	on = append(on, h.self())
	if leaf := h.leaves[l.ID]; leaf != "" {
		on = append(on, h.b.device("leaf:"+leaf, "leaf", leaf))
	}
	return "wire of " + h.prefix + shown, on
}

// card is the card of a NIC, if there are other devices on it.
func (h *host) card(nic topo.ID) []string {
	var function topo.ID
	switch d := h.index.Node(nic).(type) {
	case *topo.RDMADevice:
		function = d.PCI
	case *topo.Netdev:
		function = d.PCI
	}
	card := h.index.NICOf(function)
	if card == nil || !slices.Contains(h.devicesOn(function), nic) {
		return nil
	}
	n := 0
	for _, f := range card.Functions {
		n += len(h.devicesOn(f))
	}
	if n < 2 {
		return nil
	}
	return []string{h.device("nic", card.ID, "card "+card.ID.Name())}
}

// devicesOn are the GPUs and NICs of a PCI function, or its network interface if it has neither.
func (h *host) devicesOn(function topo.ID) []topo.ID {
	if function == "" {
		return nil
	}
	var out []topo.ID
	on := h.index.On(function)
	for _, g := range on.GPUs {
		out = append(out, g.ID)
	}
	for _, r := range on.RDMADevices {
		out = append(out, r.ID)
	}
	if len(out) == 0 && len(on.Netdevs) > 0 {
		out = append(out, on.Netdevs[0].ID)
	}
	return out
}

// describePCIe names a PCIe link after what is below it.
func (h *host) describePCIe(l *topo.Link) (name string, on []string) {
	var names, cards []string
	for _, id := range h.devicesBelow(l) {
		kind := "nic"
		if strings.HasPrefix(string(id), "gpu:") {
			kind = "gpu"
		}
		short := id.Name()
		if kind == "gpu" {
			short = string(id)
		}
		names = append(names, h.prefix+short)
		on = append(on, h.device(kind, id, short))
		cards = append(cards, h.card(id)...)
	}
	slices.Sort(cards)
	on = append(on, slices.Compact(cards)...)
	for _, port := range []topo.ID{l.B, l.A} {
		if s := h.index.SwitchOf(port); s != nil {
			on = append(on, h.device("switch", s.ID, "PCIe switch "+s.ID.Name()))
			if port == l.B {
				names = append(names, "switch "+h.prefix+s.ID.Name())
			}
		}
	}
	switch n := len(names); {
	case n == 0:
		name = h.prefix + l.B.Name()
	case n <= 2:
		name = strings.Join(names, " and ")
	default:
		name = names[0] + " and others"
	}
	return "PCIe link of " + name, append(on, h.self())
}

// devicesBelow are the GPUs and NICs that are attached to a PCIe link: those of all functions that share
// it, virtual ones only if their physical function is not visible.
func (h *host) devicesBelow(l *topo.Link) []topo.ID {
	head := h.index.PCIDevice(l.B)
	if head == nil {
		return nil
	}
	parent := h.index.PCIDevice(head.Parent)
	whole := parent != nil && (parent.Role == topo.RoleRootPort || parent.Role == topo.RoleDownstream)
	var out []topo.ID
	for _, d := range h.index.Children(head.Parent) {
		if h.index.PCIDevice(d.PF) == nil && (whole || d.BDF.Slot() == head.BDF.Slot()) {
			out = append(out, h.devicesOn(d.ID)...)
		}
	}
	return out
}

// device registers a device of the host.
func (h *host) device(kind string, id topo.ID, name string) string {
	if h.prefix != "" {
		name += " of " + h.name
	}
	return h.b.device(h.name+" "+string(id), kind, name)
}

func (h *host) self() string { return h.b.device(h.name, "host", h.name) }

func (b *builder) device(key, kind, name string) string {
	if _, ok := b.devices[key]; !ok {
		b.devices[key] = probe.Device{Key: key, Kind: kind, Name: name}
	}
	return key
}
