package picture

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// dotPrinter writes a scene in the language of Graphviz.
// Source: https://graphviz.org/doc/info/lang.html
type dotPrinter struct {
	out   bytes.Buffer
	taken map[string]int     // names of boxes
	boxes map[topo.ID]string // the names of the boxes that stand for devices
	edges []string
}

func (p *dotPrinter) printf(format string, args ...any) { fmt.Fprintf(&p.out, format, args...) }

var dotEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "&", "&amp;", "\n", `\n`)

// quote is a text as a string of the language. Graphviz reads backslashes and
// HTML's character names in labels, so both are escaped.
func quote(s string) string { return `"` + dotEscaper.Replace(s) + `"` }

// name gives a box a name that no other box has.
func (p *dotPrinter) name(n *node) string {
	id := clean(string(n.id))
	if id == "" {
		id = "box"
	}
	for p.taken[id]++; p.taken[id] > 1; p.taken[id]++ {
		id += "#" + strconv.Itoa(p.taken[id]) // which may be taken as well
	}
	return quote(id)
}

// note remembers which box a device is found in.
func (p *dotPrinter) note(n *node, name string) {
	for _, device := range n.stands {
		p.boxes[device] = name
	}
	for _, c := range n.inside {
		p.note(c, name)
	}
}

func (p *dotPrinter) scene(s *scene) {
	p.taken, p.boxes = map[string]int{}, map[topo.ID]string{}
	p.printf("graph topology {\n")
	label := s.title
	for _, r := range s.head.rows {
		if r.alert {
			label += "\n! " + r.left
		}
	}
	p.printf("  graph [label=%s, labelloc=t, fontname=\"Helvetica\", compound=true, nodesep=0.15, ranksep=0.5];\n", quote(label))
	p.printf("  node [shape=box, style=\"rounded,filled\", fontname=\"Helvetica\", fontsize=10, margin=\"0.08,0.04\"];\n")
	p.printf("  edge [fontname=\"Helvetica\", fontsize=9, color=\"%s\"];\n", light.lines[wireRead])
	var parts []*node
	if s.places != nil {
		parts = s.places.inside
	}
	for _, n := range append(slices.Clone(parts), s.unknown, s.virtual) {
		if n != nil {
			p.node(n, "  ")
		}
	}
	for _, n := range s.bars {
		bar := p.node(n, "  ")
		for _, end := range n.joins {
			p.edges = append(p.edges, fmt.Sprintf("%s -- %s [color=%q];", p.boxes[end], bar, light.looks[lookBar].stroke))
		}
	}
	for _, e := range s.edges {
		// Labels on so many short edges cover each other; the boxes have the text.
		p.edge(p.boxes[e.a], p.boxes[e.z], &wire{state: e.state}, between(e.links))
	}
	for _, e := range p.edges {
		p.printf("  %s\n", e)
	}
	p.printf("  // %s\n}\n", s.foot.rows[0].left)
}

// between are the attributes of a link that does not say who is above whom.
func between(links int) string {
	return fmt.Sprintf("constraint=false, color=%q, penwidth=%d", light.looks[lookBar].stroke, min(max(links, 1), 4))
}

// node writes a box with all in and below it, and gives the name that edges
// may lead to.
func (p *dotPrinter) node(n *node, indent string) string {
	if n.look.container() {
		return p.cluster(n, indent)
	}
	name := p.name(n)
	p.note(n, name)
	c := light.looks[n.look]
	more := ""
	if n.alert {
		more = fmt.Sprintf(", color=%q, style=\"filled,dashed\", penwidth=2", light.lines[wireDegraded])
	}
	p.printf("%s%s [label=%s, fillcolor=%q, color=%q%s];\n", indent, name, quote(boxText(n)), c.fill, c.stroke, more)
	for _, b := range n.below {
		child := p.node(b, indent)
		up := b.up
		if up == nil {
			up = &wire{}
		}
		p.edge(name, child, up, "")
	}
	return name
}

// cluster is a container. Its first node carries the text, so that edges can
// lead to it and it is never empty.
func (p *dotPrinter) cluster(n *node, indent string) string {
	name := p.name(n)
	p.boxes[n.id] = name
	inner := indent + "  "
	p.printf("%ssubgraph %s {\n", indent, quote("cluster "+strings.Trim(name, `"`)))
	p.printf("%slabel=\"\"; style=\"rounded,filled\"; fillcolor=%q; color=%q;\n", inner, light.looks[n.look].fill, light.looks[n.look].stroke)
	p.printf("%s%s [label=%s, style=filled, fillcolor=%q, color=%q];\n", inner, name, quote(boxText(&node{rows: n.rows})), light.background, light.looks[n.look].stroke)
	for _, c := range n.inside {
		child := p.node(c, inner)
		if c.up == nil {
			p.edges = append(p.edges, fmt.Sprintf("%s -- %s [style=dotted];", name, child))
		} else {
			p.edge(name, child, c.up, "")
		}
	}
	p.printf("%s}\n", indent)
	return name
}

// boxText are the rows of a box, and of the boxes in it, as lines.
func boxText(n *node) string {
	var lines []string
	for _, r := range n.rows {
		text := r.left
		if r.right != "" {
			text += "  " + r.right
		}
		if r.alert {
			text = "! " + text
		}
		lines = append(lines, text)
	}
	for _, c := range n.inside {
		lines = append(lines, boxText(c))
	}
	return strings.Join(lines, "\n")
}

// edge notes a link; edges are written after all nodes, so that each stands
// once and outside the clusters.
func (p *dotPrinter) edge(a, z string, w *wire, more string) {
	attrs := []string{}
	if len(w.labels) > 0 {
		label := strings.Join(w.labels, "\n")
		if w.state == wireDegraded {
			label = "! " + label
		}
		attrs = append(attrs, "label="+quote(label))
	}
	switch w.state {
	case wireDegraded:
		attrs = append(attrs, fmt.Sprintf("color=%q, fontcolor=%q, style=dashed, penwidth=3", light.lines[wireDegraded], light.alert))
	case wireTypical:
		attrs = append(attrs, "style=dashed")
	case wireUnknown:
		attrs = append(attrs, "style=dotted")
	}
	if more != "" {
		attrs = append(attrs, more)
	}
	p.edges = append(p.edges, fmt.Sprintf("%s -- %s [%s];", a, z, strings.Join(attrs, ", ")))
}
