package kv_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/internal/kv"
)

func generate(t *testing.T, s kv.Spec) *kv.Workload {
	t.Helper()
	w, err := kv.Generate(s)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func spec(n int, a kv.Arrivals) kv.Spec {
	return kv.Spec{Requests: n, Seed: 7, Arrivals: a, Input: kv.Fixed(1024), Output: kv.Fixed(6)}
}

// gaps are those between arrivals, in parts of the mean gap; the first one is before the
// first arrival.
func gaps(w *kv.Workload) []float64 {
	out, before := make([]float64, len(w.Requests)), int64(0)
	mean := float64(w.Requests[len(w.Requests)-1].ArriveNS) / float64(len(w.Requests))
	for i, r := range w.Requests {
		out[i] = float64(r.ArriveNS-before) / mean
		before = r.ArriveNS
	}
	return out
}

func meanVariance(x []float64) (mean, variance float64) {
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		variance += (v - mean) * (v - mean) / float64(len(x))
	}
	return mean, variance
}

// The distribution of the gaps is gamma's: variance 1/shape in mean gaps, and for shapes
// with a closed form the whole of it (Kolmogorov-Smirnov, far beyond 1 in 1000).
func TestGammaGaps(t *testing.T) {
	closed := map[float64]func(x float64) float64{
		0.5: func(x float64) float64 { return math.Erf(math.Sqrt(x / 2)) }, // chi squared, one degree of freedom
		1:   func(x float64) float64 { return 1 - math.Exp(-x) },
		2:   func(x float64) float64 { return 1 - math.Exp(-2*x)*(1+2*x) },
	}
	const n = 40_000
	for _, shape := range []float64{0.1, 0.5, 1, 2, 16} {
		g := gaps(generate(t, spec(n, kv.Arrivals{RatePerSec: 4, Burstiness: shape})))
		_, variance := meanVariance(g)
		// The variance of a sample's variance, by gamma's kurtosis of 6/shape.
		tolerance := 4 / shape * math.Sqrt((2+6/shape)/n)
		if math.Abs(variance-1/shape) > tolerance {
			t.Errorf("shape %v: variance %v, want %v ± %v", shape, variance, 1/shape, tolerance)
		}
		if cdf := closed[shape]; cdf != nil {
			slices.Sort(g)
			worst := 0.
			for i, x := range g {
				worst = max(worst, math.Abs(cdf(x)-(float64(i)+0.5)/n))
			}
			if worst > 2.2/math.Sqrt(n) {
				t.Errorf("shape %v: %v off its distribution", shape, worst)
			}
		}
	}
}

// The last request comes after n/rate, whatever was drawn, as in vLLM's benchmark.
func TestSpanIsExact(t *testing.T) {
	for _, rate := range []float64{1, 4, 16} {
		for _, shape := range []float64{0, 0.25, 1, 3, math.Inf(1)} {
			w := generate(t, spec(200, kv.Arrivals{RatePerSec: rate, Burstiness: shape}))
			last := w.Requests[199].ArriveNS
			if want := int64(200 / rate * 1e9); last != want {
				t.Errorf("rate %v, burstiness %v: the last one at %d, want %d", rate, shape, last, want)
			}
			if !slices.IsSortedFunc(w.Requests, func(a, b kv.Request) int { return int(a.ArriveNS - b.ArriveNS) }) {
				t.Errorf("rate %v, burstiness %v: not in order", rate, shape)
			}
			if first := w.Requests[0].ArriveNS; shape != 0.25 && first == 0 {
				t.Errorf("rate %v, burstiness %v: the first one has no gap", rate, shape)
			}
		}
	}
	w := generate(t, spec(3, kv.Arrivals{RatePerSec: 2, Burstiness: math.Inf(1)}))
	for i, want := range []int64{500_000_000, 1_000_000_000, 1_500_000_000} {
		if w.Requests[i].ArriveNS != want {
			t.Errorf("equal gaps: request %d at %d, want %d", i, w.Requests[i].ArriveNS, want)
		}
	}
}

func TestAllAtOnceAndConcurrency(t *testing.T) {
	for _, a := range []kv.Arrivals{{}, {RatePerSec: math.Inf(1)}, {Concurrency: 8}, {RatePerSec: math.Inf(1), Concurrency: 8}} {
		w := generate(t, spec(50, a))
		if w.Concurrency != a.Concurrency {
			t.Errorf("%v: concurrency %d", a, w.Concurrency)
		}
		for i, r := range w.Requests {
			if r.ArriveNS != 0 || r.ID != i {
				t.Fatalf("%v: request %+v", a, r)
			}
		}
	}
}

