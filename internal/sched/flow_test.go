package sched

import (
	"fmt"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
)

// transfer moves bytes after others have made connections and rates known.
func transfer(t *testing.T, bytes int64, warm int64, lanes []laneOf) (seconds float64, s *sim) {
	s = newSim(t, Config{})
	r := s.route(s.group("tcp", lanes))
	if warm > 0 {
		s.submit(writeOf(r, warm))
		s.all()
	}
	j := s.submit(writeOf(r, bytes))
	s.all()
	if j.Result.Err != nil {
		t.Fatal(j.Result.Err)
	}
	return took(j), s
}

func sum(lanes []laneOf) float64 {
	n := topo.Rate(0)
	for _, l := range lanes {
		n += l.rate
	}
	return float64(n)
}

func unknown(lanes []laneOf) []laneOf {
	out := append([]laneOf(nil), lanes...)
	for i := range out {
		out[i].promised = 0
	}
	return out
}

// Lanes together move what they can, whether or not the topology knows their
// rates.
func TestAggregation(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lanes []laneOf
	}{
		{"1", same(2 * gbit)},
		{"2 equal", same(2*gbit, 2*gbit)},
		{"4 equal", same(2*gbit, 2*gbit, 2*gbit, 2*gbit)},
		{"2:1", same(2*gbit, gbit)},
		{"2:0.5", same(2*gbit, gbit/2)},
		{"2:2:1:0.5", same(2*gbit, 2*gbit, gbit, gbit/2)},
		{"100:100:50", same(100*gbit, 100*gbit, 50*gbit)},
	} {
		for _, known := range []bool{true, false} {
			lanes := tt.lanes
			if !known {
				lanes = unknown(lanes)
			}
			t.Run(fmt.Sprintf("%s/known=%v", tt.name, known), func(t *testing.T) {
				for _, bytes := range []int64{mib, 4 * mib, 16 * mib, 64 * mib, 256 * mib} {
					seconds, _ := transfer(t, bytes, 64*mib, lanes)
					share := float64(bytes) / seconds / sum(lanes)
					least := 0.5
					if bytes >= 16*mib {
						least = 0.98
					}
					if lanes[0].rate > 10*gbit { // latencies and the last slices count for more
						least = 0
						if bytes >= 64*mib {
							least = 0.95
						}
					}
					if share < least {
						t.Errorf("%d MiB: %.3f of the lanes' sum", bytes/mib, share)
					}
				}
			})
		}
	}
}

// Nothing is connected and nothing is known: what lanes show while they start is
// believed soon, and by each for itself.
func TestUnknownFromTheStart(t *testing.T) {
	for _, tt := range []struct {
		lanes []laneOf
		bytes int64
		least float64
	}{
		{same(100*gbit, 100*gbit, 50*gbit), 64 * mib, 0.93},
		{same(100*gbit, 100*gbit, 50*gbit), 256 * mib, 0.98},
		{same(100*gbit, 10*gbit), 64 * mib, 0.95},
		{same(400*gbit, 400*gbit), 256 * mib, 0.97},
		{same(25*gbit, 25*gbit, 25*gbit, 25*gbit), 64 * mib, 0.98},
		// Far away: windows must grow with what was seen, or each waits for its answers.
		{[]laneOf{{rate: 400 * gbit, latency: 200 * microsecond}, {rate: 400 * gbit, latency: 200 * microsecond}}, 256 * mib, 0.69},
	} {
		seconds, _ := transfer(t, tt.bytes, 0, unknown(tt.lanes))
		share := float64(tt.bytes) / seconds / sum(tt.lanes)
		t.Logf("%d lanes, %d MiB: %.3f of their sum", len(tt.lanes), tt.bytes/mib, share)
		if share < tt.least {
			t.Errorf("%d lanes, %d MiB: %.3f of their sum, want %.2f", len(tt.lanes), tt.bytes/mib, share, tt.least)
		}
	}
}

// A lane that is slower by far helps, and does not hold up the end.
func TestVerySlowLane(t *testing.T) {
	lanes := same(2*gbit, gbit/50)
	seconds, s := transfer(t, 128*mib, 64*mib, lanes)
	share := 128 * mib / seconds / sum(lanes)
	t.Logf("%.3f of the lanes' sum", share)
	if share < 0.98 {
		t.Errorf("%.3f of the lanes' sum", share)
	}
	if s.links[1].carried == 0 {
		t.Error("the slow lane was not used")
	}
}

// Nothing is known of two lanes, and one of them is very slow: that is no stall.
func TestUnknownSlowLane(t *testing.T) {
	_, s := transfer(t, 64*mib, 0, unknown(same(10*gbit, gbit/100)))
	s.noNotes(LaneSick)
}
