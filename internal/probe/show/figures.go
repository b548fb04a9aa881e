package show

import (
	"fmt"
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

// Seconds is a time in whole seconds or more, for a display that would flicker with fractions: "19 s", "3 min 5 s".
func Seconds(ns int64) string {
	d := time.Duration(ns).Round(time.Second)
	if d < 10*time.Second {
		return fmt.Sprintf("%d s", d/time.Second)
	}
	return duration(d)
}
