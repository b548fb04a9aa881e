package serve

import (
	"testing"

	"github.com/topoctl/topoctl/internal/kv"

	"github.com/topoctl/topoctl/internal/sim"
)

// clock is the simulator's.
type clock struct {
	*sim.Net
	calls int
}

func newClock() *clock { return &clock{Net: sim.NewNet()} }

func (c *clock) NowNS() int64 { return c.Now() }

func (c *clock) At(atNS int64, run func()) {
	c.Net.At(atNS, func() {
		c.calls++
		run()
	})
}

// wire moves one transfer after the other: a fixed number of ns for each block of bytes.
type wire struct {
	c         *clock
	ns, bytes int64
	free      int64
	moved     map[int]int64 // by request
}

func (w *wire) Move(t Transfer, done func(int64, error)) {
	if w.moved == nil {
		w.moved = map[int]int64{}
	}
	w.moved[t.Request] += t.Bytes()
	begin := max(w.free, w.c.Now())
	w.free = begin + t.Bytes()*w.ns/w.bytes
	w.c.At(w.free, func() { done(begin, nil) })
}

// infinite is a network on which nothing takes time.
type infinite struct{ c *clock }

func (m infinite) Move(_ Transfer, done func(int64, error)) { done(m.c.Now(), nil) }

// tiny is a model with 2048 bytes for each token.
var tiny = kv.Model{Name: "tiny", Layers: 4, KVHeads: 2, HeadDim: 64, ElementBytes: 2}

const tinyToken = 2048

func reslice(t testing.TB, m kv.Model, prefillTP, decodeTP, page int) *kv.Reslice {
	t.Helper()
	r, err := kv.New(m, kv.Side{TP: prefillTP, PageTokens: page}, kv.Side{TP: decodeTP, PageTokens: page})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// split is one prefill and one decode instance: 10 ns for each token of a prompt, 50 ns
// for a step of decode, batches of 128 tokens.
func split(t testing.TB) Config {
	p := Pool{Instances: 1, Compute: linear{TokenNS: 10, DecodeNS: 50}, PageTokens: 16, MaxBatchedTokens: 128}
	return Config{Prefill: p, Decode: p, Cache: reslice(t, tiny, 1, 1, 16), Move: Push, Admit: After, FirstToken: FromDecode, Router: LeastTokens, LayersPerMove: 1}
}

// play runs a workload to its end.
func play(t testing.TB, c Config, w *kv.Workload, clock *clock, m Mover) *System {
	t.Helper()
	s, err := New(c, w, clock, m)
	if err != nil {
		t.Fatal(err)
	}
	ended := 0
	s.Start(func() { ended++ })
	clock.Run(sim.Never)
	if ended != 1 || !s.Ended() {
		t.Fatalf("ended %d times, %v: %d of %d requests are over", ended, s.Ended(), s.finished, len(w.Requests))
	}
	return s
}

// playWire has 4 ns of wire for each token of tiny.
func playWire(t testing.TB, c Config, w *kv.Workload) *System {
	t.Helper()
	clock := newClock()
	return play(t, c, w, clock, &wire{c: clock, ns: 4, bytes: tinyToken})
}

// linear computes each token of a prompt in TokenNS, and a step that decodes in DecodeNS.
type linear struct{ TokenNS, DecodeNS int64 }

// StepNS is how long a step takes.
func (l linear) StepNS(s Step) int64 {
	ns := int64(0)
	for _, c := range s.Chunks {
		ns += l.TokenNS * int64(c.Tokens)
	}
	if s.Decode > 0 {
		ns += l.DecodeNS
	}
	return ns
}
