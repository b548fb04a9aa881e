package show

import (
	"cmp"
	"slices"
	"unicode/utf8"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
)

// mostEnds is how many ends an axis of a heat map may have.
const mostEnds = 512

// end identifies a row or column.
type end struct{ host, name string }

// grid is the heat map of one section: from the rows to the columns.
type grid struct {
	*section
	from, to []end
	cells    map[[2]int]*probe.Result
	// w and h are those of a cell, font its size of text, 0 no text; letter: the verdict's only.
	w, h, font int
	letter     bool
	left, top  int // room for labels
}

func newGrid(s *section) *grid {
	g := &grid{section: s, cells: make(map[[2]int]*probe.Result, len(s.results))}
	g.from = axis(s, func(x *probe.Result) *probe.End { return &x.From })
	g.to = axis(s, func(x *probe.Result) *probe.End { return &x.To })
	rows, columns := index(g.from), index(g.to)
	for _, x := range s.results {
		g.cells[[2]int{rows[endOf(&x.From)], columns[endOf(&x.To)]}] = x
	}
	g.size()
	return g
}

func endOf(e *probe.End) end { return end{e.Host, e.Name} }

func axis(s *section, of func(*probe.Result) *probe.End) []end {
	seen := map[end]bool{}
	var out []end
	for _, x := range s.results {
		if e := endOf(of(x)); !seen[e] {
			seen[e] = true
			out = append(out, e)
		}
	}
	slices.SortFunc(out, compareEnds)
	return out
}

func compareEnds(a, b end) int {
	return cmp.Or(topo.NaturalCompare(a.host, b.host), topo.NaturalCompare(a.name, b.name))
}

func index(ends []end) map[end]int {
	out := make(map[end]int, len(ends))
	for i, e := range ends {
		out[e] = i
	}
	return out
}

// size chooses the size of a cell, and the space for labels.
func (g *grid) size() {
	switch n := max(len(g.from), len(g.to)); {
	case n <= 16:
		g.w, g.h, g.font = 58, 26, 12
	case n <= 32:
		g.w, g.h, g.font = 44, 20, 10
	case n <= 64:
		g.w, g.h, g.font, g.letter = 17, 15, 10, true
	case n <= 128:
		g.w, g.h = 9, 9
	case n <= 256:
		g.w, g.h = 5, 5
	default:
		g.w, g.h = 3, 3
	}
	for _, l := range g.labels(g.from, g.h) {
		g.left = max(g.left, pixelWidth(l.text, labelFont)+g.gap()+4)
	}
	for _, l := range g.labels(g.to, g.w) {
		g.top = max(g.top, pixelWidth(l.text, labelFont)+g.gap()+4)
	}
	if g.flat() {
		g.top = 20
	}
}

// gap is the space between labels and cells: if cells have no text, there are marks in it.
func (g *grid) gap() int {
	if g.font == 0 {
		return 10
	}
	return 6
}

// flat says whether the labels of columns fit side by side.
func (g *grid) flat() bool {
	for _, e := range g.to {
		if pixelWidth(g.label(e), labelFont) > g.w-4 {
			return false
		}
	}
	return len(g.to) <= 16
}

const labelFont = 11

// label is a text beside an axis, at the middle of the cells from first to last.
type label struct {
	text        string
	first, last int
}

func (g *grid) label(e end) string {
	if g.local || e.host == "" {
		return text.Cut(clean(e.name), 40, text.Ellipsis)
	}
	return text.Cut(clean(e.host+"/"+e.name), 40, text.Ellipsis)
}

// labels are those of an axis: each end, or if there is not enough space each host, and of those as many
// as fit.
func (g *grid) labels(ends []end, step int) []label {
	const least = 13 // pixels from label to label
	var out []label
	if step >= least {
		for i, e := range ends {
			out = append(out, label{g.label(e), i, i})
		}
		return out
	}
	last := -least
	for _, run := range g.runs(ends) {
		name := text.Cut(clean(ends[run[0]].host), 40, text.Ellipsis)
		if g.local {
			name = g.label(ends[run[0]])
		}
		if middle := (run[0] + run[1]) * step / 2; middle-last >= least {
			out = append(out, label{name, run[0], run[1] - 1})
			last = middle
		}
	}
	return out
}

// runs are the ends of each host, from the first to before the last; if all are of one host, single ends.
func (g *grid) runs(ends []end) (out [][2]int) {
	for i, e := range ends {
		if n := len(out); n > 0 && !g.local && ends[i-1].host == e.host {
			out[n-1][1]++
		} else {
			out = append(out, [2]int{i, i + 1})
		}
	}
	return out
}

func (g *grid) width() int  { return g.left + len(g.to)*g.w + 12 }
func (g *grid) height() int { return gridHead + g.top + len(g.from)*g.h + 4 }

// gridHead is the space for a grid's title.
const gridHead = 24

// tooLarge says whether a heat map would have more ends than are drawn.
func (g *grid) tooLarge() bool { return max(len(g.from), len(g.to)) > mostEnds }

// pixelWidth is about how wide a text is: fonts differ, so it is rather too much.
func pixelWidth(s string, font int) int { return utf8.RuneCountInString(s) * font * 62 / 100 }

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

// shareOf is what the colour of a cell shows: the part of the expected rate, or else of the best of the
// pair's group.
func shareOf(x *probe.Result) *float64 {
	if x.Efficiency != nil {
		return x.Efficiency
	}
	return x.OfBest
}

// letters are the verdicts in a cell.
var letters = map[probe.Verdict]string{probe.Pass: "P", probe.Measured: "M", probe.Warn: "W", probe.Fail: "F", probe.Inconclusive: "I", probe.Error: "E"}

// text is what a cell says.
func (g *grid) text(x *probe.Result) string {
	switch {
	case x.Verdict == probe.Waived && g.letter:
		return "x"
	case x.Verdict == probe.Waived:
		return "n/a"
	case x.Verdict == probe.Error:
		return "E"
	case !measured(x):
		return "–"
	case g.letter:
		return letters[x.Verdict]
	}
	if b := x.Judged(); b != nil {
		return short(b.MeanBytesPerSec, g.unit) + " " + letters[x.Verdict]
	}
	_, p := x.Typical()
	return g.ns(p.P50) + " " + letters[x.Verdict]
}
