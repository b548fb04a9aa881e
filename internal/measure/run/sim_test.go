package run_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/measure/judge"
	"github.com/topoctl/topoctl/internal/measure/plan"
	"github.com/topoctl/topoctl/internal/measure/run"
	"github.com/topoctl/topoctl/internal/sim"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// simulated is a Prober of hosts that the simulator plays.
type simulated struct {
	c    *sim.Cluster
	host map[string]int
	plan *plan.Plan
}

// Round moves bytes between the ends of all pairs at once. Every sample is a new
// connection, so that each has its own luck.
func (s *simulated) Round(ctx context.Context, pairs []probe.Pair, spec probe.Spec, tell func(int, probe.Sample)) []probe.Measurement {
	out := make([]probe.Measurement, len(pairs))
	samples, stopped := make([][]int64, len(pairs)), make([]string, len(pairs))
	for ctx.Err() == nil {
		flows := make([]*sim.Flow, len(pairs))
		open := 0
		for i := range pairs {
			if stopped[i] != "" || out[i].Err != nil {
				continue
			}
			if flows[i], out[i].Err = s.move(&pairs[i]); out[i].Err == nil {
				open++
			}
		}
		if open == 0 {
			break
		}
		s.c.Run(s.c.Now() + int64(spec.SampleTime))
		for i, f := range flows {
			if f == nil {
				continue
			}
			rate := int64(float64(f.Moved()) / spec.SampleTime.Seconds())
			f.Stop()
			samples[i] = append(samples[i], rate)
			tell(i, probe.Sample{SizeBytes: spec.SizesBytes[0], BytesPerSec: rate})
			stopped[i], _ = judge.Enough(samples[i], spec)
		}
	}
	for i := range pairs {
		if len(samples[i]) > 0 {
			out[i].Bandwidth = []probe.Bandwidth{judge.Bandwidth(spec.SizesBytes[0], samples[i], 1, 1, cmp.Or(stopped[i], probe.StoppedInterrupted))}
		}
	}
	return out
}

func (s *simulated) move(p *probe.Pair) (*sim.Flow, error) {
	if p.Kind != probe.Port {
		path, err := s.c.Within(s.host[p.From.Host], p.From.Node, p.To.Node)
		if err != nil {
			return nil, err
		}
		return s.c.Start(sim.FlowSpec{Path: path, Bytes: sim.Endless}), nil
	}
	return s.c.Move(sim.Transfer{From: s.end(&p.From), To: s.end(&p.To), Bytes: sim.Endless})
}

func (s *simulated) end(e *probe.End) sim.End {
	return sim.End{Host: s.host[e.Host], Location: e.Location, Port: e.Node}
}

