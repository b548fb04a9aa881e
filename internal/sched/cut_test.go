package sched

import (
	"errors"
	"slices"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/direction"
)

// What one slice takes of ops.
func TestCut(t *testing.T) {
	const k = 1 << 10
	page := func(local, remote int64) Op {
		return Op{Local: 1, Remote: 2, LocalOffset: local * k, RemoteOffset: remote * k, Bytes: 4 * k, Count: 1}
	}
	reading := func(o Op) Op { o.Kind = direction.Read; return o }
	span := func(local, remote, bytes int64) Span { return Span{1, 2, local * k, remote * k, bytes * k} }
	for _, tt := range []struct {
		name  string
		ops   []Op
		want  int64 // KiB
		spans int
		slice []Span
		left  cursor
	}{
		{"ops that follow each other are one span", []Op{page(0, 100), page(4, 104), page(8, 108)}, 64, 8, []Span{span(0, 100, 12)}, cursor{3, 0, 0}},
		{"only on both sides", []Op{page(0, 100), page(4, 105), page(9, 109)}, 64, 8, []Span{span(0, 100, 4), span(4, 105, 4), span(9, 109, 4)}, cursor{3, 0, 0}},
		{"and in one region", []Op{page(0, 100), {Local: 3, Remote: 2, LocalOffset: 4 * k, RemoteOffset: 104 * k, Bytes: 4 * k, Count: 1}}, 64, 8,
			[]Span{span(0, 100, 4), {3, 2, 4 * k, 104 * k, 4 * k}}, cursor{2, 0, 0}},
		{"a direction at a time", []Op{page(0, 100), reading(page(4, 104))}, 64, 8, []Span{span(0, 100, 4)}, cursor{1, 0, 0}},
		{"the spans are used up", []Op{page(0, 100), page(8, 108), page(16, 116)}, 64, 2, []Span{span(0, 100, 4), span(8, 108, 4)}, cursor{2, 0, 0}},
		{"a piece that follows is cut anywhere", []Op{page(0, 100), {Local: 1, Remote: 2, LocalOffset: 4 * k, RemoteOffset: 104 * k, Bytes: 100 * k, Count: 1}}, 64, 8,
			[]Span{span(0, 100, 64)}, cursor{1, 0, 60 * k}},
		{"a small piece is not torn at the end", []Op{{Local: 1, Remote: 2, Bytes: 5 * k, Count: 20, LocalStride: 6 * k, RemoteStride: 6 * k}}, 32, 8,
			[]Span{span(0, 0, 5), span(6, 6, 5), span(12, 12, 5), span(18, 18, 5), span(24, 24, 5), span(30, 30, 5)}, cursor{0, 6, 0}},
		{"a large one is", []Op{{Local: 1, Remote: 2, Bytes: 20 * k, Count: 20, LocalStride: 21 * k, RemoteStride: 21 * k}}, 32, 8,
			[]Span{span(0, 0, 20), span(21, 21, 12)}, cursor{0, 1, 12 * k}},
		{"strides without gaps are one piece", []Op{{Local: 1, Remote: 2, Bytes: 5 * k, Count: 20, LocalStride: 5 * k, RemoteStride: 5 * k}}, 32, 1,
			[]Span{span(0, 0, 32)}, cursor{0, 0, 32 * k}},
		{"pages that follow each other", []Op{{Local: 1, Remote: 2, Bytes: 4 * k, Count: 4, LocalStride: 4 * k, RemoteStride: 4 * k,
			LocalPages: []uint32{7, 8, 2, 3}, RemotePages: []uint32{0, 1, 2, 3}}}, 64, 8, []Span{span(28, 0, 8), span(8, 8, 8)}, cursor{1, 0, 0}},
		{"one page of a list", []Op{{Local: 1, Remote: 2, Bytes: 4 * k, Count: 1, LocalStride: 4 * k, LocalPages: []uint32{5}}}, 64, 8, []Span{span(20, 0, 4)}, cursor{1, 0, 0}},
		{"what is empty", []Op{{Bytes: 0, Count: 5}, page(0, 0), {Bytes: 9, Count: 0}}, 64, 8, []Span{span(0, 0, 4)}, cursor{3, 0, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s Slice
			var c cursor
			c.cut(tt.ops, &s, tt.want*k, tt.spans)
			for c.op < len(tt.ops) && tt.ops[c.op].empty() {
				c.next()
			}
			sum := int64(0)
			for _, x := range s.Spans {
				sum += x.Bytes
			}
			if !slices.Equal(s.Spans, tt.slice) || sum != s.Bytes || c != tt.left {
				t.Errorf("spans %v of %d bytes, left %+v; want %v, left %+v", s.Spans, s.Bytes, c, tt.slice, tt.left)
			}
		})
	}
}

