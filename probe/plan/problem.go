package plan

import (
	"slices"

	"github.com/topoctl/topoctl/probe"
)

// need is the amount of a resource that a pair uses: a directed link, an end, the memory or the processors
// of a NUMA node.
type need struct {
	at     int32
	amount int64
}

// problem is one phase: pairs (items) that use resources of which each round has a limited amount.
type problem struct {
	plan  *Plan
	items []int // places of the pairs, in the order of IDs
	needs [][]need
	caps  []int64
	least []int64 // the smallest need of each resource
	index map[string]int32
	// serial: nothing goes beside anything.
	serial bool
}

// newProblem lists what the pairs of a phase use.
func newProblem(p *Plan, links map[probe.LinkKey]*probe.Link, phase []int) *problem {
	pr := &problem{plan: p, items: phase, index: map[string]int32{}, serial: p.Schedule == Serial}
	pr.needs = make([][]need, len(phase))
	for k, i := range phase {
		pair := &p.Pairs.Pairs[i]
		var list []need
		if pair.Kind == probe.Memory {
			list = append(list, pr.endNeed("cpus ", &pair.To), pr.endNeed("memory ", &pair.From))
		} else {
			list = pr.twoEnds(pair)
		}
		if p.Schedule == ByLink {
			for _, c := range crossings(pair, links) {
				if c.key != p.Contend {
					list = pr.addLink(list, pair, c)
				}
			}
		}
		pr.needs[k] = list
	}
	pr.least = make([]int64, len(pr.caps))
	for _, list := range pr.needs {
		for _, n := range list {
			if pr.least[n.at] == 0 || n.amount < pr.least[n.at] {
				pr.least[n.at] = n.amount
			}
		}
	}
	return pr
}

// crossing is a directed link that a pair loads.
type crossing struct {
	key  probe.LinkKey
	link *probe.Link // of the same link, maybe of the other direction
}

// crossings are the links of a pair's path, each once, and if the pair moves bytes both ways also those of
// the way back, which is the same. Memory is not among them: other pairs do not cross it.
func crossings(pair *probe.Pair, links map[probe.LinkKey]*probe.Link) []crossing {
	out := make([]crossing, 0, 2*len(pair.Path))
	add := func(key probe.LinkKey, l *probe.Link) {
		if !slices.ContainsFunc(out, func(c crossing) bool { return c.key == key }) {
			out = append(out, crossing{key, l})
		}
	}
	for _, key := range pair.Path {
		l := links[key]
		if l == nil || l.Kind == probe.LinkMemory {
			continue
		}
		add(key, l)
		if pair.Variant == probe.VariantBothWays {
			add(probe.Key(l.Host, l.Link, opposite(l.Direction)), l)
		}
	}
	return out
}

func opposite(direction string) string {
	if direction == "up" {
		return "down"
	}
	return "up"
}

// twoEnds are the ends of a pair of ports or GPUs, which take part in one pair at a time. The memory of a
// NUMA node may serve several copies.
func (pr *problem) twoEnds(pair *probe.Pair) []need {
	var list []need
	for _, e := range []*probe.End{&pair.From, &pair.To} {
		if string(e.Node) == string(e.Location) || pair.Kind == probe.Port {
			n := pr.endNeed("end ", e)
			if len(list) == 0 || list[0] != n {
				list = append(list, n)
			}
		}
	}
	return list
}

// endNeed is the need for an end that takes part in one pair at a time.
func (pr *problem) endNeed(key string, e *probe.End) need {
	return need{pr.resource(key+e.Host+" "+string(e.Node), 1), 1}
}

// maxAmount bounds amounts, so that the sum over all pairs fits: larger ones are counted in twos, fours
// and so on.
const maxAmount = 1 << 42

// addLink adds what a pair uses of a link. If the rate of the pair or of the link is not known, links of a
// host carry one pair at a time.
func (pr *problem) addLink(list []need, pair *probe.Pair, c crossing) []need {
	rate, l, key := pair.Expected.BytesPerSec, c.link, "link "+string(c.key)
	switch {
	case l.BytesPerSec != nil && *l.BytesPerSec > 0:
		capacity := int64(*l.Payload())
		demand := capacity
		if rate != nil && *rate > 0 {
			demand = min(demand, int64(*rate))
		}
		if rate != nil && pair.Kind == probe.Memory && pair.Variant == probe.VariantCopy {
			demand = min(demand, int64(*rate)/2)
		}
		for ; capacity >= maxAmount; capacity, demand = capacity/2, max(demand/2, 1) {
		}
		return append(list, need{pr.resource(key, capacity), demand})
	case l.Host != "":
		return append(list, need{pr.resource(key, 1), 1})
	}
	return list
}

func (pr *problem) resource(key string, capacity int64) int32 {
	at, ok := pr.index[key]
	if !ok {
		at = int32(len(pr.caps))
		pr.index[key] = at
		pr.caps = append(pr.caps, capacity)
	}
	return at
}

// lowerBound is the number of rounds that every plan needs: the largest over all resources of the
// amount needed divided by the capacity, and of the pairs that need more than half of it.
func (pr *problem) lowerBound() int {
	if pr.serial {
		return len(pr.items)
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
	bound := int64(1)
	for r := range pr.caps {
		bound = max(bound, (sums[r]+pr.caps[r]-1)/pr.caps[r], large[r])
	}
	return int(bound)
}
