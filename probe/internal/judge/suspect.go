package judge

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/probe"
)

// describe makes the entry of one fault.
func (q *faultSearch) describe(f *fault) probe.Blame {
	var pairs []*bad
	for _, b := range q.bad {
		if slices.Contains(b.explainedBy, f.base) {
			pairs = append(pairs, b)
		}
	}
	parts, sign := q.narrowed(q.distinct(f), pairs)
	b := probe.Blame{Kind: q.kind(), Suspects: make([]probe.Suspect, 0, len(parts)), Pairs: idsOf(pairs)}
	for _, p := range parts {
		b.Suspects = append(b.Suspects, q.suspect(p))
	}
	b.Evidence = q.evidenceOf(f, pairs, sign)
	if len(parts) > 1 {
		b.Next = q.nextStep(parts)
	}
	return b
}

// kind is what the entries of this search are about.
func (q *faultSearch) kind() probe.BlameKind {
	if q.symptom == congested {
		return probe.Congestion
	}
	return probe.Fault
}

// idsOf are the IDs of bad pairs, sorted.
func idsOf(pairs []*bad) []string {
	ids := make([]string, 0, len(pairs))
	for _, b := range pairs {
		ids = append(ids, b.ID)
	}
	slices.Sort(ids)
	return ids
}

// distinct keeps one part of each link and device: the one that the set holds, else the only direction that
// explains the pairs, or the whole if each direction would.
func (q *faultSearch) distinct(f *fault) []int32 {
	of := make(map[string][]int32)
	for _, p := range f.parts {
		of[q.parts[p].component] = append(of[q.parts[p].component], p)
	}
	var out []int32
	for _, same := range of {
		slices.SortFunc(same, func(a, b int32) int {
			return cmp.Or(cmp.Compare(len(q.parts[a].atoms), len(q.parts[b].atoms)), cmp.Compare(a, b))
		})
		switch {
		case len(same) == 3:
			out = append(out, same[2])
		case slices.Contains(same, f.base):
			out = append(out, f.base)
		default:
			out = append(out, same[0])
		}
	}
	slices.SortFunc(out, func(a, b int32) int {
		x, y := &q.parts[a], &q.parts[b]
		return cmp.Or(cmp.Compare(kindRank(x.kind), kindRank(y.kind)), cmp.Compare(x.key, y.key))
	})
	return out
}

// narrowed keeps the suspected links whose own error counters or state point at them. If all of them have
// such signs, or none has, they do not tell suspects apart.
func (q *faultSearch) narrowed(parts []int32, pairs []*bad) ([]int32, []string) {
	signs, losses := make(map[string]string), make(map[string]string) // by component
	for _, b := range pairs {
		for j := range b.Links {
			link := &b.Links[j]
			if sign := q.troubleOf(link); sign != "" {
				signs[q.componentOf(link.Link)] = sign
			} else if _, soft := counterTexts(link.Counters); len(soft) > 0 {
				losses[q.componentOf(link.Link)] = fmt.Sprintf("%s counted, which does not single out a suspect: %s", q.linkName(link.Link), text.List(soft, mostCounters))
			}
		}
	}
	var some []int32
	var texts []string
	links := 0
	for _, p := range parts {
		if !isLink(&q.parts[p]) {
			continue
		}
		links++
		if text := signs[q.parts[p].component]; text != "" {
			some = append(some, p)
			texts = append(texts, text)
		} else if text := losses[q.parts[p].component]; text != "" {
			texts = append(texts, text)
		}
	}
	slices.Sort(texts)
	if len(some) == 0 || len(some) == links && links > 1 {
		return parts, slices.Compact(texts)
	}
	return some, slices.Compact(texts)
}

// troubleOf is what a link's own state or counters say against it, "" nothing.
func (q *faultSearch) troubleOf(st *probe.LinkState) string {
	if text, _ := q.linkTrouble(st); text != "" {
		return text
	}
	if hard, _ := counterTexts(st.Counters); len(hard) > 0 {
		return fmt.Sprintf("%s counted errors: %s", q.linkName(st.Link), text.List(hard, mostCounters))
	}
	return ""
}

func (q *faultSearch) componentOf(key probe.LinkKey) string {
	if l := q.links[key]; l != nil {
		return component(l)
	}
	return ""
}

// suspect is a part as reports name it.
func (q *faultSearch) suspect(p int32) probe.Suspect {
	part := &q.parts[p]
	s := probe.Suspect{Kind: part.kind, Key: part.key, Name: q.partName(part), Links: make([]probe.LinkKey, 0, len(part.atoms))}
	for _, a := range part.atoms {
		s.Links = append(s.Links, q.atoms[a].keys...)
	}
	slices.Sort(s.Links)
	if most := q.largestOf(part); most > 0 && q.symptom != highLatency {
		rate := topo.Rate(math.Round(most))
		s.BytesPerSec = &rate
	}
	return s
}

