package plan

import (
	"math/bits"
	"slices"
)

// maxRepacks is how often a layout above the bound is packed anew: beyond it hardly any
// plan gets shorter, and the largest take seconds.
const maxRepacks = 32

// solve puts the items into rounds: in several orders, each item into the first round with enough
// capacity. The best layout is packed again while it is above the bound.
func (pr *problem) solve(bound int) [][]int {
	if pr.serial {
		out := make([][]int, len(pr.items))
		for k, i := range pr.items {
			out[k] = []int{i}
		}
		return out
	}
	var best *layout
	for _, order := range pr.orders() {
		if l := pr.pack(order); best == nil || len(l.rounds) < len(best.rounds) {
			best = l
		}
		if len(best.rounds) <= bound {
			break
		}
	}
	for n := 0; n < maxRepacks && len(best.rounds) > bound; n++ {
		best = best.repack()
	}
	out := make([][]int, 0, len(best.rounds))
	for _, items := range best.rounds {
		round := make([]int, 0, len(items))
		for _, k := range items {
			round = append(round, pr.items[k])
		}
		slices.Sort(round)
		out = append(out, round)
	}
	return out
}

// orders are the orders in which items are placed: like the games of a tournament, then by the scarcest
// resources that they use, then host by host in a ring.
func (pr *problem) orders() [][]int {
	games, ring := pr.tournament()
	byGame := make([]int, len(pr.items))
	for k := range byGame {
		byGame[k] = k
	}
	byRing := slices.Clone(byGame)
	slices.SortStableFunc(byGame, func(x, y int) int { return slices.Compare(games[x][:], games[y][:]) })
	slices.SortStableFunc(byRing, func(x, y int) int { return slices.Compare(ring[x][:], ring[y][:]) })
	load := make([]float64, len(pr.caps))
	for _, list := range pr.needs {
		for _, n := range list {
			load[n.at] += float64(n.amount) / float64(pr.caps[n.at])
		}
	}
	scarce := make([][2]float64, len(pr.items))
	for k, list := range pr.needs {
		for _, n := range list {
			scarce[k][0] = max(scarce[k][0], load[n.at])
			scarce[k][1] += load[n.at]
		}
	}
	byScarcity := slices.Clone(byGame)
	slices.SortStableFunc(byScarcity, func(x, y int) int { return slices.Compare(scarce[y][:], scarce[x][:]) })
	return [][]int{byGame, byScarcity, byRing}
}

// layout is items in rounds, and what is left of each resource there.
type layout struct {
	pr     *problem
	rounds [][]int   // items
	load   [][]int64 // by resource and round
	full   []bitset  // by resource: rounds in which no other item fits
}

type bitset []uint64

func (b *bitset) set(i int) {
	for i/64 >= len(*b) {
		*b = append(*b, 0)
	}
	(*b)[i/64] |= 1 << (i % 64)
}

// pack puts items, in this order, each into the first round with enough capacity.
func (pr *problem) pack(order []int) *layout {
	l := &layout{pr: pr, load: make([][]int64, len(pr.caps)), full: make([]bitset, len(pr.caps))}
	for _, k := range order {
		l.nearMemory(k, l.firstRound(k))
	}
	return l
}

// repack packs the items round by round, the last round first. That never takes more rounds, because items
// that fitted together still do (iterated greedy, Culberson and Luo 1996).
func (l *layout) repack() *layout {
	var order []int
	for _, items := range slices.Backward(l.rounds) {
		order = append(order, items...)
	}
	return l.pr.pack(order)
}

// firstRound is the first round with capacity for an item, a new one if there is none.
func (l *layout) firstRound(k int) int {
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

// fits says whether a round has capacity for an item.
func (l *layout) fits(k, r int) bool {
	return !slices.ContainsFunc(l.pr.needs[k], func(n need) bool {
		load := l.load[n.at]
		return r < len(load) && load[r]+n.amount > l.pr.caps[n.at]
	})
}

func (l *layout) nearMemory(k, r int) {
	for r >= len(l.rounds) {
		l.rounds = append(l.rounds, nil)
	}
	l.rounds[r] = append(l.rounds[r], k)
	for _, n := range l.pr.needs[k] {
		for r >= len(l.load[n.at]) {
			l.load[n.at] = append(l.load[n.at], 0)
		}
		load := l.load[n.at]
		if load[r] += n.amount; load[r]+l.pr.least[n.at] > l.pr.caps[n.at] {
			l.full[n.at].set(r)
		}
	}
}
