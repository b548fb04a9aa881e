package engine

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/sched"
	"github.com/topoctl/topoctl/pathsel"
)

// Stats are an engine's state and its counters since it was made.
type Stats struct {
	Name     string         `json:"name"`
	Epoch    uint64         `json:"epoch,string"`
	Registry *RegistryStats `json:"registry,omitempty"` // nil: it is in none
	Peers    []PeerStats    `json:"peers"`              // that this engine has opened, by name
	Lanes    []LaneStats    `json:"lanes"`              // by peer and name
	// Regions are at most 256, in the order of IDs. RegionsUnlisted is how many more there are,
	// and RegionsUnlistedBytes what they have.
	Regions              []RegionStats `json:"regions"`
	RegionsUnlisted      int           `json:"regions_unlisted"`
	RegionsUnlistedBytes int64         `json:"regions_unlisted_bytes"`

	Batches int64 `json:"batches"` // ended
	Failed  int64 `json:"failed_batches"`
	// Failures are what failed, by reason.
	Failures Failures `json:"failures,omitzero"`
	Unsafe   int64    `json:"unsafe_batches"`
	Slices   int64    `json:"slices"`
	Retries  int64    `json:"retried_slices"`
	Fallback int64    `json:"transport_fallbacks"`
	// What peers have moved from and to this engine's regions.
	ServedReadBytes    int64 `json:"served_read_bytes"`
	ServedWrittenBytes int64 `json:"served_written_bytes"`
	// ServedUncounted are the transports over which peers move bytes without this engine's
	// help: those bytes are not counted.
	ServedUncounted []string `json:"served_uncounted_transports"`
	// Served are the connections over which peers move those bytes, by peer and transport,
	// at most 256. ServedUnlisted is how many more there are.
	Served         []ServedStats `json:"served"`
	ServedUnlisted int           `json:"served_unlisted"`
	Refused        int64         `json:"refused_requests"` // peers' requests that failed a check
	// RefusedReasons are those requests by reason: "no_region", "range", "denied", "device", and "other" for what
	// is against the protocol.
	RefusedReasons map[string]int64 `json:"refused_reasons"`
	// RefusedConns are connections that were not let in, by reason: "wrong_token",
	// "certificate", "malformed", "version", "slow", "busy", "limit", "memory", "sockets", "ended", "gone".
	RefusedConns map[string]int64 `json:"refused_conns"`
	// RefusedCalls are calls of peers that were refused because of the limits of what peers may
	// have, by reason: "memory", "quota", "slow".
	RefusedCalls map[string]int64 `json:"refused_calls"`
	// DroppedConns are connections over TCP, also those to peers, that were ended for what
	// came over them, by reason: "header-tag", "header-checksum" and "record" are frames that were
	// not as the peer had sent them, "session-record" those of peers' connections for calls.
	DroppedConns map[string]int64 `json:"dropped_conns"`
	// PeerBytes is the memory that peers make this engine hold, of PeerBytesLimit.
	PeerBytes      int64 `json:"peer_bytes"`
	PeerBytesLimit int64 `json:"peer_bytes_limit"`
	ServedConns    int   `json:"served_conns"`    // open now
	Sessions       int   `json:"served_sessions"` // peers that have this engine open now
	Notifications  int64 `json:"notifications"`   // received
}

// RegistryStats says whether a registry has the engine.
type RegistryStats struct {
	Published bool   `json:"published"`       // peers find the engine by its name
	Error     string `json:"error,omitempty"` // why it is not
}

// PeerStats is the state of a peer that this engine has opened.
type PeerStats struct {
	Name        string    `json:"name"`
	Self        string    `json:"self"` // what it calls itself
	ID          uint32    `json:"id"`
	Epoch       uint64    `json:"epoch,string"`
	State       PeerState `json:"state"`
	RoundTripNS int64     `json:"round_trip_ns"`
	Batches     int64     `json:"batches"`         // running now
	Quarantined int       `json:"quarantined"`     // ranges of its memory
	Regions     int       `json:"remote_regions"`  // that it offers
	Error       string    `json:"error,omitempty"` // why it is lost
}

// PeerState says whether a peer can be used.
type PeerState string

// The states of peers.
const (
	PeerOpen PeerState = "open"
	PeerLost PeerState = "lost"
)

