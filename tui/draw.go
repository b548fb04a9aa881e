package tui

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

// draw gives the whole screen: a line for each of the terminal's, of at most its width.
func (m *model) draw(l *ui.Look) string {
	s := m.screen(l)
	m.laid = s
	if s.TooSmall {
		return tooSmall(m.w, m.h)
	}
	lines := make([]string, 0, m.h)
	lines = append(lines, l.Fit(m.header(l, m.w), m.w))
	lines = append(lines, m.body(l, &s)...)
	lines = append(lines, m.footer(l, m.w))
	if m.dialog != nil {
		overlay(lines, m.dialog.draw(l, m.w), m.w, l)
	}
	return strings.Join(lines, "\n")
}

// tooSmall is what a screen shows that is too small for anything else.
func tooSmall(w, h int) string {
	need := fmt.Sprintf("needs %dx%d", ui.MinW, ui.MinH)
	have := fmt.Sprintf("have %dx%d", w, h)
	lines := []string{need + ",", have}
	if one := need + ", " + have; len(one) <= w {
		lines = []string{one}
	}
	if quit := "q quits"; h > len(lines) && len(quit) <= w {
		lines = append(lines, quit)
	}
	var out []string
	for range max(0, (h-len(lines))/2) {
		out = append(out, "")
	}
	for _, line := range lines[:min(len(lines), max(0, h))] {
		line = line[:min(len(line), max(0, w))]
		out = append(out, strings.Repeat(" ", (w-len(line))/2)+line)
	}
	return strings.Join(out, "\n")
}

// body draws the panes beside and above each other.
func (m *model) body(l *ui.Look, s *ui.Screen) []string {
	h := s.Footer.Y - 1
	if m.help {
		lines := helpLines(l, m.w)
		m.helpTop = clampTop(m.helpTop, len(lines), h-1)
		return titled(l, "Help", m.helpNote(l, len(lines), h-1), ui.Rect{W: m.w, H: h}, lines[m.helpTop:])
	}
	var panes []drawnPane
	add := func(r ui.Rect, draw func(r ui.Rect) []string) {
		if r.Shown() {
			panes = append(panes, drawnPane{r, draw(r)})
		}
	}
	// The tree first: it says to the others what is under its cursor.
	add(s.Side, func(r ui.Rect) []string { return m.mainPane(l, 0, r) })
	main := func(r ui.Rect) []string { return m.mainPane(l, m.current, r) }
	add(s.Main, main)
	add(s.Detail, func(r ui.Rect) []string { return m.detailPane(l, r) })
	for _, r := range s.Separators {
		bar := make([]string, r.H)
		for i := range bar {
			bar[i] = l.Paint(l.VLine(), ui.Faint)
		}
		panes = append(panes, drawnPane{r, bar})
	}
	return join(panes, h)
}

// drawnPane is a pane with its lines, each as wide as it.
type drawnPane struct {
	ui.Rect
	lines []string
}

// join puts panes together that cover the body without gaps.
func join(panes []drawnPane, h int) []string {
	out := make([]string, h)
	for y := range out {
		var b strings.Builder
		for x := 0; ; {
			p := paneAt(panes, x, y+1)
			if p == nil {
				break
			}
			b.WriteString(p.lines[y+1-p.Y])
			x += p.W
		}
		out[y] = b.String()
	}
	return out
}

func paneAt(panes []drawnPane, x, y int) *drawnPane {
	for i := range panes {
		if panes[i].Holds(x, y) {
			return &panes[i]
		}
	}
	return nil
}

// mainPane draws what a view shows.
func (m *model) mainPane(l *ui.Look, view int, r ui.Rect) []string {
	v := m.views[view]
	var lines []string
	note := ""
	failed := guarded(func() {
		lines = v.Main(m.env(l), ui.Size{W: r.W, H: r.H - 1})
		note = v.Position()
	})
	if failed != "" {
		lines = failure(l, failed, r.W)
	}
	if m.filter != "" {
		note = strings.TrimSpace(note + " " + ui.Get(ui.FilterKey).Short(l.ASCII) + l.Safe(m.filter))
	}
	return titled(l, v.Name(), note, r, lines)
}

// detailPane draws the part of the detail that the user scrolled to.
func (m *model) detailPane(l *ui.Look, r ui.Rect) []string {
	v := m.view()
	var lines []string
	if failed := guarded(func() { lines = v.Detail(m.env(l), r.W) }); failed != "" {
		lines = failure(l, failed, r.W)
	}
	room := r.H - 1
	m.detailTop = clampTop(m.detailTop, len(lines), room)
	note := ""
	if len(lines) > room {
		note = fmt.Sprintf("%d-%d of %d, %s %s", m.detailTop+1, m.detailTop+room, len(lines),
			ui.Get(ui.DetailUp).Short(l.ASCII), ui.Get(ui.DetailDown).Short(l.ASCII))
	}
	title := "Detail"
	if m.detail {
		title = v.Name() + ": detail"
	}
	return titled(l, title, note, r, lines[m.detailTop:])
}

// failure is what stands where a view failed.
func failure(l *ui.Look, failed string, w int) []string {
	lines := []string{l.Paint(l.Mark(ui.Bad)+" this view failed:", ui.Bad)}
	for line := range strings.SplitSeq(ansi.Wrap(l.Safe(failed), max(1, w-2), "/"), "\n") {
		lines = append(lines, "  "+line)
	}
	return append(lines, "", "  The others go on. Please report it.")
}

// clampTop keeps the first line that is shown between the beginning and where the end is
// at the end.
func clampTop(top, lines, room int) int { return max(0, min(top, lines-room)) }

// titled gives the lines of a pane: its title with a note, and as much of its content as
// there is room for.
func titled(l *ui.Look, title, note string, r ui.Rect, lines []string) []string {
	out := make([]string, r.H)
	head := l.HLine() + " " + title + " "
	if note != "" {
		head += l.HLine() + " " + note + " "
	}
	head = l.Cut(head, r.W)
	out[0] = l.Paint(head, ui.Head) + l.Paint(strings.Repeat(l.HLine(), max(0, r.W-ui.Width(head))), ui.Faint)
	for i := 1; i < r.H; i++ {
		line := ""
		if i <= len(lines) {
			line = ui.Clean(lines[i-1])
		}
		out[i] = l.Fit(line, r.W)
	}
	return out
}

// overlay lays lines over the middle of others.
func overlay(under, over []string, w int, l *ui.Look) {
	top := max(1, (len(under)-len(over))/2)
	for i, line := range over {
		if y := top + i; y < len(under)-1 {
			under[y] = l.Fit(strings.Repeat(" ", max(0, (w-ui.Width(line))/2))+line, w)
		}
	}
}

// guarded runs a part of a view and says how it failed: one view that is broken costs
// the others nothing.
func guarded(f func()) (failed string) {
	defer func() {
		if v := recover(); v != nil {
			failed = fmt.Sprint(v) + " " + place(debug.Stack())
		}
	}()
	f()
	return ""
}

// place is where a panic came from: the first line of ours below it.
func place(stack []byte) string {
	_, below, _ := strings.Cut(string(stack), "panic(")
	for line := range strings.Lines(below) {
		if i := strings.LastIndex(line, "/tui/"); i >= 0 && strings.HasPrefix(line, "\t") {
			file, _, _ := strings.Cut(strings.TrimSpace(line[i+1:]), " ")
			return "(" + file + ")"
		}
	}
	return ""
}
