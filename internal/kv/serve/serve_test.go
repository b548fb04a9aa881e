package serve

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/internal/kv"
)

// two requests: A comes at 0 with 100 tokens in and 3 out, B at 200 with 50 and 2.
// A's prefill takes 1000 ns, B's 500; their caches are 400 and 200 ns on the wire.
func two() *kv.Workload {
	return &kv.Workload{Requests: []kv.Request{{ID: 7, Input: 100, Output: 3}, {ID: 8, ArriveNS: 200, Input: 50, Output: 2}}}
}

func TestHandComputed(t *testing.T) {
	const a, b = 100 * tinyToken, 50 * tinyToken
	tests := []struct {
		name   string
		change func(*Config)
		a, b   kv.Times
	}{
		{"push, first token from decode", func(*Config) {},
			kv.Times{PrefillNS: 0, PrefilledNS: 1000, AdmittedNS: 1000, WireNS: 1000, ArrivedNS: 1400, TokensNS: []int64{1450, 1500, 1550}, KVBytes: a},
			kv.Times{PrefillNS: 1000, PrefilledNS: 1500, AdmittedNS: 1500, WireNS: 1500, ArrivedNS: 1700, TokensNS: []int64{1750, 1800}, KVBytes: b}},
		{"push, first token from prefill", func(c *Config) { c.FirstToken = FromPrefill },
			kv.Times{PrefillNS: 0, PrefilledNS: 1000, AdmittedNS: 1000, WireNS: 1000, ArrivedNS: 1400, TokensNS: []int64{1000, 1450, 1500}, KVBytes: a},
			kv.Times{PrefillNS: 1000, PrefilledNS: 1500, AdmittedNS: 1500, WireNS: 1500, ArrivedNS: 1700, TokensNS: []int64{1500, 1750}, KVBytes: b}},
		{"push, first token with the cache", func(c *Config) { c.FirstToken = WithCache },
			kv.Times{PrefillNS: 0, PrefilledNS: 1000, AdmittedNS: 1000, WireNS: 1000, ArrivedNS: 1400, TokensNS: []int64{1400, 1450, 1500}, KVBytes: a},
			kv.Times{PrefillNS: 1000, PrefilledNS: 1500, AdmittedNS: 1500, WireNS: 1500, ArrivedNS: 1700, TokensNS: []int64{1700, 1750}, KVBytes: b}},
		{"pull, with a word that takes 30 ns", func(c *Config) { c.Move, c.HandoffNS = Pull, 30 },
			kv.Times{PrefillNS: 0, PrefilledNS: 1000, AdmittedNS: 1030, WireNS: 1030, ArrivedNS: 1430, TokensNS: []int64{1480, 1530, 1580}, KVBytes: a},
			kv.Times{PrefillNS: 1000, PrefilledNS: 1500, AdmittedNS: 1530, WireNS: 1530, ArrivedNS: 1730, TokensNS: []int64{1780, 1830}, KVBytes: b}},
		{"push that blocks prefill", func(c *Config) { c.SendBlocks = true },
			kv.Times{PrefillNS: 0, PrefilledNS: 1000, AdmittedNS: 1000, WireNS: 1000, ArrivedNS: 1400, TokensNS: []int64{1450, 1500, 1550}, KVBytes: a},
			kv.Times{PrefillNS: 1400, PrefilledNS: 1900, AdmittedNS: 1900, WireNS: 1900, ArrivedNS: 2100, TokensNS: []int64{2150, 2200}, KVBytes: b}},
		// B's cache comes from 1500 to 1700: A's third token waits for that.
		{"push that blocks decode", func(c *Config) { c.ReceiveBlocks = true },
			kv.Times{PrefillNS: 0, PrefilledNS: 1000, AdmittedNS: 1000, WireNS: 1000, ArrivedNS: 1400, TokensNS: []int64{1450, 1500, 1750}, KVBytes: a},
			kv.Times{PrefillNS: 1000, PrefilledNS: 1500, AdmittedNS: 1500, WireNS: 1500, ArrivedNS: 1700, TokensNS: []int64{1750, 1800}, KVBytes: b}},
		{"layer by layer", func(c *Config) { c.Move, c.Admit = PushLayers, Beside },
			kv.Times{PrefillNS: 0, PrefilledNS: 1000, AdmittedNS: 0, WireNS: 250, ArrivedNS: 1100, TokensNS: []int64{1150, 1200, 1250}, KVBytes: a},
			kv.Times{PrefillNS: 1000, PrefilledNS: 1500, AdmittedNS: 200, WireNS: 1125, ArrivedNS: 1550, TokensNS: []int64{1600, 1650}, KVBytes: b}},
		// 64 tokens of A in 640 ns, 36 of A and 28 of B, 22 of B. Layers are ready after
		// 160, 320, 480 and 640 ns; 64 tokens of a layer are 64 ns on the wire, 36 are 36.
		// B's first 28 tokens are one whole page and a piece that goes with the rest: 16 and 34.
		// Second step, from 640: at 800 A's 36 then B's 16, until 852; the same until 1332.
		// Third step, 220 ns from 1280: layers at 1335, 1390, 1445 and 1500, 34 ns each.
		{"layer by layer, in chunks", func(c *Config) {
			c.Move, c.Admit, c.Prefill.Chunked, c.Prefill.MaxBatchedTokens = PushLayers, Beside, true, 64
		},
			kv.Times{PrefillNS: 0, PrefilledNS: 1280, AdmittedNS: 0, WireNS: 160, ArrivedNS: 1316, TokensNS: []int64{1366, 1416, 1466}, KVBytes: a},
			kv.Times{PrefillNS: 640, PrefilledNS: 1500, AdmittedNS: 200, WireNS: 836, ArrivedNS: 1534, TokensNS: []int64{1584, 1634}, KVBytes: b}},
		// 8 pages: A has 7 until it ends, B needs 4.
		{"memory after the prefill", func(c *Config) { c.Decode.Pages, c.ReserveOutput = 8, true },
			kv.Times{PrefillNS: 0, PrefilledNS: 1000, AdmittedNS: 1000, WireNS: 1000, ArrivedNS: 1400, TokensNS: []int64{1450, 1500, 1550}, KVBytes: a},
			kv.Times{PrefillNS: 1000, PrefilledNS: 1500, AdmittedNS: 1550, WireNS: 1550, ArrivedNS: 1750, TokensNS: []int64{1800, 1850}, KVBytes: b}},
		{"memory before the prefill", func(c *Config) { c.Decode.Pages, c.Admit = 8, Before },
			kv.Times{PrefillNS: 0, PrefilledNS: 1000, AdmittedNS: 0, WireNS: 1000, ArrivedNS: 1400, TokensNS: []int64{1450, 1500, 1550}, KVBytes: a},
			kv.Times{PrefillNS: 1550, PrefilledNS: 2050, AdmittedNS: 1550, WireNS: 2050, ArrivedNS: 2250, TokensNS: []int64{2300, 2350}, KVBytes: b}},
		{"memory beside the prefill", func(c *Config) { c.Decode.Pages, c.Admit = 8, Beside },
			kv.Times{PrefillNS: 0, PrefilledNS: 1000, AdmittedNS: 0, WireNS: 1000, ArrivedNS: 1400, TokensNS: []int64{1450, 1500, 1550}, KVBytes: a},
			kv.Times{PrefillNS: 1000, PrefilledNS: 1500, AdmittedNS: 1550, WireNS: 1550, ArrivedNS: 1750, TokensNS: []int64{1800, 1850}, KVBytes: b}},
		// Layers that are computed before there is memory go when there is some: at once.
		{"layers that wait for memory", func(c *Config) { c.Decode.Pages, c.Move, c.Admit = 8, PushLayers, Beside },
			kv.Times{PrefillNS: 0, PrefilledNS: 1000, AdmittedNS: 0, WireNS: 250, ArrivedNS: 1100, TokensNS: []int64{1150, 1200, 1250}, KVBytes: a},
			kv.Times{PrefillNS: 1000, PrefilledNS: 1500, AdmittedNS: 1250, WireNS: 1250, ArrivedNS: 1550, TokensNS: []int64{1600, 1650}, KVBytes: b}},
		// The prefill side has 7 pages: B's prompt waits until A's cache has gone.
		{"memory of the prefill side", func(c *Config) { c.Prefill.Pages = 8 },
			kv.Times{PrefillNS: 0, PrefilledNS: 1000, AdmittedNS: 1000, WireNS: 1000, ArrivedNS: 1400, TokensNS: []int64{1450, 1500, 1550}, KVBytes: a},
			kv.Times{PrefillNS: 1400, PrefilledNS: 1900, AdmittedNS: 1900, WireNS: 1900, ArrivedNS: 2100, TokensNS: []int64{2150, 2200}, KVBytes: b}},
		{"one instance, whole prompts", func(c *Config) { c.Decode.Instances = 0 },
			kv.Times{PrefillNS: 0, PrefilledNS: 1000, AdmittedNS: 0, WireNS: 1000, ArrivedNS: 1000, TokensNS: []int64{1000, 1550, 1600}},
			kv.Times{PrefillNS: 1000, PrefilledNS: 1500, AdmittedNS: 1000, WireNS: 1500, ArrivedNS: 1500, TokensNS: []int64{1500, 1550}}},
		// Steps of 64 tokens until 640 and 1280; then one of A's and 22 of B's: 270 ns.
		{"one instance, in chunks", func(c *Config) {
			c.Decode.Instances, c.Prefill.Chunked, c.Prefill.MaxBatchedTokens = 0, true, 64
		},
			kv.Times{PrefillNS: 0, PrefilledNS: 1280, AdmittedNS: 0, WireNS: 1280, ArrivedNS: 1280, TokensNS: []int64{1280, 1550, 1600}},
			kv.Times{PrefillNS: 640, PrefilledNS: 1550, AdmittedNS: 640, WireNS: 1550, ArrivedNS: 1550, TokensNS: []int64{1550, 1600}}},
	}
	for _, x := range tests {
		t.Run(x.name, func(t *testing.T) {
			c := split(t)
			x.change(&c)
			got := playWire(t, c, two()).Times()
			x.a.Request, x.b.Request, x.b.SentNS = 7, 8, 200
			if want := []kv.Times{x.a, x.b}; !reflect.DeepEqual(got, want) {
				t.Errorf("got\n%+v\nwant\n%+v", got, want)
			}
		})
	}
}

