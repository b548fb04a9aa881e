package judge

import (
	"math"
	"slices"

	"github.com/topoctl/topoctl/probe"
)

// Request is a measurement of Pair that result For needs, with no other pair at the same time.
type Request struct {
	For  string // the ID of a result
	How  string // probe.RetestAlone or probe.RetestOtherPartner
	Pair probe.Pair
}

const (
	// retestAll is how many suspicious pairs are all measured again. Where there are more, a fault
	// has made many pairs slow, and perFault of each fault's speak for the rest.
	retestAll = 64
	perFault  = 4
	// mostRetests bounds what is measured alone in all: where hundreds turn out to be well
	// alone, the rounds were too much, and that is known by then.
	mostRetests = 256
)

// Retests says what to measure again, at most a few dozen pairs at once; none: nothing is
// left that would change a verdict or tell suspects apart. Verdicts must have been called.
// Ask again after AddRetest, until there is none or no time is left.
func Retests(r *probe.Report) []Request {
	if r.Rules.Retests <= 0 {
		return nil
	}
	c := newJudgement(r)
	pick := c.suspicious()
	if len(pick) > retestAll {
		pick = c.sampleOfFaults(pick)
	}
	var again []int
	for _, i := range pick {
		if c.needsRetest(i) {
			again = append(again, i)
		}
	}
	for i := range r.Results { // after those that are known to be slow
		if c.undecided(i) && c.retestCount(i) == 0 {
			again = append(again, i)
		}
	}
	var out []Request
	for _, i := range again[:min(len(again), retestAll, max(0, mostRetests-c.allRetests()))] {
		out = append(out, Request{For: r.Results[i].ID, How: probe.RetestAlone, Pair: r.Results[i].Pair})
	}
	if len(out) > 0 {
		return out
	}
	return c.partners(pick)
}

// suspicious are the results that are slow but might be so by chance: outliers, and those that miss a rate
// that was read or measured.
func (c *judgement) suspicious() []int {
	return c.those(func(i int) bool {
		below := c.hasReason(i, CodeBelowFail) || c.hasReason(i, CodeBelowWarn)
		return below && c.r.Results[i].Expected.Basis.Sure() || c.hasReason(i, CodeOutlier) || c.hasReason(i, CodeLatencyOutlier)
	})
}