// LaneStats is the state of one lane, and what it has carried.
type LaneStats struct {
	Peer                string            `json:"peer"`
	Lane                string            `json:"lane"`
	ID                  uint32            `json:"id"`
	Transport           pathsel.Transport `json:"transport"`
	Health              LaneHealth        `json:"health"`
	BytesPerSec         topo.Rate         `json:"service_bytes_per_sec"` // what it carries; 0 is unknown
	Measured            bool              `json:"measured"`              // BytesPerSec, by this engine; else it is expected
	Bytes               int64             `json:"bytes"`
	Slices              int64             `json:"slices"`
	InflightBytes       int64             `json:"inflight_bytes"`
	InflightSlices      int               `json:"inflight_slices"`
	WindowBytes         int64             `json:"window_bytes"` // that may be in flight
	Retries             int64             `json:"retries"`      // slices that were sent again
	Failures            int64             `json:"failures"`     // times it became sick
	LastError           string            `json:"last_error,omitempty"`
	Connection          string            `json:"connection,omitempty"`
	LocalPort           topo.ID           `json:"local_port,omitempty"`
	RemotePort          topo.ID           `json:"remote_port,omitempty"`
	LocalAddress        string            `json:"local_address,omitempty"`
	RemoteAddress       string            `json:"remote_address,omitempty"`
	ExpectedRoundTripNS int64             `json:"expected_round_trip_ns"`
}

// LaneHealth says whether a lane can carry bytes.
type LaneHealth string

// The values of LaneHealth.
const (
	LaneIdle      LaneHealth = "idle" // never used
	LaneDialling  LaneHealth = "dialling"
	LaneHealthy   LaneHealth = "healthy"
	LaneHalfOpen  LaneHealth = "half-open" // was sick, and is tried with one slice at a time
	LaneSick      LaneHealth = "sick"      // failed or stalled; it is dialled again after a while
	LaneSuspended LaneHealth = "suspended" // by Engine.Suspend
	LaneGone      LaneHealth = "gone"
)

// ServedStats is a connection over which a peer moves bytes to and from this engine's regions.
type ServedStats struct {
	// Conn is the peer's number for it, which logs and fences use too. Two peers may use
	// the same number.
	Conn          uint64            `json:"conn,string"`
	Peer          string            `json:"peer"` // what it calls itself
	Transport     pathsel.Transport `json:"transport"`
	LocalAddress  string            `json:"local_address,omitempty"`
	RemoteAddress string            `json:"remote_address,omitempty"`
	LocalPort     topo.ID           `json:"local_port,omitempty"`
	// ReadBytes and WrittenBytes are what the peer has read and written here, nil if it does
	// so without this engine's help.
	ReadBytes    *int64 `json:"read_bytes"`
	WrittenBytes *int64 `json:"written_bytes"`
}

// RegionStats describes a region of this engine.
type RegionStats struct {
	ID       uint64   `json:"id,string"`
	Name     string   `json:"name"`
	Bytes    int64    `json:"bytes"`
	Location string   `json:"location,omitempty"`
	Read     bool     `json:"peer_read"`
	Write    bool     `json:"peer_write"`
	Notes    []string `json:"notes,omitempty"` // requests for its memory that could not be met, and transports that do not have it
}

