package preset

import (
	"fmt"

	"github.com/topoctl/topoctl/internal/kv/serve"
)

const nd96Table = "nd96asr-llama3-70b-vllm.01"

func nd96Presets() []*Preset {
	p := &Preset{Name: "nd96asr-llama3-70b-tp4pp2", About: "Llama 3 70B on two ND96asr_v4 hosts, TP4 in each, two pipeline stages: activations cross the network",
		Model: "Llama-3.1-70B", GPU: "A100-40GB", Fixture: "nd96asr-v4", Hosts: 2, Prefill: Instances{1, 4, 2, 16}, Activations: true,
		Serving: serve.Config{Prefill: serve.Pool{MaxBatchedTokens: 2048, MaxSequences: 256, Chunked: true, Stages: 2}, Router: serve.RoundRobin},
		Assumed: []string{"prompts and answers of ShareGPT: lognormal with medians of half their means",
			"steps of up to 2048 tokens of prompts", "each stage takes half of the time of a step, and both work at once, on steps of their own", "arrivals are those of vLLM's benchmark with its own seed",
			"what activations take is added up by formula: compute was fitted to these very runs, and has it in it"}}
	for _, x := range []struct {
		key  string
		rate float64
	}{{"01", 1}, {"04", 4}, {"16", 16}, {"inf", 0}} {
		p.addRow(Row{Table: nd96Table, Key: "tp4_pp2_optimized_IB_qps_" + x.key, Workload: fmt.Sprintf("ShareGPT, %s requests/s", x.key),
			Input: 213, Output: 214, Spread: true, Requests: 200, RatePerSec: x.rate,
			Declared: "mean lengths of prompts and answers, from the row's tokens/s over its requests/s"})
	}
	return []*Preset{p}
}
