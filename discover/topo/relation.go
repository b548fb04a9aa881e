package topo

import (
	"cmp"
	"slices"
	"strings"
)

// Relation is what holds between two devices of one host.
type Relation struct {
	Class Class     `json:"class"`
	NCCL  NCCLClass `json:"nccl"`
	// Hops counts the links on the path; nil where no path is known.
	Hops *int `json:"hops"`
	// BytesPerSec is the smallest rate on the path, in one direction; nil
	// where no link on it has a known rate.
	BytesPerSec *Rate `json:"expected_bytes_per_sec"`
	// Basis says how the rate is known: that of the limiting link, or "bound" where
	// that is sure and another link on the path has no known rate.
	Basis Basis `json:"basis"`
	// SamePackage is set for SYS pairs whose NUMA nodes share a socket
	// (NPS4, sub-NUMA clustering): cheaper than SYS sounds.
	SamePackage bool `json:"same_package,omitempty"`
	// Limit is the link with that rate, "" if there is no such link.
	Limit LinkID `json:"-"`
}

// Asserted are classes that an origin states for pairs of nodes: a square
// matrix over Axis. Unknown cells assert nothing.
type Asserted struct {
	Source Source    `json:"source"`
	Axis   []ID      `json:"axis"`
	Class  [][]Class `json:"class"`
}

// Derived is what Derive computed: the relation of every pair of GPU, NIC and
// NUMA node. It can be computed again from the nodes and links by Rules.
//
// Pairs are alike: a host has a few dozen different relations among thousands
// of pairs. So each is kept once, in Relations, and Cells is the square matrix
// over Axis of indices into it. What differs from pair to pair, the limiting
// link, is a matrix of its own: indices into the topology's Links. Index.Relation
// puts both together.
type Derived struct {
	Rules     string     `json:"rules"`
	Axis      []ID       `json:"axis"`
	Relations []Relation `json:"relations"`
	Cells     [][]int    `json:"cells"`
	Limit     [][]*int   `json:"limit_link"`
}

// At is the relation of the pair at two places of the axis, without its Limit.
func (d *Derived) At(i, j int) Relation { return d.Relations[d.Cells[i][j]] }

// Relate says how two nodes of a derived topology relate.
func (t *Topology) Relate(a, b ID) Relation {
	return NewGraph(t, nil).Relate(a, b)
}

// Relate says how two nodes relate; everything is unknown for a node that the topology does not have.
func (g *Graph) Relate(a, b ID) Relation {
	x, ok1 := g.endpoint(a)
	y, ok2 := g.endpoint(b)
	if !ok1 || !ok2 {
		return Relation{Basis: BasisUnknown}
	}
	return g.relate(x, y, newNCCLTree(g), g.assertedClass(a, b))
}

// relate is Relate for resolved endpoints.
func (g *Graph) relate(a, b endpoint, nccl *ncclTree, asserted Class) Relation {
	r := g.route(a, b)
	rel := Relation{Basis: BasisUnknown, Class: g.class(a, b, r)}
	rel.NCCL = nccl.class(a, b, r, rel.Class)
	rel.SamePackage = rel.Class.Kind == ClassSYS && g.samePackage(a.numa, b.numa)
	if r.known {
		rel.Hops = new(len(r.links))
		g.limit(&rel, a, b, r)
	}
	if asserted.Known() {
		rel.Class = asserted
		rel.NCCL = ncclOf(asserted)
	}
	return rel
}

// class applies rule R1: switches crossed below a common host bridge, then
// host bridges, then NUMA nodes.
func (g *Graph) class(a, b endpoint, r route) Class {
	switch {
	case a.id == b.id:
		return Class{Kind: ClassSelf}
	case r.direct:
		return g.directClass(r)
	case a.cpu || b.cpu:
		return g.cpuClass(a, b)
	case a.v < 0 || b.v < 0:
		return Class{}
	case r.met && r.switches <= 1:
		return Class{Kind: ClassPIX}
	case r.met:
		return Class{Kind: ClassPXB}
	case g.hostBridge(a.v) >= 0 && g.hostBridge(a.v) == g.hostBridge(b.v):
		return Class{Kind: ClassPHB}
	case a.numa != nil && b.numa != nil && *a.numa == *b.numa:
		return Class{Kind: ClassNODE}
	case a.numa != nil && b.numa != nil:
		return Class{Kind: ClassSYS}
	case g.cpuNodes == 1:
		return Class{Kind: ClassNODE}
	}
	return Class{}
}

