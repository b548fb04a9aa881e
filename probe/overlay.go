package probe

import (
	"cmp"
	"math"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
)

// Overlay returns the measured rates of a host's links, for path choice to start from.
//
// A link has one where the evidence is about the link itself:
//
//   - It was the expected limit of a pair, and either was seen to carry as much as was
//     expected of it, or the pair passed, or what was expected was typical or a
//     bound and no fault elsewhere explains the pair.
//   - Or it was blamed alone: as a link or a direction, or as part of the only suspect
//     while it was the limit of a pair.
//
// The figure is the largest mean that was seen to cross the link, and of its two
// directions the smaller one, because an overlay has one figure for both. A link that
// merely lies on the way of fast pairs has none, and neither has the limit of a slow
// pair for which something else, or nothing, was blamed: a bad remote end says nothing
// of the link here. Only pairs that were measured without contention count: alone, or
// with none that shares a link with them; of pairs whose way is not wholly known, only
// those that passed or met no other such pair. The variants that move bytes both ways
// at once, or count them twice, do not count, and neither do sizes of ops below the
// largest that was asked for, all that a pair has that was interrupted.
func (r *Report) Overlay(host string) topo.Overlay {
	e := newEvidence(r)
	rates := topo.Overlay{}
	for i := range r.Links {
		l := &r.Links[i]
		if l.Host != host || host == "" {
			continue
		}
		rate, ok := e.rate(l)
		if !ok {
			continue
		}
		if was, found := rates[l.Link]; !found || rate < was {
			rates[l.Link] = rate
		}
	}
	return rates
}

// evidence is what a report says of directed links.
type evidence struct {
	seen    map[LinkKey]topo.Rate // the largest mean that crossed it
	limits  map[LinkKey][]*Result // pairs without contention whose expected limit it is
	culprit map[LinkKey]string    // kind of the only suspect that it belongs to
	blamed  map[string]bool       // pairs that a fault explains
}

func newEvidence(r *Report) *evidence {
	e := &evidence{seen: map[LinkKey]topo.Rate{}, limits: map[LinkKey][]*Result{}, culprit: map[LinkKey]string{}, blamed: map[string]bool{}}
	for i := range r.Blame {
		b := &r.Blame[i]
		for _, id := range b.Pairs {
			e.blamed[id] = true
		}
		if len(b.Suspects) != 1 {
			continue
		}
		for _, k := range b.Suspects[0].Links {
			e.culprit[k] = b.Suspects[0].Kind
		}
	}
	users := usageByRound(r)
	for i := range r.Results {
		x := &r.Results[i]
		mean, ok := x.uncontended(r, users[x.Round])
		if !ok {
			continue
		}
		for _, k := range x.Path {
			e.seen[k] = max(e.seen[k], mean)
		}
		if k := x.Expected.Limit; k != "" && slices.Contains(x.Path, k) {
			e.limits[k] = append(e.limits[k], x)
		}
	}
	return e
}

// rate is what a directed link was seen to carry, where that says something of it.
func (e *evidence) rate(l *Link) (topo.Rate, bool) {
	seen := e.seen[l.Key]
	if seen <= 0 {
		return 0, false
	}
	limits := e.limits[l.Key]
	switch kind := e.culprit[l.Key]; {
	case kind == "link" || kind == "direction":
		return seen, true
	case len(limits) == 0:
		return 0, false
	case kind != "", l.BytesPerSec == nil, seen >= *l.BytesPerSec:
		return seen, true
	}
	guess := !l.Basis.Sure()
	for _, x := range limits {
		if x.Verdict == Pass || guess && x.Verdict != Fail && !e.blamed[x.ID] {
			return seen, true
		}
	}
	return 0, false
}

// uncontended is the mean of a pair that had its way for itself; ok is false where it
// had not, or where nothing was measured to the end.
func (x *Result) uncontended(r *Report, round *usage) (mean topo.Rate, ok bool) {
	if x.Variant == VariantBothWays || x.Variant == VariantCopy || x.Verdict == Error || x.Verdict == Waived || x.Error != "" {
		return 0, false
	}
	for i := range x.Retests {
		if t := &x.Retests[i]; t.How == RetestAlone && t.Pair == x.ID && t.BytesPerSec != nil {
			mean, ok = max(mean, topo.Rate(*t.BytesPerSec)), true
		}
	}
	b := x.largest(&r.Spec)
	if b == nil || round == nil || b.Stopped == StoppedError || r.Plan.Contend != "" && round.pairs > 1 {
		return mean, ok
	}
	if !x.PathKnown && round.unknown > 1 && x.Verdict != Pass || slices.ContainsFunc(x.Path, func(k LinkKey) bool { return round.links[k] > 1 }) {
		return mean, ok // others may have slowed it
	}
	return max(mean, topo.Rate(b.MeanBytesPerSec)), true
}

