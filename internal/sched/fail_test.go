package sched

import (
	"errors"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/direction"
)

const mib = 1 << 20

// warmed is a simulation whose lanes are connected and measured.
func warmed(t testing.TB, cfg Config, lanes []laneOf, more ...Group) (*sim, *Route) {
	t.Helper()
	s := newSim(t, cfg)
	r := s.route(s.group("tcp", lanes))
	r.Groups = append(r.Groups, more...)
	s.warm(r)
	return s, r
}

func (s *sim) warm(r *Route) {
	s.t.Helper()
	s.submit(writeOf(r, 64*mib))
	s.all()
	if err := s.done[len(s.done)-1].Result.Err; err != nil {
		s.t.Fatal(err)
	}
	s.told = nil
}

func (s *sim) well(j *Job) {
	s.t.Helper()
	if j.Result.Err != nil {
		s.t.Errorf("the job failed: %v", j.Result.Err)
	}
}

func (s *sim) noNotes(codes ...NoteCode) {
	s.t.Helper()
	for _, code := range codes {
		if n := s.count(code); n != 0 {
			s.t.Errorf("%d notes of %s: %+v", n, code, s.told)
		}
	}
}

func (s *sim) noted(code NoteCode, n int) {
	s.t.Helper()
	if got := s.count(code); got != n {
		s.t.Errorf("%d notes of %s, want %d: %+v", got, code, n, s.told)
	}
}

func ideal(bytes int64, rates ...topo.Rate) float64 {
	n := 0.0
	for _, r := range rates {
		n += float64(r)
	}
	return float64(bytes) / n
}

// A connection that dies costs no op: its slices are sent again at once.
func TestLaneKilled(t *testing.T) {
	s, r := warmed(t, Config{}, same(2*gbit, 2*gbit))
	j := s.submit(writeOf(r, 256*mib))
	at := int64(0)
	s.in(200*millisecond, func() { at = s.now; s.links[0].refuse = true; s.links[0].cut(nil) })
	s.all()
	s.well(j)
	tr := s.tracks[j]
	if len(tr.resent) == 0 {
		t.Fatal("nothing was sent again")
	}
	last := tr.resent[len(tr.resent)-1] - at
	if sliceTime := int64(87 << 10 / 0.25); last > max(50*millisecond, 3*sliceTime) {
		t.Errorf("the last slice was sent again %d µs after the loss", last/1000)
	}
	s.noted(LaneSick, 1)
	// 200 ms of both, the rest over one.
	want := 0.2 + (float64(256*mib)-0.2*float64(4*gbit))/float64(2*gbit)
	if got := took(j); got > want+0.01 {
		t.Errorf("took %.3f s, ideal is %.3f s", got, want)
	}
	t.Logf("%d slices sent again, the last after %d µs", len(tr.resent), last/1000)
}

// That is so beside other jobs, too: what has to be sent again comes first.
func TestLaneKilledBesideOthers(t *testing.T) {
	s, r := warmed(t, Config{}, same(2*gbit, 2*gbit))
	j := s.submit(writeOf(r, 64*mib))
	s.settle(5 * millisecond) // it has both lanes for itself
	for range 30 {
		s.submit(writeOf(r, 16*mib))
	}
	at := s.now
	s.links[0].refuse = true
	s.links[0].cut(nil)
	s.all()
	tr := s.tracks[j]
	if len(tr.resent) < 10 {
		t.Fatalf("%d slices were sent again", len(tr.resent))
	}
	if last := tr.resent[len(tr.resent)-1] - at; last > 8*millisecond {
		t.Errorf("the last slice was sent again %d µs after the loss", last/1000)
	}
}

