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
