package judge

import (
	"math"
	"slices"

	"github.com/topoctl/topoctl/probe"
)

// those are the results of which something is true.
func (c *judgement) those(is func(i int) bool) []int {
	var out []int
	for i := range c.r.Results {
		if is(i) {
			out = append(out, i)
		}
	}
	return out
}

// bandwidthSlow says whether the rate of a result is too low.
func (c *judgement) bandwidthSlow(i int) bool {
	return c.hasReason(i, CodeBelowFail) || c.hasReason(i, CodeBelowWarn) || c.hasReason(i, CodeOutlier)
}

// searchRates looks for what makes pairs slow. Its evidence is every credible measurement, in rounds and
// alone.
func (c *judgement) searchRates(isBad func(i int) bool) *faultSearch {
	doubtful := c.untestedNeighbours()
	bad := c.those(func(i int) bool { return isBad(i) && !doubtful(i) || c.dead(i) })
	if len(bad) == 0 {
		return nil
	}
	g := newFaultSpace(c, c.tried, false)
	observations := c.observations()
	for i := range c.r.Results {
		for j := range c.r.Results[i].Retests {
			if s, ok := c.retestObservation(&c.r.Results[i].Retests[j]); ok {
				observations = append(observations, s)
			}
		}
	}
	e := newEvidence(g, observations)
	for _, i := range bad {
		switch again := c.lastRetest(i); {
		case c.dead(i):
			e.addBad(i, 0, nil)
		case again != nil && again.BytesPerSec != nil && again.Confirms:
			e.addBad(i, retestFigure(again, &c.r.Spec).hi*c.linkShare(i), nil)
		default:
			e.addBad(i, c.figures[i].hi*c.linkShare(i), e.roundLoads[c.round(i)])
		}
	}
	return &faultSearch{judgement: c, evidence: e, symptom: lowRate}
}

// tried says whether a pair was measured, or at least attempted.
func (c *judgement) tried(i int) bool {
	return c.usable(i) || c.r.Results[i].Round > 0 && c.r.Results[i].Pair.Waived == ""
}

// dead says whether no bytes arrived over a pair of ports, for a reason that may lie on the path and not
// in a host. Errors of a run that was interrupted prove nothing.
func (c *judgement) dead(i int) bool {
	res := &c.r.Results[i]
	return c.r.Complete && res.Kind == probe.Port && res.Verdict == probe.Error && res.ErrorCause.OnTheWay() && len(res.Bandwidth) == 0 &&
		!slices.ContainsFunc(c.r.Hosts, func(h probe.Host) bool {
			return h.Error != "" && (h.Name == res.From.Host || h.Name == res.To.Host)
		})
}

// untestedNeighbours finds slow pairs that no part is blamed for. If so many pairs turned out to be fine
// alone that the others were not measured again, these are the others that share a link with one of them.
func (c *judgement) untestedNeighbours() func(i int) bool {
	if c.allRetests() < mostRetests {
		return func(int) bool { return false }
	}
	links, unknown := make(map[probe.LinkKey]bool), false
	for i := range c.r.Results {
		if c.hasReason(i, CodeContended) && c.lastRetest(i) != nil {
			unknown = unknown || !c.r.Results[i].PathKnown
			for _, key := range c.r.Results[i].Path {
				links[key] = true
			}
		}
	}
	return func(i int) bool {
		res := &c.r.Results[i]
		return c.lastRetest(i) == nil && (unknown && !res.PathKnown || slices.ContainsFunc(res.Path, func(k probe.LinkKey) bool { return links[k] }))
	}
}

// observations are the measurements as evidence. A pair without a credible figure was in its round all the
// same: it may have put any load on its links.
func (c *judgement) observations() []observation {
	var observations []observation
	for i := range c.r.Results {
		res, f := &c.r.Results[i], &c.figures[i]
		if !c.usable(i) || !f.measured {
			if res.Round > 0 && res.Pair.Waived == "" {
				observations = append(observations, observation{result: i, round: c.round(i), hi: math.Inf(1)})
			}
			continue
		}
		part := c.linkShare(i)
		observations = append(observations, observation{result: i, round: c.round(i), mean: f.mean * part, lo: f.lo * part, hi: f.hi * part,
			durationNS: float64(res.Bandwidth[len(res.Bandwidth)-1].DurationNS), good: c.isGood(i)})
	}
	return observations
}

