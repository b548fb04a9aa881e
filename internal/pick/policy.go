package pick

import (
	"math"
	"strings"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Policy is a rule that gives slices of transfers to lanes.
type Policy string

// The policies. Adaptive is the one to use; the others are there to compare
// with. None gives a slice to a sick lane, and all but Mooncake keep to windows.
const (
	// Adaptive takes the nearest lanes first, there the one that is done first,
	// and a farther one only where the transfer then ends a tenth earlier.
	Adaptive Policy = "adaptive"
	// RoundRobin takes the chosen lanes in turn.
	RoundRobin Policy = "round-robin"
	// Random takes any of the chosen lanes.
	Random Policy = "random"
	// First takes the first lane as long as it is not sick.
	First Policy = "first"
	// Mooncake takes random ports of the preferred ones of each side, each side by
	// itself, and knows no load, rate or reachability: the local port for a whole
	// request, the remote one for each slice.
	Mooncake Policy = "mooncake"
)

// Policies lists the policies, for flags and completion.
func Policies() []string {
	return []string{string(Adaptive), string(RoundRobin), string(Random), string(First), string(Mooncake)}
}

// ParsePolicy reads the name of a policy; "" is Adaptive.
func ParsePolicy(s string) (Policy, error) {
	switch p := Policy(s); p {
	case "":
		return Adaptive, nil
	case Adaptive, RoundRobin, Random, First, Mooncake:
		return p, nil
	}
	return "", pkgerr.Errorf("pick", "policy %q: want %s", s, strings.Join(Policies(), ", "))
}

// Slice is the piece of a transfer that a lane is wanted for.
type Slice struct {
	Bytes int64
	// Remaining is what the transfer has left to give to lanes, bytes, this slice
	// included; 0: this slice is all.
	Remaining int64
	// Request and Index name the transfer and the slice in it, and Attempt counts
	// its failures. Only Mooncake's choice hangs on them.
	Request uint64
	Index   uint32
	Attempt int
}

// NoLane is what Pick gives where no lane should take the slice now.
const NoLane = -1

// Picker gives slices to lanes by one policy. It remembers what the policy needs
// (a turn, a random state) and belongs to one goroutine at a time.
type Picker struct {
	set   *Set
	other *comparison // nil: Adaptive

	// What Prepare found: see there.
	counting counting
	takers   []taker
	takerOf  []int32 // the place in takers of each lane and 1 more, 0 none; empty until Another is asked
	nearest  int     // tier of the nearest healthy lane, the number of tiers without any
	sum      float64 // rates of the healthy lanes, bytes per second
}

// Picker starts a policy. Equal seeds and equal questions get equal answers; a
// policy that is unknown is Adaptive.
func (s *Set) Picker(policy Policy, seed uint64) *Picker {
	return &Picker{set: s, other: s.comparison(policy, seed)}
}

// Adapts says whether the policy is Adaptive.
func (p *Picker) Adapts() bool { return p.other == nil }

// Misses counts the pairs of ports that Mooncake drew and that cannot reach each
// other: there such a slice fails and is tried again.
func (p *Picker) Misses() int64 {
	if p.other == nil {
		return 0
	}
	return p.other.misses
}

// Pick gives the lane for a slice, a place in Set.Lanes, or NoLane: then ask
// again when a slice completes or a lane gets well. Where a lane is healthy and
// idle and no other has anything to do, there is always an answer.
func (p *Picker) Pick(slice Slice, states States) int {
	if p.other != nil {
		return p.other.pick(p.set, &slice, &states)
	}
	p.prepare(&states)
	return p.adaptive(slice, &states)
}

// room says whether a lane's window has room for a slice.
func (l *State) room(bytes int64) bool {
	return l.Window == 0 || l.Window > 0 && (l.Inflight == 0 || l.Inflight <= l.Window-bytes)
}

// open says whether a lane may be used at all: a half-open one for one slice at
// a time.
func (l *State) open() bool {
	return l.Health == Healthy || l.Health == HalfOpen && l.Inflight == 0
}

// finish is when a lane would be done with a slice more, in nanoseconds.
func (v *view) finish(i int, bytes int64) int64 {
	return nanoseconds(v.start(i) + float64(bytes)/v.rate(i))
}

// nearest is the tier of the nearest healthy lane, or of the nearest that may be
// tested where none is healthy.
func (v *view) nearest() int {
	healthy, testable := v.s.tiers, v.s.tiers
	for k := range v.n {
		i := v.at(k)
		if v.rate(i) <= 0 {
			continue
		}
		tier := v.s.Lanes[i].Tier
		switch l := v.st.lane(i); {
		case l.Health == Healthy && tier == 0:
			return 0
		case l.Health == Healthy:
			healthy = min(healthy, tier)
		case l.open():
			testable = min(testable, tier)
		}
	}
	if healthy == v.s.tiers {
		return testable
	}
	return healthy
}

// helps says whether the transfer ends earlier when this lane takes the slice.
// It does if the lane is done with it before the other lanes of its tier and
// nearer ones are done with everything; a farther lane must also make the whole
// transfer end much earlier than the nearer ones alone.
func (v *view) helps(i int, slice Slice) bool {
	remaining, tier := max(slice.Bytes, slice.Remaining), v.s.Lanes[i].Tier
	others, next := v.end(remaining, slice.Bytes, tier, i)
	if v.finish(i, slice.Bytes) > max(others, next) {
		return false
	}
	if tier == v.nearest() {
		return true
	}
	nearer, _ := v.end(remaining, slice.Bytes, tier-1, NoLane)
	all, _ := v.end(remaining, slice.Bytes, tier, NoLane)
	factor := WorthATier
	if v.s.Lanes[i].UpperBound && v.st.lane(i).Rate == 0 {
		factor = WorthAnUpperBound
	}
	return float64(all)*factor <= float64(nearer)
}

// end is when the healthy lanes up to a tier, one left out, would be done with
// that many bytes if they shared them perfectly, and when the first of them would
// be done with one slice; both in nanoseconds, the largest number without lanes.
func (v *view) end(remaining, slice int64, tier, without int) (all, one int64) {
	one = math.MaxInt64
	end := math.Inf(1)
	for before := 0; ; {
		work, rates, n := float64(remaining), 0.0, 0
		for k := range v.n {
			i := v.at(k)
			if i == without || v.s.Lanes[i].Tier > tier || v.st.lane(i).Health != Healthy {
				continue
			}
			rate := v.rate(i)
			if rate <= 0 {
				continue
			}
			start := v.start(i)
			if before == 0 {
				one = min(one, nanoseconds(start+float64(slice)/rate))
			}
			if start < end {
				work, rates, n = work+start*rate, rates+rate, n+1
			}
		}
		if n == 0 || before > 0 && n >= before { // more: by rounding, and so for ever
			break
		}
		before, end = n, work/rates
	}
	return nanoseconds(end), one
}
