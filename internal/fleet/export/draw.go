package export

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
)

// mostHosts are drawn one by one; beyond it hosts with the same cables are one box.
const mostHosts = 48

// box is a switch, a host, or hosts with the same cables.
type box struct {
	id, title, sub string
	tip            string
	tier           int // -1: hosts
	storage        bool
	x, y           int // where a drawing has it
}

// class is what a box stands for.
func (b *box) class() string {
	switch {
	case b.tier < 0:
		return "host"
	case b.storage:
		return "store"
	}
	return "switch"
}

// wire joins two boxes by a number of parallel cables.
type wire struct {
	a, b  string
	count int
	rate  topo.Rate // of each; 0 not known
	mixed bool      // rates differ
}

// picture is a fleet's network as boxes in rows, and wires.
type picture struct {
	boxes []*box
	at    map[string]*box // by ID
	wires []*wire
	notes []string
}

func pictureOf(f *fleet.Fleet) *picture {
	p := &picture{at: map[string]*box{}}
	data := f.DataLeaves()
	for i := range f.Switches {
		s := &f.Switches[i]
		b := &box{id: s.ID, title: cmp.Or(s.Name, s.ID), sub: s.Description, tip: strings.TrimSpace(s.ID + " " + s.Description)}
		if s.Tier != nil {
			b.tier = *s.Tier
		}
		on, leaf := data[s.ID]
		b.storage = leaf && !on
		p.add(b)
	}
	wires := map[[2]string]*wire{}
	join := func(a, b string, count int, r *topo.Rate) {
		w := wires[[2]string{a, b}]
		if w == nil {
			w = &wire{a: a, b: b, rate: rate(r)}
			wires[[2]string{a, b}] = w
			p.wires = append(p.wires, w)
		}
		w.count += count
		w.mixed = w.mixed || w.rate != rate(r)
	}
	for i := range f.Links {
		if l := &f.Links[i]; !l.Down {
			join(l.A, l.B, l.Count, l.BytesPerSec)
		}
	}
	p.markStorage()
	p.hosts(f, join)
	return p
}

func (p *picture) add(b *box) {
	p.boxes = append(p.boxes, b)
	p.at[b.id] = b
}

// markStorage finds the switches above storage's leaves and no others.
func (p *picture) markStorage() {
	for range p.rows() {
		above := map[*box]bool{}
		for _, w := range p.wires {
			a, b := p.at[w.a], p.at[w.b]
			if a == nil || b == nil || a.tier >= b.tier {
				continue
			}
			other, seen := above[b]
			above[b] = a.storage && (other || !seen)
		}
		for b, storage := range above {
			b.storage = storage
		}
	}
}

// hosts adds the hosts, each or together.
func (p *picture) hosts(f *fleet.Fleet, join func(a, b string, count int, r *topo.Rate)) {
	key := func(h fleet.Host) string { return h.Host }
	if len(f.Hosts) > mostHosts {
		key = func(h fleet.Host) string {
			var leaves []string
			for k := range h.Ports {
				if h.Ports[k].Leaf != "" {
					leaves = append(leaves, h.Ports[k].Leaf)
				}
			}
			slices.Sort(leaves)
			return strings.Join(append(leaves, h.Class), "\x00")
		}
	}
	outside := 0
	for _, list := range group.By(f.Hosts, key) {
		var names []string
		for _, h := range list {
			names = append(names, h.Host)
		}
		b := &box{id: "host:" + names[0], title: names[0], sub: list[0].Class, tier: -1, tip: text.List(names, 40)}
		if len(names) > 1 {
			b.title, b.sub = hostlist(names), text.Plural(len(names), "host")
		}
		cabled := false
		for _, h := range list {
			for k := range h.Ports {
				if x := &h.Ports[k]; x.Leaf != "" {
					cabled = true
					join(b.id, x.Leaf, 1, x.BytesPerSec)
				}
			}
		}
		if !cabled {
			outside += len(list)
			continue
		}
		p.add(b)
	}
	if len(f.Hosts) > mostHosts {
		p.notes = append(p.notes, fmt.Sprintf("more than %d hosts: those with the same leaves are one box", mostHosts))
	}
	if outside > 0 {
		p.notes = append(p.notes, text.Plural(outside, "host")+" without a known cable left out")
	}
}

// about is what a wire says: how many cables of which rate.
func (w *wire) about() string {
	out := text.Plural(w.count, "cable")
	switch {
	case w.mixed:
		out += " of different rates"
	case w.rate > 0:
		out += " of " + units.Rate(int64(w.rate), units.Gbit)
	}
	return out
}

// DOT draws the network for Graphviz.
func DOT(f *fleet.Fleet) Output {
	p := pictureOf(f)
	out := begin("// ", "// The network of a fleet, written by topoctl fleet export.\n", p.notes)
	out.WriteString("graph fleet {\n  rankdir=BT;\n  node [shape=box, fontname=\"sans-serif\", fontsize=10];\n  edge [fontname=\"sans-serif\", fontsize=8];\n")
	style := map[string]string{"host": `style=rounded`, "store": `style="filled,dashed", fillcolor="#e4e7eb"`,
		"switch": `style=filled, fillcolor="#d5e3f5"`}
	for _, row := range p.rows() {
		out.WriteString("  { rank=same;\n")
		for _, b := range row {
			label := strings.TrimRight(b.title+"\n"+b.sub, "\n")
			fmt.Fprintf(out, "    %s [label=%s, tooltip=%s, %s];\n", dot(b.id), dot(label), dot(b.tip), style[b.class()])
		}
		out.WriteString("  }\n")
	}
	for _, w := range p.wires {
		label := ""
		if w.count > 1 {
			label = fmt.Sprintf("×%d", w.count)
		}
		fmt.Fprintf(out, "  %s -- %s [label=%s, tooltip=%s];\n", dot(w.a), dot(w.b), dot(label), dot(w.about()))
	}
	out.WriteString("}\n")
	return Output{out.Bytes(), p.notes}
}

