package show

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
)

// reportLinks are the links of a report, and which of them are suspects of each pair's faults.
type reportLinks struct {
	links    map[probe.LinkKey]*probe.Link
	suspects map[string]map[probe.LinkKey]bool // by pair
}

func newReportLinks(r *probe.Report) *reportLinks {
	k := &reportLinks{map[probe.LinkKey]*probe.Link{}, map[string]map[probe.LinkKey]bool{}}
	for i := range r.Links {
		k.links[r.Links[i].Key] = &r.Links[i]
	}
	for i := range r.Blame {
		b := &r.Blame[i]
		of := map[probe.LinkKey]bool{}
		for j := range b.Suspects {
			for _, l := range b.Suspects[j].Links {
				of[l] = true
			}
		}
		for _, id := range b.Pairs {
			k.suspects[id] = of
		}
	}
	return k
}

// figures is a table with a name in the first column, and figures in the others but for the last ones, which are words.
func figures(head []string, words int) *report.Table {
	t := &report.Table{Head: head, Columns: make([]text.Column, len(head))}
	for i := 1; i < len(head)-words; i++ {
		t.Columns[i].Right = true
	}
	return t
}

// detail is everything that is known of a pair.
func (s *section) detail(x *probe.Result, k *reportLinks) []report.Section {
	var why, again []string
	if text := x.Why(); text != "" {
		why = append(why, text)
	}
	for _, w := range x.Reasons {
		why = append(why, w.Code+": "+w.Text)
	}
	for i := range x.Retests {
		again = append(again, s.retest(&x.Retests[i]))
	}
	way := report.Section{Title: "way", Table: s.way(x, k)}
	if !x.PathKnown {
		way.Lines = []string{"not known completely"}
	}
	return withContent([]report.Section{
		{Table: s.facts(x)}, {Title: "why", Lines: why}, {Title: "sizes of ops", Table: s.sizes(x)},
		{Title: "latency, " + s.nsUnit, Table: s.percentiles(x)}, way, {Title: "measured again", Lines: again},
	})
}

// facts are what is known besides the figures.
func (s *section) facts(x *probe.Result) *report.Table {
	out := &report.Table{}
	add := func(name, value string) {
		if value != "" {
			out.Add(name, value)
		}
	}
	add("id", x.ID)
	add("kind", s.title)
	if x.Judged() != nil {
		rate := s.rate(x) + " " + s.unit.Suffix()
		if x.Efficiency != nil {
			rate += ", " + percent(x.Efficiency) + " of what is expected"
		}
		add("rate", rate)
	}
	want := "nothing is known"
	if x.Expected.BytesPerSec != nil {
		want = units.Rate(int64(*x.Expected.BytesPerSec), s.unit) + ": " + x.Expected.Why
	}
	add("expected", want)
	if x.OfBest != nil {
		add("of the best of its group", percent(x.OfBest))
	}
	add("class", classText(&x.Pair))
	for _, e := range []struct {
		name string
		end  *probe.End
	}{{"from", &x.From}, {"to", &x.To}} {
		text := endName(e.end, s.local)
		if e.end.Location != "" {
			text += ", memory of " + string(e.end.Location)
		}
		add(e.name, text)
	}
	if x.Round > 0 {
		add("round", fmt.Sprint(x.Round))
	}
	b := &x.Binding
	var where []string
	if b.Threads > 0 {
		where = append(where, text.Plural(b.Threads, "thread"))
	}
	if b.CPUs != "" {
		where = append(where, "CPUs "+b.CPUs)
	}
	if b.FromMemory != nil {
		where = append(where, fmt.Sprintf("from memory of NUMA node %d", *b.FromMemory))
	}
	if b.ToMemory != nil {
		where = append(where, fmt.Sprintf("to memory of NUMA node %d", *b.ToMemory))
	}
	add("bound to", strings.Join(where, ", "))
	if x.CPUSecondsPerGB != nil {
		add("processor time", number(*x.CPUSecondsPerGB)+" s per GB, both ends")
	}
	for _, n := range x.Notes {
		add("note", n)
	}
	return out
}

// ended says why there are not more samples.
var ended = map[string]string{
	probe.StoppedCI: "interval narrow enough", probe.StoppedMaxSamples: "maximum number of samples, interval still wide", probe.StoppedTime: "out of time",
}

// sizes are the results by size of op, with the samples in their order.
func (s *section) sizes(x *probe.Result) *report.Table {
	t := figures([]string{"op", "mean", "median", "n", "samples", ""}, 2)
	for i := range x.Bandwidth {
		b := &x.Bandwidth[i]
		mean, median := "-", "-"
		if len(b.SamplesBytesPerSec) > 0 {
			mean, median = interval(b.MeanBytesPerSec, b.CI95BytesPerSec, s.unit)+" "+s.unit.Suffix(), units.RateNumber(b.MedianBytesPerSec, s.unit)
		}
		why := ended[b.Stopped]
		if why == "" {
			why = b.Stopped
		}
		t.Add(units.Bytes(b.SizeBytes), mean, median, count(len(b.SamplesBytesPerSec)), report.Spark(b.SamplesBytesPerSec), why)
	}
	return t
}