func (g *Graph) directClass(r route) Class {
	first := g.links[r.links[0]]
	switch first.Kind {
	case LinkXGMI:
		return Class{Kind: ClassXGMI}
	case LinkC2C:
		return Class{Kind: ClassC2C}
	}
	count := first.Count
	if len(r.links) == 2 {
		count = min(count, g.links[r.links[1]].Count)
	}
	return NV(max(count, 1))
}

// cpuClass is the class of a NUMA node and something else: its own devices are
// behind its host bridge.
func (g *Graph) cpuClass(a, b endpoint) Class {
	switch {
	case a.numa == nil || b.numa == nil:
		return Class{}
	case *a.numa == *b.numa:
		return Class{Kind: ClassPHB}
	}
	return Class{Kind: ClassSYS}
}

func (g *Graph) samePackage(a, b *int) bool {
	if a == nil || b == nil {
		return false
	}
	x, y := g.index.NUMANodeAt(*a), g.index.NUMANodeAt(*b)
	return x != nil && y != nil && x.Package != nil && y.Package != nil && *x.Package == *y.Package
}

// limit finds the smallest rate on the route. A link without known rate makes
// what is sure a bound, except a root complex on the way to memory of the CPU's: that
// is what it is built for.
func (g *Graph) limit(rel *Relation, a, b endpoint, r route) {
	uncertain := false
	consider := func(i int) {
		l := &g.links[i]
		switch {
		case l.BytesPerSec == nil:
			uncertain = uncertain || l.Kind != LinkRootComplex || !a.cpu && !b.cpu && !r.coherent
		case rel.BytesPerSec == nil || *l.BytesPerSec < *rel.BytesPerSec:
			rel.BytesPerSec, rel.Limit, rel.Basis = l.BytesPerSec, l.ID, l.Basis
		}
	}
	for _, i := range r.links {
		consider(i)
	}
	if ports := wireOf(a, b); len(ports) > 0 && !g.wireLimit(rel, ports) {
		uncertain = true
	}
	if uncertain && rel.BytesPerSec != nil && *rel.BytesPerSec > 0 {
		rel.Basis = rel.Basis.Bounded()
	}
}

// wireLimit lowers the rate to that of the NIC's ports together. It is false
// when the rate of a port is not known.
func (g *Graph) wireLimit(rel *Relation, ports []int) bool {
	sum, basis := Rate(0), BasisMeasured
	for _, i := range ports {
		l := &g.links[i]
		if l.BytesPerSec == nil {
			return false
		}
		sum += *l.BytesPerSec
		if l.Basis.Compare(basis) > 0 {
			basis = l.Basis
		}
	}
	if rel.BytesPerSec == nil || sum < *rel.BytesPerSec {
		rel.BytesPerSec, rel.Limit, rel.Basis = &sum, g.links[ports[0]].ID, basis
	}
	return true
}

// assertedClass is what the origin states for a pair, in either direction;
// unknown if nothing.
func (g *Graph) assertedClass(a, b ID) Class {
	i, okI := g.asserted[a]
	j, okJ := g.asserted[b]
	if !okI || !okJ {
		return Class{}
	}
	if c := g.t.Asserted.Class[i][j]; c.Known() {
		return c
	}
	return g.t.Asserted.Class[j][i]
}

// MatrixAxis lists the nodes of a kind that a matrix shows: every GPU; every
// NIC (KindNIC): each RDMA device, and each physical netdev that no RDMA device
// stands for; every NUMA node with CPUs.
func (t *Topology) MatrixAxis(kind Kind) []ID {
	out := []ID{}
	switch kind {
	case KindGPU:
		for i := range t.GPUs {
			out = append(out, t.GPUs[i].ID)
		}
	case KindNUMA:
		for _, n := range t.cpuNodes() {
			out = append(out, n.ID)
		}
	case KindNIC:
		out = append(out, t.nics()...)
	}
	return out
}

