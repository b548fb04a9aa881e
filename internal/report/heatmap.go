package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/internal/text"
)

// HeatMap is a drawing of grids: each has a row for every thing of one list, a column for every thing of another, and a
// cell where there is something to tell of both.
type HeatMap struct {
	Title, About string     // About says in words what is shown
	Lines        []HeadLine // above the grids
	Grids        []*Grid
	Legend       []Swatch
	Notes        []string // below the legend
	Bare         bool     // without title and lines: a page has them
}

// HeadLine is a line above the grids, with a sign before it: colour is not all that tells them apart.
type HeadLine struct {
	Text string
	Sign Sign
}

// Sign is the sign before a line.
type Sign int

// The signs: none, a triangle, two bars.
const (
	NoSign Sign = iota
	AlertSign
	TrafficSign
)

// Swatch explains a cell.
type Swatch struct {
	Cell  Cell
	About string
}

// Grid is a grid of a heat map. Its cells have room for a text, for a letter, or for none, by how many there are.
type Grid struct {
	Title       string
	Unit        string // of the texts in cells
	Rows, Cols  []Place
	Cell        func(row, col int) *Cell // nil: there is nothing to tell
	OneText     bool                     // texts are signs of one letter: cells are small
	Count       bool                     // the title says how many rows and columns there are
	w, h, font  int
	letter      bool
	left, top   int // room for names
	small, flat bool
}

// Place is what a row or column stands for: Name says it all ("n1/mlx5_0"). Those of one group ("n1") are next to each
// other, and where there is no room for names the group's name stands for all; "" is no group.
type Place struct{ Group, Name string }

// Cell is a cell.
type Cell struct {
	Step         int // its colour, 0 to Another
	Look         CellLook
	Text, Letter string
	Tip          func() []string // lines that a pointer brings up; nil: none
}

// CellLook is how a cell looks beside its colour.
type CellLook int

// The looks of cells.
const (
	Solid    CellLook = iota
	Framed            // bad
	Dashed            // not certain
	Hatched           // left out
	Crossed           // an error
	Outlined          // nothing was measured
)

// bad says whether a cell counts as one that failed.
func (c *Cell) bad() bool { return c.Look == Framed || c.Look == Crossed }

const (
	leastWidth = 820
	fullWidth  = 1500 // of grids side by side
	mostText   = 1100 // of the lines above them
	mostTips   = 4096 // small cells with a text of their own
	mostPlaces = 512  // of a side of a grid whose cells have a figure each
	labelFont  = 11
	gridHead   = 24 // room for a grid's title
)