func TestSeeds(t *testing.T) {
	s := kv.Spec{Requests: 300, Seed: 5, Arrivals: kv.Arrivals{RatePerSec: 3},
		Input: kv.Uniform(1000, 0.5), Output: kv.LognormalP90(100, 300, 2000)}
	a := generate(t, s)
	if d := cmp.Diff(a, generate(t, s)); d != "" {
		t.Error("equal specs differ:", d)
	}
	s.Output = kv.Fixed(1)
	b := generate(t, s)
	for i := range a.Requests {
		if a.Requests[i].ArriveNS != b.Requests[i].ArriveNS || a.Requests[i].Input != b.Requests[i].Input {
			t.Fatal("other answers change arrivals or prompts")
		}
	}
	s.Seed = 6
	if cmp.Equal(b.Requests, generate(t, s).Requests) {
		t.Error("another seed gives the same requests")
	}
	if want := "Poisson, 3 requests/s, 1000 tokens ±50 % in, lognormal (median 100, p90 300, at most 2000) tokens out"; a.Name != want {
		t.Errorf("name %q, want %q", a.Name, want)
	}
}

func lengths(w *kv.Workload) (input, output []float64) {
	for _, r := range w.Requests {
		input, output = append(input, float64(r.Input)), append(output, float64(r.Output))
	}
	slices.Sort(input)
	slices.Sort(output)
	return input, output
}

func quantile(sorted []float64, p float64) float64 {
	x := p * float64(len(sorted)-1)
	i := min(int(x), len(sorted)-2)
	return sorted[i] + (sorted[i+1]-sorted[i])*(x-float64(i))
}

func TestLengths(t *testing.T) {
	const n = 20_000
	s := spec(n, kv.Arrivals{})
	s.Input, s.Output = kv.Uniform(101, 0.25), kv.LognormalP90(700, 2700, 100_000)
	input, output := lengths(generate(t, s))
	// floor(75.75) and ceil(126.25), both included: 52 lengths, each about n/52 times.
	if input[0] != 75 || input[n-1] != 127 {
		t.Errorf("uniform: %v to %v, want 75 to 127", input[0], input[n-1])
	}
	if mean, variance := meanVariance(input); math.Abs(mean-101) > 0.5 || math.Abs(variance-(53*53-1)/12.) > 6 {
		t.Errorf("uniform: mean %v, variance %v", mean, variance)
	}
	if p50, p90 := quantile(output, 0.5), quantile(output, 0.9); math.Abs(p50/700-1) > 0.03 || math.Abs(p90/2700-1) > 0.04 {
		t.Errorf("lognormal: median %v, p90 %v, want 700 and 2700", p50, p90)
	}
	s.Input, s.Output = kv.Fixed(9), kv.LognormalMean(700, 1000, 1_000_000)
	input, output = lengths(generate(t, s))
	if input[0] != 9 || input[n-1] != 9 {
		t.Errorf("fixed: %v to %v", input[0], input[n-1])
	}
	if mean, _ := meanVariance(output); math.Abs(mean/1000-1) > 0.03 || math.Abs(quantile(output, 0.5)/700-1) > 0.03 {
		t.Errorf("lognormal: mean %v, median %v, want 1000 and 700", mean, quantile(output, 0.5))
	}
	s.Output = kv.LognormalMean(700, 1000, 900)
	if _, output = lengths(generate(t, s)); output[n-1] != 900 {
		t.Errorf("lognormal: longest %v, want 900", output[n-1])
	}
	s.Output = kv.Uniform(1, 0.9)
	if _, output = lengths(generate(t, s)); output[0] != 1 || output[n-1] != 2 {
		t.Errorf("uniform of 1 token: %v to %v", output[0], output[n-1])
	}
}

func correlation(x, y []float64) (c float64) {
	mx, vx := meanVariance(x)
	my, vy := meanVariance(y)
	for i := range x {
		c += (x[i] - mx) * (y[i] - my) / math.Sqrt(vx*vy) / float64(len(x))
	}
	return c
}

