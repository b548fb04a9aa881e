package picture

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"

	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
)

// builder turns a topology into lines.
type builder struct {
	*View
	opts   TreeOptions
	hidden int    // PCI functions that were left out
	advice string // how to see them
}

func newBuilder(t *topo.Topology, opts TreeOptions) *builder {
	return &builder{View: New(t), opts: opts}
}

// wants says whether devices of a kind are to be shown.
func (b *builder) wants(k topo.Kind) bool {
	return len(b.opts.Only) == 0 || slices.Contains(b.opts.Only, k)
}

// clean is a foreign text for the output.
func (b *builder) clean(s string) string { return printable(s, b.opts.ASCII) }

// host is the whole tree.
func (b *builder) host() *line {
	root := b.headline()
	devices := b.devices()
	sockets, free := b.Sockets()
	for _, s := range sockets {
		root.add(b.socket(s, devices))
	}
	for _, n := range free {
		root.add(b.numa(n, devices))
	}
	unknown := words(Cell{"NUMA unknown", Middling})
	for _, rest := range devices.Rest() {
		unknown.add(rest...)
	}
	if unknown.add(devices.Unknown...); len(unknown.children) > 0 {
		root.add(unknown)
	}
	if virtual := b.virtual(); len(virtual.children) > 0 {
		root.add(virtual)
	}
	if b.hidden > 0 && len(b.opts.Only) == 0 {
		root.add(words(Cell{text.Plural(b.hidden, "other PCI function") + " not shown" + b.advice, Faint}))
	}
	for _, l := range b.T.Unknown() {
		root.add(words(Cell{"not known: " + b.clean(l), Faint}))
	}
	return root
}

// headline names the host and counts what it has.
func (b *builder) headline() *line {
	h := &b.T.Host
	name := h.Name
	if name == "" {
		name = "host"
	}
	l := words(Cell{b.clean(name), Strong}, Cell{b.clean(h.Product), Plain}, Cell{strings.Join(b.Counts(), ", "), Plain})
	if b.T.Origin != "" && b.T.Origin != "live" {
		l.cells = append(l.cells, Cell{"[" + b.clean(b.T.Origin) + "]", Faint})
	}
	if n := len(b.T.Warnings); n > 0 {
		l.cells = append(l.cells, Cell{"(" + text.Plural(n, "warning") + ")", Middling})
	}
	if !b.T.Complete {
		l.cells = append(l.cells, Cell{"incomplete", Bad})
	}
	return l
}

// devices builds the lines of all devices, by NUMA node.
func (b *builder) devices() *ByNUMA[*line] {
	out := &ByNUMA[*line]{}
	Trees(b.View, out, b.hostBridge, func(list []*topo.PCIDevice) []*line { return b.functions(list, 0) })
	loose := b.On("")
	if b.wants(topo.KindGPU) {
		for _, g := range loose.GPUs {
			out.Put(g.NUMA, b.gpu(g, nil))
		}
	}
	if b.wants(topo.KindNIC) {
		for _, r := range loose.RDMADevices {
			if !r.Software {
				out.Put(r.NUMA, b.rdma(r, nil))
			}
		}
	}
	if b.wants(topo.KindNVMe) {
		for _, n := range loose.NVMes {
			out.Put(n.NUMA, b.nvme(n, nil))
		}
	}
	return out
}

// socket is a CPU package; one with a single NUMA node takes one line for both.
func (b *builder) socket(p Socket, devices *ByNUMA[*line]) *line {
	name := Cell{"socket " + strconv.Itoa(p.Index), Strong}
	if len(p.Nodes) == 1 {
		l := b.numa(p.Nodes[0], devices)
		l.cells = append([]Cell{name}, l.cells...)
		l.cells[1].Style = Plain
		l.cells = append(l.cells, Cell{b.clean(p.Model), Faint})
		return l
	}
	l := words(name, Cell{CPUs(b.clean(p.CPUs)), Plain}, Cell{b.clean(p.Model), Faint}).of(p.ID, nil)
	for _, n := range p.Nodes {
		l.add(b.numa(n, devices))
	}
	return l
}

