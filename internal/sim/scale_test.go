package sim

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/topoctl/topoctl/internal/sched"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// load starts a flow from every GPU of every host by the port of its rail, to the
// same GPU of a host that is so far away, or to any GPU and port for 0. Sizes differ,
// so that each ends at a time of its own.
func load(t testing.TB, c *Cluster, by int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	hosts := len(c.Names())
	for h := range hosts {
		ports := c.Kind(h).DataPorts()
		for i, p := range ports {
			loc := pathsel.Location(fmt.Sprintf("gpu:%d", i))
			to := End{(h + by) % hosts, loc, p}
			if by == 0 {
				n := rng.IntN(len(ports))
				to = End{(h + 1 + rng.IntN(hosts-1)) % hosts, pathsel.Location(fmt.Sprintf("gpu:%d", n)), ports[n]}
			}
			if _, err := c.Move(Transfer{From: End{h, loc, p}, To: to, Bytes: 1e9 + rng.Int64N(1e9), Entropy: uint64(i)}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// loads are what 1,000 hosts are tried with: flows share little there, much and
// very much.
var loads = []struct {
	name   string
	byHost bool
	by     int
	change func(s *Shape)
}{
	{"rails", false, 333, func(s *Shape) { s.HostsPerGroup, s.Spines = 32, 32 }},
	{"byhost", true, 333, func(s *Shape) { s.Spines = 32 }},
	{"byhost-2to1", true, 333, func(s *Shape) { s.Spines, s.Oversubscription = 16, 2 }},
	{"byhost-2to1-any", true, 0, func(s *Shape) { s.Spines, s.Oversubscription = 16, 2 }},
	{"core-8to1-any", true, 0, func(s *Shape) { s.Spines, s.Oversubscription = 1, 8 }},
}

// checkBottlenecks: no link carries more than it can, and every flow crosses a full
// one on which nobody has more. Together that is what max-min fair means.
func checkBottlenecks(t *testing.T, c *Cluster) {
	t.Helper()
	c.share()
	most := map[Link]float64{}
	flows := map[*Flow]bool{}
	for i := range c.links {
		x, sum := &c.links[i], 0.0
		for _, h := range x.flows {
			sum += h.flow.rate
			most[Link(i)] = max(most[Link(i)], h.flow.rate)
			flows[h.flow] = true
		}
		if sum > x.cap*(1+1e-9) {
			t.Fatalf("%s carries %g of %g", c.Name(Link(i)), sum, x.cap)
		}
	}
	for f := range flows {
		if !slices.ContainsFunc(f.spec.Path, func(l Link) bool {
			return c.links[l].load() >= c.links[l].cap*(1-1e-9) && f.rate >= most[l]*(1-1e-9)
		}) {
			t.Fatalf("flow %d at %g has no bottleneck", f.number, f.rate)
		}
	}
}

// 1,000 hosts with 8,000 ports and as many flows at a time take less than 2 GB.
func TestThousandHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: simulates 1,000 hosts for seconds")
	}
	for _, f := range longtest.Sample(loads, 1) {
		var before, built, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		c := dgx(t, 1000, f.byHost, f.change, Options{Seed: 1, Jitter: 0.01})
		load(t, c, f.by)
		c.Run(1)
		runtime.GC()
		runtime.ReadMemStats(&built)
		if c.Active() != 8000 {
			t.Fatalf("%s: %d flows", f.name, c.Active())
		}
		checkBottlenecks(t, c)
		for c.Active() > 0 && c.Now() < 100*second {
			c.Run(c.Now() + 100*millisecond)
			checkBottlenecks(t, c)
		}
		runtime.ReadMemStats(&after)
		if c.Active() != 0 {
			t.Errorf("%s: %d flows are left", f.name, c.Active())
		}
		live, allocated, sys := built.HeapAlloc-min(built.HeapAlloc, before.HeapAlloc), after.TotalAlloc-before.TotalAlloc, after.Sys
		t.Logf("%s: ended at %.3f s; %d MB live, %d MB allocated in all, %d MB from the system; %d flows shared out in %d rounds", f.name, float64(c.Now())/1e9,
			live>>20, allocated>>20, sys>>20, c.fair.shares, c.fair.rounds)
		if sys > 2e9 || live > 1e9 {
			t.Errorf("%s: %d bytes live, %d from the system", f.name, live, sys)
		}
		runtime.KeepAlive(c)
	}
}

// A whole run: 8,000 flows begin at once and end one by one.
func BenchmarkThousandHosts(b *testing.B) {
	for _, f := range loads {
		b.Run(f.name, func(b *testing.B) {
			b.ReportAllocs()
			shares := uint64(0)
			for b.Loop() {
				c := dgx(b, 1000, f.byHost, f.change, Options{Seed: 1, Jitter: 0.01})
				load(b, c, f.by)
				c.Run(Never)
				shares += c.fair.shares
			}
			b.ReportMetric(float64(shares)/b.Elapsed().Seconds(), "shares/s")
			b.ReportMetric(float64(shares)/float64(b.N)/8000, "shares/flow")
		})
	}
}

// One flow that ends and begins while 8,000 others run.
func BenchmarkOneChange(b *testing.B) {
	for _, f := range loads {
		b.Run(f.name, func(b *testing.B) {
			c := dgx(b, 1000, f.byHost, f.change, Options{Seed: 1})
			load(b, c, f.by)
			c.Run(1)
			p := c.Kind(0).DataPorts()[3]
			before := c.fair.shares
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				f, err := c.Move(Transfer{From: End{n % 1000, "gpu:3", p}, To: End{(n + 500) % 1000, "gpu:3", p}, Bytes: Endless})
				if err != nil {
					b.Fatal(err)
				}
				f.BytesPerSec()
				f.Stop()
				c.share()
				n++
			}
			b.ReportMetric(float64(c.fair.shares-before)/float64(n), "shares/op")
		})
	}
}

// What a host costs: its links, when something crosses them.
func BenchmarkHost(b *testing.B) {
	for _, name := range []string{"dgx-h100", "nvl72-synthetic"} {
		b.Run(name, func(b *testing.B) {
			k := kind(b, name, KindOptions{})
			c := build(b, Spec{Hosts: named(200, k)})
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			for h := range 200 {
				c.firstLink(h)
			}
			c.links = slices.Clip(slices.Clone(c.links))
			runtime.GC()
			runtime.ReadMemStats(&after)
			for b.Loop() {
				c.Rate(c.firstLink(0))
			}
			b.ReportMetric((float64(after.HeapAlloc)-float64(before.HeapAlloc))/200, "B/host")
			b.ReportMetric(float64(len(k.lines)), "lines/host")
			runtime.KeepAlive(c)
		})
	}
}

// An engine that moves 4 GiB between two hosts over five lanes, in slices.
func BenchmarkEngine(b *testing.B) {
	c := dgx(b, 2, false, nil, Options{})
	e := engineOf(b, c, 0, EngineOptions{})
	b.SetBytes(4 << 30)
	b.ReportAllocs()
	for b.Loop() {
		move(b, c, e, Work{Peer: 1, Local: "cpu:0", Remote: "cpu:0", Bytes: 4 << 30})
	}
}

// 1,000 engines, each of which writes 256 MiB to the next host, from all of its GPUs.
func BenchmarkThousandEngines(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		c := dgx(b, 1000, false, func(s *Shape) { s.HostsPerGroup, s.Spines = 32, 32 }, Options{Seed: 1})
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		over := 0
		for h := range 1000 {
			e := engineOf(b, c, h, EngineOptions{})
			for g := range 8 {
				loc := pathsel.Location(fmt.Sprintf("gpu:%d", g))
				submit(b, e, Work{Peer: (h + 1) % 1000, Local: loc, Remote: loc, Bytes: 32 << 20, Done: func(*sched.Job) { over++ }})
			}
		}
		if !c.RunUntil(100*second, func() bool { return over == 8000 }) {
			b.Fatalf("%d jobs are over", over)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric((float64(after.HeapAlloc)-float64(before.HeapAlloc))/1000, "B/engine")
		runtime.KeepAlive(c)
	}
}
