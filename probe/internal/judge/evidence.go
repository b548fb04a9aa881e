package judge

import (
	"slices"

	"github.com/topoctl/topoctl/probe"
)

// A part is cleared of a bad pair by a load that is clearly larger than the pair's: the lower end of one
// interval is above the upper end of the other by this factor. Many pairs cross one link, and the luckiest
// of a hundred lies above its interval; the luckiest of the bad ones has to show more.
const (
	clearlyGood = 1.03
	clearlyBad  = 1.10
	// clearlyFaster is for latency, whose scores are far apart.
	clearlyFaster = 2.0
)

// observation is one measurement of a pair, as evidence.
type observation struct {
	result     int
	round      int // of the pairs at the same time; 0 alone
	mean       float64
	lo, hi     float64
	durationNS float64 // 0 not known
	good       bool
}

// bad is a pair that needs an explanation.
type bad struct {
	result int
	*probe.Result
	hi          []float64 // what it put on the links of its path, by place
	explainedBy []int32   // the parts that may be it
}

// evidence is what links were seen to carry.
type evidence struct {
	*faultSpace
	seen                []seen // by atom
	bad                 []*bad
	roundLoads          map[int]map[int]load // by round: what atoms carried in it
	clearGood, clearBad float64
}

// seen is what an atom was seen to carry.
type seen struct {
	proven, provenByGood float64 // the largest load that is proven: by any pairs, by good ones
	largest              float64 // the largest load, for people
	shared               bool    // pairs crossed it at the same time
}

// load is what the pairs of one round put on one link.
type load struct {
	sum, hi, mean float64 // sum: the bytes that are proven
	durationNS    float64
	pairs         int
}

// newEvidence gathers what observations prove. A pair that moved m over a path proves that each link of
// the path carries m; pairs of one round prove together what they moved in the time of the longest of
// them.
func newEvidence(g *faultSpace, observations []observation) *evidence {
	e := &evidence{faultSpace: g, seen: make([]seen, len(g.atoms)), roundLoads: make(map[int]map[int]load), clearGood: clearlyGood, clearBad: clearlyBad}
	rounds := make(map[int][]observation)
	for _, s := range observations {
		rounds[s.round] = append(rounds[s.round], s)
	}
	delete(rounds, 0)
	for n, round := range rounds {
		e.roundLoads[n] = g.loads(round)
	}
	for i := range observations {
		s := &observations[i]
		for _, a := range e.paths[s.result] {
			lo, mean, at := s.lo, s.mean, &e.seen[a]
			if l := e.roundLoads[s.round][a]; l.pairs > 1 {
				lo, mean = max(lo, l.sum), max(mean, l.mean)
				at.shared = true
			}
			at.proven, at.largest = max(at.proven, lo), max(at.largest, mean)
			if s.good {
				at.provenByGood = max(at.provenByGood, lo)
			}
		}
	}
	return e
}

// loads adds up what the pairs of a round put on each link.
func (g *faultSpace) loads(round []observation) map[int]load {
	loads := make(map[int]load)
	for _, s := range round {
		for _, a := range g.paths[s.result] {
			l := loads[a]
			l.durationNS = max(l.durationNS, s.durationNS)
			l.pairs++
			loads[a] = l
		}
	}
	for _, s := range round {
		for _, a := range g.paths[s.result] {
			l, part := loads[a], 1.0
			if l.durationNS > 0 && s.durationNS > 0 {
				part = s.durationNS / l.durationNS
			}
			l.sum += s.lo * part
			l.mean += s.mean * part
			l.hi += s.hi
			loads[a] = l
		}
	}
	return loads
}

// addBad adds a bad pair that moved at most hi, beside the others of a round or alone (0).
func (e *evidence) addBad(result int, hi float64, round int) {
	b := &bad{result: result, Result: &e.results[result], hi: make([]float64, len(e.paths[result]))}
	for j, a := range e.paths[result] {
		b.hi[j] = max(hi, e.roundLoads[round][a].hi)
	}
	e.bad = append(e.bad, b)
}

// suspects are the parts that may have made a pair bad, ascending. They are on its path and have a link
// that was not seen to carry clearly more. Of a part that is more than one direction, no good pair carried
// clearly more either.
func (e *evidence) suspects(b *bad) []int32 {
	most := make(map[int32]float64) // by part: the largest of what its links carried
	var out []int32
	for j, a := range e.paths[b.result] {
		cleared := e.clears(a, b.hi[j])
		for _, p := range e.partsOf[a] {
			most[p] = max(most[p], b.hi[j])
			if !cleared {
				out = append(out, p)
			}
		}
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(p int32) bool {
		part := &e.parts[p]
		return len(part.atoms) > 1 && slices.ContainsFunc(part.atoms, func(a int) bool { return e.seen[a].provenByGood > most[p]*e.clearGood })
	})
}

// clears says whether an atom was seen to carry clearly more than hi.
func (e *evidence) clears(atom int, hi float64) bool {
	return e.seen[atom].proven > hi*e.clearBad || e.seen[atom].provenByGood > hi*e.clearGood
}

// largestOf is the largest load that was seen on a part.
func (e *evidence) largestOf(p *part) float64 {
	most := 0.0
	for _, a := range p.atoms {
		most = max(most, e.seen[a].largest)
	}
	return most
}

// badRate says whether the rate of a result needs an explanation: it misses a rate that was read or
// measured, or is an outlier that a retest confirmed. One that was not measured again needs one if it is so
// far below the best of its group that a known rate would have failed it.
func (c *judgement) badRate(i int) bool {
	res := &c.r.Results[i]
	below := c.hasReason(i, probe.CodeBelowFail) || c.hasReason(i, probe.CodeBelowWarn)
	switch {
	case c.hasReason(i, probe.CodeContended):
		return false
	case below && res.Expected.Basis.Sure():
		return true
	case !c.hasReason(i, probe.CodeOutlier):
		return false
	}
	if c.retestCount(i) > 0 {
		again := c.lastRetest(i)
		return again != nil && again.Confirms && again.BytesPerSec != nil
	}
	return c.farBelowBest(i)
}

// farBelowBest says whether the whole interval of a rate is below what FailUnder leaves of the best of its
// group.
func (c *judgement) farBelowBest(i int) bool {
	g := c.groups[c.r.Results[i].Group]
	return g != nil && c.figures[i].hi < c.r.Rules.FailUnder*min(g.bestLo, c.rateLimit(i))
}

// badLatency says whether the latency of a result needs an explanation: a retest confirmed it, and nothing
// is wrong with its rate.
func (c *judgement) badLatency(i int) bool {
	again := c.lastRetest(i)
	return c.hasReason(i, probe.CodeLatencyOutlier) && !c.badRate(i) && again != nil && again.Confirms && again.LatencyNS != nil
}

// isGood says whether a result is good evidence: it was measured, and its rate is not slow by anything that
// is certain.
func (c *judgement) isGood(i int) bool {
	res := &c.r.Results[i]
	if res.Verdict == probe.Fail || res.Verdict == probe.Error || !c.usable(i) {
		return false
	}
	for _, reason := range res.Reasons {
		switch reason.Code {
		case probe.CodeOutlier, probe.CodeContended, probe.CodeTooFast, probe.CodeBusy:
			return false
		case probe.CodeBelowFail, probe.CodeBelowWarn:
			if res.Expected.Basis.Sure() {
				return false
			}
		}
	}
	return true
}

// hasReason says whether a result has a reason of this code.
func (c *judgement) hasReason(i int, code string) bool {
	return slices.ContainsFunc(c.r.Results[i].Reasons, func(r probe.Reason) bool { return r.Code == code })
}
