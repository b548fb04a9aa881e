package views

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/picture"
	"github.com/topoctl/topoctl/internal/units"

	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
)

// TreeView is the dashboard's first view: the lines of "topoctl topo", with what links and ports do
// right now. It also stands beside other views, in a narrow pane. Use NewTree.
//
// Each column has one meaning and one kind of unit: link and rate are those of the
// PCIe link; state, line, load, sent and received those of the network port; busy and the last
// two rates those of the GPU. What is wrong stands before the name and never goes.
type TreeView struct {
	rowsView
	hosts  *Cache
	tree   *tree
	shared topo.ID // Shared.Node as it was seen last

	decoded    any // the node that the detail was of last,
	attributes []attribute
}

// NewTree is the view before anything is known.
func NewTree(hosts *Cache) ui.View {
	v := &TreeView{hosts: hosts}
	v.rowsView = rowsView{of: v, name: "Tree", folded: map[string]bool{}, width: 80, hints: []ui.Action{ui.Enter, ui.Explain, ui.FilterKey}}
	return v
}

// sync brings the view up to the state: the tree of the topology, and the cursor to where
// another view has put it. It gives nil where no topology is known.
func (v *TreeView) sync(env *ui.Env) *tree {
	h := v.hosts.Of(env.State)
	if h == nil {
		v.tree = nil
		return nil
	}
	if v.tree == nil || !v.tree.suits(h, env.Look) {
		v.tree = newTree(h, env.Look)
	}
	v.tree.h = h
	if id := env.Shared.Node; id != v.shared {
		v.shared = id
		if i, ok := v.tree.place[id]; ok && id != "" {
			v.list().Go(v.tree.nodes[i].key)
			for p := v.tree.nodes[i].parent; p >= 0; p = v.tree.nodes[p].parent {
				delete(v.folded, v.tree.nodes[p].key)
			}
		}
	}
	return v.tree
}

// node is the one under the cursor, nil without one.
func (v *TreeView) node(env *ui.Env) *node {
	if r := v.under(env); r != nil {
		return &v.tree.nodes[v.tree.byKey[r.key]]
	}
	return nil
}

// tell says to the other views where the cursor is.
func (v *TreeView) tell(env *ui.Env) {
	if n := v.node(env); n != nil {
		v.shared = n.line.ID
		env.Shared.Node = v.shared
	}
}

// Key carries out an action.
func (v *TreeView) Key(a ui.Action, env *ui.Env) ui.Request {
	r := v.rowsView.Key(a, env)
	v.tell(env)
	if a == ui.Explain {
		env.Shared.From, env.Shared.To = env.Shared.Node, ""
	}
	return r
}

func (v *TreeView) act(ui.Action, *ui.Env, *row) (ui.Request, bool) { return ui.Request{}, false }

// Click selects a line; the line under the cursor folds.
func (v *TreeView) Click(x, y int, env *ui.Env) ui.Request {
	r := v.rowsView.Click(x, y, env)
	v.tell(env)
	return r
}

// Needs is all lines with all columns. What stands behind the columns the detail has, too.
func (v *TreeView) Needs(env *ui.Env, width int) ui.Size {
	size := v.rowsView.Needs(env, width)
	if v.tree != nil {
		size.W = 2 + marksWidth + ui.WidthOf(v.columns(env))
	}
	return size
}

const (
	marksWidth = 2  // columns before the name: finding, errors that count up
	sparkWidth = 10 // values of a history
	leastName  = 22 // the room that branch and name have at least
)

// device is a line with what is known of it now.
type device struct {
	n       *node
	name    string
	link    picture.LinkState
	port    *Line // nil: it has none
	traffic *state.Port
	gpu     *state.GPU
}

func (v *TreeView) device(env *ui.Env, n *node) device {
	d := device{n: n, name: v.tree.name(v, env, n), link: v.tree.link(env.State, n), gpu: env.State.GPUs[n.line.ID]}
	if line, ok := v.tree.busiest(env.State, n); ok {
		d.port, d.traffic = &line, line.Traffic
	}
	return d
}

