package show

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/probe"
)

// fonts are the usual sans serif fonts; nothing is loaded.
const fonts = "system-ui,-apple-system,'Segoe UI',Helvetica,Arial,'DejaVu Sans',sans-serif"

const (
	margin     = 20
	lineHeight = 18
	leastWidth = 820
	fullWidth  = 1500 // of panels side by side
	mostText   = 1100 // of the lines above them
	mostTips   = 4096 // cells with a text of their own that large heat maps have
	mostBlame  = 6    // faults that are listed above the heat maps
)

// SVG draws heat maps of a report, one for each kind, transport and variant, without external parts: rows
// are where bytes come from, columns where they go. The same report gives the same bytes.
func SVG(r *probe.Report, o Options) []byte {
	return draw(newOverview(r, o.Units), sections(r, o.Units), true)
}

// draw makes the image; head: with the title and the lines above the heat maps.
func draw(v *overview, all []*section, head bool) []byte {
	d := &drawing{overview: v, withHead: head}
	for _, s := range all {
		d.grids = append(d.grids, newGrid(s))
	}
	d.head()
	d.arrange()
	return d.print()
}

// drawing is an image in the making.
type drawing struct {
	*overview
	grids   []*grid
	gridsAt [][2]int // of the grids
	lines   []headLine
	// withHead says whether the title and lines are drawn.
	withHead bool
	// width and height are those of the image; legend is where that begins.
	width, height, legend int
	top                   int // of the first heat map
	tips                  int
	out                   bytes.Buffer
}

// headLine is a line above the heat maps.
type headLine struct {
	text string
	mark mark
}

// mark is the sign before a line: colour is not the only one.
type mark int

const (
	noMark      mark = iota
	alertMark        // a triangle
	trafficMark      // two bars
)

func (d *drawing) printf(format string, args ...any) { fmt.Fprintf(&d.out, format, args...) }

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#39;")

// escape makes a text fit for XML. Control characters were taken out by clean.
func escape(s string) string { return escaper.Replace(s) }

// head are the lines above the heat maps.
func (d *drawing) head() {
	d.lines = append(d.lines, headLine{text: d.Answer}, headLine{text: d.Subtitle})
	for _, l := range d.Incomplete() {
		d.lines = append(d.lines, headLine{l, alertMark})
	}
	for i := range d.Blame {
		if i == mostBlame {
			d.lines = append(d.lines, headLine{fmt.Sprintf("and %d more suspects", len(d.Blame)-i), alertMark})
			break
		}
		mark := alertMark
		if d.Blame[i].Kind == probe.Congestion {
			mark = trafficMark
		}
		d.lines = append(d.lines, headLine{d.Blame[i].headline(), mark})
	}
	for _, l := range d.Waived {
		d.lines = append(d.lines, headLine{text: l})
	}
}

// arrange puts the heat maps side by side if they fit, and the legend below.
func (d *drawing) arrange() {
	d.width, d.top = leastWidth, margin
	if d.withHead {
		d.top += 26 + len(d.lines)*lineHeight + 10
		for _, l := range d.lines {
			d.width = max(d.width, min(mostText, pixelWidth(l.text, 13)+2*margin+30))
		}
	}
	y := d.top
	x, row := margin, 0
	for _, g := range d.grids {
		w, h := g.width(), g.height()
		if g.tooLarge() {
			w, h = 400, gridHead+lineHeight
		}
		w = max(w, pixelWidth(g.head(), 13)+12)
		if x > margin && x+w > fullWidth {
			x, y, row = margin, y+row+16, 0
		}
		d.gridsAt = append(d.gridsAt, [2]int{x, y})
		x += w + 24
		row = max(row, h)
		d.width = max(d.width, x-24+margin)
	}
	d.legend = y + row + 20
	d.height = d.legend + 3*lineHeight + 10 + margin
}

func (g *grid) head() string {
	text := g.title + ", " + g.unit.Suffix()
	if g.letter || g.font == 0 {
		text = g.title
	}
	return fmt.Sprintf("%s (%d to %d)", text, len(g.from), len(g.to))
}