// A link that goes silent is found out, and all is done soon after, wherever in
// the transfer that happens: at its end no other lane has anything to do.
func TestSilentLoss(t *testing.T) {
	for _, bytes := range []int64{16 * mib, 64 * mib, 256 * mib} {
		for _, part := range []float64{0.05, 0.3, 0.7, 0.95, 0.99} {
			s, r := warmed(t, Config{}, same(2*gbit, 2*gbit))
			j := s.submit(writeOf(r, bytes))
			all := ideal(bytes, 2*gbit, 2*gbit)
			after := part * all
			s.in(int64(after*1e9), func() { s.links[1].setRate(0) })
			s.all()
			s.well(j)
			want := after + (all-after)*2
			if got := took(j); got > want+0.1 {
				t.Errorf("%d MiB, lost at %.0f %%: took %.1f ms, ideal is %.1f ms", bytes/mib, 100*part, got*1e3, want*1e3)
			}
			s.noted(LaneSick, 1)
			s.noNotes(PeerStalled)
		}
	}
}

// The only lane of a transport goes silent: another transport shows that the
// peer is alive, and takes over.
func TestSilentLossOfTheOnlyLane(t *testing.T) {
	for _, part := range []float64{0.3, 0.999} {
		s := newSim(t, Config{})
		r := s.route(s.group("rdma", same(10*gbit)), s.group("tcp", same(2*gbit)))
		s.warm(r)
		j := s.submit(writeOf(r, 64*mib))
		after := part * ideal(64*mib, 10*gbit)
		s.in(int64(after*1e9), func() { s.link("rdma0").setRate(0) })
		s.all()
		s.well(j)
		want := after + (1-part)*ideal(64*mib, 2*gbit)
		if got := took(j); got > want+0.13 {
			t.Errorf("lost at %.1f %%: took %.1f ms, ideal is %.1f ms", 100*part, got*1e3, want*1e3)
		}
		s.noted(LaneSick, 1)
		s.noted(Fallback, map[bool]int{true: 1, false: s.count(Fallback)}[part < 0.9])
	}
}

// What every connection to a peer carries is swallowed, and new ones are not: one lane is asked
// over a second connection, and all go on over new ones.
func TestSwallowed(t *testing.T) {
	for _, lanes := range [][]laneOf{same(2 * gbit), same(2*gbit, 2*gbit, gbit)} {
		for _, kind := range []direction.Direction{direction.Write, direction.Read} {
			s, r := warmed(t, Config{}, lanes)
			j := writeOf(r, 64*mib)
			j.Ops[0].Kind, j.DeadlineNS = kind, s.now+40*second
			s.submit(j)
			s.in(20*millisecond, func() {
				for id := range lanes {
					s.links[LaneID(id)].swallow()
				}
			})
			s.all()
			s.well(j)
			if took(j) > 1.5 {
				t.Errorf("%d lanes: took %.3f s", len(lanes), took(j))
			}
			s.noted(LaneSick, len(lanes))
			s.settle(5 * second)
			for id, c := range s.conns {
				if c.spare && !c.dead {
					t.Errorf("the second connection %d is still there", id)
				}
			}
		}
	}
}

// A peer that lets connections in and stands still for seconds loses none but those it was asked by.
func TestStandsStill(t *testing.T) {
	for _, lanes := range [][]laneOf{same(2 * gbit), same(2*gbit, 2*gbit)} {
		s, r := warmed(t, Config{}, lanes)
		j := s.submit(writeOf(r, 64*mib))
		still := func(on bool) {
			for id := range lanes {
				l := s.links[LaneID(id)]
				l.hold = on
				l.setRate(map[bool]topo.Rate{true: 0, false: 2 * gbit}[on])
			}
		}
		s.in(20*millisecond, func() { still(true) })
		s.in(6*second, func() { still(false) })
		s.all()
		s.well(j)
		s.noNotes(LaneSick)
		s.noted(PeerStalled, 1)
	}
}

