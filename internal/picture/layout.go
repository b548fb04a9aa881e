package picture

import (
	"math"
	"unicode/utf8"
)

// size, point and rect are in pixels.
type size struct{ w, h int }

type point struct{ x, y int }

type rect struct{ x, y, w, h int }

func (r rect) right() int  { return r.x + r.w }
func (r rect) bottom() int { return r.y + r.h }

const (
	margin   = 20
	gapX     = 14 // between boxes side by side
	gapY     = 12 // between boxes below each other
	inset    = 10 // of boxes in a container
	indent   = 24 // of boxes that hang from a common line
	trunkX   = 11 // where that line is
	drop     = 8  // from a box to what hangs from it, at least
	labelGap = 2  // between a label and the boxes above and below it
)

// lines are the parts of a label as they stand below each other: width and rate share a line.
func (w *wire) lines() []string {
	if len(w.labels) < 2 {
		return w.labels
	}
	return append([]string{joined(w.labels[:2]...)}, w.labels[2:]...)
}

// labelSize is what a link's label takes.
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

// measure finds the size of a box with all in and below it. The boxes inside fill rows of a width, or rows of as many as
// the box is across.
func (n *node) measure(width int) {
	n.box.w, n.box.h, n.lines = n.own.w, n.own.h, nil
	used, room := 0, width-2*n.frame()
	each := room
	if n.across > 0 {
		each = (room - (n.across-1)*gapX) / n.across
	}
	for i, c := range n.inside {
		c.measure(each)
		used += gapX + c.area.w
		if i == 0 || n.across == 0 && used > room || n.across > 0 && i%n.across == 0 {
			n.lines, used = append(n.lines, nil), c.area.w
		}
		last := len(n.lines) - 1
		n.lines[last] = append(n.lines[last], c)
		n.box.w = max(n.box.w, used+2*n.frame())
	}
	for _, line := range n.lines {
		n.box.h += tallest(line) + n.gapY()
	}
	if len(n.lines) > 0 {
		n.box.h += n.frame() - n.gapY()
	}
	n.area = n.box
	for _, c := range n.below {
		c.measure(width - indent)
		label := c.up.labelSize()
		n.area.w = max(n.area.w, indent+max(c.area.w, label.w+2*labelGap))
		n.area.h += max(label.h, drop) + 2*labelGap + c.area.h
	}
	if len(n.below) > 0 {
		n.area.h += drop
	}
	n.box.w = n.area.w
}

// frame is the space between a container's border and what is in it.
func (n *node) frame() int {
	switch n.look {
	case lookNone:
		return 0
	case lookCard:
		return inset / 2
	}
	return inset
}