// partName names a part for people.
func (q *faultSearch) partName(p *part) string {
	l := q.atoms[p.atoms[0]].link
	switch p.kind {
	case kindLink:
		return q.linkName(l.Key)
	case kindDirection:
		return q.linkName(l.Key) + ", " + directionText(l.Kind, l.Direction)
	}
	name := clean(p.key)
	for i := range q.r.Devices {
		if q.r.Devices[i].Key == p.key {
			name = clean(q.r.Devices[i].Name)
		}
	}
	if p.direction == "" {
		return name
	}
	kind := topo.LinkKind("")
	if p.kind == "nic" || p.kind == "host" {
		kind = topo.LinkPort
	}
	return name + ", " + directionText(kind, p.direction)
}

// evidenceOf lists the figures that speak against a fault, and those that clear other parts.
func (q *faultSearch) evidenceOf(f *fault, pairs []*bad, sign []string) []string {
	out := []string{q.summary(pairs)}
	if cleared := q.cleared(f, pairs); cleared != "" {
		out = append(out, cleared)
	}
	if q.symptom == congested {
		out = append(out, q.sharedLoad(&q.parts[f.base])...)
	}
	out = append(out, sign...)
	if n := unknownPaths(pairs); n > 0 {
		out = append(out, fmt.Sprintf("%s of them cross links that the topology does not know: one of those may be at fault too", text.Plural(n, "pair")))
	}
	if f.allAlike {
		out = append(out, "no pair of their kind is healthy, and all are equally slow: the cause may be something that all share")
	}
	if f.faults >= leastGreedy {
		out = append(out, fmt.Sprintf("found by greedy search: %s here, at least %d needed", text.Plural(f.faults, "fault"), f.least))
	}
	return out
}

// summary says what is wrong with the pairs.
func (q *faultSearch) summary(pairs []*bad) string {
	lo, hi := math.Inf(1), 0.0
	broken := 0
	for _, b := range pairs {
		f := &q.figures[b.result]
		v := f.mean
		switch {
		case q.symptom == highLatency:
			v = f.latency
		case b.Verdict == probe.Error:
			broken++
			continue
		}
		lo, hi = min(lo, v), max(hi, v)
	}
	n := len(pairs) - broken
	switch {
	case q.symptom == highLatency:
		return fmt.Sprintf("late: %s, median %s; rates are fine", text.Plural(n, "pair"), text.Range(ns(lo), ns(hi)))
	case q.symptom == congested:
		return fmt.Sprintf("congested, not broken: %s slow while other pairs run, %s, but fine when measured alone", text.Plural(n, "pair"), text.Range(q.rateOf(lo), q.rateOf(hi)))
	case n == 0:
		return "failed with an error: " + text.Plural(broken, "pair")
	}
	text := fmt.Sprintf("slow: %s, %s", text.Plural(n, "pair"), text.Range(q.rateOf(lo), q.rateOf(hi)))
	if w, ok := q.expectedText(pairs); ok {
		text += " of " + w + " expected"
	}
	if broken > 0 {
		text += fmt.Sprintf("; %d more failed with an error", broken)
	}
	return text
}

// expectedText is what is expected of the pairs, if it is the same for all.
func (q *faultSearch) expectedText(pairs []*bad) (string, bool) {
	first, _ := q.expected(pairs[0].result)
	for _, b := range pairs[1:] {
		if e, _ := q.expected(b.result); e != first {
			return "", false
		}
	}
	return q.rateOf(first), first > 0
}

// cleared names links on the paths of the pairs that others have shown to carry more.
func (q *faultSearch) cleared(f *fault, pairs []*bad) string {
	suspect := make(map[int]bool)
	for _, p := range f.parts {
		for _, a := range q.parts[p].atoms {
			suspect[a] = true
		}
	}
	seen := make(map[int]bool)
	var clear []int
	for _, b := range pairs {
		for j, a := range q.paths[b.result] {
			if !suspect[a] && !seen[a] && q.clears(a, b.hi[j]) {
				seen[a] = true
				clear = append(clear, a)
			}
		}
	}
	if len(clear) == 0 {
		return ""
	}
	slices.SortFunc(clear, func(a, b int) int { return cmp.Compare(q.atoms[a].link.Key, q.atoms[b].link.Key) })
	if q.symptom == highLatency {
		return fmt.Sprintf("%s on the path answered in time for other pairs, %s among them", text.Plural(len(clear), "link"), q.linkName(q.atoms[clear[0]].link.Key))
	}
	l := q.atoms[clear[0]].link
	return fmt.Sprintf("%s on the path carried more for other pairs, among them %s (%s): %s", text.Plural(len(clear), "link"),
		q.linkName(l.Key), directionText(l.Kind, l.Direction), q.rateOf(q.seen[clear[0]].largest))
}

// sharedLoad says that a link which several pairs used at once never carried what it should. It may be
// slower than the topology says, and not only busy.
func (q *faultSearch) sharedLoad(p *part) []string {
	l, most := q.atoms[p.atoms[0]].link, q.largestOf(p)
	if l.BytesPerSec == nil || most >= q.r.Rules.WarnUnder*float64(*l.BytesPerSec) {
		return nil
	}
	return []string{fmt.Sprintf("together they had at most %s of the %s of %s: other traffic is on it, or it is slower than that", q.rateOf(most), q.rateOf(float64(*l.BytesPerSec)), q.linkName(l.Key))}
}

