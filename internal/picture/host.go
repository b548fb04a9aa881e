// Package picture shows a host: as a tree and as a matrix in the look of nvidia-smi topo -m for
// terminals, and as people draw it on a whiteboard, in SVG and in DOT for Graphviz: sockets and NUMA
// nodes as boxes, the PCIe switches inside them as levels, GPUs and NICs below their switch, and
// every link with its width and rate. What it prints may change; programs read the JSON.
//
// A host is gone through once: build.go makes a tree of things, of each the line that a text prints
// and the box that a diagram draws. tree.go prints the lines. For a diagram boxes.go puts the boxes
// together (devices of one slot, many that look alike), layout.go gives them coordinates, and svg.go or
// dot.go writes them.
package picture

import (
	"maps"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
)

// MaxDepth bounds the climb down a PCI tree: a hostile document may nest without end.
const MaxDepth = 64

// View is a topology while it is shown. It is for one goroutine.
type View struct {
	*topo.Index
	T       *topo.Topology
	reached map[topo.ID]bool // PCI functions that are shown, or left out on purpose: parents may form a circle
}

// New makes the view of a derived topology.
func New(t *topo.Topology) *View {
	return &View{Index: topo.NewIndex(t), T: t, reached: map[topo.ID]bool{}}
}

// Counts says how much of everything there is: "2 sockets", "8 GPUs".
func (v *View) Counts() []string {
	var counts []string
	count := func(n int, noun string) {
		if n > 0 {
			counts = append(counts, text.Plural(n, noun))
		}
	}
	count(len(v.T.Packages), "socket")
	count(len(v.T.MatrixAxis(topo.KindNUMA)), "NUMA node")
	count(len(v.T.GPUs), "GPU")
	count(len(v.T.MatrixAxis(topo.KindNIC)), "NIC")
	count(len(v.T.NVMes), "NVMe drive")
	return counts
}

// Socket is a CPU package with its NUMA nodes.
type Socket struct {
	*topo.Package
	Nodes []*topo.NUMANode
}

// Sockets lists the CPU packages, and the NUMA nodes that belong to none of them. The
// memory of GPUs is left out.
func (v *View) Sockets() (sockets []Socket, free []*topo.NUMANode) {
	place := map[int]int{}
	for i := range v.T.Packages {
		p := &v.T.Packages[i]
		if _, twice := place[p.Index]; !twice {
			place[p.Index] = i
		}
		sockets = append(sockets, Socket{Package: p})
	}
	for i := range v.T.NUMANodes {
		n := &v.T.NUMANodes[i]
		if n.Owner != "" {
			continue
		}
		if n.Package != nil {
			if at, ok := place[*n.Package]; ok {
				sockets[at].Nodes = append(sockets[at].Nodes, n)
				continue
			}
		}
		free = append(free, n)
	}
	return sockets, free
}

// byNUMA holds what hangs from NUMA nodes until they take it.
type byNUMA struct {
	at      map[int][]*line
	unknown []*line // what hangs from a node that is not known
}

// put adds things of a NUMA node; node is nil if it is not known.
func (b *byNUMA) put(node *int, things ...*line) {
	switch {
	case len(things) == 0:
	case node == nil:
		b.unknown = append(b.unknown, things...)
	default:
		if b.at == nil {
			b.at = map[int][]*line{}
		}
		b.at[*node] = append(b.at[*node], things...)
	}
}

// take gives the things of a node and forgets them.
func (b *byNUMA) take(node int) []*line {
	things := b.at[node]
	delete(b.at, node)
	return things
}

// rest gives the things that no node has taken.
func (b *byNUMA) rest() []*line {
	var out []*line
	for _, node := range slices.Sorted(maps.Keys(b.at)) {
		out = append(out, b.at[node]...)
	}
	return append(out, b.unknown...)
}

// numaOf is the NUMA node of a host bridge, or the one that all its devices agree on.
func (v *View) numaOf(hb *topo.HostBridge) *int {
	if hb.NUMA != nil {
		return hb.NUMA
	}
	var common *int
	for _, d := range v.Children(hb.ID) {
		if d.NUMA == nil || common != nil && *common != *d.NUMA {
			return nil
		}
		common = d.NUMA
	}
	return common
}

// IsNetwork reports whether a function's class is a network controller's.
func IsNetwork(d *topo.PCIDevice) bool { return d.Class.Uint()>>16 == 0x02 }

// GPUModel names a GPU as exactly as is known. d is its function, nil if the document has none.
func GPUModel(g *topo.GPU, d *topo.PCIDevice) string {
	switch {
	case g.Model != "":
		return g.Model
	case d != nil && d.DeviceName != "":
		return d.DeviceName
	}
	return g.Vendor
}

// Down reports whether a port is known not to carry data.
func Down(p *topo.Port) bool { return p.State != "" && p.State != "ACTIVE" }

// PortState is a port's state in words, with the physical one where that says more; clean
// makes foreign text printable.
func PortState(p *topo.Port, clean func(string) string) string {
	state := clean(p.State)
	if Down(p) && p.PhysState != "" && p.PhysState != "LinkUp" {
		state += " (" + clean(p.PhysState) + ")"
	}
	return state
}

// CPUs names a list of CPUs, "" if it is empty.
func CPUs(list string) string {
	if list == "" {
		return ""
	}
	return "cpu " + list
}
