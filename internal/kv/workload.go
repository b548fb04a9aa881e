package kv

// A workload is requests: generated arrivals and lengths, as vLLM's
// serving benchmark has them, and Mooncake's public trace format. Equal
// specs with equal seeds give equal workloads.

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Bounds of a workload, generated or read.
const (
	MaxRequests = 2_000_000
	MaxTokens   = 1 << 24 // of one prompt or one answer
	// maxSpanNS is how long after the start a request may come: 11.5 days. Below it, a
	// float64 of milliseconds still tells nanoseconds apart.
	maxSpanNS = 1_000_000_000_000_000
)

// Spec says what is generated.
type Spec struct {
	Requests int
	Seed     uint64
	Arrivals Arrivals
	Input    Lengths // tokens of prompts
	Output   Lengths // tokens of answers
}

// Each property has its own stream of random numbers, so that other lengths leave the
// arrivals as they are.
const (
	streamArrivals = iota + 1
	streamInput
	streamOutput
)

func stream(seed, which uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, which)) }

// Generate makes a workload. The error says which part of the spec is impossible.
func Generate(s Spec) (*Workload, error) {
	if s.Requests < 1 || s.Requests > MaxRequests {
		return nil, pkgerr.Errorf("workload", "%d requests: give 1 to %d", s.Requests, MaxRequests)
	}
	if s.Input == nil || s.Output == nil {
		return nil, pkgerr.New("workload", "no lengths of prompts or of answers are given")
	}
	input, err := s.Input.draw(s.Requests, stream(s.Seed, streamInput))
	if err != nil {
		return nil, pkgerr.Errorf("workload", "prompts: %w", err)
	}
	output, err := s.Output.draw(s.Requests, stream(s.Seed, streamOutput))
	if err != nil {
		return nil, pkgerr.Errorf("workload", "answers: %w", err)
	}
	arrive, err := s.Arrivals.draw(s.Requests, stream(s.Seed, streamArrivals))
	if err != nil {
		return nil, pkgerr.Errorf("workload", "arrivals: %w", err)
	}
	w := &Workload{Requests: make([]Request, s.Requests), Concurrency: s.Arrivals.Concurrency, Seed: s.Seed,
		Name: fmt.Sprintf("%s, %s in, %s out", s.Arrivals, s.Input, s.Output)}
	for i := range w.Requests {
		w.Requests[i] = Request{ID: i, ArriveNS: arrive[i], Input: input[i], Output: output[i]}
	}
	return w, nil
}

// roundTokens makes a drawn length one of 1 to MaxTokens.
func roundTokens(x float64) int { return int(min(max(math.Round(x), 1), MaxTokens)) }
