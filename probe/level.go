package probe

import (
	"cmp"
	"math"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
)

// levelWithin is the part of a rate within which rates count as equal: that by which a
// pair may be behind its equals and is no outlier (DefaultRules).
const levelWithin = 0.07

// Level takes from measured rates what is noise, for path choice to start from. Choices
// rest on which ports equal each other, and small differences would take equal ports apart,
// and their rails with them.
//
//   - A link that was seen to carry what was read of it, within 7 %, is left out: it is as
//     good as its equals that were not measured, which have the rate that was read.
//   - Links of a host that are of one kind, should carry the same, and were measured within
//     7 % of the fastest of them, all have their mean.
func Level(rates topo.Overlay, t *topo.Topology) topo.Overlay {
	type alike struct {
		kind  topo.LinkKind
		known bool
		rate  topo.Rate
	}
	groups := map[alike][]topo.LinkID{}
	for i := range t.Links {
		l := &t.Links[i]
		if rate, ok := rates[l.ID]; !ok || carries(l, rate) {
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

// carries says whether a measured rate is the one that was read of a link.
func carries(l *topo.Link, measured topo.Rate) bool {
	if l.BytesPerSec == nil || l.Basis != topo.BasisRead {
		return false
	}
	of := Link{Kind: l.Kind, BytesPerSec: l.BytesPerSec, Basis: l.Basis}
	read := float64(*of.Payload())
	return math.Abs(float64(measured)-read) <= levelWithin*read
}
