package bench

import (
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pick"
)

// Schema is the name and major version of a report.
const Schema = "topoctl.bench/v1"

// Report is what a run measured.
type Report struct {
	Schema    string    `json:"schema"`
	Tool      topo.Tool `json:"tool"`
	Host      string    `json:"host"`
	StartedAt time.Time `json:"started_at"`
	// Complete is false where a measurement failed or the run ended early: what is there was
	// measured, the results that are not complete for a shorter time than asked for.
	Complete bool   `json:"complete"`
	Peer     Peer   `json:"peer"`
	Memory   Memory `json:"memory"`
	CPUs     int    `json:"cpus"` // that this process may use
	// Unavailable are the transports that this host cannot have, and why.
	Unavailable []string `json:"unavailable"`
	// Results and Ceilings are in the order of the request.
	Results  []Result  `json:"results"`
	Ceilings []Ceiling `json:"ceilings"`
}

// Peer is the other end.
type Peer struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Region  string `json:"region"`
	// OwnChild says that the run started the agent at the other end itself.
	OwnChild bool `json:"own_child"`
	// SameHost says that its address is one of this host's.
	SameHost bool `json:"same_host"`
}

// Memory is what the ops went through.
type Memory struct {
	LocalBytes  int64 `json:"local_bytes"`
	RemoteBytes int64 `json:"remote_bytes"`
	// WorkingSetBytes is both together: below the size of the caches, rates are
	// those of caches.
	WorkingSetBytes int64 `json:"working_set_bytes"`
	// Layout is "scattered": ops that follow each other in the local memory lie
	// apart in the remote one.
	Layout    string   `json:"layout"`
	PageBytes int64    `json:"page_bytes"` // of the local memory
	Notes     []string `json:"notes"`      // what the local memory did not get
}

// Result is one measurement.
type Result struct {
	Op        string      `json:"op"`         // "read" or "write"
	Transport string      `json:"transport"`  // that was asked for, "auto" any
	Policy    pick.Policy `json:"policy"`     // by which lanes shared it: always "adaptive"
	SizeBytes int64       `json:"size_bytes"` // of one op
	Batch     int         `json:"batch"`      // ops
	Threads   int         `json:"threads"`
	InFlight  int         `json:"in_flight"` // batches of each thread

	DurationNS  int64 `json:"duration_ns"`
	Bytes       int64 `json:"bytes"`
	Ops         int64 `json:"ops"`
	BytesPerSec int64 `json:"bytes_per_sec"`
	OpsPerSec   int64 `json:"ops_per_sec"`
	// RoundsBytesPerSec are the rates of the rounds, which alternated with those of
	// the other transports and the ceilings.
	RoundsBytesPerSec []int64 `json:"rounds_bytes_per_sec"`
	Latency           Latency `json:"latency_ns"`
	// CPUSecondsPerGB is the processor time, user and system, of both ends for 10^9
	// bytes; null where the peer's is not known (it is known of processes that the
	// run started).
	CPUSecondsPerGB      *float64 `json:"cpu_seconds_per_gb"`
	LocalCPUSecondsPerGB *float64 `json:"local_cpu_seconds_per_gb"`
	PeerCPUSecondsPerGB  *float64 `json:"peer_cpu_seconds_per_gb"`

	Lanes []LaneResult `json:"lanes"` // that carried something, by name
	// Checksum says whether slices carried a checksum, and why.
	Checksum string `json:"checksum"`
	// CongestionControl is that of the lanes' sockets, null without sockets.
	CongestionControl *string `json:"congestion_control"`
	Retries           int64   `json:"retries"`   // slices that were sent again
	Fallbacks         int64   `json:"fallbacks"` // to a worse transport
	Verified          *Check  `json:"verified"`  // null: not asked for
	Fault             *Fault  `json:"fault"`     // null: not asked for
	// Complete is false where it was measured for a shorter time than asked for, or not at all.
	Complete bool `json:"complete"`
	// Error is why it failed, null where it did not.
	Error *string `json:"error"`

	// The rate as a part of the ceilings, that of the copies by as many threads
	// (at most the processors);
	// null where those were not measured, or every byte was verified.
	OfRawSocket     *float64 `json:"of_raw_socket"`
	OfMemcpy        *float64 `json:"of_memcpy"`
	OfStreamingCopy *float64 `json:"of_streaming_copy"`
}

