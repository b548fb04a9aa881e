package show

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
)

// Answer is what a report comes to, in one sentence without a full stop: the faults if there are any, else
// what kept the run from telling, else that all is well.
func Answer(r *probe.Report, o Options) string {
	a := newAnswer(r, o.Units)
	line := a.sentence()
	if missing := incompleteText(r); len(missing) > 0 && a.tried > 0 {
		line += " (" + missing[0] + ")"
	}
	return o.text(line)
}

// answer is a report with what its sentence is made of.
type answer struct {
	r                  *probe.Report
	u                  units.System
	local              bool
	faults, congestion []*probe.Blame // with suspects
	blamed             map[string]bool
	summary            probe.Summary
	tried              int
}

func newAnswer(r *probe.Report, u units.System) *answer {
	a := &answer{r: r, u: u, local: Local(r), blamed: map[string]bool{}, summary: probe.Count(r.Results)}
	a.tried = len(r.Results) - a.summary.Waived
	for i := range r.Blame {
		b := &r.Blame[i]
		if len(b.Suspects) == 0 {
			continue
		}
		for _, id := range b.Pairs {
			a.blamed[id] = true
		}
		if b.Kind == probe.Congestion {
			a.congestion = append(a.congestion, b)
		} else {
			a.faults = append(a.faults, b)
		}
	}
	return a
}

// mostFaults is how many faults a sentence names.
const mostFaults = 3

func (a *answer) sentence() string {
	s := &a.summary
	busy := busyHosts(a.r, func(x *probe.Result) bool { return has(x, probe.CodeBusy) })
	switch {
	case len(a.r.Results) == 0:
		return "No pair was measured: there is none"
	case a.tried == 0:
		return "No pair was measured: " + reason(&a.r.Results[0], false)
	case len(a.faults) == 1:
		what, says := a.fault(a.faults[0])
		return "1 " + what + ": " + says
	case len(a.faults) > 1:
		var list []string
		for _, b := range a.faults[:min(mostFaults, len(a.faults))] {
			_, says := a.fault(b)
			list = append(list, says)
		}
		if n := len(a.faults) - len(list); n > 0 {
			list = append(list, fmt.Sprintf("and %d more", n))
		}
		return fmt.Sprintf("%d faults: %s", len(a.faults), strings.Join(list, "; "))
	case s.Fail > 0:
		return fmt.Sprintf("%s far slower than expected, and no part explains it", a.of(s.Fail, "is", "are"))
	case len(a.r.Blame) > len(a.congestion):
		return fmt.Sprintf("%s slow, and no part explains it", a.of(a.unexplained(), "is", "are"))
	case s.Error > 0:
		return fmt.Sprintf("%s not measured: %s", a.of(s.Error, "was", "were"), a.why(probe.Error))
	case len(a.congestion) > 0:
		b := a.congestion[0]
		return fmt.Sprintf("Congested, not broken: %s over %s, slow next to other traffic and fine alone", text.Plural(len(b.Pairs), "pair"), suspectText(&b.Suspects[0]))
	case s.Inconclusive > 0 && len(busy) > 0:
		return "Could not tell" + a.forSome(s.Inconclusive) + ": the measuring hosts were busy (" + strings.Join(busy, ", ") + ")"
	case s.Inconclusive > 0:
		return "Could not tell" + a.forSome(s.Inconclusive) + ": " + a.why(probe.Inconclusive)
	case s.Warn > 0:
		return a.warned()
	case s.Measured == a.tried:
		return "Measured " + text.Plural(s.Measured, "rate") + "; nothing is known of what to expect"
	case s.Measured > 0:
		return fmt.Sprintf("%s well; nothing is known of what to expect of the others", a.of(s.Pass, "is", "are"))
	}
	return a.well()
}

// of is "3 of 24 pairs are", "the pair is".
func (a *answer) of(n int, one, many string) string {
	switch {
	case a.tried == 1:
		return "The pair " + one
	case n == a.tried:
		return fmt.Sprintf("All %d pairs %s", n, many)
	case n == 1:
		return fmt.Sprintf("1 of %d pairs %s", a.tried, one)
	}
	return fmt.Sprintf("%d of %d pairs %s", n, a.tried, many)
}

// forSome is " for 3 of 24 pairs", "" for all.
func (a *answer) forSome(n int) string {
	if n == a.tried {
		return ""
	}
	return fmt.Sprintf(" for %d of %d pairs", n, a.tried)
}

// has says whether a result has a reason of one of some codes.
func has(x *probe.Result, codes ...string) bool {
	return slices.ContainsFunc(x.Reasons, func(w probe.Reason) bool { return slices.Contains(codes, w.Code) })
}