func (d *drawing) print() []byte {
	d.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-labelledby="tp-title tp-desc" font-family="%s">`+"\n",
		d.width, d.height, d.width, d.height, escape(fonts))
	d.printf("<title id=\"tp-title\">%s</title>\n<desc id=\"tp-desc\">%s</desc>\n", escape(d.Title), escape(d.describe()))
	d.printf("<style>%s</style>\n", svgSheet())
	d.printf(`<defs><pattern id="tp-hatch" width="6" height="6" patternUnits="userSpaceOnUse"><path class="tp-line" stroke="%s" stroke-width="0.8" opacity="0.6" d="M0 6L6 0"/></pattern>`, light.line)
	d.printf(`<pattern id="tp-cross" width="6" height="6" patternUnits="userSpaceOnUse"><path class="tp-edge" stroke="%s" stroke-width="0.8" opacity="0.6" d="M0 6L6 0M0 0L6 6"/></pattern></defs>`+"\n", light.alert)
	d.printf(`<rect class="tp-page" fill="%s" width="%d" height="%d"/>`+"\n", light.background, d.width, d.height)
	if d.withHead {
		d.drawHead()
	}
	for i, g := range d.grids {
		d.grid(g, d.gridsAt[i][0], d.gridsAt[i][1])
	}
	d.drawLegend()
	d.printf("</svg>\n")
	return d.out.Bytes()
}

// drawHead writes the title and the lines below it.
func (d *drawing) drawHead() {
	d.text(d.Title, margin, margin+14, 16, "tp-text", light.text, ` font-weight="bold"`)
	y := margin + 26 + 13
	for _, l := range d.lines {
		class, fill, x := "tp-text", light.text, margin
		switch l.mark {
		case alertMark:
			class, fill = "tp-alert", light.alert
			d.printf(`<path class="tp-alert" fill="%s" d="M%d %dl5 10h-10z"/>`, fill, x+5, y-10)
			x += 16
		case trafficMark:
			class, fill = "tp-traffic", light.traffic
			d.printf(`<path class="tp-traffic" fill="%s" d="M%d %dh10v3h-10zm0 6h10v3h-10z"/>`, fill, x, y-9)
			x += 16
		}
		d.text(text.Cut(l.text, (d.width-margin-x)*100/(13*62), text.Ellipsis), x, y, 13, class, fill, "")
		y += lineHeight
	}
}

// describe says in words what the image shows, for readers that do not see it.
func (d *drawing) describe() string {
	var b strings.Builder
	b.WriteString("Rates between pairs of ends: a row for each source, a column for each destination. ")
	for _, l := range d.lines {
		b.WriteString(l.text + ". ")
	}
	return strings.TrimSpace(b.String())
}

func (d *drawing) text(s string, x, y, size int, class, fill, more string) {
	d.printf(`<text class="%s" fill="%s" x="%d" y="%d" font-size="%d"%s>%s</text>`+"\n", class, fill, x, y, size, more, escape(s))
}

// grid draws one heat map.
func (d *drawing) grid(g *grid, x, y int) {
	d.text(g.head(), x, y+14, 13, "tp-text", light.text, ` font-weight="bold"`)
	y += gridHead
	if g.tooLarge() {
		d.text(fmt.Sprintf("more than %d ends are not drawn", mostEnds), x, y+13, 12, "tp-faint", light.faint, "")
		return
	}
	d.labels(g, x, y)
	x, y = x+g.left, y+g.top
	if g.font > 0 {
		for i := range g.from {
			for k := range g.to {
				if c := g.cells[[2]int{i, k}]; c != nil {
					d.cell(g, c, x+k*g.w, y+i*g.h)
				}
			}
		}
	} else {
		d.small(g, x, y)
	}
	d.hosts(g, x, y)
}

// labels writes the names beside the axes.
func (d *drawing) labels(g *grid, x, y int) {
	for _, l := range g.labels(g.from, g.h) {
		d.text(l.text, x+g.left-g.gap(), y+g.top+(l.first+l.last+1)*g.h/2+4, labelFont, "tp-faint", light.faint, ` text-anchor="end"`)
	}
	for _, l := range g.labels(g.to, g.w) {
		at := x + g.left + (l.first+l.last+1)*g.w/2
		if g.flat() {
			d.text(l.text, at, y+g.top-6, labelFont, "tp-faint", light.faint, ` text-anchor="middle"`)
			continue
		}
		d.text(l.text, 0, 0, labelFont, "tp-faint", light.faint, fmt.Sprintf(` transform="translate(%d %d) rotate(-90)"`, at+4, y+g.top-g.gap()))
	}
}

// hosts draws lines between hosts with several ends.
func (d *drawing) hosts(g *grid, x, y int) {
	from, to := g.runs(g.from), g.runs(g.to)
	if g.local || len(g.from) < 4 || len(from) > 64 || len(from) == len(g.from) && len(to) == len(g.to) {
		return
	}
	var path strings.Builder
	for _, run := range from[1:] {
		fmt.Fprintf(&path, "M%d %dh%d", x, y+run[0]*g.h, len(g.to)*g.w)
	}
	for _, run := range to[1:] {
		fmt.Fprintf(&path, "M%d %dv%d", x+run[0]*g.w, y, len(g.from)*g.h)
	}
	if path.Len() > 0 {
		d.printf(`<path class="tp-line" fill="none" stroke="%s" stroke-width="0.7" d="%s"/>`+"\n", light.line, path.String())
	}
}

// drawLegend explains colours, letters and marks.
func (d *drawing) drawLegend() {
	x, y := margin, d.legend
	d.text("Colour: the measured part of the expected rate; where none is known, of the best rate of the pair's group.", x, y+12, 12, "tp-faint", light.faint, "")
	y += lineHeight + 4
	for i := range stepCount {
		name := "< 20 %"
		switch {
		case i < len(steps):
			name = fmt.Sprintf("≥ %.0f %%", steps[i]*100)
		case i == noStep:
			name = "not known"
		}
		w := pixelWidth(name, 11) + 18
		d.printf(`<rect class="tp-s%d" fill="%s" x="%d" y="%d" width="%d" height="18" rx="2"/>`, i, light.steps[i], x, y, w)
		d.text(name, x+w/2, y+13, 11, fmt.Sprintf("tp-i%d", i), light.ink[i], ` text-anchor="middle"`)
		x += w + 4
	}
	x += 12
	for _, k := range []struct{ fill, name string }{{"url(#tp-hatch)", "not measured"}, {"url(#tp-cross)", "error"}} {
		d.printf(`<rect class="tp-line" fill="%s" stroke="%s" stroke-width="0.7" x="%d" y="%d" width="22" height="18" rx="2"/>`, k.fill, light.line, x, y)
		d.text(k.name, x+28, y+13, 11, "tp-faint", light.faint, "")
		x += 28 + pixelWidth(k.name, 11) + 14
	}
	y += 18 + lineHeight
	text := "P pass, M measured, W warn, F fail (framed), I inconclusive (dashed), E error; n/a or x waived; – not measured"
	if slices.ContainsFunc(d.grids, func(g *grid) bool { return g.font == 0 }) {
		text += "; triangles point at rows and columns of which half or more failed"
	}
	d.text(text, margin, y, 12, "tp-faint", light.faint, "")
}

// cell draws one cell with its text.
func (d *drawing) cell(g *grid, c *probe.Result, x, y int) {
	d.printf("<g>")
	if !g.letter || c.Verdict != probe.Pass {
		d.tip(g, c)
	}
	step := stepOf(shareOf(c))
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
		w := pixelWidth(text, g.font) + 2
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
			return stepOf(shareOf(c))
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

// failures are how many cells of a row or column failed, of all.
type failures struct{ bad, all int }

func (t *failures) add(bad bool) {
	t.all++
	if bad {
		t.bad++
	}
}

// failed frames small cells that failed, and marks their rows and columns.
func (d *drawing) failed(g *grid, x, y int) {
	rows, columns := make([]failures, len(g.from)), make([]failures, len(g.to))
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
func (d *drawing) marks(g *grid, x, y int, rows, columns []failures) {
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
