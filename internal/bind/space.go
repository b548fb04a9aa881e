package bind

import (
	"cmp"
	"slices"
)

// interval is a range of addresses [lo, hi) and what it belongs to.
type interval[R any] struct {
	lo, hi uint64
	of     R
}

// space is ranges that do not overlap, in the order of their addresses. It is never changed:
// adding or removing a range makes another one.
type space[R any] []interval[R]

// newSpace sorts a list. Of ranges that overlap, or wrap around, the later ones are left out.
func newSpace[R any](list []interval[R]) space[R] {
	slices.SortStableFunc(list, func(a, b interval[R]) int { return cmp.Compare(a.lo, b.lo) })
	out, end := list[:0], uint64(0)
	for _, x := range list {
		if x.lo < x.hi && x.lo >= end {
			out, end = append(out, x), x.hi
		}
	}
	return space[R](out)
}

// after is the index of the first range that ends after an address.
func (s space[R]) after(address uint64) int {
	i, _ := slices.BinarySearchFunc(s, address, func(x interval[R], a uint64) int {
		if x.hi <= a {
			return -1
		}
		return 1
	})
	return i
}

// with adds a list that is sorted and overlaps nothing.
func (s space[R]) with(list []interval[R]) space[R] {
	out := make(space[R], 0, len(s)+len(list))
	for _, x := range list {
		k := s.after(x.lo)
		out, s = append(append(out, s[:k]...), x), s[k:]
	}
	return append(out, s...)
}

// cursor finds ranges for addresses that mostly follow each other.
type cursor[R any] struct {
	space space[R]
	i     int
}

// at is the range that has an address, nil without one.
func (c *cursor[R]) at(address uint64) *interval[R] {
	for range 2 { // the same one as before, or the next
		if c.i < len(c.space) {
			if x := &c.space[c.i]; x.lo <= address && address < x.hi {
				return x
			}
		}
		c.i++
	}
	c.i = c.space.after(address)
	if c.i < len(c.space) {
		if x := &c.space[c.i]; x.lo <= address {
			return x
		}
	}
	return nil
}
