package serve

import (
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/kv"

	"github.com/topoctl/topoctl/internal/sim"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

const gb = topo.GBPerSec

var kinds = map[string]*sim.Kind{}

// kind is a machine that ships with topoctl, once.
func kind(t testing.TB, fixture string) *sim.Kind {
	t.Helper()
	if kinds[fixture] != nil {
		return kinds[fixture]
	}
	k, err := sim.NewKind(fixturetest.Topology(t, fixture), "")
	if err != nil {
		t.Fatal(err)
	}
	kinds[fixture] = k
	return k
}

// pair is two hosts of a kind on one switch with ports of a rate: TP ranks prefill on the
// first, as many decode on the second.
func pair(t testing.TB, fixture, model string, tp int, rate topo.Rate, w *kv.Workload) Spec {
	t.Helper()
	k := kind(t, fixture)
	m, err := kv.Find(model)
	if err != nil {
		t.Fatal(err)
	}
	cache, err := kv.New(m, kv.Side{TP: tp, PageTokens: 16}, kv.Side{TP: tp, PageTokens: 16})
	if err != nil {
		t.Fatal(err)
	}
	var p, d Instance
	for i := range tp {
		loc := k.Host().Locations()[i]
		p, d = append(p, Rank{0, loc}), append(d, Rank{1, loc})
	}
	pool := Pool{Compute: linear{TokenNS: 20_000, DecodeNS: 20_000_000}, PageTokens: 16, MaxBatchedTokens: 1 << 20}
	return Spec{Hosts: []sim.HostSpec{{Name: "n0", Kind: k}, {Name: "n1", Kind: k}}, Fabric: cabled(2, k, rate, oneLeaf), Prefill: []Instance{p}, Decode: []Instance{d},
		Serve:    Config{Prefill: pool, Decode: pool, Cache: cache, Move: Push, Admit: After, FirstToken: FromDecode, Router: LeastTokens, LayersPerMove: 4},
		Workload: w, Seed: 1}
}

// cabled joins the data ports of hosts of a kind to leaves.
func cabled(hosts int, k *sim.Kind, rate topo.Rate, leaf func(host, port int) int) *sim.Fabric {
	f := &sim.Fabric{RailOnly: leaf(0, 1) != leaf(0, 0)}
	for h := range hosts {
		for p, id := range k.DataPorts() {
			f.Leaves = max(f.Leaves, leaf(h, p)+1)
			f.Cables = append(f.Cables, sim.Cable{Host: h, Port: id, Leaf: leaf(h, p), Rail: p, BytesPerSec: rate})
		}
	}
	return f
}

func oneLeaf(_, _ int) int   { return 0 }
func railed(_, port int) int { return port }

// prompts come so far apart that each is alone.
func prompts(n, tokens, output int, gapNS int64) *kv.Workload {
	w := &kv.Workload{}
	for i := range n {
		w.Requests = append(w.Requests, kv.Request{ID: i, ArriveNS: int64(i) * gapNS, Input: tokens, Output: output})
	}
	return w
}

func generate(t testing.TB, s kv.Spec) *kv.Workload {
	t.Helper()
	w, err := kv.Generate(s)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func run(t testing.TB, s Spec) *Result {
	t.Helper()
	r, err := Run(s)
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Times {
		if f := r.Times[i].Failed; f != nil {
			t.Fatalf("request %d: %s", i, f)
		}
		if parts, err := kv.PartsOf(&r.Times[i], s.Serve.Admit == Before); err != nil || parts.ExposedNS != exposed(&r.Times[i]) {
			t.Fatalf("%v: %+v of %+v", err, parts, r.Times[i])
		}
	}
	return r
}

// exposed is how long the cache of a request takes after its prefill.
func exposed(x *kv.Times) int64 { return x.ArrivedNS - x.PrefilledNS }

func meanExposed(r *Result) float64 {
	sum := int64(0)
	for i := range r.Times {
		sum += exposed(&r.Times[i])
	}
	return float64(sum) / float64(len(r.Times))
}
