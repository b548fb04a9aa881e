package kv

import (
	"errors"
	"fmt"
	"slices"
)

// This file says what came of a workload, by the definitions of vLLM's serving
// benchmark (benchmarks/serve.py: calculate_metrics), so that figures can be laid beside
// published ones, and where the time to the first token went.

// Options are what to compute in addition.
type Options struct {
	SLO SLO
	// Buckets are the longest prompts of the buckets, in tokens, ascending; longer prompts go
	// to one more bucket. nil: DefaultBuckets.
	Buckets []int
	// MemoryFirst says that prefill starts only when the decode side has memory: until then a
	// request waits for memory, not in the queue.
	MemoryFirst bool
}

// DefaultBuckets are the longest prompts of the buckets, in tokens.
var DefaultBuckets = []int{1 << 10, 1 << 12, 1 << 14, 1 << 16}

// SLO are the latency objectives of a request, in nanoseconds; nil is no objective. A request
// that equals an objective meets it.
type SLO struct{ TTFTNS, TPOTNS, E2ENS *int64 }

func (s SLO) none() bool { return s.TTFTNS == nil && s.TPOTNS == nil && s.E2ENS == nil }

// Metrics are the metrics of a run. Unknown ones are nil: times if no request was answered,
// rates if no time passed, goodput without an SLO.
type Metrics struct {
	Requests  int `json:"requests"`
	Completed int `json:"completed"`
	Failed    int `json:"failed"`
	// Unfinished requests have neither an answer nor a failure, because the run ended before.
	Unfinished int `json:"unfinished"`
	// DurationNS is from the start of the run to the last token of the last answer.
	DurationNS *int64 `json:"duration_ns"`
	// InputTokens and OutputTokens are of completed requests; output is what came.
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	KVBytes      int64 `json:"kv_bytes"`

	RequestsPerSec     *float64 `json:"requests_per_s"`
	OutputTokensPerSec *float64 `json:"output_tokens_per_s"`
	TotalTokensPerSec  *float64 `json:"total_tokens_per_s"` // input and output
	// GoodputPerSec is the rate of completed requests that meet every SLO.
	GoodputPerSec *float64 `json:"goodput_requests_per_s"`
	// Load is nil where requests do not arrive over time.
	Load *Load `json:"-"`

	Latencies
	Split
	Buckets []Bucket `json:"buckets"` // without empty ones
}

// Latencies are by vLLM's definitions.
type Latencies struct {
	// TTFT is from sending to the first token, without the time that a client delays sending
	// to limit its concurrency.
	TTFT *Summary `json:"ttft_ms"`
	// TPOT is (latency - TTFT) / (output - 1), of requests with more than one token.
	TPOT *Summary `json:"tpot_ms"`
	// ITL are the gaps between tokens of all requests, pooled.
	ITL *Summary `json:"itl_ms"`
	// E2E is from sending to the last token.
	E2E *Summary `json:"e2e_ms"`
}

// Split is the time to the first token by cause; see Parts.
type Split struct {
	Queue       *Summary `json:"queue_ms"`
	Compute     *Summary `json:"compute_ms"`
	MemoryWait  *Summary `json:"kv_memory_wait_ms"`
	LinkWait    *Summary `json:"kv_link_wait_ms"`
	Wire        *Summary `json:"kv_wire_ms"`
	WireExposed *Summary `json:"kv_wire_exposed_ms"`
	Exposed     *Summary `json:"kv_exposed_ms"`
	Rest        *Summary `json:"first_step_ms"`
	// KVShareOfTTFT is LinkWait and WireExposed before the first token as a part of TTFT.
	KVShareOfTTFT *float64 `json:"kv_share_of_ttft"`
}

// Bucket are the requests with prompts of From to To tokens.
type Bucket struct {
	From      int  `json:"from_tokens"`
	To        *int `json:"to_tokens"` // nil: no bound
	Completed int  `json:"completed"`
	Latencies
	Split
}

