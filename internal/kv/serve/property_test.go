package serve

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/internal/kv"

	"github.com/topoctl/topoctl/internal/sim"
)

// loose is a network whose transfers take any time, and now and then fail.
type loose struct {
	c     *clock
	rng   *rand.Rand
	fails bool
}

func (m *loose) Move(t Transfer, done func(int64, error)) {
	var err error
	if m.fails && m.rng.IntN(40) == 0 {
		err = errors.New("peer is gone")
	}
	wait := m.rng.Int64N(300)
	began := m.c.Now() + m.rng.Int64N(wait+1)
	if wait == 0 {
		done(began, err)
		return
	}
	m.c.At(m.c.Now()+wait, func() { done(began, err) })
}

func drawConfig(t *rapid.T) (Config, int) {
	pages := rapid.SampledFrom([]int{1, 3, 4, 16})
	scale := rapid.SampledFrom([]int{1, 30}).Draw(t, "scale") // 30: prompts have whole blocks
	pool := func(name string) Pool {
		p := Pool{Instances: rapid.IntRange(1, 3).Draw(t, name+" instances"), Compute: linear{TokenNS: rapid.Int64Range(0, 20).Draw(t, "token"), DecodeNS: rapid.Int64Range(0, 90).Draw(t, "decode")},
			PageTokens: pages.Draw(t, "page"), MaxBatchedTokens: scale * rapid.IntRange(20, 90).Draw(t, "batch"), MaxSequences: rapid.IntRange(0, 4).Draw(t, "sequences"),
			Chunked: rapid.Bool().Draw(t, "chunked"), PrefixPages: scale * rapid.IntRange(0, 200).Draw(t, "prefixes"),
			Stages: rapid.IntRange(0, 3).Draw(t, "stages")}
		if rapid.Bool().Draw(t, "bounded") {
			p.Pages = scale*rapid.IntRange(100, 200).Draw(t, "tokens")/p.PageTokens + 1
		}
		return p
	}
	c := Config{Prefill: pool("prefill"), Decode: pool("decode"), Move: rapid.SampledFrom([]Move{Push, PushLayers, Pull}).Draw(t, "move"),
		Admit:      rapid.SampledFrom([]Admit{Before, Beside, After}).Draw(t, "admit"),
		FirstToken: rapid.SampledFrom([]FirstToken{FromPrefill, WithCache, FromDecode}).Draw(t, "first"),
		Router:     rapid.SampledFrom([]Router{LeastTokens, RoundRobin}).Draw(t, "router"), LayersPerMove: rapid.IntRange(1, 4).Draw(t, "layers"),
		HandoffNS: rapid.Int64Range(0, 50).Draw(t, "handoff"), ReserveOutput: rapid.Bool().Draw(t, "reserve"),
		SendBlocks: rapid.Bool().Draw(t, "send blocks"), ReceiveBlocks: rapid.Bool().Draw(t, "receive blocks")}
	if c.Move == PushLayers && c.Admit == After {
		c.Admit = Beside
	}
	if rapid.IntRange(0, 3).Draw(t, "both") == 0 {
		c.Decode.Instances = 0
	}
	tp := rapid.SampledFrom([]int{1, 2, 4})
	var err error
	c.Cache, err = kv.New(tiny, kv.Side{TP: tp.Draw(t, "prefill tp"), PageTokens: c.Prefill.PageTokens}, kv.Side{TP: tp.Draw(t, "decode tp"), PageTokens: c.Decode.PageTokens})
	if err != nil {
		t.Fatal(err)
	}
	return c, scale
}

func drawWorkload(t *rapid.T, scale int) *kv.Workload {
	w := &kv.Workload{Concurrency: rapid.IntRange(0, 5).Draw(t, "concurrency")}
	at := int64(0)
	for i := range rapid.IntRange(1, 40).Draw(t, "requests") {
		if w.Concurrency == 0 {
			at += rapid.Int64Range(0, 800).Draw(t, "gap")
		}
		r := kv.Request{ID: i, ArriveNS: at, Input: scale * rapid.IntRange(1, 95).Draw(t, "in"), Output: rapid.IntRange(1, 30).Draw(t, "out")}
		for b := range r.Input / kv.BlockTokens {
			r.Blocks = append(r.Blocks, int64(10*b+i%rapid.IntRange(1, 3).Draw(t, "same")))
		}
		w.Requests = append(w.Requests, r)
	}
	return w
}