// size chooses how large cells are, and the room for names.
func (g *Grid) size() {
	switch n := max(len(g.Rows), len(g.Cols)); {
	case g.OneText:
		g.w, g.h, g.font = 28, 20, 12
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
	g.small = g.font == 0
	for _, l := range labels(g.Rows, g.h) {
		g.left = max(g.left, pixels(l.text, labelFont)+g.gap()+4)
	}
	for _, l := range labels(g.Cols, g.w) {
		g.top = max(g.top, pixels(l.text, labelFont)+g.gap()+4)
	}
	g.flat = len(g.Cols) <= 16 && !slices.ContainsFunc(g.Cols, func(p Place) bool { return pixels(p.label(), labelFont) > g.w-4 })
	if g.flat {
		g.top = 20
	}
}

// gap is the space between names and cells: small cells have marks in it.
func (g *Grid) gap() int {
	if g.small {
		return 10
	}
	return 6
}

func (g *Grid) tooLarge() bool { return !g.OneText && max(len(g.Rows), len(g.Cols)) > mostPlaces }

func (g *Grid) head() string {
	s := g.Title
	if g.Unit != "" && !g.letter && !g.small {
		s += ", " + g.Unit
	}
	if g.Count {
		s += fmt.Sprintf(" (%d to %d)", len(g.Rows), len(g.Cols))
	}
	return s
}

// extent is how wide and high the grid is with its title.
func (g *Grid) extent() (width, height int) {
	width, height = g.left+len(g.Cols)*g.w+12, gridHead+g.top+len(g.Rows)*g.h+4
	if g.tooLarge() {
		width, height = 400, gridHead+lineHeight
	}
	return max(width, pixels(g.head(), 13)+12), height
}

func cutLabel(s string) string { return text.Cut(text.Printable(s), 40, text.Ellipsis) }

func (p Place) label() string { return cutLabel(p.Name) }

// label is a text beside a side, at the middle of the cells from first to last.
type label struct {
	text        string
	first, last int
}

// labels are those of a side: each place, or where there is not enough room each group, and of those as many as fit.
func labels(places []Place, step int) []label {
	const least = 13 // pixels from label to label
	var out []label
	if step >= least {
		for i, p := range places {
			out = append(out, label{p.label(), i, i})
		}
		return out
	}
	last := -least
	for _, run := range runs(places) {
		name := cutLabel(places[run[0]].Group)
		if name == "" {
			name = places[run[0]].label()
		}
		if middle := (run[0] + run[1]) * step / 2; middle-last >= least {
			out = append(out, label{name, run[0], run[1] - 1})
			last = middle
		}
	}
	return out
}

// runs are the places of each group, from the first to before the last; without a group each by itself.
func runs(places []Place) (out [][2]int) {
	for i, p := range places {
		if n := len(out); n > 0 && p.Group != "" && places[i-1].Group == p.Group {
			out[n-1][1]++
		} else {
			out = append(out, [2]int{i, i + 1})
		}
	}
	return out
}

// mapCanvas draws a heat map.
type mapCanvas struct {
	canvas
	tips int
}

// SVG draws the map: grids side by side where they fit, the legend below.
func (m *HeatMap) SVG() []byte {
	d := &mapCanvas{}
	const pattern = `<pattern id="%s" width="6" height="6" patternUnits="userSpaceOnUse"><path %s stroke-width="0.8" opacity="0.6" d="%s"/></pattern>`
	d.printf("<defs>"+pattern+pattern+"</defs>\n", "r-hatch", line.stroke(), "M0 6L6 0", "r-cross", alert.stroke(), "M0 6L6 0M0 0L6 6")
	width, y := leastWidth, margin
	if !m.Bare {
		y += 26 + len(m.Lines)*lineHeight + 10
		for _, l := range m.Lines {
			width = max(width, min(mostText, pixels(l.Text, 13)+2*margin+30))
		}
	}
	at := make([][2]int, len(m.Grids))
	x, row := margin, 0
	for i, g := range m.Grids {
		g.size()
		w, h := g.extent()
		if x > margin && x+w > fullWidth {
			x, y, row = margin, y+row+16, 0
		}
		at[i] = [2]int{x, y}
		x += w + 24
		row = max(row, h)
		width = max(width, x-24+margin)
	}
	if !m.Bare {
		d.head(m, width)
	}
	for i, g := range m.Grids {
		d.grid(g, at[i][0], at[i][1])
	}
	y = d.legend(m, y+row+20, width)
	about := m.About
	for _, l := range m.Lines {
		about += " " + l.Text + "."
	}
	return d.finish(m.Title, about, width, y+margin)
}

// head writes the title and the lines below it.
func (d *mapCanvas) head(m *HeatMap, width int) {
	d.write(m.Title, margin, margin+14, 16, ink, bold)
	y := margin + 26 + 13
	for _, l := range m.Lines {
		c, x := ink, margin
		switch l.Sign {
		case AlertSign:
			c, x = alert, x+16
			d.printf(`<path %s d="M%d %dl5 10h-10z"/>`, c.fill(), margin+5, y-10)
		case TrafficSign:
			c, x = traffic, x+16
			d.printf(`<path %s d="M%d %dh10v3h-10zm0 6h10v3h-10z"/>`, c.fill(), margin, y-9)
		}
		d.write(fit(l.Text, width-margin-x, 13), x, y, 13, c, "")
		y += lineHeight
	}
}

// grid draws one grid.
func (d *mapCanvas) grid(g *Grid, x, y int) {
	d.write(g.head(), x, y+14, 13, ink, bold)
	y += gridHead
	if g.tooLarge() {
		d.write(fmt.Sprintf("more than %d ends are not drawn", mostPlaces), x, y+13, 12, faint, "")
		return
	}
	x, y = x+g.left, y+g.top
	for _, l := range labels(g.Rows, g.h) {
		d.write(l.text, x-g.gap(), y+(l.first+l.last+1)*g.h/2+4, labelFont, faint, ` text-anchor="end"`)
	}
	for _, l := range labels(g.Cols, g.w) {
		middle := x + (l.first+l.last+1)*g.w/2
		if g.flat {
			d.write(l.text, middle, y-6, labelFont, faint, ` text-anchor="middle"`)
		} else {
			d.write(l.text, 0, 0, labelFont, faint, fmt.Sprintf(` transform="translate(%d %d) rotate(-90)"`, middle+4, y-g.gap()))
		}
	}
	if g.small {
		d.smallCells(g, x, y)
	} else {
		for i := range g.Rows {
			for k := range g.Cols {
				if c := g.Cell(i, k); c != nil {
					d.cell(c, x+k*g.w, y+i*g.h, g.w, g.h, g.font, g.letter)
				}
			}
		}
	}
	d.borders(g, x, y)
}

// borders draws lines between groups of several places.
func (d *mapCanvas) borders(g *Grid, x, y int) {
	rows, cols := runs(g.Rows), runs(g.Cols)
	if len(g.Rows) < 4 || len(rows) > 64 || len(rows) == len(g.Rows) && len(cols) == len(g.Cols) {
		return
	}
	var path strings.Builder
	for _, run := range rows[1:] {
		fmt.Fprintf(&path, "M%d %dh%d", x, y+run[0]*g.h, len(g.Cols)*g.w)
	}
	for _, run := range cols[1:] {
		fmt.Fprintf(&path, "M%d %dv%d", x+run[0]*g.w, y, len(g.Rows)*g.h)
	}
	if path.Len() > 0 {
		d.printf(`<path %s fill="none" stroke-width="0.7" d="%s"/>`+"\n", line.stroke(), path.String())
	}
}

func (d *mapCanvas) cellTip(c *Cell) {
	if c.Tip != nil {
		d.tip(c.Tip()...)
	}
}

const hatchFill, crossFill = `fill="url(#r-hatch)"`, `fill="url(#r-cross)"`

// cell draws one cell with its text, and what a pointer brings up there.
func (d *mapCanvas) cell(c *Cell, x, y, w, h, font int, letter bool) {
	d.printf("<g>")
	if !letter || c.Look != Solid { // of many cells, those that are well say enough by their letter
		d.cellTip(c)
	}
	shape, on, more := steps[c.Step].fill.fill(), steps[c.Step].ink, ""
	switch c.Look {
	case Framed:
		shape, more = steps[c.Step].fill.both(alert), ` stroke-width="2"`
	case Dashed:
		shape, more = steps[c.Step].fill.both(line), ` stroke-dasharray="4 2"`
	case Hatched:
		shape, on = hatchFill, faint
	case Crossed:
		shape, on, more = alert.stroke()+" "+crossFill, alert, ` stroke-width="1.5"`
	case Outlined:
		shape, on, more = line.stroke()+` fill="none"`, faint, ` stroke-dasharray="2 2"`
	}
	d.printf(`<rect %s x="%d" y="%d" width="%d" height="%d" rx="2"%s/>`, shape, x+1, y+1, w-2, h-2, more)
	s, weight := c.Text, ""
	if letter {
		s = c.Letter
	}
	if c.bad() {
		weight = bold
	}
	if s != "" && (c.Look == Hatched || c.Look == Crossed) { // legible on the pattern
		wide := pixels(s, font) + 2
		d.printf(`<rect %s x="%d" y="%d" width="%d" height="%d"/>`, ground.fill(), x+(w-wide)/2, y+(h-font)/2, wide, font)
	}
	if s != "" {
		d.printf(`<text %s x="%d" y="%d" font-size="%d" text-anchor="middle"%s>%s</text>`,
			on.fill(), x+w/2, y+h/2+font/2-1, font, weight, escape(s))
	}
	d.printf("</g>\n")
}

// smallCells draws cells without text. Those of one look are one path; those that failed have a frame with a tip, and rows
// and columns of which half or more failed have a mark at the edge.
func (d *mapCanvas) smallCells(g *Grid, x, y int) {
	paths := make([]strings.Builder, len(steps)+2)
	fills := make([]string, 0, len(paths))
	for _, s := range steps {
		fills = append(fills, s.fill.fill())
	}
	fills = append(fills, hatchFill, crossFill)
	look := func(i, k int) int {
		switch c := g.Cell(i, k); {
		case c == nil:
			return -1
		case c.Look == Crossed:
			return len(steps) + 1
		case c.Look == Hatched, c.Look == Outlined:
			return len(steps)
		default:
			return c.Step
		}
	}
	size := max(g.h-1, 2)
	for i := range g.Rows {
		for k := 0; k < len(g.Cols); {
			n, l := 1, look(i, k)
			for g.w <= 5 && k+n < len(g.Cols) && look(i, k+n) == l { // too small to be told apart
				n++
			}
			if l >= 0 {
				w := n*g.w - (g.w - size)
				fmt.Fprintf(&paths[l], "M%d %dh%dv%dh-%dz", x+k*g.w, y+i*g.h, w, size, w)
			}
			k += n
		}
	}
	for i := range paths {
		if paths[i].Len() > 0 {
			d.printf(`<path %s d="%s"/>`+"\n", fills[i], paths[i].String())
		}
	}
	d.failed(g, x, y)
}

// failed frames small cells that failed, and points at rows and columns with many of them.
func (d *mapCanvas) failed(g *Grid, x, y int) {
	rows, cols := make([][2]int, len(g.Rows)), make([][2]int, len(g.Cols)) // all cells, and those that failed
	for i := range g.Rows {
		for k := range g.Cols {
			c := g.Cell(i, k)
			if c == nil {
				continue
			}
			rows[i][0]++
			cols[k][0]++
			if !c.bad() {
				continue
			}
			rows[i][1]++
			cols[k][1]++
			if d.tips++; d.tips <= mostTips {
				d.printf(`<g><rect %s fill="transparent" stroke-width="0.6" x="%d" y="%d" width="%d" height="%d"/>`,
					alert.stroke(), x+k*g.w, y+i*g.h, max(g.w-1, 2), max(g.h-1, 2))
				d.cellTip(c)
				d.printf("</g>\n")
			}
		}
	}
	var path strings.Builder
	for i, n := range rows {
		if n[1]*2 >= max(1, n[0]) {
			fmt.Fprintf(&path, "M%d %dl-4 -2v4z", x-1, y+i*g.h+g.h/2)
		}
	}
	for k, n := range cols {
		if n[1]*2 >= max(1, n[0]) {
			fmt.Fprintf(&path, "M%d %dl-2 -4h4z", x+k*g.w+g.w/2, y-1)
		}
	}
	if path.Len() > 0 {
		d.printf(`<path %s d="%s"/>`+"\n", alert.fill(), path.String())
	}
}

// legend explains cells, and gives the base of its last line.
func (d *mapCanvas) legend(m *HeatMap, y, width int) int {
	x := margin
	for _, s := range m.Legend {
		wide := 28 + pixels(s.About, labelFont) + 12
		if x > margin && x+wide > width-margin {
			x, y = margin, y+24
		}
		d.cell(&s.Cell, x, y, 24, 18, labelFont, false)
		d.write(s.About, x+28, y+13, labelFont, faint, "")
		x += wide
	}
	y += lineHeight
	notes := m.Notes
	if slices.ContainsFunc(m.Grids, func(g *Grid) bool { return g.small && !g.tooLarge() }) {
		notes = append(slices.Clone(notes), "Triangles point at rows and columns of which half or more failed.")
	}
	for _, n := range notes {
		y += lineHeight
		d.write(n, margin, y, 12, faint, "")
	}
	return y
}
