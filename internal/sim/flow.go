package sim

import (
	"math"

	"github.com/topoctl/topoctl/discover/topo"
)

// Endless is the size of a flow that runs until it is stopped.
const Endless int64 = math.MaxInt64

// FlowSpec describes a flow.
type FlowSpec struct {
	Path  []Link // the links it crosses, in order; not to be changed afterwards
	Bytes int64  // 0: it waits for Extend
	// LimitBytesPerSec bounds its rate; 0: unlimited.
	LimitBytesPerSec topo.Rate
	// End is called when its last byte has left. It may Extend the flow, which then continues
	// without a gap.
	End func(*Flow)
	// Rate is called when its rate is first set and whenever it changes.
	Rate func(*Flow)
}

// Flow is a stream of bytes along a path.
type Flow struct {
	net    *Net
	number uint64
	spec   FlowSpec
	at     []int32 // index in each link's list
	limit  float64 // bytes per second
	// bound is the least of its limit and the rates of its links, by boundLink
	// (NoLink: its limit); hot are the crossings of links that its flows could fill.
	bound     float64
	boundLink Link
	hot       []Link

	active    bool
	notified  bool // Rate was called since it started
	quality   float64
	rate      float64 // its share of the links, bytes per second
	limiter   Link    // the link that limits it, NoLink: its own limit
	remaining float64 // bytes to move, infinite for an endless flow
	moved     float64
	joined    float64 // moved when it was added to its links
	updatedAt int64   // when moved and remaining were computed
	end       Timer

	startNS, endNS int64

	mark   uint32 // of the round that has it, see fair
	frozen bool   // its share is final in this round
	next   float64
}

// Start starts a flow.
func (n *Net) Start(s FlowSpec) *Flow {
	n.flows++
	f := &Flow{net: n, number: n.flows, spec: s, at: make([]int32, len(s.Path)), limit: float64(Unlimited), quality: 1, limiter: NoLink, startNS: n.now}
	if s.LimitBytesPerSec > 0 {
		f.limit = float64(min(s.LimitBytesPerSec, Unlimited))
	}
	f.end.run = f.finish
	if s.Bytes > 0 {
		f.Extend(s.Bytes)
	}
	return f
}

// Extend gives a flow more bytes to move; one that has ended starts again.
func (f *Flow) Extend(bytes int64) {
	n := f.net
	if f.remaining <= 0 {
		f.quality = n.quality()
	}
	if bytes == Endless {
		f.remaining = math.Inf(1)
	} else {
		f.settle()
		f.remaining += float64(bytes)
	}
	if f.active {
		f.schedule()
		return
	}
	f.active, f.notified, f.rate, f.updatedAt, f.joined = true, false, 0, n.now, f.moved
	n.active++
	f.bound, f.boundLink = f.upperBound()
	for i, l := range f.spec.Path {
		x := &n.links[l]
		f.at[i] = int32(len(x.flows))
		x.flows = append(x.flows, hop{f, int32(i)})
		x.bound += f.bound
		if x.hot {
			f.hot = append(f.hot, l)
		}
	}
	for _, l := range f.spec.Path {
		n.updateHot(l)
	}
	n.fair.flows = append(n.fair.flows, f)
	n.trace(Event{What: Started, Flow: f.number, Link: NoLink})
}

// upperBound is the highest possible rate of a flow, and the link that sets it.
func (f *Flow) upperBound() (bound float64, by Link) {
	bound, by = f.limit, NoLink
	for _, l := range f.spec.Path {
		if c := f.net.links[l].cap; c < bound {
			bound, by = c, l
		}
	}
	return bound, by
}

// updateBound follows a change of a flow's limit or of a link's rate.
func (f *Flow) updateBound() {
	bound, by := f.upperBound()
	if bound == f.bound && by == f.boundLink {
		return
	}
	delta := bound - f.bound
	f.bound, f.boundLink = bound, by
	for _, l := range f.spec.Path {
		f.net.links[l].bound += delta
	}
	for _, l := range f.spec.Path {
		f.net.updateHot(l)
	}
	f.net.fair.flows = append(f.net.fair.flows, f)
}

// quality draws the factor between a flow's share and its rate.
func (n *Net) quality() float64 {
	if n.o.Jitter <= 0 {
		return 1
	}
	return min(max(1+n.o.Jitter*n.rng.NormFloat64(), 0.5), 1.5)
}

