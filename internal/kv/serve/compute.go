package serve

import "math"

// This file says how long prefill and decode take on GPUs that are not there: by
// formula, with parameters that were fitted to published tables or are assumed. What comes
// of it is modelled and has to be shown as such.

// Basis says how a parameter is known.
type Basis string

// Bases of parameters.
const (
	Published Basis = "published" // fitted to rows of a published table
	Assumed   Basis = "assumed"   // from data sheets, or scaled from a setting next to it
)

// Prefill is the time of a step that computes n new tokens of one prompt: A + B*n + C*n*n. Reports have it under the
// names of its tags.
type Prefill struct {
	ANS          float64 `json:"fixed_ns"` // for each step
	BNSPerToken  float64 `json:"per_token_ns"`
	CNSPerSquare float64 `json:"per_token_squared_ns"` // for each token squared: attention
	Basis        Basis   `json:"basis"`
	Source       string  `json:"source"`
	Rows         []Row   `json:"-"` // that were fitted; nil where assumed
}

// Decode is the time of a step that produces one token for each request of a batch:
// D + E*batch + F*tokens, where tokens are those of all contexts together.
type Decode struct {
	DNS                float64 `json:"fixed_ns"` // for each step
	ENSPerRequest      float64 `json:"per_request_ns"`
	FNSPerContextToken float64 `json:"per_context_token_ns"` // for each token of a context
	Basis              Basis   `json:"basis"`
	Source             string  `json:"source"`
	Rows               []Row   `json:"-"`
}

// Row is a row of a published table.
type Row struct {
	Table  string  // of what the row is
	Key    string  // the row in it, and where it matters the column
	Tokens float64 // of a prompt
	Batch  float64 // requests that decode together
	// ContextTokens are those of all requests of the batch.
	ContextTokens float64
	MS            float64
}

// Params are the parameters of a model on one kind of GPU.
type Params struct {
	Model, GPU string
	TP, PP     int // ranks of an instance: TP*PP
	// WeightBytes is the memory that the weights take on all ranks together, as they are stored for
	// these times: quantised ones as quantised.
	WeightBytes float64
	Prefill     Prefill
	Decode      Decode
}

// Chunk is the part of a prompt that a step computes.
type Chunk struct {
	Done   int // tokens of the prompt that are already in the cache
	Tokens int // computed in this step
}

// Step is what an instance computes at once: parts of prompts, and a token for each request
// of a batch. With chunked prefill it has both.
type Step struct {
	Chunks        []Chunk
	Decode        int   // requests that get a token
	ContextTokens int64 // of those, all together
}

// StepNS is how long a step takes. The fixed part counts once, the larger of both: it is the
// time to launch the step and read the weights. A token attends to all before it, so the
// chunks of a prompt together take as long as the whole prompt at once, except for A.
func (p *Params) StepNS(s Step) int64 {
	var fixed, ns float64
	for _, c := range s.Chunks {
		if c.Tokens <= 0 {
			continue
		}
		fixed = max(fixed, p.Prefill.ANS)
		done, tokens := float64(c.Done), float64(c.Tokens)
		ns += p.Prefill.BNSPerToken*tokens + p.Prefill.CNSPerSquare*tokens*(tokens+2*done)
	}
	if s.Decode > 0 {
		fixed = max(fixed, p.Decode.DNS)
		ns += p.Decode.ENSPerRequest*float64(s.Decode) + p.Decode.FNSPerContextToken*float64(s.ContextTokens)
	}
	return int64(math.Round(fixed + ns))
}

// PrefillNS is how long a prompt takes alone, of which some tokens are in the cache.
func (p *Params) PrefillNS(cached, tokens int) int64 {
	return p.StepNS(Step{Chunks: []Chunk{{cached, tokens - cached}}})
}

// DecodeNS is how long a step for a batch takes.
func (p *Params) DecodeNS(batch int, contextTokens int64) int64 {
	return p.StepNS(Step{Decode: batch, ContextTokens: contextTokens})
}
