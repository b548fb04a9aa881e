package show

import (
	"cmp"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
)

// section are the pairs that are shown together: those of one kind, transport and variant.
type section struct {
	kind, transport, variant string
	title                    string
	unit                     units.System // of rates
	latency                  string       // "rtt", "load", "copy", "" none
	nsUnit                   string       // of latencies
	local                    bool
	results                  []*probe.Result // by ID
}

// kindOrder is the order of kinds; those of a newer version follow.
var kindOrder = []string{string(probe.Memory), string(probe.GPU), string(probe.Port)}

func indexOrEnd(list []string, s string) int {
	if i := slices.Index(list, s); i >= 0 {
		return i
	}
	return len(list)
}

// sections groups and sorts the results of a report.
func sections(r *probe.Report, u units.System) []*section {
	results := make([]*probe.Result, len(r.Results))
	for i := range r.Results {
		results[i] = &r.Results[i]
	}
	here := Local(r)
	var out []*section
	for _, alike := range group.By(results, func(x *probe.Result) [3]string { return [3]string{string(x.Kind), x.Transport, x.Variant} }) {
		s := sectionOf(alike[0], here, u)
		for _, x := range alike {
			s.times(x)
		}
		s.results = alike
		slices.SortStableFunc(s.results, func(a, b *probe.Result) int { return topo.NaturalCompare(a.ID, b.ID) })
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(a, b *section) int {
		return cmp.Or(indexOrEnd(kindOrder, a.kind)-indexOrEnd(kindOrder, b.kind), cmp.Compare(a.kind, b.kind),
			topo.NaturalCompare(a.transport, b.transport), topo.NaturalCompare(a.variant, b.variant))
	})
	return out
}

// sectionOf is the section of a result, without results.
func sectionOf(x *probe.Result, local bool, u units.System) *section {
	s := &section{kind: string(x.Kind), transport: x.Transport, variant: x.Variant, local: local, nsUnit: "µs", unit: unitOf(x.Kind, u)}
	s.title = title(clean(s.kind), clean(s.transport), clean(s.variant))
	s.times(x)
	return s
}

// unitOf is the unit of a pair's rates.
func unitOf(kind probe.Kind, u units.System) units.System {
	if kind == probe.Port {
		return u.Or(units.Gbit)
	}
	return u.Or(units.Gbyte)
}

// times sets the kind of latency and its unit from a result.
func (s *section) times(x *probe.Result) {
	if of, _ := x.Typical(); of != "" {
		s.latency, s.nsUnit = of, "µs"
	}
	if s.latency == "load" {
		s.nsUnit = "ns"
	}
}

// title joins what is not empty and no repetition: "memory by cpu, read".
func title(kind, transport, variant string) string {
	text := kind + " by " + transport
	if variant != "" {
		text += ", " + strings.ReplaceAll(variant, "-", " ")
	}
	return text
}

// ns prints a latency in the section's unit, without it.
func (s *section) ns(v int64) string {
	if s.nsUnit == "ns" {
		return number(float64(v))
	}
	return number(float64(v) / 1e3)
}

// rate prints a rate without its unit, "-" if there is none.
func (s *section) rate(x *probe.Result) string {
	b := x.Judged()
	if b == nil {
		return "-"
	}
	return interval(b.MeanBytesPerSec, b.CI95BytesPerSec, s.unit)
}

// samples is how many there are: of bandwidth, and of latency.
func samples(x *probe.Result) string {
	bw, lat := "-", "-"
	if b := x.Judged(); b != nil {
		bw = count(len(b.SamplesBytesPerSec))
	}
	if _, p := x.Typical(); p != nil {
		lat = count(p.N)
	}
	if bw == "-" && lat == "-" {
		return "-"
	}
	return bw + "/" + lat
}

// latencies are the median and the 99th percentile.
func (s *section) latencies(x *probe.Result) string {
	of, p := x.Typical()
	if p == nil || of != s.latency {
		return "-"
	}
	return s.ns(p.P50) + " / " + s.ns(p.P99)
}

// reason is why the verdict is what it is: all reasons where all is set, else the first.
func reason(x *probe.Result, all bool) string {
	var list []string
	if why := x.Why(); why != "" {
		list = append(list, clean(why))
	}
	for i := range x.Reasons {
		if text := clean(x.Reasons[i].Text); text != "" && !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	if len(list) > 1 && !all {
		list = list[:1]
	}
	return strings.Join(list, "; ")
}
