package show

import (
	"slices"
	"strings"

	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
)

// What a table lists without Options.All.
const (
	mostRows     = 12 // pairs of a section that need attention
	mostEvidence = 1  // of what is blamed
)

// Table is a report for people: the answer, what is blamed, and a table for each kind, transport and
// variant. Options.All and Wide list everything; without them only pairs that need attention are listed, the
// others are summed up, and a report in which all is well is one line.
func Table(r *probe.Report, o Options) string {
	t := &report.Text{Look: o.Look}
	v, blamed := newOverview(r, o.Units), newAnswer(r, o.Units).blamed
	t.Answer(v.Answer, report.Strong)
	say := func(lead string, lines []string) {
		for _, l := range lines {
			t.Say(lead, l, "")
		}
	}
	if o.everything() || !wellDone(r) {
		say("", v.Lost)
		for i := range r.Blame {
			b := &r.Blame[i]
			color := report.Bad
			if b.Kind == probe.Congestion {
				color = report.Traffic
			}
			t.Say("", blameHeadline(b, r, o.Units), color)
			evidence := b.Evidence
			if !o.everything() {
				evidence = evidence[:min(mostEvidence, len(evidence))]
			}
			say("  ", evidence)
			if b.Next != "" {
				t.Say("  ", "next: "+b.Next, "")
			}
		}
		for _, s := range sections(r, o.Units) {
			if table := s.table(o, blamed); table != nil {
				t.Section(&report.Section{Title: s.title, Table: table})
			}
		}
		t.Gap()
		t.Say("", v.Subtitle, "")
	}
	if o.everything() {
		say("", v.Waived)
	}
	for _, n := range v.Notes {
		if o.everything() || n == v.Busy || strings.HasPrefix(n, partialNote) {
			t.Say("", "note: "+n, "")
		}
	}
	return t.String()
}

// partialNote begins the notes on what is there and was not measured.
const partialNote = "partial: "

// wellDone says whether a report has nothing to show but its answer.
func wellDone(r *probe.Report) bool {
	return r.Complete && len(r.Blame) == 0 && len(lostHosts(r)) == 0 && !slices.ContainsFunc(r.Results, func(x probe.Result) bool {
		return x.Verdict != probe.Pass && x.Verdict != probe.Waived
	})
}

// TSV is a line for each pair, for programs: a head, then fields separated by tabs.
func TSV(r *probe.Report, o Options) string {
	t := report.TableOf([]string{"id", "class", "samples", "rate", "ci95", "expected", "of_expected", "p50", "p99", "verdict", "reason"})
	for _, s := range sections(r, o.Units) {
		for _, x := range s.results {
			t.Add(s.fields(x)...)
		}
	}
	return o.text(t.TSV())
}

var verdictColors = map[probe.Verdict]string{probe.Warn: report.Caution, probe.Inconclusive: report.Caution, probe.Fail: report.Bad,
	probe.Error: report.Bad, probe.Waived: report.Faint}

// fields are those of a pair for programs: rates are all in the section's unit.
func (s *section) fields(x *probe.Result) []string {
	rate := func(bytesPerSec int64) string { return units.RateNumber(bytesPerSec, s.unit) + " " + s.unit.Suffix() }
	mean, ci, p50, p99, want := "-", "-", "-", "-", "-"
	if b := x.Judged(); b != nil {
		mean = rate(b.MeanBytesPerSec)
		if b.CI95BytesPerSec != nil {
			ci = rate(*b.CI95BytesPerSec)
		}
	}
	if x.Expected.BytesPerSec != nil {
		want = rate(int64(*x.Expected.BytesPerSec))
	}
	if _, l := x.Typical(); l != nil {
		p50, p99 = s.ns(l.P50)+" "+s.nsUnit, s.ns(l.P99)+" "+s.nsUnit
	}
	return []string{clean(x.ID), classText(&x.Pair), samples(x), mean, ci, want, percent(x.Efficiency), p50, p99, string(x.Verdict), reason(x, true)}
}

