package serve

import (
	"slices"
)

// instance prefills, decodes or does both.
type instance struct {
	s            *System
	p            *Pool
	number       int
	queuedTokens int64 // of requests that it has not finished
	usedPages    int   // pages
	// waiting sequences need memory to be computed here, incoming ones for a cache that arrives.
	waiting, incoming          queue
	ready                      []*seq // their cache has arrived: they run from the next step on
	running                    []*seq // oldest first
	stepScheduled              bool
	stages                     []int64 // when each pipeline stage has finished all steps that have started
	runningSteps, startedSteps int     // at present, and in total
	blockingTransfers          int     // that keep steps from starting
	chunks                     []Chunk
	prefixes                   *prefixes
	use                        Use
}

// seq is a request at an instance.
type seq struct {
	j *job
	// computed tokens are in the cache. Up to target they are computed as a prompt, after that
	// one at a time.
	computed, target int
	pages            int
	batchTokens      int // tokens that the running step computes; 0: no step does
	step             int // the number of that step
}

func (q *seq) inPrefill() bool { return q.computed < q.target }

func newInstance(s *System, p *Pool, number int) *instance {
	return &instance{s: s, p: p, number: number, prefixes: newPrefixes(p), stages: make([]int64, max(p.Stages, 1))}
}

// isDecoder says whether the instance decodes.
func (x *instance) isDecoder() bool { return x.p == &x.s.c.Decode || !x.s.c.Split() }

// enqueue adds a prompt to be computed here.
func (x *instance) enqueue(q *seq) {
	x.waiting.push(q)
	x.scheduleStep()
}

// requestMemory queues a sequence whose cache needs memory here.
func (x *instance) requestMemory(q *seq) {
	x.incoming.push(q)
	x.admit()
}

// scheduleStep starts a step after everything that happens at the present time.
func (x *instance) scheduleStep() {
	if x.stepScheduled || !x.canStep() {
		return
	}
	x.stepScheduled = true
	x.s.after(0, func() {
		x.stepScheduled = false
		if x.canStep() {
			x.step()
		}
	})
}

// canStep says whether a step may start: the first pipeline stage is free.
func (x *instance) canStep() bool {
	return x.blockingTransfers == 0 && x.runningSteps < len(x.stages) && (x.runningSteps == 0 || x.stages[0] <= x.s.now())
}

// block keeps steps from starting until it is called with -1.
func (x *instance) block(by int) {
	x.blockingTransfers += by
	if x.blockingTransfers == 0 {
		x.scheduleStep()
	}
}

// pagesFor is how many pages a sequence needs to start.
func (x *instance) pagesFor(q *seq) int {
	if x.s.c.ReserveOutput && x.isDecoder() {
		return x.p.pagesFor(q.j.r.Input + q.j.r.Output - 1)
	}
	return x.p.pagesFor(q.target)
}

func (x *instance) fits(pages int) bool { return x.p.Pages == 0 || x.usedPages+pages <= x.p.Pages }

func (x *instance) reserve(q *seq, pages int) {
	x.setPages(q, q.pages+pages)
	x.use.PeakPages = max(x.use.PeakPages, x.usedPages)
}

// setPages changes how many pages a sequence holds.
func (x *instance) setPages(q *seq, pages int) {
	if pages == q.pages {
		return
	}
	x.usedPages += pages - q.pages
	q.pages = pages
	if x.s.pager != nil {
		x.s.pager.Pages(Holding{Decode: x.p == &x.s.c.Decode, Instance: x.number, Request: q.j.index, Pages: pages})
	}
}

// release frees the memory of a sequence for those that wait.
func (x *instance) release(q *seq) {
	x.setPages(q, 0)
	x.admit()
	if x.waiting.len() > 0 {
		x.scheduleStep()
	}
}

