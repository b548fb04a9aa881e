package show

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
)

// Figures are the figures of a pair, as text of one line each. Foreign text in them is clean. "-" means
// not measured, not known, or not applicable.
type Figures struct {
	Pair       string // PairName
	Of         string // kind, transport and variant: "memory by cpu, read"
	Class      string // "PIX", "PIX, SYS"
	Rate       string // "391.2 Gb/s"
	Interval   string // half width of the 95 % interval as a part of the mean: "±0.2 %"
	Expected   string // "400 Gb/s"; "~" is before a typical one, "<" before a bound
	Efficiency string // "98 %"
	Latency    string // median and 99th percentile: "12.1 / 15.0 µs"
	Reason     string // of the verdict, the first; "" none
}

// FiguresOf returns the figures of a pair. local: all ends are on one host (Local).
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
		f.Expected = x.Expected.Basis.Mark(units.Rate(int64(*want), s.unit))
	}
	if l := s.latencies(x); l != "-" {
		f.Latency = l + " " + s.nsUnit
	}
	for _, text := range []*string{&f.Pair, &f.Of, &f.Class, &f.Rate, &f.Interval, &f.Expected, &f.Efficiency, &f.Latency, &f.Reason} {
		*text = o.text(*text)
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

// Seconds is a time in whole seconds or more, for a display that would flicker with fractions: "19 s", "3 min 5 s".
func Seconds(ns int64) string {
	d := time.Duration(ns).Round(time.Second)
	if d < 10*time.Second {
		return fmt.Sprintf("%d s", d/time.Second)
	}
	return duration(d)
}
