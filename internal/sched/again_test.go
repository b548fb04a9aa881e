package sched

import (
	"errors"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pick"
)

// A connection that dies tells so slice by slice, and only then that it is lost:
// meanwhile it is given nothing, or attempts would be used up in no time.
func TestNothingForADyingConnection(t *testing.T) {
	s := newSim(t, Config{MaxAttempts: 2})
	r := s.route(s.group("tcp", same(2*gbit)))
	s.warm(r)
	j := s.submit(readOf(r, 64*mib))
	s.in(10*millisecond, func() {
		l := s.links[0]
		var c *simConn
		for _, x := range s.sorted() {
			if x.link == l && !x.dead {
				c = x
			}
		}
		l.queue, l.held = nil, 0
		l.gen++
		back := c.order
		c.order = nil
		for i, x := range back[:2] {
			s.after(int64(i+1)*100*microsecond, func() []Event {
				delete(c.posted, x)
				return []Event{{Kind: Done, Slice: x, Err: errors.New("reset"), Retry: true}}
			})
		}
		s.after(millisecond, func() []Event {
			if len(c.posted) != len(back)-2 {
				t.Errorf("the connection was given %d slices more", len(c.posted)-len(back)+2)
			}
			var events []Event
			for _, x := range back[2:] {
				events = append(events, Event{Kind: Done, Slice: x, Err: errors.New("reset"), Retry: true})
			}
			clear(c.posted)
			return append(events, Event{Kind: Lost, Lane: 0, Conn: c.id, Err: errors.New("reset")})
		})
	})
	s.all()
	s.well(j)
}

// Routes of one peer share the notes of a fallback.
func TestFallbackIsToldOnce(t *testing.T) {
	s := newSim(t, Config{})
	shm, tcp := s.group("shm", same(10*gbit)), s.group("tcp", same(2*gbit))
	one, two := s.route(shm, tcp), s.route(shm, tcp)
	s.warm(one)
	a, b := s.submit(writeOf(one, 64*mib)), s.submit(writeOf(two, 64*mib))
	s.in(10*millisecond, func() { s.link("shm0").cut(nil) })
	s.all()
	s.well(a)
	s.well(b)
	s.noted(Fallback, 1)
	s.noted(FallbackOver, 1)
	for _, j := range []*Job{a, b} {
		if n := notes(j, Fallback); n == 0 {
			t.Errorf("notes %+v", j.Result.Notes)
		}
	}
}

// Room on a port that one peer leaves is used by another at once, not at the
// next tick.
func TestPortRoomIsPassedOn(t *testing.T) {
	s := newSim(t, Config{LocalPortNS: microsecond, StallFloorNS: 100 * second, MaxTickGapNS: 100 * second})
	here := s.core.AddSide([]topo.Rate{2 * gbit})
	var jobs []*Job
	for range 3 {
		peer := s.core.AddPeer("n")
		there := s.core.AddSide(nil)
		lane := s.core.AddLane(LaneSpec{Peer: peer, Name: "lane", Transport: "tcp", LocalSide: here, RemoteSide: there, RateBytesPerSec: 2 * gbit})
		s.links[lane] = &simLink{s: s, lane: lane, rate: float64(2 * gbit), latency: 20 * microsecond, limits: Limits{MaxSpans: 64, MaxBytes: mib, MaxPosted: 64}}
		set := pick.List{TCP: true, Lanes: []pick.Listed{{LocalName: "eth0", RemoteName: "eth0", BytesPerSec: 2 * gbit}}}.Set()
		jobs = append(jobs, s.submit(writeOf(&Route{Peer: peer, Groups: []Group{{Transport: "tcp", Set: set, Lanes: []LaneID{lane}}}}, 8*mib)))
	}
	s.all()
	for _, j := range jobs {
		s.well(j)
		if took(j) > 1 {
			t.Errorf("took %.3f s", took(j))
		}
	}
}

// A lane that is gone stays until its slices are back, even where its loss is told before
// them: their job waits for each.
func TestGoneLaneKeepsItsSlices(t *testing.T) {
	s := newSim(t, Config{})
	r := s.route(s.group("tcp", same(2*gbit)))
	s.warm(r)
	j := s.submit(readOf(r, 64*mib))
	l, c := s.links[0], s.sorted()[0]
	l.queue, l.held = nil, 0
	l.gen++
	back := c.order
	c.order = nil
	clear(c.posted)
	if len(back) < 2 {
		t.Fatalf("%d slices are in flight", len(back))
	}
	s.step(Event{Kind: LaneGone, Lane: 0}, Event{Kind: Lost, Lane: 0, Conn: c.id, Err: errors.New("reset")})
	for i, x := range back {
		if s.core.lanes[0] == nil || j.finished {
			t.Fatalf("%d slices are out: the lane is %v, the job is over: %v", len(back)-i, s.core.lanes[0], j.finished)
		}
		s.step(Event{Kind: Done, Slice: x, Err: errors.New("reset"), Retry: true})
	}
	if s.core.lanes[0] != nil || s.core.posted != 0 || j.inflight != 0 {
		t.Errorf("lane %v, %d slices in flight, %d of the job", s.core.lanes[0], s.core.posted, j.inflight)
	}
	s.step(Event{Kind: Cancel, Job: j})
	if !j.finished {
		t.Error("the job never ends")
	}
}
