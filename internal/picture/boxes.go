package picture

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"

	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
)

// newScene puts the boxes of a host together for a diagram.
func newScene(t *topo.Topology, o Options) *scene {
	b := newBuilder(t, TreeOptions{Units: o.Units})
	b.diagram = true
	s := &scene{}
	var places []*node
	for _, l := range b.host().children {
		switch n := b.box(l); {
		case n == nil:
		case n.look == lookUnknown:
			s.unknown = n
		case n.look == lookVirtual:
			s.virtual = n
		default:
			places = append(places, n)
		}
	}
	if len(places) > 0 {
		s.places = &node{look: lookNone, inside: places}
	}
	s.bars = append(b.sockets(places), b.peers.bars...)
	s.edges = b.peers.edges
	s.problems = b.problems
	b.texts(s)
	return s
}

// boxes are the boxes of things side by side: devices of one slot share a box and a link, and many
// that look alike are one.
func (b *builder) boxes(list []*line) []*node {
	slots := map[string][]*line{}
	for _, l := range list {
		if s := b.slotOf(l); s != "" {
			slots[s] = append(slots[s], l)
		}
	}
	var out []*node
	for _, l := range list {
		s := b.slotOf(l)
		if s != "" && l == slots[s][0] {
			out = append(out, b.slot(slots[s]))
		}
		if s == "" && l.box != nil {
			if n := b.box(l); n != nil {
				out = append(out, n)
			}
			continue
		}
		out = append(out, b.boxes(l.children)...) // a document may hang functions from endpoints
	}
	return fold(out)
}

// slotOf is the slot of a device, "" for other things.
func (b *builder) slotOf(l *line) string {
	d := b.PCIDevice(l.pci)
	if d == nil || l.box == nil || l.box.look == lookSwitch {
		return ""
	}
	return d.BDF.Slot()
}

// box is the box of a thing with all in and below it; nil for a bridge without anything below it.
func (b *builder) box(l *line) *node {
	n := l.box
	switch {
	case n == nil:
		return nil
	case n.look.container():
		n.inside = b.boxes(l.children)
	case n.look == lookRoot || n.look == lookSwitch:
		n.below = b.boxes(l.children)
		if len(n.below) == 0 {
			return nil
		}
		if d := b.PCIDevice(l.pci); d != nil {
			n.up = b.wire(d, false, false, n.rows[0].left+" "+d.BDF.String())
		}
	}
	if len(n.inside) == 0 && (n.look == lookUnknown || n.look == lookVirtual) {
		return nil
	}
	return n
}

// slot is the box of the devices of one slot: a device, or a card that holds several.
func (b *builder) slot(devices []*line) *node {
	var nodes []*node
	gpu, main := false, false
	for _, l := range devices {
		nodes = append(nodes, l.box)
		gpu = gpu || l.box.look == lookGPU
		main = main || l.box.look == lookGPU || l.box.look == lookNIC
	}
	first := b.PCIDevice(devices[0].pci)
	up := b.wire(first, gpu, main, nodes[0].rows[0].left+" "+first.BDF.String())
	if nodes = fold(nodes); len(nodes) == 1 {
		nodes[0].up = up
		return nodes[0]
	}
	card := &node{look: lookCard, across: 1, id: topo.NICID(first.BDF.Slot()), up: up, inside: nodes,
		rows: []row{{left: "card " + first.BDF.Slot(), style: rowFaint, soft: true}}}
	if model := shortModel(clean(first.DeviceName)); main && model != "" {
		card.rows[0].left = model
	}
	card.tip = []string{"functions of one slot: they share its link", clean(first.DeviceName)}
	return card
}

// fill gives a box its look, its first row and what a viewer shows on hover.
func (n *node) fill(l look, left, right string, tip ...string) {
	n.look, n.tip = l, tip
	n.rows = append(n.rows, row{left: left, right: right})
}

// say adds the rows that have a text.
func (n *node) say(rows ...row) {
	for _, r := range rows {
		if r.left != "" {
			n.rows = append(n.rows, r)
		}
	}
}

// from says where a node's facts were read.
func from(n *topo.Node) string {
	if n.Evidence == "" {
		return ""
	}
	return "read from " + clean(n.Evidence)
}

// address is a PCI address, "" without one.
func address(b *topo.BDF) string {
	if b == nil {
		return ""
	}
	return b.String()
}