// dot quotes a text for Graphviz.
func dot(s string) string {
	var lines []string
	for line := range strings.SplitSeq(s, "\n") {
		lines = append(lines, strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text.Printable(line)))
	}
	return `"` + strings.Join(lines, `\n`) + `"`
}

// rows are the boxes of each tier, the highest first, in natural order of what they are called, storage's last.
func (p *picture) rows() [][]*box {
	rows := group.By(p.boxes, func(b *box) int { return b.tier })
	slices.SortFunc(rows, func(a, b []*box) int { return b[0].tier - a[0].tier })
	for _, row := range rows {
		slices.SortStableFunc(row, func(a, b *box) int {
			if a.storage != b.storage {
				return map[bool]int{true: 1, false: -1}[a.storage]
			}
			return topo.NaturalCompare(a.title, b.title)
		})
	}
	return rows
}

// Sizes of the drawing in pixels.
const (
	svgMargin   = 20
	boxHeight   = 38
	boxGap      = 14
	rowGap      = 90
	letterWidth = 7
	mostLetters = 26
	mostColumns = 24 // boxes beside each other; a longer tier goes on below
)

// svgStyle has the colours, on light and on dark ground.
const svgStyle = `.page{fill:#ffffff}.text{fill:#1b222c;font:600 12px sans-serif}.sub{fill:#525c69;font:11px sans-serif}.switch{fill:#d5e3f5;stroke:#6f8fb5}` +
	`.store{fill:#e4e7eb;stroke:#7b8591;stroke-dasharray:4 3}.host{fill:#f2f7f2;stroke:#86a887}.wire{stroke:#7b8591;fill:none;opacity:.6}` +
	`@media (prefers-color-scheme: dark){.page{fill:#0a0e13}.text{fill:#e8edf2}.sub{fill:#a9b4c0}.switch{fill:#22364f;stroke:#5c7ba0}.store{fill:#2a313a;stroke:#7b8591}` +
	`.host{fill:#16261a;stroke:#4c6b4f}.wire{stroke:#7d8995}}`

// SVG draws the network: a row for each tier, the hosts below.
func SVG(f *fleet.Fleet) Output {
	p := pictureOf(f)
	width, widest := 0, 0
	for _, b := range p.boxes {
		width = max(width, letterWidth*min(max(text.Width(b.title), text.Width(b.sub)), mostLetters)+16)
	}
	step := width + boxGap
	rows := p.rows()
	for _, row := range rows {
		widest = max(widest, min(len(row), mostColumns))
	}
	total, y := max(2*svgMargin+widest*step, 420), svgMargin+34
	for _, row := range rows {
		for line := range slices.Chunk(row, mostColumns) {
			left := svgMargin + (total-2*svgMargin-len(line)*step+boxGap)/2 // short rows stand in the middle
			for k, b := range line {
				b.x, b.y = left+k*step, y
			}
			y += boxHeight + boxGap
		}
		y += rowGap - boxGap
	}
	high := max(y-rowGap+svgMargin, 100)
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">`+"\n<title>The network of a fleet</title>\n<style>%s</style>\n<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n",
		total, high, total, high, svgStyle, total, high)
	fmt.Fprintf(&out, `<text class="text" x="%d" y="%d">%s</text>`+"\n", svgMargin, svgMargin+10, html.EscapeString(p.title(f)))
	for _, w := range p.wires {
		a, b := p.at[w.a], p.at[w.b]
		if a == nil || b == nil {
			continue
		}
		if a.y < b.y {
			a, b = b, a
		}
		ax, bx, bottom := a.x+width/2, b.x+width/2, b.y+boxHeight
		fmt.Fprintf(&out, `<path class="wire" stroke-width="%.1f" d="M%d %dC%d %d %d %d %d %d"><title>%s</title></path>`+"\n",
			min(1+float64(w.count-1)/2, 5), ax, a.y, ax, a.y-rowGap/2, bx, bottom+rowGap/2, bx, bottom, html.EscapeString(w.about()))
	}
	for _, b := range p.boxes {
		fmt.Fprintf(&out, `<g><title>%s</title><rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="4"/>`,
			html.EscapeString(text.Printable(cmp.Or(b.tip, b.title))), b.class(), b.x, b.y, width, boxHeight)
		write := func(class, words string, down int) {
			fmt.Fprintf(&out, `<text class="%s" text-anchor="middle" x="%d" y="%d">%s</text>`,
				class, b.x+width/2, b.y+down, html.EscapeString(shown(words)))
		}
		if b.sub == "" {
			write("text", b.title, boxHeight/2+4)
		} else {
			write("text", b.title, 16)
			write("sub", b.sub, 30)
		}
		out.WriteString("</g>\n")
	}
	out.WriteString("</svg>\n")
	return Output{out.Bytes(), p.notes}
}

// shown is a text as it fits a box; its tip has all of it.
func shown(s string) string { return text.Cut(text.Printable(s), mostLetters, "…") }

// title is what the drawing shows, in a line.
func (p *picture) title(f *fleet.Fleet) string {
	switches, cables := 0, 0
	for _, b := range p.boxes {
		if b.tier >= 0 {
			switches++
		}
	}
	for _, w := range p.wires {
		cables += w.count
	}
	return fmt.Sprintf("%s, %s, %s", text.Plural(len(f.Hosts), "host"), text.Plural(switches, "switch", "switches"), text.Plural(cables, "cable"))
}