// Stats takes the engine's statistics.
func (e *Engine) Stats() Stats {
	s := Stats{
		Name: e.name, Epoch: e.epoch, Registry: e.published.Load(), Peers: []PeerStats{}, Regions: []RegionStats{}, ServedUncounted: []string{},
		Batches: e.count.batches.Load(), Failed: e.count.failed.Load(), Unsafe: e.count.unsafe.Load(),
		Slices: e.count.slices.Load(), Retries: e.count.retries.Load(), Fallback: e.count.fallbacks.Load(),
		Notifications: e.count.notifications.Load(),
	}
	s.RefusedReasons, s.DroppedConns = map[string]int64{}, map[string]int64{}
	s.Failures = e.count.failures.now()
	for _, c := range e.carriers {
		served := c.t.Served()
		if served.Uncounted {
			s.ServedUncounted = append(s.ServedUncounted, c.name)
		}
		s.ServedReadBytes += served.ReadBytes
		s.ServedWrittenBytes += served.WrittenBytes
		for why, count := range served.Refused {
			s.Refused += count
			s.RefusedReasons[why] += count
		}
		s.ServedConns += served.Conns
		for why, count := range served.Dropped {
			s.DroppedConns[why] += count
		}
	}
	s.Served, s.ServedUnlisted = e.servedStats()
	in := e.server.Counts()
	s.Sessions, s.RefusedConns = in.Sessions, map[string]int64{}
	for why, count := range in.Refused {
		s.RefusedConns[string(why)] = count
	}
	if in.Altered > 0 {
		s.DroppedConns["session-record"] = in.Altered
	}
	s.RefusedCalls = map[string]int64{}
	for why, count := range in.RefusedCalls {
		s.RefusedCalls[string(why)] = count
	}
	e.notifications.settle()
	s.PeerBytes, s.PeerBytesLimit = e.held.Taken()
	for _, r := range e.Regions() {
		if len(s.Regions) == regionsMost {
			s.RegionsUnlisted++
			s.RegionsUnlistedBytes += r.Size()
			continue
		}
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
		Name: p.name, Self: p.self, ID: uint32(p.id), Epoch: p.epoch, State: PeerOpen, RoundTripNS: int64(p.session.RoundTrip()),
		Quarantined: len(e.quarantines[p.epoch]),
	}
	if err := p.lost(); err != nil {
		s.State, s.Error = PeerLost, err.Error()
	}
	for b := e.first; b != nil; b = b.next {
		if b.peer == p {
			s.Batches++
		}
	}
	s.Regions = int(p.offered.Load())
	return s
}

// Lanes are the lanes to the peer; each is made when a batch first needs it.
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
		l := x.User.(*lane)
		if of != nil && l.peer != of {
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
		Peer: l.peer.name, Lane: l.name, ID: uint32(l.id), Transport: pathsel.Transport(l.carrier.name), Health: LaneHealth(x.Health), Measured: x.Measured,
		BytesPerSec: x.BytesPerSec, Bytes: x.DoneBytes, Slices: x.DoneSlices,
		InflightBytes: x.InflightBytes, InflightSlices: x.Inflight, WindowBytes: x.WindowBytes,
		Retries: x.Retries, Failures: x.Failures, LastError: x.LastError, Connection: l.described,
		LocalPort: l.localPort, RemotePort: l.remote.Port,
		RemoteAddress: l.remote.Address, ExpectedRoundTripNS: int64(l.rtt),
	}
	if l.local.IsValid() {
		s.LocalAddress = l.local.String()
	}
	switch {
	case l.gone:
		s.Health = LaneGone
	case l.suspended:
		s.Health = LaneSuspended
	}
	return s
}

// servedMost and regionsMost bound what is listed.
const (
	servedMost  = 256
	regionsMost = 256
)

// servedStats lists the connections by which peers have us open, and says how many more
// there are.
func (e *Engine) servedStats() (_ []ServedStats, more int) {
	out := []ServedStats{}
	var ports map[netip.Addr]topo.ID
	for _, c := range e.carriers {
		serving, ok := transport.As[transport.Serving](c.t)
		if !ok {
			continue
		}
		for _, x := range serving.Serves() {
			s := ServedStats{
				Conn: uint64(x.Conn), Peer: x.Name, Transport: pathsel.Transport(c.name), LocalAddress: x.LocalAddress, RemoteAddress: x.RemoteAddress,
				LocalPort: x.LocalPort, ReadBytes: x.ReadBytes, WrittenBytes: x.WrittenBytes,
			}
			if at, err := netip.ParseAddrPort(x.LocalAddress); err == nil && s.LocalPort == "" {
				if ports == nil {
					ports = e.portAddresses()
				}
				s.LocalPort = ports[at.Addr().Unmap().WithZone("")]
			}
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b ServedStats) int {
		return cmp.Or(cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Transport, b.Transport), cmp.Compare(a.Conn, b.Conn),
			cmp.Compare(a.RemoteAddress, b.RemoteAddress))
	})
	most := min(len(out), servedMost)
	return out[:most:most], len(out) - most
}

// portAddresses are the addresses of this host's ports, as far as its topology tells. Of
// one that several ports have (link-local ones) it is not known whose it is.
func (e *Engine) portAddresses() map[netip.Addr]topo.ID {
	out := map[netip.Addr]topo.ID{}
	if h := e.currentHost(); h != nil {
		for _, p := range h.Ports() {
			for _, a := range p.Addresses {
				if other, twice := out[a.Addr()]; twice && other != p.ID {
					out[a.Addr()] = ""
				} else {
					out[a.Addr()] = p.ID
				}
			}
		}
	}
	return out
}
