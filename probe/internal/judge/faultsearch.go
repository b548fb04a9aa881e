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
	return c.hasReason(i, probe.CodeBelowFail) || c.hasReason(i, probe.CodeBelowWarn) || c.hasReason(i, probe.CodeOutlier)
}

// search looks for the faults behind a symptom; nil if no result shows it. Measurements alone are no evidence of
// congestion. A round trip uses both directions, so what delays it is a link, not a direction.
func (c *judgement) search(s symptom, shows func(i int) bool) *faultSearch {
	bad := c.those(shows)
	if len(bad) == 0 || s == congested && len(bad) < 2 {
		return nil
	}
	q := &faultSearch{judgement: c, symptom: s}
	if s == highLatency {
		q.evidence = newEvidence(newFaultSpace(c, c.timed, true), c.delays())
		q.clearGood, q.clearBad = clearlyFaster, clearlyFaster
	} else {
		q.evidence = newEvidence(newFaultSpace(c, c.tried, false), c.rates(s == lowRate))
	}
	for _, i := range bad {
		switch again := c.lastRetest(i); {
		case s == highLatency:
			q.addBad(i, inverseDelay(c.latencyOf(i), c.groups[c.r.Results[i].Group].fastest), 0)
		case s == lowRate && c.dead(i):
			q.addBad(i, 0, 0)
		case s == lowRate && again != nil && again.BytesPerSec != nil && again.Confirms:
			q.addBad(i, retestFigure(again, &c.r.Spec).hi*c.linkShare(i), 0)
		default:
			q.addBad(i, c.figures[i].hi*c.linkShare(i), c.round(i))
		}
	}
	return q
}

// showsRate finds the results whose rate needs an explanation: bad ones, except neighbours of pairs that were fine
// alone, and pairs over which nothing arrived.
func (c *judgement) showsRate(isBad func(i int) bool) func(i int) bool {
	doubtful := c.untestedNeighbours()
	return func(i int) bool { return isBad(i) && !doubtful(i) || c.dead(i) }
}

// showsCongestion says whether a pair that is fine alone was held up by others.
func (c *judgement) showsCongestion(i int) bool {
	again := c.lastRetest(i)
	return c.usable(i) && c.figures[i].measured && c.hasReason(i, probe.CodeContended) && again != nil && again.BytesPerSec != nil && !again.Confirms
}

// timed says whether the latency of a pair was measured.
func (c *judgement) timed(i int) bool { return c.usable(i) && c.figures[i].latency > 0 }

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
		if c.hasReason(i, probe.CodeContended) && c.lastRetest(i) != nil {
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

// rates are the rates as evidence, those of retests if they count. A pair without a credible figure was in its round
// all the same: it may have put any load on its links.
func (c *judgement) rates(retests bool) []observation {
	var out []observation
	add := func(i int, f figure, o observation) {
		part := c.linkShare(i)
		o.result, o.mean, o.lo, o.hi = i, f.mean*part, f.lo*part, f.hi*part
		out = append(out, o)
	}
	for i := range c.r.Results {
		switch res := &c.r.Results[i]; {
		case c.usable(i) && c.figures[i].measured:
			add(i, c.figures[i], observation{round: c.round(i), durationNS: float64(res.Bandwidth[len(res.Bandwidth)-1].DurationNS), good: c.isGood(i)})
		case res.Round > 0 && res.Pair.Waived == "":
			add(i, figure{hi: math.Inf(1)}, observation{round: c.round(i)})
		}
	}
	for i := range c.r.Results {
		for j := range c.r.Results[i].Retests {
			t := &c.r.Results[i].Retests[j]
			of, ok := c.index[t.Pair]
			if !retests || !ok || t.BytesPerSec == nil || t.Error != "" {
				continue
			}
			if f := retestFigure(t, &c.r.Spec); f.lo <= tooFast*c.lowestReadRate(of) {
				add(of, f, observation{good: !t.Confirms})
			}
		}
	}
	return out
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

// showsLatency finds the results whose latency needs an explanation. The reasons in a document may contradict its
// figures: then there is no group to compare with.
func (c *judgement) showsLatency(isBad func(i int) bool) func(i int) bool {
	return func(i int) bool { return c.timed(i) && c.groups[c.r.Results[i].Group] != nil && isBad(i) }
}

// latencyOf is the latency of a bad pair: that of a retest which confirms it, if that is smaller.
func (c *judgement) latencyOf(i int) float64 {
	ns := c.figures[i].latency
	if again := c.lastRetest(i); again != nil && again.LatencyNS != nil && again.Confirms {
		ns = min(ns, float64(*again.LatencyNS))
	}
	return ns
}

// delays are the latencies as evidence.
func (c *judgement) delays() []observation {
	var out []observation
	fastest := c.fastest()
	add := func(i int, ns float64, good bool) {
		if ns > 0 && c.usable(i) {
			v := inverseDelay(ns, fastest[c.measuredHow(i)])
			out = append(out, observation{result: i, mean: v, lo: v, hi: v, good: good})
		}
	}
	for i := range c.r.Results {
		add(i, c.figures[i].latency, !c.hasReason(i, probe.CodeLatencyOutlier))
		for _, t := range c.r.Results[i].Retests {
			if j, ok := c.index[t.Pair]; ok && t.LatencyNS != nil && t.Error == "" {
				add(j, float64(*t.LatencyNS), !t.Confirms)
			}
		}
	}
	return out
}
