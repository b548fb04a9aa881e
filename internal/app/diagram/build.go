package diagram

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/units"
)

// maxDepth bounds the climb down: a hostile document may nest without end.
const maxDepth = 64

// builder makes the scene of a topology.
type builder struct {
	t        *topo.Topology
	opts     Options
	children map[topo.ID][]*topo.PCIDevice // by parent
	devices  map[topo.ID]*topo.PCIDevice
	vfs      map[topo.ID][]*topo.PCIDevice // by physical function
	carried  map[topo.ID]*load
	ports    map[topo.ID][]*topo.Port // by RDMA device
	links    map[topo.ID]*topo.Link   // PCIe links by the node at the far end
	near     map[topo.ID]*bus         // PCIe links by the port above
	roots    map[topo.ID]*topo.Link   // of root complexes, by host bridge
	nics     map[topo.ID]bool         // the matrix NICs
	bonds    map[string]*topo.Netdev  // by name
	speaks   map[string]bool          // interfaces that an RDMA device speaks for
	states   bool                     // the origin tells the states of ports
	peers    *peers

	reached  map[topo.ID]bool // PCI functions that the walk came by
	drawn    map[topo.ID]bool // devices that a box stands for
	hidden   int              // PCI functions that are not drawn
	at       map[int][]*node  // trees and loose devices by NUMA node
	nowhere  []*node          // those whose NUMA node is not known
	problems []string
}

// load is what a PCI function carries.
type load struct {
	gpus     []*topo.GPU
	rdma     []*topo.RDMADevice
	netdevs  []*topo.Netdev
	drives   []*topo.NVMe
	switches []*topo.NVSwitch
}

func newScene(t *topo.Topology, o Options) *scene {
	b := newBuilder(t, o)
	b.trees()
	b.loose()
	s := &scene{virtual: b.virtual()}
	places := b.places()
	if len(places) > 0 {
		s.places = &node{look: lookNone, inside: places}
	}
	if rest := append(b.undescribed(), b.nowhere...); len(rest) > 0 {
		s.unknown = &node{look: lookUnknown, rows: []row{{left: "NUMA node unknown", style: rowStrong}},
			tip: []string{"Neither the devices nor the bridges above them tell their NUMA node"}, inside: rest}
	}
	s.joint, s.bars = b.sockets(places)
	s.bars = append(s.bars, b.peers.bars...)
	s.edges = b.peers.edges
	s.problems = b.problems
	b.texts(s)
	return s
}

func newBuilder(t *topo.Topology, o Options) *builder {
	b := &builder{t: t, opts: o,
		children: map[topo.ID][]*topo.PCIDevice{}, devices: map[topo.ID]*topo.PCIDevice{}, vfs: map[topo.ID][]*topo.PCIDevice{},
		carried: map[topo.ID]*load{}, ports: map[topo.ID][]*topo.Port{},
		links: map[topo.ID]*topo.Link{}, near: map[topo.ID]*bus{}, roots: map[topo.ID]*topo.Link{},
		nics: map[topo.ID]bool{}, bonds: map[string]*topo.Netdev{}, speaks: map[string]bool{},
		reached: map[topo.ID]bool{}, drawn: map[topo.ID]bool{}, at: map[int][]*node{},
	}
	for i := range t.PCIDevices {
		d := &t.PCIDevices[i]
		b.children[d.Parent] = append(b.children[d.Parent], d)
		b.devices[d.ID] = d
	}
	for i := range t.PCIDevices {
		if d := &t.PCIDevices[i]; d.PF != "" && d.PF != d.ID && b.devices[d.PF] != nil {
			b.vfs[d.PF] = append(b.vfs[d.PF], d)
		}
	}
	for i := range t.Ports {
		b.ports[t.Ports[i].RDMA] = append(b.ports[t.Ports[i].RDMA], &t.Ports[i])
		b.states = b.states || t.Ports[i].State != ""
	}
	b.indexLinks()
	for _, id := range t.MatrixAxis(topo.KindNIC) {
		b.nics[id] = true
	}
	b.loads()
	b.peers = newPeers(b)
	return b
}

