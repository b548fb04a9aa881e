package views

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/counters"
	"github.com/topoctl/topoctl/internal/picture"

	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
)

// The columns, in the order in which they stand.
const (
	treeColName = iota
	colLink
	colNote
	colRate
	colState
	colLine
	colLoad
	colSpark
	treeColSent
	treeColReceived
	colBusy
	colPCIeSent
	colPCIeReceived
	colAddress
	treeColumnCount
)

const (
	marks        = 2  // columns before the name: finding, errors that count up
	treeCursor   = 2  // columns before those
	sparkWidth   = 10 // values of a sparkline
	rateWidth    = 10 // "399.8 Gb/s"
	percentWidth = 5  // ">99%"
)

// Main draws the tree.
func (v *TreeView) Main(env *ui.Env, size ui.Size) []string {
	l := env.Look
	rows, at := v.sync(env)
	switch {
	case v.tree == nil:
		return Exact(l, []string{" no topology yet"}, size.W, size.H)
	case at < 0:
		return Exact(l, []string{" nothing matches " + l.Safe(string(env.Filter))}, size.W, size.H)
	}
	p := v.drawing(env, rows, max(0, size.W-treeCursor))
	var lines []string
	if size.H > 3 {
		lines = append(lines, "  "+l.Paint(p.head(), ui.Head))
	}
	v.first = len(lines)
	size.H = max(0, size.H)
	list := v.list.Draw(l, v.lines(rows, p.line), ui.Size{W: size.W, H: size.H - v.first})
	return Exact(l, append(lines, list...), size.W, size.H)
}

// Needs is all lines with all columns. What stands behind the columns the detail has, too.
func (v *TreeView) Needs(env *ui.Env, _ int) ui.Size {
	rows, at := v.sync(env)
	if at < 0 {
		return ui.Size{H: 1}
	}
	size := ui.Size{W: treeCursor + marks, H: 1 + len(rows)}
	for _, c := range v.columns(env, rows) {
		if w := max(c.Width, c.Most); w > 0 {
			size.W += w + 1
		}
	}
	return size
}

// Position says which lines are shown.
func (v *TreeView) Position() string { return v.list.Position() }

// treeDrawing is one drawing of the tree.
type treeDrawing struct {
	v        *TreeView
	l        *ui.Look
	s        *state.State
	rows     []int
	prefixes []string // the branches before the names
	marks    map[int]ui.Style
	moving   map[int]bool
	columns  []ui.Column
}

func (v *TreeView) drawing(env *ui.Env, rows []int, width int) *treeDrawing {
	p := &treeDrawing{v: v, l: env.Look, s: env.State, rows: rows, moving: map[int]bool{}}
	p.prefixes = v.branches(env.Look, rows)
	p.findMarks()
	p.columns = v.columns(env, rows)
	name := &p.columns[treeColName]
	name.Width = max(min(name.Most, max(width/2, treeLeastName)), 0)
	p.columns = ui.Fit(p.columns, width-marks)
	return p
}

// treeLeastName is the room that branch and name have at least.
const treeLeastName = 22

// columns are those that there is something to show in. Branch and name need Most columns.
func (v *TreeView) columns(env *ui.Env, rows []int) []ui.Column {
	s, w := env.State, v.tree.widths
	out := make([]ui.Column, treeColumnCount)
	out[treeColName] = ui.Column{Title: "device", Most: v.nameWidth(env.Look, rows)}
	out[colLink] = ui.Column{Title: "link", Width: w.link, Rank: 3}
	out[colNote] = ui.Column{Title: "could be", Width: w.note, Rank: 10}
	out[colAddress] = ui.Column{Title: "address", Width: w.address, Rank: 11}
	if w.link > 0 {
		out[colRate] = ui.Column{Title: "rate", Width: rateWidth, Right: true, Rank: 8}
	}
	if w.state > 0 {
		out[colState] = ui.Column{Title: "state", Width: w.state, Rank: 2}
		out[colLine] = ui.Column{Title: "line", Width: rateWidth, Right: true, Rank: 5}
	}
	if len(s.Ports) > 0 {
		out[colLoad] = ui.Column{Title: "load", Width: percentWidth, Right: true, Rank: 1}
		out[colSpark] = ui.Column{Width: sparkWidth, Rank: 9}
		out[treeColSent] = ui.Column{Title: "sent", Width: rateWidth, Right: true, Rank: 6}
		out[treeColReceived] = ui.Column{Title: "received", Width: rateWidth, Right: true, Rank: 7}
	}
	if len(s.GPUs) > 0 {
		out[colBusy] = ui.Column{Title: "busy", Width: percentWidth, Right: true, Rank: 4}
		out[colPCIeSent] = ui.Column{Title: "PCIe sent", Width: rateWidth, Right: true, Rank: 12}
		out[colPCIeReceived] = ui.Column{Title: "PCIe recv", Width: rateWidth, Right: true, Rank: 13}
	}
	return out
}

