package kv_test

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/internal/kv"
)

const ms = 1_000_000

func tokens(atMS ...int64) []int64 {
	for i := range atMS {
		atMS[i] *= ms
	}
	return atMS
}

func ptr[T any](v T) *T { return &v }

// example is a run of five requests; all times in ms:
//
//	    in    sent  prefill   admitted  wire      tokens
//	#0  1000    0    10-110   110       115-135   140 150 165 180   first token from decode
//	#1  3000   50   110-410   100       200-440   450 470           layer by layer, memory reserved before
//	#2   500  100   410-460   500       505-510   460               first and only token from prefill
//	#3   100  failed
//	#4   100  nothing known when the run ended
func example() (*kv.Workload, []kv.Times) {
	w := &kv.Workload{Requests: []kv.Request{{ID: 0, Input: 1000, Output: 4}, {ID: 1, Input: 3000, Output: 2}, {ID: 2, Input: 500, Output: 1},
		{ID: 3, Input: 100, Output: 9}, {ID: 4, Input: 100, Output: 9}}}
	return w, []kv.Times{
		{Request: 0, SentNS: 0, PrefillNS: 10 * ms, PrefilledNS: 110 * ms, AdmittedNS: 110 * ms, WireNS: 115 * ms, ArrivedNS: 135 * ms, TokensNS: tokens(140, 150, 165, 180), KVBytes: 7},
		{Request: 1, SentNS: 50 * ms, PrefillNS: 110 * ms, PrefilledNS: 410 * ms, AdmittedNS: 100 * ms, WireNS: 200 * ms, ArrivedNS: 440 * ms, TokensNS: tokens(450, 470), KVBytes: 5},
		{Request: 2, SentNS: 100 * ms, PrefillNS: 410 * ms, PrefilledNS: 460 * ms, AdmittedNS: 500 * ms, WireNS: 505 * ms, ArrivedNS: 510 * ms, TokensNS: tokens(460), KVBytes: 1},
		{Request: 3, SentNS: 120 * ms, TokensNS: tokens(900), Failed: &kv.Failure{Err: errors.New("no memory")}},
	}
}

var near = cmpopts.EquateApprox(1e-12, 1e-9)

