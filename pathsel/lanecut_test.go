package pathsel

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/maxmin"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// machinesForLanes are the fixtures that properties are tried on.
func machinesForLanes(t *testing.T) (names []string, tops map[string]*topo.Topology) {
	t.Helper()
	tops = map[string]*topo.Topology{}
	for _, name := range fixtures.Names() {
		if name == "nvl72-synthetic" {
			continue
		}
		names, tops[name] = append(names, name), fixturetest.Topology(t, name)
	}
	return names, tops
}

// drawSet draws two hosts of a kind, or one, with links that were measured
// anyhow, and asks for the lanes between two memory locations, of all ports or of
// some.
func drawSet(t *rapid.T, names []string, tops map[string]*topo.Topology) (p *Pair, s *LaneSet) {
	top := tops[rapid.SampledFrom(names).Draw(t, "machine")]
	host := func() *Host {
		o, r := topo.Overlay{}, rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "measurements"), 0))
		for i := range top.Links {
			if r.IntN(4) == 0 {
				o[top.Links[i].ID] = topo.Rate(r.IntN(65)) * topo.GBPerSec
			}
		}
		h, err := New(top, Options{Overlay: o})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	local := host()
	remote := local
	if rapid.IntRange(0, 3).Draw(t, "hosts") > 0 {
		remote = host()
	}
	p, err := Connect(local, remote, PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	src, dst := rapid.SampledFrom(local.Locations()).Draw(t, "from"), rapid.SampledFrom(remote.Locations()).Draw(t, "to")
	s, err = p.LanesOf(src, dst, LaneOptions{Local: drawPorts(t, local), Remote: drawPorts(t, remote)})
	if err != nil && (s == nil || len(s.Lanes) > 0) {
		t.Fatal(err)
	}
	return p, s
}

// drawPorts draws a rank's part of a host's ports; mostly all of them.
func drawPorts(t *rapid.T, h *Host) []topo.ID {
	var out []topo.ID
	if rapid.IntRange(0, 3).Draw(t, "rank") == 0 {
		for i := range h.ports {
			if rapid.Bool().Draw(t, "assigned") {
				out = append(out, h.ports[i].ID)
			}
		}
	}
	return out
}

// waysOf are the links of each chosen lane, once for each time that it takes
// one: found from the two hosts' routes, not from what the lanes were made of.
func waysOf(p *Pair, s *LaneSet) [][]segment {
	out := make([][]segment, s.Chosen)
	for i := range s.Chosen {
		l := &s.Lanes[i]
		out[i] = append(out[i], p.local.routes[p.local.locIndex[s.Source]][p.local.portIndex[l.Local]].segments...)
		for _, seg := range p.remote.routes[p.remote.locIndex[s.Destination]][p.remote.portIndex[l.Remote]].segments {
			back := seg ^ 1 // into the host: the other direction of the same link
			if p.local != p.remote {
				back += segment(len(p.local.caps))
			}
			out[i] = append(out[i], back)
		}
	}
	return out
}

// Whatever was measured: the chosen lanes exceed no cut, neither a link of either
// host in its direction (the source's own, each shared one, each wire, the
// destination's own) nor a lane alone; what they have together is the sum of
// their shares; and without any one of them the others would not carry more.
func TestJointCapacityOfLanes(t *testing.T) {
	names, tops := machinesForLanes(t)
	known, several := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		p, s := drawSet(rt, names, tops)
		if len(s.Lanes) == 0 {
			return
		}
		if s.Chosen < 1 || s.Chosen > len(s.Lanes) {
			rt.Fatalf("%d of %d lanes are chosen", s.Chosen, len(s.Lanes))
		}
		ways, load, total := waysOf(p, s), map[segment]topo.Rate{}, topo.Rate(0)
		for i := range s.Chosen {
			l := &s.Lanes[i]
			if l.Share == nil {
				continue
			}
			total += *l.Share
			for _, seg := range ways[i] {
				load[seg] += *l.Share
			}
			if l.BytesPerSec == nil || *l.Share > *l.BytesPerSec {
				rt.Fatalf("%s to %s: a share of %d, alone %v", l.Local, l.Remote, *l.Share, l.BytesPerSec)
			}
		}
		for seg, sum := range load {
			if float64(sum) > p.caps[seg] {
				rt.Fatalf("segment %d carries %d of %f", seg, sum, p.caps[seg])
			}
		}
		if s.BytesPerSec == nil {
			return
		}
		known++
		if *s.BytesPerSec != total {
			rt.Fatalf("together %d, the shares are %d", *s.BytesPerSec, total)
		}
		for i := range s.Chosen {
			several++
			if less := fairly(p, without(ways, i)); less > float64(total)*(1+1e-6)+float64(s.Chosen) {
				rt.Fatalf("%d together, %f without %s to %s", total, less, s.Lanes[i].Local, s.Lanes[i].Remote)
			}
		}
	})
	if known < 5 || several < known {
		t.Errorf("%d sets of known rate with %d lanes: too few to tell", known, several)
	}
}

