package serve_test

import (
	"encoding/csv"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/internal/kv"
	"github.com/topoctl/topoctl/internal/kv/serve"
)

// The figures in the tree are what the rows give.
func TestPublishedAreFitted(t *testing.T) {
	fitted, residual := 0, map[string]float64{"Qwen3-32B H20 decode": 0.050, "DeepSeek-R1 H20 decode": 0.091} // of others 0
	for _, p := range serve.Settings() {
		for _, part := range []struct {
			name    string
			rows    []serve.Row
			basis   serve.Basis
			figures [3]float64
		}{
			{"prefill", p.Prefill.Rows, p.Prefill.Basis, [3]float64{p.Prefill.ANS, p.Prefill.BNSPerToken, p.Prefill.CNSPerSquare}},
			{"decode", p.Decode.Rows, p.Decode.Basis, [3]float64{p.Decode.DNS, p.Decode.ENSPerRequest, p.Decode.FNSPerContextToken}},
		} {
			name := p.Model + " " + p.GPU + " " + part.name
			if (part.rows != nil) != (part.basis == serve.Published) {
				t.Errorf("%s: %s with %d rows", name, part.basis, len(part.rows))
			}
			if part.rows == nil {
				continue
			}
			fitted++
			got, residuals, err := serve.Fit(part.rows)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			for i := range got {
				if math.Abs(got[i]-part.figures[i]) > 1e-4*part.figures[i] {
					t.Errorf("%s: fit gives %.6g, the tree has %.6g", name, got, part.figures)
				}
			}
			worst := 0.
			for _, r := range residuals {
				worst = max(worst, math.Abs(r))
			}
			if math.Abs(worst-residual[name]) > 0.001 {
				t.Errorf("%s: worst residual %.4f, want %.4f", name, worst, residual[name])
			}
		}
	}
	if fitted != 7 {
		t.Errorf("%d parts are fitted, want 7", fitted)
	}
}

const tables = "../../../../shared/data/serving-tables"

