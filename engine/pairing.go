package engine

import (
	"cmp"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
)

// maxPairs bounds the lanes of a transport's ports where no topology chooses.
const maxPairs = 64

// pairing finds the pairs of ports to use where nothing is known but which reach
// each other, and what some of them carry.
type pairing struct {
	here, there []portLoad
	reaches     [][]bool // [here][there]
}

// portLoad is a port and what chosen pairs ask of it.
type portLoad struct {
	rate    topo.Rate // 0 not known
	foreign bool      // another engine's: for failover only
	pairs   int
	used    topo.Rate
}

// portPair is a pair of ports, by place.
type portPair struct{ here, there int }

func newPairing(here, there int) *pairing {
	m := &pairing{here: make([]portLoad, here), there: make([]portLoad, there), reaches: make([][]bool, here)}
	for i := range m.reaches {
		m.reaches[i] = make([]bool, there)
	}
	return m
}

// pair gives the pairs that use each port, the fastest ports first, and others that
// step in when those fail: those whose ports carry the fewest first.
func (m *pairing) pair() (chosen, spare []portPair) {
	if !slices.ContainsFunc(m.candidates(), func(x portPair) bool { return !m.here[x.here].foreign }) {
		for i := range m.here { // what is ours reaches nothing
			m.here[i].foreign = false
		}
	}
	all := m.candidates()
	taken := map[portPair]bool{}
	take := func(x portPair) {
		taken[x] = true
		chosen = append(chosen, x)
		rate := slower(m.free(&m.here[x.here]), m.free(&m.there[x.there]))
		for _, p := range []*portLoad{&m.here[x.here], &m.there[x.there]} {
			p.pairs++
			p.used += rate
		}
	}
	for _, x := range m.match(all) {
		take(x)
	}
	// Ports that are left over join the partner that has most to spare.
	for {
		x, ok := m.leftOver(all, taken)
		if !ok || len(chosen) == maxPairs {
			break
		}
		take(x)
	}
	for _, x := range all {
		if !taken[x] {
			spare = append(spare, x)
		}
	}
	m.sortSpare(spare)
	return chosen, spare[:min(len(spare), maxPairs-len(chosen))]
}

// candidates are the pairs that reach each other, the fastest first.
func (m *pairing) candidates() []portPair {
	var out []portPair
	for i := range m.here {
		for k := range m.there {
			if m.reaches[i][k] {
				out = append(out, portPair{i, k})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b portPair) int {
		return cmp.Compare(slower(m.here[b.here].rate, m.there[b.there].rate), slower(m.here[a.here].rate, m.there[a.there].rate))
	})
	return out
}

// match is a largest set of pairs in which no port comes twice.
func (m *pairing) match(all []portPair) []portPair {
	partner := make([]int, len(m.there)) // of each port of the peer, -1 none
	for k := range partner {
		partner[k] = -1
	}
	var join func(i int, seen []bool) bool
	join = func(i int, seen []bool) bool {
		for _, x := range all {
			if x.here != i || seen[x.there] {
				continue
			}
			seen[x.there] = true
			if partner[x.there] < 0 || join(partner[x.there], seen) {
				partner[x.there] = i
				return true
			}
		}
		return false
	}
	paired := make([]bool, len(m.here))
	for _, x := range all { // in this order the fastest ports get a partner first
		if !paired[x.here] && partner[x.there] < 0 && !m.here[x.here].foreign {
			paired[x.here], partner[x.there] = true, x.here
		}
	}
	// A port that was left out may take a partner from one that has another choice.
	for i := range m.here {
		if !paired[i] && !m.here[i].foreign {
			join(i, make([]bool, len(m.there)))
		}
	}
	var out []portPair
	for _, x := range all {
		if partner[x.there] == x.here {
			out = append(out, x)
		}
	}
	return out[:min(len(out), maxPairs)]
}

// leftOver finds a port without a pair, and the partner that has most to spare.
func (m *pairing) leftOver(all []portPair, taken map[portPair]bool) (best portPair, ok bool) {
	for _, x := range all {
		a, b := &m.here[x.here], &m.there[x.there]
		if taken[x] || a.foreign || a.pairs > 0 && b.pairs > 0 {
			continue
		}
		if !ok || m.better(x, best) {
			best, ok = x, true
		}
	}
	return best, ok
}

// better says whether the busier port of one pair has more to spare than that of
// another.
func (m *pairing) better(x, y portPair) bool {
	busy := func(x portPair) (pairs int, free topo.Rate) {
		p := &m.here[x.here]
		if q := &m.there[x.there]; q.pairs > p.pairs {
			p = q
		}
		return p.pairs, m.free(p)
	}
	xPairs, xFree := busy(x)
	yPairs, yFree := busy(y)
	if xFree != yFree && xFree > 0 && yFree > 0 {
		return xFree > yFree
	}
	return xPairs < yPairs
}

// free is what a port has to spare, 0 not known; a full one has next to nothing.
func (m *pairing) free(p *portLoad) topo.Rate {
	if p.rate == 0 {
		return 0
	}
	return max(p.rate-p.used, 1)
}

// sortSpare puts our own pairs first, then those whose ports have the fewest.
func (m *pairing) sortSpare(spare []portPair) {
	foreign := func(x portPair) int {
		if m.here[x.here].foreign {
			return 1
		}
		return 0
	}
	pairs := func(x portPair) int { return m.here[x.here].pairs + m.there[x.there].pairs }
	slices.SortStableFunc(spare, func(a, b portPair) int {
		return cmp.Or(cmp.Compare(foreign(a), foreign(b)), cmp.Compare(pairs(a), pairs(b)))
	})
}