// Two sequences of 16 tokens in and 20 out share three pages: the younger one yields when the older one
// needs a second page, and is computed again when that has ended.
func TestPreemption(t *testing.T) {
	for _, chunked := range []bool{false, true} {
		c := split(t)
		c.Decode.Instances, c.Prefill.Pages, c.Prefill.Chunked = 0, 3, chunked
		s := playWire(t, c, &kv.Workload{Requests: []kv.Request{{Input: 16, Output: 20}, {ID: 1, Input: 16, Output: 20}}})
		a, b := s.Times()[0].TokensNS, s.Times()[1].TokensNS
		if a[0] != 320 || a[19] != 320+19*50 {
			t.Errorf("chunked %v: the older sequence has tokens at %v", chunked, a)
		}
		if again := a[19] + 17*10; b[0] != 320 || b[1] != again || b[19] != again+18*50 {
			t.Errorf("chunked %v: the younger sequence has tokens at %v, want the second at %d", chunked, b, again)
		}
		if u := s.PrefillUse()[0]; u.Preempted != 1 || u.PeakPages != 3 || u.Computed != 16+16+17 {
			t.Errorf("chunked %v: %+v", chunked, u)
		}
	}
}

// The decode side computes a sequence again that had to yield there.
func TestPreemptionOnTheDecodeSide(t *testing.T) {
	c := split(t)
	c.Decode.Pages, c.FirstToken = 3, FromPrefill
	s := playWire(t, c, &kv.Workload{Requests: []kv.Request{{Input: 16, Output: 20}, {ID: 1, Input: 16, Output: 20}}})
	// Both are prefilled at 320 and have come at 384 and 448.
	a, b := s.Times()[0].TokensNS, s.Times()[1].TokensNS
	if a[0] != 320 || a[1] != 384+50 || a[19] != 384+19*50 {
		t.Errorf("the older sequence has tokens at %v", a)
	}
	if again := a[19] + 17*10; b[0] != 320 || b[1] != again || b[19] != again+18*50 {
		t.Errorf("the younger sequence has tokens at %v, want the second at %d", b, again)
	}
	if u := s.DecodeUse()[0]; u.Preempted != 1 {
		t.Errorf("%+v", u)
	}
}

