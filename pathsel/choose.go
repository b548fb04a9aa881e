package pathsel

import (
	"cmp"
	"math"
	"slices"

	"github.com/topoctl/topoctl/internal/base/maxmin"
)

// What a lane must add to be chosen; the figures are ours. One that brings less
// than a tenth of what it carries alone only shares a full link. A farther tier
// takes ways through the host from other traffic, so it must end transfers a
// tenth earlier. Where its rate is no more than an upper bound (GPU memory across
// a root complex, of which no vendor publishes a rate) it must promise to double
// what the nearer lanes carry.
const (
	worthALane        = 0.1
	worthATier        = 1.1
	worthAnUpperBound = 2
)

// edge is a pair of ports that reach each other, as lanes are made from.
type edge struct {
	i, j       int // places in the affinities of the two hosts
	cell       *cell
	segments   []segment
	rate       float64 // alone, bytes per second
	limit      segment // -1 where the rate is unknown
	upperBound bool

	foreign        bool // it ends at a port that is assigned to somebody else
	loop, doubtful bool
	far, sum       int // how far the farther side is, and both together
	rail, leaf     int // likeness
	tier           int
}

// compareTiers orders edges by what makes one tier: those of others last,
// loopback behind, doubtful ones behind, then how far the farther side is, then both sides together.
func compareTiers(x, y *edge) int {
	return cmp.Or(compareBools(x.foreign, y.foreign), compareBools(x.loop, y.loop), compareBools(x.doubtful, y.doubtful), cmp.Compare(x.far, y.far), cmp.Compare(x.sum, y.sum))
}

// compareEdges orders edges within their tier too: same rail, same leaf, rate,
// and the order of the affinities.
func compareEdges(x, y *edge) int {
	return cmp.Or(compareTiers(x, y), cmp.Compare(x.rail, y.rail), cmp.Compare(x.leaf, y.leaf),
		compareAlone(x.rate, y.rate), cmp.Compare(x.i, y.i), cmp.Compare(x.j, y.j))
}

func compareBools(x, y bool) int {
	switch {
	case x == y:
		return 0
	case y:
		return -1
	}
	return 1
}

// compareAlone puts the higher rate first and an unknown one, which is
// infinite, last.
func compareAlone(x, y float64) int {
	if math.IsInf(x, 1) != math.IsInf(y, 1) {
		return compareBools(math.IsInf(x, 1), math.IsInf(y, 1))
	}
	return cmp.Compare(y, x)
}

// likeness compares what the fabric file says of both ends: 0 the same, 1 unknown,
// 2 different.
func likeness(known, equal bool) int {
	switch {
	case !known:
		return 1
	case equal:
		return 0
	}
	return 2
}

// laneBuilder makes one set of lanes.
type laneBuilder struct {
	p           *Pair
	s           *LaneSet
	here, there *Affinity
	src, dst    int // places of the locations
	tierHere    []int
	tierThere   []int
	allocator   *maxmin.Allocator
	flows       []maxmin.Flow // of the chosen edges
	total       float64       // of the chosen lanes of known rate, bytes per second
	doubtful    bool          // even the first lane may not reach the other port
	usedHere    []int         // lanes on each place of the affinities
	usedThere   []int
}

func newLaneBuilder(p *Pair, s *LaneSet, here, there *Affinity) *laneBuilder {
	return &laneBuilder{p: p, s: s, here: here, there: there, src: p.local.locIndex[s.Source], dst: p.remote.locIndex[s.Destination],
		tierHere: tiersOf(here), tierThere: tiersOf(there), allocator: maxmin.New(p.caps),
		usedHere: make([]int, len(here.Ranked)), usedThere: make([]int, len(there.Ranked))}
}

// tiersOf numbers the ranked ports of an affinity by nearness: how certainly
// usable, role and class. Rates do not count: a slow port that is near is near.
func tiersOf(a *Affinity) []int {
	out := make([]int, len(a.Ranked))
	for i := 1; i < len(out); i++ {
		x, y := &a.Ranked[i-1], &a.Ranked[i]
		out[i] = out[i-1]
		if x.doubt != y.doubt || x.Role != y.Role || x.Class != y.Class {
			out[i]++
		}
	}
	return out
}

// edges lists the pairs that are lanes and those that are not.
func (b *laneBuilder) edges() (edges, refused []edge) {
	for i := range b.here.Ranked {
		for j := range b.there.Ranked {
			e := b.edge(i, j)
			if e.cell.reach == ReachNo || e.rate == 0 {
				refused = append(refused, e)
			} else {
				edges = append(edges, e)
			}
		}
	}
	return edges, refused
}

