package pick_test

import (
	"math/rand/v2"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pick"
	"github.com/topoctl/topoctl/pathsel"
)

// Adaptive's short cut answers as the whole rule does: the lane that it takes is
// one that would help.
func TestPickAgreesWithWouldHelp(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, host := range []string{"dgx-h100", "aws-p5-44nic-synthetic"} {
		for _, place := range []pathsel.Location{"cpu:0", "gpu:0"} {
			set := lanesBetween(t, host, place, place)
			picker := set.Picker(pick.Adaptive, 1)
			picked := 0
			for range 3000 {
				st := states(set.Set)
				for i := range st.Lanes {
					l := &st.Lanes[i]
					l.Inflight = random.Int64N(4) * random.Int64N(8<<20)
					l.Window = random.Int64N(3) * 8 << 20
					l.Health = pick.Health(max(0, random.IntN(8)-5))
					if random.IntN(2) == 0 {
						l.Rate = topo.Rate(1 + random.Int64N(50_000_000_000))
					}
				}
				slice := pick.Slice{Bytes: 1 + random.Int64N(1<<20), Remaining: random.Int64N(1 << (10 + random.IntN(25)))}
				got := picker.Pick(slice, st)
				if got == pick.NoLane {
					continue
				}
				picked++
				if !set.WouldHelp(got, slice, st) {
					t.Fatalf("%s %s: lane %d is picked for %+v and would not help: %+v", host, place, got, slice, st)
				}
			}
			if picked < 500 {
				t.Errorf("%s %s: %d picks", host, place, picked)
			}
		}
	}
}
