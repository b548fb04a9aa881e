package engine

import (
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/memory"
)

// Stats are an engine's counters since it began.
type Stats struct {
	Name     string        `json:"name"`
	Epoch    uint64        `json:"epoch,string"`
	Peers    []PeerStats   `json:"peers"`   // opened by us, by name
	Lanes    []LaneStats   `json:"lanes"`   // by peer and name
	Regions  []RegionStats `json:"regions"` // in the order of IDs
	Batches  int64         `json:"batches"` // ended
	Failed   int64         `json:"failed_batches"`
	Unsafe   int64         `json:"unsafe_batches"`
	Slices   int64         `json:"slices"`
	Retries  int64         `json:"retried_slices"`
	Fallback int64         `json:"transport_fallbacks"`
	// Served is what peers moved to and from our regions.
	ServedReadBytes    int64 `json:"served_read_bytes"`
	ServedWrittenBytes int64 `json:"served_written_bytes"`
	// ServedUncounted are the transports over which peers move bytes by themselves: those
	// are not in the figures above.
	ServedUncounted []string `json:"served_uncounted_transports"`
	// Served are the connections by which peers move those bytes, by peer and transport: at
	// most 256. ServedUnlisted is how many more there are.
	Served         []ServedStats `json:"served"`
	ServedUnlisted int           `json:"served_unlisted"`
	Refused        int64         `json:"refused_requests"` // of peers, by our checks
	ServedConns    int           `json:"served_conns"`     // open now
	Sessions       int           `json:"served_sessions"`  // peers that have us open now
	Notifications  int64         `json:"notifications"`    // received
}

// PeerStats is what is known of a peer that this engine has opened.
type PeerStats struct {
	Name        string `json:"name"`
	Self        string `json:"self"` // what it calls itself
	ID          uint32 `json:"id"`
	Epoch       uint64 `json:"epoch,string"`
	State       string `json:"state"` // "open" or "lost"
	RoundTripNS int64  `json:"round_trip_ns"`
	Batches     int64  `json:"batches"`         // running now
	Quarantined int    `json:"quarantined"`     // ranges of its memory
	Regions     int    `json:"remote_regions"`  // that it offers
	Error       string `json:"error,omitempty"` // why it is lost
}

// LaneStats is what is known of one lane.
type LaneStats struct {
	Peer      string `json:"peer"`
	Lane      string `json:"lane"`
	ID        uint32 `json:"id"`
	Transport string `json:"transport"`
	// Health is "idle" (never used), "dialling", "healthy", "half-open", "sick",
	// "suspended" or "gone".
	Health              string    `json:"health"`
	BytesPerSec         topo.Rate `json:"service_bytes_per_sec"` // 0 not known
	Measured            bool      `json:"measured"`
	Bytes               int64     `json:"bytes"`
	Slices              int64     `json:"slices"`
	InflightBytes       int64     `json:"inflight_bytes"`
	InflightSlices      int       `json:"inflight_slices"`
	WindowBytes         int64     `json:"window_bytes"`
	Retries             int64     `json:"retries"`
	Failures            int64     `json:"failures"`
	LastError           string    `json:"last_error,omitempty"`
	Connection          string    `json:"connection,omitempty"`
	LocalPort           topo.ID   `json:"local_port,omitempty"`
	RemotePort          topo.ID   `json:"remote_port,omitempty"`
	LocalAddress        string    `json:"local_address,omitempty"`
	RemoteAddress       string    `json:"remote_address,omitempty"`
	ExpectedRoundTripNS int64     `json:"expected_round_trip_ns"`
}

// ServedStats is a connection by which a peer moves bytes to and from our regions.
type ServedStats struct {
	// Conn is the peer's number of it, which logs and fences name. Two peers may have the
	// same.
	Conn          uint64  `json:"conn,string"`
	Peer          string  `json:"peer"` // what it calls itself
	Transport     string  `json:"transport"`
	LocalAddress  string  `json:"local_address,omitempty"`
	RemoteAddress string  `json:"remote_address,omitempty"`
	LocalPort     topo.ID `json:"local_port,omitempty"`
	// ReadBytes and WrittenBytes are what the peer took from here and put here; nil where
	// it moves bytes by itself.
	ReadBytes    *int64 `json:"read_bytes"`
	WrittenBytes *int64 `json:"written_bytes"`
}

// RegionStats describes a region of this engine.
type RegionStats struct {
	ID       memory.ID `json:"id,string"`
	Name     string    `json:"name"`
	Bytes    int64     `json:"bytes"`
	Location string    `json:"location,omitempty"`
	Read     bool      `json:"peer_read"`
	Write    bool      `json:"peer_write"`
	Notes    []string  `json:"notes,omitempty"` // what its memory did not get, and transports that do not have it
}
