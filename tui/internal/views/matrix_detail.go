package views

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/explain"
	"github.com/topoctl/topoctl/internal/picture"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

// Detail explains the cell under the cursor, and what the cells mean.
func (v *MatrixView) Detail(env *ui.Env, width int) []string {
	if !v.sync(env) {
		return nil
	}
	d := &detail{v: v, env: env, l: env.Look, g: v.grid, width: width}
	rows, cols := v.kept(env)
	if len(rows) == 0 || len(cols) == 0 {
		return nil
	}
	r, c := v.find(rows, cols)
	d.cell(rows[r], cols[c])
	d.legend()
	return d.lines
}

type detail struct {
	v     *MatrixView
	env   *ui.Env
	l     *ui.Look
	g     *grid
	width int
	lines []string
}

func (d *detail) add(line string) { d.lines = append(d.lines, d.l.Cut(line, d.width)) }

// pair is a name and what it is; what is long goes on below.
func (d *detail) pair(name, text string) {
	const before = 10
	for i, line := range ui.Wrap(d.l.Safe(text), d.width-before, 0) {
		if i > 0 {
			name = ""
		}
		d.add(d.l.Fit(name, before) + line)
	}
}

// cell says what holds between two devices, and why.
func (d *detail) cell(i, j int) {
	m := d.g.m
	from, to := &m.Rows[i], &m.Cols[j]
	d.add(d.l.Paint(d.l.Safe(label(from)+" ")+d.l.Arrow()+" "+d.l.Safe(label(to)), ui.Strong))
	kind := ui.Class(m.Class[i][j])
	paths, err := d.g.h.Paths()
	if err != nil {
		d.pair("class", kind)
		return
	}
	route := explain.RouteBetween(paths, from.ID, to.ID)
	d.pair("class", kind+": "+explain.Why(paths, route))
	if n := m.NCCL[i][j]; n != "" {
		d.pair("NCCL", string(n))
	}
	if hops := m.Hops[i][j]; hops != nil {
		d.pair("links", strconv.Itoa(*hops)+" on the way")
	} else {
		d.pair("links", ui.Unknown)
	}
	d.pair("expected", d.expected(i, j))
	if limit := m.Limit[i][j]; limit != "" {
		d.pair("limit", explain.LinkText(paths, limit))
	}
	d.pair("measured", d.measured(i, j))
	for _, line := range d.g.h.Links(d.l, route) {
		d.add(line)
	}
}

// expected is the rate with how it is known.
func (d *detail) expected(i, j int) string {
	rate, basis := d.g.m.Rate[i][j], d.g.m.Basis[i][j]
	switch {
	case rate == nil:
		return ui.Unknown + ": no link on the way has a known rate"
	case *rate == 0:
		return "0: a link on the way carries nothing"
	case basis == topo.BasisBound:
		return basis.Text(d.l.Rate(rate)) + ": a link on the way has no known rate"
	}
	return basis.Text(d.l.Rate(rate)) + ", " + string(basis)
}

// measured is the measured rate with what it was measured of.
func (d *detail) measured(i, j int) string {
	if why := d.g.unmeasured(); why != "" {
		return why
	}
	m := d.g.measured(i, j)
	if !m.known {
		return ui.Unknown + ": neither these two nor the slowest link between them"
	}
	text := d.l.Rate(&m.rate)
	if want := d.g.m.Rate[i][j]; want != nil && *want > 0 {
		text += " (" + percent(float64(m.rate)/float64(*want)) + ")"
	}
	if m.pair {
		return text + ", between the two"
	}
	return text + ", by the slowest link between them"
}

// legend says what the cells mean, and which NIC has which number.
func (d *detail) legend() {
	d.add("")
	d.add(d.l.Paint("Legend", ui.Head))
	switch d.v.figure {
	case class:
		for _, e := range picture.Legend(picture.ViewClass) {
			d.add("  " + d.l.Fit(e.Name, 5) + e.Meaning)
		}
	case expected:
		d.pair("  "+d.l.Units.Or(units.Gbyte).Suffix(), "in one direction: the slowest link of the path")
		for _, e := range picture.Legend(picture.ViewExpected) {
			d.pair("  "+e.Name, e.Meaning)
		}
	case measured, delta:
		rules := probe.DefaultRules()
		d.pair("  marks", fmt.Sprintf("below %.0f%% of what is expected %s, below %.0f%% %s",
			100*rules.WarnUnder, d.l.Mark(ui.Middle), 100*rules.FailUnder, d.l.Mark(ui.Bad)))
		d.pair("  ?", "not measured")
	}
	d.numbers()
}

// numbers explains the short names of NICs where the screen has them.
func (d *detail) numbers() {
	var list []string
	for j := range d.g.m.Cols {
		if n := number(d.g.m, j); n != "" {
			list = append(list, n+" "+d.l.Fit(d.l.Safe(label(&d.g.m.Cols[j])), longHead))
		}
	}
	if len(list) == 0 || !d.v.short {
		return
	}
	for _, line := range ui.Flow(d.l, d.width-2, list...) {
		d.add("  " + strings.TrimRight(line, " "))
	}
}

// selection is a cell, as JSON.
type selection struct {
	From     topo.MatrixEntry `json:"from"`
	To       topo.MatrixEntry `json:"to"`
	Class    topo.Class       `json:"class"`
	NCCL     topo.NCCLClass   `json:"nccl"`
	Hops     *int             `json:"hops"`
	Expected *topo.Rate       `json:"expected_bytes_per_sec"`
	Basis    topo.Basis       `json:"basis"`
	Limit    topo.LinkID      `json:"limit_link,omitempty"`
	Measured *topo.Rate       `json:"measured_bytes_per_sec"`
}

// Selection is the cell under the cursor.
func (v *MatrixView) Selection(env *ui.Env) any {
	if !v.sync(env) {
		return nil
	}
	rows, cols := v.kept(env)
	if len(rows) == 0 || len(cols) == 0 {
		return nil
	}
	r, c := v.find(rows, cols)
	i, j, m := rows[r], cols[c], v.grid.m
	s := selection{From: m.Rows[i], To: m.Cols[j], Class: m.Class[i][j], NCCL: m.NCCL[i][j], Hops: m.Hops[i][j],
		Expected: m.Rate[i][j], Basis: m.Basis[i][j], Limit: m.Limit[i][j]}
	if x := v.grid.measured(i, j); x.known {
		s.Measured = &x.rate
	}
	return s
}