// nameWidth is what the longest branch and name of a device take.
func (v *TreeView) nameWidth(l *ui.Look, rows []int) int {
	w := 0
	for _, r := range rows {
		if n := &v.tree.nodes[r]; n.device {
			w = max(w, 2*n.line.Depth+ui.Width(v.fold(l, n))+ui.Width(n.line.Name))
		}
	}
	return w
}

// branches are the lines and signs before the names.
func (v *TreeView) branches(l *ui.Look, rows []int) []string {
	out := make([]string, len(rows))
	last := make([]bool, len(rows)) // no sibling is below
	var below []bool                // by depth
	for i, r := range slices.Backward(rows) {
		d := v.tree.nodes[r].line.Depth
		for len(below) <= d {
			below = append(below, false)
		}
		last[i] = !below[d]
		below[d] = true
		clear(below[d+1:])
	}
	var over []bool // is the open node at a depth the last of its siblings
	for i, r := range rows {
		n := &v.tree.nodes[r]
		d := n.line.Depth
		over = append(over[:min(d, len(over))], last[i])
		var b strings.Builder
		for k := 1; k < d && k < len(over); k++ {
			if over[k] {
				b.WriteString(l.Gap())
			} else {
				b.WriteString(l.Pipe())
			}
		}
		switch {
		case d == 0:
		case last[i]:
			b.WriteString(l.Last())
		default:
			b.WriteString(l.Branch())
		}
		b.WriteString(v.fold(l, n))
		out[i] = b.String()
	}
	return out
}

// fold is the sign between branch and name.
func (v *TreeView) fold(l *ui.Look, n *node) string {
	switch {
	case !n.children && l.ASCII:
		return " "
	case !n.children:
		return ""
	case v.folded[n.key]:
		return l.Folded() + " "
	}
	return l.Open() + " "
}

// findMarks notes what the doctor says of the lines and which of them have errors that count
// up. A folded line has the worst of what it hides.
func (p *treeDrawing) findMarks() {
	p.marks = map[int]ui.Style{}
	t := p.v.tree
	shown := func(i int) int {
		at := i
		for ; i >= 0; i = t.nodes[i].parent {
			if p.v.folded[t.nodes[i].key] {
				at = i
			}
		}
		return at
	}
	for _, id := range t.h.Subjects() {
		at := shown(t.place[id]) // what has no line is the host's
		for _, f := range t.h.Findings(id) {
			p.marks[at] = max(p.marks[at], StyleOf(f.Severity))
		}
	}
	for id, port := range p.s.Ports {
		if at, ok := t.place[id]; ok && len(port.RecentErrors) > 0 {
			p.moving[shown(at)] = true
		}
	}
}

func (p *treeDrawing) head() string {
	return strings.Repeat(" ", marks) + ui.Heads(p.l, p.columns)
}

// line draws a row of at most width columns.
func (p *treeDrawing) line(row, width int) string {
	l, n := p.l, &p.v.tree.nodes[p.rows[row]]
	counts := " "
	if p.moving[p.rows[row]] {
		counts = l.Paint("e", ui.Middle)
	}
	mark := p.marks[p.rows[row]]
	before := l.Paint(l.Mark(mark), mark) + counts
	name := l.Paint(p.prefixes[row], ui.Faint) + n.line.Name
	if !n.device {
		text := l.Cut(name, width-marks)
		return before + text + p.details(n, width-marks-ui.Width(text))
	}
	text := ui.Cells(l, p.columns, func(i, w int) string {
		if i == treeColName {
			return name
		}
		cell, style := p.cell(n, i)
		return l.Paint(l.Cut(cell, w), style)
	})
	if p.columns[colAddress].Width > 0 || p.v.tree.widths.address == 0 {
		text += p.details(n, width-marks-ui.Width(text))
	}
	return before + text
}

// details are the pieces without a column, as far as there is room.
func (p *treeDrawing) details(n *node, room int) string {
	out := ""
	pieces := n.line.Details
	if s := p.linkOf(n); !n.device && s.Degraded {
		pieces = append([]picture.Cell{{Text: s.Text + "!", Style: picture.Bad}, {Text: s.Note, Style: picture.Faint}}, pieces...)
	}
	for _, c := range pieces {
		if c.Text == "" || n.state != "" && strings.HasPrefix(c.Text, n.state) { // the state has a column
			continue
		}
		w := min(ui.Width(c.Text), room-2)
		if w < 3 {
			break
		}
		out += "  " + p.l.Paint(p.l.Cut(c.Text, w), Styles[c.Style])
		room -= w + 2
	}
	return out
}