// The service rate is what a lane carries, whatever its latency and however
// little it is given.
func TestServiceRate(t *testing.T) {
	for _, tt := range []struct {
		name     string
		rate     topo.Rate
		latency  int64
		bytes    int64 // of a job
		together int   // jobs at a time
		measured bool
	}{
		{"a full lane", gbit, 20 * microsecond, 64 * mib, 1, true},
		{"one far away", gbit, 2 * millisecond, 64 * mib, 1, true},
		{"a fast one", 100 * gbit, 20 * microsecond, 256 * mib, 1, true},
		{"a slow one", gbit / 50, 20 * microsecond, 4 * mib, 1, true},
		{"small jobs, one at a time", gbit, 200 * microsecond, 4096, 1, false},
		{"two at a time", gbit, 200 * microsecond, 4096, 2, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSim(t, Config{})
			r := s.route(s.group("tcp", []laneOf{{rate: tt.rate, latency: tt.latency}}))
			s.core.lanes[0].rtt = 2 * tt.latency
			for range tt.together {
				s.submit(writeOf(r, tt.bytes))
			}
			s.onDone = func(*Job) {
				if len(s.done) < 500 && tt.bytes < mib {
					s.after(0, func() []Event {
						j := writeOf(r, tt.bytes)
						return []Event{{Kind: Submit, Job: j}}
					})
				}
			}
			s.run(s.now+100*second, func() bool { return len(s.done) == len(s.tracks) && len(s.heap) == 0 })
			e := &s.core.lanes[0].est
			if e.trusted() != tt.measured {
				t.Fatalf("measured: %v, want %v (%d slices in %d µs)", e.trusted(), tt.measured, e.slices, e.total/1000)
			}
			if got := e.measured() / float64(tt.rate); tt.measured && (got < 0.9 || got > 1.1) {
				t.Errorf("%.2f of the lane's rate", got)
			}
		})
	}
}

// The estimate follows a change within a few half-lives.
func TestServiceRateFollows(t *testing.T) {
	s, r := warmed(t, Config{}, same(2*gbit))
	s.submit(writeOf(r, 512*mib))
	s.in(200*millisecond, func() { s.links[0].setRate(gbit / 2) })
	s.settle(600 * millisecond)
	if got := s.core.lanes[0].est.measured() / float64(gbit/2); got > 1.3 || got < 0.9 {
		t.Errorf("%.2f of the new rate", got)
	}
}

// Lanes that promise the same and do nearly the same count as equal; one that
// was not measured does as well as the best of its kind.
func TestNearlyEqualRates(t *testing.T) {
	s := newSim(t, Config{})
	r := s.route(s.group("tcp", same(gbit, gbit, gbit, gbit, 2*gbit)))
	s.core.adopt(r)
	for i, rate := range []float64{100e6, 80e6, 50e6, 0, 0} {
		l := s.core.lanes[LaneID(i)]
		l.phase = up
		if rate > 0 {
			l.est.bytes, l.est.ns, l.est.slices, l.est.total = rate, 1e9, 100, second
		}
	}
	g := &r.groups[0]
	s.core.refresh(r, g, 4096)
	var got []topo.Rate
	for _, st := range g.states {
		got = append(got, st.Rate)
	}
	if want := []topo.Rate{100e6, 100e6, 50e6, 100e6, 0}; !slices.Equal(got, want) {
		t.Errorf("rates %v, want %v", got, want)
	}
}

// Nothing is allocated for slices.
func TestNoAllocations(t *testing.T) {
	for _, lanes := range []int{1, 4} {
		x := newBench(t, lanes)
		j := &Job{Route: x.route, Ops: []Op{{Bytes: 1 << 40, Count: 1}}}
		x.submit(j)
		for range 1000 {
			x.round()
		}
		if n := testing.AllocsPerRun(1000, x.round); n > 0 {
			t.Errorf("%d lanes: %.2f allocations for a slice of each", lanes, n)
		}
	}
}

// What users see of lanes.
func TestLaneStats(t *testing.T) {
	s, r := warmed(t, Config{}, same(2*gbit, 2*gbit))
	s.submit(writeOf(r, 64*mib))
	s.in(10*millisecond, func() { s.links[1].refuse = true; s.links[1].cut(errors.New("cable pulled")) })
	s.settle(20 * millisecond)
	stats := s.core.Lanes(nil)
	if len(stats) != 2 {
		t.Fatalf("%+v", stats)
	}
	a, b := stats[0], stats[1]
	if a.Health != "healthy" || !a.Measured || a.Inflight == 0 || a.InflightBytes > a.WindowBytes || a.DoneSlices == 0 || a.Conn == 0 || a.Name != "tcp0" {
		t.Errorf("%+v", a)
	}
	if b.Health != "sick" || b.Failures != 1 || b.Retries == 0 || b.LastError != "cable pulled" || b.Inflight != 0 || b.Conn != 0 {
		t.Errorf("%+v", b)
	}
	if rate := float64(a.BytesPerSec) / float64(2*gbit); rate < 0.9 || rate > 1.1 {
		t.Errorf("rate %d", a.BytesPerSec)
	}
}
