package serve

import (
	"fmt"

	"github.com/topoctl/topoctl/internal/app/kv"
	"github.com/topoctl/topoctl/internal/app/kv/compute"
	"github.com/topoctl/topoctl/internal/app/kv/layout"
	"github.com/topoctl/topoctl/internal/base/pkgerr"
)

// Clock is the time that the system lives in.
type Clock interface {
	NowNS() int64
	// At runs something at a time, after what was asked for earlier at the same one. A time
	// in the past is now; it never runs within the call.
	At(atNS int64, run func())
}

// Mover moves KV caches.
type Mover interface {
	// Move moves what t says and calls done once, also within the call: beganNS is the
	// clock's time when the first byte began to move.
	Move(t Transfer, done func(beganNS int64, err error))
}

// Pager is a Mover that keeps page tables: it hears of memory before it is asked to move what
// is there.
type Pager interface {
	// Pages is called when a request holds more or fewer pages of an instance than before.
	Pages(h Holding)
}

// Holding is how many pages of an instance a request holds.
type Holding struct {
	Decode   bool // a decode instance; otherwise one of prefill
	Instance int
	Request  int // place in Workload.Requests
	Pages    int // 0: all of them are given back
}

// Transfer is a part of a prompt's cache, or all of it, on its way from a prefill instance to
// a decode instance.
type Transfer struct {
	Request            int // place in Workload.Requests
	Prefill, Decode    int // instances
	FromToken, ToToken int // of the prompt, the last not included
	FromLayer, ToLayer int // likewise
	Pull               bool
	Pairs              []Pair // what goes from rank to rank, in the order of layout.Pairs; not to be changed
}

// Pair is what one rank has for another.
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

// Compute says how long steps take: *compute.Params does.
type Compute interface {
	// StepNS is how long a step takes, in nanoseconds. The step's slices are valid during
	// the call.
	StepNS(s compute.Step) int64
}

// Pool are equal instances.
type Pool struct {
	Instances  int
	Compute    Compute
	PageTokens int
	Pages      int // of KV memory of an instance; 0: no bound
	// MaxBatchedTokens are those of prompts that a step computes, with chunks less the
	// sequences that decode in it.
	MaxBatchedTokens int
	MaxSequences     int // that run at once; 0: no bound
	// Chunked prompts are computed in parts, in the same steps as decodes. Otherwise a
	// prompt is computed in one step, and prompts go before decodes.
	Chunked bool
	// Stages are those of a pipeline; 0 is 1. A step passes through all and takes each its part of the step's
	// time. A stage has one step at a time, so that there are as many steps under way as stages, each with
	// sequences of its own.
	Stages int
	// PrefixPages is how much an instance keeps of prompts that are over, for prompts that
	// begin alike; beside Pages. 0: nothing.
	PrefixPages int
}

// Move is how a cache gets to the decode side.
type Move string

// Ways of moving.
const (
	Push       Move = "push"        // the prefill side writes it once the prompt is computed
	PushLayers Move = "push-layers" // and layer by layer while it computes
	Pull       Move = "pull"        // the decode side reads it once the prompt is computed
)

// Admit is when the decode side is asked for memory.
type Admit string

// Times of admission.
const (
	Before Admit = "before" // prefill begins when it has some (Dynamo 0.3's remote prefill)
	Beside Admit = "beside" // when the request comes; prefill does not wait (SGLang)
	After  Admit = "after"  // when the prompt is computed (vLLM's connectors behind a proxy)
)

// FirstToken is who gives the first token of an answer.
type FirstToken string

// Givers of the first token.
const (
	// FromPrefill: it goes to the client when the prefill ends (Splitwise, DistServe).
	FromPrefill FirstToken = "prefill"
	// WithCache: it is computed by prefill, and goes to the client when the decode side has
	// the cache (SGLang).
	WithCache FirstToken = "cache"
	// FromDecode: the decode side computes it in a step of its own, the last token of the
	// prompt once more (vLLM's proxies, which ask prefill for one token and drop it).
	FromDecode FirstToken = "decode"
)

// Router is how instances are chosen.
type Router string

// Routers.
const (
	LeastTokens Router = "least-tokens" // the fewest tokens of requests that it has not done
	RoundRobin  Router = "round-robin"
)

// Config describes a serving system.
type Config struct {
	Prefill Pool
	// Decode without instances: Prefill's do both, and nothing moves.
	Decode Pool
	// Cache is the way from a prefill to a decode instance.
	Cache      *layout.Reslice
	Move       Move
	Admit      Admit
	FirstToken FirstToken
	Router     Router
	// LayersPerMove is how many go together with PushLayers.
	LayersPerMove int
	// HandoffNS is how long the word that a prompt is computed takes; with PushLayers the
	// decode side needs none.
	HandoffNS int64
	// SendBlocks: a prefill instance begins no step while a cache leaves it. ReceiveBlocks: a
	// decode instance begins none while one comes. vLLM's first connectors move within a step
	// of the model.
	SendBlocks, ReceiveBlocks bool
	// ReserveOutput: whoever decodes takes memory for prompt and answer at once. Otherwise
	// for the prompt, and then page by page: the youngest sequence has to yield where there
	// is none left, and is computed again.
	ReserveOutput bool
}

// Split says whether prefill and decode are instances of their own.
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
		return pkgerr.New("serve", "no KV layout for the way from prefill to decode")
	case c.Cache.Prefill.PageTokens != c.Prefill.PageTokens || c.Cache.Decode.PageTokens != c.Decode.PageTokens:
		return pkgerr.Errorf("serve", "pages of %d and %d tokens, and of %d and %d in the KV layout: want the same",
			c.Prefill.PageTokens, c.Decode.PageTokens, c.Cache.Prefill.PageTokens, c.Cache.Decode.PageTokens)
	case c.Move != Push && c.Move != PushLayers && c.Move != Pull:
		return pkgerr.Errorf("serve", "way of moving %q: want %s, %s or %s", c.Move, Push, PushLayers, Pull)
	case c.Admit != Before && c.Admit != Beside && c.Admit != After:
		return pkgerr.Errorf("serve", "admission %q: want %s, %s or %s", c.Admit, Before, Beside, After)
	case c.Move == PushLayers && c.Admit == After:
		return pkgerr.New("serve", "layers cannot move while a prompt is computed when memory is asked for after that")
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
		return pkgerr.Errorf("serve", "%s: %d pages of %d tokens, %d for prefixes, %d sequences: want pages of a token at least, and nothing below 0",
			name, p.Pages, p.PageTokens, p.PrefixPages, p.MaxSequences)
	case p.Stages < 0 || p.Stages > 1<<10:
		return pkgerr.Errorf("serve", "%s: %d pipeline stages: want up to %d", name, p.Stages, 1<<10)
	case p.MaxBatchedTokens < 1:
		return pkgerr.Errorf("serve", "%s: batches of %d tokens: want 1 at least", name, p.MaxBatchedTokens)
	}
	return nil
}

func (p *Pool) pagesFor(tokens int) int { return (tokens + p.PageTokens - 1) / p.PageTokens }

// whyImpossible says why a request can never be answered; nil: it can.
func (c *Config) whyImpossible(r *kv.Request) *kv.Failure {
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