func TestFixedConcurrency(t *testing.T) {
	w := two()
	w.Requests[1].ArriveNS = 0
	w.Concurrency = 1
	got := playWire(t, split(t), w).Times()
	if got[0].TokensNS[2] != 1550 || got[1].SentNS != 1550 || got[1].PrefillNS != 1550 {
		t.Errorf("%+v: want B sent when A's answer ends, at 1550", got)
	}
}

func TestRouters(t *testing.T) {
	// Three prompts at once on two instances: a long one and two short ones.
	w := &kv.Workload{Requests: []kv.Request{{Input: 100, Output: 1}, {ID: 1, Input: 20, Output: 1}, {ID: 2, Input: 20, Output: 1}}}
	c := split(t)
	c.Prefill.Instances, c.Prefill.MaxSequences = 2, 1
	for router, want := range map[Router]int64{LeastTokens: 200, RoundRobin: 1000} {
		c.Router = router
		if got := playWire(t, c, w).Times()[2].PrefillNS; got != want {
			t.Errorf("%s: the third prompt begins at %d, want %d", router, got, want)
		}
	}
}

// Two stages work at the same time, each on sequences of its own; a step takes what it takes in one. By
// hand, stage by stage: the prompt of request 0 is computed from 0 to 50 and 50 to 100, that of 1 from 50 to 100
// and 100 to 150; then steps of 25 and 25 that wait for the stage before them.
func TestStages(t *testing.T) {
	c := split(t)
	c.Decode.Instances, c.Prefill.Stages = 0, 2
	s := playWire(t, c, &kv.Workload{Requests: []kv.Request{{Input: 10, Output: 3}, {ID: 1, ArriveNS: 20, Input: 10, Output: 2}}})
	for i, want := range []kv.Times{
		{PrefillNS: 0, PrefilledNS: 100, TokensNS: []int64{100, 175, 225}},
		{PrefillNS: 50, PrefilledNS: 150, TokensNS: []int64{150, 200}},
	} {
		x := s.Times()[i]
		if x.PrefillNS != want.PrefillNS || x.PrefilledNS != want.PrefilledNS || !slices.Equal(x.TokensNS, want.TokensNS) {
			t.Errorf("request %d: %+v, want %+v", i, x, want)
		}
	}
	if u := s.PrefillUse()[0]; u.BusyNS != (100+100+50+50+50)/2 || u.Steps != 5 {
		t.Errorf("%+v", u)
	}
}

