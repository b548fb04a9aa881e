package ui_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

func TestBreakpoints(t *testing.T) {
	type rect = ui.Rect
	long, short := ui.Need{W: 100, H: 70}, ui.Need{W: 100, H: 12}
	head := func(w, h int) ui.Screen {
		return ui.Screen{Header: rect{0, 0, w, 1}, Footer: rect{0, h - 1, w, 1}}
	}
	with := func(s ui.Screen, f func(s *ui.Screen)) ui.Screen { f(&s); return s }
	for _, tt := range []struct {
		name         string
		w, h         int
		need         ui.Need
		tree, detail bool
		want         ui.Screen
	}{
		{"too narrow", 59, 16, long, false, false, ui.Screen{TooSmall: true}},
		{"too low", 60, 15, long, false, false, ui.Screen{TooSmall: true}},
		{"nothing", 0, 0, long, false, false, ui.Screen{TooSmall: true}},
		{"it scrolls", 60, 16, long, false, false, with(head(60, 16), func(s *ui.Screen) { s.Main, s.Detail = rect{0, 1, 60, 10}, rect{0, 11, 60, 4} })},
		{"the detail alone", 60, 16, long, false, true, with(head(60, 16), func(s *ui.Screen) { s.Detail = rect{0, 1, 60, 14} })},
		{"it just fits", 80, 16, short, false, false, with(head(80, 16), func(s *ui.Screen) { s.Main = rect{0, 1, 80, 14} })},
		{"and something below", 80, 18, short, false, false, with(head(80, 18), func(s *ui.Screen) { s.Main, s.Detail = rect{0, 1, 80, 12}, rect{0, 13, 80, 4} })},
		{"not wide enough", 146, 40, long, false, false, with(head(146, 40), func(s *ui.Screen) { s.Main, s.Detail = rect{0, 1, 146, 28}, rect{0, 29, 146, 10} })},
		{"beside each other", 147, 40, long, false, false, with(head(147, 40), func(s *ui.Screen) {
			s.Main, s.Detail, s.Separators = rect{0, 1, 100, 38}, rect{101, 1, 46, 38}, []rect{{100, 1, 1, 38}}
		})},
		{"any width is of use", 300, 40, ui.Need{H: 70}, false, false, with(head(300, 40), func(s *ui.Screen) { s.Main, s.Detail = rect{0, 1, 300, 28}, rect{0, 29, 300, 10} })},
		{"with the tree", 160, 40, short, false, false, with(head(160, 40), func(s *ui.Screen) {
			s.Main, s.Side, s.Detail, s.Separators = rect{0, 1, 160, 12}, rect{0, 13, 80, 26}, rect{81, 13, 79, 26}, []rect{{80, 13, 1, 26}}
		})},
		{"the tree itself", 160, 40, short, true, false, with(head(160, 40), func(s *ui.Screen) { s.Main, s.Detail = rect{0, 1, 160, 12}, rect{0, 13, 160, 26} })},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, ui.Of(tt.w, tt.h, tt.need, tt.tree, tt.detail)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// A larger screen never has less room for what the view shows, and all of it where all fits.
func TestMoreShowsMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		need := ui.Need{W: rapid.IntRange(0, 250).Draw(t, "need w"), H: rapid.IntRange(1, 100).Draw(t, "need h")}
		tree := rapid.Bool().Draw(t, "tree")
		w, h := rapid.IntRange(ui.MinW, 300).Draw(t, "w"), rapid.IntRange(ui.MinH, 100).Draw(t, "h")
		seen := func(w, h int) (int, int) {
			r := ui.Of(w, h, need, tree, false).Main
			if need.W > 0 {
				r.W = min(r.W, need.W)
			}
			return r.W, min(r.H, need.H)
		}
		seenW, seenH := seen(w, h)
		moreW, moreH := seen(w+rapid.IntRange(0, 60).Draw(t, "more w"), h+rapid.IntRange(0, 60).Draw(t, "more h"))
		if moreW < seenW || moreH < seenH {
			t.Errorf("%dx%d, needs %v: shows %dx%d, a larger screen %dx%d", w, h, need, seenW, seenH, moreW, moreH)
		}
		if fits := h-2 >= need.H; fits && seenH < need.H {
			t.Errorf("%dx%d, needs %v: shows %d lines of what fits", w, h, need, seenH)
		}
		if fits := w >= need.W; fits && need.W > 0 && seenW < need.W {
			t.Errorf("%dx%d, needs %v: shows %d columns of what fits", w, h, need, seenW)
		}
	})
}

// Every place of the screen belongs to exactly one part.
func TestCovers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, h := rapid.IntRange(-1, 300).Draw(t, "w"), rapid.IntRange(-1, 90).Draw(t, "h")
		s := ui.Of(w, h, ui.Need{W: rapid.IntRange(0, 250).Draw(t, "need w"), H: rapid.IntRange(0, 100).Draw(t, "need h")}, rapid.Bool().Draw(t, "tree"), rapid.Bool().Draw(t, "detail"))
		if s.TooSmall {
			return
		}
		parts := append([]ui.Rect{s.Header, s.Footer, s.Main, s.Detail, s.Side}, s.Separators...)
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