// numa is a NUMA node with the devices that hang from it.
func (b *builder) numa(n *topo.NUMANode, devices *ByNUMA[*line]) *line {
	memory := ""
	if n.MemoryBytes != nil {
		memory = units.Bytes(*n.MemoryBytes)
	}
	l := words(Cell{"NUMA " + strconv.Itoa(n.Index), Strong}, Cell{CPUs(b.clean(n.CPUs)), Plain}, Cell{memory, Plain}).of(n.ID, nil)
	if n.MemoryOnly {
		l.cells = append(l.cells, Cell{"memory only", Faint})
	}
	l.add(devices.Take(n.Index)...)
	return l
}

// foldVFs is how many virtual functions of one card are listed one by one.
const foldVFs = 4

// hostBridge is a root bus with what is below it, nothing if nothing is to show.
func (b *builder) hostBridge(hb *topo.HostBridge) []*line {
	below := b.functions(b.Children(hb.ID), 0)
	if len(below) == 0 {
		return nil
	}
	l := words(Cell{"host bridge " + b.clean(hb.ID.Name()), Plain}).of(hb.ID, nil)
	if hb.Synthetic {
		l.cells = append(l.cells, Cell{"(not in the file)", Faint})
	}
	l.add(below...)
	return []*line{l}
}

// functions are the lines of PCI functions on one bus, in PCI order. Ports are
// left out and what is below them takes their place, because a switch is shown
// as one; virtual functions of one card are folded where there are many.
func (b *builder) functions(list []*topo.PCIDevice, depth int) []*line {
	if depth > MaxDepth {
		return nil
	}
	var out []*line
	vfs := map[topo.ID][]*topo.PCIDevice{}
	for _, d := range list {
		if d.PF != "" && !b.opts.All && b.shown(d) {
			vfs[d.PF] = append(vfs[d.PF], d)
		}
	}
	for _, d := range list {
		if b.Reached(d) {
			continue
		}
		if group := vfs[d.PF]; d.PF != "" && len(group) > foldVFs {
			out = append(out, b.folded(group))
			continue
		}
		b.Reach(d)
		out = append(out, b.function(d, depth)...)
	}
	return out
}

// function is one PCI function and what is below it.
func (b *builder) function(d *topo.PCIDevice, depth int) []*line {
	below := b.functions(b.Children(d.ID), depth+1)
	switch d.Role {
	case topo.RoleRootPort, topo.RoleDownstream:
		if !b.opts.All {
			return below
		}
	case topo.RoleUpstream, topo.RoleBridge:
		if len(below) == 0 && !b.opts.All {
			return nil
		}
	}
	if d.IsBridge() || d.Role != topo.RoleEndpoint && len(below) > 0 {
		l := b.bridge(d)
		l.add(below...)
		return []*line{l}
	}
	lines := b.endpoint(d)
	if len(lines) == 0 {
		if !b.opts.All && !b.DataDirect(d) {
			b.hidden++
			return below
		}
		lines = []*line{b.other(d)}
	}
	lines[len(lines)-1].add(below...)
	return lines
}

// bridge is a port, a bridge, or the upstream port that stands for its switch.
func (b *builder) bridge(d *topo.PCIDevice) *line {
	names := map[topo.PCIRole]string{
		topo.RoleRootPort: "root port", topo.RoleUpstream: "switch", topo.RoleDownstream: "downstream port",
	}
	name, ok := names[d.Role]
	if !ok {
		name = "bridge"
	}
	l := words(Cell{name + " " + d.BDF.String(), Plain}).of(d.ID, d)
	if s := b.link(d, false, nil); s.Degraded {
		l.cells = append(l.cells, Cell{s.Text, Plain}, Cell{s.Note, Plain}, Cell{"!", Bad})
	}
	l.head = len(l.cells)
	l.cells = append(l.cells, Cell{b.clean(d.DeviceName), Faint})
	return l
}

