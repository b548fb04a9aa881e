package state

import (
	"maps"
	"math"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/counters"
)

const (
	second   = int64(1e9)
	movingNS = 60 * second // for how long errors count as moving
	goneNS   = 60 * second // after which a device that was not seen again is forgotten
)

// move is how much error counters moved at a time.
type move struct {
	atNS   int64
	errors map[string]uint64
}

// counters takes in a look at the counters.
func (s *State) counters(now *counters.Sample) {
	rates := counters.Between(s.sample, now)
	s.sample, s.CounterNotes = now, now.Notes
	for i := range now.Ports {
		s.port(&now.Ports[i], rates)
	}
	missing(s.Ports, func(p *Port) int64 { return s.Now - p.LastNS })
	s.Links = make(map[topo.ID]counters.Link, len(now.Links))
	for _, l := range now.Links {
		s.Links[l.ID] = l
	}
	for i := range now.GPUs {
		s.gpu(&now.GPUs[i], rates)
	}
	missing(s.GPUs, func(g *GPU) int64 { return s.Now - g.LastNS })
	if s.watch != nil {
		s.tell(s.watch.Counters(s.Now, now))
		for id, p := range s.Ports {
			p.Flaps = s.watch.Flaps(id)
		}
	}
}

// missing notes a gap in the history of devices that the last look did not tell of, and
// forgets those that were last seen too long ago.
func missing[D interface{ gap(n int) }](devices map[topo.ID]D, unseenNS func(D) int64) {
	for id, d := range devices {
		switch ns := unseenNS(d); {
		case ns == 0:
		case ns >= goneNS:
			delete(devices, id)
		default:
			d.gap(1)
		}
	}
}

// port takes in what was read of a port.
func (s *State) port(now *counters.Port, rates counters.Rates) {
	p := s.Ports[now.ID]
	if p == nil {
		if len(s.Ports) == MaxPorts {
			return
		}
		p = &Port{}
		s.Ports[now.ID] = p
	}
	r := rates.Ports[now.ID] // of one that was not there before, nothing is known
	p.Port, p.LastNS, p.Seen = *now, s.Now, true
	p.SentBytesPerSec, p.ReceivedBytesPerSec = r.SentBytesPerSec, r.ReceivedBytesPerSec
	p.Sent.Push(value(r.SentBytesPerSec))
	p.Received.Push(value(r.ReceivedBytesPerSec))
	if len(r.Errors) > 0 {
		p.moved(s.Now, r.Errors)
	}
}

// value is a figure of a history.
func value[T ~int | ~int64](v *T) float64 {
	if v == nil {
		return math.NaN()
	}
	return float64(*v)
}

// moved notes that error counters moved. Those of one second are one move, so that there
// are few. Maps that a clone may have are never changed.
func (p *Port) moved(now int64, errors map[string]uint64) {
	p.Moving = plus(p.Moving, errors)
	if n := len(p.moves); n > 0 && now-p.moves[n-1].atNS < second {
		last := p.moves[n-1]
		p.moves = append(p.moves[:n-1:n-1], move{last.atNS, plus(last.errors, errors)})
		return
	}
	p.moves = append(p.moves, move{now, errors})
}

// plus adds what counters moved.
func plus(a, b map[string]uint64) map[string]uint64 {
	out := make(map[string]uint64, max(len(a), len(b)))
	maps.Copy(out, a)
	for name, by := range b {
		out[name] += by
	}
	return out
}

// minus takes it away again; counters that did not move are left out.
func minus(a, b map[string]uint64) map[string]uint64 {
	out := maps.Clone(a)
	for name, by := range b {
		if out[name] -= by; out[name] == 0 {
			delete(out, name)
		}
	}
	return out
}

// expire forgets what moved too long ago.
func (s *State) expire() {
	for _, p := range s.Ports {
		for len(p.moves) > 0 && s.Now-p.moves[0].atNS >= movingNS {
			p.Moving = minus(p.Moving, p.moves[0].errors)
			p.moves = p.moves[1:]
		}
	}
}

// gap says that n looks did not tell of the port: nothing is known of its rates.
func (p *Port) gap(n int) {
	p.Seen, p.SentBytesPerSec, p.ReceivedBytesPerSec = false, nil, nil
	p.Sent.gap(n)
	p.Received.gap(n)
}

// gpu takes in what was read of a GPU.
func (s *State) gpu(now *counters.GPU, rates counters.Rates) {
	g := s.GPUs[now.ID]
	if g == nil {
		if len(s.GPUs) == MaxGPUs {
			return
		}
		g = &GPU{}
		s.GPUs[now.ID] = g
	}
	r := rates.GPUs[now.ID]
	g.GPU, g.LastNS = *now, s.Now
	g.Utilization.Push(value(now.UtilizationPercent))
	g.PCIeSent.Push(value(now.PCIeSentBytesPerSec))
	g.PCIeReceived.Push(value(now.PCIeReceivedBytesPerSec))
	g.NVLinkSent.Push(value(r.NVLinkSentBytesPerSec))
	g.NVLinkReceived.Push(value(r.NVLinkReceivedBytesPerSec))
}

// gap says that n looks did not tell of the GPU: what it does now is not known.
func (g *GPU) gap(n int) {
	g.UtilizationPercent, g.MemoryUsedBytes, g.PCIeSentBytesPerSec, g.PCIeReceivedBytesPerSec = nil, nil, nil, nil
	for _, h := range []*Series{&g.Utilization, &g.PCIeSent, &g.PCIeReceived, &g.NVLinkSent, &g.NVLinkReceived} {
		h.gap(n)
	}
}

// countersGap says that n looks at the counters did not come.
func (s *State) countersGap(n int) {
	for _, p := range s.Ports {
		p.gap(n)
	}
	for _, g := range s.GPUs {
		g.gap(n)
	}
}
