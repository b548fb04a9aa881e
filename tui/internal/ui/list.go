package ui

import (
	"fmt"
	"slices"
)

// Line is one line of a list.
type Line struct {
	Key string // what the cursor stays on; "": it skips the line
	// Text draws the line in w columns; it may have styles. It is called for visible lines only.
	// nil is an empty line.
	Text func(w int) string
}

func (x *Line) text(w int) string {
	if x.Text == nil || w <= 0 {
		return ""
	}
	return x.Text(w)
}

// List is where the user is in a list. The zero value is at the first line.
type List struct {
	key    string // under the cursor
	at     int    // its place when it was last there
	top    int    // the first line that is shown
	height int
	all    int      // lines there were when it was drawn last
	shown  []string // the keys of the lines that were drawn last
	jumped bool     // since then, by Go
}

// Cursor is the place of the line under the cursor, -1 without one. Where the line
// is gone it is that which has taken its place.
func (l *List) Cursor(lines []Line) int {
	if i := slices.IndexFunc(lines, func(x Line) bool { return x.Key != "" && x.Key == l.key }); i >= 0 {
		l.at = i
		return i
	}
	at := nearest(lines, min(l.at, len(lines)-1))
	if at >= 0 {
		l.key, l.at = lines[at].Key, at
	}
	return at
}

// nearest is the line with a key that is next to a place, the one below first.
func nearest(lines []Line, at int) int {
	for i := max(at, 0); i < len(lines); i++ {
		if lines[i].Key != "" {
			return i
		}
	}
	for i := min(at, len(lines)-1); i >= 0; i-- {
		if lines[i].Key != "" {
			return i
		}
	}
	return -1
}

// Go puts the cursor on a line. One that is not on the screen is drawn in its middle, with what
// stands around it.
func (l *List) Go(key string) { l.key, l.jumped = key, true }

// Move carries out a movement, and says whether the action is one.
func (l *List) Move(a Action, lines []Line) bool {
	at := l.Cursor(lines)
	page := max(l.height-1, 1)
	switch a {
	case Up:
		l.step(lines, at, -1)
	case Down:
		l.step(lines, at, 1)
	case PageUp:
		l.step(lines, at, -page)
	case PageDown:
		l.step(lines, at, page)
	case Home:
		l.step(lines, at, -len(lines))
	case End:
		l.step(lines, at, len(lines))
	default:
		return false
	}
	return true
}

// step moves the cursor by some lines, and on to the next one that has a key, or
// back to the last one that has.
func (l *List) step(lines []Line, at, by int) {
	if at < 0 {
		return
	}
	to, way := min(max(at+by, 0), len(lines)-1), 1
	if by < 0 {
		way = -1
	}
	for i := to; i >= 0 && i < len(lines); i += way {
		if lines[i].Key != "" {
			l.key = lines[i].Key
			return
		}
	}
	for i := to; i >= 0 && i < len(lines); i -= way {
		if lines[i].Key != "" {
			l.key = lines[i].Key
			return
		}
	}
}

// Draw gives exactly size.H lines of size.W columns, the line under the cursor among them.
// Two columns before each line are the cursor's.
func (l *List) Draw(lk *Look, lines []Line, size Size) []string {
	at := l.Cursor(lines)
	l.height, l.all = size.H, len(lines)
	if at >= 0 {
		first := at
		for first > 0 && lines[first-1].Key == "" {
			first-- // what stands above the first line is seen with it
		}
		if first > 0 {
			first = at
		}
		if l.jumped && (at < l.top || at >= l.top+size.H) {
			l.top = at - size.H/2
		}
		l.top = min(l.top, first)
		l.top = max(l.top, at-size.H+1)
	}
	l.jumped = false
	l.top = max(0, min(l.top, len(lines)-size.H))
	out := make([]string, 0, size.H)
	l.shown = l.shown[:0]
	for i := l.top; i < len(lines) && len(out) < size.H; i++ {
		l.shown = append(l.shown, lines[i].Key)
		text := lines[i].text(size.W - 2)
		if i == at {
			out = append(out, lk.Paint(lk.Fit(lk.Cursor()+" "+text, size.W), Selected))
		} else {
			out = append(out, lk.Fit("  "+text, size.W))
		}
	}
	for len(out) < size.H {
		out = append(out, lk.Fit("", size.W))
	}
	return out
}

// Position says which lines were drawn last, "12-38 of 77"; "" all of them.
func (l *List) Position() string {
	if len(l.shown) == 0 || len(l.shown) == l.all {
		return ""
	}
	return fmt.Sprintf("%d-%d of %d", l.top+1, l.top+len(l.shown), l.all)
}

// Click puts the cursor on what was drawn last at line y. It says whether it was there
// already, and whether there is a line.
func (l *List) Click(y int) (again, ok bool) {
	if y < 0 || y >= len(l.shown) || l.shown[y] == "" {
		return false, false
	}
	again = l.key == l.shown[y]
	l.key = l.shown[y]
	return again, true
}
