// Package kv is the model of serving with a KV cache that moves: requests, what became of
// each, how long each part of it took, and what came of it, by the definitions of vLLM's serving
// benchmark. Generators and traces make requests; a serving system works them off (kv/serve) in
// virtual time over the simulator or in real time over the engine (kv/replay).
package kv

import "errors"

// Request is one prompt and the length of its answer.
type Request struct {
	ID int // in the order of the workload, from 0
	// ArriveNS is when the client sends it, since the run began. With a fixed
	// concurrency clients send when an answer ends; it is 0 there.
	ArriveNS int64
	Input    int // tokens of the prompt, at least 1
	Output   int // tokens of the answer, at least 1
	// Blocks name the prompt's blocks of BlockTokens tokens, equal for equal prefixes;
	// nil where nothing is shared.
	Blocks []int64
	Line   int // of the trace it is from; 0 none
}

// BlockTokens is how many tokens a block of Request.Blocks has (Mooncake's traces).
const BlockTokens = 512

// Workload is the requests of all clients.
type Workload struct {
	Requests []Request // by arrival
	// Concurrency is how many requests are under way at most; 0: they come when they come.
	Concurrency int
	Name        string // for people: "gamma, 4 requests/s, burstiness 1, 1024 tokens in, 6 out"
	Seed        uint64
}

// Times are what became of a request. All are since the run began; the first token of an
// answer comes from prefill or from decode, as the serving system has it.
type Times struct {
	Request int
	// SentNS is when the client sent it: TTFT counts from there.
	SentNS int64
	// PrefillNS is when its prefill began, PrefilledNS when it ended.
	PrefillNS, PrefilledNS int64
	// AdmittedNS is when the decode side had memory for it.
	AdmittedNS int64
	// WireNS is when the first byte of its KV cache began to move, ArrivedNS when the last
	// one was there. Equal where nothing moves.
	WireNS, ArrivedNS int64
	// TokensNS is when each token of the answer came to the client.
	TokensNS []int64
	KVBytes  int64
	// Failed says why there is no answer; nil: there is one.
	Failed *Failure
}

// ErrStopped is the failure of requests that were not finished when the run was stopped.
var ErrStopped = errors.New("not finished when the run was stopped")

// Failure is why a request has no answer. Kind is the same for requests that fail for the same
// reason, whatever the figures in the error.
type Failure struct {
	Kind string
	Err  error
}

// Error is the reason in words, "" for nil.
func (f *Failure) Error() string {
	if f == nil {
		return ""
	}
	return f.Err.Error()
}

func (f *Failure) Unwrap() error {
	if f == nil {
		return nil
	}
	return f.Err
}
