package plan

import "math/bits"

// layout is items in rounds, and what is left of each resource there.
type layout struct {
	pr     *problem
	rounds [][]int32 // items
	at     []int32   // round of each item, -1 none
	load   [][]int64 // by resource and round
	full   []bitset  // by resource: rounds in which nobody else fits
}

type bitset []uint64

func (b *bitset) set(i int, on bool) {
	for i/64 >= len(*b) {
		*b = append(*b, 0)
	}
	if on {
		(*b)[i/64] |= 1 << (i % 64)
	} else {
		(*b)[i/64] &^= 1 << (i % 64)
	}
}

func newLayout(pr *problem) *layout {
	l := &layout{pr: pr, at: make([]int32, len(pr.items)), load: make([][]int64, len(pr.caps)), full: make([]bitset, len(pr.caps))}
	for k := range l.at {
		l.at[k] = -1
	}
	return l
}

// first is the first round that has room for an item, a new one where none has.
func (l *layout) first(k int) int {
	needs := l.pr.needs[k]
	for w := 0; w*64 < len(l.rounds); w++ {
		taken := uint64(0)
		for _, n := range needs {
			if b := l.full[n.at]; w < len(b) {
				taken |= b[w]
			}
		}
		for free := ^taken; free != 0; free &= free - 1 {
			r := w*64 + bits.TrailingZeros64(free)
			if r >= len(l.rounds) {
				return len(l.rounds)
			}
			if l.fits(k, r) {
				return r
			}
		}
	}
	return len(l.rounds)
}

// fits says whether a round has room for an item.
func (l *layout) fits(k, r int) bool {
	for _, n := range l.pr.needs[k] {
		if l.lacks(n, r) {
			return false
		}
	}
	return true
}

// lacks says whether a round has less of a resource than is needed.
func (l *layout) lacks(n need, r int) bool {
	load := l.load[n.at]
	return r < len(load) && load[r]+n.amount > l.pr.caps[n.at]
}

func (l *layout) place(k, r int) {
	for r >= len(l.rounds) {
		l.rounds = append(l.rounds, nil)
	}
	l.rounds[r] = append(l.rounds[r], int32(k))
	l.at[k] = int32(r)
	for _, n := range l.pr.needs[k] {
		for r >= len(l.load[n.at]) {
			l.load[n.at] = append(l.load[n.at], 0)
		}
		l.add(n, r, n.amount)
	}
}

func (l *layout) add(n need, r int, amount int64) {
	load := l.load[n.at]
	load[r] += amount
	l.full[n.at].set(r, load[r]+l.pr.least[n.at] > l.pr.caps[n.at])
}

func (l *layout) remove(k int) {
	r := int(l.at[k])
	l.at[k] = -1
	items := l.rounds[r]
	for i, x := range items {
		if int(x) == k {
			items[i] = items[len(items)-1]
			l.rounds[r] = items[:len(items)-1]
			break
		}
	}
	for _, n := range l.pr.needs[k] {
		l.add(n, r, -n.amount)
	}
}
