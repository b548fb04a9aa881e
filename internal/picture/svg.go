package picture

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// fonts are the usual sans serif fonts; nothing is loaded.
const fonts = "system-ui,-apple-system,'Segoe UI',Helvetica,Arial,'DejaVu Sans',sans-serif"

// svgPrinter writes a scene that has its coordinates.
type svgPrinter struct {
	colors colors
	out    bytes.Buffer
}

func (p *svgPrinter) printf(format string, args ...any) { fmt.Fprintf(&p.out, format, args...) }

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#39;")

// escape makes a text fit for XML. Control characters were taken out by clean.
func escape(s string) string { return escaper.Replace(s) }

func (p *svgPrinter) scene(s *scene) {
	p.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-labelledby="tc-title tc-desc" font-family="%s">`+"\n",
		s.width, s.height, s.width, s.height, escape(fonts))
	p.printf("<title id=\"tc-title\">%s</title>\n", escape(s.title))
	p.printf("<desc id=\"tc-desc\">%s</desc>\n", escape(s.describe()))
	p.printf("<style>\n%s", p.colors.first.sheet(""))
	if p.colors.second != nil {
		p.printf("@media (prefers-color-scheme: dark) {\n%s}\n", p.colors.second.sheet("  "))
	}
	p.printf("</style>\n")
	p.printf(`<rect class="tc-page" fill="%s" width="%d" height="%d"/>`+"\n", p.colors.first.background, s.width, s.height)
	for _, part := range s.parts() {
		p.node(part)
	}
	p.printf("</svg>\n")
}

// describe says in words what the image shows, for readers that do not see it.
func (s *scene) describe() string {
	const most = 20
	text := "How the GPUs and network cards of this host are connected. Rates are for one direction, after line coding."
	list := s.problems
	if len(list) > most {
		list = list[:most]
	}
	if len(list) > 0 {
		text += " Marked: " + strings.Join(list, "; ") + "."
	}
	if rest := len(s.problems) - len(list); rest > 0 {
		text += fmt.Sprintf(" And %d more.", rest)
	}
	return text
}

// node draws a box, then what hangs from it.
func (p *svgPrinter) node(n *node) {
	p.printf("<g>")
	if tip := slices.DeleteFunc(slices.Clone(n.tip), func(s string) bool { return s == "" }); len(tip) > 0 {
		p.printf("<title>%s</title>", escape(strings.Join(tip, "\n")))
	}
	p.box(n)
	p.rows(n)
	p.printf("</g>\n")
	if len(n.trunk) > 0 {
		p.line(n.trunk, &wire{state: wireRead})
	}
	for _, c := range n.below {
		if c.up != nil {
			p.wire(c.up)
		}
	}
	for _, c := range n.inside {
		p.node(c)
	}
	for _, c := range n.below {
		p.node(c)
	}
}

func (p *svgPrinter) box(n *node) {
	class := lookClasses[n.look]
	if class == "" {
		return
	}
	c := p.colors.first.looks[n.look]
	radius, more := 5, ""
	switch {
	case n.look.container():
		radius = 8
	case n.look == lookCard || n.look == lookSmall:
		radius = 4
	}
	stroke := c.stroke
	switch {
	case n.alert:
		class += " tc-down"
		stroke = p.colors.first.lines[wireDegraded]
		more = ` stroke-width="2" stroke-dasharray="5 3"`
	case n.look == lookUnknown, n.look == lookVirtual, n.look == lookSoftware:
		more = ` stroke-dasharray="6 4"`
	case n.look == lookGPU, n.look == lookNIC, n.look == lookSwitch:
		more = ` stroke-width="1.5"`
	}
	p.printf(`<rect class="%s" fill="%s" stroke="%s" x="%d" y="%d" width="%d" height="%d" rx="%d"%s/>`,
		class, c.fill, stroke, n.box.x, n.box.y, n.box.w, n.box.h, radius, more)
}

// rows writes the text of a box.
func (p *svgPrinter) rows(n *node) {
	x, y := n.box.x+padX, n.box.y
	if n.look == lookNone {
		x = n.box.x
	} else {
		y += padY
	}
	if n.look == lookLine {
		x = n.box.x
		if n.up != nil {
			p.line([]point{{x, y + smallHeight/2}, {x + sampleWidth - 6, y + smallHeight/2}}, n.up)
			x += sampleWidth
		}
	}
	for i := range n.rows {
		r := &n.rows[i]
		base := y + r.height()*3/4
		left := x
		if r.alert {
			p.sign(left, y+(r.height()-12)/2)
			left += signWidth
		}
		if n.look == lookBar {
			p.text(r.left, n.box.x+n.box.w/2, base, r, "middle")
		} else {
			p.text(r.left, left, base, r, "")
		}
		if r.right != "" {
			right := row{left: r.right, alert: r.alert}
			p.text(r.right, n.box.right()-padX, base, &right, "end")
		}
		y += r.height()
	}
}

func (p *svgPrinter) text(s string, x, y int, r *row, anchor string) {
	if s == "" {
		return
	}
	class, fill := "tc-text", p.colors.first.text
	switch {
	case r.alert:
		class, fill = "tc-alert", p.colors.first.alert
	case r.style == rowFaint:
		class, fill = "tc-faint", p.colors.first.faint
	}
	more := ""
	if anchor != "" {
		more = ` text-anchor="` + anchor + `"`
	}
	if r.bold() {
		more += ` font-weight="bold"`
	}
	p.printf(`<text class="%s" fill="%s" x="%d" y="%d" font-size="%g"%s>%s</text>`, class, fill, x, y, r.size(), more, escape(s))
}

// sign draws a warning sign, 14 wide and 12 high.
func (p *svgPrinter) sign(x, y int) {
	p.printf(`<path class="tc-alert" fill="%s" d="M%d %dl6 11h-12z"/>`, p.colors.first.alert, x+6, y)
	p.printf(`<text class="tc-sign" fill="%s" x="%d" y="%d" font-size="9" font-weight="bold" text-anchor="middle">!</text>`, p.colors.first.sign, x+6, y+10)
}

// wire draws a link with its label.
func (p *svgPrinter) wire(w *wire) {
	p.printf("<g>")
	if tip := slices.DeleteFunc(slices.Clone(w.tip), func(s string) bool { return s == "" }); len(tip) > 0 {
		p.printf("<title>%s</title>", escape(strings.Join(tip, "\n")))
	}
	p.line(w.path, w)
	x, y := w.label.x, w.label.y
	if w.state == wireDegraded {
		p.sign(x, y+1)
		x += signWidth
	}
	for _, l := range w.lines() {
		r := row{left: l, style: rowFaint, alert: w.state == wireDegraded}
		p.text(l, x, y+smallHeight*3/4, &r, "")
		y += smallHeight
	}
	p.printf("</g>\n")
}

// line draws the line of a link: the more lanes, the thicker.
func (p *svgPrinter) line(path []point, w *wire) {
	if len(path) == 0 {
		return
	}
	width, more := 1.5, ""
	switch {
	case w.lanes >= 16:
		width = 3
	case w.lanes >= 8:
		width = 2.2
	}
	switch w.state {
	case wireDegraded:
		width, more = 4, ` stroke-dasharray="5 2"`
	case wireTypical:
		width, more = 3, ` stroke-dasharray="8 4"`
	case wireUnknown:
		more = ` stroke-dasharray="2 3"`
	}
	var d strings.Builder
	for i, at := range path {
		verb := "L"
		if i == 0 {
			verb = "M"
		}
		fmt.Fprintf(&d, "%s%d %d", verb, at.x, at.y)
	}
	p.printf(`<path class="%s" fill="none" stroke="%s" stroke-width="%g"%s d="%s"/>`,
		wireClasses[w.state], p.colors.first.lines[w.state], width, more, d.String())
}