// retestObservation is a retest as evidence about the pair that it measured.
func (c *judgement) retestObservation(t *probe.Retest) (observation, bool) {
	i, ok := c.index[t.Pair]
	if !ok || t.BytesPerSec == nil || t.Error != "" {
		return observation{}, false
	}
	f := retestFigure(t, &c.r.Spec)
	if limit := c.lowestReadRate(i); f.lo > tooFast*limit {
		return observation{}, false
	}
	part := c.linkShare(i)
	return observation{result: i, mean: f.mean * part, lo: f.lo * part, hi: f.hi * part, good: !t.Confirms}, true
}

// searchCongestion looks for where pairs that are fine alone were held up. Measurements alone are no
// evidence here.
func (c *judgement) searchCongestion() *faultSearch {
	bad := c.those(func(i int) bool {
		again := c.lastRetest(i)
		return c.usable(i) && c.figures[i].measured && c.hasReason(i, CodeContended) && again != nil && again.BytesPerSec != nil && !again.Confirms
	})
	if len(bad) < 2 {
		return nil
	}
	e := newEvidence(newFaultSpace(c, c.tried, false), c.observations())
	for _, i := range bad {
		e.addBad(i, c.figures[i].hi*c.linkShare(i), e.roundLoads[c.round(i)])
	}
	return &faultSearch{judgement: c, evidence: e, symptom: congested}
}

// noiseShare is the part of the smallest latency below which differences are noise.
const noiseShare = 0.1

// inverseDelay turns a latency into a figure that behaves like the rate of a path: large is good, and a
// path is no better than its worst link. It is the inverse of the excess over the least possible latency.
func inverseDelay(ns, least float64) float64 { return 1 / max(ns-least, noiseShare*least) }

// fastest are the smallest latencies by kind, transport and variant. A group is too small for this: all of
// its pairs may cross the slow link.
func (c *judgement) fastest() map[[3]string]float64 {
	out := make(map[[3]string]float64)
	for i := range c.r.Results {
		if ns := c.figures[i].latency; ns > 0 && c.usable(i) {
			k := c.measuredHow(i)
			if least, ok := out[k]; !ok || ns < least {
				out[k] = ns
			}
		}
	}
	return out
}

func (c *judgement) measuredHow(i int) [3]string {
	res := &c.r.Results[i]
	return [3]string{string(res.Kind), res.Transport, res.Variant}
}

// searchLatency looks for what delays pairs whose rates are fine. A round trip uses both directions, so it
// looks for links, not directions.
func (c *judgement) searchLatency(isBad func(i int) bool) *faultSearch {
	measured := func(i int) bool { return c.usable(i) && c.figures[i].latency > 0 }
	// The reasons in a document may contradict its figures: then there is no group to compare with.
	bad := c.those(func(i int) bool { return measured(i) && c.groups[c.r.Results[i].Group] != nil && isBad(i) })
	if len(bad) == 0 {
		return nil
	}
	g := newFaultSpace(c, measured, true)
	var observations []observation
	fastest := c.fastest()
	add := func(i int, ns float64, good bool) {
		if ns > 0 && c.usable(i) {
			v := inverseDelay(ns, fastest[c.measuredHow(i)])
			observations = append(observations, observation{result: i, mean: v, lo: v, hi: v, good: good})
		}
	}
	for i := range c.r.Results {
		add(i, c.figures[i].latency, !c.hasReason(i, CodeLatencyOutlier))
		for _, t := range c.r.Results[i].Retests {
			if j, ok := c.index[t.Pair]; ok && t.LatencyNS != nil && t.Error == "" {
				add(j, float64(*t.LatencyNS), !t.Confirms)
			}
		}
	}
	e := newEvidence(g, observations)
	e.clearGood, e.clearBad = clearlyFaster, clearlyFaster
	for _, i := range bad {
		ns := c.figures[i].latency
		if again := c.lastRetest(i); again != nil && again.LatencyNS != nil && again.Confirms {
			ns = min(ns, float64(*again.LatencyNS))
		}
		e.addBad(i, inverseDelay(ns, c.groups[c.r.Results[i].Group].fastest), nil)
	}
	return &faultSearch{judgement: c, evidence: e, symptom: highLatency}
}
