package judge

import (
	"fmt"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/text"
	"github.com/topoctl/topoctl/probe"
)

// finding is one reason and the verdict that it asks for.
type finding struct {
	verdict probe.Verdict
	probe.Reason
}

func found(v probe.Verdict, code, format string, args ...any) finding {
	return finding{v, probe.Reason{Code: code, Text: fmt.Sprintf(format, args...)}}
}

// judge fills in the judgement of one result.
func (c *trial) judge(i int) {
	res, f := &c.r.Results[i], &c.figures[i]
	c.fill(i)
	var found []finding
	switch {
	case res.Pair.Waived != "":
		res.Verdict, res.Reasons = probe.Waived, []probe.Reason{{Code: CodeWaived, Text: cleanSentence(res.Pair.Waived)}}
		return
	case res.Error != "":
		res.Verdict, res.Reasons = probe.Error, []probe.Reason{{Code: CodeError, Text: cleanSentence(res.Error)}}
		return
	case c.fast[i] > 0:
		found = append(found, c.tooFast(i))
	default:
		found = append(c.rate(i, f), c.latency(i, f)...)
		if again := c.again(i); again != nil && len(slowCodes(found)) > 0 {
			found = c.retried(i, found, again)
		}
	}
	found = append(found, c.missing(i)...)
	found = append(found, c.states(res)...)
	res.Verdict, res.Reasons = probe.Pass, []probe.Reason{}
	for _, f := range found {
		if rank(f.verdict) > rank(res.Verdict) {
			res.Verdict = f.verdict
		}
		res.Reasons = append(res.Reasons, f.Reason)
	}
}

// fill computes the measured part of what is expected and of the best.
func (c *trial) fill(i int) {
	res, f := &c.r.Results[i], &c.figures[i]
	res.Efficiency, res.OfBest = nil, nil
	if !f.measured {
		return
	}
	if e := res.Expected.BytesPerSec; e != nil && *e > 0 {
		v := f.mean / float64(*e)
		res.Efficiency = &v
	}
	if g := c.groups[res.Group]; g != nil && g.rates > 1 && g.best > 0 {
		v := f.mean / g.best
		res.OfBest = &v
	}
}

// rate judges a bandwidth by what is expected, or else by its group.
func (c *trial) rate(i int, f *figure) []finding {
	if !f.measured {
		return nil
	}
	var out []finding
	res, rules := &c.r.Results[i], &c.r.Rules
	expected, limited := c.expected(i)
	class, outlier := slow(f, expected, rules), c.outlier(i, f)
	if limited {
		out = append(out, found(probe.Pass, CodeRateLimited, "limited to %s on purpose: whether it carries %s is not known", c.printed(i, expected), c.printed(i, float64(*res.Expected.BytesPerSec))))
	}
	if (class > notSlow || outlier) && c.full[i] != "" {
		return append(out, c.filled(i))
	}
	if class > notSlow {
		out = append(out, c.below(i, f, class))
	}
	if outlier {
		out = append(out, found(probe.Warn, CodeOutlier, "%s is %s of the best of %d alike, %s", c.measured(i, f), percent(f.mean, c.groups[res.Group].best), c.groups[res.Group].rates, c.printed(i, c.groups[res.Group].best)))
	}
	if f.wide {
		out = append(out, c.wide(i, f, class, outlier))
	}
	return out
}

// below is the finding that a pair misses what is expected.
func (c *trial) below(i int, f *figure, class slowness) finding {
	res := &c.r.Results[i]
	expected, _ := c.expected(i)
	text := fmt.Sprintf("%s is %s of %s, the rate of %s (%s)", c.measured(i, f), percent(f.mean, expected), c.printed(i, expected), c.limitName(i), res.Expected.Basis)
	switch {
	case class == belowFail && known(res.Expected.Basis) && f.wide:
		return found(probe.Warn, CodeBelowFail, "%s: so few samples fail nothing unless they are confirmed", text)
	case class == belowFail && known(res.Expected.Basis):
		return found(probe.Fail, CodeBelowFail, "%s", text)
	case class == belowFail:
		return found(probe.Warn, CodeBelowFail, "%s: a rate that is not known for certain fails nothing", text)
	}
	return found(probe.Warn, CodeBelowWarn, "%s", text)
}

// wide says what too wide an interval leaves of a verdict.
func (c *trial) wide(i int, f *figure, class slowness, outlier bool) finding {
	res, rules := &c.r.Results[i], &c.r.Rules
	b := &res.Bandwidth[len(res.Bandwidth)-1]
	text := fmt.Sprintf("%s after %s (%s): the interval is wide", c.measured(i, f), text.Plural(len(b.SamplesBytesPerSec), "sample"), clean(b.Stopped))
	expected, _ := c.expected(i)
	g := c.groups[res.Group]
	switch {
	case class == belowWarn && f.lo < rules.FailUnder*expected && known(res.Expected.Basis):
		return found(probe.Pass, CodeWideInterval, "%s, too wide to say whether it fails", text)
	case class > notSlow, outlier:
		return found(probe.Pass, CodeWideInterval, "%s, but all of it is too low", text)
	case expected > 0 && f.lo >= rules.WarnUnder*expected,
		expected == 0 && g != nil && g.rates > 1 && g.best > 0 && f.lo >= rules.OutlierUnder*g.best:
		return found(probe.Pass, CodeWideInterval, "%s, but all of it is high enough", text)
	}
	return found(probe.Inconclusive, CodeWideInterval, "%s, too wide to tell", text)
}

