package diagram

import "unicode/utf8"

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
