package probe

import (
	"cmp"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
)

// levelWithin is the part of a rate within which links count as equally fast.
const levelWithin = 0.05

// Level makes measured rates equal that differ by chance only: links of a host that
// are of one kind, should carry the same, and were measured within 5 % of the fastest of
// them, all have their mean. Choices rest on which ports equal each other: without this
// the noise of measurements would take equal ports apart, and their rails with them.
func Level(rates topo.Overlay, t *topo.Topology) topo.Overlay {
	type alike struct {
		kind  topo.LinkKind
		known bool
		rate  topo.Rate
	}
	groups := map[alike][]topo.LinkID{}
	for i := range t.Links {
		l := &t.Links[i]
		if _, ok := rates[l.ID]; !ok {
			continue
		}
		k := alike{kind: l.Kind, known: l.BytesPerSec != nil}
		if k.known {
			k.rate = *l.BytesPerSec
		}
		groups[k] = append(groups[k], l.ID)
	}
	out := topo.Overlay{}
	for _, ids := range groups {
		slices.SortFunc(ids, func(a, b topo.LinkID) int { return cmp.Or(cmp.Compare(rates[b], rates[a]), cmp.Compare(a, b)) })
		for len(ids) > 0 {
			n, sum := 0, topo.Rate(0)
			for n < len(ids) && float64(rates[ids[n]]) >= (1-levelWithin)*float64(rates[ids[0]]) {
				sum += rates[ids[n]]
				n++
			}
			for _, id := range ids[:n] {
				out[id] = sum / topo.Rate(n)
			}
			ids = ids[n:]
		}
	}
	return out
}
