package judge

import (
	"cmp"
	"slices"
)

// rows are bad pairs that are explained together: of each the parts that may be it, ascending. None is without,
// and none is there twice.
type rows struct {
	parts [][]int32         // by row, the shortest first
	of    map[int32][]int32 // by part: its rows, ascending
}

func newRows(parts [][]int32) *rows {
	r := &rows{parts: slices.Clone(parts), of: make(map[int32][]int32)}
	slices.SortFunc(r.parts, func(a, b []int32) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), slices.Compare(a, b))
	})
	r.parts = slices.CompactFunc(r.parts, slices.Equal)
	for i, row := range r.parts {
		for _, p := range row {
			r.of[p] = append(r.of[p], int32(i))
		}
	}
	return r
}

// apart splits rows into sets that have no part in common.
func (r *rows) apart() []*rows {
	var out []*rows
	seen, reached := make([]bool, len(r.parts)), make(map[int32]bool)
	for i := range r.parts {
		if seen[i] {
			continue
		}
		seen[i] = true
		together := []int32{int32(i)}
		for n := 0; n < len(together); n++ {
			for _, p := range r.parts[together[n]] {
				if reached[p] {
					continue
				}
				reached[p] = true
				for _, j := range r.of[p] {
					if !seen[j] {
						seen[j] = true
						together = append(together, j)
					}
				}
			}
		}
		slices.Sort(together)
		parts := make([][]int32, len(together))
		for n, j := range together {
			parts[n] = r.parts[j]
		}
		out = append(out, newRows(parts))
	}
	return out
}

// bound counts rows, the shortest first, that have no part in common: each needs a fault of its own.
func (r *rows) bound() int {
	used := make(map[int32]bool)
	n := 0
	for _, row := range r.parts {
		if slices.ContainsFunc(row, func(p int32) bool { return used[p] }) {
			continue
		}
		n++
		for _, p := range row {
			used[p] = true
		}
	}
	return n
}

// covers finds the smallest sets of parts that have one in each row, without those that differ by one
// part only. Every set has a part of the first row, so one is grown from each of these, greedily: a single
// part that explains all that is left is always found, so sets of up to two are the smallest.
func (r *rows) covers() [][]int32 {
	var smallest [][]int32
	for _, p := range r.parts[0] {
		set := r.grow(p)
		if len(smallest) > 0 && len(set) < len(smallest[0]) {
			smallest = nil
		}
		if len(smallest) == 0 || len(set) == len(smallest[0]) {
			smallest = append(smallest, set)
		}
	}
	return smallest
}

// grow adds to a part the one that explains most of the remaining rows, the first of equals, until none
// remains. Parts that turn out not to be needed are left out again.
func (r *rows) grow(part int32) []int32 {
	left := make(map[int32]int, len(r.of)) // by part: the remaining rows
	for p, of := range r.of {
		left[p] = len(of)
	}
	hit := make([]bool, len(r.parts))
	var set []int32
	for left[part] > 0 {
		set = append(set, part)
		for _, i := range r.of[part] {
			if hit[i] {
				continue
			}
			hit[i] = true
			for _, p := range r.parts[i] {
				left[p]--
			}
		}
		for p, n := range left {
			if n > left[part] || n == left[part] && p < part {
				part = p
			}
		}
	}
	for i := 0; i < len(set); {
		if len(r.only(set, set[i])) == 0 {
			set = slices.Delete(set, i, i+1)
		} else {
			i++
		}
	}
	return set
}

// only are the rows that one part of a set explains, and no other part of the set.
func (r *rows) only(set []int32, part int32) []int32 {
	var out []int32
	for _, i := range r.of[part] {
		if !slices.ContainsFunc(set, func(p int32) bool {
			_, ok := slices.BinarySearch(r.parts[i], p)
			return ok && p != part
		}) {
			out = append(out, i)
		}
	}
	return out
}

// leastGreedy is the size from which there may be smaller sets than those that were grown, or other ones.
const leastGreedy = 3

// faults makes a fault of each part of the smallest set that explains the fewest rows twice. The parts of
// other sets, and those that may take the place of one part of a set, go to the fault with which they share
// the most rows.
func (r *rows) faults() []fault {
	sets := r.covers()
	base := slices.MinFunc(sets, func(a, b []int32) int { return cmp.Compare(r.sum(a), r.sum(b)) })
	out, named := make([]fault, len(base)), make(map[int32]bool)
	for i, p := range base {
		out[i] = fault{base: p, parts: []int32{p}, faults: len(base), least: max(r.bound(), min(len(base), leastGreedy))}
		named[p] = true
	}
	for _, set := range sets {
		for _, part := range set {
			for _, p := range r.alternatives(set, part) {
				if named[p] {
					continue
				}
				named[p] = true
				best := 0
				for i, b := range base {
					if countCommon(r.of[p], r.of[b]) > countCommon(r.of[p], r.of[base[best]]) {
						best = i
					}
				}
				out[best].parts = append(out[best].parts, p)
			}
		}
	}
	for i := range out {
		slices.Sort(out[i].parts)
	}
	return out
}

// sum is the number of rows of the parts of a set, one that several explain counted for each.
func (r *rows) sum(set []int32) int {
	n := 0
	for _, p := range set {
		n += len(r.of[p])
	}
	return n
}

// alternatives are the parts that may take the place of one part of a set: they explain all that only that
// part does. The part itself is among them.
func (r *rows) alternatives(set []int32, part int32) []int32 {
	only := r.only(set, part)
	return slices.DeleteFunc(slices.Clone(r.parts[only[0]]), func(p int32) bool { return countCommon(r.of[p], only) < len(only) })
}

// countCommon counts the elements that two ascending lists share.
func countCommon(a, b []int32) int {
	n := 0
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			a = a[1:]
		case a[0] > b[0]:
			b = b[1:]
		default:
			n++
			a, b = a[1:], b[1:]
		}
	}
	return n
}
