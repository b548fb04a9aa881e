package sim

import (
	"math"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
)

// Endless is the size of a flow that runs until it is stopped.
const Endless int64 = math.MaxInt64

// FlowSpec describes a flow.
type FlowSpec struct {
	Path  []Link // the links it crosses, in order; not to be changed afterwards
	Bytes int64  // 0: it waits for Extend
	// End is called when its last byte has left. It may Extend the flow, which then continues
	// without a gap.
	End func(*Flow)
	// Rate is called when its rate is first set and whenever it changes.
	Rate func(*Flow)
}

// Flow is a stream of bytes along a path.
type Flow struct {
	net  *Net
	spec FlowSpec

	active    bool
	notified  bool    // Rate was called since it started
	rate      float64 // its share of the links, bytes per second
	limiter   Link    // the link that limits it; NoLink: nothing does
	remaining float64 // bytes to move, infinite for an endless flow
	moved     float64
	joined    float64 // moved when it was added to its links
	updatedAt int64   // when moved and remaining were computed
	end       Timer
	round     uint64 // of Net.share, that has taken it in
}

// Start starts a flow.
func (n *Net) Start(s FlowSpec) *Flow {
	f := &Flow{net: n, spec: s, limiter: NoLink}
	f.end.run = f.finish
	if s.Bytes > 0 {
		f.Extend(s.Bytes)
	}
	return f
}

// Extend gives a flow more bytes to move; one that has ended starts again.
func (f *Flow) Extend(bytes int64) {
	n := f.net
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
	for _, l := range f.spec.Path {
		n.links[l].flows = append(n.links[l].flows, f)
	}
	n.changed = append(n.changed, f.spec.Path...)
	if len(f.spec.Path) == 0 {
		f.setShare(float64(Unlimited), NoLink)
	}
}

// Stop stops a flow; End is not called.
func (f *Flow) Stop() {
	if f.active {
		f.settle()
		f.detach()
	}
	f.remaining = 0
}

// detach removes a flow from its links.
func (f *Flow) detach() {
	n := f.net
	f.active = false
	n.active--
	n.Set(&f.end, Never)
	for _, l := range f.spec.Path {
		x := &n.links[l]
		i := slices.Index(x.flows, f)
		x.flows = slices.Delete(x.flows, i, i+1)
		x.bytes += f.moved - f.joined
	}
	n.changed = append(n.changed, f.spec.Path...)
	f.rate = 0
}

// settle accounts for what a flow has moved until now.
func (f *Flow) settle() {
	if f.active {
		f.advance(min(f.remaining, f.rate*float64(f.net.now-f.updatedAt)/1e9))
	}
	f.updatedAt = f.net.now
}

func (f *Flow) advance(bytes float64) {
	f.moved += bytes
	f.remaining -= bytes
}

// schedule sets the timer for the end of a flow.
func (f *Flow) schedule() {
	at := Never
	if f.rate > 0 && !math.IsInf(f.remaining, 1) {
		if ns := math.Ceil(f.remaining / f.rate * 1e9); ns < math.MaxInt64/4 {
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
	if f.spec.End != nil {
		f.spec.End(f)
	}
	if f.active && f.remaining <= 0 {
		f.detach()
	}
}

// setShare sets a flow's share; one that differs by rounding alone is left.
func (f *Flow) setShare(rate float64, limiter Link) {
	f.limiter = limiter
	if f.notified && math.Abs(rate-f.rate) <= f.rate*1e-12 {
		return
	}
	f.settle()
	f.rate, f.notified = rate, true
	f.schedule()
	if f.spec.Rate != nil {
		f.net.rateChanges = append(f.net.rateChanges, f)
	}
}

// BytesPerSec is its rate now.
func (f *Flow) BytesPerSec() topo.Rate {
	f.net.share()
	return topo.Rate(f.rate)
}

// Moved is how many bytes have left until now.
func (f *Flow) Moved() int64 {
	f.settle()
	return int64(math.Round(f.moved))
}