// Alone a request takes as long as on one stage; many get through twice as fast.
func TestStagesInTime(t *testing.T) {
	var ends [2][2]int64
	for i, n := range []int{1, 64} {
		w := &kv.Workload{}
		for k := range n {
			w.Requests = append(w.Requests, kv.Request{ID: k, Input: 100, Output: 1})
		}
		for stages := range 2 {
			c := split(t)
			c.Decode.Instances, c.Prefill.Stages = 0, stages+1
			times := playWire(t, c, w).Times()
			ends[i][stages] = times[n-1].TokensNS[0]
		}
	}
	if want := [2][2]int64{{1000, 1000}, {64_000, 32_500}}; ends != want {
		t.Errorf("last tokens at %v, want %v", ends, want)
	}
}

func TestPrefixCache(t *testing.T) {
	const block = kv.BlockTokens
	w := &kv.Workload{Requests: []kv.Request{
		{Input: 2*block + 10, Output: 1, Blocks: []int64{1, 2, 3}},
		{ID: 1, ArriveNS: 1e6, Input: 2*block + 20, Output: 1, Blocks: []int64{1, 2, 4}}, // two blocks are there
		{ID: 2, ArriveNS: 2e6, Input: 2 * block, Output: 1, Blocks: []int64{1, 2}},       // all, and the last token is computed
		{ID: 3, ArriveNS: 3e6, Input: 2 * block, Output: 1, Blocks: []int64{5, 6}},       // takes the place of all
		{ID: 4, ArriveNS: 4e6, Input: 2 * block, Output: 1, Blocks: []int64{1, 2}},
	}}
	c := split(t)
	c.Prefill.MaxBatchedTokens, c.Prefill.PrefixPages = 4096, 2*block/16
	s := playWire(t, c, w)
	for i, tokens := range []int64{2*block + 10, 20, 1, 2 * block, 2 * block} {
		x := s.Times()[i]
		if got := x.PrefilledNS - x.PrefillNS; got != tokens*10 {
			t.Errorf("request %d: prefill took %d ns, want %d", i, got, tokens*10)
		}
		if want := int64(w.Requests[i].Input) * tinyToken; x.KVBytes != want {
			t.Errorf("request %d: %d bytes moved, want %d: the decode side has no prefixes", i, x.KVBytes, want)
		}
	}
	if got := s.PrefillUse()[0].CachedTokens; got != 2*block+2*block-1 {
		t.Errorf("%d tokens were found", got)
	}
}

