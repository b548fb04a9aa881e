package judge

import (
	"math"
	"slices"

	"github.com/topoctl/topoctl/probe"
)

// A part is cleared of a bad pair by a load that is clearly larger than the pair's: the
// lower end of the one interval above the upper end of the other, and by so much more.
// Many pairs cross one link, and the luckiest of a hundred is above its interval; so
// is the luckiest of the bad ones, which has to show more.
const (
	clearlyGood = 1.03
	clearlyBad  = 1.10
	// clearlyFaster is for latency, whose scores are far apart.
	clearlyFaster = 2.0
)

// observation is one measurement of a pair, as evidence.
type observation struct {
	result int
	round  int // of the pairs at the same time; 0 alone
	mean   float64
	lo, hi float64
	ns     float64 // how long it went on, 0 not known
	good   bool
}

// bad is a pair that needs an explanation: what it put on the links of its path.
type bad struct {
	result int
	hi     []float64 // by place in its path
}

// evidence is what links were seen to carry.
type evidence struct {
	*faultSpace
	any    []float64 // by atom: the largest load that is proven
	good   []float64 // by atom: the same of pairs that are well
	most   []float64 // by atom: the largest load seen, for people
	shared []bool    // by atom: pairs crossed it at the same time
	bad    []bad
	// roundLoads are what links carried in each round.
	roundLoads map[int]map[int]load

	clearGood, clearBad float64
}

// load is what the pairs of one round put on one link.
type load struct {
	sum, hi, mean float64 // sum: the bytes that are proven
	ns            float64
	pairs         int
}

// weigh gathers what observations prove. A pair that moved m over a path proves that each of its
// links carries m; pairs of one round prove together what they moved in the time of the
// longest of them.
func weigh(g *faultSpace, observations []observation) *evidence {
	e := &evidence{faultSpace: g, any: make([]float64, len(g.atoms)), good: make([]float64, len(g.atoms)),
		most: make([]float64, len(g.atoms)), shared: make([]bool, len(g.atoms)), roundLoads: make(map[int]map[int]load), clearGood: clearlyGood, clearBad: clearlyBad}
	rounds := make(map[int][]*observation)
	for i := range observations {
		if s := &observations[i]; s.round == 0 {
			e.count(s, nil)
		} else {
			rounds[s.round] = append(rounds[s.round], s)
		}
	}
	for n, round := range rounds {
		loads := g.loads(round)
		e.roundLoads[n] = loads
		for _, s := range round {
			e.count(s, loads)
		}
	}
	return e
}

// loads sums a round up by link.
func (g *faultSpace) loads(round []*observation) map[int]load {
	loads := make(map[int]load)
	for _, s := range round {
		for _, a := range g.paths[s.result] {
			l := loads[a]
			l.ns = max(l.ns, s.ns)
			l.pairs++
			loads[a] = l
		}
	}
	for _, s := range round {
		for _, a := range g.paths[s.result] {
			l, part := loads[a], 1.0
			if l.ns > 0 && s.ns > 0 {
				part = s.ns / l.ns
			}
			l.sum += s.lo * part
			l.mean += s.mean * part
			l.hi += s.hi
			loads[a] = l
		}
	}
	return loads
}

// count notes one observation; loads are those of its round, nil alone.
func (e *evidence) count(s *observation, loads map[int]load) {
	for _, a := range e.paths[s.result] {
		lo, mean := s.lo, s.mean
		if l, ok := loads[a]; ok && l.pairs > 1 {
			lo, mean = max(lo, l.sum), max(mean, l.mean)
			e.shared[a] = true
		}
		e.any[a] = max(e.any[a], lo)
		e.most[a] = max(e.most[a], mean)
		if s.good {
			e.good[a] = max(e.good[a], lo)
		}
	}
}

// explain adds a bad pair. round are the observations of its round, among which it is; nil alone.
func (e *evidence) explain(s *observation, loads map[int]load) {
	b := bad{result: s.result, hi: make([]float64, len(e.paths[s.result]))}
	for j, a := range e.paths[s.result] {
		b.hi[j] = s.hi
		if l, ok := loads[a]; ok {
			b.hi[j] = max(s.hi, l.hi)
		}
	}
	e.bad = append(e.bad, b)
}

// explanations are the parts that may have made a pair bad, ascending: on its path, with
// a link that was not seen to carry clearly more, and, for what is more than a direction,
// with no good pair through it that carried clearly more.
func (e *evidence) explanations(b *bad, scratch map[int]float64) []int32 {
	clear(scratch)
	path := e.paths[b.result]
	var out []int32
	for j, a := range path {
		cleared := e.clears(a, b.hi[j])
		for _, p := range e.partsOf[a] {
			hi, ok := scratch[p]
			if !ok {
				hi = math.Inf(-1)
			}
			scratch[p] = max(hi, b.hi[j])
			if !cleared {
				out = append(out, int32(p))
			}
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return slices.DeleteFunc(out, func(p int32) bool {
		part := &e.parts[p]
		return len(part.atoms) > 1 && e.goodOf(part) > scratch[int(p)]*e.clearGood
	})
}

// clears says whether an atom was seen to carry clearly more than this.
func (e *evidence) clears(atom int, hi float64) bool {
	return e.any[atom] > hi*e.clearBad || e.good[atom] > hi*e.clearGood
}

// goodOf is the largest load that a good pair proves of a part.
func (e *evidence) goodOf(p *part) float64 {
	most := 0.0
	for _, a := range p.atoms {
		most = max(most, e.good[a])
	}
	return most
}

// mostOf is the largest load that was seen on a part.
func (e *evidence) mostOf(p *part) float64 {
	most := 0.0
	for _, a := range p.atoms {
		most = max(most, e.most[a])
	}
	return most
}

// isBad says whether a result needs an explanation: it failed, or it is slow by a rate
// that is known, or it is an outlier that a retest confirmed.
func (c *trial) isBad(i int) bool {
	res := &c.r.Results[i]
	confirmed, outlier, below := false, false, false
	for _, reason := range res.Reasons {
		switch reason.Code {
		case CodeConfirmed:
			confirmed = true
		case CodeOutlier, CodeSlowAnswer:
			outlier = true
		case CodeBelowFail, CodeBelowWarn:
			below = true
		}
	}
	switch res.Verdict {
	case probe.Fail:
		return true
	case probe.Warn:
		return below && known(res.Expected.Basis) || outlier && confirmed
	}
	return false
}

// isGood says whether a result is good evidence: judged, and nothing about it is slow.
func (c *trial) isGood(i int) bool {
	res := &c.r.Results[i]
	if res.Verdict != probe.Pass && res.Verdict != probe.Warn || !c.usable(i) {
		return false
	}
	for _, reason := range res.Reasons {
		if isSlow(reason.Code) || reason.Code == CodeContended || reason.Code == CodeTooFast {
			return false
		}
	}
	return true
}

// reason finds a code among a result's reasons.
func (c *trial) reason(i int, code string) bool {
	return slices.ContainsFunc(c.r.Results[i].Reasons, func(r probe.Reason) bool { return r.Code == code })
}
