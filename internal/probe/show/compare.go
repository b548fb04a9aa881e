package show

import (
	"cmp"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/probe"
)

// Kind says what differs between two reports.
type Kind string

// The changes, in the order in which they are listed.
const (
	Settings    Kind = "settings"     // how the runs measured or judged
	Topology    Kind = "topology"     // a host is built otherwise: its fingerprint differs
	Gone        Kind = "gone"         // a host or pair that only the first report has
	New         Kind = "new"          // one that only the second has
	Verdict     Kind = "verdict"      // a pair's verdict
	Slower      Kind = "slower"       // the intervals do not overlap, and it is more than leastChange
	Faster      Kind = "faster"       // the same
	NotCompared Kind = "not-compared" // rates that cannot be compared
)

// leastChange is the part of the old rate below which a difference does not count.
const leastChange = 0.02

// Change is one difference between two reports, A and B.
type Change struct {
	Kind Kind `json:"kind"`
	// Setting is what the runs were told differently, and what each was told.
	Setting  string `json:"setting,omitempty"`
	ASetting string `json:"a_setting,omitempty"`
	BSetting string `json:"b_setting,omitempty"`

	Host string     `json:"host,omitempty"` // of a host
	Pair string     `json:"pair,omitempty"` // its ID
	Of   probe.Kind `json:"pair_kind,omitempty"`
	// SizeBytes is the size of the ops whose rates were compared; nil none were.
	SizeBytes *int64 `json:"size_bytes"`
	// The means, and the half widths of their 95 % intervals; nil not measured.
	A     *int64 `json:"a_bytes_per_sec"`
	ACI95 *int64 `json:"a_ci95_bytes_per_sec"`
	B     *int64 `json:"b_bytes_per_sec"`
	BCI95 *int64 `json:"b_ci95_bytes_per_sec"`
	// The verdicts of a pair, "" if a report does not have it.
	AVerdict probe.Verdict `json:"a_verdict,omitempty"`
	BVerdict probe.Verdict `json:"b_verdict,omitempty"`
	// Reason is B's reason for its verdict, or why rates were not compared.
	Reason string `json:"reason,omitempty"`
}

// Reports says what differs from report a to report b: by kind, then by name. Rates are compared at the
// largest size that both measured, and only where both have an interval and were measured alike; verdicts
// only where they were given alike.
func Reports(a, b *probe.Report) []Change {
	var out []Change
	add := func(c Change) { out = append(out, c) }
	for _, t := range told {
		if old, now := t.text(a), t.text(b); old != now {
			add(Change{Kind: Settings, Setting: t.name, ASetting: old, BSetting: now})
		}
	}
	match(a.Hosts, b.Hosts, func(h *probe.Host) string { return h.Name }, func(name string, old, now *probe.Host) {
		switch {
		case old == nil:
			add(Change{Kind: New, Host: name})
		case now == nil:
			add(Change{Kind: Gone, Host: name})
		case old.Fingerprint != now.Fingerprint && old.Fingerprint != "" && now.Fingerprint != "":
			add(Change{Kind: Topology, Host: name})
		}
	})
	onlyA, onlyB, alike := only(a, b), only(b, a), judgedAlike(a, b)
	match(a.Results, b.Results, func(x *probe.Result) string { return x.ID }, func(id string, old, now *probe.Result) {
		switch {
		case old == nil && otherTransport(onlyA, now) != "":
			return // the other transport's pair says so
		case old == nil:
			add(Change{Kind: New, Pair: id, Of: now.Pair.Kind, BVerdict: now.Verdict, Reason: compareReason(now)})
			return
		case now == nil && otherTransport(onlyB, old) != "":
			add(Change{Kind: NotCompared, Pair: id, Of: old.Pair.Kind, AVerdict: old.Verdict,
				Reason: "measured over " + old.Transport + " and over " + otherTransport(onlyB, old)})
			return
		case now == nil:
			add(Change{Kind: Gone, Pair: id, Of: old.Pair.Kind, AVerdict: old.Verdict})
			return
		}
		why := differently(a, b, old, now)
		if why == "" && alike && old.Verdict != now.Verdict {
			add(Change{Kind: Verdict, Pair: id, Of: now.Pair.Kind, AVerdict: old.Verdict, BVerdict: now.Verdict, Reason: compareReason(now)})
		}
		if c, ok := compareRates(old, now, why); ok {
			add(c)
		}
	})
	order := []Kind{Settings, Topology, Gone, New, Verdict, Slower, Faster, NotCompared}
	slices.SortFunc(out, func(x, y Change) int {
		// A host has no pair, so hosts come first.
		return cmp.Or(slices.Index(order, x.Kind)-slices.Index(order, y.Kind), topo.NaturalCompare(x.Pair, y.Pair), topo.NaturalCompare(x.Host, y.Host), cmp.Compare(x.Setting, y.Setting))
	})
	return out
}

