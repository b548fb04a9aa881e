package layout_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/internal/app/tui/layout"
)

func TestBreakpoints(t *testing.T) {
	type rect = layout.Rect
	for _, tt := range []struct {
		name         string
		w, h         int
		tree, detail bool
		want         layout.Screen
	}{
		{"too narrow", 59, 16, false, false, layout.Screen{TooSmall: true}},
		{"too low", 60, 15, false, false, layout.Screen{TooSmall: true}},
		{"nothing", 0, 0, false, false, layout.Screen{TooSmall: true}},
		{"one pane", 60, 16, false, false, layout.Screen{Header: rect{0, 0, 60, 1}, Footer: rect{0, 15, 60, 1}, Main: rect{0, 1, 60, 14}}},
		{"its detail", 60, 16, false, true, layout.Screen{Header: rect{0, 0, 60, 1}, Footer: rect{0, 15, 60, 1}, Detail: rect{0, 1, 60, 14}, DetailInsteadOfMain: true}},
		{"wide and low", 200, 23, false, false, layout.Screen{Header: rect{0, 0, 200, 1}, Footer: rect{0, 22, 200, 1}, Main: rect{0, 1, 200, 21}}},
		{"two panes", 80, 24, false, true, layout.Screen{Header: rect{0, 0, 80, 1}, Footer: rect{0, 23, 80, 1},
			Main: rect{0, 1, 80, 15}, Detail: rect{0, 16, 80, 7}, DetailHasItsOwnPlace: true}},
		{"beside each other", 120, 30, false, false, layout.Screen{Header: rect{0, 0, 120, 1}, Footer: rect{0, 29, 120, 1},
			Main: rect{0, 1, 71, 28}, Detail: rect{72, 1, 48, 28}, Separators: []rect{{71, 1, 1, 28}}, DetailHasItsOwnPlace: true}},
		{"with the tree", 160, 40, false, false, layout.Screen{Header: rect{0, 0, 160, 1}, Footer: rect{0, 39, 160, 1},
			Side: rect{0, 1, 40, 38}, Main: rect{41, 1, 71, 38}, Detail: rect{113, 1, 47, 38},
			Separators: []rect{{40, 1, 1, 38}, {112, 1, 1, 38}}, DetailHasItsOwnPlace: true}},
		{"the tree itself", 160, 40, true, false, layout.Screen{Header: rect{0, 0, 160, 1}, Footer: rect{0, 39, 160, 1},
			Main: rect{0, 1, 95, 38}, Detail: rect{96, 1, 64, 38}, Separators: []rect{{95, 1, 1, 38}}, DetailHasItsOwnPlace: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, layout.Of(tt.w, tt.h, tt.tree, tt.detail)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// Every place of the screen belongs to exactly one part.
func TestCovers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, h := rapid.IntRange(-1, 300).Draw(t, "w"), rapid.IntRange(-1, 90).Draw(t, "h")
		s := layout.Of(w, h, rapid.Bool().Draw(t, "tree"), rapid.Bool().Draw(t, "detail"))
		if s.TooSmall {
			return
		}
		parts := append([]layout.Rect{s.Header, s.Footer, s.Main, s.Detail, s.Side}, s.Separators...)
		for y := range h {
			for x := range w {
				n := 0
				for _, p := range parts {
					if p.Shown() && p.Holds(x, y) {
						n++
					}
				}
				if n != 1 {
					t.Fatalf("%dx%d: %d parts at %d,%d", w, h, n, x, y)
				}
			}
		}
	})
}
