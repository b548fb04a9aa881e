package plan

import (
	"cmp"
	"maps"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/probe"
)

// solve puts the items into rounds: by several orders, each item in the first round that
// has room, and the best of them improved while it is above the bound.
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
		l := newLayout(pr)
		for _, k := range order {
			l.place(k, l.first(k))
		}
		if best == nil || len(l.rounds) < len(best.rounds) {
			best = l
		}
		if len(best.rounds) <= bound {
			break
		}
	}
	best = best.improve(bound)
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

// orders are the orders in which items are placed: as a tournament is played, by hosts
// and then by ends; then those first that need the most of what is scarce.
func (pr *problem) orders() [][]int {
	games := pr.tournament()
	byGame := make([]int, len(pr.items))
	for k := range byGame {
		byGame[k] = k
	}
	slices.SortStableFunc(byGame, func(x, y int) int { return games[x].compare(&games[y]) })
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
	hardest := slices.Clone(byGame)
	slices.SortStableFunc(hardest, func(x, y int) int {
		return cmp.Or(cmp.Compare(scarce[y][0], scarce[x][0]), cmp.Compare(scarce[y][1], scarce[x][1]))
	})
	longest := slices.Clone(byGame)
	slices.SortStableFunc(longest, func(x, y int) int { return len(pr.needs[y]) - len(pr.needs[x]) })
	return [][]int{byGame, hardest, longest}
}

// game is when a tournament would play a pair: the round of its hosts, then of its ends,
// then the direction.
type game struct{ hosts, ends, back, variant int }

func (g *game) compare(o *game) int {
	return cmp.Or(g.hosts-o.hosts, g.ends-o.ends, g.back-o.back, g.variant-o.variant)
}

// tournament lays the pairs out by the circle method: N hosts play N-1 rounds (N where
// it is odd), in each of which a host meets one other; within, port i of one meets port
// i+k of the other in the k-th.
func (pr *problem) tournament() []game {
	s := newSeats(pr)
	out := make([]game, len(pr.items))
	for k, i := range pr.items {
		p := &pr.plan.Pairs.Pairs[i]
		g := &out[k]
		g.variant = len(p.Variant)
		h, e := s.hosts[p.From.Host], s.ends[seat(&p.From)]
		o, f := s.hosts[p.To.Host], s.ends[seat(&p.To)]
		if h > o || h == o && e > f {
			g.back = 1
			h, e, o, f = o, f, h, e
		}
		if h == o {
			g.hosts, g.ends = -1, circle(e, f, s.width)
		} else {
			g.hosts, g.ends = circle(h, o, len(s.hosts)), (f-e+s.width)%s.width
		}
	}
	return out
}

// seats number the hosts, and the ends of each host.
type seats struct {
	hosts map[string]int
	ends  map[[2]string]int
	width int // the most ends that a host has
}

func seat(e *probe.End) [2]string { return [2]string{e.Host, string(e.Node)} }

func newSeats(pr *problem) *seats {
	s := &seats{hosts: map[string]int{}, ends: map[[2]string]int{}}
	for _, i := range pr.items {
		p := &pr.plan.Pairs.Pairs[i]
		s.ends[seat(&p.From)], s.ends[seat(&p.To)] = 0, 0
	}
	all := slices.SortedFunc(maps.Keys(s.ends), func(x, y [2]string) int {
		return cmp.Or(topo.NaturalCompare(x[0], y[0]), topo.NaturalCompare(x[1], y[1]))
	})
	of := 0 // the host
	for _, x := range all {
		if _, ok := s.hosts[x[0]]; !ok {
			s.hosts[x[0]], of = len(s.hosts), 0
		}
		s.ends[x] = of
		of++
		s.width = max(s.width, of)
	}
	return s
}

// circle is the round in which a and b of n meet: one stays, the others go round.
func circle(a, b, n int) int {
	n += n % 2
	switch m := n - 1; {
	case b == m:
		return 2 * a % m
	case a == m:
		return 2 * b % m
	default:
		return (a + b) % m
	}
}
