package pathsel

import (
	"math"

	"github.com/topoctl/topoctl/discover/topo"
)

// Finish says when the last byte of a transfer is through that is shared among
// lanes so, all of them idle and nothing else on their links, in nanoseconds: no
// link of either host carries its bytes faster than its rate, so the most loaded
// one tells. Lanes that share a port or an uplink wait for each other there, which
// what they carry alone does not say.
//
// The end is one where the links are kept busy; an engine may be later. basis is
// that of the most loaded link's rate: assumed where it, or a rate on the way, is
// an upper bound, so that the end is no earlier than that; unknown, with 0, where
// nothing is known of a lane's rate or nothing is shared. Shares without bytes and
// those of lanes that the set does not have count nothing.
func (s *LaneSet) Finish(shares []LaneShare) (ns int64, basis topo.Basis) {
	load := map[segment]float64{} // bytes
	bounded := false
	for _, x := range shares {
		if x.Bytes <= 0 || x.Lane < 0 || x.Lane >= len(s.Lanes) {
			continue
		}
		known := false
		for _, g := range s.Lanes[x.Lane].segments {
			load[g] += float64(x.Bytes)
			known = known || !math.IsInf(s.pair.caps[g], 1)
		}
		if !known {
			return 0, topo.BasisUnknown
		}
		bounded = bounded || s.Lanes[x.Lane].upperBound
	}
	// The slowest segment, the first of equal ones: a map has no order.
	slowest, seconds := segment(-1), 0.0
	for g, bytes := range load {
		if t := bytes / s.pair.caps[g]; t > seconds || t == seconds && g < slowest {
			slowest, seconds = g, t
		}
	}
	if slowest < 0 {
		return 0, topo.BasisUnknown
	}
	basis = s.pair.linkOf(slowest).Basis
	if bounded {
		basis = topo.BasisAssumed
	}
	return nanoseconds(seconds), basis
}