// match calls do for each key of two lists with what they have of it, nil for nothing.
func match[T any](a, b []T, key func(*T) string, do func(key string, old, now *T)) {
	was := map[string]*T{}
	for i := range a {
		was[key(&a[i])] = &a[i]
	}
	for i := range b {
		name := key(&b[i])
		do(name, was[name], &b[i])
		delete(was, name)
	}
	for name, old := range was {
		do(name, old, nil)
	}
}

// compareRates compares the rates of one pair; ok is false if they do not differ. why says what about the runs
// forbids it, "" nothing.
func compareRates(old, now *probe.Result, why string) (c Change, ok bool) {
	if old.Judged() == nil || now.Judged() == nil {
		return c, false // the verdicts say so
	}
	c = Change{Kind: NotCompared, Pair: now.ID, Of: now.Pair.Kind, AVerdict: old.Verdict, BVerdict: now.Verdict}
	x, y := common(old, now)
	if why != "" {
		c.Reason = why
		return c, true
	}
	if x == nil {
		c.Reason = "no size was measured in both"
		return c, true
	}
	size, from, to := x.SizeBytes, x.MeanBytesPerSec, y.MeanBytesPerSec
	c.SizeBytes, c.A, c.ACI95, c.B, c.BCI95 = &size, &from, x.CI95BytesPerSec, &to, y.CI95BytesPerSec
	if c.ACI95 == nil || c.BCI95 == nil {
		c.Reason = "fewer than two samples: no interval"
		return c, true
	}
	apart := max(from-to, to-from)
	if apart <= *c.ACI95+*c.BCI95 || float64(apart) <= leastChange*float64(from) {
		return c, false
	}
	c.Kind = Faster
	if to < from {
		c.Kind = Slower
		c.Reason = compareReason(now)
	}
	return c, true
}

// common is the bandwidth of the largest size that both have samples of.
func common(a, b *probe.Result) (x, y *probe.Bandwidth) {
	for i := len(a.Bandwidth) - 1; i >= 0; i-- {
		for k := range b.Bandwidth {
			x, y := &a.Bandwidth[i], &b.Bandwidth[k]
			if x.SizeBytes == y.SizeBytes && len(x.SamplesBytesPerSec) > 0 && len(y.SamplesBytesPerSec) > 0 {
				return x, y
			}
		}
	}
	return nil, nil
}

// compareReason is the first reason of a verdict, "" none.
func compareReason(x *probe.Result) string {
	if why := x.Why(); why != "" || len(x.Reasons) == 0 {
		return why
	}
	return x.Reasons[0].Text
}

// Differ says whether one of the changes is a difference.
func Differ(changes []Change) bool { return slices.ContainsFunc(changes, IsDifference) }

// IsDifference says whether a change counts: other settings, and rates that were not compared, do not.
func IsDifference(c Change) bool { return c.Kind != NotCompared && c.Kind != Settings }

// Schema is the name and major version of a comparison.
const Schema = "topoctl.probe-diff/v1"

// Document is a comparison of two reports as a document.
type Document struct {
	Schema string `json:"schema"`
	// A and B say where the reports came from.
	A     string `json:"a"`
	B     string `json:"b"`
	Equal bool   `json:"equal"` // what was not compared is no difference
	// Complete says whether both runs were.
	Complete bool     `json:"complete"`
	Changes  []Change `json:"changes"`
}

// NewDocument compares two reports and names them.
func NewDocument(a, b *probe.Report, nameA, nameB string) *Document {
	d := &Document{Schema: Schema, A: nameA, B: nameB, Complete: a.Complete && b.Complete, Changes: append([]Change{}, Reports(a, b)...)}
	d.Equal = !Differ(d.Changes)
	return d
}
