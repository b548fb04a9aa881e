package topo

import "slices"

// Overlay holds measured rates of links, in bytes per second in one direction. They replace the
// expected rates of those links.
type Overlay map[LinkID]Rate

// Graph is the host as a graph: PCI functions form trees below host bridges,
// host bridges hang from NUMA nodes, NUMA nodes are joined pairwise, and NVLink,
// xGMI and C2C links are direct edges. Each edge has its rate in each direction
// separately. A Graph does not change and may be used by many goroutines.
type Graph struct {
	t     *Topology
	index *Index
	links []Link
	byID  map[LinkID]int

	vertex map[ID]int
	nodes  []vertex

	direct   map[[2]ID]int // NVLink and xGMI between two devices: index in links
	peers    peerSets
	fabric   map[ID]int // a GPU's NVLinks to the switches
	c2c      map[ID]int // a GPU's C2C link
	cpuNodes int
	asserted map[ID]int // places on the axis of what the origin states
}

// vertex is a place in a PCI tree: a function, or a host bridge (the root).
type vertex struct {
	id     ID
	dev    *PCIDevice // nil for a host bridge
	hb     *HostBridge
	parent int // -1 for a host bridge or an orphan
	up     int // link towards the parent, -1 inside a chip
}

// NewGraph builds the graph of a derived topology, with measured rates laid
// over it. The overlay may be nil.
func NewGraph(t *Topology, overlay Overlay) *Graph {
	g := &Graph{t: t, index: NewIndex(t), links: t.Links, byID: make(map[LinkID]int, len(t.Links)), vertex: map[ID]int{},
		direct: map[[2]ID]int{}, peers: peerSets{index: map[ID]int{}}, fabric: map[ID]int{}, c2c: map[ID]int{}}
	if len(overlay) > 0 {
		g.links = append([]Link(nil), t.Links...)
	}
	for i := range g.links {
		l := &g.links[i]
		g.byID[l.ID] = i
		if r, ok := overlay[l.ID]; ok {
			l.BytesPerSec, l.Basis = &r, BasisMeasured
		}
		switch l.Kind {
		case LinkNVLink, LinkXGMI:
			g.addDirect(l, i)
			if g.index.GPU(l.A) != nil && g.index.GPU(l.B) != nil {
				g.peers.join(l.A, l.B)
			}
		case LinkC2C:
			g.c2c[l.A] = i
		}
	}
	g.cpuNodes = len(t.cpuNodes())
	if t.Asserted != nil {
		g.asserted = make(map[ID]int, len(t.Asserted.Axis))
		for i, id := range t.Asserted.Axis {
			g.asserted[id] = i
		}
	}
	g.buildTrees()
	return g
}

func (g *Graph) addDirect(l *Link, i int) {
	switch FabricID {
	case l.A:
		g.fabric[l.B] = i
	case l.B:
		g.fabric[l.A] = i
	default:
		g.direct[[2]ID{l.A, l.B}] = i
		g.direct[[2]ID{l.B, l.A}] = i
	}
}

// buildTrees makes a vertex for each host bridge and PCI function and finds
// the link above it.
func (g *Graph) buildTrees() {
	t := g.t
	for i := range t.HostBridges {
		g.vertex[t.HostBridges[i].ID] = len(g.nodes)
		g.nodes = append(g.nodes, vertex{id: t.HostBridges[i].ID, hb: &t.HostBridges[i], parent: -1, up: -1})
	}
	for i := range t.PCIDevices {
		g.vertex[t.PCIDevices[i].ID] = len(g.nodes)
		g.nodes = append(g.nodes, vertex{id: t.PCIDevices[i].ID, dev: &t.PCIDevices[i], parent: -1, up: -1})
	}
	for i := range g.nodes {
		v := &g.nodes[i]
		if v.dev == nil {
			continue
		}
		if p, ok := g.vertex[v.dev.Parent]; ok {
			v.parent = p
		}
		if l := g.index.LinkAbove(v.id); l != nil {
			v.up = g.byID[l.ID]
		}
	}
}

// Index finds the nodes of the graph's topology.
func (g *Graph) Index() *Index { return g.index }