// A slowed link costs little: its window is time, and the rest goes elsewhere.
func TestLaneSlows(t *testing.T) {
	s, r := warmed(t, Config{}, same(2*gbit, 2*gbit))
	j := s.submit(writeOf(r, 256*mib))
	s.in(200*millisecond, func() { s.links[0].setRate(gbit / 5) })
	s.all()
	s.well(j)
	want := 0.2 + (float64(256*mib)-0.2*float64(4*gbit))/float64(2*gbit+gbit/5)
	if got := took(j); got > 1.1*want {
		t.Errorf("took %.3f s, ideal is %.3f s", got, want)
	} else {
		t.Logf("took %.3f s, ideal is %.3f s", got, want)
	}
	s.noNotes(LaneSick, PeerStalled)
}

// A lane that was down is used again.
func TestLaneComesBack(t *testing.T) {
	for _, silent := range []bool{false, true} {
		s, r := warmed(t, Config{}, same(2*gbit, 2*gbit))
		j := s.submit(writeOf(r, 1024*mib))
		l := s.links[1]
		s.in(200*millisecond, func() {
			l.refuse = true
			if silent {
				l.setRate(0)
			} else {
				l.cut(nil)
			}
		})
		carried := int64(0)
		s.in(1700*millisecond, func() { l.refuse = false; l.setRate(2 * gbit); carried = l.carried })
		s.all()
		s.well(j)
		if l.carried-carried < 64*mib {
			t.Errorf("silent=%v: the lane carried %d MiB after it came back", silent, (l.carried-carried)/mib)
		}
		s.noted(LaneSick, 1)
		s.noted(LaneTested, 1)
		s.noted(LaneWell, 1)
		t.Logf("silent=%v: %.3f s", silent, took(j))
	}
}

// Time without CPU counts for nobody: everything that happened in it arrives at
// once, or shortly after.
func TestNoCPU(t *testing.T) {
	for _, lanes := range [][]laneOf{same(2*gbit, 2*gbit), same(2*gbit, gbit/4), same(10*gbit, 10*gbit, 10*gbit, 10*gbit)} {
		s, r := warmed(t, Config{}, lanes)
		j := s.submit(writeOf(r, 512*mib))
		for k := range int64(3) {
			s.in((20+250*k)*millisecond, func() { s.wakeAt = s.now + 200*millisecond })
		}
		s.all()
		s.well(j)
		s.noNotes(LaneSick, PeerStalled)
		if s.count(Descheduled) == 0 {
			t.Error("no note")
		}
	}
}

// A peer that does not run for a while costs no lane either, whichever of its
// lanes is the first to move again.
func TestPeerWithoutCPU(t *testing.T) {
	for first := range 3 {
		rates := []topo.Rate{2 * gbit, 2 * gbit, gbit / 2}
		s, r := warmed(t, Config{}, same(rates...))
		j := s.submit(writeOf(r, 128*mib))
		for i, rate := range rates {
			s.in(30*millisecond+int64(i)*millisecond, func() { s.links[LaneID(i)].setRate(0) })
			late := int64((i+3-first)%3) * 2 * millisecond
			s.in(330*millisecond+late, func() { s.links[LaneID(i)].setRate(rate) })
		}
		s.all()
		s.well(j)
		s.noNotes(LaneSick)
		s.noted(PeerStalled, 1)
	}
}

// While every lane of the better transport is sick the other one is used; both
// ways are told once, and jobs have it in their notes.
func TestFallback(t *testing.T) {
	s := newSim(t, Config{})
	r := s.route(s.group("shm", same(10*gbit, 10*gbit)), s.group("tcp", same(2*gbit)))
	s.warm(r)
	j := s.submit(writeOf(r, 256*mib))
	for _, name := range []string{"shm0", "shm1"} {
		l := s.link(name)
		s.in(20*millisecond, func() { l.refuse = true; l.cut(nil) })
		s.in(150*millisecond, func() { l.refuse = false })
	}
	var later *Job
	s.in(300*millisecond, func() {
		later = &Job{Route: r, Ops: []Op{{Bytes: 64 << 10, Count: 1}}}
		s.after(0, func() []Event {
			return []Event{{Kind: Submit, Job: later}}
		})
	})
	s.all()
	s.well(j)
	s.noted(Fallback, 1)
	s.noted(FallbackOver, 1)
	for _, x := range []*Job{j, later} {
		if n := notes(x, Fallback); n != 1 {
			t.Errorf("notes of the job: %+v", x.Result.Notes)
		}
	}
	if s.link("tcp0").carried == 0 {
		t.Error("tcp carried nothing")
	}
	before := s.link("tcp0").carried
	s.submit(writeOf(r, 64*mib))
	s.all()
	if s.link("tcp0").carried != before {
		t.Error("tcp is still used")
	}
}

