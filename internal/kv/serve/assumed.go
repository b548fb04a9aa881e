package serve

import (
	"fmt"
	"strings"

	"github.com/topoctl/topoctl/internal/kv"
)

// GPU is a GPU by its data sheet.
type GPU struct {
	Name           string
	FlopsPerSec    float64 // dense BF16
	MemBytesPerSec float64
	MemBytes       int64
	Source         string
}

var gpus = []GPU{
	{"A10", 125e12, 600e9, 24e9, "NVIDIA A10 data sheet"},
	{"A100-40GB", 312e12, 1555e9, 40e9, "NVIDIA A100 data sheet, SXM4"},
	{"A100-80GB", 312e12, 2039e9, 80e9, "NVIDIA A100 data sheet, SXM4"},
	{"H20", 148e12, 4000e9, 96e9, "NVIDIA H20 data sheet"},
	{"H100", 989e12, 3350e9, 80e9, "NVIDIA H100 data sheet, SXM5"},
	{"H200", 989e12, 4800e9, 141e9, "NVIDIA H200 data sheet, SXM"},
}

// FindGPU finds a GPU by name, ignoring case. The error lists the known ones.
func FindGPU(name string) (GPU, error) {
	var known []string
	for _, g := range gpus {
		if strings.EqualFold(g.Name, name) {
			return g, nil
		}
		known = append(known, g.Name)
	}
	return GPU{}, fmt.Errorf("no GPU %.64q: known are %s", name, strings.Join(known, ", "))
}

// weights decide a model's time and memory, apart from its cache.
type weights struct {
	total, active float64 // parameters, and those that one token uses
	bytes         float64 // of each
	attention     float64 // heads times the mean size of their keys and values
}

var weightsOf = map[string]weights{
	"Qwen2.5-7B":    {7.62e9, 7.62e9, 2, 28 * 128},
	"Qwen3-32B":     {32.8e9, 32.8e9, 2, 64 * 128},
	"Llama-3.1-8B":  {8.03e9, 8.03e9, 2, 32 * 128},
	"Llama-3.1-70B": {70.6e9, 70.6e9, 2, 64 * 128},
	"Mixtral-8x7B":  {46.7e9, 12.9e9, 2, 32 * 128},
	"DeepSeek-R1":   {671e9, 37e9, 1, 128 * 160}, // FP8; keys of 192, values of 128
}

// Weights of Qwen2.5-7B-Instruct-GPTQ-Int4, from its config.json: 28 layers, hidden size 3584,
// keys and values of 512, intermediate size 18944, vocabulary 152064 with an output head of its
// own; 4 bits in groups of 128. The matrices of the layers are quantised, with a scale of 16 bits
// and a zero point of 4 for each group; embeddings and head keep two bytes. The published files
// are 4.00 and 1.58 GB.
const (
	qwen7Quantised = 28 * (2*3584*3584 + 2*3584*512 + 3*3584*18944)
	qwen7Plain     = 2 * 152064 * 3584
	qwen7Int4Bytes = qwen7Quantised*(4+(16+4)/128.)/8 + qwen7Plain*2
)

// The part of a data sheet's rates that is reached, and the fixed times of steps.
const (
	efficiency  = 0.6
	prefillNS   = 20e6
	decodeNS    = 5e6
	assumedText = "assumed: 60 % of the data sheet's rates, 20 ms for each prefill and 5 ms for each step of decode"
	maxTP       = 1024
)

// Assume makes parameters of data sheets: prefill by the floating-point operations of
// a prompt, decode by the bytes of weights and cache that a step reads. With pipeline
// stages the latency of a prompt and of a token is that of the tensor ranks.
func Assume(model, gpu string, tp int) (Params, error) {
	m, err := kv.Find(model)
	if err != nil {
		return Params{}, err
	}
	g, err := FindGPU(gpu)
	if err != nil {
		return Params{}, err
	}
	if tp < 1 || tp > maxTP {
		return Params{}, fmt.Errorf("TP %d: give 1 to %d", tp, maxTP)
	}
	w := weightsOf[m.Name]
	perFlop := 1e9 / (g.FlopsPerSec * efficiency * float64(tp))
	perByte := 1e9 / (g.MemBytesPerSec * efficiency)
	share := 1.
	if !m.MLA() {
		share = 1 / float64(min(tp, m.KVHeads))
	}
	source := assumedText + "; " + g.Source
	return Params{Model: m.Name, GPU: g.Name, TP: tp, PP: 1, WeightBytes: w.total * w.bytes,
		Prefill: Prefill{ANS: prefillNS, BNSPerToken: 2 * w.active * perFlop, CNSPerSquare: 2 * float64(m.Layers) * w.attention * perFlop,
			Basis: Assumed, Source: source},
		Decode: Decode{DNS: decodeNS + w.total*w.bytes*perByte/float64(tp), ENSPerRequest: 2 * w.active * perFlop,
			FNSPerContextToken: float64(m.BytesPerToken()) * share * perByte, Basis: Assumed, Source: source}}, nil
}

// CacheBytes is the memory for the cache on each rank of an instance: 90 % of the GPU's, less
// the rank's weights and 2 GB for activations. The error says what does not fit.
func CacheBytes(model, gpu string, tp, pp int) (int64, error) {
	p, err := Find(model, gpu, tp, pp)
	if err != nil {
		return 0, err
	}
	g, err := FindGPU(gpu)
	if err != nil {
		return 0, err
	}
	left := 0.9*float64(g.MemBytes) - p.WeightBytes/float64(p.TP*p.PP) - 2e9
	if left <= 0 {
		return 0, fmt.Errorf("%s does not fit on TP%d PP%d of %s: its weights leave no memory for a cache", p.Model, p.TP, p.PP, p.GPU)
	}
	return int64(left), nil
}
