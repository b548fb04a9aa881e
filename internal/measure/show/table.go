package show

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
)

// What a table lists without Options.All.
const (
	mostRows     = 12 // pairs of a section that need attention
	mostEvidence = 1  // of what is blamed
)

// Table writes a report for people: the answer, what is blamed, and a table for each kind, transport and
// variant. Options.All and Wide list everything; without them only pairs that need attention are listed, the
// others are summed up, and a report in which all is well is one line.
func Table(w io.Writer, r *probe.Report, o Options) error {
	p := &printer{o: o, blamed: newAnswer(r, o.Units).blamed}
	v := newOverview(r, o.Units)
	p.linef("%s", p.paint(v.Answer, inStrong))
	if o.everything() || !wellDone(r) {
		p.lines("", v.Lost)
		p.blame(v)
		for _, s := range sections(r, o.Units) {
			p.section(s)
		}
		p.linef("")
		p.linef("%s", v.Subtitle)
	}
	p.notes(v)
	return p.flush(w)
}

// wellDone says whether a report has nothing to show but its answer.
func wellDone(r *probe.Report) bool {
	return r.Complete && len(r.Blame) == 0 && len(lostHosts(r)) == 0 && !slices.ContainsFunc(r.Results, func(x probe.Result) bool {
		return x.Verdict != probe.Pass && x.Verdict != probe.Waived
	})
}

// TSV writes a line for each pair, for programs: a head, then fields separated by tabs.
func TSV(w io.Writer, r *probe.Report, o Options) error {
	rows := [][]string{{"id", "class", "samples", "rate", "ci95", "expected", "of_expected", "p50", "p99", "verdict", "reason"}}
	for _, s := range sections(r, o.Units) {
		for _, x := range s.results {
			rows = append(rows, s.fields(x))
		}
	}
	p := &printer{o: o}
	for _, line := range text.TSV(rows) {
		p.linef("%s", line)
	}
	return p.flush(w)
}

type printer struct {
	o      Options
	blamed map[string]bool // pairs that a blame explains
	out    bytes.Buffer
}

func (p *printer) flush(w io.Writer) error {
	if _, err := p.out.WriteTo(w); err != nil {
		return pkgerr.Errorf("probe", "write the table: %w", err)
	}
	return nil
}

// linef writes a line. Foreign text in it was cleaned.
func (p *printer) linef(format string, args ...any) {
	p.out.WriteString(strings.TrimRight(p.o.text(fmt.Sprintf(format, args...)), " ") + "\n")
}

// The terminal's own colours.
const (
	inStrong     = "1"
	inFaint      = "2"
	inFault      = "1;31"
	inCongestion = "35"
)

var verdictCodes = map[probe.Verdict]string{probe.Pass: "32", probe.Warn: "33", probe.Inconclusive: "33", probe.Fail: "31", probe.Error: "31", probe.Waived: inFaint}