// edge joins the way from the source's memory to the local port with the way
// from the remote port to the destination's, which is the remote host's route
// from there walked backwards.
func (b *laneBuilder) edge(i, j int) edge {
	p := b.p
	x, y := b.here.Ranked[i].index, b.there.Ranked[j].index
	atX, atY := p.hereAt[x], p.thereAt[y]
	e := edge{i: i, j: j, cell: &p.cells[atX*len(p.there)+atY], limit: -1, foreign: b.here.Ranked[i].foreign || b.there.Ranked[j].foreign}
	if e.cell.reach == ReachNo {
		e.rate = math.Inf(1)
		return e
	}
	out, in := &p.local.routes[b.src][x], &p.remote.routes[b.dst][y]
	e.segments = make([]segment, 0, len(out.segments)+len(in.segments))
	e.segments = append(e.segments, out.segments...)
	for _, s := range in.segments {
		e.segments = append(e.segments, p.offset+s^1)
	}
	alone := [1]maxmin.Flow{{Segments: e.segments, Weight: 1}}
	b.allocator.Share(alone[:])
	e.rate, e.limit = alone[0].Rate, alone[0].Limit
	e.upperBound = out.uncertain || in.uncertain
	e.loop, e.doubtful = e.cell.code == codeLoopback, e.cell.doubtful()
	e.far, e.sum = max(b.tierHere[i], b.tierThere[j]), b.tierHere[i]+b.tierThere[j]
	c, d := &p.here[atX].cabled, &p.there[atY].cabled
	e.rail = likeness(c.rail >= 0 && d.rail >= 0, c.rail == d.rail)
	e.leaf = likeness(c.leaf != "" && d.leaf != "", c.leaf == d.leaf)
	return e
}

// arrange orders edges: tier by tier, within a tier those first whose ports
// carry the fewest lanes yet, so that lanes use fresh ports as long as there are
// any.
func (b *laneBuilder) arrange(edges []edge) []edge {
	slices.SortFunc(edges, func(x, y edge) int { return compareEdges(&x, &y) })
	out := make([]edge, 0, len(edges))
	for n := 0; len(edges) > 0; edges = edges[n:] {
		for n = 0; n < len(edges) && compareTiers(&edges[0], &edges[n]) == 0; n++ {
			edges[n].tier = b.s.tiers
		}
		b.s.tiers++
		out = b.spread(out, edges[:n])
	}
	return out
}

// spread appends the edges of one tier: first the largest set that uses each
// fresh port once, then by how much their ports are used already.
func (b *laneBuilder) spread(out, group []edge) []edge {
	taken := make([]bool, len(group))
	left := len(group)
	take := func(k int) {
		taken[k] = true
		left--
		b.usedHere[group[k].i]++
		b.usedThere[group[k].j]++
		out = append(out, group[k])
	}
	for _, k := range b.match(group) {
		take(k)
	}
	for level := 1; left > 0; level++ {
		for k := range group {
			if e := &group[k]; !taken[k] && b.usedHere[e.i]+b.usedThere[e.j] == level {
				take(k)
			}
		}
	}
	return out
}

// match finds a largest set of edges without a common port, among ports that
// carry no lane yet: greedily by order, then by augmenting paths, which give a
// port that was left out a partner whose own partner has another choice.
func (b *laneBuilder) match(group []edge) []int {
	m := matching{group: group, edges: make([][]int, len(b.usedHere)), here: filled(len(b.usedHere)), there: filled(len(b.usedThere))}
	for k := range group {
		e := &group[k]
		if b.usedHere[e.i] > 0 || b.usedThere[e.j] > 0 {
			continue
		}
		m.edges[e.i] = append(m.edges[e.i], k)
		if m.here[e.i] < 0 && m.there[e.j] < 0 {
			m.here[e.i], m.there[e.j] = k, k
		}
	}
	for i := range m.edges {
		if m.here[i] < 0 && len(m.edges[i]) > 0 {
			m.augment(i, make([]bool, len(m.there)))
		}
	}
	var out []int
	for _, k := range m.here {
		if k >= 0 {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// matching is a set of edges without a common port: the edge of each local and
// each remote place, -1 for none.
type matching struct {
	group       []edge
	edges       [][]int // of each local place
	here, there []int
}

func (m *matching) augment(i int, seen []bool) bool {
	for _, k := range m.edges[i] {
		j := m.group[k].j
		if seen[j] {
			continue
		}
		seen[j] = true
		if m.there[j] < 0 || m.augment(m.group[m.there[j]].i, seen) {
			m.here[i], m.there[j] = k, k
			return true
		}
	}
	return false
}

func filled(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = -1
	}
	return out
}
