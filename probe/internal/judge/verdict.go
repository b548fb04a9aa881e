package judge

import (
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/probe"
)

// finding is one reason and the verdict that it asks for.
type finding struct {
	verdict probe.Verdict
	probe.Reason
}

func (f finding) inconclusive() bool { return f.verdict == probe.Inconclusive }

func found(v probe.Verdict, code, format string, args ...any) finding {
	return finding{v, probe.Reason{Code: code, Text: fmt.Sprintf(format, args...)}}
}

// judge sets the verdict of one result and its reasons.
func (c *judgement) judge(i int) {
	res, f := &c.r.Results[i], &c.figures[i]
	c.fillRatios(i)
	var found []finding
	switch {
	case res.Pair.Waived != "":
		res.Verdict, res.Reasons = probe.Waived, []probe.Reason{{Code: probe.CodeWaived, Text: cleanSentence(res.Pair.Waived)}}
		return
	case res.Error != "":
		res.Verdict, res.Reasons = probe.Error, []probe.Reason{{Code: probe.CodeError, Text: cleanSentence(res.Error)}}
		return
	case c.exceeded[i] > 0:
		found = append(found, c.tooFast(i))
	default:
		found = append(c.judgeRate(i, f), c.judgeLatency(i, f)...)
		switch again := c.lastRetest(i); {
		case again == nil:
		case len(slowCodes(found)) > 0:
			found = c.withRetest(i, found, again)
		case again.BytesPerSec != nil && slices.ContainsFunc(found, finding.inconclusive):
			found = c.decided(i, found, again)
		}
	}
	found = append(found, c.notJudged(i)...)
	found = append(found, c.linkFindings(res)...)
	res.Verdict, res.Reasons = probe.Pass, []probe.Reason{}
	for _, f := range found {
		if rank(f.verdict) > rank(res.Verdict) {
			res.Verdict = f.verdict
		}
		res.Reasons = append(res.Reasons, f.Reason)
	}
}

