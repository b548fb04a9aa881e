package judge

import (
	"math"
	"slices"

	"github.com/topoctl/topoctl/probe"
)

const (
	// retestAll is how many suspicious pairs are all measured again. Where there are more, a fault
	// has made many pairs slow, and perFault of each fault's speak for the rest.
	retestAll = 64
	perFault  = 4
	// mostRetests bounds what is measured alone in all: where hundreds turn out to be well
	// alone, the rounds were too much, and that is known by then.
	mostRetests = 256
)

// Retests are the pairs to measure again, each alone, at most a few dozen at once; none: nothing is
// left that would change a verdict or tell suspects apart. Verdicts must have been called.
// Ask again after AddRetest, until there is none or no time is left.
func Retests(r *probe.Report) []probe.Pair {
	if r.Rules.Retests <= 0 {
		return nil
	}
	c := newJudgement(r)
	pick := c.suspicious()
	if len(pick) > retestAll {
		pick = c.sampleOfFaults(pick)
	}
	again := slices.DeleteFunc(pick, func(i int) bool { return !c.needsRetest(i) })
	for i := range r.Results { // after those that are known to be slow
		if c.undecided(i) && c.retestCount(i) == 0 {
			again = append(again, i)
		}
	}
	var out []probe.Pair
	for _, i := range again[:min(len(again), retestAll, max(0, mostRetests-c.allRetests()))] {
		out = append(out, r.Results[i].Pair)
	}
	return out
}

// suspicious are the results that are slow but might be so by chance: outliers, and those that miss a rate
// that was read or measured.
func (c *judgement) suspicious() []int {
	return c.those(func(i int) bool {
		below := c.hasReason(i, probe.CodeBelowFail) || c.hasReason(i, probe.CodeBelowWarn)
		return below && c.r.Results[i].Expected.Basis.Sure() || c.hasReason(i, probe.CodeOutlier) || c.hasReason(i, probe.CodeLatencyOutlier)
	})
}

// undecided says whether the rate of a result was measured and could not be judged: processors were busy, or
// the samples are scattered. It is measured once more, alone.
func (c *judgement) undecided(i int) bool {
	return c.r.Results[i].Verdict == probe.Inconclusive && (c.hasReason(i, probe.CodeBusy) || c.hasReason(i, probe.CodeWideInterval))
}

// retestCount is how many measurements of a result were made alone.
func (c *judgement) retestCount(i int) int {
	n := 0
	for _, t := range c.r.Results[i].Retests {
		if t.How == probe.RetestAlone {
			n++
		}
	}
	return n
}

// allRetests is how many measurements were made alone.
func (c *judgement) allRetests() int {
	n := 0
	for i := range c.r.Results {
		n += c.retestCount(i)
	}
	return n
}

// needsRetest says whether a result is to be measured alone once more.
func (c *judgement) needsRetest(i int) bool { return c.retestCount(i) < c.r.Rules.Retests }

// sampleOfFaults picks some pairs of each fault that would explain all of them. Those that turn out to be fine
// alone are not suspicious when it is asked again, and others of the fault are picked.
func (c *judgement) sampleOfFaults(suspicious []int) []int {
	in := make([]bool, len(c.r.Results))
	for _, i := range suspicious {
		in[i] = true
	}
	picked := make(map[int]bool)
	slow := func(i int) bool { return in[i] && c.bandwidthSlow(i) }
	late := func(i int) bool { return in[i] && c.hasReason(i, probe.CodeLatencyOutlier) && !c.bandwidthSlow(i) }
	for _, q := range []*faultSearch{c.search(lowRate, c.showsRate(slow)), c.search(highLatency, c.showsLatency(late))} {
		if q == nil {
			continue
		}
		for _, b := range q.blames() {
			c.pickPairs(b, in, picked)
		}
	}
	return slices.DeleteFunc(suspicious, func(i int) bool { return !picked[i] })
}

// pickPairs picks some pairs of a fault, spread over all of them, and first those that were already
// measured again.
func (c *judgement) pickPairs(b probe.Blame, in []bool, picked map[int]bool) {
	left := perFault
	for _, id := range b.Pairs {
		if i := c.index[id]; in[i] && left > 0 && !c.needsRetest(i) {
			picked[i] = true
			left--
		}
	}
	if left == 0 {
		return
	}
	step := max(1, len(b.Pairs)/left)
	for n := 0; n < len(b.Pairs) && left > 0; n += step {
		if i := c.index[b.Pairs[n]]; in[i] && !picked[i] {
			picked[i] = true
			left--
		}
	}
}

// AddRetest adds what measuring a result's pair again alone gave, and whether that confirms the result: whether the pair
// is still slow compared with its expectation or group. The first measurement, taken beside others, stays as it is.
// It returns the result, nil if the report has none of this ID.
func AddRetest(r *probe.Report, id string, m probe.Measurement) *probe.Result {
	c := newJudgement(r)
	i, ok := c.index[id]
	if !ok {
		return nil
	}
	t := probe.Retest{How: probe.RetestAlone, Pair: id}
	f := figureOf(&m, &r.Spec)
	switch {
	case m.Err != nil:
		t.Error = m.Err.Error()
	case m.Waived != "":
		t.Error = m.Waived
	case c.slowRate(i, &f) && c.heldUp(i, f.hi, m.Processors) != nil:
		t.Error = busyText(c.heldUp(i, f.hi, m.Processors)) + ": too busy to tell"
	case !f.measured && (c.bandwidthSlow(i) || c.undecided(i)):
		t.Error = "no rate was measured"
	}
	if t.Error == "" {
		if f.measured {
			v := int64(math.Round(f.mean))
			t.BytesPerSec, t.CI95BytesPerSec = &v, m.Judged().CI95BytesPerSec
		}
		if f.latency > 0 {
			v := int64(f.latency)
			t.LatencyNS = &v
		}
		t.Confirms = c.confirms(i, &f)
	}
	r.Results[i].Retests = append(r.Results[i].Retests, t)
	return &r.Results[i]
}

// slowRate says whether a rate of a result would be too low.
func (c *judgement) slowRate(i int, f *figure) bool {
	expected, _ := c.expected(i)
	return slow(f, expected, &c.r.Rules) > notSlow || c.outlier(i, f)
}

// confirms says whether a figure of a result that was measured again is slow in the same way as before.
func (c *judgement) confirms(i int, f *figure) bool {
	judged := f.decisive()
	return c.slowRate(i, &judged) && (c.bandwidthSlow(i) || c.undecided(i)) || c.latencyOutlier(i, f) && c.hasReason(i, probe.CodeLatencyOutlier)
}
