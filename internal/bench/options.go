package bench

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/engine/trust"
)

// Auto is the name for any transport.
const Auto = "auto"

// Options say what to measure: all combinations of the lists.
type Options struct {
	Peer string // host:port, or a name of Registry
	// Registry finds the peer; nil: by its address.
	Registry registry.Registry
	// Timeout bounds all waits together for a peer that does not answer or moves nothing; 0: unlimited.
	// Waited is the part of it that has passed already.
	Timeout, Waited time.Duration
	Credentials     func() *trust.Credentials // nil: none
	Region          string                    // of the peer
	Ops             []engine.OpKind
	Sizes           []int64 // bytes of an op
	Batch           int     // ops; 0: as many as make 16 MiB, at most 128
	Threads         int
	InFlight        int      // batches of each thread
	Transports      []string // "auto", "rdma", "tcp", "shm"
	// Engine are the transports of the engines that measure; nil: the engine's default.
	Engine []engine.TransportFactory
	// Protection is what the engines' data connections have at least (engine.Options).
	Protection engine.Protection
	// Lanes are the names (or local ports) of the lanes to use; LaneCount is how many of
	// the best lanes of each transport to use. Neither: all lanes.
	Lanes     []string
	LaneCount int
	Duration  time.Duration // of each measurement
	Warmup    time.Duration
	Memory    int64 // bytes to walk through on each side, less where the peer's region is smaller
	Check     bool  // verify every byte
	Seed      uint64
	Fault     *FaultPlan
	Topology  *topo.Topology // of this host, nil not known
	Overlay   topo.Overlay   // measured rates of its links
	// ChildPID is the process ID of the agent if the caller started it: its processor time
	// is counted. 0: not started by the caller.
	ChildPID int
	// Progress, if not nil, is called every Tick.
	Progress func(Progress)
	// Show, if not nil, is called with the engine that measures before it does. The function that it
	// returns, if not nil, is called before the engine is closed.
	Show func(*engine.Engine) (stop func(), err error)
	Tool topo.Tool
	Now  func() time.Time
}

// FaultPlan suspends a lane at a time of each measurement, and resumes it after For; 0: at the
// end.
type FaultPlan struct {
	Lane    string
	At, For time.Duration
}

// Progress is the progress of a run.
type Progress struct {
	What        string // "write 64 KiB, tcp"
	Step, Steps int
	BytesPerSec int64 // of late
	Left        time.Duration
}

// The limits of automatic batches.
const (
	autoBatchBytes = 16 << 20
	maxAutoBatch   = 128
)

// batchFor is the number of ops of a size in a batch.
func (o *Options) batchFor(size int64) int {
	if o.Batch > 0 {
		return o.Batch
	}
	return int(min(maxAutoBatch, max(1, autoBatchBytes/size)))
}

// Bounds of the rounds of a measurement.
const (
	minRound  = 100 * time.Millisecond
	maxRounds = 7
)

// rounds is the number of rounds of each measurement, so that those of a comparison can
// alternate. With a fault, which happens at a certain time, it is one.
func (o *Options) rounds() int {
	if o.Fault != nil {
		return 1
	}
	return int(min(maxRounds, max(1, o.Duration/minRound)))
}

// UnknownLaneError is the error for a name that no lane has.
type UnknownLaneError struct {
	Name  string
	Lanes []string // that there are
}

func (e *UnknownLaneError) Error() string {
	if len(e.Lanes) == 0 {
		return fmt.Sprintf("no lane %q: there are no lanes to the peer", e.Name)
	}
	quoted := make([]string, len(e.Lanes))
	for i, l := range e.Lanes {
		quoted[i] = fmt.Sprintf("%q", l)
	}
	return fmt.Sprintf("no lane %q: the lanes are %s", e.Name, strings.Join(quoted, ", "))
}

// PeerGoneError is the error of a run whose peer went away.
type PeerGoneError struct {
	Peer   string // its name
	During string // the measurement
	Err    error  // the engine's
}

// known is what is known of the peer, and what to do. Only the peer's own word, or its host's, says that
// its process has ended: a link that is down looks like silence.
func (e *PeerGoneError) known() (why, next string) {
	switch {
	case errors.Is(e.Err, engine.ErrPeerRestarted):
		return "it was started again", "see why the agent on the other host ended, and repeat the benchmark"
	case errors.Is(e.Err, engine.ErrPeerEnded):
		return "it closed the session", "see the log of the agent on the other host, and repeat the benchmark"
	case errors.Is(e.Err, syscall.ECONNREFUSED):
		return "its host refuses connections", "see whether the agent on the other host still runs; if not, see why it ended, start it again, and repeat the benchmark"
	}
	return "it does not answer any more", "the agent may still run: check the links and the network between the hosts, then the other host, and repeat the benchmark"
}

func (e *PeerGoneError) Error() string {
	why, _ := e.known()
	return fmt.Sprintf("the peer %s was lost during %s: %s", e.Peer, e.During, why)
}

// Hint is the next step.
func (e *PeerGoneError) Hint() string {
	_, next := e.known()
	return next
}

func (e *PeerGoneError) Unwrap() error { return e.Err }
