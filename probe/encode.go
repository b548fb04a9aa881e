package probe

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Encode writes the report as a topoctl.probe/v1 document: valid JSON with one host,
// device, link or result on a line, so that two reports diff well. Lists are sorted by
// their stable IDs and never null; a ratio that is no number is null. The report itself
// is left as it is.
func (r *Report) Encode() ([]byte, error) {
	n := r.normal()
	w := document.NewWriter()
	w.Field("schema", Schema)
	w.Field("tool", n.Tool)
	w.Field("mode", n.Mode)
	w.Field("started_at", n.StartedAt)
	w.Field("duration_ns", n.DurationNS)
	w.Field("complete", n.Complete)
	document.WriteList(w, "hosts", n.Hosts)
	w.Field("spec", n.Spec)
	w.Field("rules", n.Rules)
	w.Field("plan", n.Plan)
	document.WriteList(w, "devices", n.Devices)
	document.WriteList(w, "links", n.Links)
	document.WriteList(w, "results", n.Results)
	document.WriteList(w, "blame", n.Blame)
	w.Field("summary", n.Summary)
	if len(n.Notes) > 0 {
		document.WriteList(w, "notes", n.Notes)
	}
	data, err := w.Bytes()
	if err != nil {
		return nil, pkgerr.Errorf("probe", "encode the report: %w", err)
	}
	return data, nil
}

// normal is the report as it is written: sorted, without null lists and without
// figures that JSON has no words for.
func (r *Report) normal() *Report {
	n := *r
	n.Schema, n.StartedAt = Schema, r.StartedAt.UTC()
	n.Hosts = sorted(r.Hosts, func(h *Host) string { return h.Name })
	n.Devices = sorted(r.Devices, func(d *Device) string { return d.Key })
	n.Links = sorted(r.Links, func(l *Link) string { return string(l.Key) })
	n.Results = sorted(r.Results, func(x *Result) string { return x.ID })
	n.Blame = cloned(r.Blame)
	n.Spec.SizesBytes = cloned(r.Spec.SizesBytes)
	for i := range n.Links {
		n.Links[i].On = cloned(n.Links[i].On)
		n.Links[i].Basis = basisOf(n.Links[i].Basis)
	}
	for i := range n.Results {
		n.Results[i].normal()
	}
	for i := range n.Blame {
		b := &n.Blame[i]
		b.Kind = cmp.Or(b.Kind, Fault)
		b.Suspects, b.Pairs, b.Evidence = cloned(b.Suspects), names(b.Pairs), cloned(b.Evidence)
		for k := range b.Suspects {
			b.Suspects[k].Links = cloned(b.Suspects[k].Links)
		}
	}
	return &n
}

// normal does the same for a result, which is a copy already.
func (x *Result) normal() {
	x.Path, x.Reasons, x.Links = cloned(x.Path), cloned(x.Reasons), cloned(x.Links)
	x.Expected.Basis = basisOf(x.Expected.Basis)
	x.Bandwidth = cloned(x.Bandwidth)
	for i := range x.Bandwidth {
		x.Bandwidth[i].SamplesBytesPerSec = cloned(x.Bandwidth[i].SamplesBytesPerSec)
	}
	x.Efficiency, x.OfBest, x.CPUSecondsPerGB = number(x.Efficiency), number(x.OfBest), number(x.CPUSecondsPerGB)
	if x.Verdict == "" { // it was not judged
		x.Verdict = Inconclusive
	}
}

func basisOf(b topo.Basis) topo.Basis {
	if b == "" {
		return topo.BasisUnknown
	}
	return b
}

// number is v, or nil if it is NaN or infinite.
func number(v *float64) *float64 {
	if v != nil && (math.IsNaN(*v) || math.IsInf(*v, 0)) {
		return nil
	}
	return v
}

// cloned is a copy that is never nil.
func cloned[T any](s []T) []T { return append(make([]T, 0, len(s)), s...) }

func sorted[T any](s []T, key func(*T) string) []T {
	s = cloned(s)
	slices.SortStableFunc(s, func(a, b T) int { return topo.NaturalCompare(key(&a), key(&b)) })
	return s
}

func names(s []string) []string {
	s = cloned(s)
	slices.SortFunc(s, topo.NaturalCompare)
	return s
}

// Judged returns the bandwidth that the verdict is based on, that of the largest ops with samples;
// nil if there is none.
func (m *Measurement) Judged() *Bandwidth {
	for i := len(m.Bandwidth) - 1; i >= 0; i-- {
		if len(m.Bandwidth[i].SamplesBytesPerSec) > 0 {
			return &m.Bandwidth[i]
		}
	}
	return nil
}

// Typical returns the latency to show, and what it is of: "rtt", "load" or "copy"; nil if none was
// measured.
func (m *Measurement) Typical() (of string, p *Percentiles) {
	switch l := m.Latency; {
	case l == nil:
	case l.RTT != nil:
		return "rtt", l.RTT
	case l.Load != nil:
		return "load", l.Load
	case l.Copy != nil:
		return "copy", l.Copy
	}
	return "", nil
}

// Why says why the pair was not measured, or not to the end; "" if it was.
func (x *Result) Why() string {
	switch {
	case x.Error != "":
		return x.Error
	case x.Pair.Waived != "":
		return x.Pair.Waived
	}
	return x.Measurement.Waived
}

// Count counts results by verdict.
func Count(results []Result) Summary {
	n := map[Verdict]int{}
	for i := range results {
		n[results[i].Verdict]++
	}
	return Summary{Pass: n[Pass], Measured: n[Measured], Warn: n[Warn], Fail: n[Fail], Inconclusive: n[Inconclusive], Waived: n[Waived], Error: n[Error]}
}

// verdicts are all there are.
func verdicts() []Verdict { return []Verdict{Pass, Measured, Warn, Fail, Inconclusive, Waived, Error} }

// keysOf lists a set's members for an error, the first few.
func keysOf[V any](m map[string]V) string {
	all := slices.Sorted(maps.Keys(m))
	if len(all) > 8 {
		all = append(all[:8], "...")
	}
	return strings.Join(all, ", ")
}
