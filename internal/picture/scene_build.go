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

// diagram makes the scene of a topology.
type diagram struct {
	*View
	opts   Options
	roots  map[topo.ID]*topo.Link  // of root complexes, by host bridge
	nics   map[topo.ID]bool        // the matrix NICs
	bonds  map[string]*topo.Netdev // by name
	speaks map[string]bool         // interfaces that an RDMA device speaks for
	states bool                    // the origin tells the states of ports
	peers  *peers

	drawn    map[topo.ID]bool // devices that a box stands for
	hidden   int              // PCI functions that are not drawn
	devices  ByNUMA[*node]
	problems []string
}

func newScene(t *topo.Topology, o Options) *scene {
	b := newDiagram(t, o)
	Trees(b.View, &b.devices, b.root, func(list []*topo.PCIDevice) []*node { return b.functions(list, 0) })
	b.loose()
	s := &scene{virtual: b.virtual()}
	places := b.places()
	if len(places) > 0 {
		s.places = &node{look: lookNone, inside: places}
	}
	if rest := append(b.undescribed(), b.devices.Unknown...); len(rest) > 0 {
		s.unknown = &node{look: lookUnknown, rows: []row{{left: "NUMA node unknown", style: rowStrong}},
			tip: []string{"Neither the devices nor the bridges above them report a NUMA node"}, inside: rest}
	}
	s.joint, s.bars = b.sockets(places)
	s.bars = append(s.bars, b.peers.bars...)
	s.edges = b.peers.edges
	s.problems = b.problems
	b.texts(s)
	return s
}

func newDiagram(t *topo.Topology, o Options) *diagram {
	b := &diagram{View: New(t), opts: o, roots: map[topo.ID]*topo.Link{}, nics: map[topo.ID]bool{},
		bonds: map[string]*topo.Netdev{}, speaks: map[string]bool{}, drawn: map[topo.ID]bool{}}
	b.states = slices.ContainsFunc(t.Ports, func(p topo.Port) bool { return p.State != "" })
	for i := range t.Links {
		if l := &t.Links[i]; l.Kind == topo.LinkRootComplex {
			b.roots[l.B] = l
		}
	}
	for _, id := range t.MatrixAxis(topo.KindNIC) {
		b.nics[id] = true
	}
	for i := range t.RDMADevices {
		for _, name := range t.RDMADevices[i].Netdevs {
			b.speaks[name] = true
		}
	}
	for i := range t.Netdevs {
		if n := &t.Netdevs[i]; n.LinkKind == "bond" {
			b.bonds[n.Name] = n
		}
	}
	b.peers = newPeers(b)
	return b
}

// loose places the devices that stand on no PCI function of the document, and
// those that the walk did not come by.
func (b *diagram) loose() {
	var found ByNUMA[*node]
	for i := range b.T.GPUs {
		if g := &b.T.GPUs[i]; !b.drawn[g.ID] {
			found.Put(g.NUMA, b.gpu(g, nil))
		}
	}
	for i := range b.T.RDMADevices {
		if r := &b.T.RDMADevices[i]; !b.drawn[r.ID] && (!r.Software || r.PCI != "") {
			found.Put(r.NUMA, b.rdma(r, nil))
		}
	}
	for i := range b.T.Netdevs {
		if n := &b.T.Netdevs[i]; !b.drawn[n.ID] && b.nics[n.ID] {
			found.Put(n.NUMA, b.netdev(n, nil))
		}
	}
	for i := range b.T.NVMes {
		if n := &b.T.NVMes[i]; !b.drawn[n.ID] {
			found.Put(n.NUMA, b.drive(n))
		}
	}
	for numa, alike := range found.Rest() {
		b.devices.Put(&numa, fold(alike)...)
	}
	b.devices.Put(nil, fold(found.Unknown)...)
}

// places are the sockets, and the NUMA nodes that belong to none.
func (b *diagram) places() []*node {
	sockets, free := b.Sockets()
	var out []*node
	for _, p := range sockets {
		out = append(out, b.socket(p))
	}
	for _, n := range free {
		out = append(out, b.numa(n))
	}
	return out
}

// socket is a CPU package; one with a single NUMA node is one box for both.
func (b *diagram) socket(p Socket) *node {
	name := "socket " + strconv.Itoa(p.Index)
	n := &node{look: lookPackage, id: p.ID}
	if len(p.Nodes) == 1 {
		n = b.numa(p.Nodes[0])
		n.look = lookPackage
		n.rows[0].left = name + " · " + n.rows[0].left
	} else {
		n.rows = []row{{left: name, style: rowStrong}, {left: CPUs(clean(p.CPUs)), soft: true}}
		for _, x := range p.Nodes {
			n.inside = append(n.inside, b.numa(x))
		}
	}
	if p.Model != "" {
		n.rows = append(n.rows, row{left: clean(p.Model), style: rowFaint, soft: true})
	}
	n.tip = append([]string{joined(name, clean(p.Model)), from(&p.Node)}, n.tip...)
	return n
}