func portOf(d device) *Line          { return d.port }
func trafficOf(d device) *state.Port { return d.traffic }
func gpuOf(d device) *state.GPU      { return d.gpu }

// of is the text of a part of a device, "" where it has none.
func of[T any](part func(device) *T, text func(*T) string) func(device) string {
	return func(d device) string {
		if x := part(d); x != nil {
			return text(x)
		}
		return ""
	}
}

// columns are those of devices; one in which there is nothing to show has no width. Branch and name need Most columns.
func (v *TreeView) columns(env *ui.Env) []ui.Column[device] {
	l, s, w := env.Look, env.State, v.tree.widths
	where := func(there bool, width int) int {
		if there {
			return width
		}
		return 0
	}
	links, ports, gpus := w.link > 0, len(s.Ports) > 0, len(s.GPUs) > 0
	figure := func(title string, width, rank int, text func(d device) string) ui.Column[device] {
		return ui.Column[device]{Title: title, Width: width, Right: true, Rank: rank, Text: text}
	}
	return []ui.Column[device]{
		{Title: "device", Width: min(w.name, leastName), Most: w.name, Text: func(d device) string { return d.name }},
		{Title: "link", Width: w.link, Rank: 3, Style: device.linkStyle, Text: func(d device) string { return linkText(d.link) }},
		figure("rate", where(links, rateWidth), 8, func(d device) string {
			if d.link.Text == "" && d.link.Rate == nil {
				return ""
			}
			return l.Rate(d.link.Rate)
		}),
		{Title: "state", Width: w.state, Rank: 1, Style: device.stateStyle,
			Text: of(portOf, func(p *Line) string { return cmp.Or(p.State, ui.Unknown) })},
		figure("line", where(w.state > 0, rateWidth), 5, of(portOf, func(p *Line) string { return l.PortRate(p.BytesPerSec) })),
		figure("load", where(ports, 5), 2, func(d device) string {
			if d.traffic == nil {
				return ""
			}
			part, known := counters.Share(d.traffic.Busy(), d.port.BytesPerSec)
			if !known {
				return ui.Unknown
			}
			return l.Percent(part)
		}),
		{Width: where(ports, sparkWidth), Rank: 9, Style: func(device) ui.Style { return ui.Accent }, Graph: device.history},
		figure("sent", where(ports, rateWidth), 6, of(trafficOf, func(t *state.Port) string { return l.PortRate(t.SentBytesPerSec) })),
		figure("received", where(ports, rateWidth), 7, of(trafficOf, func(t *state.Port) string { return l.PortRate(t.ReceivedBytesPerSec) })),
		figure("busy", where(gpus, 5), 4, of(gpuOf, func(g *state.GPU) string {
			if g.UtilizationPercent == nil {
				return ui.Unknown
			}
			return l.Percent(float64(*g.UtilizationPercent) / 100)
		})),
		figure("PCIe sent", where(gpus, rateWidth), 12, of(gpuOf, func(g *state.GPU) string { return l.Rate(g.PCIeSentBytesPerSec) })),
		figure("PCIe recv", where(gpus, rateWidth), 13, of(gpuOf, func(g *state.GPU) string { return l.Rate(g.PCIeReceivedBytesPerSec) })),
		{Title: "address", Width: w.address, Rank: 11, Style: func(device) ui.Style { return ui.Faint },
			Text: func(d device) string { return d.n.line.Address }},
	}
}

func (d device) linkStyle() ui.Style { return degraded(d.link) }

func (d device) stateStyle() ui.Style {
	if d.port == nil {
		return ui.Plain
	}
	return StyleOfState(d.port.State)
}

// history is what the port carried, with the rate of its line.
func (d device) history() ([]float64, float64) {
	if d.traffic == nil {
		return nil, 0
	}
	return both(&d.traffic.Sent, &d.traffic.Received), d.port.top()
}

