package views

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/tui/internal/ui"
)

// How wide cells and heads are.
const (
	longHead  = 16 // of a column, where all columns have room
	shortHead = 8  // where they do not: longer names are numbers
)

// cellWidth is what the figures take at least, marks included.
var cellWidth = [...]int{class: 4, expected: 6, measured: 7, delta: 6}

// Main draws the matrix.
func (v *MatrixView) Main(env *ui.Env, size ui.Size) []string {
	l := env.Look
	v.drawn = frame{}
	if !v.sync(env) {
		return Exact(l, []string{" no topology yet"}, size.W, size.H)
	}
	if len(v.grid.m.Rows) == 0 || len(v.grid.m.Cols) == 0 {
		v.turn(env)
	}
	if len(v.grid.m.Rows) == 0 || len(v.grid.m.Cols) == 0 {
		return Exact(l, []string{" nothing to relate: the host has no GPU, no NIC or no NUMA node"}, size.W, size.H)
	}
	rows, cols := v.kept(env)
	if len(rows) == 0 || len(cols) == 0 {
		return Exact(l, []string{" nothing matches " + l.Safe(string(env.Filter))}, size.W, size.H)
	}
	p := v.layout(env, rows, cols, size)
	var lines []string
	if size.H > 3 {
		lines = append(lines, p.title())
	}
	if size.H > 1 {
		lines = append(lines, p.heads())
	}
	for i := range v.drawn.rows {
		lines = append(lines, p.row(i))
	}
	return Exact(l, lines, size.W, size.H)
}

// drawing is one drawing of the matrix.
type drawing struct {
	v          *MatrixView
	l          *ui.Look
	g          *grid
	rows, cols []int // all that the filter keeps
	at, col    int   // the cursor's places among them
	width      int   // of a cell without the blanks around it
	names      map[int]string
}

// layout says what is shown where.
func (v *MatrixView) layout(env *ui.Env, rows, cols []int, size ui.Size) *drawing {
	p := &drawing{v: v, l: env.Look, g: v.grid, rows: rows, cols: cols}
	p.at, p.col = v.find(rows, cols)
	f := frame{head: beforeLabel + min(v.labelWidth(p.l, rows), max(shortHead, size.W/4))}
	p.names, p.width = p.columnNames(size.W - f.head - 1)
	f.slot = p.width + 1
	fit := max(1, (size.W-f.head-1)/f.slot)
	switch {
	case size.H > 3:
		f.first = 2
	case size.H > 1:
		f.first = 1
	}
	v.page = max(0, size.H-f.first)
	v.top, v.left = Scroll(v.top, p.at, len(rows), v.page), Scroll(v.left, p.col, len(cols), fit)
	f.rows = rows[v.top:min(len(rows), v.top+v.page)]
	f.cols = cols[v.left:min(len(cols), v.left+fit)]
	v.drawn = f
	return p
}

// beforeLabel are the columns before the name of a row: the cursor, and the mark of a finding.
const beforeLabel = 2

// labelWidth is what the longest name of a row takes.
func (v *MatrixView) labelWidth(l *ui.Look, rows []int) int {
	w := 4
	for _, i := range rows {
		w = max(w, ui.Width(l.Safe(label(&v.grid.m.Rows[i]))))
	}
	return w
}

// columnNames are the heads of the columns and how wide a cell is: names where all columns have
// room, else NICs by number, which the legend explains.
func (p *drawing) columnNames(room int) (map[int]string, int) {
	names, width := map[int]string{}, cellWidth[p.v.figure]
	if p.v.figure == expected || p.v.figure == measured {
		width = max(width, len("<")+len(units.RateNumber(int64(p.g.most), p.l.Units)))
	}
	short, least := map[int]string{}, width
	for _, j := range p.cols {
		e := &p.g.m.Cols[j]
		mark := strings.TrimSpace(p.l.Mark(p.g.h.Worst(e.ID)))
		names[j] = mark + p.l.Safe(label(e))
		width = max(width, ui.Width(names[j]))
		short[j] = names[j]
		if n := number(p.g.m, j); n != "" {
			short[j] = mark + n
		}
		least = max(least, min(ui.Width(short[j]), shortHead))
	}
	p.v.short = width > longHead || (width+1)*len(p.cols) > room
	if p.v.short {
		return short, least
	}
	return names, width
}

