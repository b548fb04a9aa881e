package pathsel

import (
	"fmt"
	"math"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/maxmin"
	"github.com/topoctl/topoctl/internal/base/units"
)

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
	isChosen := make([]bool, len(order))
	for n, k := range chosen {
		isChosen[k] = true
		l := b.lane(&order[k], Chosen)
		l.setShare(b, &b.flows[n], gains[n])
		b.s.Lanes = append(b.s.Lanes, l)
	}
	b.s.Chosen = len(chosen)
	b.sumUp()
	users := b.users()
	for k := range order {
		if !isChosen[k] {
			l := b.lane(&order[k], Failover)
			l.Reason, l.bounds = b.leftOver(&order[k]), b.bounds(&order[k], users)
			b.s.Lanes = append(b.s.Lanes, l)
		}
	}
}

// users are the chosen lanes that cross each segment.
func (b *laneBuilder) users() map[segment][]int32 {
	users := map[segment][]int32{}
	for n := range b.flows {
		for _, s := range b.flows[n].Segments {
			users[s] = append(users[s], int32(n))
		}
	}
	return users
}

// bounds are the links that an edge shares with chosen lanes and that they do
// not leave it whole, those with the same users once.
func (b *laneBuilder) bounds(e *edge, users map[segment][]int32) []bound {
	var out []bound
	for _, s := range e.segments {
		spare := b.residual(s)
		if len(users[s]) == 0 || spare >= e.rate {
			continue
		}
		same := slices.IndexFunc(out, func(o bound) bool { return slices.Equal(o.chosen, users[s]) })
		if same < 0 {
			out = append(out, bound{spare, users[s]})
			continue
		}
		out[same].spare = min(out[same].spare, spare)
	}
	return out
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
		before, totalBefore, factor := len(chosen), total, worthATier
		for tier := order[k].tier; k < len(order) && order[k].tier == tier; k++ {
			e := &order[k]
			if e.foreign || e.loop != order[0].loop || e.doubtful != b.doubtful || !b.mayAdd(order, chosen, e) {
				continue // no loopback, nothing doubtful beside better, nothing of others
			}
			sum := b.load(order, append(chosen, k))
			if !math.IsInf(e.rate, 1) && sum < total+max(e.rate*worthALane, 1) {
				b.load(order, chosen)
				continue
			}
			chosen, total = append(chosen, k), sum
			if e.upperBound {
				factor = worthAnUpperBound
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
		return b.spare(e) > e.rate*worthALane
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
func (b *laneBuilder) sumUp() {
	s := b.s
	total, bases := topo.Rate(0), make([]topo.Basis, 0, s.Chosen)
	known := s.Chosen > 0
	for i := range s.Chosen {
		l := &s.Lanes[i]
		known = known && l.Share != nil
		if l.Share == nil {
			continue
		}
		total += *l.Share
		b.total += l.share
		basis := b.p.linkOf(b.flows[i].Limit).Basis
		if l.upperBound && *l.Share > 0 {
			basis = topo.BasisAssumed
		}
		bases = append(bases, basis)
	}
	if known {
		s.BytesPerSec, s.Basis = &total, weakest(bases)
	}
}

// linkOf is the link of a segment of either host.
func (p *Pair) linkOf(s segment) *topo.Link {
	if p.local != p.remote && s >= p.offset {
		return &p.remote.segLinks[(s-p.offset)/2]
	}
	return &p.local.segLinks[s/2]
}

func (b *laneBuilder) sideOf(s segment) Side {
	if b.p.local != b.p.remote && s >= b.p.offset {
		return SideRemote
	}
	return SideLocal
}

// where names a segment's link and its host.
func (b *laneBuilder) where(s segment) string {
	return fmt.Sprintf("%s of %s", b.p.linkOf(s).ID, b.hostName(b.sideOf(s)))
}

func (b *laneBuilder) hostName(side Side) string {
	name := b.p.localName
	if side == SideRemote {
		name = b.p.remoteName
	}
	if name == "" {
		return "the " + string(side) + " host"
	}
	return name
}

// lane is the record of an edge.
func (b *laneBuilder) lane(e *edge, v Verdict) Lane {
	c, d := &b.here.Ranked[e.i], &b.there.Ranked[e.j]
	x, y := b.p.here[b.p.hereAt[c.index]], b.p.there[b.p.thereAt[d.index]]
	l := Lane{Local: c.Port, Remote: d.Port, LocalName: c.Name, RemoteName: d.Name, Verdict: v, Tier: e.tier,
		LocalClass: c.Class, RemoteClass: d.Class, Reach: e.cell.reach, ReachReason: e.cell.reason(x, y), Contact: e.cell.contact(x, y),
		Basis: topo.BasisUnknown, LocalIndex: c.index, RemoteIndex: d.index, segments: e.segments, rate: e.rate, upperBound: e.upperBound}
	if e.limit >= 0 {
		rate, link := roundRate(e.rate), b.p.linkOf(e.limit)
		l.BytesPerSec, l.Basis, l.Limit, l.LimitHost = &rate, link.Basis, link.ID, b.sideOf(e.limit)
		if e.upperBound {
			l.Basis = topo.BasisAssumed
		}
	}
	if note, ok := cabled(e, x, y); ok {
		l.Notes = append(l.Notes, note)
	}
	for _, n := range c.Notes {
		l.Notes = append(l.Notes, Reason{n.Code, b.hostName(SideLocal) + ": " + n.Text, n.Evidence})
	}
	for _, n := range d.Notes {
		l.Notes = append(l.Notes, Reason{n.Code, b.hostName(SideRemote) + ": " + n.Text, n.Evidence})
	}
	return l
}

// cabled says what the fabric file has of both ports.
func cabled(e *edge, x, y *end) (Reason, bool) {
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

// setShare notes what a chosen lane has of the joint capacity.
func (l *Lane) setShare(b *laneBuilder, f *maxmin.Flow, gain float64) {
	first := len(b.s.Lanes) == 0
	if f.Unlimited() {
		l.share = f.Rate
		l.Reason = Reason{codeRateGap, "nothing on its way has a known rate: measure it", ""}
		return
	}
	share := roundRate(f.Rate)
	l.Share, l.share = &share, f.Rate
	atMost := ""
	if l.upperBound {
		atMost = "at most "
	}
	text := atMost + units.Rate(int64(roundRate(gain)), units.Gbyte)
	if first {
		l.Reason = Reason{CodeBest, fmt.Sprintf("nearest lane (%s to %s): %s", classText(l.LocalClass), classText(l.RemoteClass), text), ""}
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
		return Reason{codeLoopback, "a port to itself, for when no other pair works", ""}
	case e.doubtful && !b.doubtful:
		return Reason{codeDoubtful, "it may not reach the other port, and chosen lanes do", ""}
	case math.IsInf(e.rate, 1):
		return Reason{codeRateGap, "nothing on its way has a known rate, and nearer or fresh ports are chosen", ""}
	}
	if spare <= e.rate*worthALane {
		full := e.segments[0]
		for _, s := range e.segments {
			if b.residual(s) < b.residual(full) {
				full = s
			}
		}
		return Reason{codeSaturated, fmt.Sprintf("%s is full with the chosen lanes", b.where(full)), ""}
	}
	text := fmt.Sprintf("%s on top of %s", units.Rate(int64(roundRate(spare)), units.Gbyte), units.Rate(int64(roundRate(b.total)), units.Gbyte))
	if e.upperBound {
		return Reason{codeUpperBound, "farther, and would add at most " + text + ": measure it before it is relied on", ""}
	}
	return Reason{codeAddsLittle, "would add " + text + ": not worth the longer way", ""}
}
