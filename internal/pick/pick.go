// Package pick gives slices of transfers to lanes. A Set is the lanes between one pair of
// memory locations with what each carries alone and beside the others; a Picker is the
// engine's policy at work on it, Predict says how a transfer would be shared, and Compare how
// other policies would share it.
//
// pathsel makes sets of the lanes that it chooses, List makes one of lanes that a caller
// names. A Set does not change and may be used by many goroutines.
package pick

import (
	"math"
	"slices"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/maxmin"
)

// What a lane must add to be chosen; the figures are ours. One that brings less
// than a tenth of what it carries alone only shares a full link. A farther tier
// takes ways through the host from other traffic, so it must end transfers a
// tenth earlier. Where its rate is no more than an upper bound (GPU memory across
// a root complex, of which no vendor publishes a rate) it must promise to double
// what the nearer lanes carry.
const (
	WorthALane        = 0.1
	WorthATier        = 1.1
	WorthAnUpperBound = 2
)

// The round trips that are assumed where the caller knows none: through a few
// switches and two NICs, and through two kernels.
const (
	DefaultRTT    = 10 * time.Microsecond
	DefaultTCPRTT = 100 * time.Microsecond
)

// Spec is what a Set is made of.
type Spec struct {
	Lanes  []Lane // the chosen ones, then those that step in when chosen ones fail, in that order
	Chosen int    // how many are chosen
	// Capacities are what the segments of both hosts carry, in bytes per second; infinite
	// where that is unknown.
	Capacities    []float64
	Local, Remote Ports
	RTT           time.Duration // of an empty connection; 0 is DefaultRTT
}

// Lane is a pair of ports as policies know it.
type Lane struct {
	Tier          int // 0 is the nearest
	Local, Remote int // its ports, by Port.Index of pathsel
	// Segments are those that it crosses, each as often as it does.
	Segments []maxmin.Segment
	// Rate is what it carries alone, in bytes per second; infinite where that is unknown.
	Rate       float64
	UpperBound bool // Rate is no more than what the links of known rate allow

	rate   float64 // Rate, or a stand-in for an unknown one
	share  float64 // of the joint capacity, 0 for failover
	bounds []bound // of a lane for failover: what it shares with chosen ones
}

// bound is a link that a lane for failover shares with chosen lanes.
type bound struct {
	spare  float64 // what the chosen ones leave of it, bytes per second
	chosen []int32 // those that cross it
}

// BytesPerSec is what the lane carries alone, in whole bytes; nil where that is unknown.
func (l *Lane) BytesPerSec() *topo.Rate {
	if math.IsInf(l.Rate, 1) {
		return nil
	}
	return new(topo.Rate(maxmin.Whole(l.Rate)))
}

// Ports are the ports of one side, by Port.Index of pathsel.
type Ports struct {
	Rates []float64 // what each port's wire carries in each direction, bytes per second; 0 unknown
	// Places are their places in the order of preference, as Mooncake's policy, which knows no
	// lanes, sees them: the preferred ones first, then the available ones. Ports without a lane
	// need none. Only Compare looks at them.
	Places            []int
	Ranked, Preferred int // how many ports there are in that order, and how many of them are preferred
}

// BytesPerSec are the rates of the ports in whole bytes; 0 unknown.
func (p *Ports) BytesPerSec() []topo.Rate {
	out := make([]topo.Rate, len(p.Rates))
	for i, r := range p.Rates {
		out[i] = topo.Rate(r)
	}
	return out
}

// Set is the lanes between one pair of memory locations, ready for questions.
type Set struct {
	Spec
	tiers    int
	standIns [][]int32 // for each chosen lane those that make up for its loss, in order
}

// unknownRate stands for the rate of lanes where none of a set is known, in
// bytes per second: all are alike then, and the engine's estimates replace it.
const unknownRate = float64(topo.GBPerSec)

// New prepares a set. It keeps the slices of the Spec.
func New(spec Spec) *Set {
	s := &Set{Spec: spec}
	if s.RTT <= 0 {
		s.RTT = DefaultRTT
	}
	s.share()
	s.assume()
	s.findStandIns()
	return s
}

// share works out what the chosen lanes carry together, and what they leave to the others.
func (s *Set) share() {
	allocator, flows := maxmin.New(s.Capacities), make([]maxmin.Flow, s.Chosen)
	users := map[maxmin.Segment][]int32{} // the chosen lanes that cross each segment
	for i := range flows {
		flows[i] = maxmin.Flow{Segments: s.Lanes[i].Segments, Weight: 1}
		for _, g := range flows[i].Segments {
			users[g] = append(users[g], int32(i))
		}
	}
	allocator.Share(flows)
	for i := range s.Lanes {
		l := &s.Lanes[i]
		l.rate = l.Rate
		if i < s.Chosen {
			l.share = flows[i].Rate
			continue
		}
		l.bounds = l.boundsOf(users, allocator)
	}
}

