package views

import (
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/picture"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
)

// tree is the outline of a topology with what drawing it needs.
type tree struct {
	h       *Host
	ascii   bool
	units   units.System
	outline *picture.Outline
	nodes   []node
	byKey   map[string]int
	place   map[topo.ID]int // the node that stands for a device: its own line, or that of what it is part of
	widths  widths
}

// node is one line.
type node struct {
	line     picture.TreeLine
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

// widths are what columns take where that depends on what is in them.
type widths struct{ state, link, note, address int }

// leastLink and leastState are the titles of the columns, mostState the longest state that is
// common.
const leastLink, leastState, mostState = 4, 5, 8

func (n *node) id() topo.ID { return n.line.ID }

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
		t.fill(i)
		open = append(open, i)
	}
	for _, i := range open {
		t.nodes[i].end = len(t.nodes)
	}
	t.places()
	return t
}

// fill adds what follows from a node's line.
func (t *tree) fill(i int) {
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
	switch t.h.Node(n.id()).(type) {
	case *topo.Port, *topo.Netdev:
		n.ports = []topo.ID{n.id()}
	case *topo.RDMADevice:
		if ports := t.h.Ports(n.id()); len(ports) == 1 {
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
	w := &t.widths
	w.address = max(w.address, ui.Width(n.line.Address))
	if text := n.line.Link.Text; text != "" {
		w.link = max(w.link, leastLink, ui.Width(text)+1)
	}
	if n.line.Link.Degraded {
		w.note = max(w.note, ui.Width(n.line.Link.Note))
	}
	for _, id := range n.ports {
		if l, ok := t.h.Line(&state.State{}, id); ok {
			n.state = l.State
			w.state = max(w.state, leastState, min(ui.Width(l.State), mostState))
		}
	}
}

// places says which line stands for a device that findings or other views name.
func (t *tree) places() {
	put := func(id topo.ID, i int) {
		if _, ok := t.place[id]; !ok && id != "" {
			t.place[id] = i
		}
	}
	for i := range t.nodes {
		put(t.nodes[i].id(), i)
	}
	for i := range t.nodes {
		n := &t.nodes[i]
		put(n.line.PCI, i)
		for _, p := range t.h.Ports(n.id()) {
			put(p, i)
		}
		for _, d := range t.h.Netdevs(n.id()) {
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
		if t.nodes[i].parent < 0 || !f.Match(t.nodes[i].text) {
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