// fillRatios computes the measured rate relative to the expected one and to the best.
func (c *judgement) fillRatios(i int) {
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

// judgeRate judges a bandwidth by the expected rate, and by its group.
func (c *judgement) judgeRate(i int, f *figure) []finding {
	if !f.measured {
		return nil
	}
	var out []finding
	res, rules := &c.r.Results[i], &c.r.Rules
	expected, limited := c.expected(i)
	class, outlier := slow(f, expected, rules), c.outlier(i, f)
	if limited {
		out = append(out, found(probe.Pass, probe.CodeRateLimited, "limited to %s on purpose: whether it carries %s is not known", c.rateText(i, expected), c.rateText(i, float64(*res.Expected.BytesPerSec))))
	}
	if (class > notSlow || outlier) && c.filled[i] != "" {
		return append(out, c.filledLink(i))
	}
	if l := c.heldUp(i, f.hi, res.Processors); l != nil && (class > notSlow || outlier) {
		return append(out, found(probe.Inconclusive, probe.CodeBusy, "%s, but %s: too busy to tell", c.measuredText(i, f), busyText(l)))
	}
	if class > notSlow {
		out = append(out, c.belowExpected(i, f, class))
	}
	if outlier {
		out = append(out, c.belowOthers(i, f))
	}
	if f.wide {
		out = append(out, c.wideInterval(i, f, class, outlier))
	}
	return out
}

// belowExpected is the finding that a pair misses the expected rate.
func (c *judgement) belowExpected(i int, f *figure, class slowness) finding {
	res := &c.r.Results[i]
	expected, _ := c.expected(i)
	text := fmt.Sprintf("%s is %s of %s, the rate of %s (%s)", c.measuredText(i, f), percent(f.mean, expected), c.rateText(i, expected), c.limitName(i), res.Expected.Basis)
	switch {
	case class == belowFail && res.Expected.Basis.Sure() && f.wide:
		return found(probe.Warn, probe.CodeBelowFail, "%s: too few samples to fail it without a retest", text)
	case class == belowFail && res.Expected.Basis.Sure():
		return found(probe.Fail, probe.CodeBelowFail, "%s", text)
	case class == belowFail:
		return found(probe.Warn, probe.CodeBelowFail, "%s: a rate that is not certain fails no pair", text)
	}
	return found(probe.Warn, probe.CodeBelowWarn, "%s", text)
}

// belowOthers is the finding that a pair is slower than others of its group.
func (c *judgement) belowOthers(i int, f *figure) finding {
	g := c.groups[c.r.Results[i].Group]
	return found(probe.Warn, probe.CodeOutlier, "%s is %s of the best of %d comparable pairs, %s", c.measuredText(i, f), percent(f.mean, g.best), g.rates, c.rateText(i, g.best))
}

// wideInterval says which verdict an interval that is too wide still allows.
func (c *judgement) wideInterval(i int, f *figure, class slowness, outlier bool) finding {
	res, rules := &c.r.Results[i], &c.r.Rules
	b := &res.Bandwidth[len(res.Bandwidth)-1]
	text := fmt.Sprintf("%s after %s (%s): the interval is wide", c.measuredText(i, f), text.Plural(len(b.SamplesBytesPerSec), "sample"), clean(b.Stopped))
	expected, _ := c.expected(i)
	g := c.groups[res.Group]
	switch {
	case class == belowWarn && f.lo < rules.FailUnder*expected && res.Expected.Basis.Sure():
		return found(probe.Pass, probe.CodeWideInterval, "%s, too wide to say whether it fails", text)
	case class > notSlow, outlier:
		return found(probe.Pass, probe.CodeWideInterval, "%s, but all of it is too low", text)
	case expected > 0 && f.lo >= rules.WarnUnder*expected,
		expected == 0 && g != nil && g.rates > 1 && g.best > 0 && f.lo >= rules.OutlierUnder*g.best:
		return found(probe.Pass, probe.CodeWideInterval, "%s, but all of it is high enough", text)
	}
	if expected == 0 && (g == nil || g.rates < 2) {
		return found(probe.Pass, probe.CodeWideInterval, "%s", text) // there is nothing to tell
	}
	if l := busiest(&res.Pair, res.Processors); l != nil {
		return found(probe.Inconclusive, probe.CodeBusy, "%s, and %s: too busy to tell", text, busyText(l))
	}
	return found(probe.Inconclusive, probe.CodeWideInterval, "%s, too wide to tell", text)
}

// filledLink is the finding that pairs of the round filled a link together. That is fine if rounds are
// meant to share links; if not, the plan did not know enough.
func (c *judgement) filledLink(i int) finding {
	verdict, how := probe.Warn, "which together filled"
	if !c.disjoint() {
		verdict, how = probe.Pass, "with which it shares"
	}
	return found(verdict, probe.CodeContended, "%s next to other pairs of its round, %s %s", c.measuredText(i, &c.figures[i]), how, c.linkName(c.filled[i]))
}

// disjoint says whether rounds were planned so that no link gets more than it carries.
func (c *judgement) disjoint() bool {
	return c.r.Plan.Contend == "" && c.r.Plan.Schedule != "endpoint"
}

func (c *judgement) judgeLatency(i int, f *figure) []finding {
	if res := &c.r.Results[i]; !c.latencyOutlier(i, f) || busiest(&res.Pair, res.Processors) != nil {
		return nil
	}
	g := c.groups[c.r.Results[i].Group]
	return []finding{found(probe.Warn, probe.CodeLatencyOutlier, "median latency %s is %.1f times the smallest of %d comparable pairs, %s", ns(f.latency), f.latency/g.fastest, g.latencies, ns(g.fastest))}
}

func (c *judgement) tooFast(i int) finding {
	return found(probe.Warn, probe.CodeTooFast, "%s is more than the %s that a link on its path carries: an end counts incorrectly, or the topology is of another machine", c.measuredText(i, &c.figures[i]), c.rateText(i, c.exceeded[i]))
}

// notJudged says what could not be judged because there is no measurement or nothing to compare it with.
func (c *judgement) notJudged(i int) []finding {
	res, f := &c.r.Results[i], &c.figures[i]
	switch {
	case !f.measured && f.latency == 0:
		return []finding{found(probe.Inconclusive, probe.CodeNotMeasured, "nothing was measured")}
	case !f.measured && len(c.r.Spec.SizesBytes) > 0:
		return []finding{found(probe.Inconclusive, probe.CodeNotMeasured, "no bandwidth was measured")}
	case c.exceeded[i] > 0:
		return nil
	}
	expected, _ := c.expected(i)
	g := c.groups[res.Group]
	peers := g != nil && (f.measured && g.rates > 1 && g.best > 0 || f.latency > 0 && g.latencies > 1)
	if f.measured && expected > 0 || peers {
		return nil
	}
	return []finding{found(probe.Measured, probe.CodeNoExpectation, "no rate is expected, and no other pair is comparable")}
}

// lastRetest is the last retest alone that has a figure for what was slow; nil none.
func (c *judgement) lastRetest(i int) *probe.Retest {
	retests := c.r.Results[i].Retests
	for j := len(retests) - 1; j >= 0; j-- {
		if t := &retests[j]; t.How == probe.RetestAlone && (t.BytesPerSec != nil || t.LatencyNS != nil) {
			return t
		}
	}
	return nil
}

// withRetest replaces findings by what a retest alone showed: a pair that is fine alone was held up by
// others or by chance; one that is just as slow is confirmed, and then an outlier may fail.
func (c *judgement) withRetest(i int, first []finding, again *probe.Retest) []finding {
	res, f := &c.r.Results[i], retestFigure(again, &c.r.Spec).decisive()
	if !again.Confirms {
		out := slices.DeleteFunc(slices.Clone(first), func(x finding) bool { return isSlow(x.Code) })
		verdict := probe.Warn
		if slices.Equal(slowCodes(first), []string{probe.CodeLatencyOutlier}) {
			verdict = probe.Pass // a late answer during other traffic says nothing about the path
		}
		return append(out, found(verdict, probe.CodeContended, "%s at first and %s when measured again alone: other traffic, or chance", c.figureText(i, &c.figures[i], first), c.figureText(i, &f, first)))
	}
	out := slices.Clone(first)
	expected, _ := c.expected(i)
	for k := range out {
		if out[k].Code == probe.CodeBelowFail {
			out[k].verdict = probe.Warn // the milder of both
			if res.Expected.Basis.Sure() && slow(&f, expected, &c.r.Rules) == belowFail {
				out[k].verdict = probe.Fail
			}
		}
	}
	verdict := probe.Warn // no latency is expected, so none fails
	if res.Expected.Basis.Sure() && c.outlier(i, &c.figures[i]) && c.outlier(i, &f) {
		verdict = probe.Fail
	}
	return append(out, found(verdict, probe.CodeConfirmed, "%s when measured again alone", c.figureText(i, &f, first)))
}

// decided judges a result by a measurement alone, where the first could not be judged because processors were
// busy or samples scattered. A retest that could not be judged either has an error, and lastRetest skips it.
func (c *judgement) decided(i int, first []finding, again *probe.Retest) []finding {
	out := slices.Clone(first)
	for k := range out {
		if out[k].inconclusive() {
			out[k].verdict = probe.Pass
		}
	}
	f := retestFigure(again, &c.r.Spec).decisive()
	f.wide = false
	expected, _ := c.expected(i)
	if class := slow(&f, expected, &c.r.Rules); class > notSlow {
		out = append(out, c.belowExpected(i, &f, class))
	}
	if c.outlier(i, &f) {
		out = append(out, c.belowOthers(i, &f))
	}
	return append(out, found(probe.Pass, probe.CodeAlone, "%s when measured again alone", c.rateText(i, f.mean)))
}

// isSlow says whether a code means that a pair is slow.
func isSlow(code string) bool {
	switch code {
	case probe.CodeBelowFail, probe.CodeBelowWarn, probe.CodeOutlier, probe.CodeLatencyOutlier:
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

// limitName names the link that the expected rate comes from.
func (c *judgement) limitName(i int) string {
	e := &c.r.Results[i].Expected
	switch {
	case e.Limit != "":
		return c.linkName(e.Limit)
	case e.Basis == topo.BasisMeasured:
		return "an earlier measurement"
	}
	return "the way"
}