// well says that every pair passed, and how fast they are.
func (a *answer) well() string {
	expected := 0
	for i := range a.r.Results {
		if x := &a.r.Results[i]; x.Verdict == probe.Pass && x.Expected.BytesPerSec != nil {
			expected++
		}
	}
	line := a.of(a.tried, "does", "do")
	switch {
	case expected == a.tried:
		line += " what the topology promises"
	case expected == 0:
		line += " as well as each other"
	default:
		line += " what the topology promises, or as well as comparable ones"
	}
	if len(sections(a.r, a.u)) == 1 {
		line += ": " + a.rates(func(x *probe.Result) bool { return x.Verdict == probe.Pass })
	}
	if expected == 0 {
		line += "; nothing else is known of what to expect"
	}
	return strings.TrimSuffix(line, ": ")
}

// warned says what pairs are warned about.
func (a *answer) warned() string {
	n := map[string]int{}
	for i := range a.r.Results {
		x := &a.r.Results[i]
		if x.Verdict != probe.Warn {
			continue
		}
		switch {
		case has(x, probe.CodeContended):
			n["slow next to other traffic, fine alone"]++
		case has(x, probe.CodeOutlier):
			n["slower than comparable ones"]++
		case has(x, probe.CodeBelowFail, probe.CodeBelowWarn):
			n["slower than expected"]++
		case has(x, probe.CodeLatencyOutlier):
			n["later than comparable ones"]++
		}
	}
	if len(n) == 0 {
		return a.of(a.summary.Warn, "has", "have") + " a warning: " + a.why(probe.Warn)
	}
	kinds := slices.SortedFunc(maps.Keys(n), func(x, y string) int { return cmp.Or(n[y]-n[x], strings.Compare(x, y)) })
	return a.of(n[kinds[0]], "is", "are") + " " + kinds[0]
}

// why is the first reason of the first pair with a verdict.
func (a *answer) why(v probe.Verdict) string {
	for i := range a.r.Results {
		if x := &a.r.Results[i]; x.Verdict == v {
			if why := reason(x, false); why != "" {
				return PairName(&x.Pair, a.local) + ", " + why
			}
		}
	}
	return "no reason is given"
}

// unexplained counts the bad pairs that no part is blamed for.
func (a *answer) unexplained() int {
	n := 0
	for i := range a.r.Blame {
		if len(a.r.Blame[i].Suspects) == 0 {
			n += len(a.r.Blame[i].Pairs)
		}
	}
	return n
}

// fault says what a fault is ("slow cable"), and what it does ("n3/eth1 sends 56 Mb/s, the others 280").
func (a *answer) fault(b *probe.Blame) (what, says string) {
	pairs := make(map[string]bool, len(b.Pairs))
	for _, id := range b.Pairs {
		pairs[id] = true
	}
	mine := func(x *probe.Result) bool { return pairs[x.ID] && x.Verdict != probe.Error }
	group, broken := map[string]bool{}, true
	late := true
	for i := range a.r.Results {
		if x := &a.r.Results[i]; pairs[x.ID] {
			group[x.Group] = true
			broken = broken && x.Verdict == probe.Error
			late = late && has(x, probe.CodeLatencyOutlier) && !has(x, probe.CodeOutlier, probe.CodeBelowFail, probe.CodeBelowWarn)
		}
	}
	// Others neither cross what is blamed nor are themselves in doubt.
	others := func(x *probe.Result) bool {
		return group[x.Group] && !a.blamed[x.ID] && (x.Verdict == probe.Pass || x.Verdict == probe.Warn) && !crosses(x, b)
	}
	subject, does := a.subject(b, pairs)
	what, says = "slow "+a.partWord(b), subject+" "
	switch {
	case broken:
		return "broken " + a.partWord(b), says + "moves nothing"
	case late:
		what = "late " + a.partWord(b)
		says += "answers after " + a.latencies(mine)
		if rest := a.latencies(others); rest != "" {
			says += ", the others after " + rest
		}
		return what, says
	}
	says += does + " " + a.rates(mine)
	if rest := a.rates(others); rest != "" {
		says += ", the others " + rest
	}
	return what, says
}

// crosses says whether the way of a result has a link of what is suspected.
func crosses(x *probe.Result, b *probe.Blame) bool {
	return slices.ContainsFunc(b.Suspects, func(s probe.Suspect) bool {
		return slices.ContainsFunc(s.Links, func(k probe.LinkKey) bool { return slices.Contains(x.Path, k) })
	})
}

// subject is the port that a fault is at, and whether it sends or receives: the one end that all its pairs
// have in common, if all suspects are there too; else the first suspect.
func (a *answer) subject(b *probe.Blame, pairs map[string]bool) (name, does string) {
	from, to, either := map[end]int{}, map[end]int{}, map[end]int{}
	for i := range a.r.Results {
		x := &a.r.Results[i]
		if !pairs[x.ID] {
			continue
		}
		f, t := endOf(&x.From), endOf(&x.To)
		from[f]++
		to[t]++
		either[f]++
		if f != t {
			either[t]++
		}
	}
	for _, way := range []struct {
		ends map[end]int
		does string
	}{{from, "sends"}, {to, "receives"}, {either, "sends and receives"}} {
		for _, e := range slices.SortedFunc(maps.Keys(way.ends), compareEnds) {
			if way.ends[e] == len(pairs) && a.allAt(b, e) {
				if a.local || e.host == "" {
					return clean(e.name), way.does
				}
				return clean(e.host + "/" + e.name), way.does
			}
		}
	}
	name = suspectText(&b.Suspects[0])
	if n := len(b.Suspects) - 1; n > 0 {
		name = fmt.Sprintf("%s or %d others", name, n)
	}
	return name, "carries"
}

