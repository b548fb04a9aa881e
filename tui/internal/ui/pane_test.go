package ui_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

var bare = &ui.Look{Bare: true, ASCII: true}

// list is lines by their keys; "" is one that the cursor passes by.
func list(keys ...string) []ui.Line {
	out := make([]ui.Line, len(keys))
	for i, k := range keys {
		out[i] = ui.Line{Key: k, Text: func(int) string { return "line " + k }}
	}
	return out
}

// under is the key of the line under the cursor, by what is drawn.
func under(l *ui.List, lines []ui.Line, h int) string {
	for _, line := range l.Draw(bare, lines, ui.Size{W: 20, H: h}) {
		if key, ok := strings.CutPrefix(line, "> line "); ok {
			return strings.TrimSpace(key)
		}
	}
	return "nothing"
}

func TestList(t *testing.T) {
	lines := list("", "a", "", "", "b", "c", "d", "")
	for _, tt := range []struct {
		keys string
		want string
	}{
		{"", "a"}, {"up", "a"}, {"down", "b"}, {"down down up", "b"}, {"end", "d"}, {"end down", "d"}, {"end home", "a"},
		{"page down", "b"}, {"page down;page down", "d"}, {"end;page up", "a"}, {"end;page up;page up", "a"},
	} {
		var l ui.List
		under(&l, lines, 4)
		sep := " "
		if strings.Contains(tt.keys, "page") {
			sep = ";"
		}
		for _, k := range strings.Split(tt.keys, sep) {
			if k != "" && !l.Move(ui.Action(k), lines) {
				t.Errorf("%q is no movement", k)
			}
		}
		if got := under(&l, lines, 4); got != tt.want {
			t.Errorf("%s: on %s, want %s", tt.keys, got, tt.want)
		}
	}
	var l ui.List
	if l.Move(ui.Enter, lines) || l.Move(ui.Down, nil) != true || l.Cursor(nil) != -1 || l.Cursor(list("", "")) != -1 {
		t.Error("what has no line has a cursor, or a key moves it that is for something else")
	}
}

// The cursor stays on its line wherever that goes, and near its place when it is gone.
func TestListChanges(t *testing.T) {
	var l ui.List
	l.Go("c")
	for _, step := range []struct {
		lines string
		want  string
	}{{"a b c d", "c"}, {"c x a", "c"}, {"x y z c", "c"}, {"x y z", "z"}, {"a z", "z"}, {"a", "a"}, {"", "nothing"}, {"q r", "q"}} {
		if got := under(&l, list(strings.Fields(step.lines)...), 5); got != step.want {
			t.Errorf("%s: on %s, want %s", step.lines, got, step.want)
		}
	}
}

func TestListClick(t *testing.T) {
	var l ui.List
	lines := list("a", "", "b")
	under(&l, lines, 5)
	for _, c := range []struct {
		y         int
		again, ok bool
	}{{2, false, true}, {2, true, true}, {0, false, true}, {1, false, false}, {3, false, false}, {-1, false, false}} {
		if again, ok := l.Click(c.y); again != c.again || ok != c.ok {
			t.Errorf("line %d: %v, %v", c.y, again, ok)
		}
	}
}

// Whatever is drawn is as large as the pane, and the cursor is seen.
func TestListIsWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l ui.List
		for range 10 {
			var names []string
			for i := range rapid.IntRange(0, 40).Draw(t, "n") {
				names = append(names, rapid.SampledFrom([]string{"", fmt.Sprint(i)}).Draw(t, "key"))
			}
			lines := list(names...)
			l.Move(rapid.SampledFrom([]ui.Action{ui.Up, ui.Down, ui.PageUp, ui.PageDown, ui.Home, ui.End}).Draw(t, "action"), lines)
			size := ui.Size{W: rapid.IntRange(0, 30).Draw(t, "w"), H: rapid.IntRange(1, 20).Draw(t, "h")}
			out := l.Draw(bare, lines, size)
			if len(out) != size.H {
				t.Fatalf("%d lines, want %d", len(out), size.H)
			}
			cursors := 0
			for _, line := range out {
				if ui.Width(line) != size.W {
					t.Fatalf("%d columns, want %d", ui.Width(line), size.W)
				}
				if strings.HasPrefix(line, ">") {
					cursors++
				}
			}
			if at := l.Cursor(lines); size.W > 0 && cursors != min(at+1, 1) {
				t.Fatalf("%d cursors, it is at %d", cursors, at)
			}
		}
	})
}