// Checksum errors cost a retry; several in a short time cost the lane.
func TestChecksumErrors(t *testing.T) {
	for _, many := range []bool{false, true} {
		s, r := warmed(t, Config{}, same(2*gbit, 2*gbit))
		j := s.submit(writeOf(r, 64*mib))
		n := 1
		if many {
			n = 5
		}
		for k := range int64(n) {
			s.in((10+8*k)*millisecond, func() { s.fail(s.links[0], Event{Err: errors.New("checksum mismatch"), Retry: true}) })
		}
		s.all()
		s.well(j)
		if many {
			s.noted(LaneSick, 1)
		} else {
			s.noNotes(LaneSick)
			if j.Result.Retries != 1 {
				t.Errorf("%d retries", j.Result.Retries)
			}
		}
	}
}

// fail has the slice that a link serves fail.
func (s *sim) fail(l *simLink, e Event) {
	if len(l.queue) == 0 {
		return
	}
	x := l.queue[0]
	l.queue = l.queue[1:]
	l.held -= x.s.Bytes
	if len(l.queue) > 0 {
		l.left, l.since = float64(l.queue[0].s.Bytes), s.now
	}
	l.schedule()
	e.Kind, e.Slice = Done, x.s
	s.after(l.latency, func() []Event {
		if !x.conn.posted[x.s] {
			return nil
		}
		x.conn.take(x.s)
		return []Event{e}
	})
}

// A probe lies over what the silent lane brings in the end: if it fails, what it may have
// changed is sent again, whichever of the two came last.
func TestProbeThatFails(t *testing.T) {
	for _, kind := range []direction.Direction{direction.Write, direction.Read} {
		t.Run(kind.String(), func(t *testing.T) {
			s := newSim(t, Config{})
			r := s.route(s.group("shm", same(2*gbit)), s.group("tcp", same(2*gbit)))
			s.warm(r)
			j := writeOf(r, 64*mib)
			j.Ops[0].Kind = kind
			s.submit(j)
			s.in(10*millisecond, func() { s.link("shm0").setRate(0) })
			var probe *Slice
			s.run(s.now+30*second, func() bool {
				for x := range s.posted {
					if x.Probe {
						probe = x
					}
				}
				return probe != nil
			})
			if probe == nil {
				t.Fatal("no probe is posted")
			}
			s.fail(s.link("tcp0"), Event{Err: errors.New("payload does not match its tag"), MayLand: kind == direction.Write, Retry: true})
			s.link("shm0").setRate(2 * gbit)
			s.all()
			s.well(j)
			if j.Result.Bytes != 64*mib || j.Result.Retries == 0 || len(s.tracks[j].resent) == 0 {
				t.Errorf("%d bytes, %d retries, sent again at %v", j.Result.Bytes, j.Result.Retries, s.tracks[j].resent)
			}
		})
	}
}

