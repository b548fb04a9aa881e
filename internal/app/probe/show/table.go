package show

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/internal/base/group"
	"github.com/topoctl/topoctl/internal/base/pkgerr"
	"github.com/topoctl/topoctl/internal/base/text"
	"github.com/topoctl/topoctl/internal/base/units"
	"github.com/topoctl/topoctl/probe"
)

const (
	shortSection = 40 // results up to which all are listed
	mostRows     = 60 // rows of a long section
)

// Table writes a report's pairs. For people (Options.Columns) there is a table for each kind, transport
// and variant, followed by the summary; of long ones only the pairs that did not pass are listed, and
// those that did are summed up by group. For programs there is a line for each pair: ID, class, samples,
// rate, interval, expected, efficiency, p50, p99, verdict, reason, separated by tabs; Summary has the
// rest.
func Table(w io.Writer, r *probe.Report, o Options) error {
	p := &printer{o: o}
	all := sections(r, o.Units)
	if !o.Columns {
		for _, s := range all {
			p.fields(s)
		}
		return p.flush(w)
	}
	for _, s := range all {
		p.section(s)
	}
	p.summary(newOverview(r, o.Units))
	return p.flush(w)
}

// Summary writes what follows a table: counts by verdict, what is to blame, why pairs were waived, and
// notes.
func Summary(w io.Writer, r *probe.Report, o Options) error {
	p := &printer{o: o}
	p.summary(newOverview(r, o.Units))
	return p.flush(w)
}

type printer struct {
	o   Options
	out bytes.Buffer
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
	inStrong = "1"
	inFaint  = "2"
)

var verdictCodes = map[probe.Verdict]string{probe.Pass: "32", probe.Warn: "33", probe.Inconclusive: "33", probe.Fail: "31", probe.Error: "31", probe.Waived: inFaint}

func (p *printer) paint(text, code string) string {
	if !p.o.Color || code == "" || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// fields writes a section for programs: rates are all in the section's unit.
func (p *printer) fields(s *section) {
	rate := func(bytesPerSec int64) string { return units.RateNumber(bytesPerSec, s.unit) + " " + s.unit.Suffix() }
	for _, x := range s.results {
		mean, ci, p50, p99 := "-", "-", "-", "-"
		if b := x.Judged(); b != nil {
			mean = rate(b.MeanBytesPerSec)
			if b.CI95BytesPerSec != nil {
				ci = rate(*b.CI95BytesPerSec)
			}
		}
		want := "-"
		if x.Expected.BytesPerSec != nil {
			want = rate(int64(*x.Expected.BytesPerSec))
		}
		if _, l := x.Typical(); l != nil {
			p50, p99 = s.ns(l.P50)+" "+s.nsUnit, s.ns(l.P99)+" "+s.nsUnit
		}
		row := []string{clean(x.ID), classText(&x.Pair), samples(x), mean, ci, want, percent(x.Efficiency), p50, p99, string(x.Verdict), reason(x, true)}
		p.linef("%s", strings.Join(row, "\t"))
	}
}

// section writes the table of a section.
func (p *printer) section(s *section) {
	rows, rest := s.results, []*probe.Result(nil)
	if !p.o.Wide {
		long := len(s.results) > shortSection
		rows, rest = nil, nil
		for _, x := range s.results {
			switch {
			case x.Verdict == probe.Waived, x.Round == 0 && x.Error == "" && !measured(x): // the summary says so
			case long && x.Verdict == probe.Pass:
				rest = append(rest, x)
			default:
				rows = append(rows, x)
			}
		}
	}
	if len(rows)+len(rest) == 0 {
		return
	}
	more := 0
	if !p.o.Wide && len(rows) > mostRows && len(s.results) > shortSection {
		rows, more = rows[:mostRows], len(rows)-mostRows
	}
	p.linef("%s", p.paint(s.title, inStrong))
	p.rows(s, rows)
	if more > 0 {
		p.linef("  and %s more that did not pass", text.Plural(more, "pair"))
	}
	p.groups(s, rest)
	p.linef("")
}

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
			row[last] = p.verdict(results[k-1])
		}
	}
	for k, line := range text.Columns(all, columns...) {
		if line = "  " + line; k == 0 {
			line = p.paint(line, inFaint)
		}
		p.linef("%s", line)
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

// verdict is the verdict with its reason.
func (p *printer) verdict(x *probe.Result) string {
	text := p.paint(string(x.Verdict), verdictCodes[x.Verdict])
	if why := reason(x, p.o.Wide); why != "" {
		text += " (" + why + ")"
	}
	return text
}

// groups sums up the pairs that passed.
func (p *printer) groups(s *section, passed []*probe.Result) {
	for _, list := range group.By(passed, func(x *probe.Result) string { return x.Group }) {
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
		line := text.Plural(len(list), "pair") + " " + p.paint(string(probe.Pass), verdictCodes[probe.Pass])
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

// summary writes what follows the tables.
func (p *printer) summary(v *overview) {
	p.linef("%s", v.Subtitle)
	for _, line := range v.Incomplete() {
		p.linef("%s", line)
	}
	for i := range v.Blame {
		b := &v.Blame[i]
		p.linef("%s", p.paint(b.headline(), inStrong))
		for _, e := range b.Evidence {
			p.linef("  %s", e)
		}
		if b.Next != "" {
			p.linef("  next: %s", b.Next)
		}
	}
	for _, line := range v.Waived {
		p.linef("%s", line)
	}
	for _, n := range v.Notes {
		p.linef("note: %s", n)
	}
}
