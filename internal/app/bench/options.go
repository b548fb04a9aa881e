package bench

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/base/pick"
)

// The ops and what stands for any transport.
const (
	Read  = "read"
	Write = "write"
	Auto  = "auto"
)

// Options say what to measure. Lists are measured in all combinations.
type Options struct {
	Peer string // host:port
	// OpenTimeout is how long the peer may take to be opened, 0: as long as it wants.
	OpenTimeout time.Duration
	Token       []byte
	Region      string // of the peer
	Ops         []string
	Sizes       []int64 // bytes of an op
	Batch       int     // ops; 0: as many as make 16 MiB, at most 128
	Threads     int
	InFlight    int      // batches of each thread
	Transports  []string // "auto", "rdma", "tcp", "shm"
	// Engine are the transports of the engines that measure; nil: the engine's default.
	Engine   []engine.TransportFactory
	Policies []pick.Policy
	// Lanes are the names (or local ports) of the only lanes to use, LaneCount how
	// many of the best of each transport; neither: all.
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
	// ChildPID is the process ID of the agent where the caller started it: its
	// processor time is counted. 0: somebody else's.
	ChildPID int
	// RawEnd starts the other end of raw sockets on this host.
	RawEnd func(ctx context.Context, c RawConfig) (*RawEnd, error)
	// Progress is told now and then what is going on, nil: nobody is.
	Progress func(Progress)
	// Show is given the engines that measure before anything is measured, nil: nobody is.
	// What it returns is called when they are about to be closed.
	Show func(*Engines) (stop func(), err error)
	Tool topo.Tool
	Now  func() time.Time
}

// FaultPlan takes a lane out of use at a time of each measurement, and back in
// after For, 0: at the end.
type FaultPlan struct {
	Lane    string
	At, For time.Duration
}

// Progress is how far a run is.
type Progress struct {
	What        string // "write 64 KiB, tcp, adaptive"
	Step, Steps int
	BytesPerSec int64 // of late
	Left        time.Duration
}

// The limits of automatic batches.
const (
	autoBatchBytes = 16 << 20
	maxAutoBatch   = 128
)

// batchFor is how many ops of a size go into a batch.
func (o *Options) batchFor(size int64) int {
	if o.Batch > 0 {
		return o.Batch
	}
	return int(min(maxAutoBatch, max(1, autoBatchBytes/size)))
}

// A round is at least so long, and a measurement has at most so many of them.
const (
	minRound  = 100 * time.Millisecond
	maxRounds = 7
)

// rounds is in how many pieces each measurement is cut, so that those of a
// comparison can take turns. A fault has a time, so nothing is cut there.
func (o *Options) rounds() int {
	if o.Fault != nil {
		return 1
	}
	return int(min(maxRounds, max(1, o.Duration/minRound)))
}

// UnknownLaneError says that no lane has a name.
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

// ownAddress says whether an address is one of this host's.
func ownAddress(a netip.Addr, own []netip.Addr) bool {
	if a = a.Unmap(); a.IsLoopback() {
		return true
	}
	for _, o := range own {
		if o.Unmap().WithZone("") == a.WithZone("") {
			return true
		}
	}
	return false
}
