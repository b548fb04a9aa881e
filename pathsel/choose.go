package pathsel

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/maxmin"
	"github.com/topoctl/topoctl/internal/pick"
)

// edge is a pair of ports that reach each other, as lanes are made from.
type edge struct {
	i, j      int // places in the affinities of the two hosts
	reach     *reachability
	segments  []segment
	rate      float64 // alone, bytes per second
	limit     segment // -1 where the rate is unknown
	uncertain bool    // a link of unknown rate is on its way

	foreign        bool // it ends at a port that is assigned to another process
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
	tiers       int // so far
	allocator   *maxmin.Allocator
	flows       []maxmin.Flow // of the chosen edges
	total       float64       // of the chosen lanes of known rate, bytes per second
	basis       topo.Basis    // of total
	doubtful    bool          // even the first lane may not reach the other port
	usedHere    []int         // lanes on each place of the affinities
	usedThere   []int
	picks       []pick.Lane // those of s.Lanes, for the policies
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
			if e.reach.reach == reachNo || e.rate == 0 {
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
	e := edge{i: i, j: j, reach: &p.reach[atX*len(p.there)+atY], limit: -1, foreign: b.here.Ranked[i].foreign || b.there.Ranked[j].foreign}
	if e.reach.reach == reachNo {
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
	e.uncertain = out.uncertain || in.uncertain
	e.loop, e.doubtful = e.reach.code == codeLoopback, e.reach.doubtful()
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
			edges[n].tier = b.tiers
		}
		b.tiers++
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

// roundingError is what sums of rates may differ by, as a share.
const roundingError = 1e-9

// choose takes lanes from the arranged edges as long as they add something, and
// makes the set's records: the chosen lanes, then the others, each in their order.
func (b *laneBuilder) choose(order []edge) {
	b.doubtful = len(order) > 0 && order[0].doubtful
	chosen := b.collect(order)
	chosen = b.prune(order, chosen)
	gains := b.gains(order, chosen)
	b.load(order, chosen)
	bases := basesOf(b.flows, func(n int) bool { return order[chosen[n]].uncertain }, b.p.linkOf)
	isChosen := make([]bool, len(order))
	for n, k := range chosen {
		isChosen[k] = true
		l := b.lane(&order[k], Chosen)
		l.setShare(&b.flows[n], gains[n], n == 0, bases[n])
		b.add(l, &order[k])
	}
	b.s.Chosen = len(chosen)
	b.sumUp(bases)
	for k := range order {
		if !isChosen[k] {
			l := b.lane(&order[k], Failover)
			l.Reason = b.leftOver(&order[k])
			b.add(l, &order[k])
		}
	}
}

func (b *laneBuilder) add(l Lane, e *edge) {
	b.s.Lanes = append(b.s.Lanes, l)
	b.picks = append(b.picks, pick.Lane{Tier: e.tier, Local: l.LocalIndex, Remote: l.RemoteIndex, Segments: e.segments, Rate: e.rate, UpperBound: e.uncertain})
}

// load puts the given edges into the flows and shares the capacity among them.
// It returns what those of known rate have together.
func (b *laneBuilder) load(order []edge, chosen []int) float64 {
	b.flows = b.flows[:0]
	for _, k := range chosen {
		b.flows = append(b.flows, maxmin.Flow{Segments: order[k].segments, Weight: 1})
	}
	b.allocator.Share(b.flows)
	total := 0.0
	for i := range b.flows {
		if !b.flows[i].Unlimited() {
			total += b.flows[i].Rate
		}
	}
	return total
}

// collect goes through the tiers. A lane joins when it adds to what the others
// have together; a farther tier stays only if all of it together is worth it.
func (b *laneBuilder) collect(order []edge) []int {
	var chosen []int
	total := b.load(order, nil)
	for k := 0; k < len(order); {
		before, totalBefore, factor := len(chosen), total, pick.WorthATier
		for tier := order[k].tier; k < len(order) && order[k].tier == tier; k++ {
			e := &order[k]
			if e.foreign || e.loop != order[0].loop || e.doubtful != b.doubtful || !b.mayAdd(order, chosen, e) {
				continue // no loopback, nothing doubtful beside better, nothing of others
			}
			sum := b.load(order, append(chosen, k))
			if !math.IsInf(e.rate, 1) && sum < total+max(e.rate*pick.WorthALane, 1) {
				b.load(order, chosen)
				continue
			}
			chosen, total = append(chosen, k), sum
			if e.uncertain {
				factor = pick.WorthAnUpperBound
			}
		}
		if before > 0 && (totalBefore == 0 || total < totalBefore*factor) {
			chosen, total = chosen[:before], totalBefore
			b.load(order, chosen)
		}
	}
	return chosen
}

// mayAdd says whether an edge can add anything: no link on its way is full. An
// edge of unknown rate must be of the nearest tier and have fresh ports, because
// nothing else can be said of it.
func (b *laneBuilder) mayAdd(order []edge, chosen []int, e *edge) bool {
	if !math.IsInf(e.rate, 1) {
		return b.spare(e) > e.rate*pick.WorthALane
	}
	return e.tier == 0 && !slices.ContainsFunc(chosen, func(k int) bool { return order[k].i == e.i || order[k].j == e.j })
}

// spare is what the loaded flows leave on an edge's way, at most its own rate.
func (b *laneBuilder) spare(e *edge) float64 {
	spare := e.rate
	for _, s := range e.segments {
		spare = min(spare, b.residual(s))
	}
	return spare
}

// residual is what the loaded flows leave of a segment.
func (b *laneBuilder) residual(s segment) float64 {
	return b.allocator.Left(s)
}

// prune drops lanes, the last ones first, without which the others carry more:
// fair sharing lets a long way take from two short ones.
func (b *laneBuilder) prune(order []edge, chosen []int) []int {
	total := b.load(order, chosen)
	for i := len(chosen) - 1; i >= 0; i-- {
		rest := slices.Delete(slices.Clone(chosen), i, i+1)
		if sum := b.load(order, rest); sum > total*(1+roundingError) {
			chosen, total = rest, sum
			i = len(chosen) // what was good may be in the way now
		}
	}
	return chosen
}

// gains is what each chosen edge adds to the ones before it; 0 where that is not
// known.
func (b *laneBuilder) gains(order []edge, chosen []int) []float64 {
	out := make([]float64, len(chosen))
	before := 0.0
	for n := range chosen {
		sum := b.load(order, chosen[:n+1])
		out[n], before = sum-before, sum
	}
	return out
}

// sumUp sets what the chosen lanes carry together and what that rests on.
func (b *laneBuilder) sumUp(bases []topo.Basis) {
	s := b.s
	total, known := topo.Rate(0), s.Chosen > 0
	for i := range s.Chosen {
		l := &s.Lanes[i]
		known = known && l.Share != nil
		if l.Share != nil {
			total += *l.Share
			b.total += b.flows[i].Rate
		}
	}
	b.basis = weakest(slices.DeleteFunc(bases, func(x topo.Basis) bool { return x == topo.BasisUnknown }))
	if known {
		s.BytesPerSec, s.Basis = &total, b.basis
	}
}

// lane is the record of an edge.
func (b *laneBuilder) lane(e *edge, v Verdict) Lane {
	c, d := &b.here.Ranked[e.i], &b.there.Ranked[e.j]
	x, y := b.p.here[b.p.hereAt[c.index]], b.p.there[b.p.thereAt[d.index]]
	l := Lane{Local: c.Port, Remote: d.Port, LocalName: c.Name, RemoteName: d.Name, Verdict: v, Tier: e.tier,
		LocalClass: c.Class, RemoteClass: d.Class, Reach: e.reach.reach, ReachReason: e.reach.reason(x, y), Contact: e.reach.contact(x, y),
		Basis: topo.BasisUnknown, LocalIndex: c.index, RemoteIndex: d.index}
	if e.limit >= 0 {
		rate, link := roundRate(e.rate), b.p.linkOf(e.limit)
		l.BytesPerSec, l.Basis, l.Limit, l.LimitHost = &rate, link.Basis, link.ID, b.p.sideOf(e.limit)
		if e.uncertain {
			l.Basis = l.Basis.Bounded()
		}
	}
	if note, ok := cabled(e, x, y); ok {
		l.Notes = append(l.Notes, note)
	}
	for _, n := range c.Notes {
		l.Notes = append(l.Notes, Reason{n.Code, b.p.hostName(SideLocal) + ": " + n.Text, n.Evidence})
	}
	for _, n := range d.Notes {
		l.Notes = append(l.Notes, Reason{n.Code, b.p.hostName(SideRemote) + ": " + n.Text, n.Evidence})
	}
	return l
}

// cabled says how the fabric file has both ports cabled.
func cabled(e *edge, x, y *endpoint) (Reason, bool) {
	text := ""
	switch {
	case e.rail == 0:
		text = fmt.Sprintf("both in rail %d", x.cabled.rail)
	case e.rail == 2:
		text = fmt.Sprintf("rail %d and rail %d", x.cabled.rail, y.cabled.rail)
	}
	switch {
	case e.leaf == 0 && text != "":
		text += fmt.Sprintf(", on %s", x.cabled.leaf)
	case e.leaf == 0:
		text = fmt.Sprintf("both on %s", x.cabled.leaf)
	}
	return Reason{codeRail, text, x.cabled.evidence}, text != ""
}

// setShare notes the part of the joint capacity that a chosen lane has.
func (l *Lane) setShare(f *maxmin.Flow, gain float64, first bool, basis topo.Basis) {
	if f.Unlimited() {
		l.Reason = Reason{codeRateGap, "no link on its way has a known rate: measure it", ""}
		return
	}
	share := roundRate(f.Rate)
	l.Share = &share
	text := rateText(roundRate(gain), basis)
	if first {
		which := "nearest"
		if !l.LocalClass.Known() || !l.RemoteClass.Known() {
			which = "first"
		}
		l.Reason = Reason{CodeBest, fmt.Sprintf("%s lane (%s to %s): %s", which, classText(l.LocalClass), classText(l.RemoteClass), text), ""}
		return
	}
	l.Reason = Reason{codeAdds, fmt.Sprintf("adds %s to the lanes before it", text), ""}
}

// leftOver says why a lane is not chosen.
func (b *laneBuilder) leftOver(e *edge) Reason {
	spare := b.spare(e)
	switch {
	case e.foreign:
		return b.notAssigned(e)
	case e.loop:
		return Reason{codeLoopback, "a port to itself: only for when no other pair works", ""}
	case e.doubtful && !b.doubtful:
		return Reason{codeDoubtful, "it may not reach the other port, and the chosen lanes do", ""}
	case math.IsInf(e.rate, 1):
		return Reason{codeRateGap, "no link on its way has a known rate, and nearer or unused ports are chosen", ""}
	}
	full := e.segments[0]
	for _, s := range e.segments {
		if b.residual(s) < b.residual(full) {
			full = s
		}
	}
	if spare <= e.rate*pick.WorthALane {
		return Reason{codeSaturated, fmt.Sprintf("%s is full with the chosen lanes", b.p.where(full)), ""}
	}
	basis := b.p.linkOf(full).Basis
	if e.uncertain {
		basis = basis.Bounded()
	}
	text := fmt.Sprintf("would add %s on top of %s", rateText(roundRate(spare), basis), rateText(roundRate(b.total), b.basis))
	if e.uncertain {
		return Reason{codeUpperBound, "farther, and " + text + ": measure it before it is relied on", ""}
	}
	return Reason{codeAddsLittle, text + ": not worth the longer path", ""}
}

// notAssigned says whose the ports of a lane are not.
func (b *laneBuilder) notAssigned(e *edge) Reason {
	c, d := &b.here.Ranked[e.i], &b.there.Ranked[e.j]
	text := ""
	switch {
	case c.foreign && d.foreign:
		text = fmt.Sprintf("neither %s of %s nor %s of %s is assigned", c.Name, b.p.hostName(SideLocal), d.Name, b.p.hostName(SideRemote))
	case c.foreign:
		text = fmt.Sprintf("%s of %s is not assigned", c.Name, b.p.hostName(SideLocal))
	default:
		text = fmt.Sprintf("%s of %s is not assigned", d.Name, b.p.hostName(SideRemote))
	}
	return Reason{codeNotAssigned, text + ": only for when assigned ports fail", ""}
}

// rejections lists what is no lane: each port that cannot be used, and the
// pairs, local ports that miss the same remote ports for the same reason
// together.
func (b *laneBuilder) rejections(refused []edge) []Rejection {
	out := []Rejection{}
	for _, c := range b.here.Rejected {
		out = append(out, Rejection{Local: []topo.ID{c.Port}, Reason: c.Reason})
	}
	for _, c := range b.there.Rejected {
		if b.p.local != b.p.remote { // else they are listed already
			out = append(out, Rejection{Remote: []topo.ID{c.Port}, Reason: c.Reason})
		}
	}
	type ofPort struct {
		local int
		code  Code
	}
	var rows []Rejection // one for each local port and reason
	for _, alike := range group.By(refused, func(e edge) ofPort { return ofPort{e.i, e.refusal()} }) {
		r := Rejection{Local: []topo.ID{b.here.Ranked[alike[0].i].Port}, Pairs: len(alike), Reason: b.refusal(&alike[0])}
		for _, e := range alike {
			r.Remote = append(r.Remote, b.there.Ranked[e.j].Port)
		}
		rows = append(rows, r)
	}
	for _, alike := range group.By(rows, func(r Rejection) string { return fmt.Sprint(r.Reason.Code, r.Remote) }) {
		row := alike[0]
		for _, r := range alike[1:] {
			row.Local, row.Pairs = append(row.Local, r.Local...), row.Pairs+r.Pairs
		}
		out = append(out, row)
	}
	return out
}

// refusal is the code of why an edge is no lane.
func (e *edge) refusal() Code {
	if e.reach.reach != reachNo {
		return codeNoRate
	}
	return e.reach.code
}

// refusal is why an edge is no lane.
func (b *laneBuilder) refusal(e *edge) Reason {
	if e.reach.reach != reachNo {
		return Reason{codeNoRate, fmt.Sprintf("%s carries nothing", b.p.where(e.limit)), ""}
	}
	x, y := b.p.here[b.p.hereAt[b.here.Ranked[e.i].index]], b.p.there[b.p.thereAt[b.there.Ranked[e.j].index]]
	return e.reach.reason(x, y)
}
