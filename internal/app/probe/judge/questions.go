package judge

import (
	"math"
	"slices"

	"github.com/topoctl/topoctl/probe"
)

// bandwidthSlow says whether a rate is what is wrong with a result.
func (c *trial) bandwidthSlow(i int) bool {
	return c.reason(i, CodeBelowFail) || c.reason(i, CodeBelowWarn) || c.reason(i, CodeOutlier)
}

// askRates asks what makes pairs slow. Its evidence is every measurement that can be
// believed, in rounds and alone.
func (c *trial) askRates(isBad func(i int) bool) *question {
	var bad []int
	doubtful := c.doubts()
	for i := range c.r.Results {
		if isBad(i) && c.bandwidthSlow(i) && !doubtful(i) || c.broken(i) {
			bad = append(bad, i)
		}
	}
	if len(bad) == 0 {
		return nil
	}
	g := newFaultSpace(c, c.tookPart, false)
	observations := c.inRounds()
	for i := range c.r.Results {
		for j := range c.r.Results[i].Retests {
			if s, ok := c.observationAgain(&c.r.Results[i].Retests[j]); ok {
				observations = append(observations, s)
			}
		}
	}
	e := weigh(g, observations)
	for _, i := range bad {
		switch again := c.again(i); {
		case c.broken(i):
			e.explain(&observation{result: i}, nil)
		case again != nil && again.BytesPerSec != nil && again.Confirms:
			f := figureAgain(again, &c.r.Spec)
			e.explain(&observation{result: i, hi: f.hi * c.part(i)}, nil)
		default:
			e.explain(&observation{result: i, hi: c.figures[i].hi * c.part(i)}, e.roundLoads[c.rounds[i]])
		}
	}
	return &question{trial: c, evidence: e, about: aboutRate}
}

// tookPart says whether a pair was measured, or tried.
func (c *trial) tookPart(i int) bool {
	return c.usable(i) || c.r.Results[i].Round > 0 && c.r.Results[i].Pair.Waived == ""
}

// broken says whether nothing came over a pair of ports, for a reason that may lie on its way
// and that no host gave: then something there may be dead. In a run that was broken off
// errors say nothing.
func (c *trial) broken(i int) bool {
	res := &c.r.Results[i]
	return c.r.Complete && res.Kind == probe.Port && res.Verdict == probe.Error && res.ErrorCause.OnTheWay() && len(res.Bandwidth) == 0 &&
		!slices.ContainsFunc(c.r.Hosts, func(h probe.Host) bool {
			return h.Error != "" && (h.Name == res.From.Host || h.Name == res.To.Host)
		})
}

// doubts finds the pairs that nobody is blamed for: where so many turned out to be fine alone
// that the rest was not measured again, those that have a link in common with one of them.
func (c *trial) doubts() func(i int) bool {
	if c.retested() < mostRetests {
		return func(int) bool { return false }
	}
	links, unknown := make(map[probe.LinkKey]bool), false
	for i := range c.r.Results {
		if c.reason(i, CodeContended) && c.again(i) != nil {
			unknown = unknown || !c.r.Results[i].PathKnown
			for _, key := range c.r.Results[i].Path {
				links[key] = true
			}
		}
	}
	return func(i int) bool {
		res := &c.r.Results[i]
		return c.again(i) == nil && (unknown && !res.PathKnown || slices.ContainsFunc(res.Path, func(k probe.LinkKey) bool { return links[k] }))
	}
}

// inRounds are the measurements as evidence. A pair of which nothing is known was in its
// round all the same: what it put on its links may have been anything.
func (c *trial) inRounds() []observation {
	var observations []observation
	for i := range c.r.Results {
		res, f := &c.r.Results[i], &c.figures[i]
		if !c.usable(i) || !f.measured {
			if res.Round > 0 && res.Pair.Waived == "" {
				observations = append(observations, observation{result: i, round: c.rounds[i], hi: math.Inf(1)})
			}
			continue
		}
		part := c.part(i)
		observations = append(observations, observation{result: i, round: c.rounds[i], mean: f.mean * part, lo: f.lo * part, hi: f.hi * part,
			ns: float64(res.Bandwidth[len(res.Bandwidth)-1].DurationNS), good: c.isGood(i)})
	}
	return observations
}

