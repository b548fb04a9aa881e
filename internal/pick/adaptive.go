package pick

import "math"

// taker is a lane that may get slices, as long as no lane's health or rate changes.
type taker struct {
	lane, tier    int
	local, remote int     // its ports
	healthy       bool    // else it is to be tested
	narrow        bool    // one of its ports is slower than it
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

// takesFor is how long it takes for a slice, in seconds.
func (t *taker) takesFor(bytes int64) float64 {
	if bytes != t.asked {
		t.asked, t.takes = bytes, float64(bytes)/t.rate
	}
	return t.takes
}

// Pick gives the lane for a slice, a place in Set.Lanes, or NoLane: then ask
// again when a slice completes or a lane gets well. Since Prepare nothing may have changed
// but what is in flight, on lanes and ports, and windows; before any Prepare every
// lane counts as sick. Where a lane is healthy and idle and no other has anything to do,
// there is always an answer.
func (p *Picker) Pick(slice Slice, states States) int { return p.adaptive(slice, &states) }

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
	if !t.healthy || t.tier != p.nearest {
		return false
	}
	inflight := int64(0)
	if lane < len(states.Lanes) {
		inflight = states.Lanes[lane].Inflight
	}
	start := max(t.busyWith(inflight), float64(states.Local.Of(t.local))/t.here, float64(states.Remote.Of(t.remote))/t.there)
	return start+t.takesFor(slice.Bytes) <= float64(slice.Remaining)/p.sum
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

// Prepare works out what hangs on the lanes' health and rates alone, for Pick.
func (p *Picker) Prepare(states States) {
	v := p.set.look(&states)
	p.takers, p.takerOf, p.nearest, p.sum = p.takers[:0], p.takerOf[:0], p.set.tiers, 0
	for k := range v.n {
		i := v.at(k)
		l, health, rate := &p.set.Lanes[i], v.lane(i).Health, v.rate(i)
		if rate <= 0 || health == Sick {
			continue
		}
		t := taker{lane: i, tier: l.Tier, local: l.Local, remote: l.Remote, healthy: health == Healthy,
			rate: rate, here: p.set.Local.Rates[l.Local], there: p.set.Remote.Rates[l.Remote]}
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
	p.counting = v.counting
}

// adaptive takes, tier by tier, the lane with room that is done first, if it
// helps at all.
func (p *Picker) adaptive(slice Slice, st *States) int {
	v := view{s: p.set, st: st, counting: p.counting}
	if v.n == 1 { // no other to be better: the rule below says the same, later
		if l := v.lane(0); len(p.takers) == 1 && l.open() && l.room(slice.Bytes) {
			return 0
		}
		return NoLane
	}
	nearest := p.nearest
	if nearest == p.set.tiers {
		nearest = v.nearest()
	}
	for tier := nearest; tier < p.set.tiers; tier++ {
		best, plain := p.soonest(&v, tier, slice)
		if best != NoLane && (plain && tier == nearest || v.helps(best, slice)) {
			return best
		}
	}
	return NoLane
}

// soonest is the lane of a tier with room that is done with a slice first. plain
// says that it is before the other lanes up to that tier are done with
// everything, as end would find, but for one nanosecond of rounding.
func (p *Picker) soonest(v *view, tier int, slice Slice) (best int, plain bool) {
	best = NoLane
	finish, end := int64(math.MaxInt64), math.Inf(1)
	var own, ownWork, work, rates, latest float64
	for k := range p.takers {
		t := &p.takers[k]
		if t.tier > tier {
			continue
		}
		l := v.lane(t.lane)
		if !t.healthy && l.Inflight != 0 {
			continue
		}
		start := t.busyWith(l.Inflight)
		// A port that holds no more than the lane and carries no less is free no later.
		here, there := v.st.Local.Of(t.local), v.st.Remote.Of(t.remote)
		if here > t.held || there > t.held || t.narrow {
			start = max(start, float64(here)/t.here, float64(there)/t.there)
		}
		if t.healthy {
			work, rates = work+start*t.rate, rates+t.rate
			if start > latest {
				latest = start
			}
		}
		if t.tier != tier || start >= end && best != NoLane || !l.room(slice.Bytes) {
			continue
		}
		done := start + t.takesFor(slice.Bytes)
		if done >= end && best != NoLane {
			continue // not before it in whole nanoseconds either, which cost more
		}
		if f := nanoseconds(done); f < finish {
			best, finish, end, own, ownWork = t.lane, f, done, 0, 0
			if t.healthy {
				own, ownWork = t.rate, start*t.rate
			}
		}
	}
	if best == NoLane || rates <= own {
		return best, false
	}
	all := (float64(max(slice.Bytes, slice.Remaining)) + work - ownWork) / (rates - own)
	return best, latest < all && float64(finish+1) < all*1e9
}
