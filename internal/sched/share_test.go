package sched

import (
	"fmt"
	"slices"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pick"
)

// Small urgent jobs get through beside a bulk transfer, which still moves.
func TestPriorities(t *testing.T) {
	latency := func(priority Priority) (worst float64, share float64) {
		s, r := warmed(t, Config{}, same(2*gbit, 2*gbit))
		bulk := make([]*Job, 8)
		for i := range bulk {
			bulk[i] = s.submit(writeOf(r, 32*mib))
		}
		var small []*Job
		for k := range int64(100) {
			s.after(k*4*millisecond, func() []Event {
				j := &Job{Route: r, Ops: []Op{{Bytes: 64 << 10, Count: 1}}, Priority: priority}
				small = append(small, j)
				return []Event{{Kind: Submit, Job: j}}
			})
		}
		s.all()
		for _, j := range small {
			worst = max(worst, took(j))
		}
		end := int64(0)
		for _, j := range bulk {
			end = max(end, j.Result.EndNS)
		}
		return worst * 1e3, ideal(256*mib, 4*gbit) / (float64(end-bulk[0].Result.StartNS) / 1e9)
	}
	high, share := latency(High)
	normal, _ := latency(Normal)
	t.Logf("worst of 100: high %.1f ms, normal %.1f ms; bulk got %.2f", high, normal, share)
	if high > 8 { // what a lane holds takes 5 ms
		t.Errorf("an urgent job took %.1f ms", high)
	}
	if share < 0.9 {
		t.Errorf("the bulk got %.2f of the lanes", share)
	}
}

// Normal jobs get an eighth at least.
func TestNormalIsNotStarved(t *testing.T) {
	s, r := warmed(t, Config{}, same(2*gbit))
	normal := s.submit(writeOf(r, 8*mib))
	urgent := writeOf(r, 256*mib)
	urgent.Priority = High
	s.submit(urgent)
	s.all()
	if got, want := took(normal), 8*ideal(8*mib, 2*gbit); got > want*1.05 || got < want/2 {
		t.Errorf("the normal job took %.3f s, want about %.3f", got, want)
	}
}

// Jobs of one class get equal parts.
func TestFairness(t *testing.T) {
	s, r := warmed(t, Config{}, same(2*gbit, 2*gbit))
	other := &Route{Peer: r.Peer, Name: "gpu:0 > n2 gpu:0", Groups: r.Groups}
	var jobs []*Job
	for i := range 9 {
		route := r
		if i%3 == 0 {
			route = other
		}
		jobs = append(jobs, s.submit(writeOf(route, 16*mib)))
	}
	short := s.submit(writeOf(r, mib))
	s.all()
	first, last := took(jobs[0]), took(jobs[0])
	for _, j := range jobs {
		first, last = min(first, took(j)), max(last, took(j))
	}
	if first < 0.85*last { // what is submitted first fills the windows first
		t.Errorf("the first job took %.3f s, the last %.3f s", first, last)
	}
	if want := 10 * ideal(mib, 4*gbit); took(short) > 1.2*want+0.011 {
		t.Errorf("the short job took %.1f ms, want about %.1f", took(short)*1e3, want*1e3)
	}
}

// Lanes to many peers share the window of a port, and none is left out.
func TestPortWindows(t *testing.T) {
	s := newSim(t, Config{})
	const peers = 16
	here := s.core.AddSide([]topo.Rate{2 * gbit})
	var jobs []*Job
	var lanes []LaneID
	shared := &simLink{s: s, name: "port", rate: float64(2 * gbit), latency: 20 * microsecond, limits: Limits{MaxSpans: 64, MaxBytes: mib, MaxPosted: 64}}
	for i := range peers {
		peer := s.core.AddPeer(fmt.Sprint("n", i))
		there := s.core.AddSide([]topo.Rate{2 * gbit})
		lane := s.core.AddLane(LaneSpec{Peer: peer, Name: fmt.Sprint("lane", i), Transport: "tcp", LocalSide: here, RemoteSide: there, RateBytesPerSec: 2 * gbit})
		link := *shared
		link.lane, link.rate = lane, link.rate/peers
		s.links[lane] = &link
		set := pick.List{TCP: true, Lanes: []pick.Listed{{LocalName: "eth0", RemoteName: "eth0", BytesPerSec: 2 * gbit}}}.Set()
		jobs = append(jobs, s.submit(writeOf(&Route{Peer: peer, Name: fmt.Sprint(i), Groups: []Group{{Transport: "tcp", Set: set, Lanes: []LaneID{lane}}}}, 8*mib)))
		lanes = append(lanes, lane)
	}
	// One of them stands still: it holds nobody else up.
	s.in(20*millisecond, func() { s.links[lanes[3]].setRate(0) })
	s.in(1500*millisecond, func() { s.links[lanes[3]].setRate(2 * gbit / peers) })
	most := int64(0)
	s.run(s.now+100*second, func() bool {
		most = max(most, s.core.sides[here].load[0])
		return len(s.done) == peers
	})
	if most == 0 || most > 2_500_000 {
		t.Errorf("the port held %d bytes", most)
	}
	first, last := 1e9, 0.0
	for i, j := range jobs {
		s.well(j)
		if i != 3 {
			first, last = min(first, took(j)), max(last, took(j))
		}
	}
	if want := ideal(8*mib, 2*gbit/peers); last > 1.1*want {
		t.Errorf("took %.3f to %.3f s, want %.3f", first, last, want)
	}
}

