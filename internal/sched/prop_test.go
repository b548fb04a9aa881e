package sched

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/direction"
)

// drawOps draws ops that do not overlap, on either side.
func drawOps(t *rapid.T, kind direction.Direction) []Op {
	var ops []Op
	local, remote := int64(0), int64(0)
	mixed := rapid.Bool().Draw(t, "mixed")
	for i := range rapid.IntRange(0, 6).Draw(t, "ops") {
		o := Op{Kind: kind, Local: 1, Remote: 2, LocalOffset: local, RemoteOffset: remote,
			Bytes: rapid.SampledFrom([]int64{0, 1, 100, 4095, 4096, 5000, 65536, 1 << 20, 3<<20 + 17}).Draw(t, "bytes"),
			Count: rapid.SampledFrom([]int{0, 1, 1, 2, 7, 100}).Draw(t, "count")}
		if mixed && i%2 == 1 {
			o.Kind = direction.Read - kind
		}
		gap := rapid.SampledFrom([]int64{0, 0, 1, 4096}).Draw(t, "gap")
		o.LocalStride, o.RemoteStride = o.Bytes+gap, o.Bytes+rapid.SampledFrom([]int64{0, 0, 64}).Draw(t, "remote gap")
		places := int64(o.Count)
		if o.Count > 1 && rapid.Bool().Draw(t, "pages") {
			for _, pages := range []*[]uint32{&o.LocalPages, &o.RemotePages} {
				if rapid.Bool().Draw(t, "side") {
					step := rapid.IntRange(1, 2).Draw(t, "step")
					for k := range o.Count {
						*pages = append(*pages, uint32((o.Count-1-k)*step))
					}
					places = int64(o.Count * 2)
				}
			}
		}
		local += places*o.LocalStride + gap
		remote += places * o.RemoteStride
		ops = append(ops, o)
	}
	return ops
}