func (p *printer) paint(text, code string) string {
	if !p.o.Color || code == "" || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

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

// section writes the table of a section.
func (p *printer) section(s *section) {
	var rows, rest []*probe.Result
	for _, x := range s.results {
		switch {
		case p.o.Wide:
			rows = append(rows, x)
		case x.Verdict == probe.Waived, x.Round == 0 && x.Error == "" && !measured(x): // the notes say so
		case !p.o.All && (x.Verdict == probe.Pass || x.Verdict == probe.Inconclusive):
			rest = append(rest, x)
		default:
			rows = append(rows, x)
		}
	}
	if len(rows)+len(rest) == 0 {
		return
	}
	if !p.o.everything() {
		slices.SortStableFunc(rows, func(a, b *probe.Result) int { return slices.Index(worst, a.Verdict) - slices.Index(worst, b.Verdict) })
		if len(rows) > mostRows {
			rows, rest = rows[:mostRows], append(rows[mostRows:], rest...)
		}
	}
	p.linef("")
	p.linef("%s", p.paint(s.title, inStrong))
	p.rows(s, rows)
	p.groups(s, rows, rest)
}

// worst orders verdicts by how much they need attention.
var worst = []probe.Verdict{probe.Error, probe.Fail, probe.Warn, probe.Measured, probe.Inconclusive, probe.Pass, probe.Waived}

// rows aligns results in columns: figures to the right, the last column at its natural width.
func (p *printer) rows(s *section, results []*probe.Result) {
	if len(results) == 0 {
		return
	}
	suffix := s.unit.Suffix()
	head := []string{"pair", "class", "n bw/lat", suffix + " ±95 %", "expected", "eff", "latency", "verdict"}
	if s.latency != "" {
		head[6] = s.latency + " p50 / p99 " + s.nsUnit
	}
	if p.o.Wide {
		head = slices.Insert(head, 6, "of best", "CPU s/GB", "round")
	}
	all := [][]string{head}
	for _, x := range results {
		v := s.view(x)
		row := []string{v.Pair, v.Class, v.Samples, v.Rate, v.Expected, v.Efficiency, v.Latency, ""}
		if p.o.Wide {
			cpu := "-"
			if x.CPUSecondsPerGB != nil {
				cpu = number(*x.CPUSecondsPerGB)
			}
			row = slices.Insert(row, 6, v.OfBest, cpu, count(x.Round))
		}
		all = append(all, row)
	}
	alignIntervals(all[1:], 3)
	last := len(head) - 1
	columns := make([]text.Column, len(head))
	for i := 3; i < last; i++ {
		columns[i].Right = true
	}
	for k, row := range all {
		for i := range row {
			row[i] = p.o.text(row[i])
		}
		if k > 0 {
			row[last] = string(results[k-1].Verdict)
		}
	}
	lines, at := columnsOf(all, columns)
	for _, least := range []string{head[2], head[1], head[len(head)-2]} { // what a narrow terminal goes without
		if p.o.Wide || p.o.Width == 0 || at <= p.o.Width {
			break
		}
		i := slices.Index(all[0], least)
		for k := range all {
			all[k] = slices.Delete(all[k], i, i+1)
		}
		columns = slices.Delete(columns, i, i+1)
		lines, at = columnsOf(all, columns)
	}
	for k, line := range lines {
		if k == 0 {
			p.linef("%s", p.paint("  "+line, inFaint))
			continue
		}
		x := results[k-1]
		v := string(x.Verdict)
		why := p.o.text(reason(x, p.o.Wide))
		if !p.o.everything() && p.blamed[x.ID] { // the blame says it
			why = ""
		}
		p.reasoned("  "+strings.TrimSuffix(line, v)+p.verdict(x)+strings.Repeat(" ", at-2-text.Width(line)), at+2, why)
	}
}

// columnsOf aligns rows and gives the cell after the widest, with the indent of a table.
func columnsOf(rows [][]string, columns []text.Column) (lines []string, end int) {
	lines = text.Columns(rows, columns...)
	for _, line := range lines {
		end = max(end, 2+text.Width(line))
	}
	return lines, end
}

// leastReason is how wide the column of reasons is at least: else they stand below their rows.
const leastReason = 30

// reasoned writes a line and a reason, wrapped in a column of its own that begins at a cell.
func (p *printer) reasoned(line string, at int, why string) {
	below := p.o.Width > 0 && p.o.Width-at < leastReason
	if below || why == "" {
		p.linef("%s", line)
		at = 6
	}
	if why == "" {
		return
	}
	room := text.Width(why)
	if p.o.Width > 0 {
		room = max(leastReason, p.o.Width-at)
	}
	for i, part := range text.Wrap(why, room) {
		if i > 0 || below {
			line = strings.Repeat(" ", at-2)
		}
		p.linef("%s  %s", line, part)
	}
}

// alignIntervals aligns the intervals of a column below each other.
func alignIntervals(rows [][]string, column int) {
	most := 0
	width := func(cell string) int {
		if i := strings.Index(cell, " ±"); i >= 0 {
			return text.Width(cell[i:])
		}
		return 0
	}
	for _, row := range rows {
		most = max(most, width(row[column]))
	}
	for _, row := range rows {
		row[column] += strings.Repeat(" ", most-width(row[column]))
	}
}

// verdict is the verdict in its colour.
func (p *printer) verdict(x *probe.Result) string {
	return p.paint(string(x.Verdict), verdictCodes[x.Verdict])
}

// groups sums up the pairs that are not listed.
func (p *printer) groups(s *section, listed, rest []*probe.Result) {
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
		line := text.Plural(len(list), what) + " " + p.verdict(list[0])
		if len(rates) > 0 {
			line += ", " + fromTo(units.RateNumber(slices.Min(rates), s.unit), units.RateNumber(slices.Max(rates), s.unit), s.unit.Suffix())
		}
		if len(efficiencies) > 0 {
			line += ", " + fromTo(number(slices.Min(efficiencies)*100), number(slices.Max(efficiencies)*100), "% of what was expected")
		}
		p.linef("  %s", line)
	}
}

// fromTo is "97 to 98 %", "98 %".
func fromTo(a, b, unit string) string {
	if a == b {
		return a + " " + unit
	}
	return a + " to " + b + " " + unit
}

// blame writes what explains the bad pairs.
func (p *printer) blame(v *overview) {
	for i := range v.Blame {
		b := &v.Blame[i]
		code := inFault
		if b.Kind == probe.Congestion {
			code = inCongestion
		}
		p.wrapped("", b.headline(), code)
		evidence := b.Evidence
		if !p.o.everything() {
			evidence = evidence[:min(mostEvidence, len(evidence))]
		}
		p.lines("  ", evidence)
		if b.Next != "" {
			p.wrapped("  ", "next: "+b.Next, "")
		}
	}
}

// notes writes what was not measured, and notes: all of them, or those on what should have been measured.
func (p *printer) notes(v *overview) {
	if p.o.everything() {
		p.lines("", v.Waived)
	}
	for _, n := range v.Notes {
		if p.o.everything() || n == v.Busy || strings.HasPrefix(n, partialNote) {
			p.wrapped("", "note: "+n, "")
		}
	}
}

// partialNote begins the notes on what is there and was not measured.
const partialNote = "partial: "

func (p *printer) lines(indent string, lines []string) {
	for _, l := range lines {
		p.wrapped(indent, l, "")
	}
}

// wrapped writes a text in lines of Options.Width, those after the first further in.
func (p *printer) wrapped(indent, s, code string) {
	list := []string{s}
	if p.o.Width > 0 {
		list = text.Wrap(s, max(leastReason, p.o.Width-len(indent)-2))
	}
	for i, line := range list {
		if i > 0 {
			line = "  " + line
		}
		p.linef("%s%s", indent, p.paint(line, code))
	}
}
