package draw

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/app/hostview"
	"github.com/topoctl/topoctl/internal/base/text"
	"github.com/topoctl/topoctl/internal/base/units"
)

// device is a line in columns: name, address, link and rate of the PCIe link,
// then the details; an exclamation mark where the link is below its ability.
func (b *builder) device(name string, d *topo.PCIDevice, gpu bool, details ...Cell) *line {
	l := &line{columns: true, cells: []Cell{{b.clean(name), Strong}, {}, {}, {}}, head: columnCount}
	if d == nil {
		l.cells = append(l.cells, details...)
		return l
	}
	s := b.link(d, gpu, nil)
	l.of(d.ID, d)
	l.cells[colBDF].Text = d.BDF.String()
	l.cells[colLink].Text = s.Text
	l.cells[colRate].Text = b.rate(s.Rate, units.Gbyte)
	l.cells = append(l.cells, Cell{s.Note, Faint})
	if s.Degraded {
		l.cells = append(l.cells, Cell{"!", Bad})
	}
	l.head = len(l.cells)
	l.cells = append(l.cells, details...)
	return l
}

func (b *builder) rate(r *topo.Rate, customary units.System) string {
	if r == nil {
		return ""
	}
	return units.Rate(int64(*r), b.opts.Units.Or(customary))
}

// gpu is a GPU with the links to its peers and what is out of the ordinary.
func (b *builder) gpu(g *topo.GPU, d *topo.PCIDevice) *line {
	details := []Cell{{b.clean(hostview.GPUModel(g, d)), Plain}}
	for _, link := range b.peers(g.ID) {
		details = append(details, Cell{link, Good})
	}
	if g.MIG != nil && g.MIG.Enabled {
		details = append(details, Cell{"MIG " + text.Plural(len(g.MIG.Instances), "instance"), Plain})
	}
	if g.MemoryNUMA != nil {
		details = append(details, Cell{"memory NUMA " + strconv.Itoa(*g.MemoryNUMA), Plain})
	}
	switch {
	case g.KnownFrom == "pci" && g.Driver == "":
		details = append(details, Cell{"no driver", Middling})
	case g.KnownFrom == "pci":
		details = append(details, Cell{"known from PCI alone", Faint})
	}
	if g.Visible != nil && !*g.Visible {
		details = append(details, Cell{"not visible to this process", Middling})
	}
	l := b.device("GPU"+strconv.Itoa(g.Index), d, true, details...).of(g.ID, d)
	if d == nil && g.BDF != nil {
		l.cells[colBDF].Text = g.BDF.String()
	}
	return l
}

// peers sums up a GPU's links that are not PCIe: "NVLink x18", "xGMI x7".
func (b *builder) peers(gpu topo.ID) []string {
	names := []struct {
		kind topo.LinkKind
		name string
	}{{topo.LinkNVLink, "NVLink"}, {topo.LinkXGMI, "xGMI"}, {topo.LinkC2C, "C2C"}}
	var out []string
	for _, n := range names {
		count := 0
		for i := range b.T.Links {
			if l := &b.T.Links[i]; l.Kind == n.kind && (l.A == gpu || l.B == gpu) {
				count += max(l.Count, 1)
			}
		}
		if count > 0 {
			out = append(out, fmt.Sprintf("%s x%d", n.name, count))
		}
	}
	return out
}

// rdma is an RDMA device: one port stands on its line, several below it.
func (b *builder) rdma(r *topo.RDMADevice, d *topo.PCIDevice) *line {
	l := b.device(r.Name, d, false).of(r.ID, d)
	if d == nil && r.BDF != nil {
		l.cells[colBDF].Text = r.BDF.String()
	}
	ports := b.Ports(r.ID)
	switch len(ports) {
	case 0:
		l.cells = append(l.cells, Cell{b.clean(r.Transport), Plain}, Cell{b.names(r.Netdevs), Plain})
	case 1:
		l.cells[colRate].Text = b.rate(ports[0].BytesPerSec, units.Gbit)
		l.cells = append(l.cells, b.port(ports[0], r)...)
	default:
		l.cells[colRate].Text = ""
		for _, p := range ports {
			cells := append([]Cell{{"port " + strconv.Itoa(p.Number), Plain},
				{b.rate(p.BytesPerSec, units.Gbit), Plain}}, b.port(p, r)...)
			one := words(cells...).of(p.ID, nil)
			one.head = portHead
			l.add(one)
		}
	}
	if r.Uverbs == "denied" || r.Uverbs == "none" {
		l.cells = append(l.cells, Cell{"no access to verbs", Middling})
	}
	return l
}

// port says how a port of an RDMA device is: state, link layer, interfaces.
func (b *builder) port(p *topo.Port, r *topo.RDMADevice) []Cell {
	state := Cell{hostview.PortState(p, b.clean), Good}
	if hostview.Down(p) {
		state.Style = Bad
	}
	netdevs := p.Netdevs
	if len(netdevs) == 0 {
		netdevs = r.Netdevs
	}
	layer := p.LinkLayer
	if r.Transport == "efa" {
		layer = "EFA"
	}
	return []Cell{state, {b.clean(layer), Plain}, {b.names(netdevs), Plain}}
}