// Link returns the link with this ID, with measured rates applied.
func (g *Graph) Link(id LinkID) (Link, bool) {
	i, ok := g.byID[id]
	if !ok {
		return Link{}, false
	}
	return g.links[i], true
}

// endpoint is a device or NUMA node as the end of a path.
type endpoint struct {
	id    ID
	kind  Kind
	v     int  // its PCI function's vertex, -1 if it has none
	numa  *int // NUMA node, nil if unknown
	ports []int
	gpu   bool
	cpu   bool // a NUMA node itself
}

// endpoint resolves an ID; ok is false for a node that no path can end at.
func (g *Graph) endpoint(id ID) (endpoint, bool) {
	e := endpoint{id: id, v: -1}
	onPCI := func(pci ID, numa *int) {
		if v, ok := g.vertex[pci]; ok {
			e.v = v
		}
		e.numa = numa
	}
	switch n := g.index.Node(id).(type) {
	case *NUMANode:
		e.kind, e.cpu, e.numa = KindNUMA, true, &n.Index
	case *GPU:
		e.kind, e.gpu = KindGPU, true
		onPCI(n.PCI, n.NUMA)
	case *RDMADevice:
		e.kind = KindRDMA
		onPCI(n.PCI, n.NUMA)
		for _, p := range g.index.Ports(id) {
			e.ports = g.appendLink(e.ports, LinkID(p.ID))
		}
	case *Netdev:
		e.kind = KindNetdev
		onPCI(n.PCI, n.NUMA)
		e.ports = g.appendLink(e.ports, LinkID("port:"+n.Name))
	case *PCIDevice:
		e.kind = KindPCI
		onPCI(id, n.NUMA)
	default:
		return e, false
	}
	return e, true
}

func (g *Graph) appendLink(list []int, id LinkID) []int {
	if i, ok := g.byID[id]; ok {
		return append(list, i)
	}
	return list
}

// route is the way between two endpoints: the links in order, the switches
// crossed, and where the two sides meet.
type route struct {
	known    bool // else links are those between either end and its root only
	links    []int
	dirs     []Direction // one for each link
	switches int
	met      bool // the sides meet below the host bridge
	direct   bool // over NVLink, xGMI or C2C
	coherent bool // over a GPU's C2C link and its CPU, as to the CPU's own memory
}

// climb lists the vertices from v to its root, v first.
func (g *Graph) climb(v int, buf []int) []int {
	for range maxDepth {
		if v < 0 {
			break
		}
		buf = append(buf, v)
		v = g.nodes[v].parent
	}
	return buf
}

// tree finds the way between two functions through the PCI trees.
func (g *Graph) tree(a, b endpoint) route {
	r := route{known: true}
	up, down := g.climb(a.v, nil), g.climb(b.v, nil)
	i, j := len(up), len(down)
	for i > 0 && j > 0 && up[i-1] == down[j-1] {
		i, j = i-1, j-1
	}
	// up[:i] and down[:j] are below the meeting point, if there is one.
	r.met = i < len(up) && g.nodes[up[i]].dev != nil
	if !r.met && i == 1 && j == 1 && g.oneCard(a.v, b.v) {
		r.met, r.known = true, false // over a link that is not there
	}
	var middle []int
	if i < len(up) {
		middle = up[i : i+1]
	}
	r.switches = g.switchesOn(up[min(1, i):i], middle, down[min(1, j):j], a.v, b.v)
	for _, v := range up[:i] {
		r.add(g.nodes[v].up, Up)
	}
	if !r.met {
		g.acrossRoots(&r, a, b, up, down)
	}
	for k := j - 1; k >= 0; k-- {
		r.add(g.nodes[down[k]].up, Down)
	}
	return r
}

// oneCard says whether two functions directly below a host bridge are of one card behind a bridge that the
// source left out, as hwloc and NCCL do: on another bus than the root bus there must be one.
func (g *Graph) oneCard(a, b int) bool {
	x, y := g.nodes[a].dev, g.nodes[b].dev
	root := g.hostBridge(a)
	if root < 0 || root != g.hostBridge(b) || x.BDF.Slot() != y.BDF.Slot() || x.repeat() != y.repeat() {
		return false
	}
	hb := g.nodes[root].hb
	return x.BDF.Bus != 0 && (x.BDF.Bus != hb.Bus || hb.Synthetic)
}