// loads notes what each PCI function carries, and which interfaces are bonds.
func (b *builder) loads() {
	at := func(id topo.ID) *load {
		l, ok := b.carried[id]
		if !ok {
			l = &load{}
			b.carried[id] = l
		}
		return l
	}
	t := b.t
	for i := range t.GPUs {
		l := at(t.GPUs[i].PCI)
		l.gpus = append(l.gpus, &t.GPUs[i])
	}
	for i := range t.RDMADevices {
		l := at(t.RDMADevices[i].PCI)
		l.rdma = append(l.rdma, &t.RDMADevices[i])
		for _, name := range t.RDMADevices[i].Netdevs {
			b.speaks[name] = true
		}
	}
	for i := range t.Netdevs {
		n := &t.Netdevs[i]
		l := at(n.PCI)
		l.netdevs = append(l.netdevs, n)
		if n.LinkKind == "bond" {
			b.bonds[n.Name] = n
		}
	}
	for i := range t.NVMes {
		l := at(t.NVMes[i].PCI)
		l.drives = append(l.drives, &t.NVMes[i])
	}
	for i := range t.NVSwitches {
		l := at(t.NVSwitches[i].PCI)
		l.switches = append(l.switches, &t.NVSwitches[i])
	}
}

// put places trees below their NUMA node.
func (b *builder) put(numa *int, trees ...*node) {
	if numa == nil {
		b.nowhere = append(b.nowhere, trees...)
		return
	}
	b.at[*numa] = append(b.at[*numa], trees...)
}

// trees walks the PCI trees of all host bridges, and then what hangs from no
// host bridge that the document has.
func (b *builder) trees() {
	for i := range b.t.HostBridges {
		hb := &b.t.HostBridges[i]
		if n := b.root(hb); n != nil {
			b.put(b.numaOf(hb), n)
		}
	}
	for i := range b.t.PCIDevices {
		d := &b.t.PCIDevices[i]
		if !b.reached[d.ID] && b.devices[d.Parent] == nil {
			b.put(d.NUMA, b.functions([]*topo.PCIDevice{d}, 0)...)
		}
	}
}

// numaOf is the NUMA node of a host bridge, or the one that all its devices
// agree on.
func (b *builder) numaOf(hb *topo.HostBridge) *int {
	if hb.NUMA != nil {
		return hb.NUMA
	}
	var common *int
	for _, d := range b.children[hb.ID] {
		if d.NUMA == nil || common != nil && *common != *d.NUMA {
			return nil
		}
		common = d.NUMA
	}
	return common
}

// loose places the devices that stand on no PCI function of the document, and
// those that the walk did not come by.
func (b *builder) loose() {
	byNUMA := map[int][]*node{}
	var nowhere []*node
	put := func(numa *int, n *node) {
		if numa == nil {
			nowhere = append(nowhere, n)
			return
		}
		byNUMA[*numa] = append(byNUMA[*numa], n)
	}
	for i := range b.t.GPUs {
		if g := &b.t.GPUs[i]; !b.drawn[g.ID] {
			put(g.NUMA, b.gpu(g, nil))
		}
	}
	for i := range b.t.RDMADevices {
		if r := &b.t.RDMADevices[i]; !b.drawn[r.ID] && (!r.Software || r.PCI != "") {
			put(r.NUMA, b.rdma(r, nil))
		}
	}
	for i := range b.t.Netdevs {
		if n := &b.t.Netdevs[i]; !b.drawn[n.ID] && b.nics[n.ID] {
			put(n.NUMA, b.netdev(n, nil))
		}
	}
	for i := range b.t.NVMes {
		if n := &b.t.NVMes[i]; !b.drawn[n.ID] {
			put(n.NUMA, b.drive(n))
		}
	}
	for _, numa := range slices.Sorted(maps.Keys(byNUMA)) {
		b.put(&numa, fold(byNUMA[numa])...)
	}
	b.put(nil, fold(nowhere)...)
}