// observationAgain is a retest as evidence about the pair that it measured.
func (c *trial) observationAgain(t *probe.Retest) (observation, bool) {
	i, ok := c.index[t.Pair]
	if !ok || t.BytesPerSec == nil || t.Error != "" {
		return observation{}, false
	}
	f := figureAgain(t, &c.r.Spec)
	if limit := c.limit(i); f.lo > tooFast*limit {
		return observation{}, false
	}
	part := c.part(i)
	return observation{result: i, mean: f.mean * part, lo: f.lo * part, hi: f.hi * part, good: !t.Confirms}, true
}

// askCongestion asks where pairs were held up that are fine alone. What was measured alone is no
// evidence here.
func (c *trial) askCongestion() *question {
	var bad []int
	for i := range c.r.Results {
		again := c.again(i)
		if c.usable(i) && c.figures[i].measured && c.reason(i, CodeContended) && again != nil && again.BytesPerSec != nil && !again.Confirms {
			bad = append(bad, i)
		}
	}
	if len(bad) < 2 {
		return nil
	}
	e := weigh(newFaultSpace(c, c.tookPart, false), c.inRounds())
	for _, i := range bad {
		e.explain(&observation{result: i, hi: c.figures[i].hi * c.part(i)}, e.roundLoads[c.rounds[i]])
	}
	return &question{trial: c, evidence: e, about: aboutCongestion}
}

// leastExcess is the part of the smallest latency below which differences are noise.
const leastExcess = 0.1

// score makes of a latency what a rate is of a path: large is good, and a path is
// no better than its worst link. It is the inverse of what exceeds the least possible.
func score(ns, least float64) float64 { return 1 / max(ns-least, leastExcess*least) }

// fastest are the smallest latencies by what is measured and how: all of a group may
// cross the link that is late, and be no evidence of each other.
func (c *trial) fastest() map[[3]string]float64 {
	out := make(map[[3]string]float64)
	for i := range c.r.Results {
		if ns := c.figures[i].latency; ns > 0 && c.usable(i) {
			k := c.manner(i)
			if least, ok := out[k]; !ok || ns < least {
				out[k] = ns
			}
		}
	}
	return out
}

func (c *trial) manner(i int) [3]string {
	res := &c.r.Results[i]
	return [3]string{string(res.Kind), res.Transport, res.Variant}
}

// askLatency asks what makes answers late, where rates are fine. A round trip takes both
// directions, so links are sought, not directions.
func (c *trial) askLatency(isBad func(i int) bool) *question {
	var bad []int
	for i := range c.r.Results {
		// A document may say what its figures do not: then it has no group to be late in.
		late := c.usable(i) && c.figures[i].latency > 0 && c.groups[c.r.Results[i].Group] != nil
		if late && isBad(i) && c.reason(i, CodeSlowAnswer) && !c.bandwidthSlow(i) {
			bad = append(bad, i)
		}
	}
	if len(bad) == 0 {
		return nil
	}
	g := newFaultSpace(c, func(i int) bool { return c.usable(i) && c.figures[i].latency > 0 }, true)
	var observations []observation
	fastest := c.fastest()
	add := func(i int, ns float64, good bool) {
		if ns > 0 && c.usable(i) {
			v := score(ns, fastest[c.manner(i)])
			observations = append(observations, observation{result: i, mean: v, lo: v, hi: v, good: good})
		}
	}
	for i := range c.r.Results {
		add(i, c.figures[i].latency, c.isGood(i))
		for _, t := range c.r.Results[i].Retests {
			if j, ok := c.index[t.Pair]; ok && t.LatencyNS != nil && t.Error == "" {
				add(j, float64(*t.LatencyNS), !t.Confirms)
			}
		}
	}
	e := weigh(g, observations)
	e.clearGood, e.clearBad = clearlyFaster, clearlyFaster
	for _, i := range bad {
		ns := c.figures[i].latency
		if again := c.again(i); again != nil && again.LatencyNS != nil && again.Confirms {
			ns = math.Min(ns, float64(*again.LatencyNS))
		}
		e.explain(&observation{result: i, hi: score(ns, c.groups[c.r.Results[i].Group].fastest)}, nil)
	}
	return &question{trial: c, evidence: e, about: aboutLatency}
}
