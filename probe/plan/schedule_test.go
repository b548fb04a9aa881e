package plan_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/plan"
	"github.com/topoctl/topoctl/probe/plan/plantest"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
)

// Schedules that look at ends alone put several pairs on the link between the sockets.
func TestSchedules(t *testing.T) {
	pairs := local(t, fixturetest.Topology(t, "dgx-h100"), plan.LocalOptions{Kinds: []probe.Kind{probe.GPU}})
	for schedule, want := range map[plan.Schedule]struct{ rounds, bound, most int }{plan.ByLink: {32, 32, 1}, plan.ByEndpoint: {32, 32, 4}, plan.Serial: {144, 144, 1}} {
		p := makePlan(t, pairs, plan.Options{Schedule: schedule})
		valid(t, p)
		most := 0
		for i := range p.Rounds {
			crossing := 0
			for _, x := range p.Round(i) {
				if slices.Contains(x.Path, "dgx-h100 smp:0/1 down") {
					crossing++
				}
			}
			most = max(most, crossing)
		}
		if len(p.Rounds) != want.rounds || p.LowerBound != want.bound || most != want.most {
			t.Errorf("schedule %s: %d rounds, at best %d, %d pairs on the link between sockets: want %+v", schedule, len(p.Rounds), p.LowerBound, most, want)
		}
	}
}

func TestContend(t *testing.T) {
	top := fixturetest.Topology(t, "dgx-h100")
	pairs := local(t, top, plan.LocalOptions{Kinds: []probe.Kind{probe.GPU}})
	key, err := pairs.Link("smp:0/1")
	if err != nil {
		t.Fatal(err)
	}
	p := makePlan(t, pairs, plan.Options{Contend: key, Spec: defaultSpec()})
	valid(t, p)
	rounds := 0
	for i := range p.Rounds {
		n := 0
		for _, pair := range p.Round(i) {
			if slices.Contains(pair.Path, key) {
				n++
			}
		}
		if n > 0 && n < len(p.Rounds[i]) {
			t.Errorf("round %d: %d pairs of %d contend", i+1, n, len(p.Rounds[i]))
		}
		if n > 0 {
			rounds++
		}
	}
	// 24 pairs cross it in one direction, each GPU of either side is in five of them.
	if rounds != 5 {
		t.Errorf("24 pairs contend in %d rounds, want 5", rounds)
	}
	if s := p.Summary(); s.Contend != string(key) || s.Rounds != len(p.Rounds) || s.Pairs != len(pairs.Pairs) {
		t.Errorf("summary %+v", s)
	}
	golden.Check(t, "testdata/"+"contend.golden", p.Text())
}

func TestLinkByName(t *testing.T) {
	pairs := fabric(t, plantest.Hosts(fixturetest.Topology(t, "dgx-h100"), 2), plan.FabricOptions{Select: []string{"n1>n2"}})
	for name, want := range map[string]string{
		"n1 port:mlx5_0/1 down": "n1 port:mlx5_0/1 down",
		"n1 port:mlx5_0/1":      "n1 port:mlx5_0/1 down",
		"n2 port:mlx5_0/1":      "n2 port:mlx5_0/1 up",
		"wire of n1/mlx5_3":     "n1 port:mlx5_3/1 down",
		"port:mlx5_0/1":         "on 2 hosts: add the host",
		"port:mlx5_99/1":        "no pair crosses such a link: want one such as",
	} {
		key, err := pairs.Link(name)
		if err != nil && !strings.Contains(err.Error(), want) || err == nil && string(key) != want {
			t.Errorf("%s: %q, error %v, want %q", name, key, err, want)
		}
	}
}

// A pair that goes both ways needs the links of both.
func TestBothWays(t *testing.T) {
	pairs := fabric(t, plantest.Hosts(fixturetest.Topology(t, "dgx-h100"), 2), plan.FabricOptions{BothWays: true, Select: []string{"mlx5_0>mlx5_0"}})
	if p := pairs.Pairs[0]; p.Variant != probe.VariantBothWays || !strings.HasSuffix(p.ID, "both-ways") {
		t.Errorf("pair %s", p.ID)
	}
	one, both := makePlan(t, fabric(t, plantest.Hosts(fixturetest.Topology(t, "vm-flat"), 2), plan.FabricOptions{}), plan.Options{}),
		makePlan(t, fabric(t, plantest.Hosts(fixturetest.Topology(t, "vm-flat"), 2), plan.FabricOptions{BothWays: true}), plan.Options{})
	if len(one.Rounds)*2 != len(both.Rounds) {
		t.Errorf("through one root complex: %d rounds one way, %d both ways: want twice as many", len(one.Rounds), len(both.Rounds))
	}
}

