package show

import (
	"slices"
	"time"

	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
)

// Figures are what is known of a pair before it is measured, as text of one line each. Foreign text in them is clean.
type Figures struct {
	Pair     string // PairName
	Class    string // "PIX", "PIX, SYS"
	Expected string // "400 Gb/s"; "~" is before a typical one, "<" before a bound, "-": nothing is expected
}

// FiguresOf returns the figures of a pair. local: all ends are on one host (Local).
func FiguresOf(p *probe.Pair, local bool, o Options) Figures {
	f := Figures{Pair: o.text(PairName(p, local)), Class: o.text(classText(p)), Expected: "-"}
	if want := p.Expected.BytesPerSec; want != nil {
		f.Expected = o.text(p.Expected.Basis.Mark(units.Rate(int64(*want), unitOf(p.Kind, o.Units))))
	}
	return f
}

// Title is what pairs are grouped by: "memory by cpu, read".
func Title(p *probe.Pair, o Options) string {
	return o.text(title(clean(string(p.Kind)), clean(p.Transport), clean(p.Variant)))
}

// PairRate prints a rate of a pair of that kind: ports in gigabits unless units say otherwise.
func PairRate(kind probe.Kind, bytesPerSec int64, u units.System) string {
	return units.Rate(bytesPerSec, unitOf(kind, u))
}

// Local says whether all ends of a report are on one host.
func Local(r *probe.Report) bool {
	return !slices.ContainsFunc(r.Results, func(x probe.Result) bool {
		return x.From.Host != x.To.Host || x.From.Host != r.Results[0].From.Host
	})
}

// Order compares kinds of pairs in the order of reports: memory, gpu, port, then others.
func Order(a, b probe.Kind) int {
	return indexOrEnd(kindOrder, string(a)) - indexOrEnd(kindOrder, string(b))
}

// Part is a part of a description: a title, which may be empty, and lines of any length.
type Part struct {
	Title string
	Lines []string
}

// parts collects the parts that there is something to say of.
type parts struct {
	o    Options
	list []Part
}

func (p *parts) add(title string, lines ...string) {
	if len(lines) == 0 {
		return
	}
	for i := range lines {
		lines[i] = p.o.text(lines[i])
	}
	p.list = append(p.list, Part{p.o.text(title), lines})
}

// PairParts is everything that is known of a pair. Links and blame are those of r, which may be nil.
func PairParts(r *probe.Report, x *probe.Result, o Options) []Part {
	if r == nil {
		r = &probe.Report{Results: []probe.Result{*x}}
	}
	s := sectionOf(x, Local(r), o.Units)
	d := s.detail(x, newReportLinks(r), "")
	head := []string{d.Of}
	if d.Rate != "" {
		if x.Efficiency != nil {
			d.Rate += ", " + percent(x.Efficiency) + " of what is expected"
		}
		head = append(head, d.Rate)
	}
	for _, f := range d.Facts {
		head = append(head, f.Name+": "+f.Value)
	}
	var sizes, latencies, way []string
	for i := range d.Sizes {
		v := &d.Sizes[i]
		sizes = append(sizes, v.Size+": "+v.Mean+" "+d.Unit+", median "+v.Median+", n "+v.N+", "+v.Stopped)
	}
	for _, l := range d.Latencies {
		latencies = append(latencies, l[0]+": p50 "+l[3]+", p90 "+l[4]+", p99 "+l[5]+", p99.9 "+l[6]+", min "+l[2]+", max "+l[7]+", n "+l[1])
	}
	for i := range d.Path {
		way = append(way, d.Path[i].text())
	}
	if !d.PathKnown {
		way = append(way, "not known completely")
	}
	p := parts{o: o}
	p.add("", head...)
	p.add("why", d.Reasons...)
	p.add("sizes of ops", sizes...)
	p.add("latency, "+d.LatencyUnit, latencies...)
	p.add("way", way...)
	p.add("measured again", d.Retests...)
	return p.list
}

// text is a link of a way in one line.
func (h *hopView) text() string {
	text := h.Name + ": " + h.Rate
	if h.Rate != "-" {
		text += ", " + string(h.Basis)
	}
	if h.State != "" {
		text += ", " + h.State
	}
	if h.Limit {
		text += " (the limit)"
	}
	if h.Suspect {
		text += " (suspect)"
	}
	return text
}

// BlameTitle says what is to blame, and for how many pairs.
func BlameTitle(b *probe.Blame, r *probe.Report, o Options) string { return o.text(blameTitle(b, r)) }

// BlameParts is everything that is known of a fault.
func BlameParts(b *probe.Blame, r *probe.Report, o Options) []Part {
	v := viewBlame(b, r, o.Units)
	var suspects, next []string
	for _, s := range v.Suspects {
		line := s.Name
		if s.Seen != "" {
			line += ", " + s.Seen
		}
		suspects = append(suspects, line)
	}
	if v.Next != "" {
		next = []string{v.Next}
	}
	p := parts{o: o}
	p.add("", v.Title)
	p.add("suspects", suspects...)
	p.add("evidence", v.Evidence...)
	p.add("next", next...)
	p.add("explains", v.Pairs...)
	return p.list
}

func cleaned(list []string) []string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = clean(list[i])
	}
	return out
}

// Seconds is a time in whole seconds or more: "19 s", "3 min 5 s".
func Seconds(ns int64) string { return remaining(time.Duration(ns)) }