func without(ways [][]segment, i int) [][]segment {
	out := append([][]segment{}, ways[:i]...)
	return append(out, ways[i+1:]...)
}

func fairly(p *Pair, ways [][]segment) float64 {
	flows := make([]maxmin.Flow, 0, len(ways))
	for _, w := range ways {
		flows = append(flows, maxmin.Flow{Segments: w, Weight: 1})
	}
	maxmin.New(p.caps).Share(flows)
	sum := 0.0
	for i := range flows {
		sum += flows[i].Rate
	}
	return sum
}

// Lanes are fresh as long as they can be: whatever reaches whatever, the first
// lanes of a tier are as many as can be without a port in common.
func TestLanesAreFreshFirst(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const ports = 5
		var edges []edge
		for i := range ports {
			for j := range ports {
				if rapid.IntRange(0, 2).Draw(rt, "reaches") == 0 {
					edges = append(edges, edge{i: i, j: j, rate: float64(rapid.IntRange(1, 3).Draw(rt, "rate"))})
				}
			}
		}
		want := mostPairs(edges, 0, [ports]bool{})
		b := &laneBuilder{s: &LaneSet{}, usedHere: make([]int, ports), usedThere: make([]int, ports)}
		out := b.arrange(slices.Clone(edges))
		if len(out) != len(edges) {
			rt.Fatalf("%d lanes of %d", len(out), len(edges))
		}
		here, there := [ports]bool{}, [ports]bool{}
		for n, e := range out[:want] {
			if here[e.i] || there[e.j] {
				rt.Fatalf("lane %d of %d uses a port again", n, want)
			}
			here[e.i], there[e.j] = true, true
		}
	})
}

// mostPairs tries everything: the largest number of edges without a common port,
// of local ports from i on.
func mostPairs(edges []edge, i int, there [5]bool) int {
	if i == len(there) {
		return 0
	}
	best := mostPairs(edges, i+1, there)
	for _, e := range edges {
		if e.i == i && !there[e.j] {
			taken := there
			taken[e.j] = true
			best = max(best, 1+mostPairs(edges, i+1, taken))
		}
	}
	return best
}

// A port with one partner gets it, even if a port before it liked that partner
// best: the other one has another choice.
func TestAugmentingPaths(t *testing.T) {
	at := func(i, j int) edge { return edge{i: i, j: j, reach: &reachability{}} }
	for _, tt := range []struct {
		name  string
		edges []edge
		want  int
	}{
		{"every pair", []edge{at(0, 0), at(0, 1), at(1, 0), at(1, 1)}, 2},
		{"one step", []edge{at(0, 0), at(0, 1), at(1, 0)}, 2},
		{"two steps", []edge{at(0, 0), at(0, 1), at(1, 0), at(1, 2), at(2, 0)}, 3},
		{"no more than there are", []edge{at(0, 0), at(1, 0), at(2, 0)}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := &laneBuilder{s: &LaneSet{}, usedHere: make([]int, 3), usedThere: make([]int, 3)}
			out := b.arrange(tt.edges)
			if len(out) != len(tt.edges) {
				t.Fatalf("%d of %d edges", len(out), len(tt.edges))
			}
			here, there := map[int]bool{}, map[int]bool{}
			for _, e := range out[:tt.want] {
				if here[e.i] || there[e.j] {
					t.Errorf("port used twice among the first %d: %v", tt.want, out)
				}
				here[e.i], there[e.j] = true, true
			}
		})
	}
}
