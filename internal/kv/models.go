package kv

// The files models.go, side.go, plan.go and reslice.go compute where the KV cache of a prompt is on the ranks of a serving
// instance, and which bytes must be copied where between an instance that prefills and one that
// decodes, whatever their tensor parallelism, page sizes and page orders are.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/internal/text"
)

// Model is what decides the size of a model's KV cache.
type Model struct {
	Name   string
	Layers int
	// KVHeads and HeadDim are those of keys and values; 0 with MLA.
	KVHeads, HeadDim int
	// LatentDim and RopeDim are the elements that multi-head latent attention (MLA) keeps of a
	// token instead of keys and values; 0 without.
	LatentDim, RopeDim int
	ElementBytes       int
	Source             string // where the figures are from
}

// The figures are those of the models' published configurations; weights that are quantised
// leave the cache at two bytes each element.
var models = []Model{
	{Name: "Qwen2.5-7B", Layers: 28, KVHeads: 4, HeadDim: 128, ElementBytes: 2, Source: "config.json of Qwen/Qwen2.5-7B-Instruct (hidden 3584 / 28 heads), BF16 cache"},
	{Name: "Qwen3-32B", Layers: 64, KVHeads: 8, HeadDim: 128, ElementBytes: 2, Source: "config.json of Qwen/Qwen3-32B, BF16 cache"},
	{Name: "Llama-3.1-8B", Layers: 32, KVHeads: 8, HeadDim: 128, ElementBytes: 2, Source: "config.json of meta-llama/Llama-3.1-8B-Instruct (hidden 4096 / 32 heads), BF16 cache"},
	{Name: "Llama-3.1-70B", Layers: 80, KVHeads: 8, HeadDim: 128, ElementBytes: 2, Source: "config.json of meta-llama/Llama-3.1-70B-Instruct (hidden 8192 / 64 heads), BF16 cache"},
	{Name: "Mixtral-8x7B", Layers: 32, KVHeads: 8, HeadDim: 128, ElementBytes: 2, Source: "config.json of mistralai/Mixtral-8x7B-Instruct-v0.1 (hidden 4096 / 32 heads), BF16 cache"},
	{Name: "DeepSeek-R1", Layers: 61, LatentDim: 512, RopeDim: 64, ElementBytes: 2, Source: "config.json of deepseek-ai/DeepSeek-R1 (kv_lora_rank 512, qk_rope_head_dim 64), BF16 cache"},
}

// maxTypos is how far a name may be off for a guess at what is meant.
const maxTypos = 3

// Models lists the known models.
func Models() []Model { return slices.Clone(models) }

// Find finds a model by name, ignoring case. The error lists similar names, or all.
func Find(name string) (Model, error) {
	var near, all []string
	nearest := maxTypos + 1
	for _, m := range models {
		if strings.EqualFold(m.Name, name) {
			return m, nil
		}
		all = append(all, m.Name)
		if len(name) > 64 {
			continue
		}
		d := text.Distance(strings.ToLower(m.Name), strings.ToLower(name))
		if d < nearest {
			nearest, near = d, nil
		}
		if d == nearest && d <= maxTypos {
			near = append(near, m.Name)
		}
	}
	if near != nil {
		return Model{}, fmt.Errorf("no model %.64q: did you mean %s?", name, strings.Join(near, " or "))
	}
	return Model{}, fmt.Errorf("no model %.64q: known are %s", name, strings.Join(all, ", "))
}

// MLA says whether the model keeps a latent vector instead of keys and values. Every
// tensor rank has the whole vector.
func (m Model) MLA() bool { return m.LatentDim > 0 }

// BytesPerToken are those of a token's cache in all layers, kept once.
func (m Model) BytesPerToken() int64 {
	if m.MLA() {
		return int64(m.Layers) * int64(m.LatentDim+m.RopeDim) * int64(m.ElementBytes)
	}
	return 2 * int64(m.Layers) * int64(m.KVHeads) * int64(m.HeadDim) * int64(m.ElementBytes)
}

// maxDim bounds each figure of a model, so that products fit in 64 bits.
const maxDim = 1 << 16

func (m Model) check() error {
	for _, v := range []int{m.Layers, m.KVHeads, m.HeadDim, m.LatentDim, m.RopeDim, m.ElementBytes} {
		if v < 0 || v > maxDim {
			return fmt.Errorf("model %.64q: a figure of %d: want 0 to %d", m.Name, v, maxDim)
		}
	}
	if m.Layers == 0 || m.ElementBytes == 0 || m.MLA() == (m.KVHeads > 0) || m.KVHeads > 0 && m.HeadDim == 0 {
		return fmt.Errorf("model %.64q: want layers, element bytes, and either KV heads with their size or a latent vector", m.Name)
	}
	return nil
}