// fabricOf is hosts of one kind on leaves of two hosts each, under one spine that none
// of them can fill, and the plan for all pairs of ports.
func fabricOf(t *testing.T, fixture string, hosts int, rails plan.Rails, seed uint64) *simulated {
	t.Helper()
	k, err := sim.NewKind(fixturetest.Topology(t, fixture), sim.KindOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ports := k.DataPorts()
	f := &sim.Fabric{Leaves: (hosts + 1) / 2, Spines: 1, UplinkBytesPerSec: 400e9}
	s := &simulated{host: map[string]int{}}
	spec := sim.Spec{Fabric: f, Options: sim.Options{Seed: seed, Jitter: 0.005}}
	var planned []plan.Host
	for h := range hosts {
		name := fmt.Sprintf("n%d", h)
		s.host[name] = h
		spec.Hosts = append(spec.Hosts, sim.HostSpec{Name: name, Kind: k})
		planned = append(planned, plan.Host{Name: name, Topology: k.Topology()})
		for rail, p := range ports {
			f.Cables = append(f.Cables, sim.Cable{Host: h, Port: p, Leaf: h / 2, Rail: rail})
		}
	}
	if s.c, err = sim.New(spec); err != nil {
		t.Fatal(err)
	}
	pairs, err := plan.Fabric(planned, plan.FabricOptions{Rails: rails, Memory: plan.OnGPU, Fabric: s.c.File()})
	if err != nil {
		t.Fatal(err)
	}
	s.layout(t, pairs)
	return s
}

func (s *simulated) layout(t *testing.T, pairs *plan.Pairs) {
	t.Helper()
	var err error
	if s.plan, err = plan.Make(pairs, plan.Options{Spec: spec()}); err != nil {
		t.Fatal(err)
	}
}

// run measures everything.
func (s *simulated) run(t *testing.T) *probe.Report {
	t.Helper()
	r, err := run.Run(t.Context(), run.Options{Plan: s.plan, Prober: s, Rules: probe.DefaultRules(), Now: time.Now,
		Elapsed: func() time.Duration { return time.Duration(s.c.Now()) }})
	if err != nil {
		t.Fatal(err)
	}
	return document(t, r)
}

// culprit is what is broken: the name that blame has for it, and the directed links of
// the plan that it slows.
type culprit struct {
	key   string
	links map[probe.LinkKey]topo.Rate // and what they carry now
}

// broken injects a fault into links and says which of the plan's they are.
func (s *simulated) broken(t *testing.T, key string, links []sim.Link, e sim.Effect) culprit {
	t.Helper()
	if err := s.c.Inject(sim.Fault{Name: key, Links: links, Effect: e}); err != nil {
		t.Fatal(err)
	}
	out := culprit{key: key, links: map[probe.LinkKey]topo.Rate{}}
	for _, l := range links {
		w := s.c.Where(l)
		rate, _ := s.c.Rate(l)
		direction := map[bool]string{true: "up", false: "down"}[w.Up]
		if w.Host < 0 {
			out.links[probe.Key("", topo.LinkID(fmt.Sprintf("leaf:leaf%d/spine:spine%d", w.Leaf, w.Spine)), direction)] = rate
			continue
		}
		out.links[probe.Key(s.c.Names()[w.Host], w.LinkID, direction)] = rate
	}
	return out
}

// slowed says whether a pair has less than it should over what is broken.
func (c *culprit) slowed(p *probe.Pair) bool {
	return slices.ContainsFunc(p.Path, func(k probe.LinkKey) bool {
		rate, ok := c.links[k]
		return ok && rate < *p.Expected.BytesPerSec*3/4
	})
}

// check holds a report against the truth: pairs that the culprit slows fail and no
// other does, one fault is blamed, the culprit is among its suspects, and so is nothing
// that some pair proves well or that cannot explain every bad pair.
func check(t *testing.T, r *probe.Report, c culprit) {
	t.Helper()
	var bad, good []*probe.Result
	for i := range r.Results {
		x := &r.Results[i]
		if x.Pair.Waived != "" {
			continue
		}
		slow := c.slowed(&x.Pair)
		if slow {
			bad = append(bad, x)
		} else {
			good = append(good, x)
		}
		if slow != (x.Verdict == probe.Fail) {
			t.Errorf("%s: %s, crosses the culprit: %v: %+v", x.ID, x.Verdict, slow, x.Reasons)
		}
	}
	if len(bad) == 0 {
		t.Fatal("no pair crosses the culprit")
	}
	if len(r.Blame) != 1 {
		t.Fatalf("%d faults are blamed for %s: %+v", len(r.Blame), c.key, r.Blame)
	}
	b := &r.Blame[0]
	if len(b.Pairs) != len(bad) {
		t.Errorf("%d pairs are explained of %d", len(b.Pairs), len(bad))
	}
	var names []string
	found := false
	worst := int64(0) // what a link that all bad pairs cross may carry
	for _, x := range bad {
		worst = max(worst, x.Bandwidth[0].MeanBytesPerSec*11/10)
	}
	for i := range b.Suspects {
		s := &b.Suspects[i]
		names = append(names, s.Kind+" "+s.Name)
		found = found || c.is(s)
		crosses := func(x *probe.Result) bool {
			return slices.ContainsFunc(x.Path, func(k probe.LinkKey) bool { return slices.Contains(s.Links, k) })
		}
		for _, x := range bad {
			if !crosses(x) {
				t.Errorf("suspect %s %s cannot explain %s", s.Kind, s.Name, x.ID)
			}
		}
		faster := func(x *probe.Result) bool { return crosses(x) && x.Bandwidth[0].MeanBytesPerSec > worst }
		if i := slices.IndexFunc(good, faster); i >= 0 && (s.Kind == "link" || s.Kind == "direction") {
			t.Errorf("suspect %s %s: %s crosses it and is faster", s.Kind, s.Name, good[i].ID)
		}
	}
	t.Logf("%s: suspects %s", c.key, strings.Join(names, ", "))
	if !found {
		t.Errorf("%s is not among the suspects: %s", c.key, strings.Join(names, ", "))
	}
}

// is says whether a suspect is the culprit: named as it, or as a link of it where the
// culprit is a link.
func (c *culprit) is(s *probe.Suspect) bool {
	_, ok := c.links[probe.LinkKey(s.Key)]
	return s.Key == c.key || (s.Kind == "link" || s.Kind == "direction") && ok && strings.HasPrefix(c.key, "link ")
}

// seeds is how often each fault is tried, elsewhere each time.
func seeds() uint64 {
	if testing.Short() {
		return 2
	}
	return 20
}

// Eight hosts with two ports each: whatever breaks is named, and what is well does
// not fail.
func TestSimulatedFabric(t *testing.T) {
	faults := map[string]func(t *testing.T, s *simulated, r *rand.Rand) culprit{
		"bad cable": func(t *testing.T, s *simulated, r *rand.Rand) culprit {
			host, port := s.pick(r)
			wire, err := s.c.Cable(host, port)
			if err != nil {
				t.Fatal(err)
			}
			return s.broken(t, "link of a cable", wire, sim.Effect{Factor: 0.2 + 0.5*r.Float64()})
		},
		"cable that loses packets one way": func(t *testing.T, s *simulated, r *rand.Rand) culprit {
			host, port := s.pick(r)
			wire, err := s.c.Cable(host, port)
			if err != nil {
				t.Fatal(err)
			}
			return s.broken(t, "link of a cable", wire[r.IntN(2):][:1], sim.Effect{Loss: 0.01, ResentPackets: 50})
		},
		"bad NIC": func(t *testing.T, s *simulated, r *rand.Rand) culprit {
			host, port := s.pick(r)
			links, err := s.c.NIC(host, port)
			if err != nil {
				t.Fatal(err)
			}
			nic, _ := s.c.Kind(host).Host().Port(port)
			return s.broken(t, s.c.Names()[host]+" "+string(nic.NIC), links, sim.Effect{MostBytesPerSec: topo.Rate(2e9 + 5e9*r.Float64())})
		},
		"bad host": func(t *testing.T, s *simulated, r *rand.Rand) culprit {
			host, _ := s.pick(r)
			f, err := s.c.SlowHost(host, 0.1+0.1*r.Float64())
			if err != nil {
				t.Fatal(err)
			}
			return s.broken(t, s.c.Names()[host], f.Links, f.Effect)
		},
		"congested uplink": func(t *testing.T, s *simulated, r *rand.Rand) culprit {
			leaf := r.IntN(4)
			links, err := s.c.Uplinks(leaf, 0)
			if err != nil {
				t.Fatal(err)
			}
			return s.broken(t, "link to the spine", links, sim.Effect{TakenBytesPerSec: topo.Rate(392e9 + 4e9*r.Float64())})
		},
	}
	for name, inject := range faults {
		t.Run(name, func(t *testing.T) {
			for seed := range seeds() {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					s := fabricOf(t, "a10-2nic", 8, plan.RailsAll, seed)
					c := inject(t, s, rand.New(rand.NewPCG(seed, 1)))
					check(t, s.run(t), c)
				})
			}
		})
	}
}

