package tui

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/tui/internal/ui"
)

var sizedHosts = []string{"dgx-h100", "gb200-tray", "dgx-h100-gpu2-x8"}

// shownAt is how many lines of the view, and how many heads of its columns, a screen has. A view
// that does not scroll shows all lines. The lines of a command's text are fewer where they are longer: of those a part
// counts as what all are.
func (b *board) shownAt(w, h int) (rows, columns int) {
	b.t.Helper()
	b.send(tea.WindowSizeMsg{Width: w, Height: h})
	r := b.laid.Main
	lines := b.view().Main(b.env(&b.look), ui.Size{W: r.W, H: r.H - 1})
	for _, line := range lines {
		line = ansi.Strip(line)
		if strings.TrimSpace(line) != "" {
			rows++
		}
		columns = max(columns, heads(line))
	}
	var to, all int
	switch _, err := fmt.Sscanf(b.view().Position(), fmt.Sprintf("%d-%%d of %%d", 1), &to, &all); {
	case b.view().Position() == "":
		rows = math.MaxInt
	case err == nil && b.view().Name() == "Matrix":
		rows = 1000 * to / all
	}
	return rows, columns
}

// heads counts the columns that a line names, 0 where it is no head.
func heads(line string) int {
	words := strings.Fields(line)
	if len(words) > 0 && (words[0] == "device" || words[0] == "pair" || slices.Contains(words, "health")) {
		return len(words)
	}
	return 0
}

// A larger screen never shows less of a view: no line and no column that was there before is
// missing.
func TestLargerScreenShowsMore(t *testing.T) {
	for _, fixture := range sizedHosts {
		b := openFramed(t, fixture, Options{})
		b.take(agentSays(6), agentSays(7))
		rapid.Check(t, func(t *rapid.T) {
			view := rapid.SampledFrom(Views()).Draw(t, "view")
			b.press(key(view))
			w, h := rapid.IntRange(60, 240).Draw(t, "w"), rapid.IntRange(16, 90).Draw(t, "h")
			moreW, moreH := w+rapid.IntRange(0, 60).Draw(t, "more w"), h+rapid.IntRange(0, 40).Draw(t, "more h")
			if view == "path" { // the text of a command, which is another one in other widths
				moreW = w
			}
			rows, columns := b.shownAt(w, h)
			moreRows, moreColumns := b.shownAt(moreW, moreH)
			if moreRows < rows || moreColumns < columns {
				t.Fatalf("%s, %s: %d lines and %d columns at %dx%d, but %d and %d at %dx%d", fixture, view, rows, columns, w, h, moreRows, moreColumns, moreW, moreH)
			}
		})
	}
}

// A screen with room for everything shows everything: no view scrolls, and nothing is cut.
func TestNothingIsCutThatFits(t *testing.T) {
	for _, fixture := range sizedHosts {
		b := openFramed(t, fixture, Options{})
		b.take(agentSays(6), agentSays(7))
		for _, view := range Views() {
			b.press(key(view))
			b.send(tea.WindowSizeMsg{Width: 420, Height: 130})
			r := b.laid.Main
			if position := b.view().Position(); position != "" {
				t.Errorf("%s, %s: shows lines %s", fixture, view, position)
			}
			for _, line := range b.view().Main(b.env(&b.look), ui.Size{W: r.W, H: r.H - 1}) {
				if strings.Contains(line, "…") {
					t.Errorf("%s, %s: cut: %s", fixture, view, line)
				}
			}
		}
	}
	// The matrix of a DGX has 14 NICs, which a screen of 160 columns has room for.
	b := openFramed(t, "dgx-h100", Options{})
	b.press("2")
	for _, size := range [][2]int{{160, 20}, {160, 45}, {220, 60}} {
		b.send(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
		b.has("NIC13 ")
	}
}

// The fault is in sight at once, whatever the screen: its line is there with its mark, and the
// header names it.
func TestOpensAtFault(t *testing.T) {
	for _, size := range [][2]int{{60, 16}, {80, 24}, {120, 34}, {160, 45}, {220, 60}} {
		b := open(t, Options{}, "dgx-h100-gpu2-x8", 0, size[0], size[1])
		b.has("! 1 warning")
		for view, want := range map[string]string{"tree": "GPU2", "matrix": "›!GPU2", "path": "gpu:2 should use mlx5_4"} {
			b.press(key(view))
			b.has(want)
			if view == "tree" && !slices.ContainsFunc(strings.Split(b.text(), "\n"), func(line string) bool {
				return strings.HasPrefix(line, "› !") && strings.Contains(line, "GPU2")
			}) {
				t.Errorf("%v: no line has the cursor and the mark:\n%s", size, b.text())
			}
		}
	}
	b := open(t, Options{}, "dgx-h100-gpu2-x8", 0, 120, 34)
	b.has("link-degraded gpu:2")
	b.has("─ Tree ─ ")
	b.has(" of 73 ─")
	b.has("n next finding")
}

// n and N go round the findings, the worst first, and say what they are; the cursors of all views
// of devices go with them.
func TestNextFinding(t *testing.T) {
	b := open(t, Options{}, "dgx-h100", 0, 120, 34)
	b.press("n")
	b.has("no error and no warning")
	b.lacks("n next finding")

	b = open(t, Options{}, "dgx-h100-missing-files", 0, 120, 34)
	list := b.findings()
	if len(list) < 2 {
		t.Fatalf("%d findings: the host has too few for this test", len(list))
	}
	at := func(i int) topo.ID { return device(&list[(i+len(list))%len(list)]) }
	if b.shared.Node != at(0) {
		t.Errorf("it opens at %s, the worst is about %s", b.shared.Node, at(0))
	}
	b.press("home", "/", "G", "P", "U", "enter")
	for i := range len(list) {
		b.press("n")
		if b.shared.Node != at(i+1) || b.filter != "" {
			t.Errorf("n number %d: at %s with the filter %q, want %s", i, b.shared.Node, b.filter, at(i+1))
		}
	}
	b.press("N")
	if b.shared.Node != at(-1) {
		t.Errorf("N goes from the first to %s, want the last, %s", b.shared.Node, at(-1))
	}
	b.has(list[len(list)-1].Text[:40])
	for _, view := range []string{"matrix", "path"} {
		b.press(key(view), "n")
		if got := strings.ToLower(b.view().Name()); got != view {
			t.Errorf("n leaves the %s for the %s", view, got)
		}
	}
	b.press(key("engine"), "n")
	if got := b.view().Name(); got != "Tree" {
		t.Errorf("n in the engine view shows the %s", got)
	}
}