// What the peer refuses is not tried again: the job fails, names the op, and is
// over when nothing of it is in flight.
func TestRefused(t *testing.T) {
	s, r := warmed(t, Config{}, same(2*gbit, 2*gbit))
	j := &Job{Route: r}
	for i := range 256 {
		j.Ops = append(j.Ops, Op{Bytes: 64 << 10, Count: 1, LocalOffset: int64(i) * 100_000, RemoteOffset: int64(i) * 70_000})
	}
	s.submit(j)
	refused := errors.New("no such region")
	s.in(20*millisecond, func() { s.fail(s.links[0], Event{Err: refused}) })
	other := writeOf(r, 16*mib)
	s.submit(other)
	s.all()
	s.well(other)
	var op *OpError
	if !errors.Is(j.Result.Err, refused) || !errors.As(j.Result.Err, &op) {
		t.Fatalf("error %v", j.Result.Err)
	}
	if op.Lane != "tcp0" || op.First == 0 || op.Last < op.First || op.Last >= 256 {
		t.Errorf("error %+v", op)
	}
	s.noNotes(LaneSick)
	if j.Result.Bytes == 0 || j.Result.Bytes == 16*mib {
		t.Errorf("%d bytes", j.Result.Bytes)
	}
}

// A slice that fails everywhere fails its job in the end.
func TestAttempts(t *testing.T) {
	s := newSim(t, Config{MaxAttempts: 3})
	r := s.route(s.group("tcp", same(2*gbit)))
	s.warm(r)
	j := s.submit(&Job{Route: r, Ops: []Op{{Bytes: 4096, Count: 1, Kind: direction.Read}}})
	for k := range int64(100) {
		s.in(k*10*microsecond, func() { s.links[0].queue0(s) })
		s.in(5*millisecond+k*10*microsecond, func() { s.links[0].queue0(s) })
		s.in(10*millisecond+k*10*microsecond, func() { s.links[0].queue0(s) })
		s.in(110*millisecond+k*10*microsecond, func() { s.links[0].queue0(s) })
	}
	s.all()
	if !errors.Is(j.Result.Err, ErrAttempts) {
		t.Errorf("error %v after %d retries", j.Result.Err, j.Result.Retries)
	}
}

func (l *simLink) queue0(s *sim) { s.fail(l, Event{Err: errors.New("checksum mismatch"), Retry: true}) }

// A half-open lane holds one slice at a time.
func TestHalfOpen(t *testing.T) {
	s, r := warmed(t, Config{}, same(2*gbit, 2*gbit))
	s.submit(writeOf(r, 128*mib))
	s.in(10*millisecond, func() { s.links[0].cut(nil) })
	tested := 0
	for s.run(s.now+200*second, func() bool {
		l := s.core.lanes[0]
		if l.testing {
			tested++
			if len(l.slices) > 1 {
				t.Fatalf("%d slices on a half-open lane", len(l.slices))
			}
		}
		return len(s.done) == 2
	}); len(s.done) < 2; {
	}
	if tested == 0 {
		t.Error("it was not tested")
	}
	s.noted(LaneWell, 1)
}

// An idle engine tests a sick lane for a while after the last job, and then
// rests until the next job.
func TestIdle(t *testing.T) {
	s, r := warmed(t, Config{}, same(2*gbit, 2*gbit))
	s.links[0].refuse = true
	s.links[0].cut(nil)
	s.settle(60 * second)
	if next := s.core.Next(); next != Never {
		t.Errorf("an idle engine wants to run in %d ms", (next-s.now)/millisecond)
	}
	if n := s.core.lanes[0].failures; n < 4 || n > 12 {
		t.Errorf("%d dials failed", n)
	}
	s.links[0].refuse = false
	s.submit(writeOf(r, 64*mib))
	s.all()
	s.noted(LaneWell, 1)
}