// rootBox is the box of a host bridge.
func (b *builder) rootBox(hb *topo.HostBridge) *node {
	name := clean(hb.ID.Name())
	n := &node{id: hb.ID}
	n.fill(lookRoot, "root complex", name, "host bridge "+name, from(&hb.Node))
	if hb.Synthetic {
		n.rows[0].right = "not in the file"
		n.tip = append(n.tip, "The file does not describe host bridges: this one stands for all of its NUMA node")
	}
	for i := range b.T.Links {
		l := &b.T.Links[i]
		if l.Kind != topo.LinkRootComplex || l.B != hb.ID {
			continue
		}
		if l.BytesPerSec != nil {
			n.say(row{left: b.linkRate(l)})
		}
		n.tip = append(n.tip, clean(l.Note))
	}
	return n
}

// switchBox is the box of a switch or bridge.
func switchBox(d *topo.PCIDevice) *node {
	name := "switch"
	if d.Role == topo.RoleBridge {
		name = "bridge"
	}
	bdf := d.BDF.String()
	n := &node{id: d.ID}
	n.fill(lookSwitch, name, bdf, joined("PCIe "+name+" "+bdf, clean(d.DeviceName)), from(&d.Node))
	n.rows[0].style = rowStrong
	n.say(row{left: clean(d.DeviceName), style: rowFaint, soft: true})
	return n
}

// folds says whether a function is a virtual one that its physical function's
// box counts: it adds nothing to that card's link and port.
func (b *builder) folds(d *topo.PCIDevice) bool {
	pf := b.PCIDevice(d.PF)
	if pf == nil || pf == d || pf.PF != "" {
		return false
	}
	if own := b.On(d.ID); len(own.GPUs)+len(own.NVMes)+len(own.NVSwitches) > 0 {
		return false
	}
	above := b.On(pf.ID)
	return IsNetwork(pf) || len(above.RDMADevices)+len(above.Netdevs) > 0
}

// countVFs adds the row that stands for a function's virtual functions.
func (b *builder) countVFs(n *node, d *topo.PCIDevice) {
	if n == nil || !b.diagram {
		return
	}
	var names []string
	folded := 0
	for _, vf := range b.VFs(d.ID) {
		if !b.folds(vf) {
			continue
		}
		folded++
		on := b.On(vf.ID)
		for _, r := range on.RDMADevices {
			names = append(names, clean(r.Name))
			n.stands, b.built[r.ID] = append(n.stands, r.ID), true
		}
		if len(on.RDMADevices) > 0 {
			continue
		}
		for _, x := range on.Netdevs {
			names = append(names, clean(x.Name))
			n.stands, b.built[x.ID] = append(n.stands, x.ID), true
		}
	}
	if d.SRIOV != nil && d.SRIOV.NumVFs != nil {
		folded = max(folded, *d.SRIOV.NumVFs)
	}
	if folded == 0 {
		return
	}
	words := text.Plural(folded, "VF")
	if len(names) > 0 {
		words += ": " + span(names)
	}
	n.rows = append(n.rows, row{left: words, style: rowFaint})
	n.tip = append(n.tip, fmt.Sprintf("%s: they share its link and port", text.Plural(folded, "virtual function")))
	n.tip = append(n.tip, listed(names)...)
	n.kin = nil
}

// listed are names for a tooltip; very many are cut.
func listed(names []string) []string {
	const most = 128
	if len(names) > most {
		rest := fmt.Sprintf("and %d more", len(names)-most)
		return append(names[:most:most], rest)
	}
	return names
}

// fold draws neighbours that look alike as one box where they are many.
func fold(nodes []*node) []*node {
	groups := map[string][]*node{}
	for _, n := range nodes {
		if k := n.foldKey(); k != "" {
			groups[k] = append(groups[k], n)
		}
	}
	var out []*node
	for _, n := range nodes {
		k := n.foldKey()
		group := groups[k]
		switch {
		case k == "" || len(group) <= n.kin.most:
			out = append(out, n)
		case n == group[0]:
			out = append(out, foldedBox(group))
		}
	}
	return out
}

func (n *node) foldKey() string {
	if n.kin == nil || len(n.inside)+len(n.below) > 0 {
		return ""
	}
	return fmt.Sprint(n.look, n.kin.noun, "\x00", n.kin.right, "\x00", n.kin.what, "\x00", n.up.key())
}

