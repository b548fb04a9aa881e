package pick_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pick"
	"github.com/topoctl/topoctl/testkit/golden"
)

// run is one transfer in virtual time: slices go to lanes by a policy, each lane
// serves them one after the other at its true rate, and completions update what
// the policy knows. It is the smallest engine that can ask the questions.
type run struct {
	set    lanes
	policy pick.Policy
	rate   func(lane int) float64 // true bytes per second
	bytes  int64
	slice  int64
	stall  int     // a lane that stops for good, NoLane for none
	after  float64 // when, in seconds
	notice float64 // how long until it is called sick and its slices go back

	st      pick.States
	ends    [][]float64 // of the slices on each lane
	carried []int64
}

// finish runs the transfer and says how long it took.
func (r *run) finish(t *testing.T) float64 {
	t.Helper()
	r.st = states(r.set.Set)
	r.ends, r.carried = make([][]float64, len(r.set.Lanes)), make([]int64, len(r.set.Lanes))
	for i := range r.st.Lanes {
		r.st.Lanes[i].Window = 4 * r.slice
	}
	picker := r.set.Picker(r.policy, 1)
	now, left, index := 0.0, r.bytes, uint32(0)
	for {
		for left > 0 {
			lane := picker.Pick(pick.Slice{Bytes: r.slice, Remaining: left, Index: index}, r.st)
			if lane == pick.NoLane {
				break
			}
			if r.policy == pick.Mooncake && r.st.Lanes[lane].Inflight >= r.st.Lanes[lane].Window*8 {
				break // its queue takes no more either
			}
			r.post(lane, now)
			left, index = left-r.slice, index+1
		}
		lane := r.nextDone()
		if lane < 0 {
			if left > 0 {
				t.Fatalf("%s: nothing in flight and %d bytes left", r.policy, left)
			}
			return now
		}
		now = r.ends[lane][0]
		if lane == r.stall && now > r.after { // it never comes: the lane is found sick instead
			now = max(now, r.after+r.notice)
			left += int64(len(r.ends[lane])) * r.slice
			r.ends[lane], r.st.Lanes[lane].Inflight, r.st.Lanes[lane].Health = nil, 0, pick.Sick
			continue
		}
		r.ends[lane] = r.ends[lane][1:]
		r.st.Lanes[lane].Inflight -= r.slice
		r.st.Lanes[lane].Rate = topo.Rate(r.rate(lane))
		r.carried[lane] += r.slice
	}
}

func (r *run) post(lane int, now float64) {
	start := now
	if n := len(r.ends[lane]); n > 0 {
		start = max(start, r.ends[lane][n-1])
	}
	r.ends[lane] = append(r.ends[lane], start+float64(r.slice)/r.rate(lane))
	r.st.Lanes[lane].Inflight += r.slice
}

// nextDone is the lane whose first slice ends first; a stalled one counts when it
// is noticed.
func (r *run) nextDone() int {
	best, at := -1, 0.0
	for i, ends := range r.ends {
		if len(ends) == 0 {
			continue
		}
		end := ends[0]
		if i == r.stall && end > r.after {
			end = max(end, r.after+r.notice)
		}
		if best < 0 || end < at {
			best, at = i, end
		}
	}
	return best
}

// asPromised is the rate that the topology gives each chosen lane.
func asPromised(set lanes) func(int) float64 {
	return func(lane int) float64 {
		if l := &set.plan.Lanes[lane]; l.Share != nil {
			return float64(*l.Share)
		}
		return float64(*set.plan.Lanes[lane].BytesPerSec)
	}
}