// largest is what was measured to the end with the largest ops that were asked for; nil
// where a run was stopped before. Smaller ones say little of what a link carries.
func (m *Measurement) largest(spec *Spec) *Bandwidth {
	b, asked := m.Judged(), spec.SizesBytes
	if b == nil || b.Stopped == StoppedInterrupted || len(asked) > 0 && b.SizeBytes < asked[len(asked)-1] {
		return nil
	}
	return b
}

// usage is what the pairs of a round have in common.
type usage struct {
	pairs, unknown int             // all, and those of which a part of the way is not known
	links          map[LinkKey]int // how many pairs cross each
}

// usageByRound counts which pairs were measured together, by round.
func usageByRound(r *Report) map[int]*usage {
	out := map[int]*usage{}
	for i := range r.Results {
		x := &r.Results[i]
		if x.Round < 1 {
			continue
		}
		u := out[x.Round]
		if u == nil {
			u = &usage{links: map[LinkKey]int{}}
			out[x.Round] = u
		}
		u.pairs++
		if !x.PathKnown {
			u.unknown++
		}
		for j, k := range x.Path {
			if !slices.Contains(x.Path[:j], k) {
				u.links[k]++
			}
		}
	}
	return out
}

// Between returns the largest mean that was measured from one node of a host to another, with the
// largest ops of the Spec. The variants that move bytes both ways at once, or count them twice, do
// not count.
func (r *Report) Between(host string) map[[2]topo.ID]topo.Rate {
	out := map[[2]topo.ID]topo.Rate{}
	for i := range r.Results {
		x := &r.Results[i]
		b := x.largest(&r.Spec)
		if x.From.Host != host || x.To.Host != host || b == nil || x.Variant == VariantBothWays || x.Variant == VariantCopy || x.Verdict == Error {
			continue
		}
		k := [2]topo.ID{x.From.Node, x.To.Node}
		out[k] = max(out[k], topo.Rate(b.MeanBytesPerSec))
	}
	return out
}

// levelWithin is the part of a rate within which rates count as equal: that by which a
// pair may be behind its equals and is no outlier (DefaultRules).
const levelWithin = 0.07

// Level removes noise from measured rates before paths are chosen by them. Choices depend on which
// ports are equal, and small differences would separate equal ports, and their rails with them.
//
//   - A link that was seen to carry what was read of it, within 7 %, is left out: it is as
//     good as its equals that were not measured, which have the rate that was read.
//   - Links of a host that are of one kind, should carry the same, and were measured within
//     7 % of the fastest of them, all have their mean.
func Level(rates topo.Overlay, t *topo.Topology) topo.Overlay {
	type alike struct {
		kind  topo.LinkKind
		known bool
		rate  topo.Rate
	}
	groups := map[alike][]topo.LinkID{}
	for i := range t.Links {
		l := &t.Links[i]
		if rate, ok := rates[l.ID]; !ok || carries(l, rate) {
			continue
		}
		k := alike{kind: l.Kind, known: l.BytesPerSec != nil}
		if k.known {
			k.rate = *l.BytesPerSec
		}
		groups[k] = append(groups[k], l.ID)
	}
	out := topo.Overlay{}
	for _, ids := range groups {
		slices.SortFunc(ids, func(a, b topo.LinkID) int { return cmp.Or(cmp.Compare(rates[b], rates[a]), cmp.Compare(a, b)) })
		for len(ids) > 0 {
			n, sum := 0, topo.Rate(0)
			for n < len(ids) && float64(rates[ids[n]]) >= (1-levelWithin)*float64(rates[ids[0]]) {
				sum += rates[ids[n]]
				n++
			}
			for _, id := range ids[:n] {
				out[id] = sum / topo.Rate(n)
			}
			ids = ids[n:]
		}
	}
	return out
}

// carries says whether a measured rate is the one that was read of a link.
func carries(l *topo.Link, measured topo.Rate) bool {
	if l.BytesPerSec == nil || l.Basis != topo.BasisRead {
		return false
	}
	of := Link{Kind: l.Kind, BytesPerSec: l.BytesPerSec, Basis: l.Basis}
	read := float64(*of.Payload())
	return math.Abs(float64(measured)-read) <= levelWithin*read
}