// pick draws a port.
func (s *simulated) pick(r *rand.Rand) (host int, port topo.ID) {
	host = r.IntN(len(s.host))
	ports := s.c.Kind(host).DataPorts()
	return host, ports[r.IntN(len(ports))]
}

// Two hosts of the DGX class, eight rails: a PCIe link that came up narrower is named.
func TestSimulatedPCIeLink(t *testing.T) {
	for seed := range seeds() {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			s := fabricOf(t, "dgx-h100", 2, plan.RailsAll, seed)
			host, port := s.pick(r)
			links, err := s.c.NIC(host, port)
			if err != nil {
				t.Fatal(err)
			}
			links = slices.DeleteFunc(links, func(l sim.Link) bool { return s.c.Where(l).Port != "" })
			c := s.broken(t, "link of PCIe", links, sim.Effect{Factor: 0.25})
			check(t, s.run(t), c)
		})
	}
}

// One host of the DGX class: the PCIe link of a GPU is told from the GPU's NVLinks and
// from the switch above.
func TestSimulatedGPULink(t *testing.T) {
	for seed := range seeds() {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			top := fixturetest.Topology(t, "dgx-h100")
			k, err := sim.NewKind(top, sim.KindOptions{})
			if err != nil {
				t.Fatal(err)
			}
			s := &simulated{host: map[string]int{"n0": 0}}
			if s.c, err = sim.New(sim.Spec{Hosts: []sim.HostSpec{{Name: "n0", Kind: k}}, Options: sim.Options{Seed: seed, Jitter: 0.005}}); err != nil {
				t.Fatal(err)
			}
			pairs, err := plan.Local(top, plan.LocalOptions{Name: "n0", Kinds: []probe.Kind{probe.GPU}})
			if err != nil {
				t.Fatal(err)
			}
			pairs.Pairs = slices.DeleteFunc(pairs.Pairs, func(p probe.Pair) bool { return p.Variant == probe.VariantNoPeer })
			s.layout(t, pairs)
			g := &top.GPUs[r.IntN(len(top.GPUs))]
			i := slices.IndexFunc(top.Links, func(l topo.Link) bool { return l.Kind == topo.LinkPCIe && l.B == g.PCI })
			links, err := s.c.HostLink(0, top.Links[i].ID)
			if err != nil {
				t.Fatal(err)
			}
			c := s.broken(t, "link of PCIe", links, sim.Effect{Factor: 0.5})
			check(t, s.run(t), c)
		})
	}
}

// Nothing is wrong: nothing fails, and nobody is blamed.
func TestSimulatedHealthy(t *testing.T) {
	for seed := range seeds() {
		r := fabricOf(t, "a10-2nic", 8, plan.RailsAll, seed).run(t)
		if n := len(r.Results); r.Summary.Pass != n || len(r.Blame) > 0 || n != 8*7*2 {
			t.Errorf("seed %d: %+v of %d, blame %+v", seed, r.Summary, n, r.Blame)
		}
	}
	r := fabricOf(t, "dgx-h100", 2, plan.RailsAll, 1).run(t)
	if n := len(r.Results); r.Summary.Pass != n || len(r.Blame) > 0 || n != 128 {
		t.Errorf("%+v of %d, blame %+v", r.Summary, n, r.Blame)
	}
}
