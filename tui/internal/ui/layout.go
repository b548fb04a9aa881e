package ui

// The layout divides the screen: from its size follows where each pane lies.

// The smallest screen on which the dashboard draws.
const (
	MinW = 60
	MinH = 16
)

// The least that is worth a pane.
const (
	mostBelow         = 10      // lines of the detail below a view that scrolls
	leastBelow        = 4       // lines of the detail below the view
	leastBeside       = 46      // columns of the detail beside the view
	sideW, leastSideH = 160, 15 // columns of the screen and lines of the tree, for that to stand beside the detail
)

// Rect is a part of the screen, in columns and lines from the upper left corner. One
// without columns or lines is not shown.
type Rect struct{ X, Y, W, H int }

// Shown says whether there is anything of it on the screen.
func (r Rect) Shown() bool { return r.W > 0 && r.H > 0 }

// Holds says whether a place of the screen lies in it.
func (r Rect) Holds(x, y int) bool {
	return x >= r.X && x < r.X+r.W && y >= r.Y && y < r.Y+r.H
}

// Screen says where everything lies. Panes begin with the line of their title; those
// beside each other have a column between them, which belongs to none.
type Screen struct {
	TooSmall           bool
	Header, Footer     Rect // a line each
	Side, Main, Detail Rect
	Separators         []Rect // the columns between panes
}

// Need is the size at which the main pane, its title included, hides nothing. W is 0 for a view
// that can use any width.
type Need struct{ W, H int }

// Of divides a screen of w columns and h lines. The view comes first: the detail gets what the
// view does not need, or some lines where the view must scroll anyway, so that a larger
// screen never shows less of the view. tree says that the tree is the view, which then needs no
// second one; detail gives the detail the whole screen.
func Of(w, h int, need Need, tree, detail bool) Screen {
	s := Screen{TooSmall: w < MinW || h < MinH}
	if s.TooSmall {
		return s
	}
	s.Header, s.Footer = Rect{0, 0, w, 1}, Rect{0, h - 1, w, 1}
	body := Rect{0, 1, w, h - 2}
	spare := body.H - need.H
	beside := need.W > 0 && w-need.W-1 >= leastBeside
	switch {
	case detail:
		s.Detail = body
	case beside && spare < body.H/3:
		s.Main, s.Detail = s.split(body, max(need.W, min(w*3/5, w-1-leastBeside)))
	case spare >= leastBelow:
		s.Main, s.Detail = below(body, need.H)
		if !tree && w >= sideW && s.Detail.H >= leastSideH {
			s.Side, s.Detail = s.split(s.Detail, w/2)
		}
	case spare >= 0:
		s.Main = body
	default:
		s.Main, s.Detail = below(body, body.H-min(body.H/3, mostBelow))
	}
	return s
}

// split cuts a part of w columns off the left.
func (s *Screen) split(r Rect, w int) (left, right Rect) {
	left, right = r, r
	left.W = w
	right.X += w + 1
	right.W -= w + 1
	s.Separators = append(s.Separators, Rect{r.X + w, r.Y, 1, r.H})
	return left, right
}

// below cuts a part of h lines off the top.
func below(r Rect, h int) (top, rest Rect) {
	top, rest = r, r
	top.H = h
	rest.Y += h
	rest.H -= h
	return top, rest
}
