package serve

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/internal/kv"
)

// No system serves more than its capacity, and a plain one that always has enough to do serves nearly that.
func TestCapacityIsNeverExceeded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c, most := drawConfig(rt)
		c.Prefill.PrefixPages = 0
		w := &kv.Workload{}
		input, output := rapid.IntRange(1, most).Draw(rt, "input"), rapid.IntRange(1, 8).Draw(rt, "output")
		for i := range rapid.IntRange(1, 60).Draw(rt, "requests") {
			w.Requests = append(w.Requests, kv.Request{ID: i, Input: input, Output: output})
		}
		if c.WhyImpossible(&w.Requests[0]) != nil {
			return
		}
		prefill, decode := c.Capacity(w)
		clock := newClock()
		s := play(t, c, w, clock, infinite{clock})
		if s.clock.NowNS() == 0 {
			return
		}
		served := float64(len(w.Requests)) / float64(s.clock.NowNS()) * 1e9
		for name, most := range map[string]float64{"prefill": prefill, "decode": decode} {
			if most > 0 && served > 1.001*most {
				rt.Fatalf("%g requests/s were served, and %s can compute %g", served, name, most)
			}
		}
	})
}

func TestCapacityIsReached(t *testing.T) {
	for _, tt := range []struct {
		name          string
		input, output int
		prefill       float64 // requests a second at 10 ns a token
		narrow        bool    // prefill is
	}{
		{"long prompts", 100, 2, 1e9 / 1000, true},
		{"long answers", 4, 64, 1e9 / 40, false},
	} {
		c := split(t)
		c.Decode.MaxSequences = 8
		w := &kv.Workload{}
		for i := range 400 {
			w.Requests = append(w.Requests, kv.Request{ID: i, Input: tt.input, Output: tt.output})
		}
		prefill, decode := c.Capacity(w)
		if prefill != tt.prefill || decode != 8e9/(50*float64(tt.output)) || (prefill < decode) != tt.narrow {
			t.Errorf("%s: capacities %g and %g", tt.name, prefill, decode)
		}
		clock := newClock()
		s := play(t, c, w, clock, infinite{clock})
		if served := 400e9 / float64(s.clock.NowNS()); served < 0.9*min(prefill, decode) {
			t.Errorf("%s: %g requests/s of %g and %g", tt.name, served, prefill, decode)
		}
	}
}