// Needs is all rows and columns, these with their names.
func (v *MatrixView) Needs(env *ui.Env, _ int) ui.Size {
	if !v.sync(env) {
		return ui.Size{H: 1}
	}
	rows, cols := v.kept(env)
	if len(rows) == 0 || len(cols) == 0 {
		return ui.Size{H: 1}
	}
	p := &drawing{v: v, l: env.Look, g: v.grid, cols: cols}
	_, width := p.columnNames(math.MaxInt)
	return ui.Size{W: beforeLabel + v.labelWidth(p.l, rows) + (width+1)*len(cols) + 1, H: 2 + len(rows)}
}

// Position says nothing: the first line has rows and columns.
func (*MatrixView) Position() string { return "" }

// number is the short name of a NIC, as nvidia-smi numbers them; "" for other columns.
func number(m *topo.Matrix, j int) string {
	if !isNIC(&m.Cols[j]) {
		return ""
	}
	n := 0
	for k := range j {
		if isNIC(&m.Cols[k]) {
			n++
		}
	}
	return "NIC" + strconv.Itoa(n)
}

func isNIC(e *topo.MatrixEntry) bool { return e.Kind == topo.KindRDMA || e.Kind == topo.KindNetdev }

// title says what the cells show, and which of them are on the screen.
func (p *drawing) title() string {
	what := p.v.figure.String()
	switch p.v.figure {
	case expected, measured:
		what += " " + p.l.Units.Or(units.Gbyte).Suffix()
	}
	line := p.l.Paint(what, ui.Strong) + "  " + axes[p.v.axes].name
	if p.v.figure == measured || p.v.figure == delta {
		if why := p.g.unmeasured(); why != "" {
			line += "  " + p.l.Paint(why, ui.Middle)
		}
	}
	part := func(name string, from, n, all int) string {
		if n >= all {
			return text.Plural(all, name)
		}
		return fmt.Sprintf("%ss %d-%d of %d", name, from+1, from+n, all)
	}
	f := p.v.drawn
	return line + "  " + p.l.Paint(part("row", p.v.top, len(f.rows), len(p.rows))+", "+part("column", p.v.left, len(f.cols), len(p.cols)), ui.Faint)
}

// heads are the columns' heads; the corner says where there is more.
func (p *drawing) heads() string {
	f := p.v.drawn
	corner := " "
	for _, side := range []struct {
		sign rune
		more bool
	}{
		{'l', p.v.left > 0}, {'r', p.v.left+len(f.cols) < len(p.cols)},
		{'u', p.v.top > 0}, {'d', p.v.top+len(f.rows) < len(p.rows)},
	} {
		if side.more {
			corner += p.l.More(side.sign)
		}
	}
	var b strings.Builder
	b.WriteString(p.l.Fit(corner, f.head))
	for k, j := range f.cols {
		style := p.g.h.Worst(p.g.m.Cols[j].ID)
		switch {
		case p.v.left+k == p.col:
			style = ui.Accent
		case style == ui.Plain:
			style = ui.Head
		}
		b.WriteString(" " + p.l.Paint(p.l.FitRight(p.names[j], p.width), style))
	}
	return b.String()
}

// row is a line of cells behind its head.
func (p *drawing) row(i int) string {
	f := p.v.drawn
	r := f.rows[i]
	selected := p.v.top+i == p.at
	cursor, style := " ", ui.Head
	if selected {
		cursor, style = p.l.Cursor(), ui.Accent
	}
	mark := p.g.h.Worst(p.g.m.Rows[r].ID)
	var b strings.Builder
	b.WriteString(cursor + p.l.Paint(p.l.Mark(mark), mark) + p.l.Paint(p.l.Fit(p.l.Safe(label(&p.g.m.Rows[r])), f.head-beforeLabel), style))
	after := " " // the brackets stand where the blanks between cells are
	for k, j := range f.cols {
		text, style := p.g.cell(p.l, p.v.figure, r, j)
		text = p.l.FitRight(text, p.width)
		if selected && p.v.left+k == p.col {
			b.WriteString(p.l.Paint("["+text+"]", ui.Selected))
			after = ""
		} else {
			b.WriteString(after + p.l.Paint(text, style))
			after = " "
		}
	}
	return b.String()
}
