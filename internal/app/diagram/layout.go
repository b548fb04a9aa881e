package diagram

import "slices"

// size, point and rect are in pixels.
type size struct{ w, h int }

type point struct{ x, y int }

type rect struct{ x, y, w, h int }

func (r rect) right() int  { return r.x + r.w }
func (r rect) bottom() int { return r.y + r.h }

const (
	margin    = 20
	gapX      = 14 // between boxes side by side
	gapY      = 12 // between boxes below each other
	inset     = 10 // of boxes in a container
	indent    = 24 // of boxes that hang from a common line
	trunkX    = 11 // where that line is
	dropLeast = 16 // of a line between a box and the one below
	labelGap  = 7  // between a line and its label
	stretch   = 3  // a box grows by at most a third
)

// stacking says where boxes that hang from one port stand below each other,
// instead of side by side.
type stacking uint8

const (
	stackNone     stacking = iota
	stackSwitches          // below switches
	stackAll               // below root complexes too
)

// plan is a way to lay a scene out.
type plan struct {
	stack  stacking
	trees  int // rows of trees in a NUMA node
	nodes  int // rows of NUMA nodes in a socket
	places int // rows of sockets
}

// labelSize is what a link's label takes; in a stack one line, else one for
// each of its parts.
func (w *wire) labelSize() size {
	if w == nil || len(w.labels) == 0 {
		return size{}
	}
	s := size{}
	for _, l := range w.lines() {
		s.w = max(s.w, textWidth(l, smallSize, false))
		s.h += smallHeight
	}
	if w.state == wireDegraded {
		s.w += signWidth
	}
	return s
}

// lines are the parts of a label as they stand below each other: in a stack
// width and rate share a line.
func (w *wire) lines() []string {
	if !w.flat || len(w.labels) < 2 {
		return w.labels
	}
	return append([]string{joined(w.labels[:2]...)}, w.labels[2:]...)
}

// stacked says whether the boxes below a box stand below each other.
func (p *plan) stacked(n *node) bool {
	return len(n.below) > 1 && (p.stack == stackAll || p.stack == stackSwitches && n.look != lookRoot)
}

// measure finds the least size of a box with all in and below it.
func (p *plan) measure(n *node) {
	n.box.w, n.box.h = n.own.w, n.own.h
	if len(n.inside) > 0 {
		for _, c := range n.inside {
			p.measure(c)
		}
		in := p.flow(n)
		n.box.w = max(n.box.w, in.w+2*n.frame())
		n.box.h += in.h + n.frame()
	}
	n.area = n.box
	if len(n.below) == 0 {
		return
	}
	for _, c := range n.below {
		p.measure(c)
		if c.up != nil {
			c.up.flat = p.stacked(n)
		}
	}
	if p.stacked(n) {
		for _, c := range n.below {
			label := c.up.labelSize()
			n.area.w = max(n.area.w, indent+max(c.area.w, label.w+4))
			n.area.h += max(label.h, dropLeast/2) + 4 + c.area.h
		}
		n.area.h += dropLeast / 2
	} else {
		w, h := -gapX, 0
		for _, c := range n.below {
			w += c.slot() + gapX
			h = max(h, c.area.h)
		}
		n.area.w = max(n.area.w, w)
		n.area.h += drop(n.below) + h
	}
	n.box.w = n.area.w
}

// slot is the width that a box takes beside others: its own, and what the
// label needs on the right of a line that comes in the middle.
func (n *node) slot() int {
	w := n.area.w
	if l := n.up.labelSize(); l.w > 0 {
		w = max(w, 2*(l.w+labelGap))
	}
	return w
}

// drop is the length of the lines to boxes side by side.
func drop(below []*node) int {
	h := dropLeast
	for _, c := range below {
		h = max(h, c.up.labelSize().h+8)
	}
	return h
}

// frame is the space between a container's border and what is in it.
func (n *node) frame() int {
	if n.look == lookNone {
		return 0
	}
	if n.look == lookCard {
		return inset / 2
	}
	return inset
}

// rows is how many rows the boxes in a container may take.
func (p *plan) rows(n *node) int {
	switch {
	case n.look == lookCard:
		return len(n.inside)
	case len(n.inside) > 0 && n.inside[0].look == lookPackage:
		return p.places
	case len(n.inside) > 0 && n.inside[0].look == lookNUMA && n.look == lookNone:
		return p.places
	case len(n.inside) > 0 && n.inside[0].look == lookNUMA:
		return p.nodes
	}
	return p.trees
}

// flow puts the boxes inside a container into rows of as many columns, and
// gives the size of them all.
func (p *plan) flow(n *node) size {
	rows := max(1, p.rows(n))
	columns := (len(n.inside) + rows - 1) / rows
	n.lines, n.columns = nil, make([]int, columns)
	s := size{w: (columns - 1) * n.gapX(), h: -n.gapY()}
	for line := range slices.Chunk(n.inside, columns) {
		n.lines = append(n.lines, line)
		h := 0
		for i, c := range line {
			n.columns[i] = max(n.columns[i], c.area.w)
			h = max(h, c.area.h)
		}
		s.h += h + n.gapY()
	}
	for _, w := range n.columns {
		s.w += w
	}
	return s
}