// Unequal lanes reach the sum of their rates, whatever the topology promised.
func TestAdaptiveReachesTheSum(t *testing.T) {
	set := lanesBetween(t, "dgx-h100", "cpu:0", "cpu:0")
	promised := asPromised(set)
	for _, tt := range []struct {
		name string
		rate func(lane int) float64
	}{
		{"as promised", promised},
		{"one lane at a fifth", func(lane int) float64 {
			if lane == 1 {
				return promised(lane) / 5
			}
			return promised(lane)
		}},
		{"all differ", func(lane int) float64 { return promised(lane) * (1 - 0.1*float64(lane%4)) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := run{set: set, policy: pick.Adaptive, rate: tt.rate, bytes: 4 << 30, slice: 1 << 20, stall: pick.NoLane}
			took, sum := r.finish(t), 0.0
			for i := range set.Chosen {
				sum += tt.rate(i)
			}
			if best := float64(r.bytes) / sum; took > best/0.95 {
				t.Errorf("took %.2f ms, all lanes together %.2f ms: %v", took*1e3, best*1e3, r.carried)
			}
		})
	}
}

// A lane that stalls half way costs what it carried and little more, and lanes
// for failover stand in.
func TestAdaptiveSurvivesAStall(t *testing.T) {
	set := lanesBetween(t, "dgx-h100", "gpu:0", "gpu:0") // one chosen lane
	r := run{set: set, policy: pick.Adaptive, rate: asPromised(set), bytes: 1 << 30, slice: 1 << 20, stall: 0, after: 0.010, notice: 0.001}
	took := r.finish(t)
	if ideal := float64(r.bytes) / 50e9; took > 1.1*ideal+r.notice {
		t.Errorf("took %.2f ms, ideal is %.2f ms: %v", took*1e3, ideal*1e3, r.carried)
	}
	if r.carried[1] == 0 {
		t.Errorf("nobody stood in: %v", r.carried)
	}
}

// How the policies compare where one lane of five is slower than it promises: a
// table for people, and adaptive must be the fastest.
func TestPoliciesCompared(t *testing.T) {
	set := lanesBetween(t, "dgx-h100", "cpu:0", "cpu:0")
	promised := asPromised(set)
	rate := func(lane int) float64 {
		if lane == 1 {
			return promised(lane) / 4
		}
		return promised(lane)
	}
	var b strings.Builder
	b.WriteString("# 1 GiB between the host memories of two DGX H100, mlx5_3 at a quarter of its rate\n# (each lane by itself: links that lanes share are not modelled here)\n\n")
	best, adaptive := 0.0, 0.0
	for _, name := range pick.Policies() {
		r := run{set: set, policy: pick.Policy(name), rate: rate, bytes: 1 << 30, slice: 1 << 20, stall: pick.NoLane}
		took := r.finish(t)
		fmt.Fprintf(&b, "%-12s %6.2f ms\n", name, took*1e3)
		if name == string(pick.Adaptive) {
			adaptive = took
		}
		if best == 0 || took < best {
			best = took
		}
	}
	golden.Check(t, "testdata/policies.txt", b.String())
	if adaptive > best*1.001 {
		t.Errorf("adaptive took %.2f ms, the best %.2f ms", adaptive*1e3, best*1e3)
	}
}

