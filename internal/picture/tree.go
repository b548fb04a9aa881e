package picture

import (
	"bytes"
	"io"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
)

// TreeOptions say how a tree is printed. The zero value prints what matters
// for transfers, with line drawing characters and without colour.
type TreeOptions struct {
	ASCII bool
	Color bool
	// Width cuts longer lines; 0 means no limit.
	Width int
	// All shows every PCI function, every virtual function and every interface.
	All bool
	// Only limits the devices shown to these kinds: KindGPU, KindNIC,
	// KindNVMe, KindNVSwitch; empty means all four.
	Only []topo.Kind
	// Units are the units of rates; Auto prints ports in Gb/s, links in GB/s.
	Units units.System
}

// Tree prints a derived topology as a tree: sockets and NUMA nodes, the host
// bridges and PCIe switches below them, and the devices with their links.
func Tree(w io.Writer, t *topo.Topology, opts TreeOptions) error {
	p := &printer{opts: opts}
	b := newBuilder(t, opts)
	b.advice = " (--all shows them)"
	root := b.host()
	p.measure(root)
	p.print(root)
	if _, err := p.out.WriteTo(w); err != nil {
		return pkgerr.Errorf("draw", "write the tree: %w", err)
	}
	return nil
}

// line is one thing of a host, as a line of the tree, and what hangs below it.
type line struct {
	id       topo.ID // of the node, "" it is none
	pci      topo.ID // of the PCI function that the node is or stands on, "" none
	cells    []Cell
	head     int   // how many cells say name, address and link; 0 is the name alone
	columns  bool  // the first cells stand in columns, as those of all such lines
	box      *node // what a diagram draws; nil: nothing
	children []*line
}

// Cell is one piece of a line.
type Cell struct {
	Text  string
	Style Style
}

// The columns of a device line; further cells follow without alignment.
const (
	colName = iota
	colBDF
	colLink
	colRate
	columnCount
)

// portHead is how many cells a port's own line begins with: name and rate.
const portHead = 2

// text is a line of free pieces.
func words(cells ...Cell) *line { return &line{cells: cells} }

// of says which node a line is, and on which PCI function.
func (l *line) of(id topo.ID, d *topo.PCIDevice) *line {
	l.id = id
	if d != nil {
		l.pci = d.ID
	}
	return l
}

func (l *line) add(children ...*line) { l.children = append(l.children, children...) }

// printer lays lines out.
type printer struct {
	opts   TreeOptions
	out    bytes.Buffer
	widths [columnCount]int
}

// measure finds the column widths over the whole tree.
func (p *printer) measure(l *line) {
	if l.columns {
		for i := range min(columnCount, len(l.cells)) {
			p.widths[i] = max(p.widths[i], text.Width(l.cells[i].Text))
		}
	}
	for _, c := range l.children {
		p.measure(c)
	}
}

func (p *printer) print(root *line) {
	p.write("", root)
	p.children(root, "")
}

func (p *printer) children(l *line, indent string) {
	middle, last, bar := "├─ ", "└─ ", "│  "
	if p.opts.ASCII {
		middle, last, bar = "|- ", "`- ", "|  "
	}
	for i, c := range l.children {
		branch, below := middle, bar
		if i == len(l.children)-1 {
			branch, below = last, "   "
		}
		p.write(indent+branch, c)
		p.children(c, indent+below)
	}
}

// write prints one line: the branch, the cells, two blanks between them.
func (p *printer) write(branch string, l *line) {
	cells := make([]Cell, 0, len(l.cells))
	for i, c := range l.cells {
		if l.columns && i < columnCount {
			c.Text = text.Pad(c.Text, p.widths[i])
		}
		if c.Text != "" {
			cells = append(cells, c)
		}
	}
	for len(cells) > 0 && strings.TrimSpace(cells[len(cells)-1].Text) == "" {
		cells = cells[:len(cells)-1]
	}
	if n := len(cells); n > 0 {
		cells[n-1].Text = strings.TrimRight(cells[n-1].Text, " ")
	}
	p.out.WriteString(branch)
	p.cut(cells, text.Width(branch))
	p.out.WriteByte('\n')
}

// cut prints cells up to the line width; what is cut ends in an ellipsis.
func (p *printer) cut(cells []Cell, used int) {
	dots := "…"
	if p.opts.ASCII {
		dots = "..."
	}
	total := used + 2*max(0, len(cells)-1)
	for _, c := range cells {
		total += text.Width(c.Text)
	}
	room := total
	if p.opts.Width > 0 && total > p.opts.Width {
		room = max(p.opts.Width-text.Width(dots), used)
	}
	for i, c := range cells {
		if i > 0 && used+2 <= room {
			p.out.WriteString("  ")
			used += 2
		}
		if w := text.Width(c.Text); used+w > room {
			p.out.WriteString(paint(string([]rune(c.Text)[:max(0, room-used)]), c.Style, p.opts.Color) + dots)
			return
		}
		p.out.WriteString(paint(c.Text, c.Style, p.opts.Color))
		used += text.Width(c.Text)
	}
}
