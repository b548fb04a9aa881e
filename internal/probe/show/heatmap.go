package show

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
)

// end identifies a row or column.
type end struct{ host, name string }

func endOf(e *probe.End) end { return end{e.Host, e.Name} }

func compareEnds(a, b end) int {
	return cmp.Or(topo.NaturalCompare(a.host, b.host), topo.NaturalCompare(a.name, b.name))
}

// mostBlame is how many faults are listed above the heat maps.
const mostBlame = 6

// SVG draws heat maps of a report, one for each kind, transport and variant: rows are where bytes come from, columns
// where they go. The same report gives the same bytes.
func SVG(r *probe.Report, o Options) []byte {
	return heatMap(r, newOverview(r, o.Units), sections(r, o.Units), false)
}

func heatMap(r *probe.Report, v *overview, all []*section, bare bool) []byte {
	m := &report.HeatMap{Title: v.Title, Bare: bare,
		About: "Rates between pairs of ends: a row for each source, a column for each destination.",
		Lines: []report.HeadLine{{Text: v.Answer}, {Text: v.Subtitle}},
		Notes: []string{"Colour: the measured part of the expected rate; where none is known, of the best rate of the pair's group.",
			"P pass, M measured, W warn, F fail (framed), I inconclusive (dashed), E error; n/a or x waived; – not measured"}}
	for _, l := range v.Incomplete() {
		m.Lines = append(m.Lines, report.HeadLine{Text: l, Sign: report.AlertSign})
	}
	for i := range r.Blame {
		if i == mostBlame {
			m.Lines = append(m.Lines, report.HeadLine{Text: fmt.Sprintf("and %d more suspects", len(r.Blame)-i), Sign: report.AlertSign})
			break
		}
		line := report.HeadLine{Text: blameHeadline(&r.Blame[i], r, v.units), Sign: report.AlertSign}
		if r.Blame[i].Kind == probe.Congestion {
			line.Sign = report.TrafficSign
		}
		m.Lines = append(m.Lines, line)
	}
	for _, l := range v.Waived {
		m.Lines = append(m.Lines, report.HeadLine{Text: l})
	}
	for _, s := range all {
		m.Grids = append(m.Grids, s.grid())
	}
	legend := func(about string, c report.Cell) { m.Legend = append(m.Legend, report.Swatch{Cell: c, About: about}) }
	for i, least := range steps {
		legend(fmt.Sprintf("≥ %.0f %%", least*100), report.Cell{Step: i})
	}
	legend("< 20 %", report.Cell{Step: report.Worst})
	legend("not known", report.Cell{Step: report.NotKnown})
	legend("not measured", report.Cell{Look: report.Hatched})
	legend("error", report.Cell{Look: report.Crossed})
	return m.SVG()
}

// grid is the heat map of one section: from the rows to the columns.
func (s *section) grid() *report.Grid {
	rows, from := s.axis(func(x *probe.Result) *probe.End { return &x.From })
	cols, to := s.axis(func(x *probe.Result) *probe.End { return &x.To })
	cells := make(map[[2]int]*probe.Result, len(s.results))
	for _, x := range s.results {
		cells[[2]int{from[endOf(&x.From)], to[endOf(&x.To)]}] = x
	}
	return &report.Grid{Title: s.title, Unit: s.unit.Suffix(), Rows: rows, Cols: cols, Count: true, Cell: func(row, col int) *report.Cell {
		if x := cells[[2]int{row, col}]; x != nil {
			return s.cell(x)
		}
		return nil
	}}
}

// axis are the ends at one side, and where each is.
func (s *section) axis(of func(*probe.Result) *probe.End) ([]report.Place, map[end]int) {
	at := map[end]int{}
	var ends []end
	for _, x := range s.results {
		e := endOf(of(x))
		if _, known := at[e]; !known {
			at[e] = 0
			ends = append(ends, e)
		}
	}
	slices.SortFunc(ends, compareEnds)
	places := make([]report.Place, len(ends))
	for i, e := range ends {
		at[e] = i
		places[i] = report.Place{Group: e.host, Name: endName(&probe.End{Host: e.host, Name: e.name}, s.local)}
		if s.local {
			places[i].Group = ""
		}
	}
	return places, at
}

// steps are the classes of a cell's colour: the part of what was expected that was measured is at least this. The last
// one has less, and one beyond is for nothing to compare with.
var steps = []float64{0.97, 0.93, 0.90, 0.80, 0.60, 0.40, 0.20}

func stepOf(part *float64) int {
	if part == nil {
		return report.NotKnown
	}
	for i, least := range steps {
		if *part >= least {
			return i
		}
	}
	return report.Worst
}

// cell is a pair in a heat map. Its colour is the part of the expected rate, or else of the best of the pair's group.
func (s *section) cell(x *probe.Result) *report.Cell {
	share := x.Efficiency
	if share == nil {
		share = x.OfBest
	}
	c := &report.Cell{Step: stepOf(share), Letter: letters[x.Verdict], Tip: func() []string { return s.tip(x) }}
	switch b := x.Judged(); {
	case x.Verdict == probe.Waived:
		c.Look, c.Text, c.Letter = report.Hatched, "n/a", "x"
	case x.Verdict == probe.Error:
		c.Look, c.Text = report.Crossed, "E"
	case !measured(x):
		c.Look, c.Text, c.Letter = report.Outlined, "–", "–"
	case b != nil:
		c.Text = short(b.MeanBytesPerSec, s.unit) + " " + c.Letter
	default:
		_, p := x.Typical()
		c.Text = s.ns(p.P50) + " " + c.Letter
	}
	switch {
	case c.Look != report.Solid:
	case x.Verdict == probe.Fail:
		c.Look = report.Framed
	case x.Verdict == probe.Inconclusive:
		c.Look = report.Dashed
	}
	return c
}

// letters are the verdicts in a cell.
var letters = map[probe.Verdict]string{
	probe.Pass: "P", probe.Measured: "M", probe.Warn: "W", probe.Fail: "F", probe.Inconclusive: "I", probe.Error: "E",
}

// tip is the text of a cell that a pointer brings up.
func (s *section) tip(x *probe.Result) []string {
	lines := []string{PairName(&x.Pair, s.local) + ": " + string(x.Verdict)}
	if why := reason(x, true); why != "" {
		lines = append(lines, why)
	}
	if x.Judged() != nil {
		lines = append(lines, s.rate(x)+" "+s.unit.Suffix()+", expected "+expected(&x.Expected, s.unit)+", "+percent(x.Efficiency))
	}
	if l := s.latencies(x); l != "-" {
		lines = append(lines, s.latency+" p50 / p99 "+l+" "+s.nsUnit)
	}
	return lines
}

// short is a rate for a cell: hundreds of gigabits without a fraction.
func short(bytesPerSec int64, u units.System) string {
	const gbit = 125_000_000
	if u == units.Gbit && bytesPerSec >= 100*gbit {
		bytesPerSec = (bytesPerSec + gbit/2) / gbit * gbit
	}
	return units.RateNumber(bytesPerSec, u)
}

// measured says whether a result has a figure to show.
func measured(x *probe.Result) bool {
	_, p := x.Typical()
	return x.Judged() != nil || p != nil
}