func TestPaneFit(t *testing.T) {
	text := func(s string) func(int) string { return func(n int) string { return strings.Repeat(s, n) } }
	columns := []ui.Column[int]{{Title: "name", Width: 8, Most: 12, Rank: 0, Text: text("x")}, {Title: "a", Width: 3, Right: true, Rank: 2, Text: text("y")},
		{Title: "b", Width: 4, Most: 40, Rank: 1, Graph: func(n int) ([]float64, float64) { return []float64{0, 1}, 1 }}}
	for _, tt := range []struct {
		w    int
		want string
	}{{5, "name 8"}, {11, "name 11"}, {12, "name 12"}, {13, "name 8, b 4"}, {16, "name 11, b 4"}, {17, "name 8, a 3, b 4"}, {21, "name 12, a 3, b 4"}, {30, "name 12, a 3, b 13"}, {99, "name 12, a 3, b 40"}} {
		var got []string
		for _, c := range ui.Fit(columns, tt.w) {
			got = append(got, fmt.Sprint(c.Title, " ", c.Width))
		}
		if d := cmp.Diff(tt.want, strings.Join(got, ", ")); d != "" {
			t.Errorf("%d: %s", tt.w, d)
		}
	}
	fitted := ui.Fit(columns, 21)
	if got := ui.Heads(bare, fitted) + "|"; got != "name           a b   |" {
		t.Errorf("%q", got)
	}
	if got := ui.Cells(bare, fitted, 2) + "|"; got != "xx            yy   _#|" {
		t.Errorf("%q", got)
	}
	if got := ui.Cells(bare, fitted, 13) + "|"; got != "xxxxxxxxx... yyy   _#|" {
		t.Errorf("%q", got)
	}
}

func TestText(t *testing.T) {
	for _, tt := range []struct {
		got, want []string
	}{
		{ui.Wrap("one two three", 9, 2), []string{"one two", "  three"}},
		{ui.Wrap("a -1234567890123456789", 12, 2), []string{"a -", "  1234567890", "  123456789"}},
		{ui.Field(bare, "name", "", 80, ui.Plain), nil},
		{ui.Field(bare, "name", "one two", 80, ui.Plain), []string{"name         one two"}},
		{ui.Field(bare, "name", "one two", 16, ui.Plain), []string{"name", "  one two"}},
		{ui.Flow(bare, 10, "abc", "", "defg", "hi", strings.Repeat("x", 20)), []string{"abc  defg", "hi", "xxxxxxx..."}},
	} {
		if d := cmp.Diff(tt.want, tt.got); d != "" {
			t.Error(d)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z -]{0,80}`).Draw(t, "text")
		w, indent := rapid.IntRange(8, 40).Draw(t, "w"), rapid.IntRange(0, 9).Draw(t, "indent")
		for _, line := range ui.Wrap(text, w, indent) {
			if ui.Width(line) > w {
				t.Fatalf("%d columns, want %d: %q", ui.Width(line), w, line)
			}
		}
	})
}

func TestTimes(t *testing.T) {
	for ns, want := range map[int64]string{
		-1: "?", 0: "0 ns", 999: "999 ns", 1000: "1.0 us", 12_345: "12 us", 999_499: "999 us", 999_500: "1.0 ms", 1_234_567: "1.2 ms", 999_600_000: "1.0 s",
		59e9: "59 s", 61e9: "1 min", 3599e9: "59 min", 7200e9: "2 h", 49 * 3600e9: "2 days", 1<<63 - 1: "106751 days",
	} {
		if got := ui.Duration(bare, ns); got != want {
			t.Errorf("%d: %s, want %s", ns, got, want)
		}
	}
	for ns, want := range map[int64]string{-5: "0.0 s ago", 440_000_000: "0.4 s ago", 9_949_999_999: "9.9 s ago", 12e9: "12 s ago"} {
		if got := ui.Ago(bare, ns); got != want {
			t.Errorf("%d: %s, want %s", ns, got, want)
		}
	}
	if ui.Duration(&ui.Look{}, 1500) != "1.5 µs" {
		t.Error("units")
	}
}
