package show

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
)

// told are the settings of a run that another may have differently.
var told = []struct {
	name string
	text func(*probe.Report) string
}{
	{"rate limit", func(r *probe.Report) string { return limitText(r.Spec.RateLimit) }},
	{"sizes of ops", func(r *probe.Report) string {
		var list []string
		for _, n := range r.Spec.SizesBytes {
			list = append(list, units.Bytes(n))
		}
		return cmp.Or(strings.Join(list, ", "), "none")
	}},
	{"duration", func(r *probe.Report) string {
		s := &r.Spec
		return fmt.Sprintf("%d to %d samples of %v after %v, interval %g %%", s.MinSamples, s.MaxSamples, s.SampleTime, s.Warmup, 100*s.CI)
	}},
	{"schedule", func(r *probe.Report) string {
		if r.Plan.Contend != "" {
			return "contend for " + r.Plan.Contend
		}
		return cmp.Or(r.Plan.Schedule, "not known")
	}},
	{"rules of verdicts", func(r *probe.Report) string {
		l := &r.Rules
		return fmt.Sprintf("fail under %g %%, warn under %g %%, outliers %g %%/%gx, %d retests", 100*l.FailUnder, 100*l.WarnUnder,
			100*l.OutlierUnder, l.OutlierOver, l.Retests)
	}},
	{"transports", func(r *probe.Report) string {
		var list []string
		for i := range r.Results {
			list = append(list, r.Results[i].Transport)
		}
		slices.Sort(list)
		return strings.Join(slices.Compact(list), ", ")
	}},
}

// limitText is a limit of a rate, 0 none.
func limitText(bytesPerSec int64) string {
	if bytesPerSec == 0 {
		return "none"
	}
	return units.Rate(bytesPerSec, units.Gbit)
}

// differently says what about two measurements of a pair, or about their runs, forbids comparing the rates, "" nothing.
func differently(a, b *probe.Report, old, now *probe.Result) string {
	was, is := limitOf(a, old), limitOf(b, now)
	switch {
	case was != is:
		return "the rate limits differ: " + limitText(was) + " and " + limitText(is)
	case crowded(a) != crowded(b) || a.Plan.Contend != b.Plan.Contend:
		return "pairs shared links in one of the runs only"
	}
	return ""
}

// limitOf is the rate that a pair was held to, 0 none.
func limitOf(r *probe.Report, x *probe.Result) int64 {
	run := r.Spec.RateLimit
	if run == 0 || x.RateLimit > 0 && x.RateLimit < run {
		return x.RateLimit
	}
	return run
}

// crowded says whether rounds were meant to share links.
func crowded(r *probe.Report) bool { return r.Plan.Contend != "" || r.Plan.Schedule == "endpoint" }

// judgedAlike says whether verdicts were given by the same rules, and of the same sizes.
func judgedAlike(a, b *probe.Report) bool {
	largest := func(r *probe.Report) []int64 { return r.Spec.SizesBytes[max(0, len(r.Spec.SizesBytes)-1):] } // the last one
	return a.Rules == b.Rules && slices.Equal(largest(a), largest(b))
}

// pairEnds are what is measured, by whatever transport.
type pairEnds struct {
	kind, variant string
	from, to      [2]string
}

func endsOf(x *probe.Result) pairEnds {
	return pairEnds{string(x.Kind), x.Variant, [2]string{x.From.Host, x.From.Name}, [2]string{x.To.Host, x.To.Name}}
}

// otherTransport is what the ends of a pair were measured over in the other report, "" nothing else.
func otherTransport(there map[pairEnds]string, x *probe.Result) string {
	if t := there[endsOf(x)]; t != x.Transport {
		return t
	}
	return ""
}

// only are the transports of the pairs that a report has and another has not, by their ends.
func only(r, other *probe.Report) map[pairEnds]string {
	there, out := map[string]bool{}, map[pairEnds]string{}
	for i := range other.Results {
		there[other.Results[i].ID] = true
	}
	for i := range r.Results {
		if x := &r.Results[i]; !there[x.ID] {
			out[endsOf(x)] = x.Transport
		}
	}
	return out
}
