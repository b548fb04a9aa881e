// Package judge says what measurements mean: a verdict for each pair, which pairs to
// measure again, and the smallest set of faults that explains those that are slow.
// It is pure: the same report gives the same answer. Its rules are in docs/blame.md.
//
// A run judges as follows:
//
//	judge.Verdicts(r)
//	for again := judge.Retests(r); len(again) > 0; again = judge.Retests(r) {
//		// measure each of again in a round of its own, then
//		judge.AddRetest(r, again[i].ID, measurement)
//		judge.Verdicts(r)
//	}
//	judge.Judge(r)
package judge

import "github.com/topoctl/topoctl/probe"

// Codes of reasons. They are stable: scripts match on them.
const (
	CodeWaived         = "waived"
	CodeError          = "error"
	CodeNotMeasured    = "not-measured"
	CodeNoExpectation  = "no-expectation"  // no rate is expected and no other pair is comparable
	CodeBelowFail      = "below-fail"      // below Rules.FailUnder of the expected rate
	CodeBelowWarn      = "below-warn"      // below Rules.WarnUnder of the expected rate
	CodeOutlier        = "outlier"         // below Rules.OutlierUnder of the best of its group
	CodeLatencyOutlier = "latency-outlier" // above Rules.OutlierOver of the smallest latency of its group
	CodeConfirmed      = "confirmed"       // as bad when measured again alone
	CodeAlone          = "measured-alone"  // the rate alone, where the first measurement could not be judged
	CodeContended      = "contended"       // others, or chance, made it slow: alone it is fine
	CodeWideInterval   = "wide-interval"   // the requested interval was not reached
	CodeBusy           = "busy-processors" // the hosts' processors were too busy to tell
	CodeTooFast        = "faster-than-possible"
	CodeRateLimited    = "rate-limited"   // Spec.RateLimit is below what is expected
	CodeErrorsCounted  = "errors-counted" // error counters moved during the measurement
	CodeLinkDegraded   = "link-degraded"  // slower while it was measured than the topology says
	CodeLinkDown       = "link-down"      // a port was not up while it was measured
)

// Judge fills in verdicts, blame and the summary of a report.
func Judge(r *probe.Report) {
	Verdicts(r)
	r.Blame = Blame(r)
}

// Verdicts fills in Efficiency, OfBest, Verdict and Reasons of each result, and the summary, from its
// measurements and retests. Measurement.Waived and Err become Pair.Waived and Error, which documents
// store. It can be called any number of times.
func Verdicts(r *probe.Report) {
	c := newJudgement(r)
	c.fillLinks()
	for i := range r.Results {
		c.judge(i)
	}
	r.Summary = probe.Count(r.Results)
}
