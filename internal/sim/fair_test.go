package sim

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
)

// naive shares all links among all flows by the definition: all grow alike until
// a link is full or a flow has what it wants, round after round.
func naive(caps []float64, flows []*Flow) []float64 {
	rates, fixed := make([]float64, len(flows)), make([]bool, len(flows))
	for {
		level := math.Inf(1)
		full := func(l Link) (float64, bool) {
			used, n := 0.0, 0
			for i, f := range flows {
				for _, x := range f.spec.Path {
					if x == l && fixed[i] {
						used += rates[i]
					} else if x == l {
						n++
					}
				}
			}
			return max(0, caps[l]-used) / float64(n), n > 0 && !math.IsInf(caps[l], 1)
		}
		open := false
		for i, f := range flows {
			if fixed[i] {
				continue
			}
			open = true
			level = min(level, f.limit)
			for _, l := range f.spec.Path {
				if v, ok := full(l); ok {
					level = min(level, v)
				}
			}
		}
		if !open {
			return rates
		}
		var stop []int
		for i, f := range flows {
			if fixed[i] {
				continue
			}
			at := f.limit <= level*(1+1e-12)
			for _, l := range f.spec.Path {
				v, ok := full(l)
				at = at || ok && v <= level*(1+1e-9)
			}
			if at {
				stop = append(stop, i)
			}
		}
		for _, i := range stop {
			rates[i], fixed[i] = level, true
		}
	}
}

// checkFair: no link is above its rate, every flow has what it wants or a full link
// on which nobody has more, and the shares are those of the definition.
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
		caps[i] = n.links[i].cap
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
		if got := float64(n.Load(Link(i))); math.Abs(load[i]-got) > 1+1e-9*load[i] {
			t.Fatalf("link %d carries %g and says %g", i, load[i], got)
		}
	}
	want := naive(caps, live)
	for k, f := range live {
		bound := f.rate >= f.limit*(1-1e-9)
		for _, l := range f.spec.Path {
			bound = bound || load[l] >= caps[l]*(1-1e-9) && f.rate >= most[l]*(1-1e-9)
		}
		if !bound {
			t.Fatalf("flow %d at %g has no bottleneck", f.number, f.rate)
		}
		if math.Abs(f.rate-want[k]) > 1e-6*(1+want[k]) {
			t.Fatalf("flow %d has %g, want %g", f.number, f.rate, want[k])
		}
		if f.limiter != NoLink && !slices.Contains(f.spec.Path, f.limiter) {
			t.Fatalf("flow %d is limited by link %d, which it does not cross", f.number, f.limiter)
		}
	}
}