// nics lists the matrix NICs. A leg of a bond that an RDMA device speaks for
// is part of that device. Where the origin is a matrix, they are in its order, so
// that NIC0 stays NIC0.
func (t *Topology) nics() []ID {
	out := []ID{}
	carries, speaksFor := map[ID]bool{}, map[string]bool{}
	for i := range t.RDMADevices {
		r := &t.RDMADevices[i]
		out = append(out, r.ID)
		carries[r.PCI] = true
		for _, name := range r.Netdevs {
			speaksFor[name] = true
		}
	}
	for i := range t.Netdevs {
		n := &t.Netdevs[i]
		leg := n.Master != "" && speaksFor[n.Master]
		if n.PCI != "" && !n.Virtual && n.PhysPortIsOwn() && !carries[n.PCI] && !leg {
			out = append(out, n.ID)
		}
	}
	if a := t.Asserted; a != nil {
		place := make(map[ID]int, len(a.Axis))
		for i, id := range a.Axis {
			place[id] = i - len(a.Axis) // before those that it does not have
		}
		slices.SortStableFunc(out, func(x, y ID) int { return cmp.Compare(place[x], place[y]) })
	}
	return out
}

// PhysPortIsOwn is false for representors ("pf0vf3", "pf0sf1", on another controller "c1pf0vf3"),
// which stand for another function's port and carry no traffic of this host's memory.
func (n *Netdev) PhysPortIsOwn() bool {
	port := n.PhysPort
	if rest, ok := strings.CutPrefix(port, "c"); ok {
		port = strings.TrimLeft(rest, "0123456789")
	}
	return !strings.HasPrefix(port, "pf")
}

// deriveRelations fills Derived for every pair of GPU, NIC and NUMA node.
func (t *Topology) deriveRelations() {
	g := NewGraph(t, nil)
	nccl := newNCCLTree(g)
	d := derivation{Derived: &Derived{Rules: Rules, Axis: []ID{}, Relations: []Relation{}}, seen: map[relationKey]int{}}
	for _, kind := range []Kind{KindGPU, KindNIC, KindNUMA} {
		d.Axis = append(d.Axis, t.MatrixAxis(kind)...)
	}
	ends := make([]endpoint, len(d.Axis))
	for i, id := range d.Axis {
		ends[i], _ = g.endpoint(id)
	}
	n := len(d.Axis)
	d.Cells, d.Limit = grid[int](n, n), grid[*int](n, n)
	for i := range n {
		for j := i; j < n; j++ {
			r := g.relate(ends[i], ends[j], nccl, g.assertedClass(d.Axis[i], d.Axis[j]))
			cell := d.kind(r)
			d.Cells[i][j], d.Cells[j][i] = cell, cell // rates hold in each direction
			if k, ok := g.byID[r.Limit]; ok && r.Limit != "" {
				d.Limit[i][j], d.Limit[j][i] = &k, &k
			}
		}
	}
	t.Derived = d.Derived
}

// derivation collects the different relations.
type derivation struct {
	*Derived
	seen map[relationKey]int
}

// relationKey is a Relation without its Limit that can be compared; -1 is unknown.
type relationKey struct {
	class       Class
	nccl        NCCLClass
	hops        int
	rate        Rate
	basis       Basis
	samePackage bool
}

// kind gives the index of a relation, which is new or known already.
func (d *derivation) kind(r Relation) int {
	key := relationKey{r.Class, r.NCCL, -1, -1, r.Basis, r.SamePackage}
	if r.Hops != nil {
		key.hops = *r.Hops
	}
	if r.BytesPerSec != nil {
		key.rate = *r.BytesPerSec
	}
	i, ok := d.seen[key]
	if !ok {
		i = len(d.Relations)
		d.seen[key] = i
		r.Limit = ""
		d.Relations = append(d.Relations, r)
	}
	return i
}
