package serve

import (
	"testing"

	"github.com/topoctl/topoctl/internal/kv"
	"github.com/topoctl/topoctl/internal/sim"
)

// Requests that come after an instance was lost go to those that are left; the last one
// of a side keeps its own.
func TestLose(t *testing.T) {
	for _, router := range []Router{LeastTokens, RoundRobin} {
		c := split(t)
		c.Router, c.Prefill.Instances, c.Decode.Instances = router, 2, 3
		clock := newClock()
		w := &kv.Workload{}
		for i := range 30 {
			w.Requests = append(w.Requests, kv.Request{ID: i, ArriveNS: int64(i) * 1000, Input: 16, Output: 2})
		}
		var at []int
		s, err := New(c, w, clock, moverFunc(func(x Transfer, done func(int64, error)) {
			at = append(at, x.Decode)
			done(clock.Now(), nil)
		}))
		if err != nil {
			t.Fatal(err)
		}
		s.Start(nil)
		clock.At(9_500, func() { s.StopRouting(true, 1) })
		clock.At(19_500, func() { s.StopRouting(true, 0); s.StopRouting(true, 2) })
		clock.Run(sim.Never)
		seen := [3][3]int{}
		for i, x := range at {
			seen[i/10][x]++
		}
		if !s.Ended() || seen[1][1] != 0 || seen[1][0] == 0 || seen[2] != [3]int{0, 0, 10} {
			t.Errorf("%s: requests by ten and instance: %v", router, seen)
		}
	}
}

// moverFunc moves by a function.
type moverFunc func(Transfer, func(int64, error))

func (f moverFunc) Move(t Transfer, done func(int64, error)) { f(t, done) }