// table is the rows of a published table by the values of their first columns.
func table(t *testing.T, name string) func(key, column string) float64 {
	t.Helper()
	f, err := os.Open(filepath.Join(tables, name+".csv"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("the published table is not there: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return func(key, column string) float64 {
		t.Helper()
		for c, head := range rows[0] {
			if head != column {
				continue
			}
			for _, row := range rows[1:] {
				if strings.HasPrefix(strings.Join(row, ",")+",", key+",") {
					v, err := strconv.ParseFloat(row[c], 64)
					if err != nil {
						t.Fatal(err)
					}
					return v
				}
			}
		}
		t.Fatalf("%s has no row %q with %q", name, key, column)
		return 0
	}
}

// The rows are the published ones, and what is derived from them is right.
func TestRowsAreThePublishedOnes(t *testing.T) {
	for _, p := range serve.Settings() {
		for _, row := range append(p.Prefill.Rows, p.Decode.Rows...) {
			at := table(t, row.Table)
			near := func(what string, got, want, tolerance float64) {
				t.Helper()
				if math.Abs(got-want) > tolerance*want {
					t.Errorf("%s %s: %s is %v, want %v", row.Table, row.Key, what, got, want)
				}
			}
			switch {
			case strings.HasPrefix(row.Table, "h20") && row.Tokens > 0:
				near("TTFT", row.MS, at(row.Key, "Mean TTFT (ms)"), 0)
			case strings.HasPrefix(row.Table, "h20"):
				e2e, ttft, tpot := at(row.Key, "Mean E2E Lantency (ms)"), at(row.Key, "Mean TTFT (ms)"), at(row.Key, "Mean TPOT (ms)")
				concurrency, _ := strconv.ParseFloat(row.Key, 64)
				prompt := map[string]float64{"qwen3-32b-dynamo-vllm.01": 3000, "qwen3-32b-dynamo-vllm.02": 1000, "qwen3-32b-dynamo-vllm.03": 500,
					"deepseek-r1-dynamo-vllm.04": 3000, "deepseek-r1-dynamo-vllm.05": 1000}[strings.TrimPrefix(row.Table, "h20-")]
				near("TPOT", row.MS, tpot, 0)
				near("batch", row.Batch, 1+(concurrency-1)*(e2e-ttft)/e2e, 0.006)
				near("context", row.ContextTokens, row.Batch*(prompt+((e2e-ttft)/tpot+1)/2), 0.006)
			case strings.HasPrefix(row.Table, "mooncake") && row.Tokens > 0:
				near("tokens", row.Tokens, at(row.Key, "Total Input Tokens")/at(row.Key, "Successful Requests"), 1e-4)
				near("median TTFT", medianWithOthers(row.MS), at(row.Key, "Median TTFT (ms)"), 0.02)
			case strings.HasPrefix(row.Table, "mooncake"):
				near("median ITL", row.MS, at(row.Key, "Median ITL (ms)"), 0)
			default:
				rate, tpot := at(row.Key, "Tput (req/s)"), at(row.Key, "Mean TPOT (ms)")
				answer := at(row.Key, "Output Tput (tok/s)") / rate
				prompt := at(row.Key, "Total Tput (tok/s)")/rate - answer
				near("TPOT", row.MS, tpot, 0)
				near("batch", row.Batch, rate*tpot/1000*answer, 0.002)
				near("context", row.ContextTokens, row.Batch*(prompt+answer/2), 0.002)
			}
		}
	}
}

// medianWithOthers is the median time of a service of so long in an M/D/1 queue at 2
// requests/s. While the wait is shorter than a service it is at most x with (1-load)*e^(rate*x).
func medianWithOthers(ms float64) float64 {
	const rate = 0.002
	return ms + max(0, math.Log(0.5/(1-rate*ms))/rate)
}

// Rows that were not fitted, as far as they do not depend on transfers: a look at how good
// the model of decode is. docs/serving.md has the rest.
func TestDecodeOfOtherRows(t *testing.T) {
	worst := 0.
	for name, prompt := range map[string]float64{"h20-qwen3-32b-dynamo-vllm.01": 3000, "h20-qwen3-32b-dynamo-vllm.02": 1000, "h20-qwen3-32b-dynamo-vllm.03": 500,
		"h20-qwen3-32b-dynamo-vllm.05": 3000, "h20-qwen3-32b-dynamo-vllm.06": 1000, "h20-qwen3-32b-dynamo-vllm.07": 500} {
		at := table(t, name)
		p, err := serve.Find("qwen3-32b", "h20", 4, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, concurrency := range []float64{2, 8, 32, 128} {
			key := strconv.Itoa(int(concurrency))
			e2e, ttft, tpot := at(key, "Mean E2E Lantency (ms)"), at(key, "Mean TTFT (ms)"), at(key, "Mean TPOT (ms)")
			batch := 1 + (concurrency-1)*(e2e-ttft)/e2e
			got := float64(p.DecodeNS(int(math.Round(batch)), int64(batch*(prompt+((e2e-ttft)/tpot+1)/2)))) / 1e6
			worst = max(worst, math.Abs(got/tpot-1))
			t.Logf("%s at %s: modelled %.1f ms, published %.1f ms, %+.0f %%", name, key, got, tpot, 100*(got/tpot-1))
		}
	}
	if worst > 0.25 {
		t.Errorf("off by %.0f %%", 100*worst)
	}
}

func TestSteps(t *testing.T) {
	p := serve.Params{Prefill: serve.Prefill{ANS: 1000, BNSPerToken: 10, CNSPerSquare: 0.5}, Decode: serve.Decode{DNS: 700, ENSPerRequest: 30, FNSPerContextToken: 2}}
	for _, tt := range []struct {
		name string
		step serve.Step
		want int64
	}{
		{"nothing", serve.Step{}, 0},
		{"a prompt", serve.Step{Chunks: []serve.Chunk{{0, 100}}}, 1000 + 1000 + 5000},
		// 60 tokens after 40: 0.5 * (100^2 - 40^2).
		{"its end", serve.Step{Chunks: []serve.Chunk{{40, 60}}}, 1000 + 600 + 4200},
		{"two prompts", serve.Step{Chunks: []serve.Chunk{{0, 10}, {0, 20}}}, 1000 + 300 + 250},
		{"decode", serve.Step{Decode: 3, ContextTokens: 50}, 700 + 90 + 100},
		{"both", serve.Step{Chunks: []serve.Chunk{{0, 10}}, Decode: 1, ContextTokens: 5}, 1000 + 100 + 50 + 30 + 10},
		{"all cached", serve.Step{Chunks: []serve.Chunk{{10, 0}}}, 0},
	} {
		if got := p.StepNS(tt.step); got != tt.want {
			t.Errorf("%s: %d ns, want %d", tt.name, got, tt.want)
		}
	}
	if got, want := p.PrefillNS(40, 100), int64(5800); got != want {
		t.Errorf("prefill after a cached prefix: %d, want %d", got, want)
	}
	if got := p.DecodeNS(3, 50); got != 890 {
		t.Errorf("decode: %d", got)
	}
}

// Chunks of a prompt cost together what it costs at once, but for the fixed part of each.
func TestChunksAddUp(t *testing.T) {
	p, err := serve.Find("Qwen3-32B", "H20", 4, 1)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.IntRange(1, 100_000).Draw(t, "tokens")
		var sum, chunks int64
		for done := 0; done < tokens; chunks++ {
			n := min(tokens-done, rapid.IntRange(1, 50_000).Draw(t, "chunk"))
			sum += p.StepNS(serve.Step{Chunks: []serve.Chunk{{done, n}}})
			done += n
		}
		want := p.PrefillNS(0, tokens) + (chunks-1)*int64(p.Prefill.ANS)
		if d := sum - want; d < -chunks || d > chunks {
			t.Fatalf("%d chunks take %d ns, want %d", chunks, sum, want)
		}
	})
}

// Rows made of parameters give them back, whichever terms they have.
func TestFitFindsParameters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefill := rapid.Bool().Draw(t, "prefill")
		// Terms that matter by at least a few percent, or are not there.
		or0 := func(name string, v float64) float64 {
			if rapid.Bool().Draw(t, name) {
				return v * rapid.Float64Range(1, 3).Draw(t, name+" value")
			}
			return 0
		}
		first, second, third := or0("first", 3e7), or0("second", 1e5), or0("third", 30)
		var rows []serve.Row
		if prefill {
			second += 5e4
			for _, n := range []float64{100, 500, 1000, 4000, 9000} {
				rows = append(rows, serve.Row{Tokens: n, MS: (first + second*n + third*n*n) / 1e6})
			}
		} else {
			first += 1e7
			for _, b := range []float64{1, 8, 64, 200} {
				for _, context := range []float64{10_000, 100_000} {
					rows = append(rows, serve.Row{Batch: b, ContextTokens: b * context, MS: (first + second*b + third*b*context) / 1e6})
				}
			}
		}
		got, residuals, err := serve.Fit(rows)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []float64{first, second, third} {
			if math.Abs(got[i]-want) > 1e-6*want { // a term that is not there is exactly 0
				t.Fatalf("got %v, want %v %v %v", got, first, second, third)
			}
		}
		for _, r := range residuals {
			if math.Abs(r) > 1e-9 {
				t.Fatalf("residuals %v", residuals)
			}
		}
	})
}