// The link of a port is seen to be down and up again.
func TestPortDown(t *testing.T) {
	s, r := warmed(t, Config{}, same(2*gbit, 2*gbit))
	j := s.submit(writeOf(r, 256*mib))
	s.after(10*millisecond, func() []Event { return []Event{{Kind: PortDown, Side: s.side, Port: 1}} })
	down := int64(0)
	s.in(11*millisecond, func() { down = s.links[1].carried })
	s.in(400*millisecond, func() {
		if s.links[1].carried != down {
			t.Error("a lane is used whose port is down")
		}
	})
	s.after(400*millisecond, func() []Event { return []Event{{Kind: PortUp, Side: s.side, Port: 1}} })
	s.all()
	s.well(j)
	if s.links[1].carried-down < 8*mib {
		t.Errorf("%d bytes after it was up again", s.links[1].carried-down)
	}
}

// The user takes a lane out and puts it back; a lane that is gone ends what it
// has and is closed.
func TestSuspendAndGone(t *testing.T) {
	s, r := warmed(t, Config{}, same(2*gbit, 2*gbit, 2*gbit))
	j := s.submit(writeOf(r, 512*mib))
	s.after(50*millisecond, func() []Event { return []Event{{Kind: Suspend, Lane: 0}, {Kind: LaneGone, Lane: 1}} })
	var at [2]int64
	s.in(60*millisecond, func() { at = [2]int64{s.links[0].carried, s.links[1].carried} })
	s.in(400*millisecond, func() {
		if now := [2]int64{s.links[0].carried, s.links[1].carried}; now != at {
			t.Errorf("carried %v, then %v", at, now)
		}
	})
	s.after(400*millisecond, func() []Event { return []Event{{Kind: Resume, Lane: 0}} })
	s.all()
	s.well(j)
	if j.Result.Lanes[1].Retries != 0 {
		t.Error("the lane that is gone did not end its slices")
	}
	if s.links[0].carried-at[0] < 8*mib {
		t.Error("the lane was not used after it was put back")
	}
	if stats := s.core.Lanes(nil); len(stats) != 2 {
		t.Errorf("lanes %+v", stats)
	}
}

// New lanes come with a new set of groups.
func TestRouteChanged(t *testing.T) {
	s := newSim(t, Config{})
	old := s.group("tcp", same(2*gbit))
	r := s.route(old)
	j := s.submit(writeOf(r, 256*mib))
	other := s.group("new", same(10*gbit))
	s.after(50*millisecond, func() []Event {
		return []Event{{Kind: RouteChanged, Route: r, Groups: []Group{other}}, {Kind: LaneGone, Lane: old.Lanes[0]}}
	})
	s.all()
	s.well(j)
	if s.link("new0").carried < 200*mib {
		t.Errorf("%d bytes over the new lane", s.link("new0").carried)
	}
}

// A dial that hangs does not hold up a transfer: the next lane is tried.
func TestSlowDial(t *testing.T) {
	s := newSim(t, Config{})
	r := s.route(s.group("rdma", same(2*gbit)), s.group("tcp", same(2*gbit)))
	s.link("rdma0").dialIn = 20 * second
	j := s.submit(writeOf(r, 16*mib))
	s.all()
	s.well(j)
	if got := took(j); got > 1.2 {
		t.Errorf("took %.3f s", got)
	}
	s.noted(Fallback, 1)
}

// While nothing else is left, a lane that failed often is tested often: the job
// does not wait for the end of a long backoff.
func TestOnlyLaneComesBackSoon(t *testing.T) {
	s, r := warmed(t, Config{}, same(2*gbit))
	j := s.submit(writeOf(r, 64*mib))
	back := int64(0)
	s.in(50*millisecond, func() { s.links[0].refuse = true; s.links[0].cut(nil) })
	s.in(10*second, func() { back = s.now; s.links[0].refuse = false })
	s.all()
	s.well(j)
	resent := s.tracks[j].resent
	if len(resent) == 0 || resent[0]-back > 250*millisecond {
		t.Errorf("sent again at %v ns, want within 250 ms of %d", resent, back)
	}
}

// notes counts the notes of a job with a code.
func notes(j *Job, code NoteCode) int {
	n := 0
	for _, x := range j.Result.Notes {
		if x.Code == code {
			n++
		}
	}
	return n
}
