package engine

import (
	"cmp"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/sched"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
)

// Stats are the engine's counters at this moment.
func (e *Engine) Stats() Stats {
	s := Stats{
		Name: e.name, Epoch: e.epoch, Peers: []PeerStats{}, Regions: []RegionStats{}, ServedUncounted: []string{},
		Batches: e.count.batches.Load(), Failed: e.count.failed.Load(), Unsafe: e.count.unsafe.Load(),
		Slices: e.count.slices.Load(), Retries: e.count.retries.Load(), Fallback: e.count.fallbacks.Load(),
		Notifications: e.count.notifications.Load(),
	}
	for _, c := range e.carriers {
		served := c.t.Served()
		if served.Uncounted {
			s.ServedUncounted = append(s.ServedUncounted, c.name)
		}
		s.ServedReadBytes += served.ReadBytes
		s.ServedWrittenBytes += served.WrittenBytes
		s.Refused += served.Refused
		s.ServedConns += served.Conns
	}
	s.Served, s.ServedUnlisted = e.servedStats()
	s.Sessions = e.server.Counts().Sessions
	for _, r := range e.Regions() {
		grant := r.Grant()
		s.Regions = append(s.Regions, RegionStats{
			ID: r.ID(), Name: r.Name(), Bytes: r.Size(), Location: string(r.location),
			Read: grant&memory.PeerRead != 0, Write: grant&memory.PeerWrite != 0, Notes: slices.Concat(r.Info().Notes, r.notes),
		})
	}
	e.mu.Lock()
	for p := range e.peers {
		s.Peers = append(s.Peers, e.peerStats(p))
	}
	e.mu.Unlock()
	slices.SortFunc(s.Peers, func(a, b PeerStats) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	s.Lanes = e.laneStats(nil)
	return s
}

// peerStats runs under the engine's mutex.
func (e *Engine) peerStats(p *Peer) PeerStats {
	s := PeerStats{
		Name: p.name, Self: p.self, ID: uint32(p.id), Epoch: p.epoch, State: "open", RoundTripNS: int64(p.session.RoundTrip()),
		Quarantined: len(e.quarantines[p.epoch]),
	}
	if err := p.lost(); err != nil {
		s.State, s.Error = "lost", err.Error()
	}
	for b := e.first; b != nil; b = b.next {
		if b.peer == p {
			s.Batches++
		}
	}
	s.Regions = int(p.offered.Load())
	return s
}

// Lanes are the lanes to the peer that batches have wanted so far.
func (p *Peer) Lanes() []LaneStats { return p.engine.laneStats(p) }

// laneStats lists the lanes of one peer, or all, by peer and name.
func (e *Engine) laneStats(of *Peer) []LaneStats {
	out := []LaneStats{}
	for _, s := range e.laneStates(of) {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b LaneStats) int {
		return cmp.Or(cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Transport, b.Transport), cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// laneStates are the lanes to one peer, or all, as they are now.
func (e *Engine) laneStates(of *Peer) map[*lane]LaneStats {
	out := map[*lane]LaneStats{}
	conns := map[*lane]transport.Conn{}
	e.mu.Lock()
	for _, x := range e.core.Lanes(nil) {
		l := e.lanes[x.Lane]
		if l == nil || of != nil && l.peer != of {
			continue
		}
		out[l] = l.stats(&x)
		if c := e.conns[x.Conn]; c != nil && c.connected {
			conns[l] = c.t
		}
	}
	e.mu.Unlock()
	for l, c := range conns {
		s := out[l]
		s.Connection = c.Describe() // it may have learned something since it was dialled
		out[l] = s
	}
	return out
}

func (l *lane) stats(x *sched.LaneStats) LaneStats {
	s := LaneStats{
		Peer: l.peer.name, Lane: l.name, ID: uint32(l.id), Transport: l.carrier.name, Health: x.Health, Measured: x.Measured,
		BytesPerSec: x.BytesPerSec, Bytes: x.DoneBytes, Slices: x.DoneSlices,
		InflightBytes: x.InflightBytes, InflightSlices: x.Inflight, WindowBytes: x.WindowBytes,
		Retries: x.Retries, Failures: x.Failures, LastError: x.LastError, Connection: l.described,
		LocalPort: topo.ID(l.key.localPort), RemotePort: topo.ID(l.key.remotePort),
		RemoteAddress: l.key.address, ExpectedRoundTripNS: int64(l.rtt),
	}
	if l.key.local.IsValid() {
		s.LocalAddress = l.key.local.String()
	}
	switch {
	case l.gone:
		s.Health = "gone"
	case l.suspended:
		s.Health = "suspended"
	}
	return s
}
