package preset

import (
	"math"

	"github.com/topoctl/topoctl/internal/kv"
)

// arrive puts the arrivals of vLLM's serving benchmark into requests: the first one comes at
// once, each other an exponential gap later that NumPy draws with seed 0, the benchmark's own.
// The A10 reports ran with that: at 2, 4, 6 and 8 requests/s their durations are the span of its
// 199 gaps and the last answer, and 0.2 to 0.4 s more, some 1.5 ms of the client for each
// request. (Two draws of 199 gaps differ by 10 %.) With 200 requests and prefill busy half of the
// time, the draw decides a good part of a mean and most of a P99: equal gaps, equal queues.
func arrive(requests []kv.Request, ratePerSec float64) {
	r := newTwister(0)
	at := 0.
	for i := range requests {
		requests[i].ArriveNS = int64(math.Round(at * 1e9))
		at += -math.Log(1-r.float64()) / ratePerSec
	}
}

// twister is the Mersenne Twister MT19937, as NumPy's RandomState has it.
type twister struct {
	state [624]uint32
	next  int
}

func newTwister(seed uint32) *twister {
	t := &twister{next: 624}
	t.state[0] = seed
	for i := 1; i < 624; i++ {
		x := t.state[i-1]
		t.state[i] = 1812433253*(x^x>>30) + uint32(i) //nolint:gosec // below 624
	}
	return t
}

func (t *twister) uint32() uint32 {
	if t.next == 624 {
		for i := range t.state {
			y := t.state[i]&0x80000000 | t.state[(i+1)%624]&0x7fffffff
			t.state[i] = t.state[(i+397)%624] ^ y>>1 ^ y&1*0x9908b0df
		}
		t.next = 0
	}
	y := t.state[t.next]
	t.next++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// float64 is in [0, 1) with 53 bits.
func (t *twister) float64() float64 {
	a, b := t.uint32()>>5, t.uint32()>>6
	return (float64(a)*(1<<26) + float64(b)) / (1 << 53)
}
