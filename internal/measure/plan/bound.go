package plan

import (
	"cmp"
	"fmt"
	"slices"
)

// lowerBound is the number of rounds that every plan needs, and why: the largest over all resources of the
// amount needed divided by the capacity, and of the pairs that need more than half of it. If ends take
// part in one pair at a time, a round has no more pairs than half the ends. Pairs of which no two fit
// together need a round each.
func (pr *problem) lowerBound() (int, string) {
	if pr.serial {
		return len(pr.items), "one pair at a time"
	}
	sums, large := make([]int64, len(pr.caps)), make([]int64, len(pr.caps))
	for _, list := range pr.needs {
		for _, n := range list {
			sums[n.at] += n.amount
			if 2*n.amount > pr.caps[n.at] {
				large[n.at]++
			}
		}
	}
	best, why := int64(1), ""
	for r := range pr.caps {
		rounds := max((sums[r]+pr.caps[r]-1)/pr.caps[r], large[r])
		if rounds > best || why == "" {
			best, why = rounds, pr.names[r]
		}
	}
	if n, ends := pr.density(); n > best {
		best, why = n, fmt.Sprintf("%d ends, each in one pair at a time", ends)
	}
	if n := int64(pr.clique()); n > best {
		best, why = n, fmt.Sprintf("%d pairs of which no two fit in one round", n)
	}
	return int(best), why
}

// density is the bound that an odd number of ends sets: a round has at most half as many pairs, rounded
// down.
func (pr *problem) density() (rounds int64, ends int) {
	pairs := int64(0)
	used := map[int32]bool{}
	for _, list := range pr.needs {
		if len(list) > 1 && pr.ends[list[0].at] && pr.ends[list[1].at] {
			pairs++
			used[list[0].at], used[list[1].at] = true, true
		}
	}
	if len(used) < 2 {
		return 0, 0
	}
	most := int64(len(used) / 2)
	return (pairs + most - 1) / most, len(used)
}

// maxClique bounds the items among which cliques are searched: it is for phases so small that one round
// more or less matters.
const maxClique = 128

// clique is the size of a large set of items of which no two fit together, found greedily from each item,
// first those that conflict with the most. 0: not searched.
func (pr *problem) clique() int {
	n := len(pr.items)
	if n > maxClique {
		return 0
	}
	conflicts := make([][]bool, n)
	degree, order := make([]int, n), make([]int, n)
	for i := range n {
		conflicts[i], order[i] = make([]bool, n), i
		for j := range i {
			if pr.conflict(i, j) {
				conflicts[i][j], conflicts[j][i] = true, true
				degree[i]++
				degree[j]++
			}
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(degree[j], degree[i]) })
	best := 0
	for _, start := range order {
		set := []int{start}
		for _, k := range order {
			if !slices.ContainsFunc(set, func(i int) bool { return !conflicts[k][i] }) {
				set = append(set, k)
			}
		}
		best = max(best, len(set))
	}
	return best
}

// conflict says whether two items need more of a resource than a round has.
func (pr *problem) conflict(i, j int) bool {
	for _, x := range pr.needs[i] {
		for _, y := range pr.needs[j] {
			if x.at == y.at && x.amount+y.amount > pr.caps[x.at] {
				return true
			}
		}
	}
	return false
}
