package sched

import (
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/testkit/golden"
)

// What the core does, for people to read.
func TestTranscripts(t *testing.T) {
	slow := topo.Rate(50_000_000)
	for _, tt := range []struct {
		name, about string
		run         func(s *sim)
	}{
		{"two-lanes", "1 MiB over two lanes, one twice as fast as the other; nothing is connected yet", func(s *sim) {
			s.submit(writeOf(s.route(s.group("tcp", same(2*slow, slow))), mib))
			s.all()
		}},
		{"killed", "a connection breaks in the middle: its slices are sent again, and the job waits for the fence", func(s *sim) {
			s.fenceIn = 12 * millisecond
			s.submit(writeOf(s.route(s.group("tcp", same(slow, slow))), mib))
			s.in(6*millisecond, func() { s.links[1].cut(nil) })
			s.all()
			s.settle(300 * millisecond)
		}},
		{"silent", "the only lane goes silent with all that is left: a second transport is connected and probed, the lane is killed", func(s *sim) {
			s.submit(writeOf(s.route(s.group("rdma", same(8*slow)), s.group("tcp", same(slow))), mib/2))
			s.in(900*microsecond, func() { s.link("rdma0").setRate(0) })
			s.all()
		}},
		{"swallowed", "what the only lane has sent is swallowed: it is asked over a second connection, and the first is dropped", func(s *sim) {
			s.submit(writeOf(s.route(s.group("tcp", same(slow))), mib))
			s.in(6*millisecond, s.links[0].swallow)
			s.all()
			s.settle(second)
		}},
		{"all-dead", "all lanes die and stay dead, and the peer does not answer: an error at the deadline", func(s *sim) {
			s.fenceIn = Never
			j := writeOf(s.route(s.group("tcp", same(slow, slow))), mib)
			j.DeadlineNS = s.now + 400*millisecond
			s.submit(j)
			s.in(6*millisecond, func() {
				for _, l := range []LaneID{0, 1} {
					s.links[l].refuse = true
					s.links[l].cut(nil)
				}
			})
			s.all()
		}},
		{"fallback", "the better transport breaks and comes back", func(s *sim) {
			s.submit(writeOf(s.route(s.group("shm", same(8*slow)), s.group("tcp", same(slow))), 3*mib))
			s.in(500*microsecond, func() { s.link("shm0").cut(nil) })
			s.all()
		}},
		{"peer-stalls", "every lane stands still for a moment: nobody is blamed", func(s *sim) {
			s.submit(writeOf(s.route(s.group("tcp", same(slow, slow))), mib))
			s.in(3*millisecond, func() { s.links[0].setRate(0); s.links[1].setRate(0) })
			s.in(503*millisecond, func() { s.links[1].setRate(slow) })
			s.in(504*millisecond, func() { s.links[0].setRate(slow) })
			s.all()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSim(t, Config{})
			s.log = &strings.Builder{}
			s.log.WriteString("# " + tt.about + "\n\n")
			tt.run(s)
			golden.Check(t, "testdata/"+tt.name+".txt", s.log.String())
		})
	}
}