// Whatever happens: every job ends once, in time, with every byte in place or an
// error, and says so where bytes may still land. The simulator checks all it
// sees; see its t.Fatals.
func TestAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSim(t, Config{MaxAttempts: rapid.IntRange(2, 20).Draw(t, "attempts")})
		s.fenceIn = rapid.SampledFrom([]int64{100 * microsecond, 20 * millisecond, 500 * millisecond, Never}).Draw(t, "fences")
		rates := []topo.Rate{10 * gbit, 2 * gbit, gbit / 4, gbit / 100}
		drawLanes := func(what string) []laneOf {
			lanes := make([]laneOf, rapid.IntRange(1, 4).Draw(t, what))
			for i := range lanes {
				lanes[i].rate = rapid.SampledFrom(rates).Draw(t, "rate")
				if rapid.Bool().Draw(t, "known") {
					lanes[i].promised = rapid.SampledFrom(rates).Draw(t, "promised")
				}
				lanes[i].tier = rapid.IntRange(0, 1).Draw(t, "tier")
			}
			return lanes
		}
		groups := []Group{s.group("tcp", drawLanes("lanes"))}
		if rapid.Bool().Draw(t, "two groups") {
			groups = append(groups, s.group("shm", drawLanes("lanes of shm")))
		}
		for id := range len(s.links) { // in order: the same draws are the same run
			s.links[LaneID(id)].limits = Limits{MaxSpans: rapid.SampledFrom([]int{1, 3, 64}).Draw(t, "spans"), MaxBytes: rapid.SampledFrom([]int64{100, 10_000, 1 << 20}).Draw(t, "max"),
				MaxPosted: rapid.SampledFrom([]int{1, 2, 64}).Draw(t, "posted")}
			if l := s.links[LaneID(id)]; l.limits.MaxBytes < 10_000 {
				l.limits.MaxBytes = 65536
			}
		}
		var routes []*Route
		for range rapid.IntRange(1, 2).Draw(t, "routes") {
			r := s.route(groups...)
			routes = append(routes, r)
		}
		drawLane := func() LaneID { return LaneID(rapid.IntRange(0, len(s.links)-1).Draw(t, "lane")) }
		var jobs []*Job
		for range rapid.IntRange(1, 6).Draw(t, "jobs") {
			j := &Job{Route: rapid.SampledFrom(routes).Draw(t, "route"), Ops: drawOps(t, rapid.SampledFrom([]direction.Direction{direction.Write, direction.Read}).Draw(t, "kind")),
				Priority: Priority(rapid.IntRange(0, 1).Draw(t, "priority"))}
			at := int64(rapid.IntRange(0, 300).Draw(t, "submit")) * millisecond
			j.DeadlineNS = s.now + at + int64(rapid.IntRange(1, 4000).Draw(t, "deadline"))*millisecond
			jobs = append(jobs, j)
			s.after(at, func() []Event { return []Event{{Kind: Submit, Job: j}} })
		}
		gone, late := false, s.cfg.DrainNS+s.cfg.FenceNS+10*millisecond
		for range rapid.IntRange(0, 12).Draw(t, "events") {
			at := int64(rapid.IntRange(0, 1500).Draw(t, "at")) * millisecond
			id := drawLane()
			l := s.links[id]
			switch rapid.IntRange(0, 13).Draw(t, "what") {
			case 0:
				s.in(at, func() { l.cut(nil) })
			case 1:
				s.in(at, func() { l.setRate(0) })
			case 2:
				rate := rapid.SampledFrom(rates).Draw(t, "new rate")
				s.in(at, func() { l.setRate(rate) })
			case 3:
				refuse := rapid.Bool().Draw(t, "refuse")
				s.in(at, func() { l.refuse = refuse })
			case 4:
				j := rapid.SampledFrom(jobs).Draw(t, "job")
				s.after(at, func() []Event {
					if j.id == 0 {
						return nil // not submitted yet
					}
					return []Event{{Kind: Cancel, Job: j, Err: errors.New("not wanted")}}
				})
			case 5:
				restarted := rapid.Bool().Draw(t, "restarted")
				s.after(at, func() []Event { return []Event{{Kind: PeerGone, Peer: s.peer, Restarted: restarted}} })
			case 6:
				s.after(at, func() []Event { return []Event{{Kind: Suspend, Lane: id}} })
				s.after(at+100*millisecond, func() []Event { return []Event{{Kind: Resume, Lane: id}} })
			case 7:
				if !gone { // one is enough: some lane is left, or none
					gone = true
					s.after(at, func() []Event { return []Event{{Kind: LaneGone, Lane: id}} })
				}
			case 8:
				s.after(at, func() []Event { return []Event{{Kind: PortDown, Side: s.side, Port: 0}} })
				s.after(at+200*millisecond, func() []Event { return []Event{{Kind: PortUp, Side: s.side, Port: 0}} })
			case 9:
				mayLand, retry := rapid.Bool().Draw(t, "may land"), rapid.IntRange(0, 9).Draw(t, "retry") > 0
				s.in(at, func() { s.fail(l, Event{Err: errors.New("bad"), MayLand: mayLand, Retry: retry}) })
			case 10:
				late += 150 * millisecond
				s.in(at, func() { s.wakeAt = s.now + 150*millisecond })
			case 12, 13:
				s.in(at, l.swallow)
			case 11:
				r := rapid.SampledFrom(routes).Draw(t, "changed")
				s.after(at, func() []Event { return []Event{{Kind: RouteChanged, Route: r, Groups: groups[len(groups)-1:]}} })
			}
		}
		s.onDone = func(j *Job) {
			if j.Result.EndNS > j.DeadlineNS+late {
				t.Fatalf("a job ended %d ms after its deadline: %v", (j.Result.EndNS-j.DeadlineNS)/millisecond, j.Result.Err)
			}
		}
		s.run(s.now+100*second, func() bool { return len(s.done) == len(jobs) })
		if len(s.done) != len(jobs) {
			t.Fatalf("%d of %d jobs are over; next %d, %+v", len(s.done), len(jobs), s.core.Next()-s.now, s.core.Lanes(nil))
		}
		s.settle(30 * second)
		s.quiet(t, routes)
	})
}

// quiet says whether nothing is left of jobs that are over.
func (s *sim) quiet(t *rapid.T, routes []*Route) {
	c := s.core
	if c.posted != 0 || len(c.jobs) != 0 || len(c.waiting) != 0 || len(c.dirty) != 0 {
		t.Fatalf("left: %d slices, %d waiting peers", c.posted, len(c.waiting))
	}
	for _, l := range c.lanes {
		if l.spare != nil {
			t.Fatalf("lane %d keeps its second connection", l.id)
		}
		if l.inflight != 0 || len(l.slices) != 0 {
			t.Fatalf("lane %d holds %d bytes", l.id, l.inflight)
		}
	}
	for _, p := range c.peers {
		testing := 0
		for _, l := range p.lanes {
			if l.testing {
				testing++
			}
		}
		if p.posted != 0 || p.waitingJobs != [2]int{} || p.testing != testing {
			t.Fatalf("peer: %d slices, %v jobs wait, %d of %d tests", p.posted, p.waitingJobs, p.testing, testing)
		}
	}
	for _, x := range c.sides {
		for _, load := range x.load {
			if load != 0 {
				t.Fatalf("a port holds %d bytes", load)
			}
		}
	}
	for _, r := range routes {
		if r.queued != [2]int64{} || r.jobs != 0 {
			t.Fatalf("route: %v bytes wait, %d jobs", r.queued, r.jobs)
		}
	}
	if c.Next() != Never {
		t.Fatal("an idle core wants to run: ", fmt.Sprint(c.Next()-s.now))
	}
}
