package serve

import (
	"slices"

	"github.com/topoctl/topoctl/internal/app/kv/compute"
)

// instance computes: prompts, answers or both.
type instance struct {
	s      *System
	p      *Pool
	number int
	owed   int64 // tokens of what it was asked for and has not done
	held   int   // pages
	// waiting want memory to be computed here, incoming want it for a cache that comes.
	waiting, incoming queue
	ready             []*seq // their cache has come: they run from the next step on
	running           []*seq // oldest first
	woken             bool
	stages            []int64 // when each stage of the pipeline is done with all steps that have begun
	steps, begun      int     // under way; all that have begun
	blocked           int     // transfers that let no step begin
	chunks            []compute.Chunk
	prefixes          *prefixes
	use               Use
}

// seq is a request at an instance.
type seq struct {
	j *job
	// computed tokens are in the cache. Up to target they are computed as a prompt, then
	// one by one.
	computed, target int
	pages            int
	now              int // tokens that a step under way computes; 0: none does
	step             int // the number of that step
}

func (q *seq) prompt() bool { return q.computed < q.target }

func newInstance(s *System, p *Pool, number int) *instance {
	return &instance{s: s, p: p, number: number, prefixes: newPrefixes(p), stages: make([]int64, max(p.Stages, 1))}
}

// answers says whether the instance decodes.
func (x *instance) answers() bool { return x.p == &x.s.c.Decode || !x.s.c.Split() }

// queue has a prompt computed here.
func (x *instance) queue(q *seq) {
	x.waiting.push(q)
	x.wake()
}

// ask asks for memory for a cache.
func (x *instance) ask(q *seq) {
	x.incoming.push(q)
	x.admit()
}

// wake begins a step, after all that happens now.
func (x *instance) wake() {
	if x.woken || !x.idle() {
		return
	}
	x.woken = true
	x.s.after(0, func() {
		x.woken = false
		if x.idle() {
			x.step()
		}
	})
}

// idle says whether a step may begin: the first stage has none.
func (x *instance) idle() bool {
	return x.blocked == 0 && x.steps < len(x.stages) && (x.steps == 0 || x.stages[0] <= x.s.now())
}

// block lets no step begin until the same with -1.
func (x *instance) block(by int) {
	x.blocked += by
	if x.blocked == 0 {
		x.wake()
	}
}

// need is how many pages a sequence needs to begin.
func (x *instance) need(q *seq) int {
	if x.s.c.ReserveOutput && x.answers() {
		return x.p.pages(q.j.r.Input + q.j.r.Output - 1)
	}
	return x.p.pages(q.target)
}

func (x *instance) has(pages int) bool { return x.p.Pages == 0 || x.held+pages <= x.p.Pages }

func (x *instance) reserve(q *seq, pages int) {
	x.hold(q, q.pages+pages)
	x.use.PeakPages = max(x.use.PeakPages, x.held)
}

// hold has a sequence hold so many pages.
func (x *instance) hold(q *seq, pages int) {
	if pages == q.pages {
		return
	}
	x.held += pages - q.pages
	q.pages = pages
	if x.s.pager != nil {
		x.s.pager.Pages(Held{Decode: x.p == &x.s.c.Decode, Instance: x.number, Request: q.j.place, Pages: pages})
	}
}

// release gives the memory of a sequence to those who wait for it.
func (x *instance) release(q *seq) {
	x.hold(q, 0)
	x.admit()
	if x.waiting.len() > 0 {
		x.wake()
	}
}

// admit gives memory to caches that come. Who had to yield goes first.
func (x *instance) admit() {
	for x.waiting.len() == 0 && x.incoming.len() > 0 {
		q := x.incoming.first()
		n := x.need(q)
		if !x.has(n) {
			return
		}
		x.incoming.pop()
		x.reserve(q, n)
		x.s.admitted(q.j)
	}
}

// room says whether another sequence may run.
func (x *instance) room() bool { return x.p.MaxSequences == 0 || len(x.running) < x.p.MaxSequences }

// join has those run whose cache has come.
func (x *instance) join() {
	n := 0
	for n < len(x.ready) && x.room() {
		x.running = append(x.running, x.ready[n])
		n++
	}
	x.ready = append(x.ready[:0], x.ready[n:]...)
}

// plan decides what the next step computes: the sequences whose now is not 0.
func (x *instance) plan() {
	x.join()
	if !x.p.Chunked {
		if x.enter(x.p.MaxBatchedTokens) == 0 {
			x.decodes()
		}
		return
	}
	preempted := x.use.Preempted
	budget := x.p.MaxBatchedTokens - x.decodes()
	for _, q := range x.running {
		if q.prompt() && q.now == 0 && budget > 0 {
			q.now = min(budget, q.target-q.computed)
			budget -= q.now
		}
	}
	if x.use.Preempted == preempted {
		x.enter(budget)
	}
}

// decodes puts every sequence that decodes into the step, and gives their number. The
// youngest yield where there is no memory for the others' next token.
func (x *instance) decodes() int {
	n := 0
	for i := 0; i < len(x.running); i++ {
		q := x.running[i]
		if q.prompt() || q.now > 0 {
			continue
		}
		more := max(x.p.pages(q.computed+1)-q.pages, 0)
		stays := true
		for stays && !x.has(more) {
			stays = x.preempt() != q
		}
		if stays {
			x.reserve(q, more)
			q.now = 1
			n++
		}
	}
	return n
}