// from says where a node's facts were read.
func from(n *topo.Node) string {
	if n.Evidence == "" {
		return ""
	}
	return "read from " + clean(n.Evidence)
}

// numa is a NUMA node with what hangs from it.
func (b *diagram) numa(n *topo.NUMANode) *node {
	memory := ""
	if n.MemoryBytes != nil {
		memory = units.Bytes(*n.MemoryBytes)
	}
	kind := ""
	if n.MemoryOnly {
		kind = "memory only"
	}
	name := "NUMA " + strconv.Itoa(n.Index)
	out := &node{look: lookNUMA, id: n.ID, tip: []string{joined(name, CPUs(clean(n.CPUs)), memory, kind), from(&n.Node)},
		rows: []row{{left: name, style: rowStrong}, {left: joined(CPUs(clean(n.CPUs)), memory, kind), soft: true}}}
	out.inside = b.devices.Take(n.Index)
	return out
}

// undescribed are the trees of NUMA nodes that the document does not list.
func (b *diagram) undescribed() []*node {
	var out []*node
	for i, trees := range b.devices.Rest() {
		out = append(out, &node{look: lookNUMA, inside: trees,
			rows: []row{{left: fmt.Sprintf("NUMA %d (no other information)", i), style: rowStrong}}})
	}
	return out
}

