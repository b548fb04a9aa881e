package pick

import (
	"cmp"
	"math"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/maxmin"
)

// List is lanes that no topology knows of: loopback, shared memory, lanes that a
// user wants. All are chosen but those for failover.
type List struct {
	Lanes []Listed
	TCP   bool // round trips are those of TCP
}

// Listed is one lane of a list. Ports have names only: lanes that give the
// same name on one side share that port.
type Listed struct {
	LocalName, RemoteName string
	// LocalRate and RemoteRate are what its ports carry in each direction, in bytes per second;
	// 0 is not known to limit anything. Where lanes of one port differ the first one counts.
	LocalRate, RemoteRate topo.Rate
	BytesPerSec           topo.Rate // of the lane alone; 0 not known
	Tier                  int       // 0 is the nearest, see Lane.Tier
	Failover              bool      // for when others fail
}

// CompareListed orders lanes as a set of them has them, with a stable sort: the chosen
// ones, then those for failover, each in the order of their tiers.
func CompareListed(x, y Listed) int {
	switch {
	case x.Failover == y.Failover:
		return cmp.Compare(x.Tier, y.Tier)
	case y.Failover:
		return -1
	}
	return 1
}

// Set is a set of exactly the given lanes, in the order of CompareListed. Ports have
// the index in which they are first named. Several lanes may join the same two ports.
func (o List) Set() *Set {
	b := listBuilder{local: listedPorts{index: map[string]int{}}, remote: listedPorts{index: map[string]int{}}}
	lanes := make([]Lane, len(o.Lanes))
	order := make([]int, len(o.Lanes))
	for i := range o.Lanes {
		lanes[i], order[i] = b.lane(&o.Lanes[i]), i
	}
	slices.SortStableFunc(order, func(i, j int) int { return CompareListed(o.Lanes[i], o.Lanes[j]) })
	spec := Spec{Lanes: make([]Lane, len(lanes)), Capacities: b.capacities, Local: Ports{Rates: b.local.wires}, Remote: Ports{Rates: b.remote.wires}}
	if o.TCP {
		spec.RTT = DefaultTCPRTT
	}
	allocator := maxmin.New(b.capacities)
	tier := -1
	for at, i := range order {
		from := &o.Lanes[i]
		if at == 0 || CompareListed(o.Lanes[order[at-1]], *from) != 0 {
			tier++
		}
		if !from.Failover {
			spec.Chosen++
		}
		alone := [1]maxmin.Flow{{Segments: lanes[i].Segments, Weight: 1}}
		allocator.Share(alone[:])
		spec.Lanes[at] = lanes[i]
		spec.Lanes[at].Tier, spec.Lanes[at].Rate = tier, alone[0].Rate
	}
	return New(spec)
}

// listBuilder numbers the ports of a list and its links: the wire of each port, and
// one for each lane.
type listBuilder struct {
	capacities    []float64
	local, remote listedPorts
}

type listedPorts struct {
	index map[string]int
	wires []float64
	links []maxmin.Segment
}

func (b *listBuilder) lane(from *Listed) Lane {
	l := Lane{Local: b.port(&b.local, from.LocalName, from.LocalRate), Remote: b.port(&b.remote, from.RemoteName, from.RemoteRate)}
	l.Segments = []maxmin.Segment{b.local.links[l.Local], b.link(from.BytesPerSec), b.remote.links[l.Remote]}
	return l
}

func (b *listBuilder) port(side *listedPorts, name string, rate topo.Rate) int {
	at, ok := side.index[name]
	if !ok {
		at = len(side.wires)
		side.index[name] = at
		side.wires, side.links = append(side.wires, float64(knownRate(rate))), append(side.links, b.link(rate))
	}
	return at
}

// link adds a link of that rate and gives its segment.
func (b *listBuilder) link(rate topo.Rate) maxmin.Segment {
	capacity := math.Inf(1)
	if r := knownRate(rate); r > 0 {
		capacity = float64(r)
	}
	b.capacities = append(b.capacities, capacity)
	return maxmin.Segment(len(b.capacities) - 1)
}

// MaxRate bounds rates, so that sums of them stay exact in float64.
const MaxRate = topo.Rate(1) << 50

// knownRate is a rate within bounds, 0 where it is not known.
func knownRate(r topo.Rate) topo.Rate { return min(max(r, 0), MaxRate) }