// places are the sockets, and the NUMA nodes that belong to none.
func (b *builder) places() []*node {
	known := map[int]bool{}
	for i := range b.t.Packages {
		known[b.t.Packages[i].Index] = true
	}
	byPackage := map[int][]*topo.NUMANode{}
	var free []*topo.NUMANode
	for i := range b.t.NUMANodes {
		switch n := &b.t.NUMANodes[i]; {
		case n.Owner != "":
		case n.Package != nil && known[*n.Package]:
			byPackage[*n.Package] = append(byPackage[*n.Package], n)
		default:
			free = append(free, n)
		}
	}
	var out []*node
	for i := range b.t.Packages {
		p := &b.t.Packages[i]
		out = append(out, b.socket(p, byPackage[p.Index]))
		delete(byPackage, p.Index) // a document may list a socket twice
	}
	for _, n := range free {
		out = append(out, b.numa(n))
	}
	return out
}

// socket is a CPU package; one with a single NUMA node is one box for both.
func (b *builder) socket(p *topo.Package, nodes []*topo.NUMANode) *node {
	name := "socket " + strconv.Itoa(p.Index)
	n := &node{look: lookPackage, id: p.ID}
	if len(nodes) == 1 {
		n = b.numa(nodes[0])
		n.look = lookPackage
		n.rows[0].left = name + " · " + n.rows[0].left
	} else {
		n.rows = []row{{left: name, style: rowStrong}, {left: cpus(clean(p.CPUs)), soft: true}}
		for _, x := range nodes {
			n.inside = append(n.inside, b.numa(x))
		}
	}
	if p.Model != "" {
		n.rows = append(n.rows, row{left: clean(p.Model), style: rowFaint, soft: true})
	}
	n.tip = append([]string{joined(name, clean(p.Model)), from(&p.Node)}, n.tip...)
	return n
}

func cpus(list string) string {
	if list == "" {
		return ""
	}
	return "cpu " + list
}

// from says where a node's facts were read.
func from(n *topo.Node) string {
	if n.Evidence == "" {
		return ""
	}
	return "read from " + clean(n.Evidence)
}

// numa is a NUMA node with what hangs from it.
func (b *builder) numa(n *topo.NUMANode) *node {
	memory := ""
	if n.MemoryBytes != nil {
		memory = units.Bytes(*n.MemoryBytes)
	}
	kind := ""
	if n.MemoryOnly {
		kind = "memory only"
	}
	name := "NUMA " + strconv.Itoa(n.Index)
	out := &node{look: lookNUMA, id: n.ID, tip: []string{joined(name, cpus(clean(n.CPUs)), memory, kind), from(&n.Node)},
		rows: []row{{left: name, style: rowStrong}, {left: joined(cpus(clean(n.CPUs)), memory, kind), soft: true}}}
	out.inside = b.at[n.Index]
	delete(b.at, n.Index)
	return out
}

// undescribed are the trees of NUMA nodes that the document does not list.
func (b *builder) undescribed() []*node {
	var out []*node
	for _, i := range slices.Sorted(maps.Keys(b.at)) {
		out = append(out, &node{look: lookNUMA, inside: b.at[i],
			rows: []row{{left: fmt.Sprintf("NUMA %d, of which nothing else is known", i), style: rowStrong}}})
	}
	return out
}

// virtual is the box of what stands on no PCI function: software RDMA
// devices, bonds and VLANs. nil if there are none.
func (b *builder) virtual() *node {
	var nodes []*node
	for i := range b.t.RDMADevices {
		if r := &b.t.RDMADevices[i]; !b.drawn[r.ID] {
			nodes = append(nodes, b.rdma(r, nil))
		}
	}
	for i := range b.t.Netdevs {
		n := &b.t.Netdevs[i]
		if n.PCI == "" && !b.drawn[n.ID] && (n.LinkKind == "bond" || n.LinkKind == "vlan" || !n.Virtual && n.Type != "loopback") {
			nodes = append(nodes, b.stacked(n))
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	return &node{look: lookVirtual, inside: fold(nodes), rows: []row{{left: "software and virtual devices", style: rowStrong}},
		tip: []string{"These stand on no PCI function of their own"}}
}

// undrawn counts by kind what is left out of the image.
func (b *builder) undrawn() string {
	kinds := map[string]int{}
	for i := range b.t.Netdevs {
		n := &b.t.Netdevs[i]
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
		out = append(out, plural(kinds[k], k))
	}
	if b.hidden > 0 {
		out = append(out, plural(b.hidden, "other PCI function"))
	}
	return strings.Join(out, ", ")
}