// A job that is worth one lane opens one; a large one opens all.
func TestLanesAreOpenedAsDeserved(t *testing.T) {
	s := newSim(t, Config{})
	r := s.route(s.group("tcp", same(2*gbit, 2*gbit, 2*gbit, 2*gbit)))
	s.submit(writeOf(r, 4096))
	s.all()
	if n := len(s.conns); n != 1 {
		t.Errorf("%d connections for 4 KiB", n)
	}
	s.submit(writeOf(r, 64*mib))
	s.all()
	if n := len(s.conns); n != 4 {
		t.Errorf("%d connections for 64 MiB", n)
	}
}

// Lanes that turned out slower than they promise are worth less each: a job that one
// would have served gets all of them, one that is over in a moment still gets one.
func TestSlowLanesAreDeserved(t *testing.T) {
	s := newSim(t, Config{})
	lanes := same(gbit, gbit, gbit, gbit)
	for i := range lanes {
		lanes[i].promised = 100 * gbit
	}
	r := s.route(s.group("tcp", lanes))
	for _, l := range s.core.lanes {
		l.spec.RoundTripNS = 100 * microsecond // 2.5 MB is what one is worth by its promise, 25 kB by what it does
	}
	for _, step := range []struct {
		bytes int64
		jobs  int
		conns int
	}{
		{mib, 1, 1},
		{16 << 10, 200, 1},
		{mib, 1, 4},
	} {
		for range step.jobs {
			s.submit(writeOf(r, step.bytes))
			s.all()
		}
		if n := len(s.conns); n != step.conns {
			t.Errorf("%d connections after %d jobs of %d KiB, want %d", n, step.jobs, step.bytes>>10, step.conns)
		}
		// Enough to believe what it does, on the lane that there is.
		for !s.core.lanes[0].est.trusted() {
			s.submit(writeOf(r, mib))
			s.all()
		}
	}
}

// Sizes of slices: several for a job that is worth it, none too small.
func TestSliceSizes(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ops   []Op
		lanes []laneOf
		want  []int64 // in KiB, sorted
	}{
		{"one page", []Op{{Bytes: 4096, Count: 1}}, same(40 * gbit), []int64{4}},
		{"512 KiB of pages", []Op{{Bytes: 4096, Count: 128, LocalStride: 8192, RemoteStride: 8192}}, same(40 * gbit), []int64{128, 128, 128, 128}},
		{"the same on two", []Op{{Bytes: 4096, Count: 128, LocalStride: 8192, RemoteStride: 8192}}, same(gbit, gbit), []int64{64, 64, 64, 64, 64, 64, 64, 64}},
		{"a small tail", []Op{{Bytes: 64<<10 + 4096, Count: 1}}, same(gbit), []int64{68}},
		{"a slow lane", []Op{{Bytes: 256 << 10, Count: 1}}, same(gbit / 10), []int64{64, 64, 64, 64}},
		{"a fast lane", []Op{{Bytes: 8 << 20, Count: 1}}, same(100 * gbit), []int64{1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSim(t, Config{})
			s.submit(&Job{Route: s.route(s.group("tcp", tt.lanes)), Ops: tt.ops})
			var got []int64
			s.run(s.now+second, func() bool {
				for i := range s.out {
					if s.out[i].Do == Post {
						got = append(got, s.out[i].Slice.Bytes>>10)
					}
				}
				s.out = s.out[:0]
				return len(s.done) == 1
			})
			slices.Sort(got)
			if !slices.Equal(got, tt.want) {
				t.Errorf("slices of %v KiB, want %v", got, tt.want)
			}
		})
	}
}
