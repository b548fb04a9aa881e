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
	set     *Set
	alone   bool // only the first lane of the set counts
	takers  []taker
	takerOf []int32 // the place in takers of each lane and 1 more, 0 none; empty until Another is asked
	nearest int     // tier of the nearest healthy lane, the number of tiers without any
	sum     float64 // rates of the healthy lanes, bytes per second
}

// Picker starts the policy.
func (s *Set) Picker() *Picker { return &Picker{set: s} }

// taker is a lane that may get slices, as long as no lane's health or rate changes.
type taker struct {
	lane, tier    int
	local, remote int     // its ports
	healthy       bool    // else it is to be tested
	narrow        bool    // one of its ports is slower than it
	worth         float64 // how much earlier the transfer must end where the lane is a farther one
	rate          float64 // bytes per second, above 0
	here, there   float64 // what its ports carry; as fast as the lane where that is not known

	// What the last question found, because dividing costs: most lanes hold then what
	// they held before, and most slices are of one size.
	held, asked int64   // bytes
	busy, takes float64 // seconds that they take the lane
}

// busyWith is how long the lane takes for what it holds, in seconds.
func (t *taker) busyWith(bytes int64) float64 {
	if bytes != t.held {
		t.held, t.busy = bytes, float64(bytes)/t.rate
	}
	return t.busy
}

// start is when the lane is free of what it and its ports have to do already, in seconds from now.
func (t *taker) start(st *States) float64 {
	return max(t.busyWith(st.lane(t.lane).Inflight), float64(st.Local.Of(t.local))/t.here, float64(st.Remote.Of(t.remote))/t.there)
}

// takesFor is how long it takes for a slice, in seconds.
func (t *taker) takesFor(bytes int64) float64 {
	if bytes != t.asked {
		t.asked, t.takes = bytes, float64(bytes)/t.rate
	}
	return t.takes
}

// finish is when it would be done with a slice more, in nanoseconds.
func (t *taker) finish(bytes int64, st *States) int64 {
	return nanoseconds(t.start(st) + t.takesFor(bytes))
}

// Prepare works out what hangs on the lanes' health and rates alone, for Pick.
func (p *Picker) Prepare(states States) {
	v := p.set.look(&states)
	p.takers, p.takerOf, p.nearest, p.sum, p.alone = p.takers[:0], p.takerOf[:0], p.set.tiers, 0, v.n == 1
	for k := range v.n {
		i := v.at(k)
		l, state, rate := &p.set.Lanes[i], states.lane(i), v.rate(i)
		if rate <= 0 || state.Health == Sick {
			continue
		}
		t := taker{lane: i, tier: l.Tier, local: l.Local, remote: l.Remote, healthy: state.Health == Healthy, worth: WorthATier,
			rate: rate, here: p.set.Local.Rates[l.Local], there: p.set.Remote.Rates[l.Remote]}
		if l.UpperBound && state.Rate == 0 {
			t.worth = WorthAnUpperBound
		}
		if t.here == 0 {
			t.here = rate
		}
		if t.there == 0 {
			t.there = rate
		}
		t.narrow = t.here < rate || t.there < rate
		if t.healthy {
			p.nearest = min(p.nearest, t.tier)
			p.sum += rate
		}
		p.takers = append(p.takers, t)
	}
}

// Pick gives the lane for a slice, a place in Set.Lanes, or NoLane: then ask
// again when a slice completes or a lane gets well. It takes, tier by tier, the lane with room
// that is done first, if it helps at all. Since Prepare nothing may have changed
// but what is in flight, on lanes and ports, and windows; before any Prepare every
// lane counts as sick. Where a lane is healthy and idle and no other has anything to do,
// there is always an answer.
func (p *Picker) Pick(slice Slice, states States) int {
	if p.alone { // no other to be better: the rule below says the same, later
		if l := states.lane(0); len(p.takers) == 1 && l.open() && l.room(slice.Bytes) {
			return 0
		}
		return NoLane
	}
	nearest := p.nearestNow(&states)
	for tier := nearest; tier < p.set.tiers; tier++ {
		best, plain := p.soonest(tier, slice, &states)
		if best != nil && (plain && tier == nearest || p.helps(best, slice, &states)) {
			return best.lane
		}
	}
	return NoLane
}

// nearestNow is the tier of the nearest healthy lane, or of the nearest that may be
// tested where none is healthy.
func (p *Picker) nearestNow(st *States) int {
	nearest := p.nearest
	if nearest == p.set.tiers {
		for k := range p.takers {
			if t := &p.takers[k]; st.lane(t.lane).Inflight == 0 {
				nearest = min(nearest, t.tier)
			}
		}
	}
	return nearest
}

