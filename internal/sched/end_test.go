package sched

import (
	"errors"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/internal/direction"
)

func withDeadline(j *Job, s *sim, in int64) *Job {
	j.DeadlineNS = s.now + in
	return j
}

func readOf(r *Route, bytes int64) *Job {
	return &Job{Route: r, Ops: []Op{{Bytes: bytes, Count: 1, Kind: direction.Read, Local: 1, Remote: 2}}}
}

// by says whether a job ended at a time from its start, in milliseconds.
func (s *sim) by(j *Job, from, to float64) {
	s.t.Helper()
	if got := took(j) * 1e3; got < from || got > to {
		s.t.Errorf("the job ended after %.1f ms, want %.1f to %.1f", got, from, to)
	}
}

// All lanes are dead: there is a clear error by the deadline, and whoever the
// peer could not leave any more is named.
func TestAllLanesDead(t *testing.T) {
	for _, tt := range []struct {
		name   string
		fence  int64 // the peer answers after so long
		silent bool
		unsafe bool
	}{
		{"reset, the peer answers", 200 * microsecond, false, false},
		{"reset, the peer is dead", Never, false, true},
		{"silent, the peer answers", 200 * microsecond, true, false},
		{"silent, the peer is dead", Never, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, r := warmed(t, Config{}, same(2*gbit, 2*gbit))
			s.fenceIn = tt.fence
			j := withDeadline(writeOf(r, 1024*mib), s, 1000*millisecond)
			read := withDeadline(readOf(r, 1024*mib), s, 1000*millisecond)
			s.submit(j)
			s.submit(read)
			s.in(50*millisecond, func() {
				for _, l := range []LaneID{0, 1} {
					s.links[l].refuse = true
					if tt.silent {
						s.links[l].setRate(0)
					} else {
						s.links[l].cut(nil)
					}
				}
			})
			s.all()
			for _, x := range []*Job{j, read} {
				if !errors.Is(x.Result.Err, ErrDeadline) {
					t.Errorf("error %v", x.Result.Err)
				}
				if text := x.Result.Err.Error(); strings.Count(text, "lane tcp") != 1 || strings.Contains(text, "n2") {
					t.Errorf("error %q: want the lane in it, once, and no peer", text)
				}
				var lane *LaneError
				if !errors.As(x.Result.Err, &lane) || !strings.HasPrefix(lane.Lane, "tcp") {
					t.Errorf("error %q is of no lane", x.Result.Err)
				}
				s.by(x, 999, 1010)
			}
			if got := len(j.Result.Unsafe) > 0; got != tt.unsafe {
				t.Errorf("unsafe: %v, error %v", j.Result.Unsafe, j.Result.Err)
			}
			if len(read.Result.Unsafe) > 0 {
				t.Errorf("a read is unsafe: %v", read.Result.Err)
			}
			if tt.unsafe {
				s.noted(UnsafeBuffer, 1)
			}
		})
	}
}

// At a deadline slices on lanes that move may end; their lanes stay well.
func TestDeadlineDrains(t *testing.T) {
	s, r := warmed(t, Config{}, same(2*gbit, 2*gbit))
	j := withDeadline(writeOf(r, 1024*mib), s, 100*millisecond)
	s.submit(j)
	s.all()
	if !errors.Is(j.Result.Err, ErrDeadline) || errors.Is(j.Result.Err, ErrUnsafe) {
		t.Errorf("error %v", j.Result.Err)
	}
	s.by(j, 100, 110)
	s.noNotes(LaneSick, UnsafeBuffer)
	if j.Result.Retries != 0 {
		t.Errorf("%d retries", j.Result.Retries)
	}
	s.submit(writeOf(r, mib))
	s.all()
	s.well(s.done[len(s.done)-1])
}

// A cancelled job ends as one at its deadline does.
func TestCancel(t *testing.T) {
	s, r := warmed(t, Config{}, same(2*gbit, 2*gbit))
	why := errors.New("no longer needed")
	j, other := s.submit(writeOf(r, 1024*mib)), s.submit(writeOf(r, 64*mib))
	s.after(30*millisecond, func() []Event {
		return []Event{{Kind: Cancel, Job: j, Err: why}, {Kind: Cancel, Job: j, Err: why}}
	})
	s.all()
	s.after(0, func() []Event { return []Event{{Kind: Cancel, Job: j, Err: why}} }) // it is over
	s.settle(second)
	if !errors.Is(j.Result.Err, why) {
		t.Errorf("error %v", j.Result.Err)
	}
	s.by(j, 30, 45)
	s.well(other)
	s.noNotes(LaneSick)

	// On lanes that stand still it is not waited for.
	s.fenceIn = Never
	j = s.submit(writeOf(r, 64*mib))
	s.in(30*millisecond, func() { s.links[0].setRate(0); s.links[1].setRate(0) })
	s.after(230*millisecond, func() []Event { return []Event{{Kind: Cancel, Job: j}} })
	s.all()
	s.by(j, 230, 230+210)
	if len(j.Result.Unsafe) == 0 {
		t.Error("nothing is unsafe")
	}
}