func unknownPaths(pairs []*bad) int {
	n := 0
	for _, b := range pairs {
		if !b.PathKnown {
			n++
		}
	}
	return n
}

// nextStep says which measurement would tell the suspects apart.
func (q *faultSearch) nextStep(parts []int32) string {
	wire, inside := -1, false
	for _, p := range parts {
		switch l := q.atoms[q.parts[p].atoms[0]].link; {
		case !isLink(&q.parts[p]):
		case l.Kind == topo.LinkPort && wire < 0:
			wire = q.parts[p].atoms[0]
		case l.Kind == topo.LinkPCIe:
			inside = true
		}
	}
	a, b := &q.parts[parts[0]], &q.parts[parts[1]]
	switch id := q.unmeasuredPair(a, b); {
	case id != "":
		return "measure " + id + ": it crosses only one of them"
	case wire >= 0 && inside && q.symptom != congested:
		return "measure a loopback of the NIC: it crosses PCIe and not " + q.linkName(q.atoms[wire].link.Key) + "; if that is fine, try another cable"
	case wire >= 0 && q.symptom != congested:
		return "try another cable at " + q.linkName(q.atoms[wire].link.Key)
	}
	return fmt.Sprintf("measure a pair that crosses %s and not %s, or the other way round", q.partName(a), q.partName(b))
}

func isLink(p *part) bool { return p.kind == kindDirection || p.kind == kindLink }

// unmeasuredPair is a pair of the report that was not measured and that crosses only one of two parts.
func (q *faultSearch) unmeasuredPair(a, b *part) string {
	crosses := func(p *part, path []probe.LinkKey) bool {
		return slices.ContainsFunc(p.atoms, func(at int) bool {
			return slices.ContainsFunc(q.atoms[at].keys, func(k probe.LinkKey) bool { return slices.Contains(path, k) })
		})
	}
	for i := range q.r.Results {
		res := &q.r.Results[i]
		if f := &q.figures[i]; f.measured || f.latency > 0 || res.Pair.Waived != "" || res.Error != "" {
			continue
		}
		if crosses(a, res.Path) != crosses(b, res.Path) {
			return clean(res.ID)
		}
	}
	return ""
}

// certain says whether a bad pair is slow by more than noise between pairs would make it, even if no part
// of its path explains it.
func (c *judgement) certain(i int) bool {
	return c.dead(i) || !c.hasReason(i, probe.CodeOutlier) || c.r.Results[i].Expected.Basis.Sure() || c.farBelowBest(i)
}

// blameless are entries for bad pairs all of whose links carried more for others: one for those whose path
// is known, and one for those whose path is not.
func (q *faultSearch) blameless() []probe.Blame {
	var pairs [2][]*bad
	for _, b := range q.bad {
		if len(b.explainedBy) == 0 && q.certain(b.result) {
			known := 0
			if !b.PathKnown {
				known = 1
			}
			pairs[known] = append(pairs[known], b)
		}
	}
	const verb = "carried clearly more"
	var out []probe.Blame
	for i, text := range []struct{ evidence, next string }{
		{"every link on the path " + verb + " for other pairs: no part of the topology explains it",
			"measure alone again, and look at the processors of both ends and at how their traffic is routed"},
		{"every link of the path that is known " + verb + " for other pairs: the cause lies between them, outside the topology",
			"describe the fabric between the ends"},
	} {
		if len(pairs[i]) > 0 {
			out = append(out, probe.Blame{Kind: probe.Fault, Suspects: []probe.Suspect{}, Pairs: idsOf(pairs[i]),
				Evidence: []string{q.summary(pairs[i]), text.evidence}, Next: text.next})
		}
	}
	return out
}

// commonCause is the entry for pairs that are all equally slow.
func (q *faultSearch) commonCause(pairs []*bad) probe.Blame {
	b := probe.Blame{Kind: q.kind(), Suspects: []probe.Suspect{}, Pairs: idsOf(pairs)}
	lo, hi := math.Inf(1), 0.0
	for _, p := range pairs {
		lo, hi = min(lo, q.figures[p.result].mean), max(hi, q.figures[p.result].mean)
	}
	rates := text.Range(q.rateText(pairs[0].result, lo), q.rateText(pairs[0].result, hi))
	b.Evidence = []string{fmt.Sprintf("all %d pairs of their kind are equally slow, %s: a common cause, no single part", len(pairs), rates)}
	b.Next = "look at what all ends share: processors, settings (MTU, queues), the version of what moves the bytes, and whether the expected rate is realistic"
	if q.symptom == congested {
		b.Evidence = []string{fmt.Sprintf("congested, not broken: all %d pairs of their kind are slow while other pairs run, %s, but fine when measured alone: no single link", len(pairs), rates)}
		b.Next = "measure one pair at a time, and look at what the pairs of a round share: processors, memory, links that the topology does not know"
	}
	return b
}