// admit gives memory to arriving caches. Preempted sequences go first.
func (x *instance) admit() {
	for x.waiting.len() == 0 && x.incoming.len() > 0 {
		q := x.incoming.first()
		n := x.pagesFor(q)
		if !x.fits(n) {
			return
		}
		x.incoming.pop()
		x.reserve(q, n)
		x.s.admitted(q.j)
	}
}

// hasSlot says whether another sequence may run.
func (x *instance) hasSlot() bool { return x.p.MaxSequences == 0 || len(x.running) < x.p.MaxSequences }

// startReady runs the sequences whose cache has arrived.
func (x *instance) startReady() {
	n := 0
	for n < len(x.ready) && x.hasSlot() {
		x.running = append(x.running, x.ready[n])
		n++
	}
	x.ready = append(x.ready[:0], x.ready[n:]...)
}

// planStep decides what the next step computes: the sequences whose batchTokens are not 0.
func (x *instance) planStep() {
	x.startReady()
	if !x.p.Chunked {
		if x.scheduleWaiting(x.p.MaxBatchedTokens) == 0 {
			x.scheduleDecodes()
		}
		return
	}
	preempted := x.use.Preempted
	budget := x.p.MaxBatchedTokens - x.scheduleDecodes()
	for _, q := range x.running {
		if q.inPrefill() && q.batchTokens == 0 && budget > 0 {
			q.batchTokens = min(budget, q.target-q.computed)
			budget -= q.batchTokens
		}
	}
	if x.use.Preempted == preempted {
		x.scheduleWaiting(budget)
	}
}

// scheduleDecodes puts every decoding sequence into the step and returns how many there are. Where
// memory for their next tokens is short, the youngest are preempted.
func (x *instance) scheduleDecodes() int {
	n := 0
	for i := 0; i < len(x.running); i++ {
		q := x.running[i]
		if q.inPrefill() || q.batchTokens > 0 {
			continue
		}
		more := max(x.p.pagesFor(q.computed+1)-q.pages, 0)
		stays := true
		for stays && !x.fits(more) {
			stays = x.preempt() != q
		}
		if stays {
			x.reserve(q, more)
			q.batchTokens = 1
			n++
		}
	}
	return n
}

// preempt takes the memory from the youngest sequence that no step computes, and returns that sequence.
// All of it must be computed again, which also produces its next token.
func (x *instance) preempt() *seq {
	last := len(x.running) - 1
	for x.running[last].batchTokens > 0 {
		last--
	}
	q := x.running[last]
	x.running = slices.Delete(x.running, last, last+1)
	if !q.inPrefill() {
		q.target = q.computed + 1
	}
	q.computed = 0
	x.setPages(q, 0)
	x.waiting.pushFirst(q)
	x.use.Preempted++
	return q
}

// scheduleWaiting lets prompts that wait into the step, as many as there are tokens, memory and places
// for, and gives their tokens.
func (x *instance) scheduleWaiting(budget int) int {
	total := 0
	for x.waiting.len() > 0 && x.hasSlot() {
		q := x.waiting.first()
		n := x.pagesFor(q)
		cached := x.prefixes.cachedTokens(q.j.r)
		left := q.target - cached
		switch {
		case !x.fits(n) || budget <= total:
			return total
		case x.p.Chunked:
			left = min(left, budget-total)
		case total > 0 && total+left > budget:
			return total
		}
		x.waiting.pop()
		x.reserve(q, n)
		q.computed, q.batchTokens = cached, left
		x.use.CachedTokens += int64(cached)
		x.running = append(x.running, q)
		total += left
	}
	return total
}

// step computes.
func (x *instance) step() {
	step := x.nextStep()
	for len(step.Chunks) == 0 && step.Decode == 0 {
		if len(x.ready) == 0 || !x.hasSlot() {
			return
		}
		step = x.nextStep() // all running sequences were preempted for those that are ready
	}
	x.use.Steps++
	ns := x.runStages(max(x.p.Compute.StepNS(step), 0))
	number := x.startedSteps
	if x.s.c.Move == PushLayers && !x.isDecoder() {
		x.pushLayers(ns, number)
	}
	x.s.after(ns, func() { x.finishStep(number) })
}

