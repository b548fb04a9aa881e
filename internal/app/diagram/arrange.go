package diagram

// window is the size that an image should be legible in: the layout that has
// the largest text in it is taken.
var window = size{1600, 1000}

const (
	minWidth  = 640  // of an image
	manyBoxes = 3000 // from where on only one layout is tried
	clearly   = 1.08 // how much larger the text must be for another way to stack
	jointRoom = 28   // around the label of the line between two sockets
)

// arrange gives a scene its coordinates.
func (s *scene) arrange() {
	boxes := s.measureTexts()
	plans := s.plans()
	if boxes > manyBoxes {
		plans = [][]plan{{{stack: stackAll, trees: 4, nodes: 2, places: 4}}}
	}
	best, found := plan{}, 0.0
	for _, alike := range plans {
		first, largest := plan{}, 0.0
		for _, p := range alike {
			if scale := s.try(p); scale > largest {
				first, largest = p, scale
			}
		}
		if largest > found*clearly || largest == 1 && found < 1 {
			best, found = first, largest
		}
	}
	s.try(best)
	s.place(best)
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
	if s.joint != nil {
		s.places.spread = s.joint.labelSize().w + jointRoom
	}
	return boxes
}

// plans lists the layouts to try by how they stack, those first that look most
// like a drawing by hand: everything side by side.
func (s *scene) plans() [][]plan {
	places := 1
	if s.places != nil {
		places = len(s.places.inside)
	}
	trees, nodes := 1, 1
	for _, part := range s.parts() {
		part.walk(func(n *node) {
			if !n.look.container() || len(n.inside) == 0 {
				return
			}
			if n.inside[0].look == lookNUMA {
				nodes = max(nodes, len(n.inside))
			} else {
				trees = max(trees, len(n.inside))
			}
		})
	}
	rows := func(n, most int) []int {
		out := []int{}
		for r := 1; r <= min(n, most); r++ {
			out = append(out, r)
		}
		return out
	}
	placeRows := []int{1}
	if places > 2 {
		placeRows = rows(places, 12)
	}
	var all [][]plan
	for _, stack := range []stacking{stackNone, stackAll, stackSwitches} {
		var out []plan
		for _, p := range placeRows {
			for _, n := range rows(nodes, 4) {
				for _, t := range rows(trees, 4) {
					out = append(out, plan{stack: stack, trees: t, nodes: n, places: p})
				}
			}
		}
		all = append(all, out)
	}
	return all
}

// try measures a layout and says how large its text is in the window; 1 is
// its natural size.
func (s *scene) try(p plan) float64 {
	w := minWidth
	for _, n := range []*node{s.places, s.unknown} {
		if n != nil {
			p.measure(n)
			w = max(w, n.area.w)
		}
	}
	h := margin
	for _, n := range s.parts() {
		if n == s.legend || n == s.virtual {
			p.wrap(n, w)
		} else if n != s.places && n != s.unknown {
			p.measure(n)
		}
		h += n.area.h + gapY
	}
	s.width, s.height = w+2*margin, h+margin-gapY
	return min(1, float64(window.w)/float64(s.width), float64(window.h)/float64(s.height))
}

// place puts the parts below each other.
func (s *scene) place(p plan) {
	y := margin
	for _, n := range s.parts() {
		w := s.width - 2*margin
		p.place(n, margin, y, w)
		y += n.area.h + gapY
	}
	for _, part := range s.parts() {
		part.walk((*node).fit)
	}
	if s.joint != nil {
		s.placeJoint(s.places.inside[0].box, s.places.inside[1].box)
	}
}

// placeJoint draws the line between two sockets, with its label above.
func (s *scene) placeJoint(a, b rect) {
	label := s.joint.labelSize()
	y := a.y + min(min(a.h, b.h)*2/3, label.h+gapY+6)
	s.joint.path = []point{{a.right(), y}, {b.x, y}}
	s.joint.label = rect{a.right() + (b.x-a.right()-label.w)/2, y - label.h - 3, label.w, label.h}
}