// Stop stops a flow; End is not called.
func (f *Flow) Stop() {
	if !f.active {
		f.remaining = 0
		return
	}
	f.settle()
	f.remaining = 0
	f.net.trace(Event{What: Stopped, Flow: f.number, Link: NoLink})
	f.detach()
}

// SetLimit changes a flow's limit; 0: unlimited.
func (f *Flow) SetLimit(rate topo.Rate) {
	limit := float64(Unlimited)
	if rate > 0 {
		limit = float64(min(rate, Unlimited))
	}
	if limit == f.limit {
		return
	}
	f.limit = limit
	if f.active {
		f.updateBound()
	}
}

// detach removes a flow from its links.
func (f *Flow) detach() {
	n := f.net
	f.active, f.endNS = false, n.now
	n.active--
	n.timers.remove(&f.end)
	for i, l := range f.spec.Path {
		x := &n.links[l]
		last := len(x.flows) - 1
		moved := x.flows[last]
		x.flows[f.at[i]] = moved
		moved.flow.at[moved.at] = f.at[i]
		x.flows[last] = hop{}
		x.flows = x.flows[:last]
		x.bytes += f.moved - f.joined
		if x.bound -= f.bound; last == 0 {
			x.bound = 0 // without what rounding leaves
		}
		if x.full {
			n.markDirty(l)
		}
	}
	for _, l := range f.spec.Path {
		n.updateHot(l)
	}
	f.rate, f.hot = 0, f.hot[:0]
}

// settle accounts for what a flow has moved until now.
func (f *Flow) settle() {
	n := f.net
	if !f.active || n.now == f.updatedAt {
		f.updatedAt = n.now
		return
	}
	f.advance(min(f.remaining, f.rate*f.quality*float64(n.now-f.updatedAt)/1e9))
	f.updatedAt = n.now
}

func (f *Flow) advance(bytes float64) {
	f.moved += bytes
	f.remaining -= bytes
}

// schedule sets the timer for the end of a flow.
func (f *Flow) schedule() {
	at := Never
	if f.rate > 0 && !math.IsInf(f.remaining, 1) {
		if ns := math.Ceil(f.remaining / (f.rate * f.quality) * 1e9); ns < math.MaxInt64/4 {
			at = f.updatedAt + int64(ns)
		}
	}
	f.net.Set(&f.end, at)
}

// finish is called when the last byte has left.
func (f *Flow) finish() {
	f.updatedAt = f.net.now
	f.advance(f.remaining)
	f.remaining = 0
	f.net.trace(Event{What: Ended, Flow: f.number, Link: NoLink})
	f.endNS = f.net.now
	if f.spec.End != nil {
		f.spec.End(f)
	}
	if f.active && f.remaining <= 0 {
		f.detach()
	}
}

// setRate sets a flow's share.
func (f *Flow) setRate(rate float64) {
	if rate == f.rate && f.notified {
		return
	}
	f.settle()
	f.rate = rate
	f.schedule()
	f.notified = true
	f.net.trace(Event{What: Rated, Flow: f.number, Link: f.limiter, BytesPerSec: rateOf(rate)})
	if f.spec.Rate != nil {
		f.net.rateChanges = append(f.net.rateChanges, f)
	}
}

// Number identifies the flow in events.
func (f *Flow) Number() uint64 { return f.number }

// Path is the links that it crosses.
func (f *Flow) Path() []Link { return f.spec.Path }

// Active says whether it has bytes to move.
func (f *Flow) Active() bool { return f.active }

// BytesPerSec is its rate now.
func (f *Flow) BytesPerSec() topo.Rate {
	f.net.share()
	return topo.Rate(f.rate * f.quality)
}

// Limiter is the link that limits it; NoLink where that is its own limit or nothing known.
func (f *Flow) Limiter() Link {
	f.net.share()
	return f.limiter
}

// Moved is how many bytes have left until now.
func (f *Flow) Moved() int64 {
	f.settle()
	return int64(math.Round(f.moved))
}

// StartNS is when it was started, EndNS when its last byte left: 0 until then.
func (f *Flow) StartNS() int64 { return f.startNS }

// EndNS is when its last byte left, or it was stopped.
func (f *Flow) EndNS() int64 { return f.endNS }