// virtual is the box of what stands on no PCI function: software RDMA
// devices, bonds and VLANs. nil if there are none.
func (b *diagram) virtual() *node {
	var nodes []*node
	for i := range b.T.RDMADevices {
		if r := &b.T.RDMADevices[i]; !b.drawn[r.ID] {
			nodes = append(nodes, b.rdma(r, nil))
		}
	}
	for i := range b.T.Netdevs {
		n := &b.T.Netdevs[i]
		if n.PCI == "" && !b.drawn[n.ID] && (n.LinkKind == "bond" || n.LinkKind == "vlan" || !n.Virtual && n.Type != "loopback") {
			nodes = append(nodes, b.stacked(n))
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	return &node{look: lookVirtual, inside: fold(nodes), rows: []row{{left: "software and virtual devices", style: rowStrong}},
		tip: []string{"These have no PCI function of their own"}}
}

// undrawn counts by kind what is left out of the image.
func (b *diagram) undrawn() string {
	kinds := map[string]int{}
	for i := range b.T.Netdevs {
		n := &b.T.Netdevs[i]
		if n.PCI != "" || b.drawn[n.ID] {
			continue
		}
		kind := n.LinkKind
		if kind == "" {
			kind = n.Type
		}
		if kind == "" {
			kind = "virtual"
		}
		kinds[clean(kind)+" interface"]++
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		out = append(out, text.Plural(kinds[k], k))
	}
	if b.hidden > 0 {
		out = append(out, text.Plural(b.hidden, "other PCI function"))
	}
	return strings.Join(out, ", ")
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

// gpu is a GPU with the links to its peers and what is out of the ordinary.
// d is nil where the document has no PCI function for it.
func (b *diagram) gpu(g *topo.GPU, d *topo.PCIDevice) *node {
	name := "GPU" + strconv.Itoa(g.Index)
	model := GPUModel(g, d)
	n := &node{look: lookGPU, id: g.ID}
	b.stand(n, g.ID)
	n.rows = []row{{left: name, right: b.peers.sum(g.ID), style: rowStrong}}
	if model != "" {
		n.rows = append(n.rows, row{left: shortModel(clean(model)), soft: true})
	}
	n.rows = append(n.rows, address(g.BDF)...)
	n.rows = append(n.rows, atMost(b.peers.rows[g.ID], "link")...)
	n.rows = append(n.rows, b.nearest(g.ID)...)
	if g.MIG != nil && g.MIG.Enabled {
		n.rows = append(n.rows, row{left: "MIG: " + text.Plural(len(g.MIG.Instances), "instance"), soft: true})
	}
	if g.KnownFrom == "pci" && g.Driver == "" {
		n.rows = append(n.rows, row{left: "no driver", alert: true})
	}
	if g.Visible != nil && !*g.Visible {
		n.rows = append(n.rows, row{left: "not visible here", style: rowFaint, soft: true})
	}
	memory := ""
	if g.MemoryBytes != nil {
		memory = units.Bytes(*g.MemoryBytes)
	}
	if g.MemoryNUMA != nil {
		memory = joined(memory, fmt.Sprintf("its memory is NUMA node %d", *g.MemoryNUMA))
	}
	n.tip = []string{joined(name, clean(model)), clean(g.UUID), memory, from(&g.Node)}
	n.tip = append(n.tip, b.peers.tips[g.ID]...)
	return n
}

// address is the row of a PCI address, if there is one.
func address(b *topo.BDF) []row {
	if b == nil {
		return nil
	}
	return []row{{left: b.String(), style: rowFaint}}
}

// nearest is the row that names the nearest NICs of a GPU, where the origin
// states classes without a tree that would show them.
func (b *diagram) nearest(gpu topo.ID) []row {
	d := b.T.Derived
	at, ok := b.Place(gpu)
	if b.T.Asserted == nil || !ok {
		return nil
	}
	var best topo.Class
	var names []string
	near := b.T.Nearness()
	for i, id := range d.Axis {
		if !b.nics[id] {
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
		return nil
	}
	words := span(names)
	if len(names) > 2 {
		words = text.Plural(len(names), "NIC")
	}
	return []row{{left: best.String() + ": " + words}}
}

// rdma is an RDMA device with its ports. d is nil where the document has no
// PCI function for it.
func (b *diagram) rdma(r *topo.RDMADevice, d *topo.PCIDevice) *node {
	n := &node{look: lookNIC, id: r.ID}
	if r.Software {
		n.look = lookSoftware
	}
	b.stand(n, r.ID)
	name, what, rate := clean(r.Name), layer(r, ""), "?"
	ports := b.Ports(r.ID)
	if len(ports) == 1 {
		what, rate = b.portText(r, ports[0]), b.rateOf(ports[0])
	} else if len(ports) > 1 {
		rate = ""
	}
	n.rows = []row{{left: name, right: rate, style: rowStrong}}
	if what != "" {
		n.rows = append(n.rows, row{left: what, alert: len(ports) == 1 && Down(ports[0])})
	}
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
	n.rows = append(n.rows, atMost(rows, "port")...)
	n.rows = append(n.rows, address(r.BDF)...)
	legs := b.legs(r)
	n.rows = append(n.rows, legs...)
	closed := r.Uverbs == "denied" || r.Uverbs == "none"
	if closed {
		n.rows = append(n.rows, row{left: "no access to verbs", alert: true})
	}
	if len(ports) <= 1 && len(legs) == 0 && !n.alert && !closed {
		n.kin = &kin{key: "nic|" + what + "|" + rate, name: name, most: mostNICs, many: func(n int, names string) []row {
			return []row{{left: names, right: rate, style: rowStrong}, {left: joined(text.Plural(n, "NIC"), what)}}
		}}
	}
	model := ""
	if d != nil {
		model = clean(d.DeviceName)
	}
	n.tip = []string{joined(name, model), strings.Join(cleaned(listed(r.Netdevs)), ", "), from(&r.Node)}
	return n
}

func cleaned(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = clean(s)
	}
	return out
}

func (b *diagram) rateOf(p *topo.Port) string {
	if Down(p) {
		return ""
	}
	return b.portRate(p.BytesPerSec)
}

// portText is a port's link layer and state.
func (b *diagram) portText(r *topo.RDMADevice, p *topo.Port) string {
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

// legs is the row of the bond that an RDMA device stands for.
func (b *diagram) legs(r *topo.RDMADevice) []row {
	for _, name := range r.Netdevs {
		bond := b.bonds[name]
		if bond == nil || len(bond.Lower) == 0 {
			continue
		}
		return []row{{left: clean(name) + ": " + strings.Join(cleaned(bond.Lower), " + "), soft: true}}
	}
	return nil
}

// netdevs are the interfaces of a function without RDMA device. Those that
// stand for a virtual function's port are not drawn, and neither is a leg of a
// bond that the RDMA device of its slot stands for.
func (b *diagram) netdevs(list []*topo.Netdev, d *topo.PCIDevice) []*node {
	var out []*node
	for _, n := range list {
		if n.PhysPortIsOwn() && !b.legInSlot(n, d) {
			out = append(out, b.netdev(n, d))
		}
	}
	return out
}

func (b *diagram) legInSlot(n *topo.Netdev, d *topo.PCIDevice) bool {
	if n.Master == "" || !b.speaks[n.Master] || b.nics[n.ID] {
		return false
	}
	for _, sibling := range b.Children(d.Parent) {
		if sibling.BDF.Slot() == d.BDF.Slot() && len(b.On(sibling.ID).RDMADevices) > 0 {
			return true
		}
	}
	return false
}

// netdev is an interface: a NIC where it is fast enough for data, else a
// single row.
func (b *diagram) netdev(n *topo.Netdev, d *topo.PCIDevice) *node {
	out := &node{look: lookSmall, id: n.ID}
	b.stand(out, n.ID)
	name := clean(n.Name)
	up := n.State == "" || n.State == "up" || n.State == "unknown"
	rate := b.portRate(n.BytesPerSec)
	if !up {
		rate = clean(n.State)
	}
	member := ""
	if n.Master != "" {
		member = "in " + clean(n.Master)
	}
	driver := clean(n.Driver)
	out.rows = []row{{left: name, right: rate}}
	if member != "" {
		out.rows = append(out.rows, row{left: member, style: rowFaint, soft: true})
	}
	if up && n.BytesPerSec != nil && *n.BytesPerSec >= slowest {
		out.look = lookNIC
		kind := "Ethernet"
		if n.Type != "ether" && n.Type != "" {
			kind = clean(n.Type)
		}
		out.rows = append([]row{{left: name, right: rate, style: rowStrong}, {left: joined(kind, clean(n.State), member), soft: true}}, address(n.BDF)...)
	}
	if member == "" {
		look, second, most := out.look, joined(clean(n.Type), clean(n.State)), mostSmall
		if look == lookNIC {
			most = mostNICs
		}
		out.kin = &kin{key: fmt.Sprintf("net|%d|%s|%s", look, rate, second), name: name, most: most, many: func(n int, names string) []row {
			return []row{{left: names, right: rate, style: rowStrong}, {left: joined(text.Plural(n, "interface"), second)}}
		}}
	}
	bdf := ""
	if n.BDF != nil {
		bdf = n.BDF.String()
	}
	model := ""
	if d != nil {
		model = clean(d.DeviceName)
	}
	out.tip = []string{joined(name, clean(n.State), driver, bdf), model, from(&n.Node)}
	return out
}

// stacked is an interface that stands on others: a bond or VLAN.
func (b *diagram) stacked(n *topo.Netdev) *node {
	out := b.netdev(n, nil)
	out.look = lookSmall
	kind := clean(n.LinkKind)
	if n.Bond != nil && n.Bond.Mode != "" {
		kind += " " + clean(n.Bond.Mode)
	}
	if n.VLANID != nil {
		kind += " " + strconv.Itoa(*n.VLANID)
	}
	on := kind
	if len(n.Lower) > 0 {
		on += " on " + span(cleaned(n.Lower))
	}
	rate := out.rows[0].right
	out.rows = []row{{left: clean(n.Name), right: rate}}
	if on != "" {
		out.rows = append(out.rows, row{left: on, style: rowFaint})
	}
	out.kin = &kin{key: "stacked|" + kind + "|" + rate, name: clean(n.Name), most: mostNICs, many: func(n int, names string) []row {
		return []row{{left: names, right: rate}, {left: strconv.Itoa(n) + " of kind " + kind, style: rowFaint}}
	}}
	return out
}

// idle is a network function without interface and RDMA device.
func (b *diagram) idle(d *topo.PCIDevice) *node {
	second := "no interface"
	if d.Driver == "" {
		second = "no driver"
	}
	bdf := d.BDF.String()
	return &node{look: lookSmall, id: d.ID, rows: []row{{left: "NIC", right: bdf}, {left: second, style: rowFaint}},
		tip: []string{joined("network function "+bdf, clean(d.DeviceName)), second, from(&d.Node)},
		kin: &kin{key: "idle|" + second, name: bdf, most: mostSmall, many: func(n int, names string) []row {
			return []row{{left: text.Plural(n, "NIC"), right: second}, {left: names, style: rowFaint, soft: true}}
		}}}
}

func (b *diagram) drive(n *topo.NVMe) *node {
	name := clean(n.Name)
	bdf := ""
	if n.BDF != nil {
		bdf = n.BDF.String()
	}
	out := &node{look: lookDrive, id: n.ID, rows: []row{{left: name, right: "NVMe"}},
		tip: []string{joined(name, clean(n.Model), bdf), from(&n.Node)},
		kin: &kin{key: "drive", name: name, most: mostDrives, many: func(n int, names string) []row {
			return []row{{left: strconv.Itoa(n) + " NVMe", right: names}}
		}}}
	b.stand(out, n.ID)
	return out
}

func (b *diagram) nvswitch(s *topo.NVSwitch) *node {
	bdf := ""
	if s.BDF != nil {
		bdf = s.BDF.String()
	}
	out := &node{look: lookFabric, id: s.ID, rows: []row{{left: "NVSwitch", right: bdf}}, tip: []string{joined("NVSwitch", bdf), from(&s.Node)},
		kin: &kin{key: "nvswitch", name: bdf, most: mostDrives, many: func(n int, _ string) []row {
			return []row{{left: text.Plural(n, "NVSwitch")}}
		}}}
	b.stand(out, s.ID)
	return out
}