// shown says whether a function carries something that is to be shown.
func (b *builder) shown(d *topo.PCIDevice) bool {
	if IsNetwork(d) && b.wants(topo.KindNIC) {
		return true
	}
	on := b.On(d.ID)
	return len(on.GPUs) > 0 && b.wants(topo.KindGPU) ||
		len(on.RDMADevices)+len(on.Netdevs) > 0 && b.wants(topo.KindNIC) ||
		len(on.NVMes) > 0 && b.wants(topo.KindNVMe) || len(on.NVSwitches) > 0 && b.wants(topo.KindNVSwitch)
}

// endpoint are the lines of the devices that a function carries.
func (b *builder) endpoint(d *topo.PCIDevice) []*line {
	if !b.shown(d) {
		return nil
	}
	on := b.On(d.ID)
	if len(on.GPUs)+len(on.RDMADevices)+len(on.Netdevs)+len(on.NVMes)+len(on.NVSwitches) == 0 {
		return []*line{b.idleNIC(d)}
	}
	var out []*line
	if b.wants(topo.KindGPU) {
		for _, g := range on.GPUs {
			out = append(out, b.gpu(g, d))
		}
	}
	if b.wants(topo.KindNIC) {
		for _, r := range on.RDMADevices {
			out = append(out, b.rdma(r, d))
		}
		if len(on.RDMADevices) == 0 {
			out = append(out, b.netdevs(on.Netdevs, d)...)
		}
	}
	if b.wants(topo.KindNVMe) {
		for _, n := range on.NVMes {
			out = append(out, b.nvme(n, d))
		}
	}
	if b.wants(topo.KindNVSwitch) {
		for _, s := range on.NVSwitches {
			out = append(out, b.device("NVSwitch", d, false, Cell{b.clean(d.DeviceName), Plain}).of(s.ID, d))
		}
	}
	return out
}

// folded is one line for many virtual functions of one card.
func (b *builder) folded(group []*topo.PCIDevice) *line {
	var names []string
	for _, d := range group {
		b.Reach(d)
		on := b.On(d.ID)
		for _, r := range on.RDMADevices {
			names = append(names, r.Name)
		}
		if len(on.RDMADevices) == 0 {
			for _, n := range on.Netdevs {
				names = append(names, n.Name)
			}
		}
	}
	l := words(Cell{fmt.Sprintf("%s of %s", text.Plural(len(group), "virtual function"), b.clean(group[0].PF.Name())), Plain})
	if len(names) > 0 {
		slices.SortFunc(names, topo.NaturalCompare)
		l.cells = append(l.cells, Cell{b.clean(names[0]) + " to " + b.clean(names[len(names)-1]), Plain})
	}
	return l
}

// LinkState is a function's PCIe link in words.
type LinkState struct {
	Text     string     // "gen5 x16", "" nothing is known
	Rate     *topo.Rate // expected, nil not known
	Note     string     // "(max gen5 x16)", "(now gen1 x16)"
	Degraded bool       // less than both ends can do
}

// link describes the link above a function, as hostview judges it.
func (b *builder) link(d *topo.PCIDevice, gpu bool, now *topo.LaneRate) LinkState {
	l := b.Link(d, gpu, now)
	switch {
	case l == nil:
		return LinkState{}
	case !l.Known:
		return LinkState{Rate: l.Rate}
	}
	s := LinkState{Text: units.PCIe(l.Speed, l.Width), Rate: l.Rate, Degraded: l.Degraded}
	switch {
	case l.AbleSpeed > l.Speed || l.AbleWidth > l.Width:
		s.Note = "(max " + units.PCIe(max(l.AbleSpeed, l.Speed), max(l.AbleWidth, l.Width)) + ")"
	case l.IdleSpeed > 0:
		s.Note = "(now " + units.PCIe(l.IdleSpeed, l.Width) + ")"
	}
	return s
}

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
	details := []Cell{{b.clean(GPUModel(g, d)), Plain}}
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
	state := Cell{PortState(p, b.clean), Good}
	if Down(p) {
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
	if b.DataDirect(d) {
		name = "data direct function of a NIC"
	} else if name == "" {
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