func TestEstimate(t *testing.T) {
	pairs := fabric(t, plantest.Hosts(fixturetest.Topology(t, "cpu-2eth"), 2), plan.FabricOptions{})
	spec := probe.Spec{Warmup: time.Second, SampleTime: 2 * time.Second, MinSamples: 3, MaxSamples: 10, SizesBytes: []int64{1, 2}}
	check := func(what string, spec probe.Spec, want plan.Estimate) {
		t.Helper()
		if got := makePlan(t, pairs, plan.Options{Spec: spec}).Estimate; got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	const wire = 1_250_000_000
	check("two rounds, two sizes", spec, plan.Estimate{Time: 28 * time.Second, MostTime: 84 * time.Second, Bytes: 28 * wire, MostBytes: 84 * wire})
	spec.RateLimit = 1000
	check("limited", spec, plan.Estimate{Time: 28 * time.Second, MostTime: 84 * time.Second, Bytes: 28 * 1000, MostBytes: 84 * 1000})
	spec.PairTime = 20 * time.Second
	check("bounded", spec, plan.Estimate{Time: 28 * time.Second, MostTime: 40 * time.Second, Bytes: 28 * 1000, MostBytes: 40 * 1000})
	check("latency", probe.Spec{LatencySamples: 1000}, plan.Estimate{Time: 200 * time.Millisecond, MostTime: 200 * time.Millisecond})
	check("nothing", probe.Spec{}, plan.Estimate{})
	check("absurd", probe.Spec{SampleTime: 1 << 62, MinSamples: 1 << 40, SizesBytes: []int64{1}, RateLimit: 1},
		plan.Estimate{Time: 1<<62 - 1, MostTime: 1<<62 - 1, Bytes: 2 * (1<<62 - 1) / 1_000_000_000, MostBytes: 2 * (1<<62 - 1) / 1_000_000_000})
	memory := makePlan(t, local(t, fixturetest.Topology(t, "cpu-2eth"), plan.LocalOptions{}), plan.Options{Spec: defaultSpec()})
	if n := memory.Estimate.UnknownRates; n != 5 || !strings.Contains(memory.Text(), "of 5 pairs of unknown rate") {
		t.Errorf("%d pairs of unknown rate, want 5:\n%s", n, memory.Text())
	}
}

// network draws pairs over links of random rates, some unknown, of several hosts and of
// all kinds.
func network(t *rapid.T) *plan.Pairs {
	out := &plan.Pairs{Mode: "fabric"}
	hosts := rapid.IntRange(1, 4).Draw(t, "hosts")
	var ends []probe.End
	for h := range hosts {
		name := fmt.Sprintf("h%d", h)
		out.Hosts = append(out.Hosts, probe.Host{Name: name})
		for e := range rapid.IntRange(1, 4).Draw(t, "ends") {
			id := topo.GPUID(e)
			ends = append(ends, probe.End{Host: name, Node: id, Name: string(id), Location: pathsel.Location(id)})
		}
		for n := range 2 {
			ends = append(ends, probe.End{Host: name, Node: topo.NUMAID(n), Name: fmt.Sprintf("cpu:%d", n), Location: pathsel.Location(fmt.Sprintf("cpu:%d", n))})
		}
	}
	for i := range rapid.IntRange(1, 12).Draw(t, "links") {
		l := probe.Link{Link: topo.LinkID(fmt.Sprintf("l%d", i)), Kind: topo.LinkPCIe, Name: fmt.Sprintf("link %d", i), Direction: "down", Basis: topo.BasisRead}
		if rapid.Bool().Draw(t, "of a host") {
			l.Host = "h0"
		}
		if n := rapid.IntRange(0, 5).Draw(t, "rate"); n > 0 {
			r := topo.Rate(n * 10)
			l.BytesPerSec = &r
		}
		l.Key = probe.Key(l.Host, l.Link, l.Direction)
		out.Links = append(out.Links, l)
	}
	seen := map[string]bool{}
	for range rapid.IntRange(1, 60).Draw(t, "pairs") {
		p := probe.Pair{From: rapid.SampledFrom(ends).Draw(t, "from"), To: rapid.SampledFrom(ends).Draw(t, "to"), Transport: probe.TCP, Kind: probe.Port}
		numa := func(e *probe.End) bool { return strings.HasPrefix(e.Name, "cpu") }
		switch {
		case numa(&p.From) && numa(&p.To):
			p.Kind, p.Variant = probe.Memory, rapid.SampledFrom([]string{probe.VariantRead, probe.VariantCopy}).Draw(t, "variant")
		case numa(&p.From) || numa(&p.To) || rapid.Bool().Draw(t, "gpu"):
			p.Kind = probe.GPU
		}
		lowest := topo.Rate(-1)
		for range rapid.IntRange(0, 4).Draw(t, "hops") {
			l := &out.Links[rapid.IntRange(0, len(out.Links)-1).Draw(t, "link")]
			p.Path = append(p.Path, l.Key)
			if l.BytesPerSec != nil && (lowest < 0 || *l.BytesPerSec < lowest) {
				lowest = *l.BytesPerSec
			}
		}
		if lowest >= 0 && rapid.IntRange(0, 9).Draw(t, "known") > 0 {
			part := topo.Rate(rapid.IntRange(1, int(lowest)).Draw(t, "expected"))
			if p.Variant == probe.VariantCopy {
				part *= 2
			}
			p.Expected = probe.Expected{BytesPerSec: &part, Basis: topo.BasisRead}
		}
		if rapid.IntRange(0, 9).Draw(t, "waived") == 0 {
			p.Waived = "for a reason"
		}
		p.ID = probe.PairID(p.Kind, p.From, p.To, p.Transport, p.Variant)
		if !seen[p.ID] {
			seen[p.ID] = true
			out.Pairs = append(out.Pairs, p)
		}
	}
	return out
}

func TestPlansOfAnyPairs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pairs := network(t)
		o := plan.Options{Schedule: rapid.SampledFrom([]plan.Schedule{plan.ByLink, plan.ByEndpoint, plan.Serial}).Draw(t, "schedule"), Spec: defaultSpec()}
		for _, p := range pairs.Pairs {
			if o.Schedule != plan.Serial && p.Waived == "" && len(p.Path) > 0 && rapid.Bool().Draw(t, "contend") {
				o.Contend = p.Path[0]
				break
			}
		}
		p, err := plan.Make(pairs, o)
		if err != nil {
			t.Fatal(err)
		}
		valid(t, p)
		shuffled := *pairs
		shuffled.Pairs, shuffled.Links = slices.Clone(pairs.Pairs), slices.Clone(pairs.Links)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		random.Shuffle(len(shuffled.Pairs), func(i, j int) {
			shuffled.Pairs[i], shuffled.Pairs[j] = shuffled.Pairs[j], shuffled.Pairs[i]
		})
		random.Shuffle(len(shuffled.Links), func(i, j int) {
			shuffled.Links[i], shuffled.Links[j] = shuffled.Links[j], shuffled.Links[i]
		})
		again, err := plan.Make(&shuffled, o)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(ids(p), ids(again)) {
			t.Errorf("pairs in another order give other rounds:\n%v\n%v", ids(p), ids(again))
		}
		_ = p.Text()
	})
}

func BenchmarkFabric(b *testing.B) {
	top := fixturetest.Topology(b, "dgx-h100")
	for _, c := range []struct {
		hosts int
		rails plan.Rails
	}{{8, plan.RailsAll}, {64, plan.RailsSame}, {64, plan.RailsAll}} {
		b.Run(fmt.Sprintf("hosts=%d/rails=%s", c.hosts, c.rails), func(b *testing.B) {
			f := plantest.Rails(b, top)
			b.ReportAllocs()
			for b.Loop() {
				p := makePlan(b, fabric(b, plantest.Hosts(top, c.hosts), plan.FabricOptions{Rails: c.rails, Fabric: f}), plan.Options{})
				b.ReportMetric(float64(len(p.Rounds)), "rounds")
				b.ReportMetric(float64(p.LowerBound), "bound")
				b.ReportMetric(float64(len(p.Pairs.Pairs)), "pairs")
			}
		})
	}
}
