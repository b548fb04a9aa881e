package diagram

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

// builder makes the scene of a topology.
type builder struct {
	*hostview.View
	opts   Options
	roots  map[topo.ID]*topo.Link  // of root complexes, by host bridge
	nics   map[topo.ID]bool        // the matrix NICs
	bonds  map[string]*topo.Netdev // by name
	speaks map[string]bool         // interfaces that an RDMA device speaks for
	states bool                    // the origin tells the states of ports
	peers  *peers

	drawn    map[topo.ID]bool // devices that a box stands for
	hidden   int              // PCI functions that are not drawn
	devices  hostview.ByNUMA[*node]
	problems []string
}

func newScene(t *topo.Topology, o Options) *scene {
	b := newBuilder(t, o)
	hostview.Trees(b.View, &b.devices, b.root, func(list []*topo.PCIDevice) []*node { return b.functions(list, 0) })
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

func newBuilder(t *topo.Topology, o Options) *builder {
	b := &builder{View: hostview.New(t), opts: o, roots: map[topo.ID]*topo.Link{}, nics: map[topo.ID]bool{},
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
func (b *builder) loose() {
	var found hostview.ByNUMA[*node]
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
func (b *builder) places() []*node {
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
func (b *builder) socket(p hostview.Socket) *node {
	name := "socket " + strconv.Itoa(p.Index)
	n := &node{look: lookPackage, id: p.ID}
	if len(p.Nodes) == 1 {
		n = b.numa(p.Nodes[0])
		n.look = lookPackage
		n.rows[0].left = name + " · " + n.rows[0].left
	} else {
		n.rows = []row{{left: name, style: rowStrong}, {left: hostview.CPUs(clean(p.CPUs)), soft: true}}
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
	out := &node{look: lookNUMA, id: n.ID, tip: []string{joined(name, hostview.CPUs(clean(n.CPUs)), memory, kind), from(&n.Node)},
		rows: []row{{left: name, style: rowStrong}, {left: joined(hostview.CPUs(clean(n.CPUs)), memory, kind), soft: true}}}
	out.inside = b.devices.Take(n.Index)
	return out
}

// undescribed are the trees of NUMA nodes that the document does not list.
func (b *builder) undescribed() []*node {
	var out []*node
	for i, trees := range b.devices.Rest() {
		out = append(out, &node{look: lookNUMA, inside: trees,
			rows: []row{{left: fmt.Sprintf("NUMA %d (no other information)", i), style: rowStrong}}})
	}
	return out
}

// virtual is the box of what stands on no PCI function: software RDMA
// devices, bonds and VLANs. nil if there are none.
func (b *builder) virtual() *node {
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
func (b *builder) undrawn() string {
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
