package state

import (
	"maps"
	"math"
	"slices"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
)

const (
	second         = int64(1e9)
	recentErrorsNS = 60 * second // for how long errors count as moving
	forgetAfterNS  = 60 * second // after which a device that was not seen again is forgotten
)

// errorMove is how much error counters moved at a time.
type errorMove struct {
	atNS int64
	by   map[string]uint64
}

// counters takes in a look at the counters.
func (s *State) counters(now *counters.Sample) {
	rates := counters.Between(s.sample, now)
	s.sample, s.CounterNotes = now, now.Notes
	s.Recent = append(slices.Clone(s.Recent[max(0, len(s.Recent)-MaxRecent+1):]), now)
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
		s.addEvents(s.watch.Counters(s.Now, now))
		for id, p := range s.Ports {
			p.Flaps = s.watch.Flaps(id)
		}
	}
}

// missing notes a gap in the history of devices that the last look did not tell of, and
// forgets those that were last seen too long ago.
func missing[D interface{ addGap(n int) }](devices map[topo.ID]D, unseenNS func(D) int64) {
	for id, d := range devices {
		switch ns := unseenNS(d); {
		case ns == 0:
		case ns >= forgetAfterNS:
			delete(devices, id)
		default:
			d.addGap(1)
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
		p.addErrors(s.Now, r.Errors)
	}
}

// value is a figure of a history.
func value[T ~int | ~int64](v *T) float64 {
	if v == nil {
		return math.NaN()
	}
	return float64(*v)
}

// addErrors notes that error counters moved. Those of one second are one move, so that there
// are few. Maps that a clone may have are never changed.
func (p *Port) addErrors(now int64, errors map[string]uint64) {
	p.RecentErrors = addCounts(p.RecentErrors, errors)
	if n := len(p.errorMoves); n > 0 && now-p.errorMoves[n-1].atNS < second {
		last := p.errorMoves[n-1]
		p.errorMoves = append(p.errorMoves[:n-1:n-1], errorMove{last.atNS, addCounts(last.by, errors)})
		return
	}
	p.errorMoves = append(p.errorMoves, errorMove{now, errors})
}

func addCounts(a, b map[string]uint64) map[string]uint64 {
	out := make(map[string]uint64, max(len(a), len(b)))
	maps.Copy(out, a)
	for name, by := range b {
		out[name] += by
	}
	return out
}

// subtractCounts leaves counters out that come to 0.
func subtractCounts(a, b map[string]uint64) map[string]uint64 {
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
		for len(p.errorMoves) > 0 && s.Now-p.errorMoves[0].atNS >= recentErrorsNS {
			p.RecentErrors = subtractCounts(p.RecentErrors, p.errorMoves[0].by)
			p.errorMoves = p.errorMoves[1:]
		}
	}
}

// addGap says that n looks did not tell of the port: nothing is known of its rates.
func (p *Port) addGap(n int) {
	p.Seen, p.SentBytesPerSec, p.ReceivedBytesPerSec = false, nil, nil
	p.Sent.addGap(n)
	p.Received.addGap(n)
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

// addGap says that n looks did not tell of the GPU: what it does now is not known.
func (g *GPU) addGap(n int) {
	g.UtilizationPercent, g.MemoryUsedBytes, g.PCIeSentBytesPerSec, g.PCIeReceivedBytesPerSec = nil, nil, nil, nil
	for _, h := range []*Series{&g.Utilization, &g.PCIeSent, &g.PCIeReceived, &g.NVLinkSent, &g.NVLinkReceived} {
		h.addGap(n)
	}
}

// addCounterGaps says that n looks at the counters did not come.
func (s *State) addCounterGaps(n int) {
	for _, p := range s.Ports {
		p.addGap(n)
	}
	for _, g := range s.GPUs {
		g.addGap(n)
	}
}
