// Package tui is the dashboard of topoctl: what a host looks like, what is wrong with it and what
// moves where, live or replayed. It only draws; all access to hosts is by the Feed and the Prober
// in its Options.
package tui

import (
	"context"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
)

// Feed delivers records until ctx ends. It calls tell from one goroutine at a time, in the
// order of time, and returns when no more will come.
type Feed interface {
	Run(ctx context.Context, tell func(*record.Record)) error
	// Rescan asks for a new look at the host, soon.
	Rescan()
}

// Prober measures pairs on request.
type Prober interface {
	// Pairs lists what can be measured. It may ask agents, but sends no load. An error together
	// with pairs says what is missing.
	Pairs(ctx context.Context) ([]probe.Pair, error)
	// Plan says what measuring these pairs would take, without sending anything.
	Plan(pairs []string) (probe.Plan, error)
	// Run measures. Events come in order, from one goroutine at a time.
	Run(ctx context.Context, pairs []string, tell func(*probe.Event)) error
}

// Options say what the dashboard shows, and how.
type Options struct {
	Feed Feed
	// Prober is nil if nothing can be measured; NoProber says why.
	Prober   Prober
	NoProber string
	// Baseline is the topology that drift is measured against; nil means the first topology of the feed.
	Baseline     *topo.Topology
	BaselineName string
	Overlay      topo.Overlay  // measured rates of links, from a probe's report
	Measured     *probe.Report // that report, nil none
	MeasuredName string        // its file
	// Counters says that the feed brings samples of counters, and Agents how many agents it asks:
	// Frame waits for these.
	Counters bool
	Agents   int
	// Replay is the name of the recording that the feed plays; "" it is live.
	Replay       string
	Now          func() time.Time
	Color, ASCII bool
	Mouse        bool
	Suspend      bool // ctrl+z returns to a shell, which can resume the dashboard
	Units        units.System
	View         string // the first view: "tree", ...
	// Save writes a snapshot or a copied selection under a name, and returns where it is; nil
	// means that nothing can be written.
	Save func(name string, data []byte) (string, error)
	// Record begins a recording; nil means that nothing can be written.
	Record func() (Recording, error)
	// RecordAtOnce begins a recording at the start.
	RecordAtOnce bool
}

// Recording takes records until it is closed.
type Recording interface {
	Write(*record.Record) error
	Close() error
	Name() string
}