// An answer of one token from prefill needs no cache.
func TestNothingMovesForOneToken(t *testing.T) {
	c := split(t)
	c.FirstToken, c.Decode.Pages = FromPrefill, 1
	x := playWire(t, c, &kv.Workload{Requests: []kv.Request{{Input: 10, Output: 1}}}).Times()[0]
	if x.KVBytes != 0 || len(x.TokensNS) != 1 || x.TokensNS[0] != 100 {
		t.Errorf("%+v", x)
	}
}

func TestImpossibleRequests(t *testing.T) {
	for _, x := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Decode.Pages = 6 }, "prompt of 100 and answer of 3 tokens need 7 pages: a decode instance has 6"},
		{func(c *Config) { c.Prefill.Pages = 6 }, "prompt of 100 and answer of 3 tokens need 7 pages: a prefill instance has 6"},
		{func(c *Config) { c.Prefill.Pages, c.Decode.Instances = 6, 0 }, "need 7 pages: an instance has 6"},
		{func(c *Config) { c.Prefill.MaxBatchedTokens = 99 }, "prompt of 100 tokens is longer than a batch of 99"},
	} {
		c := split(t)
		x.change(&c)
		w := two()
		w.Concurrency = 1
		got := playWire(t, c, w).Times()
		if !strings.Contains(got[0].Failed.Error(), x.want) || got[1].Failed != nil || len(got[1].TokensNS) != 2 {
			t.Errorf("want %q for the first and an answer for the second: %+v", x.want, got)
		}
	}
}

// broken fails some transfers after a while.
type broken struct {
	wire
	fail func(Transfer) bool
}

func (b *broken) Move(t Transfer, done func(int64, error)) {
	b.wire.Move(t, func(began int64, _ error) {
		if b.fail(t) {
			done(0, errors.New("peer is gone"))
			return
		}
		done(began, nil)
	})
}

func TestFailedTransfersFailTheirRequest(t *testing.T) {
	for _, move := range []Move{Push, PushLayers, Pull} {
		clock := newClock()
		c := split(t)
		c.Move, c.Admit, c.Decode.Pages, c.Prefill.Pages = move, Beside, 8, 8
		m := &broken{wire{c: clock, ns: 4, bytes: tinyToken}, func(t Transfer) bool { return t.Request == 0 && t.FromLayer == 0 }}
		s := play(t, c, two(), clock, m)
		if got := s.Times(); got[0].Failed.Error() != "peer is gone" || got[1].Failed != nil || len(got[1].TokensNS) != 2 {
			t.Errorf("%s: %+v", move, got)
		}
		if s.decode[0].usedPages != 0 || s.prefill[0].usedPages != 0 {
			t.Errorf("%s: %d and %d pages are still held", move, s.prefill[0].usedPages, s.decode[0].usedPages)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"0 prefill instances":        func(c *Config) { c.Prefill.Instances = 0 },
		"no compute model for decod": func(c *Config) { c.Decode.Compute = nil },
		"batches of 0 tokens":        func(c *Config) { c.Prefill.MaxBatchedTokens = 0 },
		"pages of 16 and 32 tokens":  func(c *Config) { c.Decode.PageTokens = 32 },
		"no KV layout":               func(c *Config) { c.Cache = nil },
		"layers cannot move":         func(c *Config) { c.Move = PushLayers },
		"9 layers together":          func(c *Config) { c.Move, c.Admit, c.LayersPerMove = PushLayers, Beside, 9 },
		"router \"fast\"":            func(c *Config) { c.Router = "fast" },
		"move \"\"":                  func(c *Config) { c.Move = "" },
		"admission \"\"":             func(c *Config) { c.Admit = "" },
		"first token from \"\"":      func(c *Config) { c.FirstToken = "" },
		"a hand-over of -1 ns":       func(c *Config) { c.HandoffNS = -1 },
	} {
		c := split(t)
		change(&c)
		if _, err := New(c, two(), newClock(), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	for _, r := range []kv.Request{{Input: 0, Output: 1}, {Input: 1, Output: 0}, {Input: 1, Output: 1, ArriveNS: -1}} {
		if _, err := New(split(t), &kv.Workload{Requests: []kv.Request{r}}, newClock(), nil); err == nil {
			t.Errorf("%+v is taken", r)
		}
	}
}