// Whatever begins, ends or changes, and in whatever order, shares are max-min fair
// and equal to those of the definition.
func TestSharesAreMaxMinFair(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := NewNet(Options{})
		for range rapid.IntRange(2, 12).Draw(rt, "links") {
			n.AddLink(topo.Rate(rapid.SampledFrom([]int{-1, 0, 1, 10, 10, 25, 50, 50, 100}).Draw(rt, "rate"))*gb, 0, false)
		}
		var flows []*Flow
		for range rapid.IntRange(30, 120).Draw(rt, "steps") {
			switch rapid.IntRange(0, 5).Draw(rt, "what") {
			case 0, 1, 2:
				path := rapid.SliceOfN(rapid.Map(rapid.IntRange(0, len(n.links)-1), func(i int) Link { return Link(i) }), 0, 4).Draw(rt, "path")
				flows = append(flows, n.Start(FlowSpec{Path: path, Bytes: rapid.SampledFrom([]int64{1, 1e6, 1e9, Endless}).Draw(rt, "bytes"),
					LimitBytesPerSec: topo.Rate(rapid.SampledFrom([]int{0, 0, 3, 10, 60}).Draw(rt, "limit")) * gb}))
			case 3:
				if len(flows) > 0 {
					rapid.SampledFrom(flows).Draw(rt, "flow").Stop()
				}
			case 4:
				l := Link(rapid.IntRange(0, len(n.links)-1).Draw(rt, "link"))
				n.setRate(l, capacity(topo.Rate(rapid.SampledFrom([]int{-1, 0, 5, 10, 15, 20, 30, 40}).Draw(rt, "new rate"))*gb))
			case 5:
				if len(flows) > 0 {
					rapid.SampledFrom(flows).Draw(rt, "flow").SetLimit(topo.Rate(rapid.IntRange(0, 20).Draw(rt, "new limit")) * gb)
				}
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
		n := NewNet(Options{Seed: rapid.Uint64().Draw(rt, "seed"), Jitter: rapid.SampledFrom([]float64{0, 0.01, 0.2}).Draw(rt, "jitter")})
		for range 6 {
			n.AddLink(topo.Rate(rapid.IntRange(1, 50).Draw(rt, "rate"))*gb, 0, false)
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
		if ended != sums || n.Active() != 0 {
			rt.Fatalf("%d of %d bytes ended, %d flows are left", ended, sums, n.Active())
		}
		for l := range want {
			if got := n.Bytes(Link(l)); got != want[l] {
				rt.Fatalf("link %d counted %d bytes of %d", l, got, want[l])
			}
			if x := &n.links[l]; n.Load(Link(l)) != 0 || x.bound != 0 || x.hot || x.full {
				rt.Fatalf("link %d is still in use: %+v", l, x)
			}
		}
	})
}

// A flow is as fast as its share at each moment: two that share a link of 10 GB/s,
// then one alone.
func TestTimesOfFlows(t *testing.T) {
	n := NewNet(Options{})
	l := n.AddLink(10*gb, 0, false)
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
	n := NewNet(Options{})
	l := n.AddLink(100*gb, 0, false)
	var flows []*Flow
	for range 3 {
		flows = append(flows, n.Start(FlowSpec{Path: []Link{l, n.AddLink(50*gb, 0, false)}, Bytes: Endless, LimitBytesPerSec: 22 * gb}))
	}
	flows[0].BytesPerSec()
	n.setRate(l, float64(60*gb))
	for _, f := range flows {
		if got := f.BytesPerSec(); got != 20*gb || f.Limiter() != l {
			t.Errorf("%d bytes/s, limited by %d", got, f.Limiter())
		}
	}
}

// Who extends a flow as it ends keeps its place on the links: nothing is shared
// out anew.
func TestExtendGoesOn(t *testing.T) {
	var log strings.Builder
	n := NewNet(Options{Trace: logTo(&log)})
	l := n.AddLink(10*gb, 0, false)
	left := 3
	f := n.Start(FlowSpec{Path: []Link{l}, Bytes: 1e9, End: func(f *Flow) {
		if left--; left > 0 {
			f.Extend(1e9)
		}
	}})
	n.Run(second)
	if f.EndNS() != 300*millisecond || f.Moved() != 3e9 || strings.Count(log.String(), "rate") != 1 {
		t.Errorf("ended at %d with %d bytes:\n%s", f.EndNS(), f.Moved(), log.String())
	}
	f.Extend(1e9)
	n.Run(2 * second)
	if f.EndNS() != second+100*millisecond || f.Active() || n.Bytes(l) != 4e9 {
		t.Errorf("began again and ended at %d; the link counted %d bytes", f.EndNS(), n.Bytes(l))
	}
}

// Jitter spreads what flows get around their share, and the same seed draws the
// same.
func TestJitter(t *testing.T) {
	sample := func(seed uint64) []float64 {
		n := NewNet(Options{Seed: seed, Jitter: 0.01})
		l := n.AddLink(10*gb, 0, false)
		var out []float64
		for range 400 {
			start := n.Now()
			n.Start(FlowSpec{Path: []Link{l}, Bytes: 1e9})
			n.RunUntil(Never, func() bool { return n.Active() == 0 })
			out = append(out, 1e9/float64(n.Now()-start))
		}
		return out
	}
	a := sample(1)
	mean, dev := 0.0, 0.0
	for _, x := range a {
		mean += x / float64(len(a))
	}
	for _, x := range a {
		dev += (x - mean) * (x - mean) / float64(len(a))
	}
	if dev = math.Sqrt(dev); math.Abs(mean-10) > 0.03 || dev < 0.08 || dev > 0.12 {
		t.Errorf("mean %.3f GB/s, deviation %.3f", mean, dev)
	}
	if !slices.Equal(a, sample(1)) || slices.Equal(a, sample(2)) {
		t.Error("the seed does not decide what is drawn")
	}
}
