package plan

import (
	"cmp"
	"maps"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/probe"
)

// tournament gives each item two sort keys.
//
// games is the circle method: N hosts play N-1 rounds (N if it is odd), in each of which a host meets one
// other; within that, port i of one meets port i+k of the other in the k-th, and then the direction
// changes.
//
// ring has every host send to the one s places further: with an odd number of hosts all are busy then, and
// each direction of their links.
func (pr *problem) tournament() (games, ring [][4]int) {
	s := newSeats(pr)
	hosts := len(s.hosts)
	games, ring = make([][4]int, len(pr.items)), make([][4]int, len(pr.items))
	for k, i := range pr.items {
		p := &pr.plan.Pairs.Pairs[i]
		h, e := s.hosts[p.From.Host], s.ends[seat(&p.From)]
		o, f := s.hosts[p.To.Host], s.ends[seat(&p.To)]
		ring[k] = [4]int{(o - h + hosts) % hosts, (f - e + s.width) % s.width, (e + h) % s.width, h}
		back := 0
		if h > o || h == o && e > f {
			back = 1
			h, e, o, f = o, f, h, e
		}
		if h == o {
			games[k] = [4]int{-1, circle(e, f, s.width), back, len(p.Variant)}
		} else {
			games[k] = [4]int{circle(h, o, hosts), (f - e + s.width) % s.width, back, len(p.Variant)}
		}
	}
	return games, ring
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

// circle is the round in which a and b of n meet: one stays, the others move around it.
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