// undecided says whether the rate of a result was measured and could not be judged: processors were busy, or
// the samples are scattered. It is measured once more, alone.
func (c *judgement) undecided(i int) bool {
	return c.r.Results[i].Verdict == probe.Inconclusive && (c.hasReason(i, CodeBusy) || c.hasReason(i, CodeWideInterval))
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

// sampleOfFaults picks some pairs of each fault that would explain all of them. If one of them turned out
// to be fine alone, each of the fault's pairs is measured.
func (c *judgement) sampleOfFaults(suspicious []int) []int {
	in := make([]bool, len(c.r.Results))
	for _, i := range suspicious {
		in[i] = true
	}
	picked := make(map[int]bool)
	slow := func(i int) bool { return in[i] && c.bandwidthSlow(i) }
	late := func(i int) bool { return in[i] && c.hasReason(i, CodeLatencyOutlier) && !c.bandwidthSlow(i) }
	for _, q := range []*faultSearch{c.searchRates(slow), c.searchLatency(late)} {
		if q == nil {
			continue
		}
		for _, b := range q.blames() {
			c.pickPairs(b, in, picked)
		}
	}
	var out []int
	for _, i := range suspicious {
		if picked[i] || c.besideFine(i) {
			out = append(out, i)
		}
	}
	return out
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

// besideFine says whether another slow pair of the same round turned out to be fine alone, and the two may
// share a link.
func (c *judgement) besideFine(i int) bool {
	if c.fineAlone == nil {
		c.fineAlone = make(map[int][]int)
		for j := range c.r.Results {
			if c.hasReason(j, CodeContended) && c.lastRetest(j) != nil {
				c.fineAlone[c.round(j)] = append(c.fineAlone[c.round(j)], j)
			}
		}
	}
	res := &c.r.Results[i]
	return slices.ContainsFunc(c.fineAlone[c.round(i)], func(j int) bool {
		other := &c.r.Results[j]
		return !res.PathKnown && !other.PathKnown || slices.ContainsFunc(res.Path, func(k probe.LinkKey) bool { return slices.Contains(other.Path, k) })
	})
}

// partners are requests for each end of the picked pairs with a partner whose pairs are fine, if the blame
// so far does not name exactly one suspect and there is no good pair from or to that end yet.
func (c *judgement) partners(pick []int) []Request {
	open := make(map[string]bool)
	for _, b := range Blame(c.r) {
		if len(b.Suspects) != 1 {
			for _, id := range b.Pairs {
				open[id] = true
			}
		}
	}
	ends := c.ends()
	var out []Request
	for _, i := range pick {
		res := &c.r.Results[i]
		if !open[res.ID] || len(out) >= retestAll {
			continue
		}
		from, to := endOf(&res.From), endOf(&res.To)
		if s := ends[from]; !s.goodFrom && !s.triedFrom {
			s.triedFrom = true
			out = c.partner(out, i, func(o *probe.Pair) bool { return endOf(&o.From) == from && ends[endOf(&o.To)].goodTo })
		}
		if s := ends[to]; !s.goodTo && !s.triedTo {
			s.triedTo = true
			out = c.partner(out, i, func(o *probe.Pair) bool { return endOf(&o.To) == to && ends[endOf(&o.From)].goodFrom })
		}
	}
	return out
}

// partner appends the first pair of the report that fits, of the same kind.
func (c *judgement) partner(out []Request, i int, fits func(o *probe.Pair) bool) []Request {
	res := &c.r.Results[i]
	for j := range c.r.Results {
		o := &c.r.Results[j]
		if j != i && o.Pair.Waived == "" && o.Kind == res.Kind && o.Transport == res.Transport && o.Variant == res.Variant && fits(&o.Pair) {
			return append(out, Request{For: res.ID, How: probe.RetestOtherPartner, Pair: o.Pair})
		}
	}
	return out
}

type endKey struct {
	host string
	name string
}

func endOf(e *probe.End) endKey { return endKey{e.Host, e.Name} }

// endState is what is known of an end: whether there are good pairs from it and to it, and whether it was
// tried with another partner.
type endState struct{ goodFrom, goodTo, triedFrom, triedTo bool }

// ends says what is known of each end.
func (c *judgement) ends() map[endKey]*endState {
	ends := make(map[endKey]*endState)
	at := func(e *probe.End) *endState {
		if ends[endOf(e)] == nil {
			ends[endOf(e)] = &endState{}
		}
		return ends[endOf(e)]
	}
	for i := range c.r.Results {
		res := &c.r.Results[i]
		from, to := at(&res.From), at(&res.To)
		for _, t := range res.Retests {
			if j, ok := c.index[t.Pair]; ok && t.How == probe.RetestOtherPartner {
				other := &c.r.Results[j]
				from.triedFrom = from.triedFrom || endOf(&other.From) == endOf(&res.From)
				to.triedTo = to.triedTo || endOf(&other.To) == endOf(&res.To)
			}
		}
		if c.isGood(i) {
			from.goodFrom, to.goodTo = true, true
		}
	}
	return ends
}

// AddRetest adds what a retest measured to the result that requested it, and says whether it confirms the
// result: whether the measured pair is slow compared with its own expectation or group. The result's first
// measurement, taken beside others, stays as it is.
func AddRetest(r *probe.Report, q Request, m probe.Measurement) {
	c := newJudgement(r)
	i, ok := c.index[q.For]
	if !ok {
		return
	}
	t := probe.Retest{How: q.How, Pair: q.Pair.ID}
	switch {
	case m.Err != nil:
		t.Error = m.Err.Error()
	case m.Waived != "":
		t.Error = m.Waived
	}
	f := figureOf(&m, &r.Spec)
	j, known := c.index[q.Pair.ID]
	if known && t.Error == "" && c.slowRate(j, &f) {
		if l := c.heldUp(j, f.hi, m.Processors); l != nil {
			t.Error = busyText(l) + ": too busy to tell"
		}
	}
	if !f.measured && t.Error == "" && (c.bandwidthSlow(i) || c.undecided(i)) {
		t.Error = "no rate was measured"
	}
	if f.measured && t.Error == "" {
		v := int64(math.Round(f.mean))
		t.BytesPerSec, t.CI95BytesPerSec = &v, m.Judged().CI95BytesPerSec
	}
	if f.latency > 0 && t.Error == "" {
		v := int64(f.latency)
		t.LatencyNS = &v
	}
	if known {
		t.Confirms = t.Error == "" && c.confirms(i, j, &f, q.How)
	}
	r.Results[i].Retests = append(r.Results[i].Retests, t)
}

// slowRate says whether a rate of result j would be too low.
func (c *judgement) slowRate(j int, f *figure) bool {
	expected, _ := c.expected(j)
	return slow(f, expected, &c.r.Rules) > notSlow || c.outlier(j, f)
}

// confirms says whether a figure of result j, measured because of result i, is slow in the same way as i.
func (c *judgement) confirms(i, j int, f *figure, how string) bool {
	judged := f.decisive()
	rate := c.slowRate(j, &judged)
	late := c.latencyOutlier(j, f)
	if how == probe.RetestOtherPartner {
		return rate || late
	}
	return rate && (c.bandwidthSlow(i) || c.undecided(i)) || late && c.hasReason(i, CodeLatencyOutlier)
}
