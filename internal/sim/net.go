package sim

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
)

// Link is one direction of a link: an index into the Net's list.
type Link int32

// NoLink is no link at all.
const NoLink Link = -1

// Unlimited is the rate of a flow that no link of known rate holds back, in
// bytes per second.
const Unlimited = topo.Rate(1) << 50

// Options of a Net.
type Options struct {
	Seed uint64
	// Jitter is the relative standard deviation of the flows' rates: 0.01 is one per cent.
	// Each flow draws its own.
	Jitter float64
	// PacketBytes and QueueBytes are the sizes of packets and of queues, for the delay of
	// small messages. 0: 4096 bytes and 1 MiB.
	PacketBytes, QueueBytes int64
	// Trace, if not nil, is called with every event, in order.
	Trace func(Event)
}

// Event is one thing that happened.
type Event struct {
	AtNS int64
	What What
	Flow uint64 // its number, from 1; 0: none
	Link Link   // NoLink: none
	// BytesPerSec is the flow's new rate, or the link's.
	BytesPerSec topo.Rate
	Text        string // a fault's name, what an engine did
}

// What is the kind of an event.
type What string

// The events.
const (
	Started What = "start"
	Rated   What = "rate" // a flow's rate changed
	Ended   What = "end"  // a flow's last byte left
	Stopped What = "stop" // a flow was stopped early
	Changed What = "link" // a link's rate changed
	Acted   What = "act"  // an engine did something
)

// Net is directed links, flows over them and a clock. Flows share links max-min
// fairly and at once; see the package documentation. It is not safe for concurrent use:
// everything, callbacks included, happens in the caller of Run.
type Net struct {
	o      Options
	rng    *rand.Rand
	now    int64
	turns  uint64
	timers timerHeap
	links  []link
	flows  uint64 // numbers given
	active int

	fair        fair
	rateChanges []*Flow // flows whose Rate has yet to be called
}

// link is one direction of a link.
type link struct {
	cap     float64 // bytes per second, infinite where unknown
	bytes   float64 // of flows that have ended
	flows   []hop
	bound   float64 // the sum of its flows' bounds
	level   float64 // the largest share on it, while it is full
	latency int64
	queues  bool // packets queue here while it is busy
	down    bool
	hot     bool // its flows could fill it: only then it limits them
	full    bool // it limits some flow
	dirty   bool // it is in fair.links

	mark uint32  // of the round that has it, see fair
	free float64 // capacity left while it is being shared
	n    int32   // crossings of flows that are not frozen yet, meanwhile
}

// hop is a flow's crossing of a link: one element of its path.
type hop struct {
	flow *Flow
	at   int32
}

// NewNet makes an empty Net at time 0.
func NewNet(o Options) *Net {
	if o.PacketBytes <= 0 {
		o.PacketBytes = 4096
	}
	if o.QueueBytes <= 0 {
		o.QueueBytes = 1 << 20
	}
	return &Net{o: o, rng: rand.New(rand.NewPCG(o.Seed, 0x746f706f63746c))}
}

// AddLink adds one direction of a link. A rate below 0 is unknown: such a link
// limits nothing.
func (n *Net) AddLink(rate topo.Rate, latencyNS int64, queues bool) Link {
	n.links = append(n.links, link{cap: capacity(rate), latency: latencyNS, queues: queues})
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

// Active is how many flows are active.
func (n *Net) Active() int { return n.active }

// Rate is the capacity of a link now, in bytes per second; ok is false where it is not
// known.
func (n *Net) Rate(l Link) (rate topo.Rate, ok bool) {
	c := n.links[l].cap
	if math.IsInf(c, 1) {
		return 0, false
	}
	return topo.Rate(c), true
}

// Load is what a link carries now, in bytes per second.
func (n *Net) Load(l Link) topo.Rate {
	n.share()
	return topo.Rate(n.links[l].load())
}

// load is the sum of the shares of a link's flows.
func (x *link) load() float64 {
	sum := 0.0
	for i := range x.flows {
		sum += x.flows[i].flow.rate
	}
	return sum
}

// Bytes is what has crossed a link until now.
func (n *Net) Bytes(l Link) int64 {
	x := &n.links[l]
	sum := x.bytes
	for i := range x.flows {
		f := x.flows[i].flow
		f.settle()
		sum += f.moved - f.joined
	}
	return int64(math.Round(sum))
}

// Down says whether a link is down.
func (n *Net) Down(l Link) bool { return n.links[l].down }

// setRate changes the capacity of a link.
func (n *Net) setRate(l Link, c float64) {
	x := &n.links[l]
	if x.cap == c {
		return
	}
	x.cap = c
	for i := range x.flows {
		x.flows[i].flow.updateBound()
	}
	n.updateHot(l)
	n.markDirty(l)
	n.trace(Event{What: Changed, Link: l, BytesPerSec: rateOf(c)})
}

// updateHot computes whether a link's flows could fill it, and tells them.
func (n *Net) updateHot(l Link) {
	x := &n.links[l]
	hot := x.bound > x.cap*(1+tiny)
	if hot == x.hot {
		return
	}
	x.hot = hot
	for i := range x.flows {
		f := x.flows[i].flow
		if hot {
			f.hot = append(f.hot, l)
		} else {
			f.hot = drop(f.hot, l)
		}
	}
	n.markDirty(l)
}

// drop removes one link from a list, whose order does not matter.
func drop(list []Link, l Link) []Link {
	i := slices.Index(list, l)
	list[i] = list[len(list)-1]
	return list[:len(list)-1]
}

// markDirty has a link shared again before time passes.
func (n *Net) markDirty(l Link) {
	if x := &n.links[l]; !x.dirty {
		x.dirty = true
		n.fair.links = append(n.fair.links, l)
	}
}

func (n *Net) trace(e Event) {
	if n.o.Trace != nil {
		e.AtNS = n.now
		n.o.Trace(e)
	}
}

func rateOf(v float64) topo.Rate { return topo.Rate(min(v, float64(Unlimited))) }

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
		t := n.timers[0]
		n.now = max(n.now, t.at)
		n.timers.remove(t)
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
