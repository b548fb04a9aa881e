package pick

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
)

// plainPick is Adaptive's rule without shortcuts: for each question all is found out anew, and
// every lane's part in the transfer is asked for.
func plainPick(s *Set, slice Slice, st *States) int {
	p := s.Picker()
	p.Prepare(*st)
	for tier := p.nearestNow(st); tier < s.tiers; tier++ {
		var best *taker
		finish := int64(math.MaxInt64)
		for k := range p.takers {
			t := &p.takers[k]
			if l := st.lane(t.lane); t.tier != tier || !l.open() || !l.room(slice.Bytes) {
				continue
			}
			// When it is free of its own bytes and its ports of theirs.
			start := max(float64(st.lane(t.lane).Inflight)/t.rate, float64(st.Local.Of(t.local))/t.here, float64(st.Remote.Of(t.remote))/t.there)
			if f := nanoseconds(start + float64(slice.Bytes)/t.rate); f < finish {
				best, finish = t, f
			}
		}
		if best != nil && p.helps(best, slice, st) {
			return best.lane
		}
	}
	return NoLane
}

// drawList is a set of some lanes that share ports, have tiers and stand in for
// each other.
func drawList(r *rand.Rand) *Set {
	o := List{TCP: true}
	ports, rates := 1+r.IntN(8), []topo.Rate{0, topo.GBPerSec, 5 * topo.GBPerSec, 5 * topo.GBPerSec}
	for range 1 + r.IntN(12) {
		l := Listed{LocalName: fmt.Sprint("l", r.IntN(ports)), RemoteName: fmt.Sprint("r", r.IntN(ports)),
			LocalRate: rates[r.IntN(4)], RemoteRate: rates[r.IntN(4)], BytesPerSec: rates[r.IntN(4)], Tier: max(0, r.IntN(5)-2), Failover: r.IntN(4) == 0}
		o.Lanes = append(o.Lanes, l)
	}
	return o.Set()
}

// move changes what may change between Prepare and Pick.
func move(r *rand.Rand, st *States) {
	for i := range st.Lanes {
		l := &st.Lanes[i]
		if r.IntN(3) == 0 {
			l.Inflight = r.Int64N(4) * r.Int64N(8<<20)
		}
		if r.IntN(4) == 0 {
			l.Inflight = r.Int64N(4) << 20 // several hold as much
		}
		l.Window = []int64{-1, 0, 4 << 20, 8 << 20, 64 << 20}[r.IntN(5)]
	}
	for _, load := range []Load{st.Local, st.Remote} {
		for i := range load {
			load[i] = r.Int64N(3) * r.Int64N(32<<20)
		}
	}
}

// What is prepared once and asked often answers as the plain rule does, whatever is
// in flight meanwhile.
func TestPreparedIsPlain(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	picked, none, far := 0, 0, 0
	for range 3000 {
		s := drawList(r)
		p := s.Picker()
		st := States{Lanes: make([]State, r.IntN(len(s.Lanes)+1))}
		if r.IntN(2) == 0 {
			st.Local, st.Remote = make(Load, r.IntN(len(s.Local.Rates)+1)), make(Load, r.IntN(len(s.Remote.Rates)+1))
		}
		for range 3 {
			kinds := r.IntN(3) // all are healthy, most, or any
			for i := range st.Lanes {
				l := &st.Lanes[i]
				l.Health, l.Rate = Health(max(0, r.IntN(8)-7+kinds*2))%3, 0
				if r.IntN(2) == 0 {
					l.Rate = topo.Rate(1+r.Int64N(5000)) * topo.MBPerSec
				}
			}
			p.Prepare(st)
			for range 10 {
				move(r, &st)
				slice := Slice{Bytes: 1 + r.Int64N(2)<<20, Remaining: r.Int64N(1 << (10 + r.IntN(25)))}
				want := plainPick(s, slice, &st)
				if got := p.Pick(slice, st); got != want {
					t.Fatalf("lane %d, want %d: %+v, %+v\n%+v", got, want, slice, st, s.Lanes)
				}
				switch {
				case want == NoLane:
					none++
				case s.Lanes[want].Tier > 0:
					far++
				default:
					picked++
				}
			}
		}
	}
	t.Logf("%d near lanes, %d farther ones, %d times none", picked, far, none)
	if picked < 5000 || far < 500 || none < 500 {
		t.Errorf("%d near lanes, %d farther ones, %d times none", picked, far, none)
	}
}

// Where a lane is free at the very moment at which all are done, rounding decides
// whether it gets a part: that is decided once.
func TestRoundingEnds(t *testing.T) {
	lane := func(name string) Listed {
		return Listed{LocalName: name, RemoteName: name, BytesPerSec: 4 * topo.GBPerSec}
	}
	s := List{TCP: true, Lanes: []Listed{lane("a"), lane("b"), lane("c")}}.Set()
	for _, x := range []struct{ rate, held, left int64 }{
		{1842601235, 57671680, 7340032}, {2421081133, 11534336, 4194304}, {1202243010, 38797312, 1048576},
	} {
		rate := topo.Rate(x.rate)
		st := States{Lanes: []State{{Inflight: x.held, Rate: rate}, {Inflight: x.held + x.left, Rate: rate}, {Inflight: x.held, Rate: rate}}}
		if !s.WouldHelp(2, Slice{Bytes: 1 << 20, Remaining: x.left}, st) {
			t.Errorf("%+v: an equal lane would not help", x)
		}
	}
}