// Latency is the time from the submission of a batch to its end, percentiles by
// nearest rank and at most 0.8 % too high; null without samples.
type Latency struct {
	P50 *int64 `json:"p50"`
	P90 *int64 `json:"p90"`
	P99 *int64 `json:"p99"`
	// P999 needs 1000 samples.
	P999 *int64 `json:"p99_9"`
	Max  *int64 `json:"max"`
	N    int64  `json:"n"`
}

// LaneResult is what one lane did during a measurement.
type LaneResult struct {
	Lane       string `json:"lane"`
	Transport  string `json:"transport"`
	Bytes      int64  `json:"bytes"`
	Slices     int64  `json:"slices"`
	Retries    int64  `json:"retries"`
	Connection string `json:"connection"`
}

// Check is what a verification of every byte found.
type Check struct {
	Bytes           int64 `json:"bytes"`
	MismatchedBytes int64 `json:"mismatched_bytes"`
	MismatchedOps   int64 `json:"mismatched_ops"`
	// First is where the first wrong byte was, null without any.
	First *string `json:"first"`
}

// Fault is a lane that was taken out of use during a measurement.
type Fault struct {
	Lane string `json:"lane"`
	// AtNS and ResumedAtNS are since the measurement began, null: not resumed
	// before its end.
	AtNS        int64  `json:"at_ns"`
	ResumedAtNS *int64 `json:"resumed_at_ns"`
	// The rates before the fault, while the lane was out, and after it came back.
	BeforeBytesPerSec *int64 `json:"before_bytes_per_sec"`
	DuringBytesPerSec *int64 `json:"during_bytes_per_sec"`
	AfterBytesPerSec  *int64 `json:"after_bytes_per_sec"`
	// LongestGapNS is the longest time after the fault in which no batch ended.
	LongestGapNS *int64 `json:"longest_gap_ns"`
}

// The kinds of ceilings.
const (
	RawSocket     = "raw-socket"
	RawVerbs      = "raw-verbs"
	Memcpy        = "memcpy"
	StreamingCopy = "streaming-copy"
)

// Ceiling is what the machine does without an engine.
type Ceiling struct {
	Kind string `json:"kind"`
	// Op and SizeBytes are those of the results that it took turns with.
	Op                string   `json:"op"`
	SizeBytes         int64    `json:"size_bytes"`
	Streams           int      `json:"streams"` // sockets, or threads that copy
	BytesPerSec       *int64   `json:"bytes_per_sec"`
	RoundsBytesPerSec []int64  `json:"rounds_bytes_per_sec"`
	CPUSecondsPerGB   *float64 `json:"cpu_seconds_per_gb"` // of both ends
	CongestionControl *string  `json:"congestion_control"`
	WorkingSetBytes   int64    `json:"working_set_bytes"`
	// Reason says why it was not measured, null where it was.
	Reason *string `json:"reason"`
}

// Bad says whether the run found something wrong: bytes that differ, or transfers
// that failed.
func (r *Report) Bad() bool {
	for i := range r.Results {
		if v := r.Results[i].Verified; v != nil && v.MismatchedBytes > 0 || r.Results[i].Error != nil {
			return true
		}
	}
	return false
}

// percentilesFrom is how many samples a percentile beyond the 99th needs.
const percentilesFrom = 1000

func latencyOf(r *recorder) Latency {
	out := Latency{N: r.n}
	if r.n == 0 {
		return out
	}
	at := func(p int64) *int64 { v := r.perMille(p); return &v }
	out.P50, out.P90, out.P99 = at(500), at(900), at(990)
	if r.n >= percentilesFrom {
		out.P999 = at(999)
	}
	most := r.max
	out.Max = &most
	return out
}