// Whatever the system and the network: each request ends once, with its answer or a reason;
// its times are in order; what moved is what the layout says; memory is never short and
// all comes back; and a second run is the same.
func TestEverythingIsKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, scale := drawConfig(t)
		w, seed, fails := drawWorkload(t, scale), rapid.Uint64().Draw(t, "seed"), rapid.Bool().Draw(t, "fails")
		run := func() *System {
			clock := newClock()
			s, err := New(c, w, clock, &loose{clock, rand.New(rand.NewPCG(seed, 1)), fails})
			if err != nil {
				t.Fatal(err)
			}
			ended, instances := 0, slices.Concat(s.prefill, s.decode)
			s.Start(func() { ended++ })
			clock.RunUntil(sim.Never, func() bool {
				for _, x := range instances {
					if x.usedPages < 0 || x.p.Pages > 0 && x.usedPages > x.p.Pages {
						t.Fatalf("%d of %d pages are held", x.usedPages, x.p.Pages)
					}
					if x.p.MaxSequences > 0 && len(x.running) > x.p.MaxSequences {
						t.Fatalf("%d of %d sequences run", len(x.running), x.p.MaxSequences)
					}
					if x.runningSteps < 0 || x.runningSteps > max(x.p.Stages, 1) {
						t.Fatalf("%d steps are in %d stages", x.runningSteps, x.p.Stages)
					}
				}
				if w.Concurrency > 0 && s.inFlight > w.Concurrency || s.inFlight < 0 {
					t.Fatalf("%d of %d requests are under way", s.inFlight, w.Concurrency)
				}
				return false
			})
			if ended != 1 {
				t.Fatalf("ended %d times, %d of %d requests are over", ended, s.finished, len(w.Requests))
			}
			return s
		}
		s := run()
		for _, x := range slices.Concat(s.prefill, s.decode) {
			if x.usedPages != 0 || x.queuedTokens != 0 || x.blockingTransfers+x.runningSteps+len(x.running)+len(x.ready)+x.waiting.len()+x.incoming.len() != 0 {
				t.Fatalf("left over: %d pages, %d tokens owed, %d sequences", x.usedPages, x.queuedTokens, len(x.running))
			}
		}
		for i, x := range s.Times() {
			checkTimes(t, &c, &w.Requests[i], x)
		}
		if again := run(); !reflect.DeepEqual(again.Times(), s.Times()) {
			t.Fatalf("a second run gives other times")
		}
	})
}

func checkTimes(t *rapid.T, c *Config, r *kv.Request, x kv.Times) {
	if x.Request != r.ID || x.SentNS < r.ArriveNS {
		t.Fatalf("request %d came at %d: %+v", r.ID, r.ArriveNS, x)
	}
	if why := c.WhyImpossible(r); why != nil || x.Failed != nil {
		if why != nil && x.Failed.Error() != why.Error() || x.Failed == nil {
			t.Fatalf("request %d failed with %v, want %v", r.ID, x.Failed, why)
		}
		return
	}
	if _, err := kv.PartsOf(&x, c.Admit == Before); err != nil {
		t.Fatal(err)
	}
	moves := c.Split() && (r.Output > 1 || c.FirstToken != FromPrefill)
	order := []int64{x.SentNS, x.PrefillNS, x.PrefilledNS}
	want := int64(0)
	if moves {
		order = append(order, x.ArrivedNS)
		want = c.Cache.Plan(r.Input).Bytes
		if x.AdmittedNS < x.SentNS || x.WireNS < x.AdmittedNS || x.ArrivedNS < x.WireNS {
			t.Fatalf("request %d: %+v", r.ID, x)
		}
		if c.Admit == Before && x.PrefillNS < x.AdmittedNS || c.Admit == After && x.AdmittedNS < x.PrefilledNS+c.HandoffNS {
			t.Fatalf("request %d had memory at %d: %+v", r.ID, x.AdmittedNS, x)
		}
	}
	if x.KVBytes != want {
		t.Fatalf("request %d: %d bytes moved, want %d", r.ID, x.KVBytes, want)
	}
	if c.Split() && c.FirstToken == FromPrefill {
		order = order[:3]
	}
	if len(x.TokensNS) != r.Output || !slices.IsSorted(append(order, x.TokensNS...)) {
		t.Fatalf("request %d: %v then %d of %d tokens %v", r.ID, order, len(x.TokensNS), r.Output, x.TokensNS)
	}
}