// preempt takes the memory of the youngest sequence that no step computes, and gives it. All of it has
// to be computed again, and that gives its next token.
func (x *instance) preempt() *seq {
	last := len(x.running) - 1
	for x.running[last].now > 0 {
		last--
	}
	q := x.running[last]
	x.running = slices.Delete(x.running, last, last+1)
	if !q.prompt() {
		q.target = q.computed + 1
	}
	q.computed = 0
	x.hold(q, 0)
	x.waiting.pushFirst(q)
	x.use.Preempted++
	return q
}

// enter lets prompts that wait into the step, as many as there are tokens, memory and places
// for, and gives their tokens.
func (x *instance) enter(budget int) int {
	total := 0
	for x.waiting.len() > 0 && x.room() {
		q := x.waiting.first()
		n := x.need(q)
		cached := x.prefixes.find(q.j.r)
		left := q.target - cached
		switch {
		case !x.has(n) || budget <= total:
			return total
		case x.p.Chunked:
			left = min(left, budget-total)
		case total > 0 && total+left > budget:
			return total
		}
		x.waiting.pop()
		x.reserve(q, n)
		q.computed, q.now = cached, left
		x.use.CachedTokens += int64(cached)
		x.running = append(x.running, q)
		total += left
	}
	return total
}

// step computes.
func (x *instance) step() {
	step := x.batch()
	for len(step.Chunks) == 0 && step.Decode == 0 {
		if len(x.ready) == 0 || !x.room() {
			return
		}
		step = x.batch() // all that ran had to yield to those that are ready
	}
	x.use.Steps++
	ns := x.pipe(max(x.p.Compute.StepNS(step), 0))
	number := x.begun
	if x.s.c.Move == PushLayers && !x.answers() {
		x.pushLayers(ns, number)
	}
	x.s.after(ns, func() { x.stepped(number) })
}

// pipe sends a step of so many nanoseconds through the stages, of which each takes its part of it
// and one step at a time, and gives the time until it is done.
func (x *instance) pipe(ns int64) int64 {
	x.steps++
	x.use.BusyNS += ns / int64(len(x.stages))
	now := x.s.now()
	at := now
	for i := range x.stages {
		part := ns*int64(i+1)/int64(len(x.stages)) - ns*int64(i)/int64(len(x.stages))
		at = max(at, x.stages[i]) + part
		x.stages[i] = at
	}
	if len(x.stages) > 1 {
		x.s.after(x.stages[0]-now, x.wake)
	}
	return at - now
}

// batch is what the next step computes.
func (x *instance) batch() compute.Step {
	x.begun++
	x.plan()
	x.admit()
	step := compute.Step{Chunks: x.chunks[:0]}
	for _, q := range x.running {
		if q.now > 0 && q.step == 0 {
			q.step = x.begun
		}
		switch {
		case q.now == 0 || q.step != x.begun:
		case q.prompt():
			step.Chunks = append(step.Chunks, compute.Chunk{Done: q.computed, Tokens: q.now})
			x.use.Computed += int64(q.now)
			x.begin(q)
		default:
			step.Decode++
			step.ContextTokens += int64(q.computed)
		}
	}
	x.chunks = step.Chunks // the memory, for the next one
	return step
}

// begin notes when a prompt is computed for the first time.
func (x *instance) begin(q *seq) {
	if !q.j.begun {
		q.j.begun, q.j.t.PrefillNS = true, x.s.now()
	}
}

// stepped is the end of a step.
func (x *instance) stepped(step int) {
	x.steps--
	kept := x.running[:0]
	for _, q := range x.running {
		if n := q.now; q.step == step {
			q.now, q.step = 0, 0
			q.computed += n
			q.target = max(q.target, q.computed)
			if !q.prompt() && !x.through(q) {
				continue
			}
		}
		kept = append(kept, q)
	}
	clear(x.running[len(kept):])
	x.running = kept
	x.wake()
}

// through is a sequence that has a token more. It says whether it stays.
func (x *instance) through(q *seq) bool {
	j := q.j
	first := !j.prefilled
	if first {
		j.prefilled, j.t.PrefilledNS = true, x.s.now()
		x.prefixes.keep(j.r)
	}
	if !x.answers() {
		x.owed -= int64(j.r.Input)
		x.s.prefilled(j)
		return false
	}
	if first {
		j.t.AdmittedNS, j.t.WireNS, j.t.ArrivedNS = j.t.PrefillNS, x.s.now(), x.s.now()
	}
	x.s.give(j)
	if j.given < j.r.Output {
		return true
	}
	x.release(q)
	x.s.end(j, "")
	return false
}

// queue is a line of sequences.
type queue struct {
	line []*seq
	head int
}

func (q *queue) len() int    { return len(q.line) - q.head }
func (q *queue) first() *seq { return q.line[q.head] }
func (q *queue) push(s *seq) { q.line = append(q.line, s) }
func (q *queue) pop() {
	q.line[q.head] = nil
	q.head++
	if q.head*2 > len(q.line) {
		q.line = append(q.line[:0], q.line[q.head:]...)
		q.head = 0
	}
}

func (q *queue) pushFirst(s *seq) {
	if q.head > 0 {
		q.head--
		q.line[q.head] = s
		return
	}
	q.line = append([]*seq{s}, q.line...)
}
