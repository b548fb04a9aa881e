package pick

import (
	"math"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
)

// Health is what an engine has made of a lane's errors and stalls.
type Health uint8

// The states of a lane. A half-open one was sick and takes one test slice at a
// time until it is well.
const (
	Healthy Health = iota
	HalfOpen
	Sick
)

// State is what an engine knows of a lane at this moment. The zero value is
// an idle lane of which nothing was measured.
type State struct {
	Inflight int64 // bytes given to it and not completed
	// Window is the most that may be in flight, bytes; 0 is no bound, and below
	// 0 there is no room now (the window of one of its ports is full). An idle
	// lane takes one slice of any size.
	Window int64
	Rate   topo.Rate // measured service rate; 0: what the topology promises
	Health Health
}

// States are the states of a set's lanes.
type States struct {
	Lanes []State // by place in Set.Lanes; missing ones are idle
	// Local and Remote are the bytes in flight on each port by Port.Index, over
	// all lanes and all peers; nil: only what the lanes say.
	Local, Remote Load
}

// Load is bytes in flight or queued by port; nil is nothing at all.
type Load []int64

// Of is the load of a port.
func (l Load) Of(port int) int64 {
	if port < len(l) {
		return l[port]
	}
	return 0
}

var idle State

// lane is a lane's state in its place, which nobody changes: copying it for every lane of
// every decision costs.
func (s *States) lane(i int) *State {
	if i < len(s.Lanes) {
		return &s.Lanes[i]
	}
	return &idle
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

// Share is a lane's part of one transfer.
type Share struct {
	Lane  int // place in Set.Lanes
	Bytes int64
	// FinishNS is when the lane would be done.
	FinishNS int64
}

// Predict shares a transfer among as many chosen lanes as it deserves, the first ones, all of them
// idle, so that they are done at the same time. The shares are in the order of lanes and sum to
// bytes; without lanes there are none.
//
// This is a prediction: lanes that pull slices as they get room end up close to it.
func (s *Set) Predict(bytes int64) []Share {
	if s == nil || bytes <= 0 {
		return nil
	}
	var shares []Share
	rates, most := 0.0, s.Deserves(bytes, 0)
	for i := range s.Chosen {
		if rate := s.Lanes[i].share; rate > 0 && len(shares) < most {
			shares, rates = append(shares, Share{Lane: i}), rates+rate
		}
	}
	left := bytes
	for k := range shares {
		x := &shares[k]
		x.Bytes = min(left, int64(float64(bytes)/rates*s.Lanes[x.Lane].share))
		left -= x.Bytes
	}
	if len(shares) > 0 {
		shares[0].Bytes += left // what rounding leaves
	}
	for k := range shares {
		shares[k].FinishNS = nanoseconds(float64(shares[k].Bytes) / s.Lanes[shares[k].Lane].share)
	}
	return slices.DeleteFunc(shares, func(x Share) bool { return x.Bytes == 0 })
}

// view is a set of lanes in some states: the lanes that count now, and what each
// can do.
type view struct {
	s  *Set
	st *States
	n  int // how many lanes count: see at
	// standIns are lanes for failover that stand in for weak ones, in order.
	standIns [maxStandIns]int32
	few      int
	all      bool // nothing else is left: every lane counts
}

// maxStandIns bounds the lanes that stand in at one time: so many lanes are
// rarely lost at once, and what is left to them then is not worth more.
const maxStandIns = 8

// look finds the lanes that count: the chosen ones, and for each of those that
// is not healthy or has lost half of its rate the first healthy lane that would
// make up for it. Without any healthy lane among them every lane counts.
func (s *Set) look(st *States) view {
	v := view{s: s, st: st, n: s.Chosen}
	healthy := false
	for j := range s.Chosen {
		l := st.lane(j)
		healthy = healthy || l.Health == Healthy
		if l.Health != Healthy || l.Rate > 0 && float64(l.Rate) < s.Lanes[j].share/2 {
			v.standIn(s.standIns[j])
		}
	}
	if !healthy && v.few == 0 {
		v.n, v.all = len(s.Lanes), true
	}
	return v
}

// standIn takes the first healthy lane of a list that does not stand in yet.
func (v *view) standIn(list []int32) {
	for _, i := range list {
		if v.few == len(v.standIns) {
			return
		}
		at, found := slices.BinarySearch(v.standIns[:v.few], i)
		if found || v.st.lane(int(i)).Health != Healthy {
			continue
		}
		copy(v.standIns[at+1:v.few+1], v.standIns[at:v.few])
		v.standIns[at] = i
		v.few++
		v.n++
		return
	}
}

// at is the k-th lane that counts: the chosen ones, then the stand-ins.
func (v *view) at(k int) int {
	if v.all || k < v.s.Chosen {
		return k
	}
	return int(v.standIns[k-v.s.Chosen])
}

// lost is what a chosen lane has less than the topology promises, bytes per
// second.
func (v *view) lost(j int) float64 {
	l, share := v.st.lane(j), v.s.Lanes[j].share
	switch {
	case l.Health != Healthy:
		return share
	case l.Rate > 0:
		return max(0, share-float64(l.Rate))
	}
	return 0
}

// rate is what a lane carries now, bytes per second: a chosen one what was
// measured, else its share; one for failover what the chosen ones leave it on
// the links that it shares with them, what they have lost there included.
func (v *view) rate(i int) float64 {
	l := &v.s.Lanes[i]
	measured := float64(v.st.lane(i).Rate)
	if i < v.s.Chosen {
		if measured > 0 {
			return measured
		}
		return l.share
	}
	rate := l.rate
	for b := range l.bounds {
		room := l.bounds[b].spare
		for _, j := range l.bounds[b].chosen {
			room += v.lost(int(j))
		}
		rate = min(rate, room)
	}
	if measured > 0 {
		return min(rate, measured)
	}
	return rate
}

// nanoseconds rounds a time up to whole nanoseconds, for an order that does not
// hang on the last bit.
func nanoseconds(seconds float64) int64 {
	return int64(min(math.Ceil(seconds*1e9), math.MaxInt64/2))
}