// table is the table of a section; nil: there is nothing to list.
func (s *section) table(o Options, blamed map[string]bool) *report.Table {
	var rows, rest []*probe.Result
	for _, x := range s.results {
		switch {
		case o.Wide:
			rows = append(rows, x)
		case x.Verdict == probe.Waived, x.Round == 0 && x.Error == "" && !measured(x): // the notes say so
		case !o.All && (x.Verdict == probe.Pass || x.Verdict == probe.Inconclusive):
			rest = append(rest, x)
		default:
			rows = append(rows, x)
		}
	}
	if len(rows)+len(rest) == 0 {
		return nil
	}
	if !o.everything() {
		slices.SortStableFunc(rows, func(a, b *probe.Result) int { return slices.Index(worst, a.Verdict) - slices.Index(worst, b.Verdict) })
		if len(rows) > mostRows {
			rows, rest = rows[:mostRows], append(rows[mostRows:], rest...)
		}
	}
	t := s.rows(rows, o, blamed)
	t.After = s.groups(rows, rest)
	return t
}

// worst orders verdicts by how much they need attention.
var worst = []probe.Verdict{probe.Error, probe.Fail, probe.Warn, probe.Measured, probe.Inconclusive, probe.Pass, probe.Waived}

// rows are results in columns.
func (s *section) rows(results []*probe.Result, o Options, blamed map[string]bool) *report.Table {
	t := &report.Table{Indent: "  ", Whole: o.Wide}
	if len(results) == 0 {
		return t
	}
	latency := "latency"
	if s.latency != "" {
		latency = s.latency + " p50 / p99 " + s.nsUnit
	}
	t.Head = []string{"pair", "class", "n bw/lat", s.unit.Suffix(), "±95 %", "expected", "eff", latency, "verdict", ""}
	t.Columns = make([]text.Column, 10)
	if o.Wide {
		t.Head, t.Columns = slices.Insert(t.Head, 7, "of best", "CPU s/GB", "round"), make([]text.Column, 13)
	} else {
		t.Spare = []int{2, 1, 7}
	}
	for i := 3; i < len(t.Columns)-2; i++ {
		t.Columns[i].Right = i != 4
	}
	for _, x := range results {
		why := reason(x, o.Wide)
		if !o.everything() && blamed[x.ID] { // the blame says it
			why = ""
		}
		mean, half, _ := strings.Cut(s.rate(x), " ")
		cells := []string{PairName(&x.Pair, s.local), classText(&x.Pair), samples(x), mean, half, expected(&x.Expected, s.unit), percent(x.Efficiency),
			s.latencies(x), string(x.Verdict), why}
		if o.Wide {
			cpu := "-"
			if x.CPUSecondsPerGB != nil {
				cpu = number(*x.CPUSecondsPerGB)
			}
			cells = slices.Insert(cells, 7, percent(x.OfBest), cpu, count(x.Round))
		}
		t.Rows = append(t.Rows, report.Row{Cells: cells, Color: verdictColors[x.Verdict], Mark: string(x.Verdict)})
	}
	return t
}

// groups sums up the pairs that are not listed.
func (s *section) groups(listed, rest []*probe.Result) (out []string) {
	type kind struct {
		verdict probe.Verdict
		group   string
	}
	for _, list := range group.By(rest, func(x *probe.Result) kind { return kind{x.Verdict, x.Group} }) {
		var rates []int64
		var efficiencies []float64
		for _, x := range list {
			if b := x.Judged(); b != nil {
				rates = append(rates, b.MeanBytesPerSec)
			}
			if x.Efficiency != nil {
				efficiencies = append(efficiencies, *x.Efficiency)
			}
		}
		what := "pair"
		if slices.ContainsFunc(listed, func(x *probe.Result) bool { return x.Verdict == list[0].Verdict }) {
			what = "more pair"
		}
		line := text.Plural(len(list), what) + " " + string(list[0].Verdict)
		if len(rates) > 0 {
			line += ", " + text.Range(units.RateNumber(slices.Min(rates), s.unit), units.RateNumber(slices.Max(rates), s.unit)) + " " + s.unit.Suffix()
		}
		if len(efficiencies) > 0 {
			line += ", " + text.Range(number(slices.Min(efficiencies)*100), number(slices.Max(efficiencies)*100)) + " % of what was expected"
		}
		out = append(out, line)
	}
	return out
}