// fitted are the columns that a line of w has room for.
func (v *TreeView) fitted(env *ui.Env, w int) []ui.Column[device] {
	columns := v.columns(env)
	columns[0].Width = max(min(columns[0].Most, max((w-2)/2, leastName)), 0)
	return ui.Fit(columns, w-marksWidth)
}

func (v *TreeView) above(env *ui.Env, w int) []string {
	if v.sync(env) == nil {
		return nil
	}
	l := env.Look
	return []string{"  " + l.Paint(strings.Repeat(" ", marksWidth)+ui.Heads(l, v.fitted(env, w-2)), ui.Head)}
}

func (v *TreeView) rows(env *ui.Env, w int) []row {
	t := v.sync(env)
	if t == nil {
		return []row{textRow("no topology yet")}
	}
	columns, found, moving := v.fitted(env, w), t.marks(), t.moving(env.State)
	var out []row
	for _, i := range t.matching(env.Filter) {
		n := &t.nodes[i]
		r := row{key: n.key, folds: n.children, detail: func(d *detail) { v.describe(d, i) }}
		if n.parent >= 0 {
			r.parent = t.nodes[n.parent].key
		}
		r.text = func(w int) string {
			end := i + 1
			if v.isFolded(env, n.key) {
				end = n.end // it has the worst mark of what it hides
			}
			return t.line(v, env, columns, i, w, slices.Max(found[i:end]), slices.Contains(moving[i:end], true))
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		return []row{textRow("nothing matches " + env.Look.Safe(string(env.Filter)))}
	}
	return out
}

// line draws a node: its marks, then columns, or what there is to say where it is no device.
func (t *tree) line(v *TreeView, env *ui.Env, columns []ui.Column[device], i, w int, mark ui.Style, moving bool) string {
	l, n := env.Look, &t.nodes[i]
	before := l.Paint(l.Mark(mark), mark) + " "
	if moving {
		before = l.Paint(l.Mark(mark), mark) + l.Paint("e", ui.Middle)
	}
	w -= marksWidth
	d := v.device(env, n)
	if !n.device {
		text := l.Cut(d.name, w)
		return before + text + t.details(l, d, w-ui.Width(text))
	}
	text := ui.Cells(l, columns, d)
	if t.widths.address == 0 || columns[len(columns)-1].Title == "address" {
		text += t.details(l, d, w-ui.Width(text))
	}
	return before + text
}

// details are the pieces without a column, as far as there is room.
func (t *tree) details(l *ui.Look, d device, room int) string {
	out := ""
	pieces := d.n.line.Details
	if d.link.Degraded {
		pieces = append([]picture.Cell{{Text: d.link.Note, Style: picture.Middling}}, pieces...)
		if !d.n.device {
			pieces = append([]picture.Cell{{Text: linkText(d.link), Style: picture.Bad}}, pieces...)
		}
	}
	for _, c := range pieces {
		if c.Text == "" || d.n.state != "" && strings.HasPrefix(c.Text, d.n.state) { // the state has a column
			continue
		}
		w := min(ui.Width(c.Text), room-2)
		if w < 3 {
			break
		}
		out += "  " + l.Paint(l.Cut(c.Text, w), Styles[c.Style])
		room -= w + 2
	}
	return out
}

// linkText is a PCIe link as it runs, marked where it could be faster.
func linkText(s picture.LinkState) string {
	if s.Degraded {
		return s.Text + "!"
	}
	return s.Text
}

func degraded(s picture.LinkState) ui.Style {
	if s.Degraded {
		return ui.Bad
	}
	return ui.Plain
}

// tree is the outline of a topology with what drawing it needs.
type tree struct {
	h       *Host
	ascii   bool
	units   units.System
	outline *picture.Outline
	nodes   []node
	byKey   map[string]int
	place   map[topo.ID]int // the node that stands for a device: its own line, or that of what it is part of
	widths  struct{ name, state, link, address int }
}

// node is one line.
type node struct {
	line     picture.TreeLine
	branch   string // what stands before its name
	key      string // stays the same when the topology is read again
	text     string // what a filter looks at
	parent   int    // -1 the host
	end      int    // after the last node below
	children bool
	device   bool      // has columns
	ports    []topo.ID // whose traffic is that of the line: the best known of them counts
	gpu      bool
	state    string // of the port as the topology has it
}

// suits says whether the tree is still that of a host and look.
func (t *tree) suits(h *Host, l *ui.Look) bool {
	return t.h.Topology == h.Topology && t.ascii == l.ASCII && t.units == l.Units
}

func newTree(h *Host, l *ui.Look) *tree {
	o := picture.NewOutline(h.Topology, picture.TreeOptions{ASCII: l.ASCII, Units: l.Units})
	t := &tree{h: h, ascii: l.ASCII, units: l.Units, outline: o, nodes: make([]node, len(o.Lines)),
		byKey: make(map[string]int, len(o.Lines)), place: map[topo.ID]int{}}
	var open []int // the possible parents of the next node
	for i, line := range o.Lines {
		for len(open) > line.Depth {
			t.nodes[open[len(open)-1]].end = i
			open = open[:len(open)-1]
		}
		parent := -1
		if len(open) > 0 {
			parent = open[len(open)-1]
			t.nodes[parent].children = true
		}
		t.nodes[i] = node{line: line, parent: parent, gpu: strings.HasPrefix(string(line.ID), "gpu:")}
		open = append(open, i)
	}
	for _, i := range open {
		t.nodes[i].end = len(t.nodes)
	}
	for i := range t.nodes {
		t.fill(i, l)
	}
	t.places()
	return t
}

// fill adds what follows from a node's line.
func (t *tree) fill(i int, l *ui.Look) {
	n := &t.nodes[i]
	n.key = string(n.line.ID)
	if n.key == "" { // no node: its name below its parent
		if n.parent >= 0 {
			n.key = t.nodes[n.parent].key
		}
		n.key += "/" + n.line.Name
	}
	for k, key := 2, n.key; ; k++ {
		if _, taken := t.byKey[n.key]; !taken {
			break
		}
		n.key = key + "#" + strconv.Itoa(k)
	}
	t.byKey[n.key] = i
	last := func(i int) bool { return t.nodes[i].parent < 0 || t.nodes[i].end == t.nodes[t.nodes[i].parent].end }
	if n.parent >= 0 {
		n.branch = l.Branch()
		if last(i) {
			n.branch = l.Last()
		}
		for p := n.parent; t.nodes[p].parent >= 0; p = t.nodes[p].parent {
			if last(p) {
				n.branch = l.Gap() + n.branch
			} else {
				n.branch = l.Pipe() + n.branch
			}
		}
	}
	switch t.h.Node(n.line.ID).(type) {
	case *topo.Port, *topo.Netdev:
		n.ports = []topo.ID{n.line.ID}
	case *topo.RDMADevice:
		if ports := t.h.Ports(n.line.ID); len(ports) == 1 {
			n.ports = ports
		}
	}
	n.device = n.line.Address != "" || n.line.Rate != "" || len(n.ports) > 0 || n.gpu
	words := []string{n.line.Name, n.line.Address, n.line.Link.Text, string(n.line.ID)}
	for _, c := range n.line.Details {
		words = append(words, c.Text)
	}
	n.text = strings.Join(words, " ")
	if !n.device {
		return
	}
	sign := 2 // of a fold
	if !n.children {
		sign = len(t.leaf())
	}
	w := &t.widths
	w.name = max(w.name, ui.Width(n.branch)+sign+ui.Width(n.line.Name))
	w.address = max(w.address, ui.Width(n.line.Address))
	if text := n.line.Link.Text; text != "" {
		w.link = max(w.link, len("link"), ui.Width(text)+1)
	}
	const mostState = 8
	for _, id := range n.ports {
		if l, ok := t.h.Line(&state.State{}, id); ok {
			n.state = l.State
			w.state = max(w.state, len("state"), min(ui.Width(l.State), mostState))
		}
	}
}

// name is a node's with the branch and the sign of its fold.
func (t *tree) name(v *TreeView, env *ui.Env, n *node) string {
	sign := t.leaf()
	if n.children {
		sign = v.fold(env, n.key)
	}
	return n.branch + sign + n.line.Name
}

// leaf stands where others have the sign of a fold.
func (t *tree) leaf() string {
	if t.ascii {
		return " "
	}
	return ""
}

// places says which line stands for a device that findings or other views name.
func (t *tree) places() {
	put := func(id topo.ID, i int) {
		if _, ok := t.place[id]; !ok && id != "" {
			t.place[id] = i
		}
	}
	for i := range t.nodes {
		put(t.nodes[i].line.ID, i)
	}
	for i := range t.nodes {
		n := &t.nodes[i]
		put(n.line.PCI, i)
		for _, p := range t.h.Ports(n.line.ID) {
			put(p, i)
		}
		for _, d := range t.h.Netdevs(n.line.ID) {
			put(d, i)
		}
	}
	topology := t.h.Topology
	for i := range topology.NICs {
		for _, f := range topology.NICs[i].Functions {
			if at, ok := t.place[f]; ok {
				put(topology.NICs[i].ID, at)
			}
		}
	}
	for i := range topology.Switches {
		if at, ok := t.place[topology.Switches[i].Upstream]; ok {
			put(topology.Switches[i].ID, at)
		}
	}
	for i := range topology.PCIDevices { // a port without a line: what hangs below it
		d := &topology.PCIDevices[i]
		at, ok := t.place[d.ID]
		for depth := 0; ok && depth < 64 && t.h.Node(d.Parent) != nil; depth++ {
			above, isPCI := t.h.Node(d.Parent).(*topo.PCIDevice)
			if !isPCI {
				break
			}
			put(above.ID, at)
			d = above
		}
	}
}

// matching are the nodes that a filter keeps, with their ancestors.
func (t *tree) matching(f ui.Filter) []int {
	keep := make([]bool, len(t.nodes))
	for i := range t.nodes {
		if f != "" && (t.nodes[i].parent < 0 || !f.Match(t.nodes[i].text)) {
			continue
		}
		for p := i; p >= 0 && !keep[p]; p = t.nodes[p].parent {
			keep[p] = true
		}
	}
	var out []int
	for i, k := range keep {
		if k {
			out = append(out, i)
		}
	}
	return out
}

// marks are what the doctor says of the lines; what has no line is the host's, which is the first.
func (t *tree) marks() []ui.Style {
	out := make([]ui.Style, len(t.nodes))
	for _, id := range t.h.Subjects() {
		for _, f := range t.h.Findings(id) {
			out[t.place[id]] = max(out[t.place[id]], StyleOf(f.Severity))
		}
	}
	return out
}

// moving says which lines have errors that count up.
func (t *tree) moving(s *state.State) []bool {
	out := make([]bool, len(t.nodes))
	for id, port := range s.Ports {
		if at, ok := t.place[id]; ok && len(port.RecentErrors) > 0 {
			out[at] = true
		}
	}
	return out
}

// link is a node's link by the last look at the host, else as the topology has it.
func (t *tree) link(s *state.State, n *node) picture.LinkState {
	const mostMTs, mostLanes = 1_000_000, 32 // a recording may say anything
	within := func(n *int, most int) bool { return n != nil && *n > 0 && *n <= most }
	if x := s.Links[n.line.PCI]; within(x.SpeedMTs, mostMTs) && within(x.Width, mostLanes) {
		return t.outline.Link(n.line.PCI, n.gpu, &topo.LaneRate{SpeedMTs: *x.SpeedMTs, Width: *x.Width})
	}
	return n.line.Link
}

// busiest is the port of a line. Where the interface on it moves more than RDMA counts,
// it is the interface that says what moves.
func (t *tree) busiest(s *state.State, n *node) (Line, bool) {
	if len(n.ports) == 0 {
		return Line{}, false
	}
	line, ok := t.h.Line(s, n.ports[0])
	for _, id := range t.h.Netdevs(n.ports[0]) {
		other, _ := t.h.Line(s, id)
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
