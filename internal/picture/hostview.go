// Package picture shows a host: as a tree and as a matrix in the look of nvidia-smi topo -m for
// terminals, and as people draw it on a whiteboard, in SVG and in DOT for Graphviz: sockets and NUMA
// nodes as boxes, the PCIe switches inside them as levels, GPUs and NICs below their switch, and
// every link with its width and rate. What it prints may change; programs read the JSON.
//
// What tree and diagram have in common (which sockets, NUMA nodes and PCI trees there are to show,
// what is said of links, ports and devices) is in hostview.go, so that they say the same of one
// host. A diagram is made in three steps: the scene says what is shown and how it hangs together,
// the layout gives it coordinates, and a writer prints it.
package picture

import (
	"iter"
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
	reached map[topo.ID]bool
}

// New makes the view of a derived topology.
func New(t *topo.Topology) *View {
	return &View{Index: topo.NewIndex(t), T: t, reached: map[topo.ID]bool{}}
}

// Reach notes that a PCI function is shown, or left out on purpose. It is false for one
// that was reached before: parents may form a circle.
func (v *View) Reach(d *topo.PCIDevice) bool {
	if v.reached[d.ID] {
		return false
	}
	v.reached[d.ID] = true
	return true
}

// Reached reports whether Reach was called for a function.
func (v *View) Reached(d *topo.PCIDevice) bool { return v.reached[d.ID] }

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

// ByNUMA holds what hangs from NUMA nodes until they take it.
type ByNUMA[T any] struct {
	at      map[int][]T
	Unknown []T // what hangs from a node that is not known
}

// Put adds items of a NUMA node, nil where that is not known.
func (b *ByNUMA[T]) Put(node *int, items ...T) {
	switch {
	case len(items) == 0:
	case node == nil:
		b.Unknown = append(b.Unknown, items...)
	default:
		if b.at == nil {
			b.at = map[int][]T{}
		}
		b.at[*node] = append(b.at[*node], items...)
	}
}

// Take gives the items of a node and forgets them.
func (b *ByNUMA[T]) Take(node int) []T {
	items := b.at[node]
	delete(b.at, node)
	return items
}

// Rest is what no node has taken, by node; Unknown is not part of it.
func (b *ByNUMA[T]) Rest() iter.Seq2[int, []T] {
	return func(yield func(int, []T) bool) {
		for _, node := range slices.Sorted(maps.Keys(b.at)) {
			if !yield(node, b.at[node]) {
				return
			}
		}
	}
}

// Trees puts every PCI tree below its NUMA node: those of the host bridges as root makes
// them, then, as functions makes them, those that hang from nothing that the document has.
func Trees[T any](v *View, out *ByNUMA[T], root func(*topo.HostBridge) []T, functions func(list []*topo.PCIDevice) []T) {
	for i := range v.T.HostBridges {
		hb := &v.T.HostBridges[i]
		out.Put(v.numaOf(hb), root(hb)...)
	}
	for i := range v.T.PCIDevices {
		if d := &v.T.PCIDevices[i]; !v.Reached(d) && v.PCIDevice(d.Parent) == nil {
			out.Put(d.NUMA, functions([]*topo.PCIDevice{d})...)
		}
	}
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

// GPUModel is the best that is known of what a GPU is. d is its function, nil none.
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

// CPUs names a list of CPUs; "" for none.
func CPUs(list string) string {
	if list == "" {
		return ""
	}
	return "cpu " + list
}
