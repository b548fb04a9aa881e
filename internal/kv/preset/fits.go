package preset

import "github.com/topoctl/topoctl/internal/kv/serve"

// fit is a figure that a parameter of compute was fitted to.
type fit struct {
	table, key string
	metric     Metric
	what       string
}

// fits are those of compute's settings. Their rows name a table and a row; which column it
// was stands in the setting's Source.
func fits() []fit {
	var out []fit
	for _, s := range []struct {
		model, gpu      string
		tp, pp          int
		prefill, decode Metric
	}{
		{"Qwen2.5-7B", "A10", 1, 1, TTFTMedian, ITLMedian},
		{"Qwen3-32B", "H20", 4, 1, TTFTMean, TPOTMean},
		{"DeepSeek-R1", "H20", 16, 1, TTFTMean, TPOTMean},
		{"Llama-3.1-70B", "A100-40GB", 4, 2, TTFTMedian, TPOTMean},
	} {
		p, err := serve.Find(s.model, s.gpu, s.tp, s.pp)
		if err != nil {
			panic(err) // the settings above are compute's
		}
		for _, r := range p.Prefill.Rows {
			out = append(out, fit{r.Table, r.Key, s.prefill, "prefill"})
		}
		for _, r := range p.Decode.Rows {
			out = append(out, fit{r.Table, r.Key, s.decode, "decode"})
		}
	}
	// Its fixed part only, which has no row: what a token costs is assumed.
	return append(out, fit{nd96Table, "tp4_pp2_optimized_IB_qps_01", TTFTMedian, "prefill"})
}
