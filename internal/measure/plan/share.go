package plan

import (
	"fmt"
	"math"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/maxmin"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
)

// share lowers the expected rate of pairs that share links in their round to a max-min fair part.
func (p *Plan) share(links map[probe.LinkKey]*probe.Link) {
	if p.Schedule == ByLink && p.Contend == "" || p.Schedule == Serial {
		return
	}
	for _, round := range p.Rounds {
		s := newShares(p.Pairs.Pairs, round, links)
		for n, i := range round {
			if s.applyShare(n, &p.Pairs.Pairs[i]) {
				p.Shared = append(p.Shared, i)
			}
		}
	}
}

// shares are what the pairs of one round get of the links that they cross. Segment n of flow n is what the
// pair carries alone; the segments of links follow.
type shares struct {
	flows []maxmin.Flow
	links []sharedLink
}

type sharedLink struct {
	link  *probe.Link
	users int
}

func newShares(pairs []probe.Pair, round []int, links map[probe.LinkKey]*probe.Link) *shares {
	s := &shares{flows: make([]maxmin.Flow, len(round))}
	capacities := make([]float64, len(round))
	segments := map[probe.LinkKey]maxmin.Segment{}
	for n, i := range round {
		f, p := &s.flows[n], &pairs[i]
		f.Weight, f.Segments = 1, []maxmin.Segment{maxmin.Segment(n)}
		if p.Kind == probe.Memory && p.Variant == probe.VariantCopy {
			f.Weight = 0.5 // both directions count, and each link has one of them
		}
		capacities[n] = rateOr(p.Expected.BytesPerSec, math.Inf(1)) * f.Weight
		for _, c := range crossings(p, links) {
			at, ok := segments[c.key]
			if !ok {
				at = maxmin.Segment(len(capacities))
				segments[c.key] = at
				capacities = append(capacities, rateOr(c.link.Payload(), math.Inf(1)))
				s.links = append(s.links, sharedLink{link: c.link})
			}
			s.of(at).users++
			f.Segments = append(f.Segments, at)
		}
	}
	maxmin.New(capacities).Share(s.flows)
	return s
}

func rateOr(r *topo.Rate, unknown float64) float64 {
	if r == nil {
		return unknown
	}
	return float64(*r)
}

// of is the link of a segment.
func (s *shares) of(at maxmin.Segment) *sharedLink { return &s.links[int(at)-len(s.flows)] }

// applyShare sets what a pair can expect in the round; true if that is less than alone, or may be.
func (s *shares) applyShare(n int, p *probe.Pair) bool {
	f := &s.flows[n]
	rate := f.Rate / f.Weight
	if int(f.Limit) >= len(s.flows) && rate < rateOr(p.Expected.BytesPerSec, math.Inf(1))*(1-1e-6) {
		limit := s.of(f.Limit)
		rate, l := topo.Rate(math.Floor(rate+1e-3)), limit.link
		alone := "its rate alone is not known"
		if p.Expected.BytesPerSec != nil {
			alone = "alone " + p.Expected.Basis.Text(units.Rate(int64(*p.Expected.BytesPerSec), units.Gbyte))
		}
		e := probe.Expected{BytesPerSec: &rate, Basis: l.Basis, Limit: l.Key}
		if p.Expected.Basis == topo.BasisBound {
			e.Basis = e.Basis.Bounded()
		}
		e.Why = fmt.Sprintf("%s: %s, %s, shared with %s: %s; %s", l.Name, l.Basis.Text(units.Rate(int64(*l.BytesPerSec), units.Gbyte)), l.Basis,
			text.Plural(limit.users-1, "other pair"), e.Basis.Text(units.Rate(int64(rate), units.Gbyte)), alone)
		p.Expected = e
		p.Group += " shared " + units.Rate(int64(rate), units.Gbyte)
		return true
	}
	for _, at := range f.Segments[1:] {
		if l := s.of(at); l.users > 1 && l.link.BytesPerSec == nil && p.Expected.BytesPerSec != nil {
			p.Expected.Basis = p.Expected.Basis.Bounded()
			p.Expected.Why += fmt.Sprintf("; %s is shared with %s, and its rate is not known", l.link.Name, text.Plural(l.users-1, "other pair"))
			p.Group += fmt.Sprintf(" shared by %d", l.users)
			return true
		}
	}
	return false
}