// With L equal layers on a wire that takes them one after the other, what is exposed is
// max(Tx/L, Tx - Tp(L-1)/L) after the prefill.
func TestOverlapOfEqualLayers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := tiny
		m.Layers = rapid.IntRange(1, 20).Draw(t, "layers")
		r, err := kv.New(m, kv.Side{TP: 2, PageTokens: 16}, kv.Side{TP: 1, PageTokens: 16})
		if err != nil {
			t.Fatal(err)
		}
		tokens, layers := rapid.IntRange(1, 5000).Draw(t, "tokens"), int64(m.Layers)
		compute, ns := layers*rapid.Int64Range(0, 50).Draw(t, "compute"), rapid.Int64Range(0, 50).Draw(t, "wire")
		p := Pool{Instances: 1, Compute: linear{TokenNS: compute, DecodeNS: 1}, PageTokens: 16, MaxBatchedTokens: 5000}
		c := Config{Prefill: p, Decode: p, Cache: r, Move: PushLayers, Admit: Before, FirstToken: WithCache, Router: RoundRobin, LayersPerMove: 1}
		clock := newClock()
		layerBytes := m.BytesPerToken() / layers
		s, err := New(c, &kv.Workload{Requests: []kv.Request{{Input: tokens, Output: 1}}}, clock, &wire{c: clock, ns: ns, bytes: layerBytes})
		if err != nil {
			t.Fatal(err)
		}
		s.Start(nil)
		clock.Run(sim.Never)
		x := s.Times()[0]
		tx, tp := ns*int64(tokens)*layers, compute*int64(tokens)
		want := max(tx/layers, tx-tp/layers*(layers-1))
		if got := x.ArrivedNS - x.PrefilledNS; x.PrefilledNS != tp || got != want {
			t.Fatalf("%d layers, Tx %d, Tp %d: exposed %d, want %d", layers, tx, tp, got, want)
		}
	})
}

// floodOf are requests that come at once, with lengths like a conversation's.
func floodOf(n int) *kv.Workload {
	rng := rand.New(rand.NewPCG(1, 2))
	w := &kv.Workload{}
	for i := range n {
		w.Requests = append(w.Requests, kv.Request{ID: i, Input: 1 + int(rng.ExpFloat64()*12_000), Output: 1 + int(rng.ExpFloat64()*343)})
	}
	return w
}

func floodConfig(t testing.TB) Config {
	p := Pool{Instances: 1, Compute: linear{TokenNS: 30_000, DecodeNS: 20_000_000}, PageTokens: 16, Pages: 1 << 16, MaxBatchedTokens: 8192, MaxSequences: 256, Chunked: true}
	return Config{Prefill: p, Decode: p, Cache: reslice(t, tiny, 1, 1, 16), Move: PushLayers, Admit: Beside, FirstToken: WithCache, Router: LeastTokens, LayersPerMove: 1}
}

// 12,000 requests at once cost a bounded number of events for each.
func TestFlood(t *testing.T) {
	const n = 12_000
	clock := newClock()
	s := play(t, floodConfig(t), floodOf(n), clock, infinite{clock})
	steps := int(s.PrefillUse()[0].Steps + s.DecodeUse()[0].Steps)
	t.Logf("%d steps, %d events", steps, clock.calls)
	if most := 7*steps + 2*n; clock.calls > most {
		t.Errorf("%d events, want %d at most", clock.calls, most)
	}
}

func BenchmarkFlood(b *testing.B) {
	w := floodOf(12_000)
	for b.Loop() {
		clock := newClock()
		play(b, floodConfig(b), w, clock, infinite{clock})
	}
}