// boundsOf are the links that a lane shares with chosen lanes and that they do
// not leave it whole, those with the same users once.
func (l *Lane) boundsOf(users map[maxmin.Segment][]int32, a *maxmin.Allocator) []bound {
	var out []bound
	for _, g := range l.Segments {
		spare := a.Left(g)
		if len(users[g]) == 0 || spare >= l.Rate {
			continue
		}
		same := slices.IndexFunc(out, func(o bound) bool { return slices.Equal(o.chosen, users[g]) })
		if same < 0 {
			out = append(out, bound{spare, users[g]})
			continue
		}
		out[same].spare = min(out[same].spare, spare)
	}
	return out
}

// assume gives lanes of unknown rate the slowest known one.
func (s *Set) assume() {
	slowest := math.Inf(1)
	for i := range s.Lanes {
		l := &s.Lanes[i]
		slowest = min(slowest, l.rate)
		s.tiers = max(s.tiers, l.Tier+1)
	}
	if math.IsInf(slowest, 1) {
		slowest = unknownRate
	}
	for i := range s.Lanes {
		l := &s.Lanes[i]
		if math.IsInf(l.rate, 1) {
			l.rate = slowest
		}
		if math.IsInf(l.share, 1) {
			l.share = slowest
		}
	}
}

// findStandIns lists for each chosen lane those that carry something worth it if
// that one is lost: of the first ones with the same local port, with the same
// remote port and with neither two each, because what was lost may be either.
func (s *Set) findStandIns() {
	s.standIns = make([][]int32, s.Chosen)
	for j := range s.Chosen {
		st := States{Lanes: make([]State, s.Chosen)}
		st.Lanes[j].Health = Sick
		v := view{s: s, st: &st}
		kinds := [3]int{}
		for i := s.Chosen; i < len(s.Lanes); i++ {
			kind := 0
			switch {
			case s.Lanes[i].Local == s.Lanes[j].Local:
				kind = 1
			case s.Lanes[i].Remote == s.Lanes[j].Remote:
				kind = 2
			}
			if kinds[kind] < 2 && v.rate(i) > s.Lanes[i].rate*WorthALane {
				kinds[kind]++
				s.standIns[j] = append(s.standIns[j], int32(i))
			}
		}
	}
}

// Deserves says how many of the chosen lanes a transfer of that size should
// use: enough that each is busy for at least two round trips, and one in any
// case. The chosen lanes are as many as add bandwidth, so it is never more. An
// rtt of 0 stands for the set's.
func (s *Set) Deserves(bytes int64, rtt time.Duration) int {
	if s == nil || s.Chosen == 0 {
		return 0
	}
	if rtt <= 0 {
		rtt = s.RTT
	}
	ofOne := int64(min(2*s.Lanes[0].share*float64(rtt)/float64(time.Second), math.MaxInt64/2))
	return int(max(1, min(bytes/max(1, ofOne), int64(s.Chosen))))
}

// Finish says when the last byte of a transfer is through that is shared among lanes
// so, all of them idle and nothing else on their links, in nanoseconds, and which
// segment is the last: the most loaded one. It is maxmin.None, and the time 0, where
// nothing is known of a lane's rate or nothing is shared. bounded says that a rate on
// the way is an upper bound. Shares without bytes and those of lanes that the set does
// not have count nothing.
func (s *Set) Finish(shares []Share) (ns int64, last maxmin.Segment, bounded bool) {
	load := map[maxmin.Segment]float64{} // bytes
	for _, x := range shares {
		if s == nil || x.Bytes <= 0 || x.Lane < 0 || x.Lane >= len(s.Lanes) {
			continue
		}
		known := false
		for _, g := range s.Lanes[x.Lane].Segments {
			load[g] += float64(x.Bytes)
			known = known || !math.IsInf(s.Capacities[g], 1)
		}
		if !known {
			return 0, maxmin.None, false
		}
		bounded = bounded || s.Lanes[x.Lane].UpperBound
	}
	// The first of equal ones: a map has no order.
	last, seconds := maxmin.None, 0.0
	for g, bytes := range load {
		if t := bytes / s.Capacities[g]; t > seconds || t == seconds && g < last {
			last, seconds = g, t
		}
	}
	if last == maxmin.None {
		return 0, last, false
	}
	return nanoseconds(seconds), last, bounded
}
