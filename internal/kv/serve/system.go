package serve

import (
	"slices"

	"github.com/topoctl/topoctl/internal/kv"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// System is a running serving system.
type System struct {
	c     Config
	w     *kv.Workload
	clock Clock
	mover Mover
	pager Pager // the mover, where it is one; nil

	prefill, decode []*instance
	routable        [2][]*instance // per side, the instances that get requests
	pageSpan        int            // tokens after which the pages of both sides end at the same token
	nextInstance    [2]int
	times           []kv.Times

	startNS    int64
	next       int   // request to send
	nextSendNS int64 // the time that sending is scheduled for; -1: not scheduled
	inFlight   int
	finished   int
	onEnd      func()
}

// job is a request that has been sent.
type job struct {
	r       *kv.Request
	t       *kv.Times
	index   int // in Workload.Requests
	prefill *instance
	decode  *instance // nil: nothing moves
	// seqs are its sequences on the prefill and the decode side; without a decode instance the first is both.
	seqs                                             [2]seq
	outputTokens                                     int    // of the answer, so far
	prefillStarted, prefilled, admitted, wireStarted bool   // whether those times are known
	pendingParts                                     []part // until there is memory
	offeredTokens                                    int    // tokens of the prompt that were offered for moving
	activeTransfers                                  int
	allOffered                                       bool // all of the cache was offered for moving
	failed                                           error
}

// New prepares a system for a workload. The clock is read at Start.
func New(c Config, w *kv.Workload, clock Clock, mover Mover) (*System, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	before := int64(0)
	for i := range w.Requests {
		r := &w.Requests[i]
		if r.Input < 1 || r.Output < 1 || r.ArriveNS < before {
			return nil, pkgerr.Errorf("serve", "request %d: %d tokens in, %d out, %d ns after the start: want at least 1 token, and requests in the order of arrival",
				i, r.Input, r.Output, r.ArriveNS)
		}
		before = r.ArriveNS
	}
	s := &System{c: c, w: w, clock: clock, mover: mover, times: make([]kv.Times, len(w.Requests)), nextSendNS: -1, onEnd: func() {}}
	s.pager, _ = mover.(Pager)
	for i := range c.Prefill.Instances {
		s.prefill = append(s.prefill, newInstance(s, &s.c.Prefill, i))
	}
	for i := range c.Decode.Instances {
		s.decode = append(s.decode, newInstance(s, &s.c.Decode, i))
	}
	s.routable = [2][]*instance{slices.Clone(s.prefill), slices.Clone(s.decode)}
	if c.Split() {
		a, b := c.Prefill.PageTokens, c.Decode.PageTokens
		for b != 0 {
			a, b = b, a%b
		}
		s.pageSpan = c.Prefill.PageTokens / a * c.Decode.PageTokens
	}
	return s, nil
}

// Start starts the run; ended is called when the last request has finished.
func (s *System) Start(ended func()) {
	s.startNS = s.clock.NowNS()
	if ended != nil {
		s.onEnd = ended
	}
	if len(s.w.Requests) == 0 {
		s.clock.At(s.startNS, s.onEnd)
		return
	}
	s.clock.At(s.startNS, s.send)
}

// Ended says whether every request has finished.
func (s *System) Ended() bool { return s.finished == len(s.w.Requests) }

// Times are the times of the requests, in the workload's order. They are complete when the run
// has ended.
func (s *System) Times() []kv.Times { return s.times }

// now is the time since the start of the run.
func (s *System) now() int64 { return s.clock.NowNS() - s.startNS }

func (s *System) after(ns int64, run func()) { s.clock.At(s.clock.NowNS()+ns, run) }

// send sends the requests that have arrived, as many as may be in flight.
func (s *System) send() {
	now := s.now()
	for s.next < len(s.w.Requests) {
		if s.w.Concurrency > 0 && s.inFlight >= s.w.Concurrency {
			return
		}
		if at := s.w.Requests[s.next].ArriveNS; at > now {
			if s.nextSendNS != at {
				s.nextSendNS = at
				s.clock.At(s.startNS+at, s.send)
			}
			return
		}
		s.next++
		s.inFlight++
		s.accept(s.next - 1)
	}
}

// accept routes a request, or fails it where it can never be answered.
func (s *System) accept(place int) {
	r := &s.w.Requests[place]
	j := &job{r: r, t: &s.times[place], index: place}
	*j.t = kv.Times{Request: r.ID, SentNS: s.now()}
	if why := s.c.WhyImpossible(r); why != nil {
		s.finish(j, why)
		return
	}
	j.prefill = s.chooseInstance(0)
	j.seqs[0] = seq{j: j, target: r.Input}
	// An answer of one token that prefill produces needs no cache.
	if s.c.Split() && (r.Output > 1 || s.c.FirstToken != FromPrefill) {
		j.decode = s.chooseInstance(1)
		j.decode.queuedTokens += int64(r.Input + r.Output)
		j.seqs[1] = seq{j: j, computed: r.Input, target: r.Input}
	}
	j.prefill.queuedTokens += s.prefillTokens(j)
	if j.decode != nil && s.c.Admit != After {
		j.decode.requestMemory(&j.seqs[1])
	}
	if j.decode == nil || s.c.Admit != Before {
		j.prefill.enqueue(&j.seqs[0])
	}
}

// prefillTokens are the tokens that a job's prefill instance computes.
func (s *System) prefillTokens(j *job) int64 {
	if s.c.Split() {
		return int64(j.r.Input)
	}
	return int64(j.r.Input + j.r.Output)
}

// StopRouting sends an instance no further requests, unless it is the last one of its side.
// Requests that it has already are not affected.
func (s *System) StopRouting(decode bool, number int) {
	side := 0
	if decode {
		side = 1
	}
	if len(s.routable[side]) > 1 {
		s.routable[side] = slices.DeleteFunc(s.routable[side], func(x *instance) bool { return x.number == number })
	}
}

// chooseInstance routes to an instance of a side: 0 is prefill, 1 is decode.
func (s *System) chooseInstance(side int) *instance {
	of := s.routable[side]
	if s.c.Router == RoundRobin {
		s.nextInstance[side]++
		return of[(s.nextInstance[side]-1)%len(of)]
	}
	best := of[0]
	for _, x := range of[1:] {
		if x.queuedTokens < best.queuedTokens {
			best = x
		}
	}
	return best
}

// emitToken sends the client a token.
func (s *System) emitToken(j *job) {
	if j.outputTokens == 0 {
		j.t.TokensNS = make([]int64, 0, j.r.Output)
	}
	j.outputTokens++
	j.t.TokensNS = append(j.t.TokensNS, s.now())
}

// finish ends a request; failed says why it failed, nil that it did not.
func (s *System) finish(j *job, failed *kv.Failure) {
	j.t.Failed = failed
	if j.decode != nil {
		j.decode.queuedTokens -= int64(j.r.Input + j.r.Output)
	} else if !s.c.Split() && j.prefill != nil {
		j.prefill.queuedTokens -= s.prefillTokens(j)
	}
	s.finished++
	s.inFlight--
	if s.Ended() {
		s.after(0, s.onEnd)
	} else if s.w.Concurrency > 0 {
		s.after(0, s.send)
	}
}

// Use is what an instance did during a run.
type Use struct {
	BusyNS       int64
	Steps        int64
	Computed     int64 // prompt tokens, including those computed again
	CachedTokens int64 // of prompts, found in the prefix cache
	Preempted    int64 // sequences that lost their memory
	PeakPages    int
}

// PrefillUse is what the prefill instances did, or those that do both.
func (s *System) PrefillUse() []Use { return usesOf(s.prefill) }

// DecodeUse is what the decode instances did.
func (s *System) DecodeUse() []Use { return usesOf(s.decode) }

func usesOf(of []*instance) []Use {
	var out []Use
	for _, x := range of {
		out = append(out, x.use)
	}
	return out
}