// filled is the finding that pairs of the round filled a link together. Where rounds are meant
// to share links that is well; where they are not, the plan knew too little.
func (c *trial) filled(i int) finding {
	verdict := probe.Pass
	if c.disjoint() {
		verdict = probe.Warn
	}
	key := c.full[i]
	return found(verdict, CodeContended, "%s beside other pairs of its round, which filled %s together", c.measured(i, &c.figures[i]), c.linkName(key))
}

// disjoint says whether rounds were laid out so that no link has more than it carries.
func (c *trial) disjoint() bool {
	return c.r.Plan.Contend == "" && c.r.Plan.Schedule != "endpoint"
}

func (c *trial) latency(i int, f *figure) []finding {
	if !c.slowAnswer(i, f) {
		return nil
	}
	g := c.groups[c.r.Results[i].Group]
	return []finding{found(probe.Warn, CodeSlowAnswer, "median latency %s is %.1f times the smallest of %d alike, %s", ns(f.latency), f.latency/g.fastest, g.latencies, ns(g.fastest))}
}

func (c *trial) tooFast(i int) finding {
	return found(probe.Warn, CodeTooFast, "%s is more than the %s that a link on its way carries: an end counts wrongly, or the topology is of another machine", c.measured(i, &c.figures[i]), c.printed(i, c.fast[i]))
}

// missing finds what could not be judged for want of a measurement or of an expectation.
func (c *trial) missing(i int) []finding {
	res, f := &c.r.Results[i], &c.figures[i]
	switch {
	case !f.measured && f.latency == 0:
		return []finding{found(probe.Inconclusive, CodeNotMeasured, "nothing was measured")}
	case !f.measured && len(c.r.Spec.SizesBytes) > 0:
		return []finding{found(probe.Inconclusive, CodeNotMeasured, "no bandwidth was measured")}
	case c.fast[i] > 0:
		return nil
	}
	expected, _ := c.expected(i)
	g := c.groups[res.Group]
	peers := g != nil && (f.measured && g.rates > 1 && g.best > 0 || f.latency > 0 && g.latencies > 1)
	if f.measured && expected > 0 || peers {
		return nil
	}
	return []finding{found(probe.Inconclusive, CodeNoExpectation, "no rate is expected, and no other pair is comparable")}
}

// again is the last retest alone that has a figure for what was slow; nil none.
func (c *trial) again(i int) *probe.Retest {
	retests := c.r.Results[i].Retests
	for j := len(retests) - 1; j >= 0; j-- {
		if t := &retests[j]; t.How == probe.RetestAlone && (t.BytesPerSec != nil || t.LatencyNS != nil) {
			return t
		}
	}
	return nil
}

// retried lets a retest speak: a pair that is fine alone was held up by others or by
// chance; one that is as bad is confirmed, and then its outlier may fail it.
func (c *trial) retried(i int, first []finding, again *probe.Retest) []finding {
	res, f := &c.r.Results[i], figureAgain(again, &c.r.Spec)
	if !again.Confirms {
		out := make([]finding, 0, len(first))
		for _, x := range first {
			if !isSlow(x.Code) {
				out = append(out, x)
			}
		}
		return append(out, found(probe.Warn, CodeContended, "%s at first and %s when measured again alone: other traffic, or chance", c.said(i, &c.figures[i], first), c.said(i, &f, first)))
	}
	out := make([]finding, 0, len(first)+1)
	expected, _ := c.expected(i)
	for _, x := range first {
		if x.Code == CodeBelowFail {
			x.verdict = probe.Warn // the milder of both
			if known(res.Expected.Basis) && slow(&f, expected, &c.r.Rules) == belowFail {
				x.verdict = probe.Fail
			}
		}
		out = append(out, x)
	}
	verdict := probe.Warn // no latency is expected, so none fails
	if known(res.Expected.Basis) && c.outlier(i, &c.figures[i]) && c.outlier(i, &f) {
		verdict = probe.Fail
	}
	return append(out, found(verdict, CodeConfirmed, "%s when measured again alone", c.said(i, &f, first)))
}

// isSlow says whether a code is about a pair being slow.
func isSlow(code string) bool {
	switch code {
	case CodeBelowFail, CodeBelowWarn, CodeOutlier, CodeSlowAnswer:
		return true
	}
	return false
}

func slowCodes(all []finding) []string {
	var codes []string
	for _, f := range all {
		if isSlow(f.Code) {
			codes = append(codes, f.Code)
		}
	}
	return codes
}

// limitName is the link that the expectation comes from, for people.
func (c *trial) limitName(i int) string {
	e := &c.r.Results[i].Expected
	switch {
	case e.Limit != "":
		return c.linkName(e.Limit)
	case e.Basis == topo.BasisMeasured:
		return "an earlier measurement"
	}
	return "the way"
}
