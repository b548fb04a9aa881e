package draw

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/units"
)

// device is a line in columns: name, address, link and rate of the PCIe link,
// then the details; an exclamation mark where the link is below its ability.
func (b *builder) device(name string, d *topo.PCIDevice, gpu bool, details ...cell) *line {
	l := &line{columns: true, cells: []cell{{b.clean(name), strong}, {}, {}, {}}}
	if d == nil {
		l.cells = append(l.cells, details...)
		return l
	}
	s := b.link(d, gpu)
	l.cells[colBDF].text = d.BDF.String()
	l.cells[colLink].text = s.text
	l.cells[colRate].text = b.rate(s.rate, units.Gbyte)
	l.cells = append(l.cells, cell{s.note, faint})
	if s.degraded {
		l.cells = append(l.cells, cell{"!", bad})
	}
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
	model := g.Model
	if model == "" && d != nil {
		model = d.DeviceName
	}
	if model == "" {
		model = g.Vendor
	}
	details := []cell{{b.clean(model), plain}}
	for _, link := range b.peers(g.ID) {
		details = append(details, cell{link, good})
	}
	if g.MIG != nil && g.MIG.Enabled {
		details = append(details, cell{"MIG " + plural(len(g.MIG.Instances), "instance"), plain})
	}
	if g.MemoryNUMA != nil {
		details = append(details, cell{"memory NUMA " + strconv.Itoa(*g.MemoryNUMA), plain})
	}
	switch {
	case g.KnownFrom == "pci" && g.Driver == "":
		details = append(details, cell{"no driver", middling})
	case g.KnownFrom == "pci":
		details = append(details, cell{"known from PCI alone", faint})
	}
	if g.Visible != nil && !*g.Visible {
		details = append(details, cell{"not visible to this process", middling})
	}
	l := b.device("GPU"+strconv.Itoa(g.Index), d, true, details...)
	if d == nil && g.BDF != nil {
		l.cells[colBDF].text = g.BDF.String()
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
		for i := range b.t.Links {
			if l := &b.t.Links[i]; l.Kind == n.kind && (l.A == gpu || l.B == gpu) {
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
func (b *builder) rdma(r *topo.RDMADevice, d *topo.PCIDevice) []*line {
	l := b.device(r.Name, d, false)
	if d == nil && r.BDF != nil {
		l.cells[colBDF].text = r.BDF.String()
	}
	ports := b.ports[r.ID]
	switch len(ports) {
	case 0:
		l.cells = append(l.cells, cell{b.clean(r.Transport), plain}, cell{b.names(r.Netdevs), plain})
	case 1:
		l.cells[colRate].text = b.rate(ports[0].BytesPerSec, units.Gbit)
		l.cells = append(l.cells, b.port(ports[0], r)...)
	default:
		l.cells[colRate].text = ""
		for _, p := range ports {
			cells := append([]cell{{"port " + strconv.Itoa(p.Number), plain},
				{b.rate(p.BytesPerSec, units.Gbit), plain}}, b.port(p, r)...)
			l.add(text(cells...))
		}
	}
	if r.Uverbs == "denied" || r.Uverbs == "none" {
		l.cells = append(l.cells, cell{"no access to verbs", middling})
	}
	return []*line{l}
}

// port says how a port of an RDMA device is: state, link layer, interfaces.
func (b *builder) port(p *topo.Port, r *topo.RDMADevice) []cell {
	state := cell{b.clean(p.State), good}
	if p.State != "" && p.State != "ACTIVE" {
		state.style = bad
		if p.PhysState != "" && p.PhysState != "LinkUp" {
			state.text += " (" + b.clean(p.PhysState) + ")"
		}
	}
	netdevs := p.Netdevs
	if len(netdevs) == 0 {
		netdevs = r.Netdevs
	}
	layer := p.LinkLayer
	if r.Transport == "efa" {
		layer = "EFA"
	}
	return []cell{state, {b.clean(layer), plain}, {b.names(netdevs), plain}}
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
		l := b.device(n.Name, d, false, b.netdevCells(n)...)
		l.cells[colRate].text = b.rate(n.BytesPerSec, units.Gbit)
		out = append(out, l)
	}
	if representors > 0 {
		out = append(out, text(cell{plural(representors, "representor"), faint}))
	}
	return out
}

func (b *builder) netdevCells(n *topo.Netdev) []cell {
	state := cell{b.clean(n.State), plain}
	switch n.State {
	case "up":
		state.style = good
	case "down", "lowerlayerdown":
		state.style = bad
	}
	cells := []cell{state}
	if n.Master != "" {
		cells = append(cells, cell{"in " + b.clean(n.Master), plain})
	}
	return append(cells, cell{b.clean(n.Driver), faint})
}

func (b *builder) nvme(n *topo.NVMe, d *topo.PCIDevice) *line {
	return b.device(n.Name, d, false, cell{b.clean(n.Model), plain})
}

// idleNIC is a network function without interface and RDMA device.
func (b *builder) idleNIC(d *topo.PCIDevice) *line {
	l := b.other(d)
	l.cells[colName].text = "NIC"
	if d.Driver == "" {
		l.cells = append(l.cells, cell{"no driver", middling})
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
		cell{b.clean(name), plain}, cell{b.clean(d.Driver), faint})
}

// virtual is the branch of what stands on no PCI function: software RDMA
// devices, bonds and VLANs; the rest is counted by kind.
func (b *builder) virtual() *line {
	branch := text(cell{"virtual", strong}, cell{"no PCI function", faint})
	loose := b.carried[""]
	if loose == nil || !b.wants(topo.KindNIC) {
		return branch
	}
	for _, r := range loose.rdma {
		if r.Software {
			branch.add(b.rdma(r, nil)...)
		}
	}
	others := map[string]int{}
	for _, n := range loose.netdevs {
		if !b.opts.All && n.LinkKind != "bond" && n.LinkKind != "vlan" && (n.Virtual || n.Type == "loopback") {
			others[otherKind(n)]++
			continue
		}
		l := b.device(n.Name, nil, false, append([]cell{{b.netdevKind(n), plain}}, b.netdevCells(n)...)...)
		l.cells[colRate].text = b.rate(n.BytesPerSec, units.Gbit)
		branch.add(l)
	}
	if len(others) > 0 {
		var kinds []string
		for k := range others {
			kinds = append(kinds, k)
		}
		slices.Sort(kinds)
		for i, k := range kinds {
			kinds[i] = strconv.Itoa(others[k]) + " " + b.clean(k)
		}
		branch.add(text(cell{"not shown: " + strings.Join(kinds, ", "), faint}))
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
