package report

import (
	"bytes"
	"fmt"
	"html"
	"strings"
	"unicode/utf8"

	"github.com/topoctl/topoctl/internal/kv"
	"github.com/topoctl/topoctl/internal/text"
)

// Sizes of the drawing, in pixels.
const (
	svgMargin   = 20
	svgLine     = 18
	svgBar      = 16
	svgStep     = 24
	svgBars     = 560 // the longest bar
	svgValue    = 90  // beside it
	svgLetter   = 7   // the mean width of one
	svgNames    = 360 // the widest column of names
	svgFont     = "system-ui,-apple-system,'Segoe UI',Helvetica,Arial,'DejaVu Sans',sans-serif"
	maxBars     = 24
	svgMinWidth = 1e-9
	svgSwatch   = 12
	svgLegend   = 190 // of an entry of the legend
	svgEntries  = 4   // in a line
)

// parts are those of TTFT, in the order of time. Their colours can be told apart by people who
// see fewer of them, and each has its name and figure in the text that the pointer shows.
var parts = []struct {
	name, colour string
	of           func(*kv.Split) *kv.Summary
}{
	{"queue", "#999999", func(s *kv.Split) *kv.Summary { return s.Queue }},
	{"prefill", "#0072b2", func(s *kv.Split) *kv.Summary { return s.Compute }},
	{"wait for KV memory", "#cc79a7", func(s *kv.Split) *kv.Summary { return s.MemoryWait }},
	{"wait for the transfer", "#e69f00", func(s *kv.Split) *kv.Summary { return s.LinkWait }},
	{"KV on the wire", "#d55e00", func(s *kv.Split) *kv.Summary { return s.WireExposed }},
	{"then to the first token", "#56b4e9", func(s *kv.Split) *kv.Summary { return s.Rest }},
}

// bar is a line of the drawing: parts that add up.
type bar struct {
	name, value string
	parts       []float64
}

// SVG draws where the time to first token goes: of this run and those that it is compared
// with, and by prompt length; then the use of each lane. The same report gives the same
// bytes, and nothing is loaded.
func (r *Report) SVG() []byte {
	runs := []bar{splitBar("this run", &r.Metrics.Split)}
	for i := range r.Compared {
		runs = append(runs, splitBar(r.Compared[i].Name, &r.Compared[i].Metrics.Split))
	}
	var lengths, lanes []bar
	for i := range r.Metrics.Buckets {
		x := &r.Metrics.Buckets[i]
		to := "more"
		if x.To != nil {
			to = fmt.Sprint(*x.To)
		}
		lengths = append(lengths, splitBar(fmt.Sprintf("%d to %s tokens", x.From, to), &x.Split))
	}
	for i := range r.Lanes[:min(len(r.Lanes), maxBars)] {
		x := bar{name: r.Lanes[i].Lane, value: "?"}
		if use := r.Lanes[i].Use; use != nil {
			x.value, x.parts = percent(*use), []float64{*use}
		}
		lanes = append(lanes, x)
	}
	d := &drawing{names: svgLetter * 10}
	for _, b := range append(append(append([]bar{}, runs...), lengths...), lanes...) {
		d.names = min(max(d.names, svgLetter*utf8.RuneCountInString(b.name)), svgNames)
	}
	d.y = svgMargin
	d.text("bold", r.splitTitle("Mean time to first token, by where it goes"))
	d.text("", fmt.Sprintf("%s, %s; compute is %s, the network is %s", r.Model.Name, r.Workload.Name, r.ComputeBasis, r.NetworkBasis))
	d.legend()
	d.group("By network", runs, 0)
	if len(lengths) > 1 {
		d.group("By prompt length", lengths, 0)
	}
	if len(lanes) > 0 {
		d.group("Use of lanes over the whole run", lanes, 1)
		if more := len(r.Lanes) - maxBars; more > 0 {
			d.text("", fmt.Sprintf("and %d more", more))
		}
	}
	return d.done()
}

// splitBar is the mean of each part of TTFT.
func splitBar(name string, s *kv.Split) bar {
	b := bar{name: name, value: "-"}
	sum, any := 0., false
	for _, p := range parts {
		v := 0.
		if x := p.of(s); x != nil {
			v, any = x.Mean, true
		}
		b.parts = append(b.parts, v)
		sum += v
	}
	if any {
		b.value = millis(sum)
	}
	return b
}

type drawing struct {
	out      bytes.Buffer
	y, names int
}

// safe makes foreign text fit for XML.
func safe(s string) string { return html.EscapeString(text.Printable(s)) }

func (d *drawing) text(weight, line string) {
	if weight != "" {
		weight = ` font-weight="` + weight + `"`
	}
	fmt.Fprintf(&d.out, "<text x=\"%d\" y=\"%d\"%s>%s</text>\n", svgMargin, d.y+svgBar-3, weight, safe(line))
	d.y += svgLine
}

func (d *drawing) legend() {
	d.y += svgLine / 2
	for i, p := range parts {
		x := svgMargin + i%svgEntries*svgLegend
		fmt.Fprintf(&d.out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">%s</text>\n",
			x, d.y+2, svgSwatch, svgSwatch, p.colour, x+svgSwatch+5, d.y+svgBar-3, p.name)
		if i%svgEntries == svgEntries-1 || i == len(parts)-1 {
			d.y += svgLine
		}
	}
}

