// Package layout divides the screen: from its size follows where each pane lies.
package layout

// The smallest screen on which the dashboard draws.
const (
	MinW = 60
	MinH = 16
)

// The sizes from which on there is room for more.
const (
	twoW, twoH   = 80, 24  // the detail below the main pane
	wideW, wideH = 120, 30 // the detail beside it
	sideW, sideH = 160, 40 // the tree beside both
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
	TooSmall             bool
	Header, Footer       Rect // a line each
	Side, Main, Detail   Rect
	Separators           []Rect // the columns between panes
	DetailInsteadOfMain  bool   // there is room for one of them, and the user wants this one
	DetailHasItsOwnPlace bool   // both are there, so no key is needed to see it
}

// Of divides a screen of w columns and h lines. tree says that the tree is the main pane, which
// then needs none at its side; detail is the user's wish where there is room for one pane.
func Of(w, h int, tree, detail bool) Screen {
	s := Screen{TooSmall: w < MinW || h < MinH}
	if s.TooSmall {
		return s
	}
	s.Header, s.Footer = Rect{0, 0, w, 1}, Rect{0, h - 1, w, 1}
	body := Rect{0, 1, w, h - 2}
	if w >= sideW && h >= sideH && !tree {
		s.Side, body = s.split(body, w/4)
	}
	s.DetailHasItsOwnPlace = w >= twoW && h >= twoH
	switch {
	case w >= wideW && h >= wideH:
		s.Main, s.Detail = s.split(body, body.W-body.W*2/5-1)
	case s.DetailHasItsOwnPlace:
		s.Main, s.Detail = body, body
		s.Detail.H = body.H / 3
		s.Main.H -= s.Detail.H
		s.Detail.Y += s.Main.H
	case detail:
		s.Detail, s.DetailInsteadOfMain = body, true
	default:
		s.Main = body
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