// cell is a device's text in a column.
func (p *treeDrawing) cell(n *node, column int) (string, ui.Style) {
	switch column {
	case colAddress:
		return n.line.Address, ui.Faint
	case colLink, colNote, colRate:
		return p.link(n, column)
	case colBusy, colPCIeSent, colPCIeReceived:
		return p.gpuCell(n, column), ui.Plain
	}
	line, ok := p.busiest(n)
	if !ok {
		return "", ui.Plain
	}
	switch column {
	case colLine:
		return p.l.PortRate(line.BytesPerSec), ui.Plain
	case colState:
		return p.l.Safe(cmp.Or(line.State, ui.Unknown)), StyleOfState(line.State)
	}
	if line.Traffic == nil {
		return "", ui.Plain
	}
	switch column {
	case treeColSent:
		return p.l.PortRate(line.Sent()), ui.Plain
	case treeColReceived:
		return p.l.PortRate(line.Received()), ui.Plain
	case colLoad:
		if s := StyleOfState(line.State); s == ui.Bad && p.columns[colState].Width == 0 {
			return p.l.Safe(line.State), s // what matters more than a load of nothing
		}
		part, known := counters.Share(line.Busier(), line.BytesPerSec)
		if !known {
			return ui.Unknown, ui.Plain
		}
		return p.l.Percent(part), ui.Plain
	}
	top := 0.0
	if line.BytesPerSec != nil {
		top = float64(*line.BytesPerSec)
	}
	return p.l.Spark(both(&line.Traffic.Sent, &line.Traffic.Received), top, sparkWidth), ui.Accent
}

// link is the PCIe link as it runs now, and what it could be where that is more.
func (p *treeDrawing) link(n *node, column int) (string, ui.Style) {
	s := p.linkOf(n)
	switch {
	case column == colRate && s.Text == "" && s.Rate == nil:
		return "", ui.Plain
	case column == colRate:
		return p.l.Rate(s.Rate), ui.Plain
	case column == colNote && s.Degraded:
		return s.Note, ui.Middle
	case column == colNote:
		return "", ui.Plain
	case s.Degraded:
		return s.Text + "!", ui.Bad
	}
	return s.Text, ui.Plain
}

func (p *treeDrawing) linkOf(n *node) picture.LinkState {
	return linkNow(p.v.tree, p.s, n)
}

// What a PCIe link can be at most, as it is read from a host: a recording may say anything.
const mostSpeedMTs, mostWidth = 1_000_000, 32

// linkNow is a node's link by the last look at the host, else as the topology has it.
func linkNow(t *tree, s *state.State, n *node) picture.LinkState {
	if now, ok := liveLink(s, n); ok {
		return t.outline.Link(n.line.PCI, n.gpu, &now)
	}
	return n.line.Link
}

// liveLink is a node's link as last read; false if it was not.
func liveLink(s *state.State, n *node) (now topo.LaneRate, ok bool) {
	x := s.Links[n.line.PCI]
	if !within(x.SpeedMTs, mostSpeedMTs) || !within(x.Width, mostWidth) {
		return topo.LaneRate{}, false
	}
	return topo.LaneRate{SpeedMTs: *x.SpeedMTs, Width: *x.Width}, true
}

// within says whether a figure is known and can be.
func within(n *int, most int) bool { return n != nil && *n > 0 && *n <= most }

// gpuCell is the text of a GPU's load in a column.
func (p *treeDrawing) gpuCell(n *node, column int) string {
	g := p.s.GPUs[n.id()]
	switch {
	case g == nil:
		return ""
	case column == colPCIeSent:
		return p.l.Rate(g.PCIeSentBytesPerSec)
	case column == colPCIeReceived:
		return p.l.Rate(g.PCIeReceivedBytesPerSec)
	case g.UtilizationPercent == nil:
		return ui.Unknown
	}
	return p.l.Percent(float64(*g.UtilizationPercent) / 100)
}

// busiest is the port of a line. Where the interface on it moves more than RDMA counts,
// it is the interface that says what moves.
func (p *treeDrawing) busiest(n *node) (Line, bool) {
	h := p.v.tree.h
	if len(n.ports) == 0 {
		return Line{}, false
	}
	line, ok := h.Line(p.s, n.ports[0])
	for _, id := range h.Netdevs(n.ports[0]) {
		other, _ := h.Line(p.s, id)
		if rate := other.Busier(); rate != nil && (line.Busier() == nil || *rate > *line.Busier()) {
			line.Traffic = other.Traffic
		}
	}
	return line, ok
}

// both is for each moment the larger of two histories, not known where neither is.
func both(a, b *state.Series) []float64 {
	x, y := a.Values(), b.Values()
	if len(x) < len(y) {
		x, y = y, x
	}
	for i := range y {
		k := len(x) - len(y) + i
		if math.IsNaN(x[k]) || y[i] > x[k] {
			x[k] = y[i]
		}
	}
	return x
}