// allAt says whether all suspects are parts of an end's host, and some link of each is on the way of pairs of
// that end only.
func (a *answer) allAt(b *probe.Blame, e end) bool {
	elsewhere := map[probe.LinkKey]bool{}
	for i := range a.r.Results {
		x := &a.r.Results[i]
		if endOf(&x.From) != e && endOf(&x.To) != e {
			for _, k := range x.Path {
				elsewhere[k] = true
			}
		}
	}
	for i := range b.Suspects {
		if !slices.ContainsFunc(b.Suspects[i].Links, func(k probe.LinkKey) bool { return a.link(k).Host == e.host && !elsewhere[k] }) {
			return false
		}
	}
	return true
}

func (a *answer) link(key probe.LinkKey) *probe.Link {
	for i := range a.r.Links {
		if a.r.Links[i].Key == key {
			return &a.r.Links[i]
		}
	}
	return &probe.Link{}
}

// partWord is what suspects are: a cable, if all are; else a port, if they are parts of one; else a part.
func (a *answer) partWord(b *probe.Blame) string {
	wires, ports := 0, 0
	for i := range b.Suspects {
		s := &b.Suspects[i]
		isLink := s.Kind == "link" || s.Kind == "direction"
		wire := len(s.Links) > 0 && a.link(s.Links[0]).Kind == topo.LinkPort
		if isLink && wire {
			wires++
		}
		if wire || isLink || s.Kind == "nic" {
			ports++
		}
	}
	switch {
	case wires == len(b.Suspects):
		return "cable"
	case wires > 0 && ports == len(b.Suspects):
		return "port"
	case len(b.Suspects) == 1 && b.Suspects[0].Kind != "link" && b.Suspects[0].Kind != "direction":
		return clean(b.Suspects[0].Kind)
	}
	return "part"
}

// rates are those of the results that fit, from the lowest to the highest.
func (a *answer) rates(fits func(*probe.Result) bool) string {
	var list []int64
	u := a.u
	for i := range a.r.Results {
		if x := &a.r.Results[i]; fits(x) {
			if b := x.Judged(); b != nil {
				list = append(list, b.MeanBytesPerSec)
				u = unitOf(x.Kind, a.u)
			}
		}
	}
	if len(list) == 0 {
		return ""
	}
	lo, hi := plainRate(slices.Min(list), u), plainRate(slices.Max(list), u)
	if low, unit, _ := strings.Cut(lo, " "); lo != hi && strings.HasSuffix(hi, " "+unit) {
		lo = low
	}
	return text.Range(lo, hi)
}

// plainRate prints a rate with three digits, in megabits below a gigabit: tables need one unit for all rates,
// a sentence does not.
func plainRate(bytesPerSec int64, u units.System) string {
	const gigabit = 125_000_000
	if u == units.Gbit && bytesPerSec < gigabit {
		return number(float64(bytesPerSec)/gigabit*1000) + " Mb/s"
	}
	return units.Rate(bytesPerSec, u)
}

// latencies are the medians of the results that fit.
func (a *answer) latencies(fits func(*probe.Result) bool) string {
	var list []int64
	unit := "µs"
	for i := range a.r.Results {
		if x := &a.r.Results[i]; fits(x) {
			if of, p := x.Typical(); p != nil {
				list = append(list, p.P50)
				if of == "load" {
					unit = "ns"
				}
			}
		}
	}
	if len(list) == 0 {
		return ""
	}
	s := section{nsUnit: unit}
	return text.Range(s.ns(slices.Min(list)), s.ns(slices.Max(list))) + " " + unit
}

// busyNote says which hosts were busy while pairs were measured that did not pass, "" none.
func busyNote(r *probe.Report) string {
	busy := busyHosts(r, func(x *probe.Result) bool { return x.Verdict != probe.Pass })
	if len(busy) == 0 {
		return ""
	}
	return "processors were busy with other work (" + strings.Join(busy, ", ") + "): rates may be lower than what the paths carry"
}

// busyHosts are the hosts of some results that were too busy to tell, with the most that they were.
func busyHosts(r *probe.Report, of func(*probe.Result) bool) []string {
	most := map[string]float64{}
	for i := range r.Results {
		x := &r.Results[i]
		if !of(x) {
			continue
		}
		for k := range x.Processors {
			if l := &x.Processors[k]; l.TooBusy(&x.Pair) {
				most[l.Host] = max(most[l.Host], l.Busy)
			}
		}
	}
	var out []string
	for _, host := range slices.SortedFunc(maps.Keys(most), topo.NaturalCompare) {
		out = append(out, fmt.Sprintf("%s %.0f %%", clean(host), 100*most[host]))
	}
	if len(out) > 4 {
		out = append(out[:3], fmt.Sprintf("%d more", len(out)-3))
	}
	return out
}
