package show

import (
	"strconv"
	"strings"
	"time"

	"github.com/topoctl/topoctl/internal/base/units"
	"github.com/topoctl/topoctl/probe"
)

// Figures are what is said of a pair, as text of one line each. Foreign text in them is
// clean. "-" is not measured, not known, or does not apply.
type Figures struct {
	Pair       string // PairName
	Of         string // kind, transport and variant: "memory by cpu, read"
	Class      string // "PIX", "PIX, SYS"
	Rate       string // "391.2 Gb/s"
	Interval   string // half width of the 95 % interval as a part of the mean: "±0.2 %"
	Expected   string // "400 Gb/s"; "~" is before a constant or an assumption
	Efficiency string // "98 %"
	Latency    string // median and 99th percentile: "12.1 / 15.0 µs"
	Reason     string // of the verdict, the first; "" none
}

// FiguresOf are the figures of a pair. local: all ends are of one host (Local).
func FiguresOf(x *probe.Result, local bool, o Options) Figures {
	s := sectionOf(x, local, o.Units)
	f := Figures{Pair: PairName(&x.Pair, local), Of: s.title, Class: classText(&x.Pair), Rate: "-", Interval: "-", Expected: "-", Latency: "-",
		Efficiency: percent(x.Efficiency), Reason: reason(x, false)}
	if b := x.Judged(); b != nil {
		f.Rate = units.Rate(b.MeanBytesPerSec, s.unit)
		if b.CI95BytesPerSec != nil && b.MeanBytesPerSec > 0 {
			f.Interval = "±" + strconv.FormatFloat(100*float64(*b.CI95BytesPerSec)/float64(b.MeanBytesPerSec), 'f', 1, 64) + " %"
		}
	}
	if want := x.Expected.BytesPerSec; want != nil {
		f.Expected = units.Rate(int64(*want), s.unit)
		if strings.HasPrefix(expected(&x.Expected, s.unit), "~") {
			f.Expected = "~" + f.Expected
		}
	}
	if l := s.latencies(x); l != "-" {
		f.Latency = l + " " + s.nsUnit
	}
	if o.ASCII {
		for _, text := range []*string{&f.Pair, &f.Of, &f.Class, &f.Rate, &f.Interval, &f.Expected, &f.Efficiency, &f.Latency, &f.Reason} {
			*text = ascii(*text)
		}
	}
	return f
}

// Title is what pairs are grouped by: "memory by cpu, read".
func Title(p *probe.Pair, o Options) string {
	text := title(clean(string(p.Kind)), clean(p.Transport), clean(p.Variant))
	if o.ASCII {
		text = ascii(text)
	}
	return text
}

// PairRate prints a rate of a pair of that kind: ports in gigabits unless units say otherwise.
func PairRate(kind probe.Kind, bytesPerSec int64, u units.System) string {
	return units.Rate(bytesPerSec, unitOf(kind, u))
}

// Local says whether all ends of a report are of one host.
func Local(r *probe.Report) bool { return local(r) }

// Order compares kinds of pairs as reports have them: memory, gpu, port, then others.
func Order(a, b probe.Kind) int {
	return indexOrEnd(kindOrder, string(a)) - indexOrEnd(kindOrder, string(b))
}

// Part is a part of what is known about something: a title, "" none, and lines of any length.
type Part struct {
	Title string
	Lines []string
}

// PairParts is all that is known of a pair. Links and blame are those of r, which may be nil.
func PairParts(r *probe.Report, x *probe.Result, o Options) []Part {
	if r == nil {
		r = &probe.Report{Results: []probe.Result{*x}}
	}
	s := sectionOf(x, Local(r), o.Units)
	d := s.detail(x, newReportLinks(r), "")
	out := []Part{{Lines: []string{d.Of}}, {"why", d.Reasons}, {"sizes of ops", nil}, {"latency, " + d.LatencyUnit, nil}, {"way", nil}, {"measured again", d.Retests}}
	if d.Rate != "" {
		if x.Efficiency != nil {
			d.Rate += ", " + percent(x.Efficiency) + " of what is expected"
		}
		out[0].Lines = append(out[0].Lines, d.Rate)
	}
	for _, f := range d.Facts {
		out[0].Lines = append(out[0].Lines, f.Name+": "+f.Value)
	}
	for i := range d.Sizes {
		v := &d.Sizes[i]
		out[2].Lines = append(out[2].Lines, v.Size+": "+v.Mean+" "+d.Unit+", median "+v.Median+", n "+v.N+", "+v.Stopped)
	}
	for _, l := range d.Latencies {
		out[3].Lines = append(out[3].Lines, l[0]+": p50 "+l[3]+", p90 "+l[4]+", p99 "+l[5]+", p99.9 "+l[6]+", min "+l[2]+", max "+l[7]+", n "+l[1])
	}
	for i := range d.Path {
		out[4].Lines = append(out[4].Lines, d.Path[i].text())
	}
	if !d.PathKnown {
		out[4].Lines = append(out[4].Lines, "not known to the end")
	}
	return finished(out, o)
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

// BlameTitle says who is to blame, and for how many pairs.
func BlameTitle(b *probe.Blame, r *probe.Report, o Options) string {
	title := blameTitle(b, r)
	if o.ASCII {
		title = ascii(title)
	}
	return title
}

// BlameParts is all that is known of a fault.
func BlameParts(b *probe.Blame, r *probe.Report, o Options) []Part {
	v := viewBlame(b, r, o.Units)
	out := []Part{{Lines: []string{v.Title}}, {"suspects", nil}, {"evidence", v.Evidence}, {"next", nil}, {"explains", v.Pairs}}
	for _, s := range v.Suspects {
		line := s.Name
		if s.Seen != "" {
			line += ", " + s.Seen
		}
		out[1].Lines = append(out[1].Lines, line)
	}
	if v.Next != "" {
		out[3].Lines = []string{v.Next}
	}
	return finished(out, o)
}

// SummaryParts is what the pairs of a report come to: first how many there are of each
// verdict, and how many are missing; then hosts that were lost, why pairs were waived, and notes.
// Blame is for BlameTitle.
func SummaryParts(r *probe.Report, o Options) []Part {
	v := newOverview(r, o.Units)
	return finished([]Part{{Lines: append([]string{v.Subtitle}, v.Early...)}, {"hosts", v.Lost}, {"waived", v.Waived}, {"notes", v.Notes}}, o)
}

func cleaned(list []string) []string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = clean(list[i])
	}
	return out
}

// finished leaves out parts without lines.
func finished(parts []Part, o Options) []Part {
	var out []Part
	for _, p := range parts {
		if len(p.Lines) == 0 {
			continue
		}
		if o.ASCII {
			p.Title = ascii(p.Title)
			for i := range p.Lines {
				p.Lines[i] = ascii(p.Lines[i])
			}
		}
		out = append(out, p)
	}
	return out
}

// Seconds is a time in whole seconds or more: "19 s", "3 min 5 s".
func Seconds(ns int64) string { return left(time.Duration(ns)) }
