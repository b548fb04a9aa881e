package serve

import (
	"github.com/topoctl/topoctl/internal/app/kv"
	"github.com/topoctl/topoctl/internal/app/kv/compute"
)

// Capacity is how many requests of a workload a second each side could compute if it always had enough to
// do: prompts in full batches, answers with as many sequences at once as memory and MaxSequences allow. It
// counts no transfer, no preemption and no cached prefix, so a real system does less; 0 is not known, as of a
// system that New would refuse. Where
// the system is not split, both are that of its instances.
func (c *Config) Capacity(w *kv.Workload) (prefillPerSec, decodePerSec float64) {
	if len(w.Requests) == 0 || c.Prefill.PrefixPages > 0 || c.check() != nil {
		return 0, 0
	}
	steps := 0
	if c.Split() && c.FirstToken != FromDecode {
		steps = -1 // of an answer: its first token is made by prefill
	}
	if !c.Split() {
		batch := c.Prefill.fullBatch(w)
		return both(c.Prefill.perSec(c.Prefill.promptNS(w, batch) + c.Prefill.answerNS(w, batch, -1)))
	}
	return c.Prefill.perSec(c.Prefill.promptNS(w, compute.Step{})), c.Decode.perSec(c.Decode.answerNS(w, c.Decode.fullBatch(w), steps))
}

func both(v float64) (float64, float64) { return v, v }

// perSec is how often a second all instances together do what takes one of them so long.
func (p *Pool) perSec(ns float64) float64 {
	if ns <= 0 {
		return 0
	}
	return float64(p.Instances*max(1, p.Stages)) * 1e9 / ns
}

// fullBatch is a step of as many answers as an instance can hold, each half done.
func (p *Pool) fullBatch(w *kv.Workload) compute.Step {
	var input, output int64
	for i := range w.Requests {
		input += int64(w.Requests[i].Input)
		output += int64(w.Requests[i].Output)
	}
	n := int64(len(w.Requests))
	context := (input + output/2) / n
	most := int64(p.MaxSequences)
	if p.Pages > 0 {
		held := max(1, int64(p.Pages)/int64(p.pagesFor(int(context))))
		if most == 0 || held < most {
			most = held
		}
	}
	if most == 0 || most > n {
		most = n
	}
	return compute.Step{Decode: int(most), ContextTokens: most * context}
}

// answerNS is how long an answer keeps an instance, of which it shares the steps with a full batch. more is
// added to its steps, of which there is one for each token.
func (p *Pool) answerNS(w *kv.Workload, batch compute.Step, more int) float64 {
	steps := 0.
	for i := range w.Requests {
		steps += float64(max(0, w.Requests[i].Output+more))
	}
	return steps / float64(len(w.Requests)) * float64(p.Compute.StepNS(batch)) / float64(batch.Decode)
}

// promptNS is how long a prompt keeps an instance, in steps that are full of prompts like it. beside is what
// such a step computes at the same time, if prompts are chunked.
func (p *Pool) promptNS(w *kv.Workload, beside compute.Step) float64 {
	if !p.Chunked {
		beside = compute.Step{}
	}
	alone := 0.
	if beside.Decode > 0 {
		alone = float64(p.Compute.StepNS(beside))
	}
	known, sum := map[int]float64{}, 0.
	for i := range w.Requests {
		n := w.Requests[i].Input
		ns, ok := known[n]
		if !ok {
			step := beside
			for done := 0; done < n; done += p.MaxBatchedTokens {
				count := max(1, p.MaxBatchedTokens/n)
				if p.Chunked { // a part of one more fits
					count = (p.MaxBatchedTokens + n - 1) / n
				}
				step.Chunks = step.Chunks[:0]
				for range count {
					step.Chunks = append(step.Chunks, compute.Chunk{Done: done, Tokens: min(n-done, p.MaxBatchedTokens)})
				}
				ns += max(0, float64(p.Compute.StepNS(step))-alone) / float64(count)
			}
			known[n] = ns
		}
		sum += ns
	}
	return sum / float64(len(w.Requests))
}