// runStages sends a step of so many nanoseconds through the stages, of which each takes its part of it
// and one step at a time, and gives the time until it is done.
func (x *instance) runStages(ns int64) int64 {
	x.runningSteps++
	x.use.BusyNS += ns / int64(len(x.stages))
	now := x.s.now()
	at := now
	for i := range x.stages {
		part := ns*int64(i+1)/int64(len(x.stages)) - ns*int64(i)/int64(len(x.stages))
		at = max(at, x.stages[i]) + part
		x.stages[i] = at
	}
	if len(x.stages) > 1 {
		x.s.after(x.stages[0]-now, x.scheduleStep)
	}
	return at - now
}

// nextStep plans and returns what the next step computes.
func (x *instance) nextStep() Step {
	x.startedSteps++
	x.planStep()
	x.admit()
	step := Step{Chunks: x.chunks[:0]}
	for _, q := range x.running {
		if q.batchTokens > 0 && q.step == 0 {
			q.step = x.startedSteps
		}
		switch {
		case q.batchTokens == 0 || q.step != x.startedSteps:
		case q.inPrefill():
			step.Chunks = append(step.Chunks, Chunk{Done: q.computed, Tokens: q.batchTokens})
			x.use.Computed += int64(q.batchTokens)
			x.notePrefillStart(q)
		default:
			step.Decode++
			step.ContextTokens += int64(q.computed)
		}
	}
	x.chunks = step.Chunks // reused by the next step
	return step
}

// notePrefillStart notes when a prompt is computed for the first time.
func (x *instance) notePrefillStart(q *seq) {
	if !q.j.prefillStarted {
		q.j.prefillStarted, q.j.t.PrefillNS = true, x.s.now()
	}
}

// finishStep is called at the end of a step.
func (x *instance) finishStep(step int) {
	x.runningSteps--
	kept := x.running[:0]
	for _, q := range x.running {
		if n := q.batchTokens; q.step == step {
			q.batchTokens, q.step = 0, 0
			q.computed += n
			q.target = max(q.target, q.computed)
			if !q.inPrefill() && !x.advance(q) {
				continue
			}
		}
		kept = append(kept, q)
	}
	clear(x.running[len(kept):])
	x.running = kept
	x.scheduleStep()
}

// advance handles a sequence that has one more token, and says whether it keeps running.
func (x *instance) advance(q *seq) bool {
	j := q.j
	first := !j.prefilled
	if first {
		j.prefilled, j.t.PrefilledNS = true, x.s.now()
		x.prefixes.insert(j.r)
	}
	if !x.isDecoder() {
		x.queuedTokens -= int64(j.r.Input)
		x.s.prefilled(j)
		return false
	}
	if first {
		j.t.AdmittedNS, j.t.WireNS, j.t.ArrivedNS = j.t.PrefillNS, x.s.now(), x.s.now()
	}
	x.s.emitToken(j)
	if j.outputTokens < j.r.Output {
		return true
	}
	x.release(q)
	x.s.finish(j, nil)
	return false
}

// queue is a FIFO of sequences.
type queue struct {
	items []*seq
	head  int
}

func (q *queue) len() int    { return len(q.items) - q.head }
func (q *queue) first() *seq { return q.items[q.head] }
func (q *queue) push(s *seq) { q.items = append(q.items, s) }
func (q *queue) pop() {
	q.items[q.head] = nil
	q.head++
	if q.head*2 > len(q.items) {
		q.items = append(q.items[:0], q.items[q.head:]...)
		q.head = 0
	}
}

func (q *queue) pushFirst(s *seq) {
	if q.head > 0 {
		q.head--
		q.items[q.head] = s
		return
	}
	q.items = append([]*seq{s}, q.items...)
}