// gapX is the space between boxes side by side in a container.
func (n *node) gapX() int {
	if n.spread > 0 {
		return n.spread
	}
	return gapX
}

// gapY is the space between rows of boxes in a container.
func (n *node) gapY() int {
	if n.look == lookCard {
		return gapY / 3
	}
	return gapY
}

// wrap measures a container whose boxes fill rows of a given width.
func (p *plan) wrap(n *node, width int) {
	n.lines, n.columns = nil, nil
	used, in := 0, size{h: -gapY}
	for _, c := range n.inside {
		p.measure(c)
		if len(n.lines) == 0 || used+gapX+c.area.w > width-2*n.frame() {
			n.lines = append(n.lines, nil)
			used = -gapX
			in.h += gapY
		}
		last := len(n.lines) - 1
		n.lines[last] = append(n.lines[last], c)
		used += gapX + c.area.w
		in.w = max(in.w, used)
	}
	for _, line := range n.lines {
		in.h += tallest(line)
	}
	n.box = rect{w: max(n.own.w, in.w+2*n.frame()), h: n.own.h + in.h + n.frame()}
	n.area = n.box
}

func tallest(line []*node) int {
	h := 0
	for _, c := range line {
		h = max(h, c.area.h)
	}
	return h
}

// place gives a box and all in and below it their coordinates. The width is at
// least what was measured.
func (p *plan) place(n *node, x, y, w int) {
	n.area.x, n.area.y, n.area.w = x, y, w
	n.box.x, n.box.y, n.box.w = x, y, w
	top := y + n.own.h
	for _, line := range n.lines {
		top += p.placeLine(n, line, top) + n.gapY()
	}
	switch {
	case len(n.below) == 0:
	case p.stacked(n):
		p.placeStack(n)
	default:
		p.placeBeside(n)
	}
}

// placeLine places one row of boxes in a container and gives its height.
// Containers in one row are equally high.
func (p *plan) placeLine(n *node, line []*node, top int) int {
	h, more := tallest(line), n.box.w-2*n.frame()-(len(n.columns)-1)*n.gapX()
	for _, w := range n.columns {
		more -= w
	}
	x := n.box.x + n.frame()
	for i, c := range line {
		column, w := c.area.w, c.area.w
		if n.columns != nil {
			column, w = n.share(i, c, max(0, more)/len(n.columns))
		}
		p.place(c, x, top, w)
		c.heighten(h)
		x += column + n.gapX()
	}
	return h
}

// share gives the width of a column, which may take some more, and that of a
// box in it. Containers and the functions of a card fill their row. Trees grow
// so far that they stand in line, and no further: wide boxes with little text
// are hard to read.
func (n *node) share(i int, c *node, more int) (column, w int) {
	const alike = 1.6 // trees whose widths differ by less become equally wide
	column = n.columns[i]
	if c.look.container() || !n.look.container() {
		return column + more, column + more
	}
	column += min(more, column/stretch)
	if float64(column) > alike*float64(c.area.w) {
		return column, c.area.w + c.area.w/stretch
	}
	return column, column
}

// heighten gives a container the height of its row, and the containers in it
// what it gained, where they stand in one row.
func (n *node) heighten(h int) {
	if !n.look.container() {
		return
	}
	more := h - n.area.h
	n.area.h, n.box.h = h, h
	if len(n.lines) == 1 {
		for _, c := range n.lines[0] {
			c.heighten(c.area.h + more)
		}
	}
}

// placeStack places boxes below each other, on a line that comes down on the
// left of them.
func (p *plan) placeStack(n *node) {
	x, y := n.box.x+indent, n.box.bottom()+dropLeast/2
	end := 0
	for _, c := range n.below {
		label := c.up.labelSize()
		if c.up != nil {
			c.up.label = rect{x + 2, y, label.w, label.h}
		}
		y += max(label.h, dropLeast/2) + 2
		p.place(c, x, y, n.area.w-indent)
		end = y + min(c.box.h/2, padY+strongHeight/2)
		if c.up != nil {
			c.up.path = []point{{n.box.x + trunkX, end}, {x, end}}
		}
		y = c.area.bottom() + 2
	}
	n.trunk = []point{{n.box.x + trunkX, n.box.bottom()}, {n.box.x + trunkX, end}}
}

// placeBeside places boxes side by side, each with a line of its own that comes
// down in its middle.
func (p *plan) placeBeside(n *node) {
	used := -gapX
	for _, c := range n.below {
		used += c.slot() + gapX
	}
	more := max(0, n.area.w-used) / len(n.below)
	d := drop(n.below)
	x, y := n.box.x, n.box.bottom()+d
	for _, c := range n.below {
		slot := c.slot() + more
		w := slot
		if len(n.below) > 1 {
			w = min(slot, max(c.slot(), c.area.w+c.area.w/stretch))
		}
		p.place(c, x+(slot-w)/2, y, w)
		middle := c.box.x + c.box.w/2
		if c.up != nil {
			label := c.up.labelSize()
			c.up.path = []point{{middle, n.box.bottom()}, {middle, y}}
			c.up.label = rect{middle + labelGap, y - d + (d-label.h)/2, label.w, label.h}
		}
		x += slot + gapX
	}
}
