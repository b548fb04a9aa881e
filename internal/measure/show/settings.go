package show

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
)

// settings are how two runs measured and judged.
type settings struct {
	changes  []Change
	verdicts bool // verdicts were given by different rules, or of different sizes
	crowd    bool // rounds shared links in one of them only
	// a and b are the transports of the pairs that only one report has, by their ends.
	a, b map[pairEnds]string
	// limits are those of the whole runs, 0 none.
	limits [2]int64
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

func settingsOf(a, b *probe.Report) *settings {
	s := &settings{verdicts: a.Rules != b.Rules || largest(a) != largest(b), a: map[pairEnds]string{}, b: map[pairEnds]string{}, limits: [2]int64{a.Spec.RateLimit, b.Spec.RateLimit}}
	add := func(name, old, now string) {
		if old != now {
			s.changes = append(s.changes, Change{Kind: Settings, Setting: name, ASetting: old, BSetting: now})
		}
	}
	s.crowd = crowded(a) != crowded(b) || a.Plan.Contend != b.Plan.Contend
	add("rate limit", limitText(a.Spec.RateLimit), limitText(b.Spec.RateLimit))
	add("sizes of ops", sizesText(a), sizesText(b))
	add("duration", durationText(a), durationText(b))
	add("schedule", scheduleText(a), scheduleText(b))
	add("rules of verdicts", rulesText(a), rulesText(b))
	add("transports", transportsText(a), transportsText(b))
	for _, of := range []struct {
		r, other *probe.Report
		to       map[pairEnds]string
	}{{a, b, s.a}, {b, a, s.b}} {
		there := map[string]bool{}
		for i := range of.other.Results {
			there[of.other.Results[i].ID] = true
		}
		for i := range of.r.Results {
			if x := &of.r.Results[i]; !there[x.ID] {
				of.to[endsOf(x)] = x.Transport
			}
		}
	}
	return s
}

// differs says what about two measurements of a pair forbids comparing them, "" nothing.
func (s *settings) differs(old, now *probe.Result) string {
	was, is := limitOf(s.limits[0], old), limitOf(s.limits[1], now)
	switch {
	case was != is:
		return "the rate limits differ: " + limitText(was) + " and " + limitText(is)
	case s.crowd:
		return "pairs shared links in one of the runs only"
	}
	return ""
}

// limitOf is the rate that a pair was held to, 0 none.
func limitOf(run int64, x *probe.Result) int64 {
	if run == 0 || x.RateLimit > 0 && x.RateLimit < run {
		return x.RateLimit
	}
	return run
}

// crowded says whether rounds were meant to share links.
func crowded(r *probe.Report) bool { return r.Plan.Contend != "" || r.Plan.Schedule == "endpoint" }

// largest is the size that verdicts are of, 0 none.
func largest(r *probe.Report) int64 {
	if n := len(r.Spec.SizesBytes); n > 0 {
		return r.Spec.SizesBytes[n-1]
	}
	return 0
}

func limitText(bytesPerSec int64) string {
	if bytesPerSec == 0 {
		return "none"
	}
	return units.Rate(bytesPerSec, units.Gbit)
}

func sizesText(r *probe.Report) string {
	var list []string
	for _, n := range r.Spec.SizesBytes {
		list = append(list, units.Bytes(n))
	}
	return cmp.Or(strings.Join(list, ", "), "none")
}

func durationText(r *probe.Report) string {
	s := &r.Spec
	return fmt.Sprintf("%d to %d samples of %v after %v, interval %g %%", s.MinSamples, s.MaxSamples, s.SampleTime, s.Warmup, 100*s.CI)
}

func scheduleText(r *probe.Report) string {
	if r.Plan.Contend != "" {
		return "contend for " + r.Plan.Contend
	}
	return cmp.Or(r.Plan.Schedule, "not known")
}

func rulesText(r *probe.Report) string {
	l := &r.Rules
	return fmt.Sprintf("fail under %g %%, warn under %g %%, outliers %g %%/%gx, %d retests", 100*l.FailUnder, 100*l.WarnUnder, 100*l.OutlierUnder, l.OutlierOver, l.Retests)
}

func transportsText(r *probe.Report) string {
	var list []string
	for i := range r.Results {
		if t := r.Results[i].Transport; !slices.Contains(list, t) {
			list = append(list, t)
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
