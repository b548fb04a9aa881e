package views

import (
	"math"
	"strconv"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/picture"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
)

// grid is the matrix of some axes with what was measured.
type grid struct {
	h    *Host
	axes int
	m    *topo.Matrix
	most topo.Rate // the largest that is expected

	seen  seen
	pairs map[[2]topo.ID]topo.Rate // that were measured, devices in place of ports
	links bool                     // rates of links were measured
	rates map[[2]int]measurement
}

// seen is what the measured rates were taken from.
type seen struct {
	file, live *probe.Report
	results    int // of live
}

// measurement is a measured rate of a cell.
type measurement struct {
	rate  topo.Rate
	known bool
	pair  bool // of the two themselves; else of the slowest link between them
}

func newGrid(h *Host, axis int) *grid {
	a := &axes[axis]
	g := &grid{h: h, axes: axis, m: h.Topology.Matrix(a.rows, a.cols), rates: map[[2]int]measurement{}}
	for _, row := range g.m.Rate {
		for _, r := range row {
			if r != nil {
				g.most = max(g.most, *r)
			}
		}
	}
	return g
}

// measure takes in what was measured since.
func (g *grid) measure(s *state.State) {
	now := seen{file: s.Measured}
	if s.Probe != nil && s.Probe.Report != nil {
		now.live, now.results = s.Probe.Report, s.Probe.ResultsSeen
	}
	if g.pairs != nil && now == g.seen {
		return
	}
	g.seen, g.pairs, g.rates = now, map[[2]topo.ID]topo.Rate{}, map[[2]int]measurement{}
	g.links = len(s.Overlay) > 0
	for _, r := range []*probe.Report{now.file, now.live} { // what is live replaces what is older
		name, ok := hostIn(r, g.h.Topology)
		if !ok {
			continue
		}
		fresh := map[[2]topo.ID]topo.Rate{}
		for k, rate := range r.Between(name) {
			k = [2]topo.ID{g.h.Device(k[0]), g.h.Device(k[1])}
			fresh[k] = max(fresh[k], rate)
		}
		for k, rate := range fresh {
			g.pairs[k] = rate
		}
	}
}

// unmeasured is why no cell has a measured rate, "" where some may have.
func (g *grid) unmeasured() string {
	switch {
	case len(g.pairs) > 0 || g.links:
		return ""
	case g.seen.file == nil && g.seen.live == nil:
		return "no probe was loaded"
	}
	return "no rate of this host was measured"
}

// hostIn is what a report calls a host: of those that are built like it the one that has
// its name, or the only one.
func hostIn(r *probe.Report, t *topo.Topology) (string, bool) {
	if r == nil {
		return "", false
	}
	print := t.Fingerprint()
	name, alike := "", 0
	for i := range r.Hosts {
		switch h := &r.Hosts[i]; {
		case h.Fingerprint != print:
		case h.Name == t.Host.Name:
			return h.Name, true
		default:
			name = h.Name
			alike++
		}
	}
	return name, alike == 1
}

// measured is the measured rate of a cell: of the pair, else of the slowest link between
// the two where that was measured.
func (g *grid) measured(i, j int) measurement {
	key := [2]int{i, j}
	m, ok := g.rates[key]
	if ok {
		return m
	}
	a, b := g.m.Rows[i].ID, g.m.Cols[j].ID
	if rate, ok := g.pairs[[2]topo.ID{a, b}]; ok {
		m = measurement{rate, true, true}
	} else if g.links {
		if r := g.h.Graph.Relate(a, b); r.Basis == topo.BasisMeasured && r.BytesPerSec != nil {
			m = measurement{*r.BytesPerSec, true, false}
		}
	}
	g.rates[key] = m
	return m
}

// label is how a row or column is called.
func label(e *topo.MatrixEntry) string {
	if e.Kind == topo.KindNUMA && e.NUMA != nil {
		return "cpu:" + strconv.Itoa(*e.NUMA)
	}
	return e.Name
}

// cell is the text of a cell and how good that is.
func (g *grid) cell(l *ui.Look, f figure, i, j int) (string, ui.Style) {
	if g.m.Rows[i].ID == g.m.Cols[j].ID {
		return "X", ui.Faint
	}
	switch f {
	case expected:
		return g.expected(l, i, j)
	case measured, delta:
		return g.compared(l, f, i, j)
	}
	c := g.m.Class[i][j]
	if !c.Known() {
		return ui.Unknown, ui.Faint
	}
	return c.String(), Styles[picture.ClassStyle(c)]
}

// expected is a rate against the best of its row. A bound or a typical rate may be far from what
// there is: it is never as good as a rate that is known.
func (g *grid) expected(l *ui.Look, i, j int) (string, ui.Style) {
	rate := g.m.Rate[i][j]
	if rate == nil {
		return ui.Unknown, ui.Plain
	}
	basis := g.m.Basis[i][j]
	text := basis.Mark(units.RateNumber(int64(*rate), l.Units))
	best := topo.Rate(0)
	for k, r := range g.m.Rate[i] {
		if r != nil && g.m.Rows[i].ID != g.m.Cols[k].ID && g.m.Basis[i][k].Sure() {
			best = max(best, *r)
		}
	}
	switch part := float64(*rate) / float64(max(best, 1)); {
	case *rate == 0:
		return text, ui.Bad
	case part >= 0.95 && basis.Sure():
		return text, ui.Good
	case part >= 0.5:
		return text, ui.Plain
	}
	return text, ui.Middle
}

// compared is a measured rate, or by how much it differs from what is expected, with a mark
// where that is too little.
func (g *grid) compared(l *ui.Look, f figure, i, j int) (string, ui.Style) {
	m := g.measured(i, j)
	if !m.known {
		return ui.Unknown, ui.Faint
	}
	want := g.m.Rate[i][j]
	style, text := ui.Plain, units.RateNumber(int64(m.rate), l.Units)
	if want != nil && *want > 0 {
		part := float64(m.rate) / float64(*want)
		style = styleOfPart(part)
		if f == delta {
			text = percent(part)
		}
	} else if f == delta {
		return ui.Unknown, ui.Faint
	}
	if mark := l.Mark(style); mark != " " {
		text += mark
	}
	return text, style
}

// styleOfPart judges a part of the expected rate as a probe does.
func styleOfPart(part float64) ui.Style {
	rules := probe.DefaultRules()
	switch {
	case part < rules.FailUnder:
		return ui.Bad
	case part < rules.WarnUnder:
		return ui.Middle
	}
	return ui.Good
}

// percent is by how much a part differs from the whole: "-38%", "+2%".
func percent(part float64) string {
	n := int64(math.Round(100 * (part - 1)))
	if n > 0 {
		return "+" + strconv.FormatInt(n, 10) + "%"
	}
	return strconv.FormatInt(n, 10) + "%"
}
