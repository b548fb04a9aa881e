package judge

import (
	"math/bits"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Every set of parts is tried. Where one or two explain all rows, the faults are as few and have all parts
// that are in such a set, and no others. Where more are needed, each set that was found explains all rows and
// has no part too many, and no set is smaller than is said.
func TestFaultsAreSmallest(t *testing.T) {
	const parts = 8
	rapid.Check(t, func(t *rapid.T) {
		all := make([][]int32, rapid.IntRange(1, 12).Draw(t, "rows"))
		masks := make([]int, len(all))
		for i := range all {
			masks[i] = rapid.IntRange(1, 1<<parts-1).Draw(t, "row")
			all[i] = partsOf(masks[i])
		}
		explains := func(set int) bool {
			return !slices.ContainsFunc(masks, func(row int) bool { return row&set == 0 })
		}
		size, in := parts+1, 0 // of the smallest sets, and their parts
		for set := range 1 << parts {
			if n := bits.OnesCount(uint(set)); n <= size && explains(set) {
				if n < size {
					size, in = n, 0
				}
				in |= set
			}
		}
		got, named, least, greedy := 0, 0, 0, false
		for _, r := range newRows(all).apart() {
			faults := r.faults()
			got, least = got+len(faults), least+faults[0].least
			greedy = greedy || len(faults) >= leastGreedy
			for _, f := range faults {
				named |= maskOf(f.parts)
			}
			for _, set := range r.covers() {
				for _, p := range set {
					if len(r.only(set, p)) == 0 {
						t.Fatalf("%v does not need %d for %v", set, p, r.parts)
					}
				}
			}
		}
		if !explains(named) || got < size || least > size {
			t.Fatalf("%d faults, at least %d, want %d; parts %v of %v", got, least, size, partsOf(named), all)
		}
		if !greedy && (got != size || named != in) {
			t.Fatalf("%d faults of %v, want %d of %v: %v", got, partsOf(named), size, partsOf(in), all)
		}
	})
}

func partsOf(mask int) []int32 {
	var out []int32
	for p := range 32 {
		if mask>>p&1 == 1 {
			out = append(out, int32(p))
		}
	}
	return out
}

func maskOf(parts []int32) int {
	mask := 0
	for _, p := range parts {
		mask |= 1 << p
	}
	return mask
}