// foldedBox is one box for many.
func foldedBox(group []*node) *node {
	first := *group[0]
	var names []string
	for _, n := range group {
		names = append(names, n.kin.name)
	}
	k := first.kin
	first.rows = []row{{left: span(names), right: k.right, style: first.rows[0].style},
		{left: joined(text.Plural(len(group), k.noun), k.what), soft: true}}
	first.tip = append([]string{text.Plural(len(group), "device") + ":"}, listed(names)...)
	first.stands = nil
	for _, n := range group {
		first.stands = append(first.stands, n.stands...)
	}
	if first.up != nil && len(first.up.labels) > 0 {
		up := *first.up
		up.labels = append([]string{"each " + up.labels[0]}, up.labels[1:]...)
		first.up = &up
	}
	first.kin = nil
	return &first
}

// How many boxes of alike neighbours are drawn one by one.
const (
	mostNICs   = 4
	mostSmall  = 2
	mostDrives = 1
)

// slowest is the rate of an interface without RDMA device from which it is
// drawn as a NIC that data may leave by; others are drawn small.
const slowest = 25 * topo.GBPerSec / 8

// gpuBox fills the box of a GPU: its model, its links, and what is out of the ordinary.
func (b *builder) gpuBox(n *node, g *topo.GPU, model string, odd []Cell) {
	name := "GPU" + strconv.Itoa(g.Index)
	memory := ""
	if g.MemoryBytes != nil {
		memory = units.Bytes(*g.MemoryBytes)
	}
	links := strings.Join(b.peerLinks(g.ID, topo.LinkNVLink, topo.LinkXGMI), ", ")
	n.fill(lookGPU, name, links, append([]string{joined(name, clean(model)), clean(g.UUID), memory, from(&g.Node)}, b.peers.tips[g.ID]...)...)
	n.rows[0].style = rowStrong
	n.say(row{left: shortModel(clean(model)), soft: true}, row{left: address(g.BDF), style: rowFaint})
	n.say(atMost(b.peers.rows[g.ID], "link")...)
	n.say(row{left: b.nearest(g.ID)})
	for _, c := range odd {
		n.say(row{left: c.Text, soft: true, alert: c.Style == Middling})
	}
}

// nearest names the nearest NICs of a GPU, where the origin
// states classes without a tree that would show them.
func (b *builder) nearest(gpu topo.ID) string {
	d := b.T.Derived
	at, ok := b.Place(gpu)
	if b.T.Asserted == nil || !ok {
		return ""
	}
	var best topo.Class
	var names []string
	near := b.T.Nearness()
	for i, id := range d.Axis {
		if !slices.Contains(b.nics, id) {
			continue
		}
		class := near.Of(d.At(at, i).Class)
		switch c := class.Compare(best); {
		case !class.Known():
		case c < 0:
			best, names = class, []string{clean(id.Name())}
		case c == 0:
			names = append(names, clean(id.Name()))
		}
	}
	if len(names) == 0 {
		return ""
	}
	words := span(names)
	if len(names) > 2 {
		words = text.Plural(len(names), "NIC")
	}
	return best.String() + ": " + words
}

// rdmaBox fills the box of an RDMA device with its ports.
func (b *builder) rdmaBox(n *node, r *topo.RDMADevice, d *topo.PCIDevice, ports []*topo.Port) {
	name, what, rate, model := clean(r.Name), layer(r, ""), "?", ""
	if len(ports) == 1 {
		what, rate = b.portText(r, ports[0]), b.rateOf(ports[0])
	} else if len(ports) > 1 {
		rate = ""
	}
	if d != nil {
		model = clean(d.DeviceName)
	}
	n.fill(lookNIC, name, rate, joined(name, model), strings.Join(cleaned(listed(r.Netdevs)), ", "), from(&r.Node))
	n.rows[0].style = rowStrong
	if r.Software {
		n.look = lookSoftware
	}
	n.say(row{left: what, alert: len(ports) == 1 && Down(ports[0])})
	var rows []row
	for _, p := range ports {
		if len(ports) > 1 {
			rows = append(rows, row{left: joined("port "+strconv.Itoa(p.Number), b.portText(r, p)), right: b.rateOf(p), alert: Down(p)})
		}
		if Down(p) {
			n.alert = true
			b.problems = append(b.problems, fmt.Sprintf("%s port %d is %s", name, p.Number, PortState(p, clean)))
		}
	}
	legs, closed := b.legs(r), ""
	if r.Uverbs == "denied" || r.Uverbs == "none" {
		closed = "no access to verbs"
	}
	n.say(atMost(rows, "port")...)
	n.say(row{left: address(r.BDF), style: rowFaint}, row{left: legs, soft: true}, row{left: closed, alert: true})
	if len(ports) <= 1 && legs == "" && !n.alert && closed == "" {
		n.kin = &kin{name: name, right: rate, noun: "NIC", what: what, most: mostNICs}
	}
}

