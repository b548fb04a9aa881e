package record

import "github.com/topoctl/topoctl/discover/topo"

// Engine is what an agent (or a bench) says of its engine over HTTP: the fields of
// topoctl.engine/v1 that the dashboard shows. See engine.Stats for what they mean.
type Engine struct {
	Name               string         `json:"name"`
	Peers              []EnginePeer   `json:"peers"`
	Lanes              []EngineLane   `json:"lanes"`
	Served             []EngineServed `json:"served"`
	ServedUnlisted     int            `json:"served_unlisted"` // connections that are not in Served
	Batches            int64          `json:"batches"`
	Failed             int64          `json:"failed_batches"`
	Unsafe             int64          `json:"unsafe_batches"`
	Slices             int64          `json:"slices"`
	Retries            int64          `json:"retried_slices"`
	Fallback           int64          `json:"transport_fallbacks"`
	ServedReadBytes    int64          `json:"served_read_bytes"`
	ServedWrittenBytes int64          `json:"served_written_bytes"`
	ServedUncounted    []string       `json:"served_uncounted_transports"`
	Refused            int64          `json:"refused_requests"`
	Sessions           int            `json:"served_sessions"`
	// Recent are the latest batches, the newest first.
	Recent []EngineBatch `json:"recent_batches"`
	// Notes say what of an answer was left out.
	Notes []string `json:"notes,omitempty"`
}

// EnginePeer is a peer that the engine has opened.
type EnginePeer struct {
	Name        string `json:"name"`
	State       string `json:"state"`
	RoundTripNS int64  `json:"round_trip_ns"`
	Batches     int64  `json:"batches"`
	Error       string `json:"error,omitempty"`
}

// EngineLane is a lane to a peer.
type EngineLane struct {
	Peer           string    `json:"peer"`
	Lane           string    `json:"lane"`
	ID             uint32    `json:"id"`
	Transport      string    `json:"transport"`
	Health         string    `json:"health"`
	BytesPerSec    topo.Rate `json:"service_bytes_per_sec"` // 0 not known
	Measured       bool      `json:"measured"`
	Bytes          int64     `json:"bytes"`
	Slices         int64     `json:"slices"`
	InflightBytes  int64     `json:"inflight_bytes"`
	InflightSlices int       `json:"inflight_slices"`
	WindowBytes    int64     `json:"window_bytes"`
	Retries        int64     `json:"retries"`
	Failures       int64     `json:"failures"`
	LastError      string    `json:"last_error,omitempty"`
	LocalPort      topo.ID   `json:"local_port,omitempty"`
	RemotePort     topo.ID   `json:"remote_port,omitempty"`
	LocalAddress   string    `json:"local_address,omitempty"`
	RemoteAddress  string    `json:"remote_address,omitempty"`
}

// EngineServed is a connection by which a peer moves bytes to and from this engine's
// memory. Two peers may give theirs the same number: Conn, Peer, Transport and RemoteAddress
// together tell connections apart.
type EngineServed struct {
	Conn          uint64  `json:"conn,string"`
	Peer          string  `json:"peer"` // what it calls itself
	Transport     string  `json:"transport"`
	LocalAddress  string  `json:"local_address,omitempty"`
	RemoteAddress string  `json:"remote_address,omitempty"`
	LocalPort     topo.ID `json:"local_port,omitempty"`
	// Bytes are nil where the peer moves them by itself (shared memory, RDMA).
	ReadBytes    *int64 `json:"read_bytes"`
	WrittenBytes *int64 `json:"written_bytes"`
}

// EngineBatch is the explanation of a batch, shortened.
type EngineBatch struct {
	Peer       string        `json:"peer"`
	Label      string        `json:"label,omitempty"`
	State      string        `json:"state"`
	Error      string        `json:"error,omitempty"`
	Bytes      int64         `json:"bytes"`
	Total      int64         `json:"of_bytes"`
	Ops        int           `json:"ops"`
	DurationNS int64         `json:"duration_ns"`
	EndedAgoNS int64         `json:"ended_ago_ns"` // 0 while it runs
	Retries    int64         `json:"retries"`
	Routes     []EngineRoute `json:"routes"`
	Notes      []string      `json:"notes,omitempty"`
}

// EngineRoute is what was decided for one pair of memory locations of a batch.
type EngineRoute struct {
	Local  string          `json:"local"`
	Remote string          `json:"remote"`
	Bytes  int64           `json:"bytes"`
	Groups []EngineGroup   `json:"groups"`
	Used   []EngineLaneUse `json:"used"`
}

// EngineGroup is what one transport offered.
type EngineGroup struct {
	Transport string            `json:"transport"`
	Reason    string            `json:"reason,omitempty"`
	Lanes     []EngineCandidate `json:"lanes"`
	Rejected  []string          `json:"rejected,omitempty"`
}

// EngineCandidate is a lane that was considered.
type EngineCandidate struct {
	Lane    string `json:"lane"`
	Verdict string `json:"verdict"` // "chosen" or "failover"
	Reason  string `json:"reason"`
	Health  string `json:"health"`
	// ExpectedBytesPerSec is what it carries alone, nil not known.
	ExpectedBytesPerSec *topo.Rate `json:"expected_bytes_per_sec"`
}

// EngineLaneUse is what one lane did for a batch.
type EngineLaneUse struct {
	Lane      string `json:"lane"`
	Transport string `json:"transport"`
	Bytes     int64  `json:"bytes"`
	Slices    int64  `json:"slices"`
	Retries   int64  `json:"retries"`
	FirstNS   int64  `json:"first_ns"`
	LastNS    int64  `json:"last_ns"`
	Error     string `json:"error,omitempty"`
}
