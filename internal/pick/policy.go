package pick

import "math"

// Slice is the piece of a transfer that a lane is wanted for.
type Slice struct {
	Bytes int64
	// Remaining is what the transfer has left to give to lanes, bytes, this slice
	// included; 0: this slice is all.
	Remaining int64
}

// NoLane is what Pick gives where no lane should take the slice now.
const NoLane = -1

// Picker gives slices to lanes by Adaptive. It remembers what Prepare found, and belongs to one
// goroutine at a time.
type Picker struct {
	set      *Set
	counting counting
	takers   []taker
	takerOf  []int32 // the place in takers of each lane and 1 more, 0 none; empty until Another is asked
	nearest  int     // tier of the nearest healthy lane, the number of tiers without any
	sum      float64 // rates of the healthy lanes, bytes per second
}

// Picker starts the policy.
func (s *Set) Picker() *Picker { return &Picker{set: s} }

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
