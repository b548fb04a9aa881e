package state

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A series is the last HistoryLen values that were pushed.
func TestSeriesIsATail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 3*HistoryLen).Draw(t, "n")
		pushed := rapid.SliceOfN(rapid.OneOf(rapid.Float64Range(0, 1e12), rapid.Just(math.NaN())), n, n).Draw(t, "values")
		var s Series
		for _, v := range pushed {
			s.Push(v)
		}
		want := pushed[max(0, len(pushed)-HistoryLen):]
		if got := s.Values(); !slices.EqualFunc(got, want, same) || s.Len() != len(want) {
			t.Fatalf("values %v, want %v", got, want)
		}
		most := 0.0
		for _, v := range want {
			if v > most {
				most = v
			}
		}
		if s.Max() != most {
			t.Fatalf("max %v, want %v", s.Max(), most)
		}
		last, known := s.Last()
		if wantKnown := len(want) > 0 && !math.IsNaN(want[len(want)-1]); known != wantKnown || known && last != want[len(want)-1] {
			t.Fatalf("last %v, %v of %v", last, known, want)
		}
		frozen := s
		s.Push(-1)
		if got := frozen.Values(); !slices.EqualFunc(got, want, same) {
			t.Fatalf("a copy has changed: %v, want %v", got, want)
		}
	})
}

func same(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

func TestEmptySeries(t *testing.T) {
	var s Series
	if v, known := s.Last(); known || v != 0 || s.Max() != 0 || len(s.Values()) != 0 {
		t.Errorf("last %v, %v, max %v, values %v", v, known, s.Max(), s.Values())
	}
	s.addGap(1 << 30)
	if _, known := s.Last(); known || s.Len() != HistoryLen || s.Max() != 0 {
		t.Errorf("of a long gap: known %v, %d values, max %v", known, s.Len(), s.Max())
	}
}