func cleaned(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = clean(s)
	}
	return out
}

func (b *builder) rateOf(p *topo.Port) string {
	if Down(p) {
		return ""
	}
	return b.portRate(p.BytesPerSec)
}

// portText is a port's link layer and state.
func (b *builder) portText(r *topo.RDMADevice, p *topo.Port) string {
	state := PortState(p, clean)
	if state == "" && b.states {
		state = "state ?"
	}
	return joined(layer(r, p.LinkLayer), state)
}

// layer is what a device speaks, as far as it is known.
func layer(r *topo.RDMADevice, linkLayer string) string {
	words := clean(linkLayer)
	switch r.Transport {
	case "efa":
		words = "EFA"
	case "ib", "roce", "iwarp", "opa":
		names := map[string]string{"ib": "InfiniBand", "roce": "RoCE", "iwarp": "iWARP", "opa": "Omni-Path"}
		if words == "" || r.Transport == "iwarp" || r.Transport == "opa" {
			words = names[r.Transport]
		}
	}
	if r.Software {
		words = "software"
	}
	return words
}

// legs names the bond that an RDMA device stands for.
func (b *builder) legs(r *topo.RDMADevice) string {
	for _, name := range r.Netdevs {
		if n := b.NetdevNamed(name); n != nil && n.LinkKind == "bond" && len(n.Lower) > 0 {
			return clean(name) + ": " + strings.Join(cleaned(n.Lower), " + ")
		}
	}
	return ""
}

// legInSlot says whether an interface is a leg of the bond that the RDMA device of its slot stands
// for: it is not drawn.
func (b *builder) legInSlot(n *topo.Netdev, d *topo.PCIDevice) bool {
	if d == nil || n.Master == "" || slices.Contains(b.nics, n.ID) {
		return false
	}
	for _, sibling := range b.Children(d.Parent) {
		if sibling.BDF.Slot() == d.BDF.Slot() && len(b.On(sibling.ID).RDMADevices) > 0 {
			return true
		}
	}
	return false
}

// netdevBox fills the box of an interface: a NIC where it is fast enough for data, else a single row.
func (b *builder) netdevBox(n *node, i *topo.Netdev, d *topo.PCIDevice) {
	name, state, member, model := clean(i.Name), clean(i.State), "", ""
	up := i.State == "" || i.State == "up" || i.State == "unknown"
	rate := b.portRate(i.BytesPerSec)
	if !up {
		rate = state
	}
	if i.Master != "" {
		member = "in " + clean(i.Master)
	}
	if d != nil {
		model = clean(d.DeviceName)
	}
	n.fill(lookSmall, name, rate, joined(name, state, clean(i.Driver), address(i.BDF)), model, from(&i.Node))
	most := mostSmall
	if up && i.BytesPerSec != nil && *i.BytesPerSec >= slowest {
		n.look, n.rows[0].style, most = lookNIC, rowStrong, mostNICs
		kind := "Ethernet"
		if i.Type != "ether" {
			kind = cmp.Or(clean(i.Type), kind)
		}
		n.say(row{left: joined(kind, state, member), soft: true}, row{left: address(i.BDF), style: rowFaint})
	} else {
		n.say(row{left: member, style: rowFaint, soft: true})
	}
	if member == "" {
		n.kin = &kin{name: name, right: rate, noun: "interface", what: joined(clean(i.Type), state), most: most}
	}
}

// stackedBox makes the box of an interface that of one which stands on others: a bond or VLAN.
func (b *builder) stackedBox(n *node, i *topo.Netdev) {
	rate, kind, on := n.rows[0].right, clean(netdevKind(i)), ""
	if len(i.Lower) > 0 {
		on = " on " + span(cleaned(i.Lower))
	}
	n.look, n.rows = lookSmall, []row{{left: clean(i.Name), right: rate}}
	n.say(row{left: kind + on, style: rowFaint})
	n.kin = &kin{name: clean(i.Name), right: rate, noun: "interface", what: kind, most: mostNICs}
}
