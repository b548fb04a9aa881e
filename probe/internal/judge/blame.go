package judge

import (
	"cmp"
	"slices"

	"github.com/topoctl/topoctl/probe"
)

// Blame finds the smallest set of faults that explains the bad pairs of a judged report:
// those that failed, those that are slow by a rate that is known, and outliers that a
// retest confirmed. With none there is no blame. An entry without suspects says
// that a bad pair, or all pairs of a kind, cannot be laid to any part.
func Blame(r *probe.Report) []probe.Blame {
	c := newJudgement(r)
	out := []probe.Blame{}
	for _, q := range []*faultSearch{c.search(lowRate, c.showsRate(c.badRate)), c.search(congested, c.showsCongestion), c.search(highLatency, c.showsLatency(c.badLatency))} {
		if q != nil {
			out = append(out, q.blames()...)
		}
	}
	return out
}

// faultSearch is a search for the faults behind one symptom.
type faultSearch struct {
	*judgement
	*evidence
	symptom symptom
}

// symptom is what is wrong with the bad pairs of a search.
type symptom int

const (
	lowRate symptom = iota
	highLatency
	congested
)

// fault is one member of a smallest set, and the parts that may be it.
type fault struct {
	base     int32   // the part that the set holds
	parts    []int32 // ascending
	faults   int     // of the set
	least    int     // no set has fewer
	allAlike bool    // no pair of this kind is healthy, and all are equally slow
}

// blames finds the faults and describes them, those with the most pairs first.
func (q *faultSearch) blames() []probe.Blame {
	var unexplained [][]int32
	var blames []probe.Blame
	for _, b := range q.bad {
		b.explainedBy = q.keep(q.suspects(b))
		if len(b.explainedBy) > 0 {
			unexplained = append(unexplained, b.explainedBy)
		}
	}
	if q.symptom == lowRate {
		blames = q.blameless()
	}
	for _, r := range newRows(unexplained).apart() {
		pairs, alike := q.allAlike(r)
		if alike && r.bound() >= leastForCommonCause {
			blames = append(blames, q.commonCause(pairs))
			continue
		}
		for _, f := range r.faults() {
			f.allAlike = alike && len(pairs) > 1
			blames = append(blames, q.describe(&f))
		}
	}
	if q.symptom == congested {
		blames = q.congestion(blames)
	}
	slices.SortStableFunc(blames, func(a, b probe.Blame) int {
		return cmp.Or(cmp.Compare(min(1, len(b.Suspects)), min(1, len(a.Suspects))), cmp.Compare(len(b.Pairs), len(a.Pairs)), slices.Compare(a.Pairs, b.Pairs))
	})
	return blames
}

// leastCongested is the number of pairs from which one link that all of them cross explains that they were
// slow, though no two were measured at the same time.
const leastCongested = 3

// congestion keeps the entries that there is evidence for: links that pairs crossed at the same time, or one
// link for all. Pairs that were slow once, and have no more in common than that, were so by chance.
func (q *faultSearch) congestion(blames []probe.Blame) []probe.Blame {
	if len(blames) == 1 && len(blames[0].Pairs) == len(q.bad) && len(q.bad) >= leastCongested {
		return blames
	}
	return slices.DeleteFunc(blames, func(b probe.Blame) bool {
		return !slices.ContainsFunc(b.Suspects, func(s probe.Suspect) bool {
			return slices.ContainsFunc(s.Links, func(k probe.LinkKey) bool { return q.sharedLink(k) })
		})
	})
}

// sharedLink says whether pairs crossed a link at the same time.
func (q *faultSearch) sharedLink(key probe.LinkKey) bool {
	for a := range q.atoms {
		if q.seen[a].shared && slices.Contains(q.atoms[a].keys, key) {
			return true
		}
	}
	return false
}

// keep leaves the parts that the search is about: congestion needs a link that at least two of the pairs
// cross, at the same time if there is such a link.
func (q *faultSearch) keep(parts []int32) []int32 {
	if q.symptom != congested {
		return parts
	}
	parts = slices.DeleteFunc(parts, func(p int32) bool { return !isLink(&q.parts[p]) || q.crossings(p) < 2 })
	shared := func(p int32) bool {
		return slices.ContainsFunc(q.parts[p].atoms, func(a int) bool { return q.seen[a].shared })
	}
	if slices.ContainsFunc(parts, shared) {
		parts = slices.DeleteFunc(parts, func(p int32) bool { return !shared(p) })
	}
	return parts
}

// crossings counts the bad pairs that cross a part.
func (q *faultSearch) crossings(p int32) int {
	n := 0
	for _, b := range q.bad {
		if slices.ContainsFunc(q.paths[b.result], func(a int) bool { return slices.Contains(q.parts[p].atoms, a) }) {
			n++
		}
	}
	return n
}

// leastForCommonCause is the number of faults from which a common cause is more likely, if all pairs of a
// group are equally slow: the expected rate, or something that all ends share.
const leastForCommonCause = 3

// allAlike says whether the bad pairs of some rows are all equally slow, and no pair of their groups is
// healthy.
func (q *faultSearch) allAlike(r *rows) (pairs []*bad, alike bool) {
	best := make(map[string]float64) // by group
	for _, b := range q.bad {
		if slices.ContainsFunc(b.explainedBy, func(p int32) bool { return len(r.of[p]) > 0 }) {
			pairs = append(pairs, b)
			best[b.Group] = max(best[b.Group], q.figures[b.result].mean)
		}
	}
	for i := range q.r.Results {
		if _, ok := best[q.r.Results[i].Group]; ok && q.isGood(i) {
			return pairs, false
		}
	}
	for _, b := range pairs {
		if q.symptom == lowRate && q.figures[b.result].mean < q.r.Rules.OutlierUnder*best[b.Group] {
			return pairs, false
		}
	}
	return pairs, q.symptom != highLatency
}
