package report

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/topoctl/topoctl/internal/text"
)

// fonts are the usual sans serif fonts; nothing is loaded.
const fonts = "system-ui,-apple-system,'Segoe UI',Helvetica,Arial,'DejaVu Sans',sans-serif"

// color is a colour of drawings, on light ground and on dark.
type color struct{ class, light, dark string }

// steps are the colours of cells, from the best to the worst, and the text on them. The worse a step, the darker it is (on
// dark ground: lighter), so that steps can be told apart without hue too.
var steps = []struct{ fill, ink color }{
	{color{"s0", "#d7efe3", "#17372c"}, color{"i0", "#1b222c", "#e8edf2"}},
	{color{"s1", "#c3e3c4", "#24482f"}, color{"i1", "#1b222c", "#e8edf2"}},
	{color{"s2", "#e3dc92", "#4a4a1c"}, color{"i2", "#1b222c", "#e8edf2"}},
	{color{"s3", "#f2c25f", "#6b5316"}, color{"i3", "#1b222c", "#e8edf2"}},
	{color{"s4", "#ec9a45", "#95571a"}, color{"i4", "#1b222c", "#f5f8fa"}},
	{color{"s5", "#da6f38", "#cf6a35"}, color{"i5", "#11151b", "#0a0e13"}},
	{color{"s6", "#b3392f", "#f28b66"}, color{"i6", "#ffffff", "#0a0e13"}},
	{color{"s7", "#7d1730", "#ffc2ad"}, color{"i7", "#ffffff", "#0a0e13"}},
	{color{"s8", "#e4e7eb", "#2a313a"}, color{"i8", "#1b222c", "#e8edf2"}},
	{color{"s9", "#d5e3f5", "#22364f"}, color{"i9", "#1b222c", "#e8edf2"}},
}

// The steps that have a meaning of their own.
const (
	Worst    = 7 // the last of those from good to bad
	NotKnown = 8
	Another  = 9 // neither good nor bad
)

// The contrast of every text with what it stands on is at least 4.5 to 1 (WCAG 2.1, level AA); TestContrast checks it.
var (
	ground  = color{"page", "#ffffff", "#0a0e13"}
	ink     = color{"text", "#1b222c", "#e8edf2"}
	faint   = color{"faint", "#525c69", "#a9b4c0"}
	alert   = color{"alert", "#b3190f", "#ff9289"}
	traffic = color{"traffic", "#5b3fa8", "#bda6ff"} // what is congested and not broken
	line    = color{"line", "#8b96a3", "#6b7785"}
	bars    = color{"bars", "#eef1f4", "#1a2129"} // behind bars
)

// sheet has the colours of drawings. A viewer that ignores style sheets finds the light ones in each element.
var sheet = func() string {
	var light, dark strings.Builder
	rule := func(c color, property string) {
		fmt.Fprintf(&light, ".%s-%s{%s:%s}", property[:1], c.class, property, c.light)
		fmt.Fprintf(&dark, ".%s-%s{%s:%s}", property[:1], c.class, property, c.dark)
	}
	for _, s := range steps {
		rule(s.fill, "fill")
		rule(s.ink, "fill")
	}
	for _, c := range append([]color{ground, ink, faint, alert, traffic, line, bars}, barColors...) {
		rule(c, "fill")
	}
	rule(alert, "stroke")
	rule(line, "stroke")
	return light.String() + "@media (prefers-color-scheme: dark){" + dark.String() + "}"
}()

// fill and stroke are the attributes of a shape in a colour.
func (c color) fill() string { return `class="f-` + c.class + `" fill="` + c.light + `"` }

func (c color) stroke() string { return `class="s-` + c.class + `" stroke="` + c.light + `"` }

// both are the attributes of a shape with an edge in another colour.
func (c color) both(edge color) string {
	return `class="f-` + c.class + ` s-` + edge.class + `" fill="` + c.light + `" stroke="` + edge.light + `"`
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#39;")

// escape makes foreign text fit for XML, and harmless: its lines stay lines.
func escape(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = escaper.Replace(text.Printable(lines[i]))
	}
	return strings.Join(lines, "\n")
}

// pixels is about how wide a text is: fonts differ, so it is rather too much.
func pixels(s string, font int) int { return utf8.RuneCountInString(s) * font * 62 / 100 }

// fit cuts a text to a width in pixels.
func fit(s string, width, font int) string {
	if s = text.Printable(s); pixels(s, font) <= width {
		return s
	}
	return text.Cut(s, width*100/(font*62), text.Ellipsis)
}

// canvas is a drawing in the making.
type canvas struct{ out bytes.Buffer }

func (c *canvas) printf(format string, args ...any) { fmt.Fprintf(&c.out, format, args...) }

// write writes a text; more are other attributes.
func (c *canvas) write(s string, x, y, size int, ink color, more string) {
	c.printf(`<text %s x="%d" y="%d" font-size="%d"%s>%s</text>`+"\n", ink.fill(), x, y, size, more, escape(s))
}

const bold = ` font-weight="bold"`

// tip is the text that a pointer brings up.
func (c *canvas) tip(lines ...string) {
	if len(lines) > 0 {
		c.printf("<title>%s</title>", escape(strings.Join(lines, "\n")))
	}
}

// finish puts the page around a drawing. The same drawing gives the same bytes, and nothing is loaded. about says in words
// what it shows, for readers that do not see it.
func (c *canvas) finish(title, about string, width, height int) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" `, width, height, width, height)
	fmt.Fprintf(&out, `role="img" aria-labelledby="r-title r-desc" font-family="%s">`+"\n", escape(fonts))
	fmt.Fprintf(&out, `<title id="r-title">%s</title>`+"\n"+`<desc id="r-desc">%s</desc>`+"\n", escape(title), escape(about))
	fmt.Fprintf(&out, "<style>%s</style>\n", sheet)
	fmt.Fprintf(&out, `<rect %s width="%d" height="%d"/>`+"\n", ground.fill(), width, height)
	out.Write(c.out.Bytes())
	out.WriteString("</svg>\n")
	return out.Bytes()
}
