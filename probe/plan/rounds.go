package plan

import (
	"slices"

	"github.com/topoctl/topoctl/probe"
)

// maxRepacks is how often a layout above the bound is packed anew: beyond it hardly any
// plan gets shorter, and the largest take seconds.
const maxRepacks = 32

// solve puts the items into rounds: in an order in which hosts meet in turn, each into the first round with
// enough capacity. While there are more rounds than the bound, they are packed again.
func (pr *problem) solve(bound int) [][]int {
	if pr.serial {
		out := make([][]int, len(pr.items))
		for k, i := range pr.items {
			out[k] = []int{i}
		}
		return out
	}
	rounds := pr.pack(pr.meetingOrder())
	for n := 0; n < maxRepacks && len(rounds) > bound; n++ {
		rounds = pr.repack(rounds)
	}
	out := make([][]int, 0, len(rounds))
	for _, items := range rounds {
		round := make([]int, 0, len(items))
		for _, k := range items {
			round = append(round, pr.items[k])
		}
		slices.Sort(round)
		out = append(out, round)
	}
	return out
}

// meetingOrder are the items in an order in which each host meets another one before any host meets two. With
// an even number of hosts, one stays and the others move around it. With an odd number that would leave one
// host out, so each host sends to the one that is some places further, and with another port than the one it
// receives with. Items of one host stay in the order of IDs.
func (pr *problem) meetingOrder() []int {
	type end struct{ host, node string }
	hosts, ends, width := make(map[string]int), make(map[end]int), make(map[string]int)
	number := func(e *probe.End) (host, port int) {
		if _, ok := hosts[e.Host]; !ok {
			hosts[e.Host] = len(hosts)
		}
		at := end{e.Host, string(e.Node)}
		if _, ok := ends[at]; !ok {
			ends[at] = width[e.Host]
			width[e.Host]++
		}
		return hosts[e.Host], ends[at]
	}
	for _, i := range pr.items {
		number(&pr.plan.Pairs.Pairs[i].From)
		number(&pr.plan.Pairs.Pairs[i].To)
	}
	ports := 0
	for _, n := range width {
		ports = max(ports, n)
	}
	keys, order := make([][4]int, len(pr.items)), make([]int, len(pr.items))
	for k, i := range pr.items {
		order[k] = k
		a, from := number(&pr.plan.Pairs.Pairs[i].From)
		b, to := number(&pr.plan.Pairs.Pairs[i].To)
		switch n := len(hosts); {
		case a == b:
		case n%2 == 0 && a < b:
			keys[k] = [4]int{meeting(a, b, n), (to - from + ports) % ports, 0}
		case n%2 == 0:
			keys[k] = [4]int{meeting(b, a, n), (from - to + ports) % ports, 1}
		default:
			keys[k] = [4]int{(b - a + n) % n, (to - from + ports) % ports, (from + a) % ports, a}
		}
	}
	slices.SortStableFunc(order, func(x, y int) int { return slices.Compare(keys[x][:], keys[y][:]) })
	return order
}

// meeting is when a and b of an even number n meet if one stays and the others move around it.
func meeting(a, b, n int) int {
	switch last := n - 1; {
	case b == last:
		return 2 * a % last
	case a == last:
		return 2 * b % last
	default:
		return (a + b) % last
	}
}

// pack puts items, in this order, each into the first round with enough capacity.
func (pr *problem) pack(order []int) [][]int {
	var rounds [][]int
	load := make([][]int64, len(pr.caps)) // by resource and round
	full := make([]int, len(pr.caps))     // by resource: before this round no other item fits
	for _, k := range order {
		needs, r := pr.needs[k], 0
		for _, n := range needs {
			r = max(r, full[n.at])
		}
		for r < len(rounds) && slices.ContainsFunc(needs, func(n need) bool { return load[n.at][r]+n.amount > pr.caps[n.at] }) {
			r++
		}
		if r == len(rounds) {
			rounds = append(rounds, nil)
			for at := range load {
				load[at] = append(load[at], 0)
			}
		}
		rounds[r] = append(rounds[r], k)
		for _, n := range needs {
			load[n.at][r] += n.amount
			for full[n.at] < len(rounds) && load[n.at][full[n.at]]+pr.least[n.at] > pr.caps[n.at] {
				full[n.at]++
			}
		}
	}
	return rounds
}

// repack packs the items round by round, the last round first. That never takes more rounds, because items
// that fitted together still do (iterated greedy, Culberson and Luo 1996).
func (pr *problem) repack(rounds [][]int) [][]int {
	var order []int
	for _, items := range slices.Backward(rounds) {
		order = append(order, items...)
	}
	return pr.pack(order)
}
