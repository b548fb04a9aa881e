// Package viewtest is what tests of several views of the dashboard have in common.
package viewtest

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
)

// Nasty is what names and texts of files and peers may be.
const Nasty = "\x1b]0;owned\a\x1b[2J\u202e\u009b31m\x00\r\n\t世界\u0301 \xff end"

// Sizes are those of golden panes.
var Sizes = []ui.Size{{W: 60, H: 14}, {W: 80, H: 22}, {W: 120, H: 28}, {W: 200, H: 48}}

// Env is what views draw from, with a screen of one kind.
func Env(s *state.State, l ui.Look) *ui.Env {
	return &ui.Env{State: s, Look: &l, Shared: &ui.Shared{}}
}

// Frame draws a pane, checks its size, and gives it as golden files have it.
func Frame(t *testing.T, v ui.View, e *ui.Env, size ui.Size) string {
	t.Helper()
	lines := v.Main(e, size)
	if len(lines) != size.H {
		t.Errorf("%d lines, want %d", len(lines), size.H)
	}
	Fits(t, lines, size.W)
	for i, line := range lines {
		lines[i] = strings.TrimRight(strings.ReplaceAll(line, "\x1b", "^["), " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n") + "\n"
}

// Fits fails where a line is wider than the pane.
func Fits(t *testing.T, lines []string, w int) {
	t.Helper()
	for i, line := range lines {
		if n := ui.Width(line); n > w {
			t.Errorf("line %d has %d columns, want %d: %q", i, n, w, line)
		}
	}
}

// Hostile draws a view of a state that others have written, moves in it and clicks, and fails
// where a pane is not whole or where a terminal would obey it.
func Hostile(t *rapid.T, v ui.View, s *state.State, filters []string, actions ...ui.Action) {
	e := Env(s, ui.Look{ASCII: rapid.Bool().Draw(t, "ascii"), Bare: true})
	for range 12 {
		size := ui.Size{W: rapid.IntRange(1, 220).Draw(t, "w"), H: rapid.IntRange(0, 50).Draw(t, "h")}
		e.Filter = ui.Filter(rapid.SampledFrom(filters).Draw(t, "filter"))
		lines := v.Main(e, size)
		if len(lines) != size.H {
			t.Fatalf("%d lines, want %d", len(lines), size.H)
		}
		clean(t, lines, size.W)
		w := rapid.IntRange(20, 200).Draw(t, "detail")
		clean(t, v.Detail(e, w), w)
		if rapid.Bool().Draw(t, "click") {
			v.Click(0, rapid.IntRange(-1, 60).Draw(t, "y"), e)
		} else {
			v.Key(rapid.SampledFrom(append([]ui.Action{ui.Up, ui.Down, ui.PageDown, ui.End, ui.Home, ui.Enter, ui.Left, ui.Right, ui.Wide}, actions...)).Draw(t, "key"), e)
		}
		v.Selection(e)
	}
}

// clean fails where a line holds what a terminal would obey, or has more than a pane has
// room for.
func clean(t *rapid.T, lines []string, w int) {
	for _, line := range lines {
		if ui.Width(line) > w {
			t.Fatalf("%d columns in a pane of %d: %q", ui.Width(line), w, line)
		}
		for _, r := range line {
			if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x202e || r == 0xfffd {
				t.Fatalf("%q gets through: %q", r, line)
			}
		}
	}
}
