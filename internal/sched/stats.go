package sched

import "github.com/topoctl/topoctl/discover/topo"

// LaneStats is what is known of one lane.
type LaneStats struct {
	Lane          LaneID
	Peer          PeerID
	Name          string
	Transport     string
	Health        string // "idle", "dialling", "healthy", "half-open", "sick", "gone"
	Conn          ConnID
	BytesPerSec   topo.Rate // service rate, or what the topology promises until there is one
	Measured      bool
	InflightBytes int64
	Inflight      int
	WindowBytes   int64
	DoneBytes     int64
	DoneSlices    int64
	Retries       int64 // slices taken from it and sent again
	Failures      int64 // times it became sick
	LastError     string
}

// Lanes appends the lanes' states to buf, in the order of their IDs. Lanes that
// are gone and have nothing left to do are not listed.
func (c *Core) Lanes(buf []LaneStats) []LaneStats {
	for _, l := range c.lanes {
		if l == nil {
			continue
		}
		s := LaneStats{
			Lane: l.id, Peer: l.spec.Peer, Name: l.spec.Name, Transport: l.spec.Transport, Health: l.healthText(), Conn: l.conn,
			BytesPerSec: l.spec.RateBytesPerSec, Measured: l.est.trusted() || l.est.believed,
			InflightBytes: l.inflight, Inflight: l.posted, WindowBytes: l.window,
			DoneBytes: l.doneBytes, DoneSlices: l.doneSlices, Retries: l.retries, Failures: l.failures,
		}
		if l.est.trusted() {
			s.BytesPerSec = topo.Rate(l.est.measured())
		}
		if l.lastErr != nil {
			s.LastError = l.lastErr.Error()
		}
		buf = append(buf, s)
	}
	return buf
}

func (l *lane) healthText() string {
	switch {
	case l.gone:
		return "gone"
	case l.sick || l.barred() || l.phase == closing:
		return "sick"
	case l.testing:
		return "half-open"
	case l.phase == dialing:
		return "dialling"
	case l.phase == idle:
		return "idle"
	}
	return "healthy"
}