// What noise cannot tell is 0, and nothing is below 0.
func TestFitOfFewRows(t *testing.T) {
	for name, tt := range map[string]struct {
		rows []serve.Row
		want [3]float64
	}{
		"one length":             {[]serve.Row{{Tokens: 100, MS: 20}}, [3]float64{0, 2e5, 0}},
		"one batch":              {[]serve.Row{{Batch: 3, ContextTokens: 50, MS: 20}}, [3]float64{2e7, 0, 0}},
		"the same twice":         {[]serve.Row{{Tokens: 100, MS: 20}, {Tokens: 100, MS: 20}}, [3]float64{0, 2e5, 0}},
		"more than proportional": {[]serve.Row{{Tokens: 100, MS: 20}, {Tokens: 200, MS: 60}}, [3]float64{0, 1e5, 1e3}},
		"noise":                  {[]serve.Row{{Batch: 1, MS: 20}, {Batch: 2, MS: 20.3}, {Batch: 4, MS: 19.9}, {Batch: 8, MS: 20.2}}, [3]float64{20.0975125e6, 0, 0}},
		"falls with the batch":   {[]serve.Row{{Batch: 1, MS: 21}, {Batch: 2, MS: 19}}, [3]float64{19.900249e6, 0, 0}}, // (1/21 + 1/19) / (1/21^2 + 1/19^2)
	} {
		got, _, err := serve.Fit(tt.rows)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for i := range got {
			if math.Abs(got[i]-tt.want[i]) > 1e-5*tt.want[i]+1e-3 {
				t.Errorf("%s: %v, want %v", name, got, tt.want)
			}
		}
	}
	for name, rows := range map[string][]serve.Row{
		"no rows": nil, "no time": {{Tokens: 5}}, "NaN": {{Tokens: 5, MS: math.NaN()}}, "infinite": {{Batch: math.Inf(1), MS: 1}},
		"neither": {{MS: 1}}, "mixed": {{Tokens: 5, MS: 1}, {Batch: 5, MS: 1}},
	} {
		if _, _, err := serve.Fit(rows); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestFind(t *testing.T) {
	find := func(model, gpu string, tp, pp int) serve.Params {
		t.Helper()
		p, err := serve.Find(model, gpu, tp, pp)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	fitted, scaled := find("qwen3-32b", "h20", 4, 0), find("Qwen3-32B", "H20", 1, 1)
	if fitted.Prefill.Basis != serve.Published || scaled.Prefill.Basis != serve.Assumed || scaled.Prefill.Rows != nil || scaled.TP != 1 ||
		scaled.Prefill.BNSPerToken != 4*fitted.Prefill.BNSPerToken || scaled.Prefill.ANS != fitted.Prefill.ANS || scaled.Decode.ENSPerRequest != 4*fitted.Decode.ENSPerRequest ||
		!strings.HasPrefix(scaled.Prefill.Source, "fitted with TP4, what grows with tokens and requests scaled by 4/1; ") {
		t.Errorf("fitted %+v\nscaled %+v", fitted, scaled)
	}
	if p := find("Llama-3.1-70B", "A100-40GB", 4, 2); p.Prefill.Basis != serve.Assumed || p.Decode.Basis != serve.Published || math.Abs(float64(p.PrefillNS(0, 213))-97.1e6) > 2e5 {
		t.Errorf("TP4 PP2: %+v", p)
	} else if a := find("Llama-3.1-70B", "A100-40GB", 4, 1); math.Abs(a.Prefill.BNSPerToken/p.Prefill.BNSPerToken-1) > 1e-4 || math.Abs(a.Prefill.CNSPerSquare/p.Prefill.CNSPerSquare-1) > 1e-4 || a.Decode.Basis != serve.Assumed {
		t.Errorf("its assumed part: %+v, assumed now: %+v", p.Prefill, a.Prefill)
	}
	for _, m := range kv.Models() {
		for _, gpu := range []string{"A10", "A100-40GB", "A100-80GB", "H20", "H100", "H200"} {
			one, eight := find(m.Name, gpu, 1, 1), find(m.Name, gpu, 8, 1)
			if !(one.PrefillNS(0, 4096) > eight.PrefillNS(0, 4096)) || !(eight.PrefillNS(0, 8192) > eight.PrefillNS(0, 4096)) ||
				!(eight.DecodeNS(8, 80_000) >= eight.DecodeNS(1, 1_000)) || eight.Prefill.Source == "" || eight.Decode.Source == "" {
				t.Errorf("%s on %s: %+v", m.Name, gpu, eight)
			}
		}
	}
	// 2 * 8.03e9 operations at 60 % of 989e12 each second.
	if b := find("Llama-3.1-8B", "H100", 1, 1).Prefill.BNSPerToken; math.Abs(b-27_064) > 1 {
		t.Errorf("a token of Llama 8B on H100: %v ns", b)
	}
	for want, try := range map[string]func() error{
		`no model "qwen9"`: func() error { _, err := serve.Find("qwen9", "H20", 1, 1); return err },
		`no GPU "B200": known are A10, A100-40GB, A100-80GB, H20, H100, H200`: func() error { _, err := serve.Find("Qwen3-32B", "B200", 1, 1); return err },
		"TP 0":         func() error { _, err := serve.Find("Qwen3-32B", "H20", 0, 1); return err },
		"does not fit": func() error { _, err := serve.CacheBytes("Llama-3.1-70B", "H100", 1, 1); return err },
	} {
		if err := try(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	// The published files have 4.00 and 1.58 GB.
	if got := find("Qwen2.5-7B", "A10", 1, 1).WeightBytes; math.Abs(got/5.58e9-1) > 0.005 {
		t.Errorf("GPTQ-Int4 weights of Qwen2.5-7B take %v bytes", got)
	}
	for _, x := range []struct {
		gpu  string
		tp   int
		want float64 // 90 % of the GPU's, less the weights and 2 GB
	}{{"A10", 1, 0.9*24e9 - 5.58e9 - 2e9}, {"A10", 2, 0.9*24e9 - 5.58e9/2 - 2e9}, {"H100", 1, 0.9*80e9 - 2*7.62e9 - 2e9}} {
		if got, err := serve.CacheBytes("Qwen2.5-7B", x.gpu, x.tp, 1); err != nil || math.Abs(float64(got)-x.want) > 2e7 {
			t.Errorf("cache of Qwen2.5-7B on TP%d of %s: %d, %v, want %.0f", x.tp, x.gpu, got, err, x.want)
		}
	}
	// 0.9*96 - 32.8*2/4 - 2 GB.
	if got, err := serve.CacheBytes("Qwen3-32B", "H20", 4, 1); err != nil || got != 68_000_000_000 {
		t.Errorf("cache of Qwen3-32B on TP4 of H20: %d, %v", got, err)
	}
}
