package sched

import (
	"fmt"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/direction"
)

// Slow lanes whose promise is far above what they do, two queue pairs each, and a
// few small batches at a time: the sum of their rates is used, whatever they are.
func TestSlowUnevenLanes(t *testing.T) {
	const mbit = gbit / 1000
	for _, rates := range [][]topo.Rate{{20 * mbit, 10 * mbit}, {10 * mbit, 5 * mbit}, {10 * mbit, 10 * mbit, 10 * mbit, 10 * mbit}} {
		for _, kind := range []direction.Direction{direction.Write, direction.Read} {
			t.Run(fmt.Sprint(rates, " ", kind), func(t *testing.T) {
				s := newSim(t, Config{})
				lanes, sum := make([]laneOf, len(rates)), topo.Rate(0)
				for i, r := range rates {
					lanes[i] = laneOf{rate: r, promised: 25 * gbit, latency: 3 * millisecond}
					sum += r
				}
				g := s.group("tcp", lanes)
				for id, l := range s.links {
					l.limits.Parallel = 2
					s.core.lanes[id].spec.RoundTripNS = 2 * l.latency
				}
				r := s.route(g)
				batch := func() *Job {
					j := &Job{Route: r}
					for k := range int64(4) {
						j.Ops = append(j.Ops, Op{Kind: kind, Local: 1, Remote: 2, LocalOffset: k << 16, RemoteOffset: k << 16, Bytes: 64 << 10, Count: 1})
					}
					return j
				}
				s.onDone = func(*Job) {
					s.after(0, func() []Event {
						j := batch()
						return []Event{{Kind: Submit, Job: j}}
					})
				}
				for range 4 {
					s.submit(batch())
				}
				carried := func() (n int64) {
					for _, l := range s.links {
						n += l.carried
					}
					return n
				}
				s.settle(2 * second)
				before := carried()
				s.settle(8 * second)
				if got := float64(carried()-before) / 8 / float64(sum); got < 0.98 {
					t.Errorf("%.2f of the sum of the lanes", got)
				}
			})
		}
	}
}