// soonest is the lane of a tier with room that is done with a slice first. plain
// says that it is before the other lanes up to that tier are done with
// everything, as end would find, but for one nanosecond of rounding.
func (p *Picker) soonest(tier int, slice Slice, st *States) (best *taker, plain bool) {
	finish, end := int64(math.MaxInt64), math.Inf(1)
	var own, ownWork, work, rates, latest float64
	for k := range p.takers {
		t := &p.takers[k]
		if t.tier > tier {
			continue
		}
		l := st.lane(t.lane)
		if !t.healthy && l.Inflight != 0 {
			continue
		}
		start := t.busyWith(l.Inflight)
		// A port that holds no more than the lane and carries no less is free no later.
		if t.narrow || st.Local.Of(t.local) > t.held || st.Remote.Of(t.remote) > t.held {
			start = t.start(st)
		}
		if t.healthy {
			work, rates = work+start*t.rate, rates+t.rate
			if start > latest {
				latest = start
			}
		}
		if t.tier != tier || start >= end && best != nil || !l.room(slice.Bytes) {
			continue
		}
		done := start + t.takesFor(slice.Bytes)
		if done >= end && best != nil {
			continue // not before it in whole nanoseconds either, which cost more
		}
		if f := nanoseconds(done); f < finish {
			best, finish, end, own, ownWork = t, f, done, 0, 0
			if t.healthy {
				own, ownWork = t.rate, start*t.rate
			}
		}
	}
	if best == nil || rates <= own {
		return best, false
	}
	all := (float64(max(slice.Bytes, slice.Remaining)) + work - ownWork) / (rates - own)
	return best, latest < all && float64(finish+1) < all*1e9
}

// helps says whether the transfer ends earlier when this lane takes the slice.
// It does if the lane is done with it before the other lanes of its tier and
// nearer ones are done with everything; a farther lane must also make the whole
// transfer end much earlier than the nearer ones alone.
func (p *Picker) helps(t *taker, slice Slice, st *States) bool {
	remaining := max(slice.Bytes, slice.Remaining)
	others, next := p.end(remaining, slice.Bytes, t.tier, t, st)
	if t.finish(slice.Bytes, st) > max(others, next) {
		return false
	}
	if t.tier == p.nearestNow(st) {
		return true
	}
	nearer, _ := p.end(remaining, slice.Bytes, t.tier-1, nil, st)
	all, _ := p.end(remaining, slice.Bytes, t.tier, nil, st)
	return float64(all)*t.worth <= float64(nearer)
}

// end is when the healthy lanes up to a tier, one left out, would be done with
// that many bytes if they shared them perfectly, and when the first of them would
// be done with one slice; both in nanoseconds, the largest number without lanes.
func (p *Picker) end(remaining, slice int64, tier int, without *taker, st *States) (all, one int64) {
	one = math.MaxInt64
	end := math.Inf(1)
	for before := 0; ; {
		work, rates, n := float64(remaining), 0.0, 0
		for k := range p.takers {
			t := &p.takers[k]
			if t == without || t.tier > tier || !t.healthy {
				continue
			}
			start := t.start(st)
			if before == 0 {
				one = min(one, nanoseconds(start+t.takesFor(slice)))
			}
			if start < end {
				work, rates, n = work+start*t.rate, rates+t.rate, n+1
			}
		}
		if n == 0 || before > 0 && n >= before { // more: by rounding, and so for ever
			break
		}
		before, end = n, work/rates
	}
	return nanoseconds(end), one
}

// Another says whether a lane with room from which a slice came back gets another one,
// without looking at all lanes: of those nearest it is, and it ends that slice before
// all lanes together would be done. It is asked like Pick, where that had no answer
// before.
func (p *Picker) Another(lane int, slice *Slice, states *States) bool {
	if len(p.takerOf) == 0 {
		p.placeTakers()
	}
	if lane >= len(p.takerOf) || p.takerOf[lane] == 0 {
		return false
	}
	t := &p.takers[p.takerOf[lane]-1]
	return t.healthy && t.tier == p.nearest && t.start(states)+t.takesFor(slice.Bytes) <= float64(slice.Remaining)/p.sum
}

// placeTakers finds the takers' places by lane.
func (p *Picker) placeTakers() {
	if p.takerOf == nil {
		p.takerOf = make([]int32, 0, len(p.set.Lanes))
	}
	p.takerOf = p.takerOf[:cap(p.takerOf)]
	clear(p.takerOf)
	for k := range p.takers {
		p.takerOf[p.takers[k].lane] = int32(k + 1)
	}
}
