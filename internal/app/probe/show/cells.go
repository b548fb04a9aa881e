package show

import (
	"fmt"
	"strings"

	"github.com/topoctl/topoctl/probe"
)

// cell draws one cell with its text.
func (d *drawing) cell(g *grid, c *probe.Result, x, y int) {
	d.printf("<g>")
	if !g.letter || c.Verdict != probe.Pass {
		d.tip(g, c)
	}
	step := stepOf(part(c))
	class, fill, more := fmt.Sprintf("tp-s%d", step), light.steps[step], ""
	ink, inkFill := fmt.Sprintf("tp-i%d", step), light.ink[step]
	switch {
	case c.Verdict == probe.Waived:
		class, fill, ink, inkFill = "tp-none", "url(#tp-hatch)", "tp-faint", light.faint
	case c.Verdict == probe.Error:
		class, fill, ink, inkFill = "tp-edge", "url(#tp-cross)", "tp-alert", light.alert
		more = fmt.Sprintf(` stroke="%s" stroke-width="1.5"`, light.alert)
	case !measured(c):
		class, fill, ink, inkFill = "tp-line", "none", "tp-faint", light.faint
		more = fmt.Sprintf(` stroke="%s" stroke-dasharray="2 2"`, light.line)
	case c.Verdict == probe.Fail:
		class += " tp-edge"
		more = fmt.Sprintf(` stroke="%s" stroke-width="2"`, light.alert)
	case c.Verdict == probe.Inconclusive:
		class += " tp-line"
		more = fmt.Sprintf(` stroke="%s" stroke-dasharray="4 2"`, light.line)
	}
	d.printf(`<rect class="%s" fill="%s" x="%d" y="%d" width="%d" height="%d" rx="2"%s/>`, class, fill, x+1, y+1, g.w-2, g.h-2, more)
	weight := ""
	if c.Verdict == probe.Fail || c.Verdict == probe.Error {
		weight = ` font-weight="bold"`
	}
	text := g.text(c)
	if c.Verdict == probe.Waived || c.Verdict == probe.Error { // legible on the pattern
		w := textWidth(text, g.font) + 2
		d.printf(`<rect class="tp-page" fill="%s" x="%d" y="%d" width="%d" height="%d"/>`, light.background, x+(g.w-w)/2, y+(g.h-g.font)/2, w, g.font)
	}
	d.printf(`<text class="%s" fill="%s" x="%d" y="%d" font-size="%d" text-anchor="middle"%s>%s</text></g>`+"\n",
		ink, inkFill, x+g.w/2, y+g.h/2+g.font/2-1, g.font, weight, escape(text))
}

// tip is the text of a cell that a pointer brings up.
func (d *drawing) tip(g *grid, c *probe.Result) {
	lines := []string{PairName(&c.Pair, g.local) + ": " + string(c.Verdict)}
	if why := reason(c, true); why != "" {
		lines = append(lines, why)
	}
	if c.Judged() != nil {
		lines = append(lines, g.rate(c)+" "+g.unit.Suffix()+", expected "+expected(&c.Expected, g.unit)+", "+percent(c.Efficiency))
	}
	if l := g.latencies(c); l != "-" {
		lines = append(lines, g.latency+" p50 / p99 "+l+" "+g.nsUnit)
	}
	d.printf("<title>%s</title>", escape(strings.Join(lines, "\n")))
}

// small draws cells without text: those of one look are one path; those that failed have
// a frame with a tip, and a mark at the edge of their row and column.
func (d *drawing) small(g *grid, x, y int) {
	var runs [stepCount + 2]strings.Builder
	const hatch, cross = stepCount, stepCount + 1
	look := func(i, k int) int {
		switch c := g.cells[[2]int{i, k}]; {
		case c == nil:
			return -1
		case c.Verdict == probe.Error:
			return cross
		case c.Verdict == probe.Waived, !measured(c):
			return hatch
		default:
			return stepOf(part(c))
		}
	}
	size := max(g.h-1, 2)
	for i := range g.from {
		for k := 0; k < len(g.to); {
			n, l := 1, look(i, k)
			for g.w <= 5 && k+n < len(g.to) && look(i, k+n) == l { // too small to be told apart
				n++
			}
			if l >= 0 {
				w := n*g.w - (g.w - size)
				fmt.Fprintf(&runs[l], "M%d %dh%dv%dh-%dz", x+k*g.w, y+i*g.h, w, size, w)
			}
			k += n
		}
	}
	for i := range runs {
		switch {
		case runs[i].Len() == 0:
		case i == hatch:
			d.printf(`<path fill="url(#tp-hatch)" d="%s"/>`+"\n", runs[i].String())
		case i == cross:
			d.printf(`<path fill="url(#tp-cross)" d="%s"/>`+"\n", runs[i].String())
		default:
			d.printf(`<path class="tp-s%d" fill="%s" d="%s"/>`+"\n", i, light.steps[i], runs[i].String())
		}
	}
	d.failed(g, x, y)
}

// tilt counts the cells of a row or column.
type tilt struct{ bad, all int }

func (t *tilt) add(bad bool) {
	t.all++
	if bad {
		t.bad++
	}
}

// failed frames small cells that failed, and marks their rows and columns.
func (d *drawing) failed(g *grid, x, y int) {
	rows, columns := make([]tilt, len(g.from)), make([]tilt, len(g.to))
	for i := range g.from {
		for k := range g.to {
			c := g.cells[[2]int{i, k}]
			if c == nil {
				continue
			}
			bad := c.Verdict == probe.Fail || c.Verdict == probe.Error
			rows[i].add(bad)
			columns[k].add(bad)
			if !bad {
				continue
			}
			if d.tips++; d.tips > mostTips {
				continue
			}
			d.printf(`<g><rect class="tp-edge" fill="transparent" stroke="%s" stroke-width="0.6" x="%d" y="%d" width="%d" height="%d"/>`, light.alert, x+k*g.w, y+i*g.h, max(g.w-1, 2), max(g.h-1, 2))
			d.tip(g, c)
			d.printf("</g>\n")
		}
	}
	d.marks(g, x, y, rows, columns)
}

// marks points at the rows and columns of which half of the cells or more failed.
func (d *drawing) marks(g *grid, x, y int, rows, columns []tilt) {
	var path strings.Builder
	for i := range g.from {
		if rows[i].bad*2 >= max(1, rows[i].all) {
			fmt.Fprintf(&path, "M%d %dl-4 -2v4z", x-1, y+i*g.h+g.h/2)
		}
	}
	for k := range g.to {
		if columns[k].bad*2 >= max(1, columns[k].all) {
			fmt.Fprintf(&path, "M%d %dl-2 -4h4z", x+k*g.w+g.w/2, y-1)
		}
	}
	if path.Len() > 0 {
		d.printf(`<path class="tp-alert" fill="%s" d="%s"/>`+"\n", light.alert, path.String())
	}
}
