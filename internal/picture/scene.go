package picture

import (
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// scene is what a diagram shows and how it hangs together.
type scene struct {
	title    string   // one line, for readers that do not see the image
	problems []string // what is marked in the image, in sentences
	head     *node    // the host's name and what it has
	places   *node    // sockets, or NUMA nodes that belong to none, side by side; may be nil
	bars     []*node  // links that would be a bundle of lines: NVLink, xGMI, sockets
	edges    []edge   // links between two GPUs that stand in their boxes
	unknown  *node    // devices whose NUMA node is not known; may be nil
	virtual  *node    // software and virtual devices; may be nil
	notes    *node    // what is not drawn or not known; may be nil
	legend   *node    // may be nil
	foot     *node

	// Coordinates, which arrange fills in.
	width, height int
}

// parts lists the parts from top to bottom.
func (s *scene) parts() []*node {
	var out []*node
	for _, n := range append(append([]*node{s.head, s.places}, s.bars...), s.unknown, s.virtual, s.notes, s.legend, s.foot) {
		if n != nil {
			out = append(out, n)
		}
	}
	return out
}

// look is the kind of thing that a box is drawn as.
type look uint8

const (
	lookNone    look = iota // no border: text, or a group of boxes
	lookLine                // text with a sample of a line, in the legend
	lookPackage             // a socket
	lookNUMA
	lookUnknown // devices without NUMA node
	lookVirtual // devices without PCI function
	lookRoot    // a host bridge
	lookSwitch  // a PCIe switch or bridge
	lookCard    // functions of one slot, which share a link
	lookGPU
	lookNIC
	lookSoftware // an RDMA device made of software
	lookSmall    // an interface that no RDMA traffic leaves by
	lookDrive
	lookFabric // NVSwitches
	lookBar    // a bundle of links, told in words
	lookCount
)

// container says whether a box holds others that stand for themselves.
func (l look) container() bool {
	return l == lookPackage || l == lookNUMA || l == lookUnknown || l == lookVirtual
}

// node is a box: rows of text, boxes inside, and trees below that hang from it.
type node struct {
	look   look
	id     topo.ID // the first thing it stands for; empty for texts
	rows   []row
	tip    []string  // lines that a viewer shows on hover
	stands []topo.ID // GPUs, NICs and other devices that it stands for
	joins  []topo.ID // of a bar: the GPUs or sockets that it joins
	alert  bool      // something of it is out of order
	up     *wire     // the link to the box above; nil without one
	inside []*node
	below  []*node
	kin    *kin // what it may be folded with; nil: nothing

	// Coordinates, which arrange fills in.
	own    size      // of the text alone
	box    rect      // the box itself
	area   rect      // the box and all that hangs below it
	across int       // how many boxes of inside a row has; 0: as many as fit
	lines  [][]*node // how inside is broken into rows
	trunk  []point   // the line that what is below hangs from
}

// row is one line of text in a box.
type row struct {
	left, right string
	style       rowStyle
	alert       bool // a warning sign stands before it
	soft        bool // cut to the box, which it does not widen
}

type rowStyle uint8

const (
	rowPlain rowStyle = iota
	rowStrong
	rowFaint
	rowTitle
)

// kin says which neighbours a box looks like, so that many are drawn as one: those of one look and
// link of which all but the name is the same.
type kin struct {
	name, right string // in the first row
	noun, what  string // in the second: "5 NICs", "EFA"
	most        int    // how many are drawn one by one
}

// wireState is how a link is drawn. Each differs by more than its colour.
type wireState uint8

const (
	wireRead     wireState = iota // a rate that the hardware told
	wireTypical                   // from a table: dashed
	wireUnknown                   // no rate: dotted
	wireDegraded                  // below what both ends can do: thick, dashed, a sign
)

// wire is a link that is drawn as a line.
type wire struct {
	labels []string // "gen5 x16", "63.0 GB/s"
	lanes  int      // PCIe lanes, 0 where there are none
	state  wireState
	tip    []string

	label rect
	path  []point
}

func (w *wire) key() string {
	if w == nil {
		return ""
	}
	return strings.Join(w.labels, "|")
}

// walk visits a box and all boxes in and below it.
func (n *node) walk(visit func(*node)) {
	visit(n)
	for _, c := range n.inside {
		c.walk(visit)
	}
	for _, c := range n.below {
		c.walk(visit)
	}
}