// gapY is the space between rows of boxes in a container.
func (n *node) gapY() int {
	if n.look == lookCard {
		return gapY / 3
	}
	return gapY
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
func (n *node) place(x, y, w int) {
	n.area.x, n.area.y, n.area.w = x, y, w
	n.box.x, n.box.y, n.box.w = x, y, w
	top := y + n.own.h
	for _, line := range n.lines {
		n.placeLine(line, top)
		top += tallest(line) + n.gapY()
	}
	n.placeBelow()
}

// placeLine places one row of boxes in a container. Containers, and the functions of a card, fill their row, and
// containers are equally high; trees are as wide as they are.
func (n *node) placeLine(line []*node, top int) {
	x, h := n.box.x+n.frame(), tallest(line)
	more := n.box.w - 2*n.frame() - (len(line)-1)*gapX
	for _, c := range line {
		more -= c.area.w
	}
	for _, c := range line {
		w := c.area.w
		if c.look.container() || n.look == lookCard {
			w += max(0, more) / len(line)
		}
		c.place(x, top, w)
		c.heighten(h)
		x += w + gapX
	}
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

// placeBelow places what hangs from a box, on a line that comes down on the left.
func (n *node) placeBelow() {
	x, y := n.box.x+indent, n.box.bottom()+drop
	end := 0
	for _, c := range n.below {
		label := c.up.labelSize()
		if c.up != nil {
			c.up.label = rect{x + labelGap, y, label.w, label.h}
		}
		y += max(label.h, drop) + labelGap
		c.place(x, y, n.area.w-indent)
		end = y + min(c.box.h/2, padY+strongHeight/2)
		if c.up != nil {
			c.up.path = []point{{n.box.x + trunkX, end}, {x, end}}
		}
		y = c.area.bottom() + labelGap
	}
	if len(n.below) > 0 {
		n.trunk = []point{{n.box.x + trunkX, n.box.bottom()}, {n.box.x + trunkX, end}}
	}
}

// window is the size that an image should be legible in.
var window = size{1600, 1000}

const (
	minWidth  = 640  // of an image
	manyBoxes = 3000 // from where on only one layout is tried
)

// plan is a way to lay a scene out: how wide rows are, and how many sockets stand side by side.
type plan struct{ width, across int }

// plans are those that are tried.
func (s *scene) plans() (out []plan) {
	places := 1
	if s.places != nil {
		places = len(s.places.inside)
	}
	for across := 1; across <= min(places, 12); across++ {
		for w := minWidth; w < 8*minWidth; w += w / 8 {
			out = append(out, plan{w, across})
		}
	}
	return out
}

// arrange gives a scene its coordinates.
func (s *scene) arrange() {
	plans := s.plans()
	if s.measureTexts() > manyBoxes {
		plans = []plan{{window.w, 1}}
	}
	scales, largest := make([]float64, len(plans)), 0.0
	for i, p := range plans {
		scales[i] = s.try(p)
		largest = max(largest, scales[i])
	}
	best, least := plan{}, math.MaxInt
	for i, p := range plans { // of those with text of nearly that size, the one with the least empty space
		if scales[i] < 0.98*largest {
			continue
		}
		if s.try(p); s.width*s.height < least {
			best, least = p, s.width*s.height
		}
	}
	s.try(best)
	s.place()
}

// measureTexts finds the size of all texts, and how many boxes there are.
func (s *scene) measureTexts() int {
	boxes := 0
	for _, part := range s.parts() {
		part.walk(func(n *node) {
			n.own = n.textSize()
			boxes++
		})
	}
	return boxes
}

// try measures a layout and says how large its text is in the window; 1 is
// its natural size.
func (s *scene) try(p plan) float64 {
	w := minWidth
	if s.places != nil {
		s.places.across = p.across
	}
	for _, n := range []*node{s.places, s.unknown} {
		if n != nil {
			n.measure(p.width)
			w = max(w, n.area.w)
		}
	}
	h := margin
	for _, n := range s.parts() {
		if n != s.places && n != s.unknown {
			n.measure(w)
		}
		h += n.area.h + gapY
	}
	s.width, s.height = w+2*margin, h+margin-gapY
	return min(1, float64(window.w)/float64(s.width), float64(window.h)/float64(s.height))
}

// place puts the parts below each other.
func (s *scene) place() {
	y := margin
	for _, n := range s.parts() {
		n.place(margin, y, s.width-2*margin)
		y += n.area.h + gapY
	}
	for _, part := range s.parts() {
		part.walk((*node).fit)
	}
}

// Sizes in pixels at the image's natural size.
const (
	titleSize, titleHeight   = 18.0, 26
	strongSize, strongHeight = 12.0, 17
	smallSize, smallHeight   = 10.5, 14

	padX, padY   = 8, 5
	columnGap    = 12 // between the left and the right text of a row
	signWidth    = 16 // of a warning sign and the space after it
	sampleWidth  = 34 // of a line in the legend
	maxBoxWidth  = 260
	softWidth    = 150 // what soft rows may ask for
	wideSoft     = 180 // and in a container
	minBoxWidth  = 128
	minRootWidth = 120
)

func (r *row) height() int {
	switch r.style {
	case rowTitle:
		return titleHeight
	case rowStrong:
		return strongHeight
	}
	return smallHeight
}

func (r *row) size() float64 {
	switch r.style {
	case rowTitle:
		return titleSize
	case rowStrong:
		return strongSize
	}
	return smallSize
}

func (r *row) bold() bool { return r.style == rowStrong || r.style == rowTitle }

// width is what a row asks for, a soft one at most soft. The right text is
// never bold.
func (r *row) width(soft int) int {
	w := textWidth(r.left, r.size(), r.bold())
	if r.right != "" {
		w += columnGap + textWidth(r.right, smallSize, false)
	}
	if r.soft {
		w = min(w, soft)
	}
	if r.alert {
		w += signWidth
	}
	return w
}

// ascii are the advance widths of the printable ASCII characters in DejaVu
// Sans, in thousandths of the font size. It is the widest of the usual sans
// serif fonts: what fits in it fits in Helvetica, Arial or Segoe as well.
var ascii = [...]uint16{
	318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337, // space to /
	636, 636, 636, 636, 636, 636, 636, 636, 636, 636, 337, 337, 838, 838, 838, 531, // 0 to ?
	1000, 684, 686, 698, 770, 632, 575, 775, 752, 295, 295, 656, 557, 863, 748, 787, // @ to O
	603, 787, 695, 635, 611, 732, 684, 989, 685, 611, 685, 390, 337, 390, 838, 500, // P to _
	500, 613, 635, 550, 635, 615, 352, 635, 634, 278, 278, 579, 278, 974, 634, 612, // ` to o
	635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525, 636, 337, 636, 838, // p to ~
}

// boldness is how much wider bold text is.
const boldness = 1.14

// runeWidth is a character's width in thousandths of the font size. What is
// not ASCII may be as wide as an ideogram, or wider where it is a picture.
func runeWidth(r rune) int {
	switch {
	case r >= ' ' && int(r-' ') < len(ascii):
		return int(ascii[r-' '])
	case r == '·':
		return 318
	case r >= 0x1f000:
		return 1400
	}
	return 1050
}

// textWidth estimates how wide a text is, rounded up.
func textWidth(s string, size float64, bold bool) int {
	sum := 0
	for _, r := range s {
		sum += runeWidth(r)
	}
	w := float64(sum) * size / 1000
	if bold {
		w *= boldness
	}
	return int(w) + 1
}

// cut shortens a text to a width; what is cut ends in an ellipsis.
func cut(s string, width int, size float64, bold bool) string {
	if textWidth(s, size, bold) <= width {
		return s
	}
	for len(s) > 0 {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
		if textWidth(s+"…", size, bold) <= width {
			return s + "…"
		}
	}
	return ""
}

// textSize is what the rows of a box ask for.
func (n *node) textSize() size {
	s, soft := size{}, softWidth
	if n.look.container() {
		soft = wideSoft
	}
	for i := range n.rows {
		s.w = max(s.w, n.rows[i].width(soft))
		s.h += n.rows[i].height()
	}
	if n.look == lookNone {
		return s
	}
	s.w += 2 * padX
	switch n.look {
	case lookLine:
		s.w += n.sample()
	case lookGPU, lookNIC, lookSoftware, lookSwitch, lookSmall, lookDrive:
		s.w = max(s.w, minBoxWidth)
	case lookRoot:
		s.w = max(s.w, minRootWidth)
	}
	if !n.look.container() && n.look != lookBar {
		s.w = min(s.w, maxBoxWidth)
	}
	s.h += 2 * padY
	return s
}

// sample is the width of the line before a text of the legend.
func (n *node) sample() int {
	if n.look == lookLine && n.up != nil {
		return sampleWidth
	}
	return 0
}

// fit cuts the rows of a box to its width.
func (n *node) fit() {
	room := n.box.w - 2*padX - n.sample()
	if n.look == lookNone {
		room = n.box.w
	}
	for i := range n.rows {
		r := &n.rows[i]
		left := room
		if r.alert {
			left -= signWidth
		}
		if r.right != "" {
			r.right = cut(r.right, left*2/3, smallSize, false)
			left -= textWidth(r.right, smallSize, false) + columnGap
		}
		r.left = cut(r.left, left, r.size(), r.bold())
	}
}
