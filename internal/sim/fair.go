package sim

import "math"

// fair shares links out among flows, max-min fairly: no flow can get more without
// one that has no more than it getting less. Shares are those of progressive
// filling: all flows grow alike until a link is full, its flows stay there, the
// others grow on. Three things keep the work small, and change no share:
//
// A link counts only while it is hot, that is while its flows could fill it if
// nothing but their other links held them back.
//
// A change reaches flows only over links that are full. On a link that was not full
// and is not full then the others stay as they are.
//
// Filling goes as before up to the level of the lowest change. So flows that have
// less than that stay as they are.
type fair struct {
	links []Link  // that changed
	flows []*Flow // that are new, or want something else

	round   uint32
	members []*Flow
	floor   float64 // flows with less stay as they are
	open    int     // members that still grow
	reached int     // how many of the members have had their links taken in
	touched []Link
	heap    []level
	taken   []Link // links that became full with flows that were not looked at

	// How often links were shared out, and how many flows got a share then.
	rounds, shares uint64
}

// level is when a link is full, or a flow has what it wants, as all flows grow
// alike.
type level struct {
	rate float64
	link Link
	flow *Flow // nil: a link; else the link is what bounds the flow
}

// tiny absorbs what floating point leaves of sums, as a share.
const tiny = 1e-9

// share sets the rate of every flow that a change reaches.
func (n *Net) share() {
	s := &n.fair
	if len(s.links) == 0 && len(s.flows) == 0 {
		return
	}
	s.round++
	s.members, s.touched, s.reached = s.members[:0], s.touched[:0], 0
	s.findFloor(n)
	for _, l := range s.links {
		x := &n.links[l]
		x.dirty = false
		if x.full || x.hot && x.load() >= x.cap*(1-tiny) {
			s.addLink(n, l, true)
		}
	}
	for _, f := range s.flows {
		if f.active {
			s.addFlow(f)
		}
	}
	s.links, s.flows = s.links[:0], s.flows[:0]
	for {
		s.reach(n)
		s.fill(n)
		if !s.spread(n) {
			break
		}
	}
	s.finish(n)
}

// findFloor finds a level up to which nothing has changed: no link that changed, or
// that a flow crosses which did, is full below it or was, and no such flow has what
// it wants.
func (s *fair) findFloor(n *Net) {
	s.floor = math.Inf(1)
	lowest := func(l Link) {
		x := &n.links[l]
		if x.full {
			s.floor = min(s.floor, x.level)
		}
		if x.hot {
			s.floor = min(s.floor, x.cap/float64(len(x.flows)))
		}
	}
	for _, l := range s.links {
		lowest(l)
	}
	for _, f := range s.flows {
		if !f.active {
			continue
		}
		s.floor = min(s.floor, f.bound)
		for _, l := range f.hot {
			lowest(l)
		}
	}
	s.floor *= 1 - tiny
}

// addLink takes a link in, and all of its flows that a change may reach if it is full.
func (s *fair) addLink(n *Net, l Link, full bool) {
	x := &n.links[l]
	if x.mark != s.round {
		x.mark = s.round
		s.touched = append(s.touched, l)
	}
	if full {
		x.full = true
		for i := range x.flows {
			if f := x.flows[i].flow; f.rate >= s.floor {
				s.addFlow(f)
			}
		}
	}
}

func (s *fair) addFlow(f *Flow) {
	if f.mark != s.round {
		f.mark = s.round
		s.members = append(s.members, f)
	}
}

// reach takes in the hot links of all flows that were taken in, and from those that
// are full further flows, and so on.
func (s *fair) reach(n *Net) {
	for ; s.reached < len(s.members); s.reached++ {
		for _, l := range s.members[s.reached].hot {
			if x := &n.links[l]; x.mark != s.round {
				s.addLink(n, l, x.full)
			}
		}
	}
}

// fill lets all flows that were taken in grow alike until a link is full or they
// have what they may; the others keep what they have.
func (s *fair) fill(n *Net) {
	s.rounds++
	s.shares += uint64(len(s.members))
	s.heap, s.open = s.heap[:0], len(s.members)
	for _, l := range s.touched {
		x := &n.links[l]
		if !x.hot {
			continue
		}
		x.free, x.n = x.cap, 0
		for i := range x.flows {
			if f := x.flows[i].flow; f.mark == s.round {
				x.n++
			} else {
				x.free -= f.rate
			}
		}
		x.free = max(0, x.free)
		if x.n > 0 {
			s.heap = append(s.heap, level{x.free / float64(x.n), l, nil})
		}
	}
	for _, f := range s.members {
		f.frozen = false
		if f.boundLink == NoLink || !n.links[f.boundLink].hot { // else the link sees to it
			s.heap = append(s.heap, level{f.bound, f.boundLink, f})
		}
	}
	for i := len(s.heap)/2 - 1; i >= 0; i-- {
		s.sink(i)
	}
	for s.open > 0 && len(s.heap) > 0 {
		s.next(n)
	}
}

// next settles what is full first.
func (s *fair) next(n *Net) {
	top := s.heap[0]
	if top.flow != nil {
		s.drop()
		if !top.flow.frozen {
			s.freeze(n, top.flow, top.rate, top.link)
		}
		return
	}
	x := &n.links[top.link]
	if x.n == 0 {
		s.drop()
		return
	}
	rate := max(x.free/float64(x.n), 0)
	if rate > top.rate*(1+1e-12) { // flows that settled elsewhere left it more
		s.heap[0].rate = rate
		s.sink(0)
		return
	}
	s.drop()
	for i := range x.flows {
		if f := x.flows[i].flow; f.mark == s.round && !f.frozen {
			s.freeze(n, f, rate, top.link)
		}
	}
}

// freeze settles a flow's share.
func (s *fair) freeze(n *Net, f *Flow, rate float64, limiter Link) {
	f.frozen, f.next, f.limiter = true, rate, limiter
	s.open--
	for _, l := range f.hot {
		x := &n.links[l]
		x.free = max(0, x.free-rate)
		x.n--
	}
}

// spread takes in the flows of links that are full now and were not: what they
// have there is to be shared too. It says whether there were any.
func (s *fair) spread(n *Net) bool {
	before := len(s.members)
	s.taken = s.taken[:0]
	for _, l := range s.touched {
		if x := &n.links[l]; x.hot && x.free <= x.cap*tiny {
			s.taken = append(s.taken, l)
		}
	}
	for _, l := range s.taken {
		s.addLink(n, l, true)
	}
	return len(s.members) > before
}

// finish gives the flows their rates.
func (s *fair) finish(n *Net) {
	for _, f := range s.members {
		f.setShare()
	}
	for _, l := range s.touched {
		x := &n.links[l]
		sum := 0.0
		x.level = 0
		for i := range x.flows {
			r := x.flows[i].flow.rate
			sum, x.level = sum+r, max(x.level, r)
		}
		x.full = x.hot && sum >= x.cap*(1-tiny)
	}
}

// setShare takes over the share of this round; one that differs by rounding alone is left.
func (f *Flow) setShare() {
	if f.notified && math.Abs(f.next-f.rate) <= f.rate*1e-12 {
		return
	}
	f.setRate(f.next)
}

func (s *fair) drop() {
	last := len(s.heap) - 1
	s.heap[0] = s.heap[last]
	s.heap = s.heap[:last]
	s.sink(0)
}

// sink moves a level down to its place. Of equal ones any may come first: each
// settles the same flows at the same rate.
func (s *fair) sink(i int) {
	h := s.heap
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h); c++ {
			if h[c].rate < h[least].rate {
				least = c
			}
		}
		if least == i {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}
