package sim

import (
	"container/heap"
	"math"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/maxmin"
)

// Link is one direction of a link: an index into the Net's list.
type Link = maxmin.Segment

// NoLink is no link at all.
const NoLink = maxmin.None

// Unlimited is the rate of a flow that no link of known rate holds back, in
// bytes per second.
const Unlimited = topo.Rate(1) << 50

// Net is directed links, flows over them and a clock. Flows share links max-min
// fairly and at once; see the package documentation. It is not safe for concurrent use:
// everything, callbacks included, happens in the caller of Run.
type Net struct {
	now    int64
	turns  uint64
	timers timerHeap
	links  []link
	active int

	// capacities are those of the links now, in bytes per second, infinite where unknown.
	capacities []float64
	allocator  *maxmin.Allocator // of the first sharing links
	sharing    int
	changed    []Link // whose flows are to share anew before time passes
	reached    []Link // by share
	shared     []maxmin.Flow
	rounds     uint64

	rateChanges []*Flow // flows whose Rate has yet to be called
}

// link is one direction of a link.
type link struct {
	flows   []*Flow // once for each crossing
	bytes   float64 // of flows that have ended
	latency int64
	down    int     // how many reasons there are for it to be down
	healthy float64 // its capacity without them
	round   uint64
}

// NewNet makes an empty Net at time 0.
func NewNet() *Net { return &Net{} }

// AddLink adds one direction of a link. A rate below 0 is unknown: such a link
// limits nothing.
func (n *Net) AddLink(rate topo.Rate, latencyNS int64) Link {
	n.links = append(n.links, link{latency: latencyNS})
	n.capacities = append(n.capacities, capacity(rate))
	return Link(len(n.links) - 1)
}

func capacity(rate topo.Rate) float64 {
	if rate < 0 {
		return math.Inf(1)
	}
	return float64(min(rate, Unlimited))
}

// Now is the time, in nanoseconds from the beginning.
func (n *Net) Now() int64 { return n.now }

// Links is how many directions of links there are.
func (n *Net) Links() int { return len(n.links) }

// Rate is the capacity of a link now, in bytes per second; ok is false where it is not
// known.
func (n *Net) Rate(l Link) (rate topo.Rate, ok bool) {
	c := n.capacities[l]
	if math.IsInf(c, 1) {
		return 0, false
	}
	return topo.Rate(c), true
}

// Bytes is what has crossed a link until now.
func (n *Net) Bytes(l Link) int64 {
	x := &n.links[l]
	sum := x.bytes
	for _, f := range x.flows {
		f.settle()
		sum += f.moved - f.joined
	}
	return int64(math.Round(sum))
}

// setRate changes the capacity of a link.
func (n *Net) setRate(l Link, c float64) {
	n.capacities[l] = c
	n.changed = append(n.changed, l)
}

// share sets the rate of every flow that a change reaches: of those on a changed link, and from there over links
// that flows have in common.
func (n *Net) share() {
	if len(n.changed) == 0 {
		return
	}
	n.rounds++
	var flows []*Flow
	n.reached = n.reached[:0]
	take := func(l Link) {
		if x := &n.links[l]; x.round != n.rounds {
			x.round = n.rounds
			n.reached = append(n.reached, l)
		}
	}
	for _, l := range n.changed {
		take(l)
	}
	n.changed = n.changed[:0]
	for i := 0; i < len(n.reached); i++ {
		for _, f := range n.links[n.reached[i]].flows {
			if f.round == n.rounds {
				continue
			}
			f.round = n.rounds
			flows = append(flows, f)
			for _, l := range f.spec.Path {
				take(l)
			}
		}
	}
	if n.sharing < len(n.links) {
		n.allocator, n.sharing = maxmin.New(n.capacities), len(n.links)
	}
	n.shared = n.shared[:0]
	for _, f := range flows {
		n.shared = append(n.shared, maxmin.Flow{Segments: f.spec.Path, Weight: 1})
	}
	n.allocator.Share(n.shared)
	for i, f := range flows {
		f.setShare(min(n.shared[i].Rate, float64(Unlimited)), n.shared[i].Limit)
	}
}

// Run advances to a time, and runs the events of that time as well.
func (n *Net) Run(untilNS int64) {
	n.RunUntil(untilNS, func() bool { return false })
}

// RunUntil advances until a condition holds, no events are left or a time is reached, and
// says whether the condition holds. It is checked after every event.
func (n *Net) RunUntil(untilNS int64, done func() bool) bool {
	for {
		if done() {
			return true
		}
		if len(n.timers) == 0 || n.timers[0].at > n.now {
			n.share()
		}
		if n.notifyNext() {
			continue
		}
		if len(n.timers) == 0 || n.timers[0].at > untilNS {
			if untilNS != Never {
				n.now = max(n.now, untilNS)
			}
			return false
		}
		t := heap.Pop(&n.timers).(*Timer)
		n.now = max(n.now, t.at)
		t.run()
	}
}

// notifyNext calls one flow's Rate: outside of sharing, so that it may do anything.
func (n *Net) notifyNext() bool {
	if len(n.rateChanges) == 0 {
		return false
	}
	f := n.rateChanges[0]
	n.rateChanges = n.rateChanges[1:]
	if len(n.rateChanges) == 0 {
		n.rateChanges = nil
	}
	if f.active {
		f.spec.Rate(f)
	}
	return true
}