// The whole example by hand.
func TestByHand(t *testing.T) {
	w, times := example()
	m, err := kv.Compute(w, times, kv.Options{Buckets: []int{500, 1000}, SLO: kv.SLO{TTFTNS: ptr(int64(360 * ms)), TPOTNS: ptr(int64(15 * ms))}})
	if err != nil {
		t.Fatal(err)
	}
	one := func(v float64) *kv.Summary { return &kv.Summary{N: 1, Mean: v, Median: v, P99: v} }
	three := func(mean, median, p99 float64) *kv.Summary {
		return &kv.Summary{N: 3, Mean: mean, Median: median, P99: p99}
	}
	want := &kv.Metrics{
		Requests: 5, Completed: 3, Failed: 1, Unfinished: 1,
		DurationNS:  ptr(int64(470 * ms)), // the last token of all, that of #1
		InputTokens: 4500, OutputTokens: 7, KVBytes: 13,
		RequestsPerSec: ptr(3 / 0.47), OutputTokensPerSec: ptr(7 / 0.47), TotalTokensPerSec: ptr(4507 / 0.47),
		// #0 has 140 and 40/3; #1 misses both; #2 has 360, which is met, and no second token: 0.
		GoodputPerSec: ptr(2 / 0.47),
		Latencies: kv.Latencies{
			// 140-0, 450-50, 460-100: sorted 140 360 400. p99 at 0.99*2 = 1.98: 360 + 0.98*40.
			TTFT: three(300, 360, 399.2),
			// (180-140)/3 = 13.333, (470-450)/1 = 20; p99 at 0.99: 13.333 + 0.99*6.667.
			TPOT: &kv.Summary{N: 2, Mean: 50. / 3, Median: 50. / 3, P99: 40./3 + 0.99*20/3},
			// 10 15 15 of #0, 20 of #1; p99 at 0.99*3 = 2.97: 15 + 0.97*5.
			ITL: &kv.Summary{N: 4, Mean: 15, Median: 15, P99: 19.85},
			// 180, 420, 360; p99 360 + 0.98*60.
			E2E: three(320, 360, 418.8),
		},
		Split: kv.Split{
			Queue:   three(380./3, 60, 305), // 10 60 310: 60 + 0.98*250
			Compute: three(150, 100, 296),   // 100 300 50: 100 + 0.98*200
			// After prefill: 110-135, 410-440, 460-510: 25 30 50; 30 + 0.98*20.
			Exposed:     three(35, 30, 49.6),
			MemoryWait:  three(40./3, 0, 39.2),    // 0 0 (460-500) 40; 0.98*40
			LinkWait:    three(10./3, 5, 5),       // (110-115) 5, 0, (500-505) 5
			WireExposed: three(55./3, 20, 29.8),   // 20 30 5: 20 + 0.98*10
			Wire:        three(265./3, 20, 235.6), // 20 240 5: 20 + 0.98*220
			// TTFT less queue, compute, and what of the cache is before the first token:
			// 140-10-100-25, 400-60-300-30, 360-310-50-0: 5 10 0; 5 + 0.98*5 = 9.9.
			Rest: three(5, 5, 9.9),
			// (25 + 30 + 0) of (140 + 400 + 360): prefill gave #2's token before its cache moved.
			KVShareOfTTFT: ptr(55. / 900),
		},
		Buckets: []kv.Bucket{
			{From: 1, To: ptr(500), Completed: 1, Latencies: kv.Latencies{TTFT: one(360), E2E: one(360)},
				Split: kv.Split{Queue: one(310), Compute: one(50), MemoryWait: one(40), LinkWait: one(5), Wire: one(5), WireExposed: one(5), Exposed: one(50), Rest: one(0), KVShareOfTTFT: ptr(0.)}},
			{From: 501, To: ptr(1000), Completed: 1, Latencies: kv.Latencies{TTFT: one(140), TPOT: one(40. / 3), ITL: &kv.Summary{N: 3, Mean: 40. / 3, Median: 15, P99: 15}, E2E: one(180)},
				Split: kv.Split{Queue: one(10), Compute: one(100), MemoryWait: one(0), LinkWait: one(5), Wire: one(20), WireExposed: one(20), Exposed: one(25), Rest: one(5), KVShareOfTTFT: ptr(25. / 140)}},
			{From: 1001, Completed: 1, Latencies: kv.Latencies{TTFT: one(400), TPOT: one(20), ITL: one(20), E2E: one(420)},
				Split: kv.Split{Queue: one(60), Compute: one(300), MemoryWait: one(0), LinkWait: one(0), Wire: one(240), WireExposed: one(30), Exposed: one(30), Rest: one(10), KVShareOfTTFT: ptr(30. / 400)}},
		},
	}
	if d := cmp.Diff(want, m, near); d != "" {
		t.Error(d)
	}
}

