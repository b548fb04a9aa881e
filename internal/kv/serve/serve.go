package serve

import (
	"fmt"

	"github.com/topoctl/topoctl/internal/kv"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Clock is the clock of the system.
type Clock interface {
	NowNS() int64
	// At calls run at a time, after everything scheduled earlier for the same time. A time in
	// the past means now. It never calls run before returning.
	At(atNS int64, run func())
}

// Mover moves KV caches.
type Mover interface {
	// Move carries out t and calls done once, possibly before returning: beganNS is the
	// clock's time when the first byte started to move.
	Move(t Transfer, done func(beganNS int64, err error))
}

// Pager is a Mover that keeps page tables: it is told of memory before it is asked to move its
// content.
type Pager interface {
	// Pages is called when the number of pages that a request holds on an instance changes.
	Pages(h Holding)
}

// Holding is how many pages a request holds on an instance.
type Holding struct {
	Decode   bool // a decode instance; otherwise a prefill instance
	Instance int
	Request  int // index in Workload.Requests
	Pages    int // 0: all pages are freed
}

// Transfer is a part of a prompt's cache, or all of it, on its way from a prefill instance to
// a decode instance.
type Transfer struct {
	Request            int // index in Workload.Requests
	Prefill, Decode    int // instances
	FromToken, ToToken int // of the prompt, the last not included
	FromLayer, ToLayer int // likewise
	Pull               bool
	Pairs              []Pair // what goes from rank to rank, in the order of layout.Pairs; not to be changed
}

// Pair is what one rank sends to another.
type Pair struct {
	PrefillRank, DecodeRank int
	Bytes                   int64
	Descriptors             int64 // strided copies
	Pieces                  int64 // contiguous on both sides
}

// Bytes is the sum of all pairs.
func (t *Transfer) Bytes() int64 {
	sum := int64(0)
	for i := range t.Pairs {
		sum += t.Pairs[i].Bytes
	}
	return sum
}

// Compute says how long steps take: *Params does.
type Compute interface {
	// StepNS is how long a step takes, in nanoseconds. The step's slices are valid during
	// the call.
	StepNS(s Step) int64
}

// Pool is a number of identical instances.
type Pool struct {
	Instances  int
	Compute    Compute
	PageTokens int
	Pages      int // of KV memory per instance; 0: unlimited
	// MaxBatchedTokens bounds the prompt tokens of a step; with chunked prompts the sequences
	// that decode in the step count as well.
	MaxBatchedTokens int
	MaxSequences     int // that run at the same time; 0: unlimited
	// Chunked prompts are computed in parts, in the same steps as decodes. Otherwise a
	// prompt is computed in one step, and prompts go before decodes.
	Chunked bool
	// Stages is the number of pipeline stages; 0 is 1. A step passes through all stages and spends an equal
	// part of its time in each. A stage runs one step at a time, so as many steps run at once as there are
	// stages, each with its own sequences.
	Stages int
	// PrefixPages is the size of an instance's prefix cache, in addition to Pages. 0: no cache.
	PrefixPages int
}

// Move is how a cache is moved to the decode side.
type Move string

// Ways of moving.
const (
	Push       Move = "push"        // the prefill side writes it once the prompt is computed
	PushLayers Move = "push-layers" // the prefill side writes it layer by layer while it computes
	Pull       Move = "pull"        // the decode side reads it once the prompt is computed
)

// Admit is when memory is requested from the decode side.
type Admit string

// Times of admission.
const (
	Before Admit = "before" // prefill waits for it (Dynamo 0.3's remote prefill)
	Beside Admit = "beside" // when the request arrives; prefill does not wait (SGLang)
	After  Admit = "after"  // when the prompt is computed (vLLM's connectors behind a proxy)
)

// FirstToken is where the first token of an answer comes from.
type FirstToken string

// Sources of the first token.
const (
	// FromPrefill: prefill sends it to the client when it ends (Splitwise, DistServe).
	FromPrefill FirstToken = "prefill"
	// WithCache: prefill computes it, and the client gets it when the decode side has the
	// cache (SGLang).
	WithCache FirstToken = "cache"
	// FromDecode: the decode side computes it by computing the last token of the prompt once
	// more, in a step of its own (vLLM's proxies, which ask prefill for one token and drop it).
	FromDecode FirstToken = "decode"
)

// Router is how instances are chosen.
type Router string

// Routers.
const (
	LeastTokens Router = "least-tokens" // the instance with the fewest tokens to compute
	RoundRobin  Router = "round-robin"
)

// Config describes a serving system.
type Config struct {
	Prefill Pool
	// Decode may have no instances: those of Prefill then do both, and nothing moves.
	Decode Pool
	// Cache is how a cache is laid out on both sides.
	Cache      *kv.Reslice
	Move       Move
	Admit      Admit
	FirstToken FirstToken
	Router     Router
	// LayersPerMove is how many layers move together with PushLayers.
	LayersPerMove int
	// HandoffNS is how long it takes to tell the decode side that a prompt is computed; with
	// PushLayers it need not be told.
	HandoffNS int64
	// SendBlocks: a prefill instance starts no step while it sends a cache. ReceiveBlocks: a
	// decode instance starts none while it receives one. vLLM's first connectors move within a step
	// of the model.
	SendBlocks, ReceiveBlocks bool
	// ReserveOutput: memory for prompt and answer is reserved at once. Otherwise memory for the
	// prompt is reserved first, then page by page: where none is left, the youngest sequence is
	// preempted and computed again.
	ReserveOutput bool
}

// Split says whether prefill and decode have instances of their own.
func (c *Config) Split() bool { return c.Decode.Instances > 0 }

func (c *Config) check() error {
	if err := c.Prefill.check("prefill"); err != nil {
		return err
	}
	if c.Router != LeastTokens && c.Router != RoundRobin {
		return pkgerr.Errorf("serve", "router %q: want %s or %s", c.Router, LeastTokens, RoundRobin)
	}
	if !c.Split() {
		return nil
	}
	if err := c.Decode.check("decode"); err != nil {
		return err
	}
	switch {
	case c.Cache == nil:
		return pkgerr.New("serve", "no KV layout from prefill to decode")
	case c.Cache.Prefill.PageTokens != c.Prefill.PageTokens || c.Cache.Decode.PageTokens != c.Decode.PageTokens:
		return pkgerr.Errorf("serve", "pages of %d and %d tokens, but of %d and %d in the KV layout",
			c.Prefill.PageTokens, c.Decode.PageTokens, c.Cache.Prefill.PageTokens, c.Cache.Decode.PageTokens)
	case c.Move != Push && c.Move != PushLayers && c.Move != Pull:
		return pkgerr.Errorf("serve", "move %q: want %s, %s or %s", c.Move, Push, PushLayers, Pull)
	case c.Admit != Before && c.Admit != Beside && c.Admit != After:
		return pkgerr.Errorf("serve", "admission %q: want %s, %s or %s", c.Admit, Before, Beside, After)
	case c.Move == PushLayers && c.Admit == After:
		return pkgerr.New("serve", "layers cannot move while a prompt is computed when memory is requested after that")
	case c.FirstToken != FromPrefill && c.FirstToken != WithCache && c.FirstToken != FromDecode:
		return pkgerr.Errorf("serve", "first token from %q: want %s, %s or %s", c.FirstToken, FromPrefill, WithCache, FromDecode)
	case c.Move == PushLayers && (c.LayersPerMove < 1 || c.LayersPerMove > c.Cache.Model.Layers):
		return pkgerr.Errorf("serve", "%d layers together: want 1 to %d", c.LayersPerMove, c.Cache.Model.Layers)
	case c.HandoffNS < 0:
		return pkgerr.Errorf("serve", "a hand-over of %d ns", c.HandoffNS)
	}
	return nil
}

func (p *Pool) check(name string) error {
	switch {
	case p.Instances < 1 || p.Instances > 1<<16:
		return pkgerr.Errorf("serve", "%d %s instances: want 1 to %d", p.Instances, name, 1<<16)
	case p.Compute == nil:
		return pkgerr.Errorf("serve", "no compute model for %s", name)
	case p.PageTokens < 1 || p.Pages < 0 || p.PrefixPages < 0 || p.MaxSequences < 0:
		return pkgerr.Errorf("serve", "%s: %d pages of %d tokens, %d for prefixes, %d sequences: want pages of at least one token, and nothing below 0",
			name, p.Pages, p.PageTokens, p.PrefixPages, p.MaxSequences)
	case p.Stages < 0 || p.Stages > 1<<10:
		return pkgerr.Errorf("serve", "%s: %d pipeline stages: want up to %d", name, p.Stages, 1<<10)
	case p.MaxBatchedTokens < 1:
		return pkgerr.Errorf("serve", "%s: batches of %d tokens: want at least 1", name, p.MaxBatchedTokens)
	}
	return nil
}

func (p *Pool) pagesFor(tokens int) int { return (tokens + p.PageTokens - 1) / p.PageTokens }

// WhyImpossible says why a request can never be answered; nil: it can.
func (c *Config) WhyImpossible(r *kv.Request) *kv.Failure {
	prompt, all := r.Input, r.Input+r.Output-1 // the last token's cache is never made
	if !c.Prefill.Chunked && prompt > c.Prefill.MaxBatchedTokens {
		return &kv.Failure{Kind: "prompt", Err: fmt.Errorf("prompt of %d tokens is longer than a batch of %d, and prompts are not computed in chunks", prompt, c.Prefill.MaxBatchedTokens)}
	}
	sides := []struct {
		pool   *Pool
		name   string
		tokens int
	}{{&c.Prefill, "prefill", prompt}, {&c.Decode, "decode", all}}
	if !c.Split() {
		sides = sides[:1]
		sides[0].name, sides[0].tokens = "", all
	}
	for _, x := range sides {
		if n := x.pool.pagesFor(x.tokens); x.pool.Pages > 0 && n > x.pool.Pages {
			where := "an instance"
			if x.name != "" {
				where = "a " + x.name + " instance"
			}
			return &kv.Failure{Kind: "memory of " + where, Err: fmt.Errorf("prompt of %d and answer of %d tokens need %d pages: %s has %d", r.Input, r.Output, n, where, x.pool.Pages)}
		}
	}
	return nil
}