// add appends a link; -1 is none.
func (r *route) add(link int, dir Direction) {
	if link >= 0 {
		r.links, r.dirs = append(r.links, link), append(r.dirs, dir)
	}
}

// switchesOn counts the switches that a path crosses: the ports of one switch
// count once, a bridge outside any switch counts as one.
func (g *Graph) switchesOn(up, middle, down []int, a, b int) int {
	seen := map[int]bool{}
	for _, part := range [][]int{up, middle, down} {
		for _, v := range part {
			if v == a || v == b || g.nodes[v].dev == nil {
				continue
			}
			switch g.nodes[v].dev.Role {
			case RoleUpstream, RoleBridge:
				seen[v] = true
			case RoleDownstream:
				// At the meeting point both ends are below one downstream port.
				if p := g.nodes[v].parent; p >= 0 && (len(middle) == 0 || v != middle[0]) {
					seen[p] = true
				}
			}
		}
	}
	return len(seen)
}

// acrossRoots adds the root complexes and the socket link of a path that
// leaves the PCI trees.
func (g *Graph) acrossRoots(r *route, a, b endpoint, up, down []int) {
	ra, rb := g.rootComplex(up), g.rootComplex(down)
	if ra >= 0 && ra == rb {
		r.add(ra, Both)
	} else {
		r.add(ra, Up)
	}
	if a.numa != nil && b.numa != nil && *a.numa != *b.numa {
		g.addSocket(r, *a.numa, *b.numa)
	}
	if rb != ra {
		r.add(rb, Down)
	}
}

// addSocket adds the link between two NUMA nodes, if there is one.
func (g *Graph) addSocket(r *route, from, to int) {
	if i, ok := g.byID[socketLinkID(from, to)]; ok {
		r.add(i, g.dirFrom(i, NUMAID(from)))
	}
}

// dirFrom is the direction of a link that is left at one of its ends.
func (g *Graph) dirFrom(link int, end ID) Direction {
	if g.links[link].A == end {
		return Down
	}
	return Up
}

// rootComplex is the link of the host bridge at the top of a climb, -1 if none.
func (g *Graph) rootComplex(climb []int) int {
	if len(climb) == 0 {
		return -1
	}
	top := g.nodes[climb[len(climb)-1]]
	if top.hb == nil {
		return -1
	}
	if i, ok := g.byID[rootComplexLinkID(top.id)]; ok {
		return i
	}
	return -1
}

// hostBridge is the vertex of the host bridge above v, -1 if it has none.
func (g *Graph) hostBridge(v int) int {
	for range maxDepth {
		if v < 0 {
			return -1
		}
		if g.nodes[v].hb != nil {
			return v
		}
		v = g.nodes[v].parent
	}
	return -1
}

// route finds the way between two endpoints: a direct link, else the PCI
// trees. An end without PCI function and without NUMA node has no known way.
func (g *Graph) route(a, b endpoint) route {
	if a.id == b.id {
		return route{known: true, direct: true}
	}
	direct := route{known: true, direct: true}
	if l, ok := g.direct[[2]ID{a.id, b.id}]; ok {
		direct.add(l, g.dirFrom(l, a.id))
		return direct
	}
	if a.gpu && b.gpu {
		x, okX := g.fabric[a.id]
		y, okY := g.fabric[b.id]
		if okX && okY {
			direct.add(x, g.dirFrom(x, a.id))
			direct.add(y, g.dirFrom(y, FabricID))
			return direct
		}
	}
	if l, ok := g.c2cBetween(a, b); ok {
		direct.add(l, g.dirFrom(l, a.id))
		return direct
	}
	if a.cpu && b.cpu {
		r := route{known: true}
		g.addSocket(&r, *a.numa, *b.numa)
		return r
	}
	r := g.tree(a, b)
	if a.v < 0 && !a.cpu || b.v < 0 && !b.cpu {
		r.known = false
		return r
	}
	if !r.met {
		if over, ok := g.overC2C(a, b); ok {
			return over
		}
		r.known = g.placed(a, b)
	}
	return r
}