// group draws bars on one scale: up to most, or where that is 0 up to the longest one.
func (d *drawing) group(title string, bars []bar, most float64) {
	d.y += svgLine
	d.text("bold", title)
	for _, b := range bars {
		sum := 0.
		for _, v := range b.parts {
			sum += v
		}
		most = max(most, sum)
	}
	scale := svgBars / max(most, svgMinWidth)
	for _, b := range bars {
		name := []rune(b.name)
		if len(name) > svgNames/svgLetter {
			name = append(name[:svgNames/svgLetter-1], '…')
		}
		left := float64(svgMargin + d.names + 10)
		fmt.Fprintf(&d.out, "<text x=\"%d\" y=\"%d\">%s</text>\n", svgMargin, d.y+svgBar-3, safe(string(name)))
		fmt.Fprintf(&d.out, "<rect x=\"%.1f\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#88888822\"/>\n", left, d.y, svgBars, svgBar)
		at := left
		for i, v := range b.parts {
			if v <= 0 {
				continue
			}
			tip := b.name + ": " + b.value
			if len(b.parts) == len(parts) {
				tip = fmt.Sprintf("%s: %s %s", b.name, parts[i].name, millis(v))
			}
			colour := parts[1].colour
			if len(b.parts) == len(parts) {
				colour = parts[i].colour
			}
			fmt.Fprintf(&d.out, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"><title>%s</title></rect>\n", at, d.y, v*scale, svgBar, colour, safe(tip))
			at += v * scale
		}
		fmt.Fprintf(&d.out, "<text x=\"%.1f\" y=\"%d\">%s</text>\n", left+svgBars+8, d.y+svgBar-3, safe(b.value))
		d.y += svgStep
	}
}

func (d *drawing) done() []byte {
	width, height := 2*svgMargin+d.names+10+svgBars+svgValue, d.y+svgMargin
	var out bytes.Buffer
	fmt.Fprintf(&out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" font-family=\"%s\" font-size=\"13\" fill=\"#1b222c\">\n",
		width, height, width, height, svgFont)
	fmt.Fprintf(&out, "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n", width, height)
	out.Write(d.out.Bytes())
	out.WriteString("</svg>\n")
	return out.Bytes()
}

// page is the HTML page; its style is allowed by what the page says itself, and nothing else is. The
// style's colours go before those that the drawing has by itself.
const page = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>%[1]s</title>
<style>
:root { color-scheme: light dark; }
body { margin: 0 auto; padding: 1.2rem; max-width: 64rem; font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; }
h1 { font-size: 1.45rem; } h2 { font-size: 1.1rem; margin: 1.6rem 0 .4rem; } p { margin: .3rem 0; }
.answer { font-size: 1.15rem; }
svg { max-width: 100%%; height: auto; fill: currentColor; }
svg > rect:first-of-type { fill: none; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .4rem 0; }
th, td { padding: .15rem .9rem .15rem 0; text-align: right; vertical-align: top; white-space: nowrap; }
th:first-child, td:first-child, .words td { text-align: left; } .words td { white-space: normal; }
thead th, tbody tr + tr td, tbody tr + tr th { border-top: 1px solid #88888844; }
tbody th { font-weight: normal; }
</style>
</head>
<body>
<h1>%[1]s</h1>
%[2]s<h2>Picture</h2>
%[3]s%[4]s</body>
</html>
`

// HTML is a page with the answer, the drawing and all tables that needs no network and no scripts.
func (r *Report) HTML(o Options) []byte {
	o.All = true
	sections := r.sections(o)
	var answer, tables strings.Builder
	for i, line := range sections[0].lines {
		class := ""
		if i == 0 {
			class = ` class="answer"`
		}
		fmt.Fprintf(&answer, "<p%s>%s</p>\n", class, safe(line))
	}
	for _, s := range sections[1:] {
		s.html(&tables)
	}
	return fmt.Appendf(nil, page, safe("kv: "+r.Model.Name+", "+r.Workload.Name), answer.String(), r.SVG(), tables.String())
}

// html writes a section as a table and paragraphs.
func (s *section) html(b *strings.Builder) {
	if s.title != "" {
		fmt.Fprintf(b, "<h2>%s</h2>\n", safe(s.title))
	}
	if s.rows != nil {
		class := ""
		if s.words {
			class = ` class="words"`
		}
		fmt.Fprintf(b, "<div class=\"scroll\"><table%s>\n", class)
		for i, cells := range s.rows {
			open, end, cell := "", "", "td"
			if s.head && i == 0 {
				open, end, cell = "<thead>", "</thead>", "th"
			}
			b.WriteString(open + "<tr>")
			for k, text := range cells {
				name := cell
				if k == 0 {
					name = "th"
				}
				fmt.Fprintf(b, "<%[1]s>%[2]s</%[1]s>", name, safe(text))
			}
			b.WriteString("</tr>" + end + "\n")
		}
		b.WriteString("</table></div>\n")
	}
	for _, line := range s.lines {
		fmt.Fprintf(b, "<p>%s</p>\n", safe(line))
	}
}
