package pick_test

import (
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pick"
)

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

// One slice decision.
func BenchmarkPick(b *testing.B) {
	for name, set := range benchmarkSets(b) {
		b.Run(name, func(b *testing.B) {
			st, p := states(set.Set), set.Picker()
			for i := range st.Lanes {
				st.Lanes[i].Inflight = int64(i%7) << 20
			}
			b.ReportAllocs()
			for b.Loop() {
				p.Prepare(st)
				p.Pick(pick.Slice{Bytes: 1 << 20, Remaining: 1 << 30}, st)
			}
		})
	}
}