// names joins interface names; many are cut short.
func (b *builder) names(list []string) string {
	const most = 4
	rest := ""
	if len(list) > most && !b.opts.All {
		rest = fmt.Sprintf(" and %d more", len(list)-most)
		list = list[:most]
	}
	clean := make([]string, len(list))
	for i, s := range list {
		clean[i] = b.clean(s)
	}
	return strings.Join(clean, ",") + rest
}

// netdevs are the interfaces of a function without RDMA device. Those that
// stand for a virtual function's port are counted only.
func (b *builder) netdevs(list []*topo.Netdev, d *topo.PCIDevice) []*line {
	var out []*line
	representors := 0
	for _, n := range list {
		if !n.PhysPortIsOwn() && !b.opts.All {
			representors++
			continue
		}
		l := b.device(n.Name, d, false, b.netdevCells(n)...).of(n.ID, d)
		l.cells[colRate].Text = b.rate(n.BytesPerSec, units.Gbit)
		out = append(out, l)
	}
	if representors > 0 {
		out = append(out, words(Cell{text.Plural(representors, "representor"), Faint}))
	}
	return out
}

func (b *builder) netdevCells(n *topo.Netdev) []Cell {
	state := Cell{b.clean(n.State), Plain}
	switch n.State {
	case "up":
		state.Style = Good
	case "down", "lowerlayerdown":
		state.Style = Bad
	}
	cells := []Cell{state}
	if n.Master != "" {
		cells = append(cells, Cell{"in " + b.clean(n.Master), Plain})
	}
	return append(cells, Cell{b.clean(n.Driver), Faint})
}

func (b *builder) nvme(n *topo.NVMe, d *topo.PCIDevice) *line {
	return b.device(n.Name, d, false, Cell{b.clean(n.Model), Plain}).of(n.ID, d)
}

// idleNIC is a network function without interface and RDMA device.
func (b *builder) idleNIC(d *topo.PCIDevice) *line {
	l := b.other(d)
	l.cells[colName].Text = "NIC"
	if d.Driver == "" {
		l.cells = append(l.cells, Cell{"no driver", Middling})
	}
	return l
}

// other is a PCI function of no interest for transfers.
func (b *builder) other(d *topo.PCIDevice) *line {
	name := strings.TrimSpace(d.VendorName + " " + d.DeviceName)
	if name == "" {
		name = strings.TrimPrefix(string(d.Vendor), "0x") + ":" + strings.TrimPrefix(string(d.Device), "0x")
	}
	return b.device("class "+strings.TrimPrefix(string(d.Class), "0x"), d, false,
		Cell{b.clean(name), Plain}, Cell{b.clean(d.Driver), Faint})
}

// virtual is the branch of what stands on no PCI function: software RDMA
// devices, bonds and VLANs; the rest is counted by kind.
func (b *builder) virtual() *line {
	branch := words(Cell{"virtual", Strong}, Cell{"no PCI function", Faint})
	if !b.wants(topo.KindNIC) {
		return branch
	}
	loose := b.On("")
	for _, r := range loose.RDMADevices {
		if r.Software {
			branch.add(b.rdma(r, nil))
		}
	}
	others := map[string]int{}
	for _, n := range loose.Netdevs {
		if !b.opts.All && n.LinkKind != "bond" && n.LinkKind != "vlan" && (n.Virtual || n.Type == "loopback") {
			others[otherKind(n)]++
			continue
		}
		l := b.device(n.Name, nil, false, append([]Cell{{b.netdevKind(n), Plain}}, b.netdevCells(n)...)...).of(n.ID, nil)
		l.cells[colRate].Text = b.rate(n.BytesPerSec, units.Gbit)
		branch.add(l)
	}
	if len(others) > 0 {
		kinds := slices.Sorted(maps.Keys(others))
		for i, k := range kinds {
			kinds[i] = strconv.Itoa(others[k]) + " " + b.clean(k)
		}
		branch.add(words(Cell{"not shown: " + strings.Join(kinds, ", "), Faint}))
	}
	return branch
}

// otherKind is the kind of an interface that stands on no PCI function.
func otherKind(n *topo.Netdev) string {
	switch {
	case n.LinkKind != "":
		return n.LinkKind
	case n.Type == "loopback":
		return "loopback"
	case n.Virtual:
		return "virtual"
	}
	return ""
}

// netdevKind says what a virtual interface is made of.
func (b *builder) netdevKind(n *topo.Netdev) string {
	s := b.clean(otherKind(n))
	if n.Bond != nil && n.Bond.Mode != "" {
		s += " " + b.clean(n.Bond.Mode)
	}
	if n.VLANID != nil {
		s += " " + strconv.Itoa(*n.VLANID)
	}
	if len(n.Lower) > 0 {
		s += " on " + b.names(n.Lower)
	}
	return strings.TrimSpace(s)
}
