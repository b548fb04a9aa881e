package sim

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
)

// checkFair: no link is above its rate, and every flow has what it wants or a full link on which nobody has
// more. Only one set of shares is so: the max-min fair one.
func checkFair(t *rapid.T, n *Net, flows []*Flow) {
	n.share()
	var live []*Flow
	for _, f := range flows {
		if f.active {
			live = append(live, f)
		}
	}
	caps, load := make([]float64, len(n.links)), make([]float64, len(n.links))
	most := make([]float64, len(n.links))
	for i := range n.links {
		caps[i] = n.capacities[i]
	}
	for _, f := range live {
		for _, l := range f.spec.Path {
			load[l] += f.rate
			most[l] = max(most[l], f.rate)
		}
	}
	for i := range caps {
		if load[i] > caps[i]*(1+1e-9) {
			t.Fatalf("link %d carries %g of %g", i, load[i], caps[i])
		}
	}
	for k, f := range live {
		bound := f.rate == float64(Unlimited)
		for _, l := range f.spec.Path {
			bound = bound || load[l] >= caps[l]*(1-1e-9) && f.rate >= most[l]*(1-1e-9)
		}
		if !bound {
			t.Fatalf("flow %d at %g has no bottleneck", k, f.rate)
		}
		if f.limiter != NoLink && !slices.Contains(f.spec.Path, f.limiter) {
			t.Fatalf("flow %d is limited by link %d, which it does not cross", k, f.limiter)
		}
	}
}

// Whatever begins, ends or changes, and in whatever order, shares are max-min fair.
func TestSharesAreMaxMinFair(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := NewNet()
		for range rapid.IntRange(2, 12).Draw(rt, "links") {
			n.AddLink(topo.Rate(rapid.SampledFrom([]int{-1, 0, 1, 10, 10, 25, 50, 50, 100}).Draw(rt, "rate"))*gb, 0)
		}
		var flows []*Flow
		for range rapid.IntRange(30, 120).Draw(rt, "steps") {
			switch rapid.IntRange(0, 4).Draw(rt, "what") {
			case 0, 1, 2:
				path := rapid.SliceOfN(rapid.Map(rapid.IntRange(0, len(n.links)-1), func(i int) Link { return Link(i) }), 0, 4).Draw(rt, "path")
				flows = append(flows, n.Start(FlowSpec{Path: path, Bytes: rapid.SampledFrom([]int64{1, 1e6, 1e9, Endless}).Draw(rt, "bytes")}))
			case 3:
				if len(flows) > 0 {
					rapid.SampledFrom(flows).Draw(rt, "flow").Stop()
				}
			case 4:
				l := Link(rapid.IntRange(0, len(n.links)-1).Draw(rt, "link"))
				n.setRate(l, capacity(topo.Rate(rapid.SampledFrom([]int{-1, 0, 5, 10, 15, 20, 30, 40}).Draw(rt, "new rate"))*gb))
			}
			if rapid.Bool().Draw(rt, "pass") { // several changes at one time, or one by one
				n.Run(n.now + rapid.SampledFrom([]int64{0, 1, 1e6, 1e8}).Draw(rt, "ns"))
				checkFair(rt, n, flows)
			}
		}
		n.Run(n.now + 1)
		checkFair(rt, n, flows)
	})
}

// Every byte that a flow was given has crossed each of its links when it ends, no
// matter how often its rate changed.
func TestBytesAreConserved(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := NewNet()
		for range 6 {
			n.AddLink(topo.Rate(rapid.IntRange(1, 50).Draw(rt, "rate"))*gb, 0)
		}
		want := make([]int64, len(n.links))
		sums, ended := int64(0), int64(0)
		for range rapid.IntRange(10, 60).Draw(rt, "flows") {
			bytes := rapid.Int64Range(1, 10e9).Draw(rt, "bytes")
			path := []Link{Link(rapid.IntRange(0, 2).Draw(rt, "a")), Link(rapid.IntRange(3, 5).Draw(rt, "b"))}
			for _, l := range path {
				want[l] += bytes
			}
			sums += bytes
			n.At(rapid.Int64Range(0, 1e9).Draw(rt, "at"), func() {
				n.Start(FlowSpec{Path: path, Bytes: bytes, End: func(f *Flow) {
					ended += bytes
					if f.Moved() != bytes {
						rt.Errorf("flow moved %d of %d bytes", f.Moved(), bytes)
					}
				}})
			})
		}
		n.RunUntil(Never, func() bool { return false })
		if ended != sums || n.active != 0 {
			rt.Fatalf("%d of %d bytes ended, %d flows are left", ended, sums, n.active)
		}
		for l := range want {
			if got := n.Bytes(Link(l)); got != want[l] {
				rt.Fatalf("link %d counted %d bytes of %d", l, got, want[l])
			}
			if x := &n.links[l]; len(x.flows) > 0 {
				rt.Fatalf("link %d is still in use: %+v", l, x)
			}
		}
	})
}

// A flow is as fast as its share at each moment: two that share a link of 10 GB/s,
// then one alone.
func TestTimesOfFlows(t *testing.T) {
	n := NewNet()
	l := n.AddLink(10*gb, 0)
	var ends []int64
	end := func(*Flow) { ends = append(ends, n.Now()) }
	n.Start(FlowSpec{Path: []Link{l}, Bytes: 5e9, End: end})
	n.Start(FlowSpec{Path: []Link{l}, Bytes: 10e9, End: end})
	n.Run(10 * second)
	if want := []int64{second, 3 * second / 2}; !slices.Equal(ends, want) {
		t.Errorf("ended at %d, want %d", ends, want)
	}
}

// A link that falls below what it carries is shared out, though its flows are held
// back elsewhere and it was never full.
func TestLinkFallsBelowItsLoad(t *testing.T) {
	n := NewNet()
	l := n.AddLink(100*gb, 0)
	var flows []*Flow
	for range 3 {
		flows = append(flows, n.Start(FlowSpec{Path: []Link{l, n.AddLink(22*gb, 0)}, Bytes: Endless}))
	}
	flows[0].BytesPerSec()
	n.setRate(l, float64(60*gb))
	for _, f := range flows {
		if got := f.BytesPerSec(); got != 20*gb || f.limiter != l {
			t.Errorf("%d bytes/s, limited by %d", got, f.limiter)
		}
	}
}

// Extending a flow as it ends keeps its place on the links: nothing is shared
// out anew.
func TestExtendGoesOn(t *testing.T) {
	n := NewNet()
	l := n.AddLink(10*gb, 0)
	left, rates, ended := 3, 0, int64(0)
	f := n.Start(FlowSpec{Path: []Link{l}, Bytes: 1e9, Rate: func(*Flow) { rates++ }, End: func(f *Flow) {
		ended = n.Now()
		if left--; left > 0 {
			f.Extend(1e9)
		}
	}})
	n.Run(second)
	if ended != 300*millisecond || f.Moved() != 3e9 || rates != 1 {
		t.Errorf("ended at %d with %d bytes, %d rates", ended, f.Moved(), rates)
	}
	f.Extend(1e9)
	n.Run(2 * second)
	if ended != second+100*millisecond || f.active || n.Bytes(l) != 4e9 {
		t.Errorf("began again and ended at %d; the link counted %d bytes", ended, n.Bytes(l))
	}
}
