package sim

import (
	"math"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Effect is what a fault does to a link. The zero value does nothing; effects of
// several faults on one link add up.
type Effect struct {
	Factor          float64   // of the rate: 0.25 is a quarter; 0 is all
	MostBytesPerSec topo.Rate // 0: no such bound
	// TakenBytesPerSec is the rate of other traffic there, which does not give way.
	TakenBytesPerSec topo.Rate
	// Loss is the part of packets that are lost, and ResentPackets how many are sent
	// again for each: what a link carries falls to (1-Loss)/(1+Loss*ResentPackets).
	Loss          float64
	ResentPackets float64
	// SymbolErrorsPerGB is for each 10^9 bytes.
	SymbolErrorsPerGB float64
	AddedNS           int64 // one way
	Down              bool
}

// Fault is an effect on links, for a while.
type Fault struct {
	Name  string
	Links []Link
	Effect
	FromNS, UntilNS int64 // UntilNS 0: for good
}

// linkFaults are the faults of a link.
type linkFaults struct {
	cap     float64 // without faults
	latency int64
	active  []*Fault
	// Errors after carrying this many bytes, and again per byte from then on.
	symbols, lost        float64
	bytes                int64
	symbolRate, lossRate float64
}

// count updates the error counters.
func (x *linkFaults) count(bytes int64) {
	x.symbols += float64(bytes-x.bytes) * x.symbolRate
	x.lost += float64(bytes-x.bytes) * x.lossRate
	x.bytes = bytes
}

// Errors are the symbol errors and the lost packets of a link until now.
func (c *Cluster) Errors(l Link) (symbols, packets int64) {
	x := c.faults[l]
	if x == nil {
		return 0, 0
	}
	x.count(c.Bytes(l))
	return int64(x.symbols), int64(x.lost)
}

// Inject schedules a fault; one in the past takes effect at once, before any other event.
func (c *Cluster) Inject(f Fault) error {
	if err := c.checkFault(&f); err != nil {
		return err
	}
	f.Links = slices.Clone(f.Links)
	begin := func() { c.fault(&f, true) }
	if f.FromNS <= c.now {
		begin()
	} else {
		c.At(f.FromNS, begin)
	}
	if f.UntilNS != 0 {
		c.At(f.UntilNS, func() { c.fault(&f, false) })
	}
	return nil
}

func (c *Cluster) checkFault(f *Fault) error {
	switch {
	case len(f.Links) == 0:
		return pkgerr.Errorf("sim", "fault %q: no links", f.Name)
	case f.UntilNS != 0 && f.UntilNS <= max(f.FromNS, c.now):
		return pkgerr.Errorf("sim", "fault %q ends before it begins", f.Name)
	case !(f.Factor >= 0) || math.IsInf(f.Factor, 1) || f.MostBytesPerSec < 0 || f.TakenBytesPerSec < 0 || !(f.Loss >= 0 && f.Loss < 1) ||
		!(f.ResentPackets >= 0) || !(f.SymbolErrorsPerGB >= 0) || f.AddedNS < 0:
		return pkgerr.Errorf("sim", "fault %q: a number below 0, or a loss of 1 or more", f.Name)
	}
	for _, l := range f.Links {
		if l < 0 || int(l) >= len(c.links) {
			return pkgerr.Errorf("sim", "fault %q: no link %d", f.Name, l)
		}
		if (f.Factor != 0 || f.Loss > 0 || f.TakenBytesPerSec > 0) && f.MostBytesPerSec == 0 && !f.Down && math.IsInf(c.healthy(l).cap, 1) {
			return pkgerr.Errorf("sim", "fault %q: the rate of %s is unknown: want a rate in bytes per second", f.Name, c.Name(l))
		}
	}
	return nil
}

// SlowHost is a fault of all links of a host whose rate is known.
func (c *Cluster) SlowHost(host int, factor float64) (Fault, error) {
	links, err := c.HostLinks(host)
	if err != nil {
		return Fault{}, err
	}
	links = slices.DeleteFunc(links, func(l Link) bool { return math.IsInf(c.healthy(l).cap, 1) })
	if len(links) == 0 {
		return Fault{}, pkgerr.New("sim", "no rate of that host is known")
	}
	return Fault{Name: "slow " + c.names[host], Links: links, Effect: Effect{Factor: factor}}, nil
}

// healthy is a link as it is without faults.
func (c *Cluster) healthy(l Link) *linkFaults {
	x := c.faults[l]
	if x == nil {
		x = &linkFaults{cap: c.links[l].cap, latency: c.links[l].latency}
		c.faults[l] = x
	}
	return x
}

// fault starts or ends a fault.
func (c *Cluster) fault(f *Fault, begins bool) {
	for _, l := range f.Links {
		x := c.healthy(l)
		if begins {
			x.active = append(x.active, f)
		} else {
			x.active = slices.DeleteFunc(x.active, func(o *Fault) bool { return o == f })
		}
		c.apply(l, x)
	}
	text := f.Name
	if !begins {
		text += " is over"
	}
	c.trace(Event{What: Changed, Link: NoLink, Text: text})
}

// apply sets rate, latency and state of a link by its faults.
func (c *Cluster) apply(l Link, x *linkFaults) {
	x.count(c.Bytes(l))
	link := &c.links[l]
	rate, latency, down := x.cap, x.latency, false
	x.symbolRate, x.lossRate = 0, 0
	most, taken := math.Inf(1), 0.0
	for _, f := range x.active {
		if f.Factor > 0 {
			rate *= f.Factor
		}
		if f.MostBytesPerSec > 0 {
			most = min(most, float64(f.MostBytesPerSec))
		}
		taken += float64(f.TakenBytesPerSec)
		down = down || f.Down
		latency += f.AddedNS
		x.symbolRate += f.SymbolErrorsPerGB / 1e9
		x.lossRate += f.Loss / float64(c.o.PacketBytes)
	}
	rate = max(0, min(rate, most)-taken)
	for _, f := range x.active {
		rate *= (1 - f.Loss) / (1 + f.Loss*f.ResentPackets)
	}
	if down {
		rate = 0
	}
	link.latency = latency
	was := link.down
	link.down = down
	c.setRate(l, rate)
	if was != down {
		c.portChanged(l)
	}
}

// portKey is a port of a host, by Port.Index.
type portKey struct{ host, port int }

type portState struct {
	down   bool
	downed int64
}

// portChanged notifies the listeners when a port's wire went down or came up: a wire is down
// if one direction is.
func (c *Cluster) portChanged(l Link) {
	w := c.Where(l)
	if w.Host < 0 || w.Port == "" {
		return
	}
	k := c.hosts[w.Host].kind
	i := k.portAt[w.Port]
	first := c.hosts[w.Host].base + Link(k.wires[i][0]&^1)
	down := c.links[first].down || c.links[first+1].down
	key := portKey{w.Host, i}
	p := c.ports[key]
	if p == nil {
		p = &portState{}
		c.ports[key] = p
	}
	if p.down == down {
		return
	}
	p.down = down
	if down {
		p.downed++
	}
	for _, hear := range c.portListeners {
		hear(w.Host, i, !down)
	}
}

// PortCounters are the counters of a port since the start.
type PortCounters struct {
	TxBytes, RxBytes int64
	SymbolErrors     int64 // received
	LostPackets      int64 // in both directions
	LinkDowned       int64
	Down             bool
}

// PortCounters reads the counters of a port's wire, traffic of its virtual functions
// included.
func (c *Cluster) PortCounters(host int, port topo.ID) (PortCounters, error) {
	wire, err := c.Cable(host, port)
	if err != nil {
		return PortCounters{}, err
	}
	x := PortCounters{TxBytes: c.Bytes(wire[0]), RxBytes: c.Bytes(wire[1])}
	_, lostOut := c.Errors(wire[0])
	symbols, lostIn := c.Errors(wire[1])
	x.SymbolErrors, x.LostPackets = symbols, lostOut+lostIn
	if p := c.ports[portKey{host, c.hosts[host].kind.portAt[port]}]; p != nil {
		x.LinkDowned, x.Down = p.downed, p.down
	}
	return x, nil
}
