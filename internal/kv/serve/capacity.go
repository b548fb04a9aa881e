package serve

import (
	"slices"

	"github.com/topoctl/topoctl/internal/kv"
)

// Capacity is how many requests of a workload a second each side could compute if it always had enough to
// do: prompts in full batches, answers with as many sequences at once as memory and MaxSequences allow. It
// counts no transfer, no preemption and no cached prefix, so a real system does less. Where the system is not
// split, it is that of its instances, for both. 0 is unknown, as for a system that New would refuse.
func (c *Config) Capacity(w *kv.Workload) (prefillPerSec, decodePerSec float64) {
	if len(w.Requests) == 0 || c.Prefill.PrefixPages > 0 || c.check() != nil {
		return 0, 0
	}
	p, d := &c.Prefill, &c.Decode
	if !c.Split() {
		batch := p.fullBatch(w)
		both := p.perSec(p.promptNS(w, batch) + p.answerNS(w, batch, 1))
		return both, both
	}
	byPrefill := 0
	if c.FirstToken != FromDecode {
		byPrefill = 1
	}
	return p.perSec(p.promptNS(w, Step{})), d.perSec(d.answerNS(w, d.fullBatch(w), byPrefill))
}

// perSec is how often a second all instances together do what takes one of them so long.
func (p *Pool) perSec(ns float64) float64 {
	if ns <= 0 {
		return 0
	}
	return float64(p.Instances*max(1, p.Stages)) * 1e9 / ns
}

// fullBatch is a step of as many answers as an instance can hold, each half done.
func (p *Pool) fullBatch(w *kv.Workload) Step {
	var input, output int64
	for i := range w.Requests {
		input += int64(w.Requests[i].Input)
		output += int64(w.Requests[i].Output)
	}
	n := int64(len(w.Requests))
	context, most := (input+output/2)/n, n
	if p.MaxSequences > 0 {
		most = min(most, int64(p.MaxSequences))
	}
	if p.Pages > 0 {
		most = min(most, max(1, int64(p.Pages)/int64(p.pagesFor(int(context)))))
	}
	return Step{Decode: int(most), ContextTokens: most * context}
}

// answerNS is how long an answer keeps an instance, whose steps it shares with a full batch: one for each token
// but the first ones, which come with the prompt.
func (p *Pool) answerNS(w *kv.Workload, batch Step, first int) float64 {
	steps := 0.
	for i := range w.Requests {
		steps += float64(max(0, w.Requests[i].Output-first))
	}
	return steps / float64(len(w.Requests)) * float64(p.Compute.StepNS(batch)) / float64(batch.Decode)
}

// promptNS is how long a prompt keeps an instance, in steps that are full of prompts like it. beside is what
// such a step computes at the same time, if prompts are chunked.
func (p *Pool) promptNS(w *kv.Workload, beside Step) float64 {
	if !p.Chunked {
		beside = Step{}
	}
	alone := 0.
	if beside.Decode > 0 {
		alone = float64(p.Compute.StepNS(beside))
	}
	known, sum := map[int]float64{}, 0.
	for i := range w.Requests {
		n := w.Requests[i].Input
		if _, ok := known[n]; !ok {
			count := max(1, p.MaxBatchedTokens/n)
			if p.Chunked { // a part of one more fits
				count = (p.MaxBatchedTokens + n - 1) / n
			}
			for done := 0; done < n; done += p.MaxBatchedTokens {
				step := beside
				step.Chunks = slices.Repeat([]Chunk{{Done: done, Tokens: min(n-done, p.MaxBatchedTokens)}}, count)
				known[n] += max(0, float64(p.Compute.StepNS(step))-alone) / float64(count)
			}
		}
		sum += known[n]
	}
	return sum / float64(len(w.Requests))
}