func (s *section) percentiles(x *probe.Result) *report.Table {
	t := figures([]string{"latency, " + s.nsUnit, "n", "min", "p50", "p90", "p99", "p99.9", "max"}, 0)
	l := x.Latency
	if l == nil {
		return t
	}
	for _, of := range []struct {
		name string
		p    *probe.Percentiles
	}{{"round trip", l.RTT}, {"one way, assumed to be half of it", l.OneWay}, {"load of memory", l.Load}, {"copy", l.Copy}} {
		if p := of.p; p != nil {
			p999 := "-"
			if p.P999 != nil {
				p999 = s.ns(*p.P999)
			}
			t.Add(of.name, count(p.N), s.ns(p.Min), s.ns(p.P50), s.ns(p.P90), s.ns(p.P99), p999, s.ns(p.Max))
		}
	}
	return t
}

// way are the links between the ends, with their state during the measurement.
func (s *section) way(x *probe.Result, k *reportLinks) *report.Table {
	t := figures([]string{"link", "should carry", "known by", "state, counters"}, 2)
	for _, key := range x.Path {
		name, rate, basis := string(key), "-", topo.BasisUnknown
		if l := k.links[key]; l != nil { // else the report does not have it
			u := s.unit
			if l.Kind != topo.LinkPort && l.Kind != probe.LinkUplink && u == units.Gbit {
				u = units.Gbyte
			}
			name, basis = l.Name, l.Basis
			if l.Direction == "up" || l.Direction == "down" {
				name += ", " + l.Direction
			}
			if l.BytesPerSec != nil {
				rate = units.Rate(int64(*l.BytesPerSec), u)
			}
		}
		if key == x.Expected.Limit {
			name += " (limit)"
		}
		if k.suspects[x.ID][key] {
			name += " (suspect)"
		}
		var state []string
		for i := range x.Links {
			st := &x.Links[i]
			if st.Link != key {
				continue
			}
			if st.State != "" {
				state = append(state, st.State)
			}
			for _, name := range slices.SortedFunc(maps.Keys(st.Counters), topo.NaturalCompare) {
				state = append(state, fmt.Sprintf("%s +%d", name, st.Counters[name]))
			}
		}
		t.Add(name, rate, string(basis), strings.Join(state, ", "))
	}
	return t
}

func (s *section) retest(t *probe.Retest) string {
	text := "retested"
	switch t.How {
	case probe.RetestAlone:
		text += " alone"
	case probe.RetestOtherPartner:
		text += " with another partner, " + t.Pair
	default:
		text += ", " + t.How
	}
	if t.BytesPerSec != nil {
		text += ": " + units.Rate(*t.BytesPerSec, s.unit)
	}
	if t.LatencyNS != nil {
		text += fmt.Sprintf(", latency %s %s", s.ns(*t.LatencyNS), s.nsUnit)
	}
	switch {
	case t.Error != "":
		return text + ": " + t.Error
	case t.Confirms:
		return text + ": as bad as before"
	}
	return text + ": not as bad as before"
}

// Part is a part of a description: a title, which may be empty, and lines of any length. Foreign text in it is clean.
type Part struct {
	Title string
	Lines []string
}

// parts are sections in lines: their tables as sentences.
func (o Options) parts(list []report.Section) []Part {
	var out []Part
	for _, s := range list {
		var lines []string
		if s.Table != nil {
			lines = s.Table.Sentences()
		}
		p := Part{Title: o.text(clean(s.Title))}
		for _, line := range append(lines, s.Lines...) {
			p.Lines = append(p.Lines, o.text(clean(line)))
		}
		out = append(out, p)
	}
	return out
}

// PairParts is everything that is known of a pair. Links and blame are those of r, which may be nil.
func PairParts(r *probe.Report, x *probe.Result, o Options) []Part {
	if r == nil {
		r = &probe.Report{Results: []probe.Result{*x}}
	}
	return o.parts(sectionOf(x, Local(r), o.Units).detail(x, newReportLinks(r)))
}

// BlameTitle says what is to blame, and for how many pairs.
func BlameTitle(b *probe.Blame, r *probe.Report, o Options) string { return o.text(blameTitle(b, r)) }

// BlameParts is everything that is known of a fault.
func BlameParts(b *probe.Blame, r *probe.Report, o Options) []Part {
	s := blameSection(b, r, o.Units)
	return o.parts(append([]report.Section{{Lines: []string{s.Title}}}, s.Parts...))
}