// The statistics that are published of Mooncake's conversation trace.
func TestConversation(t *testing.T) {
	for seed := range uint64(3) {
		w := generate(t, kv.Conversation(kv.ConversationRequests, seed, kv.ConversationTickNS))
		input, output := lengths(w)
		for p, want := range map[float64]float64{0.5: 6909, 0.9: 27367, 0.99: 85400.4, 1: 126195} {
			if got := quantile(input, p); math.Abs(got/want-1) > 0.002 {
				t.Errorf("seed %d: p%v of prompts %v, want %v", seed, 100*p, got, want)
			}
		}
		if mean, _ := meanVariance(input); math.Abs(mean/12035-1) > 0.01 {
			t.Errorf("seed %d: mean of prompts %v, want 12035", seed, mean)
		}
		if mean, _ := meanVariance(output); math.Abs(mean/343-1) > 0.01 {
			t.Errorf("seed %d: mean of answers %v, want 343", seed, mean)
		}
		if last := w.Requests[len(w.Requests)-1].ArriveNS; len(w.Requests) != 12031 || last < 3534e9 || last > 3537e9 {
			t.Errorf("seed %d: %d requests in %v s", seed, len(w.Requests), float64(last)/1e9)
		}
		perTick := make([]float64, 1179)
		for _, r := range w.Requests {
			if r.ArriveNS%kv.ConversationTickNS != 0 {
				t.Fatalf("seed %d: %d ns is between ticks", seed, r.ArriveNS)
			}
			if i := r.ArriveNS / kv.ConversationTickNS; i < int64(len(perTick)) {
				perTick[i]++
			}
		}
		// In the trace: 10.2 each tick, variance 11.2.
		if mean, variance := meanVariance(perTick); math.Abs(mean-10.2) > 0.1 || variance < 8.5 || variance > 12 {
			t.Errorf("seed %d: %v requests each tick, variance %v", seed, mean, variance)
		}
	}
	a, b := generate(t, kv.Conversation(2000, 1, 0)), generate(t, kv.Conversation(2000, 2, 0))
	order, in, out, other := []float64{}, []float64{}, []float64{}, []float64{}
	for i, r := range a.Requests {
		order, in, out, other = append(order, float64(i)), append(in, float64(r.Input)), append(out, float64(r.Output)), append(other, float64(b.Requests[i].Input))
	}
	for name, c := range map[string]float64{"prompts and their order": correlation(order, in), "answers and their order": correlation(order, out),
		"prompts and answers": correlation(in, out), "prompts of two seeds": correlation(in, other)} {
		if math.Abs(c) > 0.09 { // four standard deviations of 2000 independent pairs
			t.Errorf("correlation of %s: %v", name, c)
		}
	}
	w := generate(t, kv.Conversation(1, 0, 0))
	if r := w.Requests[0]; r.Input != 6909 || r.Output != 350 || r.ArriveNS < 293e6 || r.ArriveNS > 295e6 {
		t.Errorf("a conversation of one request: %+v", r)
	}
}

func TestImpossible(t *testing.T) {
	for want, change := range map[string]func(*kv.Spec){
		"0 requests":                          func(s *kv.Spec) { s.Requests = 0 },
		"2000001 requests":                    func(s *kv.Spec) { s.Requests = 2_000_001 },
		"no lengths":                          func(s *kv.Spec) { s.Input = nil },
		"prompts: 0 tokens":                   func(s *kv.Spec) { s.Input = kv.Fixed(0) },
		"answers: -4 tokens":                  func(s *kv.Spec) { s.Output = kv.Fixed(-4) },
		"range ratio of 1":                    func(s *kv.Spec) { s.Input = kv.Uniform(5, 1) },
		"range ratio of NaN":                  func(s *kv.Spec) { s.Input = kv.Uniform(5, math.NaN()) },
		"the median first":                    func(s *kv.Spec) { s.Input = kv.LognormalP90(500, 600, 400) },
		"median 500 and p90 400 do not make":  func(s *kv.Spec) { s.Input = kv.LognormalP90(500, 400, 4000) },
		"median 500 and mean 400 do not make": func(s *kv.Spec) { s.Input = kv.LognormalMean(500, 400, 4000) },
		"a rate of -1":                        func(s *kv.Spec) { s.Arrivals.RatePerSec = -1 },
		"a rate of NaN":                       func(s *kv.Spec) { s.Arrivals.RatePerSec = math.NaN() },
		"a burstiness of -1":                  func(s *kv.Spec) { s.Arrivals.Burstiness = -1 },
		"a burstiness of 1e-05 is too small":  func(s *kv.Spec) { s.Requests, s.Arrivals.Burstiness = 1, 1e-5 },
		"a concurrency of -1":                 func(s *kv.Spec) { s.Arrivals.Concurrency = -1 },
		"a rate and a concurrency":            func(s *kv.Spec) { s.Arrivals.Concurrency = 2 },
		"ticks of -1":                         func(s *kv.Spec) { s.Arrivals.TickNS = -1 },
		"take more than 11 days":              func(s *kv.Spec) { s.Arrivals.RatePerSec = 1e-6 },
	} {
		s := spec(10, kv.Arrivals{RatePerSec: 1})
		change(&s)
		if _, err := kv.Generate(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}