// What was lost is sent again only when the peer has left the dead connection.
func TestLateFence(t *testing.T) {
	s, r := warmed(t, Config{}, same(2*gbit, 2*gbit))
	s.fenceIn = 3 * second
	j := s.submit(writeOf(r, 64*mib))
	s.in(20*millisecond, func() { s.links[0].cut(nil) })
	s.all()
	s.well(j)
	s.by(j, 3019, 3025)

	// At its deadline it does not wait any longer.
	s.fenceIn = Never
	j = withDeadline(writeOf(r, 64*mib), s, 500*millisecond)
	s.submit(j)
	s.in(20*millisecond, func() { s.links[0].cut(nil) })
	s.all()
	s.by(j, 500, 501)
	if !errors.Is(j.Result.Err, ErrUnsafe) || !errors.Is(j.Result.Err, ErrDeadline) || j.Result.Bytes == 64*mib || len(j.Result.Unsafe) != 1 {
		t.Errorf("result %+v", j.Result)
	}
	// The answer that comes after that is no matter to anybody.
	s.step(Event{Kind: Fenced, Conn: j.Result.Unsafe[0]}, Event{Kind: Fenced, Conn: j.Result.Unsafe[0]})
	if len(s.core.fences) != 0 {
		t.Errorf("%d fences are kept", len(s.core.fences))
	}
}

// A peer that restarted has lost its memory: nothing can land there. Of one that
// is only gone nobody knows.
func TestPeerGone(t *testing.T) {
	why := errors.New("peer left")
	for _, restarted := range []bool{true, false} {
		s, r := warmed(t, Config{}, same(2*gbit, 2*gbit))
		s.fenceIn = Never
		j, read := s.submit(writeOf(r, 1024*mib)), s.submit(readOf(r, 1024*mib))
		s.in(20*millisecond, func() { s.links[0].cut(nil) })
		s.after(100*millisecond, func() []Event {
			return []Event{{Kind: PeerGone, Peer: s.peer, Err: why, Restarted: restarted}}
		})
		s.all()
		s.by(j, 100, 101)
		s.by(read, 100, 101)
		if !errors.Is(j.Result.Err, why) || !errors.Is(read.Result.Err, why) {
			t.Errorf("errors %v and %v", j.Result.Err, read.Result.Err)
		}
		if want := map[bool]int{true: 0, false: 2}[restarted]; len(j.Result.Unsafe) != want {
			t.Errorf("restarted=%v: unsafe %v", restarted, j.Result.Unsafe)
		}
		if len(s.core.fences) != 0 {
			t.Errorf("%d fences are kept", len(s.core.fences))
		}
		// The peer can be used again.
		s.settle(second)
		s.submit(writeOf(r, mib))
		s.all()
		s.well(s.done[len(s.done)-1])
	}
}

// A job that only waits for a fence does not wait for a peer that is gone.
func TestPeerGoneBeforeItAnswers(t *testing.T) {
	s, r := warmed(t, Config{}, same(2*gbit, 2*gbit))
	s.fenceIn = Never
	j := s.submit(writeOf(r, 4*mib))
	s.in(2*millisecond, func() { s.links[0].cut(nil) })
	s.after(100*millisecond, func() []Event { return []Event{{Kind: PeerGone, Peer: s.peer}} })
	s.all()
	s.by(j, 100, 101)
	if len(j.Result.Unsafe) != 1 || j.Result.Bytes == 4*mib || j.Result.Bytes == 0 {
		t.Errorf("result %+v", j.Result)
	}
}

// Jobs that move nothing, or cannot, are over at once.
func TestNothingToDo(t *testing.T) {
	s := newSim(t, Config{})
	r := s.route(s.group("tcp", same(2*gbit)))
	j := s.submit(&Job{Route: r, Ops: []Op{{Bytes: 0, Count: 1}, {Bytes: 10, Count: 0}}})
	if len(s.done) != 1 || j.Result.Err != nil || s.slices != 0 {
		t.Errorf("%d jobs are over, %+v", len(s.done), j.Result)
	}
	j = s.submit(&Job{Route: r})
	if len(s.done) != 2 || j.Result.Err != nil {
		t.Errorf("%d jobs are over, %+v", len(s.done), j.Result)
	}
	j = s.submit(writeOf(s.route(), 10))
	if len(s.done) != 3 || !errors.Is(j.Result.Err, ErrNoLane) {
		t.Errorf("%d jobs are over, %+v", len(s.done), j.Result)
	}
	if next := s.core.Next(); next != Never && next < s.now {
		t.Errorf("next is %d", next)
	}
}

// Peers that come and go leave nothing behind.
func TestManyPeers(t *testing.T) {
	s := newSim(t, Config{})
	s.core.RemovePeer(s.peer)
	for i := range 200 {
		s.peer = s.core.AddPeer("n")
		g := s.group("tcp", same(2*gbit, 2*gbit))
		s.submit(writeOf(s.route(g), mib))
		s.all()
		events := []Event{{Kind: PeerGone, Peer: s.peer, Err: errors.New("closed")}}
		for _, id := range g.Lanes {
			events = append(events, Event{Kind: LaneGone, Lane: id})
		}
		s.step(events...)
		s.core.RemovePeer(s.peer)
		s.core.RemoveSide(s.side)
		s.core.RemoveSide(s.far)
		s.settle(second)
		if c := s.core; i%50 == 49 && len(c.lanes)+len(c.peers)+len(c.sides)+len(c.jobs) > 0 {
			t.Fatalf("kept: lanes %+v, %d peers, %d sides, %d jobs", c.lanes, len(c.peers), len(c.sides), len(c.jobs))
		}
	}
	s.settle(20 * second)
	if c := s.core; len(c.routes)+len(c.busy)+len(c.waiting)+len(c.fences) > 0 {
		t.Errorf("kept: %d routes, %d busy peers, %d that wait, %d fences", len(c.routes), len(c.busy), len(c.waiting), len(c.fences))
	}
	j := writeOf(&Route{Peer: s.peer}, 1)
	s.step(Event{Kind: Submit, Job: j}, Event{Kind: PortDown, Side: s.side}, Event{Kind: PeerGone, Peer: s.peer})
}
