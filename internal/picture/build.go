package picture

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"

	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
)

// builder makes the tree of a host: of each thing the line that a text prints, and the box that a
// diagram draws.
type builder struct {
	*View
	opts    TreeOptions
	advice  string           // how to see what is left out
	hidden  int              // PCI functions that were left out
	others  map[string]int   // interfaces that were left out, by kind
	built   map[topo.ID]bool // devices that have a line, or are counted in one
	devices byNUMA

	diagram  bool      // the boxes are drawn, not the lines
	nics     []topo.ID // the matrix NICs
	states   bool      // the origin tells the states of ports
	peers    *peers
	problems []string // what is marked in a diagram, in sentences
}

func newBuilder(t *topo.Topology, opts TreeOptions) *builder {
	b := &builder{View: New(t), opts: opts, others: map[string]int{}, built: map[topo.ID]bool{}, nics: t.MatrixAxis(topo.KindNIC)}
	b.states = slices.ContainsFunc(t.Ports, func(p topo.Port) bool { return p.State != "" })
	b.peers = newPeers(b)
	return b
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
	b.trees()
	b.loose()
	sockets, free := b.Sockets()
	for _, s := range sockets {
		root.add(b.socket(s))
	}
	for _, n := range free {
		root.add(b.numa(n))
	}
	unknown := words(Cell{"NUMA unknown", Middling})
	unknown.box = &node{look: lookUnknown, rows: []row{{left: "NUMA node unknown", style: rowStrong}},
		tip: []string{"Neither the devices nor the bridges above them report a NUMA node that the document describes"}}
	if unknown.add(b.devices.rest()...); len(unknown.children) > 0 {
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
	l := words(Cell{b.clean(cmp.Or(h.Name, "host")), Strong}, Cell{b.clean(h.Product), Plain}, Cell{strings.Join(b.Counts(), ", "), Plain})
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

// trees builds every PCI tree: those of the host bridges, then those that hang from nothing that
// the document has.
func (b *builder) trees() {
	for i := range b.T.HostBridges {
		hb := &b.T.HostBridges[i]
		b.devices.put(b.numaOf(hb), b.hostBridge(hb)...)
	}
	for i := range b.T.PCIDevices {
		if d := &b.T.PCIDevices[i]; !b.reached[d.ID] && b.PCIDevice(d.Parent) == nil {
			b.devices.put(d.NUMA, b.functions([]*topo.PCIDevice{d}, 0)...)
		}
	}
}

// loose builds the devices that stand on no PCI function of the document, and those that no tree
// came by.
func (b *builder) loose() {
	for i := range b.T.GPUs {
		if g := &b.T.GPUs[i]; !b.built[g.ID] && b.wants(topo.KindGPU) {
			b.devices.put(g.NUMA, b.gpu(g, nil))
		}
	}
	for i := range b.T.RDMADevices {
		if r := &b.T.RDMADevices[i]; !b.built[r.ID] && !(r.Software && r.PCI == "") && b.wants(topo.KindNIC) {
			b.devices.put(r.NUMA, b.rdma(r, nil))
		}
	}
	for i := range b.T.Netdevs {
		if n := &b.T.Netdevs[i]; !b.built[n.ID] && slices.Contains(b.nics, n.ID) && n.PCI != "" && b.wants(topo.KindNIC) {
			b.devices.put(n.NUMA, b.netdev(n, nil))
		}
	}
	for i := range b.T.NVMes {
		if n := &b.T.NVMes[i]; !b.built[n.ID] && b.wants(topo.KindNVMe) {
			b.devices.put(n.NUMA, b.nvme(n, nil))
		}
	}
}

// socket is a CPU package; one with a single NUMA node is one thing with it.
func (b *builder) socket(p Socket) *line {
	name, model := "socket "+strconv.Itoa(p.Index), row{left: clean(p.Model), style: rowFaint, soft: true}
	if len(p.Nodes) == 1 {
		l := b.numa(p.Nodes[0])
		l.cells = append([]Cell{{name, Strong}}, l.cells...)
		l.cells[1].Style = Plain
		l.cells = append(l.cells, Cell{b.clean(p.Model), Faint})
		l.box.look, l.box.rows[0].left = lookPackage, name+" · "+l.box.rows[0].left
		l.box.say(model)
		l.box.tip = append([]string{joined(name, clean(p.Model)), from(&p.Node)}, l.box.tip...)
		return l
	}
	l := words(Cell{name, Strong}, Cell{CPUs(b.clean(p.CPUs)), Plain}, Cell{b.clean(p.Model), Faint}).of(p.ID, nil)
	l.box = &node{look: lookPackage, id: p.ID, rows: []row{{left: name, style: rowStrong}, {left: CPUs(clean(p.CPUs)), soft: true}},
		tip: []string{joined(name, clean(p.Model)), from(&p.Node)}}
	l.box.say(model)
	for _, n := range p.Nodes {
		l.add(b.numa(n))
	}
	return l
}

// numa is a NUMA node with the devices that hang from it.
func (b *builder) numa(n *topo.NUMANode) *line {
	name, memory, kind := "NUMA "+strconv.Itoa(n.Index), "", ""
	if n.MemoryBytes != nil {
		memory = units.Bytes(*n.MemoryBytes)
	}
	if n.MemoryOnly {
		kind = "memory only"
	}
	l := words(Cell{name, Strong}, Cell{CPUs(b.clean(n.CPUs)), Plain}, Cell{memory, Plain}, Cell{kind, Faint}).of(n.ID, nil)
	what := joined(CPUs(clean(n.CPUs)), memory, kind)
	l.box = &node{look: lookNUMA, id: n.ID, rows: []row{{left: name, style: rowStrong}, {left: what, soft: true}},
		tip: []string{joined(name, what), from(&n.Node)}}
	l.add(b.devices.take(n.Index)...)
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
	l.box = b.rootBox(hb)
	l.add(below...)
	return []*line{l}
}

// functions are the things on one bus, in PCI order. Ports are left out and what is below them takes
// their place, because a switch is shown as one. A text folds the virtual functions of one card where
// there are many; a diagram counts them in the box of their physical function.
func (b *builder) functions(list []*topo.PCIDevice, depth int) []*line {
	if depth > MaxDepth {
		return nil
	}
	var out []*line
	vfs := map[topo.ID][]*topo.PCIDevice{}
	for _, d := range list {
		if d.PF != "" && !b.opts.All && !b.diagram && b.shown(d) {
			vfs[d.PF] = append(vfs[d.PF], d)
		}
	}
	for _, d := range list {
		if b.reached[d.ID] {
			continue
		}
		if group := vfs[d.PF]; len(group) > foldVFs {
			out = append(out, b.folded(group))
			continue
		}
		b.reached[d.ID] = true
		if !b.diagram || !b.folds(d) {
			out = append(out, b.function(d, depth)...)
		}
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
		if !b.opts.All && (b.diagram || !b.DataDirect(d)) {
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
	l.box = switchBox(d)
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

// endpoint are the devices that a function carries.
func (b *builder) endpoint(d *topo.PCIDevice) []*line {
	if !b.shown(d) {
		return nil
	}
	on := b.On(d.ID)
	var out []*line
	if b.wants(topo.KindGPU) {
		for _, g := range on.GPUs {
			out = append(out, b.gpu(g, d))
		}
	}
	if b.wants(topo.KindNIC) {
		network := len(out)
		for _, r := range on.RDMADevices {
			out = append(out, b.rdma(r, d))
		}
		if len(on.RDMADevices) == 0 {
			out = append(out, b.netdevs(on.Netdevs, d)...)
		}
		if len(on.GPUs)+len(on.RDMADevices)+len(on.Netdevs)+len(on.NVMes)+len(on.NVSwitches) == 0 {
			out = append(out, b.idleNIC(d))
		}
		if len(out) > network {
			b.countVFs(out[network].box, d)
		}
	}
	if b.wants(topo.KindNVMe) {
		for _, n := range on.NVMes {
			out = append(out, b.nvme(n, d))
		}
	}
	if b.wants(topo.KindNVSwitch) {
		for _, s := range on.NVSwitches {
			out = append(out, b.nvswitch(s, d))
		}
	}
	return out
}

// folded is one line for many virtual functions of one card.
func (b *builder) folded(group []*topo.PCIDevice) *line {
	var names []string
	for _, d := range group {
		b.reached[d.ID] = true
		on := b.On(d.ID)
		for _, r := range on.RDMADevices {
			names = append(names, r.Name)
			b.built[r.ID] = true
		}
		if len(on.RDMADevices) == 0 {
			for _, n := range on.Netdevs {
				names = append(names, n.Name)
				b.built[n.ID] = true
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

// link describes the link above a function.
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

// device is a line in columns: name, address, link and rate of the PCIe link, then the details; an
// exclamation mark where the link is below its ability. Its box has only what every box has.
func (b *builder) device(n *topo.Node, name string, d *topo.PCIDevice, at *topo.BDF, gpu bool, details ...Cell) *line {
	l := &line{columns: true, cells: []Cell{{b.clean(name), Strong}, {}, {}, {}}, head: columnCount}
	l.of(n.ID, d)
	l.box = &node{id: n.ID, stands: []topo.ID{n.ID}}
	b.built[n.ID] = true
	if at != nil {
		l.cells[colBDF].Text = at.String()
	}
	if d != nil {
		s := b.link(d, gpu, nil)
		l.cells[colBDF].Text = d.BDF.String()
		l.cells[colLink].Text = s.Text
		l.cells[colRate].Text = b.rate(s.Rate, units.Gbyte)
		l.cells = append(l.cells, Cell{s.Note, Faint})
		if s.Degraded {
			l.cells = append(l.cells, Cell{"!", Bad})
		}
		l.head = len(l.cells)
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

// gpu is a GPU with the links to its peers and what is out of the ordinary. d is nil where the
// document has no PCI function for it.
func (b *builder) gpu(g *topo.GPU, d *topo.PCIDevice) *line {
	var odd []Cell
	if g.MIG != nil && g.MIG.Enabled {
		odd = append(odd, Cell{"MIG " + text.Plural(len(g.MIG.Instances), "instance"), Plain})
	}
	if g.MemoryNUMA != nil {
		odd = append(odd, Cell{"memory NUMA " + strconv.Itoa(*g.MemoryNUMA), Plain})
	}
	switch {
	case g.KnownFrom == "pci" && g.Driver == "":
		odd = append(odd, Cell{"no driver", Middling})
	case g.KnownFrom == "pci":
		odd = append(odd, Cell{"known from PCI alone", Faint})
	}
	if g.Visible != nil && !*g.Visible {
		odd = append(odd, Cell{"not visible to this process", Middling})
	}
	details := []Cell{{b.clean(GPUModel(g, d)), Plain}}
	for _, link := range b.peerLinks(g.ID, topo.LinkNVLink, topo.LinkXGMI, topo.LinkC2C) {
		details = append(details, Cell{link, Good})
	}
	l := b.device(&g.Node, "GPU"+strconv.Itoa(g.Index), d, g.BDF, true, append(details, odd...)...)
	b.gpuBox(l.box, g, GPUModel(g, d), odd)
	return l
}

// peerLinks sums up a GPU's links that are not PCIe: "NVLink x18", "xGMI x7".
func (b *builder) peerLinks(gpu topo.ID, kinds ...topo.LinkKind) []string {
	var out []string
	for _, kind := range kinds {
		count := 0
		for i := range b.T.Links {
			if l := &b.T.Links[i]; l.Kind == kind && (l.A == gpu || l.B == gpu) {
				count += max(l.Count, 1)
			}
		}
		if count > 0 {
			out = append(out, fmt.Sprintf("%s x%d", linkNames[kind], count))
		}
	}
	return out
}

// rdma is an RDMA device: one port stands on its line, several below it.
func (b *builder) rdma(r *topo.RDMADevice, d *topo.PCIDevice) *line {
	l := b.device(&r.Node, r.Name, d, r.BDF, false)
	ports := b.Ports(r.ID)
	b.rdmaBox(l.box, r, d, ports)
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
			b.built[n.ID] = !b.diagram
			continue
		}
		l := b.netdev(n, d)
		if b.legInSlot(n, d) {
			l.box = nil
		}
		out = append(out, l)
	}
	if representors > 0 {
		out = append(out, words(Cell{text.Plural(representors, "representor"), Faint}))
	}
	return out
}

// netdev is an interface. about comes first among its details.
func (b *builder) netdev(n *topo.Netdev, d *topo.PCIDevice, about ...Cell) *line {
	state := Cell{b.clean(n.State), Plain}
	switch n.State {
	case "up":
		state.Style = Good
	case "down", "lowerlayerdown":
		state.Style = Bad
	}
	cells := slices.Concat(about, []Cell{state})
	if n.Master != "" {
		cells = append(cells, Cell{"in " + b.clean(n.Master), Plain})
	}
	l := b.device(&n.Node, n.Name, d, nil, false, append(cells, Cell{b.clean(n.Driver), Faint})...)
	l.cells[colRate].Text = b.rate(n.BytesPerSec, units.Gbit)
	b.netdevBox(l.box, n, d)
	return l
}

func (b *builder) nvme(n *topo.NVMe, d *topo.PCIDevice) *line {
	l := b.device(&n.Node, n.Name, d, nil, false, Cell{b.clean(n.Model), Plain})
	l.box.fill(lookDrive, clean(n.Name), "NVMe", joined(clean(n.Name), clean(n.Model), address(n.BDF)), from(&n.Node))
	l.box.kin = &kin{name: clean(n.Name), right: "NVMe", noun: "drive", most: mostDrives}
	return l
}

func (b *builder) nvswitch(s *topo.NVSwitch, d *topo.PCIDevice) *line {
	l := b.device(&s.Node, "NVSwitch", d, nil, false, Cell{b.clean(d.DeviceName), Plain})
	l.box.fill(lookFabric, "NVSwitch", address(s.BDF), joined("NVSwitch", address(s.BDF)), from(&s.Node))
	l.box.kin = &kin{name: address(s.BDF), noun: "NVSwitch", most: mostDrives}
	return l
}

// idleNIC is a network function without interface and RDMA device.
func (b *builder) idleNIC(d *topo.PCIDevice) *line {
	l, why := b.other(d), "no interface"
	l.cells[colName].Text = "NIC"
	if d.Driver == "" {
		why = "no driver"
		l.cells = append(l.cells, Cell{why, Middling})
	}
	l.box = &node{id: d.ID}
	l.box.fill(lookSmall, "NIC", d.BDF.String(), joined("network function "+d.BDF.String(), clean(d.DeviceName)), why, from(&d.Node))
	l.box.say(row{left: why, style: rowFaint})
	l.box.kin = &kin{name: d.BDF.String(), noun: "NIC", what: why, most: mostSmall}
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
	l := b.device(&d.Node, "class "+strings.TrimPrefix(string(d.Class), "0x"), d, nil, false,
		Cell{b.clean(name), Plain}, Cell{b.clean(d.Driver), Faint})
	l.box = nil
	return l
}

// virtual is the branch of what stands on no PCI function: software RDMA
// devices, bonds and VLANs; the rest is counted by kind.
func (b *builder) virtual() *line {
	branch := words(Cell{"virtual", Strong}, Cell{"no PCI function", Faint})
	branch.box = &node{look: lookVirtual, rows: []row{{left: "software and virtual devices", style: rowStrong}},
		tip: []string{"These have no PCI function of their own"}}
	if !b.wants(topo.KindNIC) {
		return branch
	}
	loose := b.On("")
	for _, r := range loose.RDMADevices {
		if r.Software {
			branch.add(b.rdma(r, nil))
		}
	}
	for _, n := range loose.Netdevs {
		if !b.opts.All && n.LinkKind != "bond" && n.LinkKind != "vlan" && (n.Virtual || n.Type == "loopback") {
			b.others[otherKind(n)]++
			continue
		}
		kind := b.clean(netdevKind(n))
		if len(n.Lower) > 0 {
			kind = strings.TrimSpace(kind + " on " + b.names(n.Lower))
		}
		l := b.netdev(n, nil, Cell{kind, Plain})
		b.stackedBox(l.box, n)
		branch.add(l)
	}
	if others := b.countOthers(""); len(others) > 0 {
		branch.add(words(Cell{"not shown: " + strings.Join(others, ", "), Faint}))
	}
	return branch
}

// countOthers counts the interfaces that are left out: "2 veth".
func (b *builder) countOthers(noun string) []string {
	out := slices.Sorted(maps.Keys(b.others))
	for i, kind := range out {
		out[i] = strconv.Itoa(b.others[kind]) + " " + b.clean(kind)
		if noun != "" {
			out[i] = text.Plural(b.others[kind], b.clean(kind)+" "+noun)
		}
	}
	return out
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

// netdevKind says what an interface that stands on no PCI function is.
func netdevKind(n *topo.Netdev) string {
	s := otherKind(n)
	if n.Bond != nil {
		s += " " + n.Bond.Mode
	}
	if n.VLANID != nil {
		s += " " + strconv.Itoa(*n.VLANID)
	}
	return strings.TrimSpace(s)
}