// A system with one server of 100 ms: at 8 requests/s it keeps up, at 10.5 and 20 it does not, and
// nothing is said of requests that come at once or when others end.
func TestLoad(t *testing.T) {
	for _, tt := range []struct {
		name       string
		ratePerSec float64
		requests   int
		closed     bool
		want       *bool
	}{
		{"keeps up", 8, 500, false, ptr(false)}, {"regular", 9.9, 500, false, ptr(false)}, {"a little too much", 10.5, 500, false, ptr(true)}, {"twice as much", 20, 40, false, ptr(true)},
		{"too few to tell", 20, 4, false, ptr(false)}, {"at once", math.Inf(1), 50, false, nil}, {"closed", 20, 50, true, nil},
	} {
		w := &kv.Workload{}
		if tt.closed {
			w.Concurrency = 4
		}
		var times []kv.Times
		free, rng := int64(0), rand.New(rand.NewPCG(1, 2))
		for i := range tt.requests {
			at := int64((float64(i) + rng.Float64()) / tt.ratePerSec * 1e9)
			begin := max(at, free)
			free = begin + 100*ms
			w.Requests = append(w.Requests, kv.Request{ID: i, ArriveNS: at, Input: 1, Output: 1})
			times = append(times, kv.Times{Request: i, SentNS: at, PrefillNS: begin, PrefilledNS: free, AdmittedNS: free, WireNS: free, ArrivedNS: free, TokensNS: []int64{free}})
		}
		m, err := kv.Compute(w, times, kv.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if (m.Load == nil) != (tt.want == nil) || m.Load != nil && ((m.Load.GrowingWait != "") != *tt.want || math.Abs(m.Load.ArrivalsPerSec/tt.ratePerSec-1) > 0.3) {
			t.Errorf("%s: %+v, want %v", tt.name, m.Load, tt.want)
		}
	}
}

// Requests that were stopped are unfinished, not failed.
func TestStopped(t *testing.T) {
	w := &kv.Workload{Requests: []kv.Request{{Input: 1, Output: 1}, {ID: 1, Input: 1, Output: 1}}}
	m, err := kv.Compute(w, []kv.Times{{Failed: &kv.Failure{Kind: "stopped", Err: kv.ErrStopped}}, {Request: 1, Failed: &kv.Failure{Kind: "move", Err: errors.New("gone")}}}, kv.Options{})
	if err != nil || m.Unfinished != 1 || m.Failed != 1 {
		t.Errorf("%+v, %v: want 1 unfinished and 1 failed", m, err)
	}
}

// Waiting for memory of the decode side is not part of the share of moving the cache.
func TestShareWithoutMemoryWait(t *testing.T) {
	w := &kv.Workload{Requests: []kv.Request{{Input: 10, Output: 1}}}
	m, err := kv.Compute(w, []kv.Times{{PrefilledNS: 20 * ms, AdmittedNS: 80 * ms, WireNS: 85 * ms, ArrivedNS: 95 * ms, TokensNS: []int64{100 * ms}}}, kv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if m.MemoryWait.Mean != 60 || m.Exposed.Mean != 75 || math.Abs(*m.KVShareOfTTFT-0.15) > 1e-12 {
		t.Errorf("memory wait %v, exposed %v, share %v: want 60, 75 and 0.15", m.MemoryWait.Mean, m.Exposed.Mean, *m.KVShareOfTTFT)
	}
}

// Where memory is requested first, that of #0 is there when it is prefilled already, that of #1
// 50 ms after it was sent, and that of #2 after its prefill.
func TestMemoryFirst(t *testing.T) {
	w, times := example()
	times[0].AdmittedNS = 0
	m, err := kv.Compute(w, times, kv.Options{MemoryFirst: true})
	if err != nil {
		t.Fatal(err)
	}
	// Waits for memory: 0, 100-50, (410-100) + (500-460): 0 50 350. Queues: 10, 60-50, 0.
	if d := cmp.Diff([]*kv.Summary{{N: 3, Mean: 400. / 3, Median: 50, P99: 344}, {N: 3, Mean: 20. / 3, Median: 10, P99: 10}}, []*kv.Summary{m.MemoryWait, m.Queue}, near); d != "" {
		t.Error(d)
	}
	if m.Exposed.Mean != 35 {
		t.Errorf("exposed %v, want as without: 35", m.Exposed.Mean)
	}
}

func TestGoodput(t *testing.T) {
	w, times := example()
	for _, tt := range []struct {
		slo  kv.SLO
		good *float64 // requests of the run of 0.47 s
	}{
		{kv.SLO{}, nil},
		{kv.SLO{E2ENS: ptr(int64(200 * ms))}, ptr(1.)},
		{kv.SLO{E2ENS: ptr(int64(420 * ms))}, ptr(3.)},
		{kv.SLO{E2ENS: ptr(int64(420*ms - 1))}, ptr(2.)},
		{kv.SLO{TPOTNS: ptr(int64(0))}, ptr(1.)},
		{kv.SLO{TTFTNS: ptr(int64(1))}, ptr(0.)},
	} {
		m, err := kv.Compute(w, times, kv.Options{SLO: tt.slo})
		if err != nil {
			t.Fatal(err)
		}
		want := tt.good
		if want != nil {
			want = ptr(*want / 0.47)
		}
		if d := cmp.Diff(want, m.GoodputPerSec, near); d != "" {
			t.Errorf("%+v: %s", tt.slo, d)
		}
	}
}

// What is not known is null, and JSON has no NaN in it.
func TestNothing(t *testing.T) {
	w, times := example()
	for name, tt := range map[string]struct {
		w     *kv.Workload
		times []kv.Times
		want  string
	}{
		"no requests": {&kv.Workload{}, nil, `{"requests":0,"completed":0,"failed":0,"unfinished":0,`},
		"no times":    {w, nil, `{"requests":5,"completed":0,"failed":0,"unfinished":5,`},
		"all failed":  {w, times[3:], `{"requests":5,"completed":0,"failed":1,"unfinished":4,`},
	} {
		m, err := kv.Compute(tt.w, tt.times, kv.Options{SLO: kv.SLO{TTFTNS: ptr(int64(1))}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		data, err := json.Marshal(m)
		want := tt.want + `"duration_ns":null,"input_tokens":0,"output_tokens":0,"kv_bytes":0,` +
			`"requests_per_s":null,"output_tokens_per_s":null,"total_tokens_per_s":null,"goodput_requests_per_s":null,` +
			`"ttft_ms":null,"tpot_ms":null,"itl_ms":null,"e2e_ms":null,"queue_ms":null,"compute_ms":null,"kv_memory_wait_ms":null,"kv_link_wait_ms":null,` +
			`"kv_wire_ms":null,"kv_wire_exposed_ms":null,"kv_exposed_ms":null,"first_step_ms":null,"kv_share_of_ttft":null,"buckets":[]}`
		if err != nil || string(data) != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, data, want)
		}
	}
	// A run in which no time goes by has a duration, and no rates.
	w = &kv.Workload{Requests: []kv.Request{{Input: 1, Output: 1}}}
	m, err := kv.Compute(w, []kv.Times{{TokensNS: []int64{0}}}, kv.Options{})
	if err != nil || m.RequestsPerSec != nil || *m.DurationNS != 0 || m.TTFT.Mean != 0 || m.KVShareOfTTFT != nil || m.TPOT != nil {
		t.Errorf("no time: %+v, %v", m, err)
	}
}

func TestMetricsImpossible(t *testing.T) {
	for want, change := range map[string]func(*kv.Times){
		"request 9 is not in the workload":                    func(x *kv.Times) { x.Request = 9 },
		"request 1 is not in the workload, or is there twice": func(x *kv.Times) { x.Request = 1 },
		"request 0 was answered without a token":              func(x *kv.Times) { x.TokensNS = nil },
		"request 0: sent at 20000000 ns":                      func(x *kv.Times) { x.SentNS = 20 * ms },
		"request 0: sent at 0 ns, prefill from 10000000":      func(x *kv.Times) { x.PrefilledNS = 5 * ms },
		"request 0: first token at 140000000 ns":              func(x *kv.Times) { x.PrefilledNS = 141 * ms },
		"request 0: token 2 comes at 149000000":               func(x *kv.Times) { x.TokensNS[2] = 149 * ms },
		"request 0: cache moves from 115000000":               func(x *kv.Times) { x.ArrivedNS = 114 * ms },
	} {
		w, times := example()
		change(&times[0])
		if _, err := kv.Compute(w, times, kv.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	for _, buckets := range [][]int{{4, 2}, {3, 3}, {0, 1}} {
		if _, err := kv.Compute(&kv.Workload{}, nil, kv.Options{Buckets: buckets}); err == nil {
			t.Errorf("buckets %v were taken", buckets)
		}
	}
}

// numpy.percentile([1, 2, 4, 8], p), by its documentation's formula.
func TestPercentile(t *testing.T) {
	for p, want := range map[float64]float64{0: 1, 25: 1.75, 50: 3, 75: 5, 90: 6.8, 99: 7.88, 100: 8} {
		if got := kv.Percentile([]int64{1, 2, 4, 8}, p); math.Abs(got-want) > 1e-12 {
			t.Errorf("p%v = %v, want %v", p, got, want)
		}
	}
	if got := kv.Percentile([]float64{7}, 99); got != 7 {
		t.Errorf("of one: %v", got)
	}
}

// Any run: the order of requests makes no difference, what is said lies between the least
// and the most, parts add up to TTFT and buckets to the whole.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, times := &kv.Workload{}, []kv.Times{}
		span := rapid.Int64Range(0, 3_000*ms)
		for i := range rapid.IntRange(0, 12).Draw(t, "requests") {
			w.Requests = append(w.Requests, kv.Request{ID: i, Input: rapid.IntRange(1, 100_000).Draw(t, "input"), Output: 9})
			x := kv.Times{Request: i, SentNS: span.Draw(t, "sent"), AdmittedNS: span.Draw(t, "admitted"), WireNS: span.Draw(t, "wire")}
			x.PrefillNS = x.SentNS + span.Draw(t, "queue")
			x.PrefilledNS = x.PrefillNS + span.Draw(t, "compute")
			x.ArrivedNS = x.WireNS + span.Draw(t, "moving")
			at := x.PrefilledNS
			for range rapid.IntRange(1, 5).Draw(t, "tokens") {
				at += span.Draw(t, "gap")
				x.TokensNS = append(x.TokensNS, at)
			}
			times = append(times, x)
		}
		m, err := kv.Compute(w, times, kv.Options{})
		if err != nil {
			t.Fatal(err)
		}
		shuffled := slices.Clone(times)
		seed := rapid.Uint64().Draw(t, "seed")
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		again, err := kv.Compute(w, shuffled, kv.Options{})
		if d := cmp.Diff(m, again); d != "" || err != nil {
			t.Fatal("in another order: ", err, d)
		}
		memoryFirst := rapid.Bool().Draw(t, "memory first")
		var ttft []float64
		for i := range times {
			x := &times[i]
			p, err := kv.PartsOf(x, memoryFirst)
			if err != nil {
				t.Fatal(err)
			}
			ttft = append(ttft, float64(x.TokensNS[0]-x.SentNS)/ms)
			ahead := x.PrefillNS - x.SentNS - p.QueueNS                                                    // of waiting for memory
			moving, last := p.LinkWaitNS+p.WireExposedNS, x.TokensNS[0] >= max(x.ArrivedNS, x.PrefilledNS) // the first token is
			if last && (p.QueueNS+p.MemoryWaitNS+p.ComputeNS+moving+p.RestNS != x.TokensNS[0]-x.SentNS || p.BeforeFirstNS != moving) ||
				p.BeforeFirstNS > moving || p.MemoryWaitNS-ahead+moving != p.ExposedNS || !memoryFirst && ahead != 0 {
				t.Fatalf("%+v of %+v do not add up", p, x)
			}
			if v := min(p.QueueNS, p.ComputeNS, p.ExposedNS, p.MemoryWaitNS, p.LinkWaitNS, p.WireExposedNS, p.WireNS, p.BeforeFirstNS, p.RestNS); v < 0 {
				t.Fatalf("%+v of %+v is below 0", p, x)
			}
		}
		if len(times) == 0 {
			return
		}
		s := m.TTFT
		if low, high := slices.Min(ttft), slices.Max(ttft); s.Mean < low || s.Mean > high || s.Median < low || s.P99 < s.Median || s.P99 > high {
			t.Fatalf("%+v of %v", s, ttft)
		}
		completed := 0
		for _, b := range m.Buckets {
			completed += b.Completed
		}
		if share := m.KVShareOfTTFT; completed != m.Completed || share != nil && !(*share >= 0 && *share <= 1) {
			t.Fatalf("%d of %d in buckets, share %v", completed, m.Completed, share)
		}
	})
}