// Compute computes the metrics of a run. times are at most one per request, in any order, which
// only Load assumes to be that of arrival; failed requests only count as failed, as in vLLM. The
// error names a request whose times are impossible.
func Compute(w *Workload, times []Times, o Options) (*Metrics, error) {
	bounds := o.Buckets
	if bounds == nil {
		bounds = DefaultBuckets
	}
	if !slices.IsSorted(bounds) || len(slices.Compact(slices.Clone(bounds))) != len(bounds) || len(bounds) > 0 && bounds[0] < 1 {
		return nil, errors.New("metrics: buckets of prompts: give ascending numbers of tokens")
	}
	byID := make(map[int]*Request, len(w.Requests))
	for i := range w.Requests {
		byID[w.Requests[i].ID] = &w.Requests[i]
	}
	m := &Metrics{Requests: len(w.Requests)}
	all, buckets, good := newSamples(times), make([]samples, len(bounds)+1), 0
	end := int64(0)
	for i := range times {
		t := &times[i]
		request := byID[t.Request]
		if request == nil {
			return nil, fmt.Errorf("metrics: request %d is not in the workload, or is there twice", t.Request)
		}
		delete(byID, t.Request)
		switch {
		case errors.Is(t.Failed.Unwrap(), ErrStopped):
			m.Unfinished++
			continue
		case t.Failed != nil:
			m.Failed++
			continue
		}
		parts, err := PartsOf(t, o.MemoryFirst)
		if err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
		m.Completed++
		m.InputTokens += int64(request.Input)
		m.OutputTokens += int64(len(t.TokensNS))
		m.KVBytes += t.KVBytes
		end = max(end, t.TokensNS[len(t.TokensNS)-1])
		all.add(t, &parts)
		which, _ := slices.BinarySearch(bounds, request.Input)
		buckets[which].add(t, &parts)
		if o.SLO.met(t) {
			good++
		}
	}
	m.Unfinished += len(byID)
	m.rates(end, good, o.SLO)
	m.Load = all.load(w) // before others sort the samples
	m.Latencies, m.Split = all.latencies(), all.split()
	m.Buckets = collect(bounds, buckets)
	return m, nil
}

func (m *Metrics) rates(end int64, good int, slo SLO) {
	if m.Completed == 0 {
		return
	}
	m.DurationNS = &end
	if end == 0 {
		return
	}
	perSec := func(n int64) *float64 {
		v := float64(n) / (float64(end) / 1e9)
		return &v
	}
	m.RequestsPerSec = perSec(int64(m.Completed))
	m.OutputTokensPerSec = perSec(m.OutputTokens)
	m.TotalTokensPerSec = perSec(m.InputTokens + m.OutputTokens)
	if !slo.none() {
		m.GoodputPerSec = perSec(int64(good))
	}
}

func collect(bounds []int, buckets []samples) []Bucket {
	list, from := []Bucket{}, 1
	for i := range buckets {
		b := Bucket{From: from, Completed: len(buckets[i].ttft)}
		if i < len(bounds) {
			to := bounds[i]
			b.To = &to
			from = bounds[i] + 1
		}
		if b.Completed > 0 {
			b.Latencies, b.Split = buckets[i].latencies(), buckets[i].split()
			list = append(list, b)
		}
	}
	return list
}

// tpot is a request's time per token after the first; ok is false with one token.
func tpot(t *Times) (ns float64, ok bool) {
	n := len(t.TokensNS)
	if n < 2 {
		return 0, false
	}
	return float64(t.TokensNS[n-1]-t.TokensNS[0]) / float64(n-1), true
}

// met says whether a request meets the SLO. With one token TPOT counts as 0, as in vLLM.
func (s SLO) met(t *Times) bool {
	perToken, _ := tpot(t)
	return (s.TTFTNS == nil || t.TokensNS[0]-t.SentNS <= *s.TTFTNS) &&
		(s.TPOTNS == nil || perToken <= float64(*s.TPOTNS)) &&
		(s.E2ENS == nil || t.TokensNS[len(t.TokensNS)-1]-t.SentNS <= *s.E2ENS)
}