// When a lane that asks for work gets some.
func TestWouldHelp(t *testing.T) {
	const mb = 1_000_000
	cpu := lanesBetween(t, "dgx-h100", "cpu:0", "cpu:0") // four near lanes of 50 GB/s, a far one of 22
	gpu := lanesBetween(t, "dgx-h100", "gpu:0", "gpu:0") // one near lane, far ones whose rate is an upper bound
	allBusy := func(inflight int64) func(s *pick.States) {
		return func(s *pick.States) {
			for i := range 4 {
				s.Lanes[i].Inflight = inflight
			}
		}
	}
	for _, tt := range []struct {
		name      string
		set       lanes
		lane      int
		remaining int64
		change    func(s *pick.States)
		want      bool
	}{
		{"an idle near lane", cpu, 0, mb, nil, true},
		{"a far one for a single slice", cpu, 4, mb, nil, false},
		{"a far one for much: 222 instead of 200 GB/s", cpu, 4, 1000 * mb, nil, true},
		{"a far one while the near ones have much to do", cpu, 4, mb, allBusy(50 * mb), true},
		{"a far one while the near ones are nearly done", cpu, 4, mb, allBusy(mb), false},
		{"a near one that got slow, with much remaining", cpu, 1, 1000 * mb, func(s *pick.States) { s.Lanes[1].Rate = topo.GBPerSec }, true},
		{"the same at the end", cpu, 1, mb, func(s *pick.States) { s.Lanes[1].Rate = topo.GBPerSec }, false},
		{"a lane for failover, all is well", cpu, 5, 1000 * mb, nil, false},
		{"a lane for failover, one is sick: its other port is full", cpu, 5, 1000 * mb, func(s *pick.States) { s.Lanes[0].Health = pick.Sick }, false},
		{"a window that is full", cpu, 0, 1000 * mb, func(s *pick.States) { s.Lanes[0] = pick.State{Inflight: 4 * mb, Window: 4 * mb} }, false},
		{"a port's window that is full", cpu, 0, 1000 * mb, func(s *pick.States) { s.Lanes[0].Window = -1 }, false},
		{"a sick lane", cpu, 0, 1000 * mb, func(s *pick.States) { s.Lanes[0].Health = pick.Sick }, false},
		{"no such lane", cpu, 64, mb, nil, false},
		{"nobody", cpu, -1, mb, nil, false},
		{"a GPU's far lane: an upper bound of a quarter more", gpu, 8, 1000 * mb, nil, false},
		{"the GPU's near lane is sick", gpu, 1, 1000 * mb, func(s *pick.States) { s.Lanes[0].Health = pick.Sick }, true},
		{"the second for failover: one is enough", gpu, 2, 1000 * mb, func(s *pick.States) { s.Lanes[0].Health = pick.Sick }, false},
		{"the second for failover, the first is sick too", gpu, 2, 1000 * mb, func(s *pick.States) {
			s.Lanes[0].Health, s.Lanes[1].Health = pick.Sick, pick.Sick
		}, true},
		{"the GPU's near lane at a tenth", gpu, 1, 1000 * mb, func(s *pick.States) { s.Lanes[0].Rate = 5 * topo.GBPerSec }, true},
		{"the GPU's near lane at nine tenths", gpu, 1, 1000 * mb, func(s *pick.States) { s.Lanes[0].Rate = 45 * topo.GBPerSec }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st := states(tt.set.Set)
			if tt.change != nil {
				tt.change(&st)
			}
			if got := tt.set.WouldHelp(tt.lane, pick.Slice{Bytes: mb, Remaining: tt.remaining}, st); got != tt.want {
				t.Errorf("lane %d: %v, want %v", tt.lane, got, tt.want)
			}
		})
	}
}

func benchmarkSets(b *testing.B) map[string]lanes {
	return map[string]lanes{
		"gpu": lanesBetween(b, "dgx-h100", "gpu:0", "gpu:0"), "cpu": lanesBetween(b, "dgx-h100", "cpu:0", "cpu:1"),
		"44nic": lanesBetween(b, "aws-p5-44nic-synthetic", "cpu:0", "cpu:0"),
	}
}

// The lanes of a transfer between two DGX H100, the static part at hand:
// predicted shares under load.
func BenchmarkLanes(b *testing.B) {
	for name, set := range benchmarkSets(b) {
		b.Run(name, func(b *testing.B) {
			st := states(set.Set)
			for i := range st.Lanes {
				st.Lanes[i].Inflight = int64(i%7) << 20
			}
			buf := make([]pick.Share, 0, len(set.Lanes))
			b.ReportAllocs()
			for b.Loop() {
				buf = set.Predict(1<<30, st, buf)
			}
		})
	}
}

// One slice decision.
func BenchmarkPick(b *testing.B) {
	for name, set := range benchmarkSets(b) {
		for _, policy := range pick.Policies() {
			b.Run(name+"/"+policy, func(b *testing.B) {
				st, p := states(set.Set), set.Picker(pick.Policy(policy), 1)
				for i := range st.Lanes {
					st.Lanes[i].Inflight = int64(i%7) << 20
				}
				slice := pick.Slice{Bytes: 1 << 20, Remaining: 1 << 30}
				b.ReportAllocs()
				for b.Loop() {
					slice.Index++
					p.Pick(slice, st)
				}
			})
		}
	}
}
