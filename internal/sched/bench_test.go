package sched

import (
	"fmt"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pick"
)

// bench is a core whose lanes complete their oldest slice one after the other.
type bench struct {
	core   *Core
	route  *Route
	now    int64
	queues [][]*Slice
	heads  []int
	done   bool
	events []Event
	out    []Action
	sent   int64
}

func newBench(_ testing.TB, lanes int) *bench {
	x := &bench{core: New(Config{}), now: second, queues: make([][]*Slice, lanes), heads: make([]int, lanes)}
	peer := x.core.AddPeer("n2")
	rates := make([]topo.Rate, lanes)
	o := pick.List{TCP: true}
	for i := range lanes {
		rates[i] = topo.GBPerSec
		name := fmt.Sprintf("eth%02d", i)
		o.Lanes = append(o.Lanes, pick.Listed{LocalName: name, RemoteName: name, BytesPerSec: topo.GBPerSec})
	}
	here, there := x.core.AddSide(rates), x.core.AddSide(rates)
	g := Group{Transport: "tcp", Set: o.Set()}
	for i := range lanes {
		g.Lanes = append(g.Lanes, x.core.AddLane(LaneSpec{Peer: peer, Name: o.Lanes[i].LocalName, Transport: "tcp", LocalSide: here, RemoteSide: there,
			Local: i, Remote: i, RateBytesPerSec: topo.GBPerSec}))
		x.queues[i] = make([]*Slice, 0, 4096)
	}
	x.route = &Route{Peer: peer, Name: "r", Groups: []Group{g}}
	x.submit(&Job{Route: x.route, Ops: []Op{{Bytes: 1 << 30, Count: 1}}})
	for !x.done {
		x.round()
	}
	return x
}

func (x *bench) submit(j *Job) {
	x.done = false
	x.step(Event{Kind: Submit, Job: j})
}

func (x *bench) step(e Event) {
	x.events = append(x.events[:0], e)
	for len(x.events) > 0 {
		x.out = x.core.Step(x.now, x.events, x.out[:0])
		x.events = x.events[:0]
		for i := range x.out {
			switch a := &x.out[i]; a.Do {
			case Connect:
				x.events = append(x.events, Event{Kind: Connected, Lane: a.Lane, Conn: a.Conn, Limits: Limits{MaxSpans: 512, MaxBytes: 4 << 20, MaxPosted: 512}})
			case Post:
				x.queues[a.Lane] = append(x.queues[a.Lane], a.Slice)
				x.sent++
			case Finish:
				x.done = true
			}
		}
	}
}

// round completes one slice of each lane, each in a step of its own.
func (x *bench) round() {
	for i := range x.queues {
		q := x.queues[i]
		if x.heads[i] == len(q) {
			continue
		}
		s := q[x.heads[i]]
		if x.heads[i]++; x.heads[i] == len(q) || x.heads[i] > 2048 {
			x.queues[i] = q[:copy(q, q[x.heads[i]:])]
			x.heads[i] = 0
		}
		x.now += 375_000 / int64(len(x.queues))
		x.step(Event{Kind: Done, Slice: s})
	}
}

// What the core needs for each slice of a large transfer, and of one that ends.
func BenchmarkSlice(b *testing.B) {
	for _, lanes := range []int{1, 4, 64} {
		for _, bytes := range []int64{16 << 20, 16 << 30} {
			b.Run(fmt.Sprintf("lanes=%d/bytes=%dMiB", lanes, bytes>>20), func(b *testing.B) {
				x := newBench(b, lanes)
				j := &Job{Route: x.route, Ops: []Op{{Bytes: bytes, Count: 1}}}
				x.sent = 0
				b.ReportAllocs()
				for b.Loop() {
					x.submit(j)
					for !x.done {
						x.round()
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(x.sent), "ns/slice")
			})
		}
	}
}

// What a tick costs while slices are in flight, after many peers that have come and gone.
func BenchmarkTickAfterPeers(b *testing.B) {
	for _, n := range []int{1000, 1_000_000} {
		b.Run(fmt.Sprintf("peers=%d", n), func(b *testing.B) {
			x := newBench(b, 4)
			for range n {
				peer, side := x.core.AddPeer("n"), x.core.AddSide([]topo.Rate{topo.GBPerSec})
				lane := x.core.AddLane(LaneSpec{Peer: peer, Name: "eth0", Transport: "tcp", LocalSide: side, RemoteSide: side})
				x.step(Event{Kind: LaneGone, Lane: lane})
				x.core.RemovePeer(peer)
				x.core.RemoveSide(side)
			}
			x.submit(&Job{Route: x.route, Ops: []Op{{Bytes: 1 << 30, Count: 1}}})
			for b.Loop() {
				x.core.check()
			}
		})
	}
}

// Cutting 10,000 ops of 4 KiB that merge, or do not.
func BenchmarkCut(b *testing.B) {
	for _, merging := range []bool{true, false} {
		ops := make([]Op, 10_000)
		stride := int64(8192)
		if merging {
			stride = 4096
		}
		for i := range ops {
			ops[i] = Op{Bytes: 4096, Count: 1, LocalOffset: int64(i) * stride, RemoteOffset: int64(i) * stride}
		}
		pages := make([]uint32, 10_000)
		for i := range pages {
			pages[i] = uint32(i)
			if !merging {
				pages[i] = uint32(len(pages) - 1 - i)
			}
		}
		paged := []Op{{Bytes: 4096, Count: len(pages), LocalStride: 4096, RemoteStride: 4096, LocalPages: pages}}
		for name, ops := range map[string][]Op{"ops": ops, "pages": paged} {
			b.Run(fmt.Sprintf("%s/merging=%v", name, merging), func(b *testing.B) {
				var s Slice
				b.ReportAllocs()
				for b.Loop() {
					var c cursor
					for c.op < len(ops) {
						c.cut(ops, &s, 512<<10, 512)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/piece")
			})
		}
	}
}