func (g *Graph) c2cBetween(a, b endpoint) (int, bool) {
	if b.gpu {
		a, b = b, a
	}
	l, ok := g.c2c[a.id]
	return l, ok && a.gpu && b.cpu && g.links[l].B == b.id
}

// overC2C is the way between a GPU and a device of the PCI trees by the GPU's C2C link and its CPU: such
// a GPU's memory is memory of the CPU's, and the GPU's PCIe link is for control only. ok is false
// where the GPU has no such link.
func (g *Graph) overC2C(a, b endpoint) (r route, ok bool) {
	gpu, other := a, b
	if b.gpu {
		gpu, other = b, a
	}
	l, ok := g.c2c[gpu.id]
	if !ok || !gpu.gpu || other.gpu || other.v < 0 {
		return route{}, false
	}
	if n := g.index.NUMANode(g.links[l].B); n != nil {
		gpu.numa = &n.Index
	}
	cpu := endpoint{v: -1, cpu: true, numa: gpu.numa}
	if b.gpu {
		r = g.tree(other, cpu)
		r.add(l, Up)
	} else {
		r = g.tree(cpu, other)
		r.links, r.dirs = slices.Insert(r.links, 0, l), slices.Insert(r.dirs, 0, Down)
	}
	r.known, r.coherent = g.placed(gpu, other), true
	return r, true
}

// placed says whether enough is known of two ends that meet in no PCI tree to say what lies between them.
func (g *Graph) placed(a, b endpoint) bool {
	return a.numa != nil && b.numa != nil || g.hostBridge(a.v) >= 0 && g.hostBridge(a.v) == g.hostBridge(b.v)
}

// Direction is the way in which a path crosses a link. Each direction has the
// link's whole rate.
type Direction uint8

// The directions of travel.
const (
	Down Direction = iota // from the link's A to its B: away from the root
	Up                    // from B to A: towards the root
	Both                  // up and down again: peers below one root complex
)

// Step is one link of a path, in the direction of travel.
type Step struct {
	Link        LinkID
	Kind        LinkKind
	Dir         Direction
	BytesPerSec *Rate // nil is unknown
	Basis       Basis
}

// Path lists the links between two nodes in the direction of travel, the
// network port of a NIC with a single one included when the other end is no NIC.
// It is empty with ok true for a node and itself. ok is false where the way is
// not known; the links are then those that are certain: between either end and
// its root.
func (g *Graph) Path(a, b ID) (path []Step, ok bool) {
	x, ok1 := g.endpoint(a)
	y, ok2 := g.endpoint(b)
	if !ok1 || !ok2 {
		return nil, false
	}
	r := g.route(x, y)
	for k, i := range r.links {
		path = append(path, g.step(i, r.dirs[k]))
	}
	if ports := wireOf(x, y); len(ports) == 1 {
		if len(x.ports) > 0 { // traffic comes in by the wire
			return append([]Step{g.step(ports[0], Up)}, path...), r.known
		}
		path = append(path, g.step(ports[0], Down))
	}
	return path, r.known
}

func (g *Graph) step(i int, dir Direction) Step {
	l := &g.links[i]
	return Step{l.ID, l.Kind, dir, l.BytesPerSec, l.Basis}
}

// wireOf are the network ports that traffic between a and b leaves by: those
// of the one end that is a NIC.
func wireOf(a, b endpoint) []int {
	switch {
	case len(a.ports) > 0 && len(b.ports) == 0:
		return a.ports
	case len(b.ports) > 0 && len(a.ports) == 0:
		return b.ports
	}
	return nil
}

// Bottleneck returns the step of a path with the smallest known rate; ok is false if no step has a
// known rate.
func Bottleneck(path []Step) (Step, bool) {
	best := -1
	for i, s := range path {
		if s.BytesPerSec != nil && (best < 0 || *s.BytesPerSec < *path[best].BytesPerSec) {
			best = i
		}
	}
	if best < 0 {
		return Step{}, false
	}
	return path[best], true
}
