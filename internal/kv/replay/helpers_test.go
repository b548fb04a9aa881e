package replay

import (
	"context"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/kv"

	"github.com/topoctl/topoctl/internal/kv/serve"
)

// Models with the shape of real ones, and fewer layers.
var (
	qwen = kv.Model{Name: "Qwen2.5-7B, 3 layers", Layers: 3, KVHeads: 4, HeadDim: 128, ElementBytes: 2}
	r1   = kv.Model{Name: "DeepSeek-R1, 2 layers", Layers: 2, LatentDim: 512, RopeDim: 64, ElementBytes: 2}
)

// lab is two engines of this process, with TCP between them.
type lab struct {
	near, far *engine.Engine
	theirs    [][]*engine.Region // memory of the far engine
	Options
}

func newEngine(t testing.TB, name string) *engine.Engine {
	t.Helper()
	e, err := engine.New(t.Context(), engine.Options{Name: name, Transports: []engine.TransportFactory{engine.TCP()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// newLab makes so many instances on either side, with so many pages each.
func newLab(t testing.TB, m kv.Model, prefill, decode kv.Side, move serve.Move, instances [2]int, pages [2]int) *lab {
	t.Helper()
	return newLabOf(t, m, prefill, decode, move, instances, pages, [2]int{1, 1})
}

// newLabOf makes instances that have so many regions each.
func newLabOf(t testing.TB, m kv.Model, prefill, decode kv.Side, move serve.Move, instances, pages, regions [2]int) *lab {
	t.Helper()
	cache, err := kv.New(m, prefill, decode)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{near: newEngine(t, "near"), far: newEngine(t, "far")}
	l.Serve = serve.Config{
		Prefill: serve.Pool{Compute: linear{TokenNS: 2_000, DecodeNS: 500_000}, PageTokens: prefill.PageTokens, Pages: pages[0], MaxBatchedTokens: 1 << 20},
		Decode:  serve.Pool{Compute: linear{TokenNS: 2_000, DecodeNS: 500_000}, PageTokens: decode.PageTokens, Pages: pages[1], MaxBatchedTokens: 1 << 20},
		Cache:   cache, Move: move, Admit: serve.Beside, FirstToken: serve.FromDecode, Router: serve.LeastTokens, LayersPerMove: 1,
	}
	sizes := [2]int64{regionBytes(t, m, prefill, pages[0]) / int64(regions[0]), regionBytes(t, m, decode, pages[1]) / int64(regions[1])}
	if move == serve.Pull {
		instances[0], instances[1], sizes[0], sizes[1], regions[0], regions[1] = instances[1], instances[0], sizes[1], sizes[0], regions[1], regions[0]
	}
	peer, err := l.near.Open(t.Context(), l.far.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	for range instances[0] {
		var here []*engine.Region
		for range regions[0] {
			here = append(here, alloc(t, l.near, sizes[0]))
		}
		l.Local = append(l.Local, here)
	}
	for range instances[1] {
		var theirs []*engine.Region
		for range regions[1] {
			theirs = append(theirs, alloc(t, l.far, sizes[1]))
		}
		l.theirs, l.Remote = append(l.theirs, theirs), append(l.Remote, remotes(t, peer, theirs))
	}
	return l
}

// remotes are regions as a peer sees them.
func remotes(t testing.TB, peer *engine.Peer, theirs []*engine.Region) (out []*engine.RemoteRegion) {
	t.Helper()
	for _, r := range theirs {
		remote, err := peer.Region(t.Context(), r.Name())
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, remote)
	}
	return out
}

func regionBytes(t testing.TB, m kv.Model, s kv.Side, pages int) int64 {
	t.Helper()
	n, err := RegionBytes(m, s, pages)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func alloc(t testing.TB, e *engine.Engine, size int64) *engine.Region {
	t.Helper()
	r, err := e.Alloc(size, engine.RegionOptions{Grant: memory.PeerRead | memory.PeerWrite})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// prompts come so far apart, of so many tokens each.
func prompts(gap time.Duration, output int, tokens ...int) *kv.Workload {
	w := &kv.Workload{}
	for i, n := range tokens {
		w.Requests = append(w.Requests, kv.Request{ID: i, ArriveNS: int64(i) * int64(gap), Input: n, Output: output})
	}
	return w
}

// run replays what has to work.
func (l *lab) run(t testing.TB) *Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := Run(ctx, l.Options)
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Times {
		if r.Times[i].Failed != nil {
			t.Fatalf("request %d: %s", i, r.Times[i].Failed)
		}
	}
	return r
}

// linear computes each token of a prompt in TokenNS, and a step that decodes in DecodeNS.
type linear struct{ TokenNS, DecodeNS int64 }

// StepNS is how long a step takes.
func (l linear) StepNS(s serve.Step) int64 {
	ns := int64(0)
	for _, c := range s.Chunks {
		ns += l.TokenNS * int64(c.Tokens)
	}
	if s.Decode > 0 {
		ns += l.DecodeNS
	}
	return ns
}
