// Package tui is the dashboard of topoctl: what a host looks like, what is wrong with it
// and what moves where, live or replayed. It draws and decides; the feed and the prober
// that it is given touch the host.
package tui

import (
	"context"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/app/record"
	"github.com/topoctl/topoctl/internal/base/units"
	"github.com/topoctl/topoctl/probe"
)

// Feed brings records until ctx ends. It calls tell from one goroutine at a time, in the
// order of time, and returns when no more will come.
type Feed interface {
	Run(ctx context.Context, tell func(*record.Record)) error
	// Rescan asks for a new look at the host, soon.
	Rescan()
}

// Prober measures pairs, and only when it is told to.
type Prober interface {
	// Pairs says what could be measured. It may ask agents; it sends no load. An error beside
	// pairs says what is missing.
	Pairs(ctx context.Context) ([]probe.Pair, error)
	// Plan says what measuring these pairs would take, without sending anything.
	Plan(pairs []string) (probe.Plan, error)
	// Run measures. Events come in order, from one goroutine at a time.
	Run(ctx context.Context, pairs []string, tell func(*probe.Event)) error
}

// Options say what the dashboard shows, and how.
type Options struct {
	Feed Feed
	// Prober is nil where nothing can be measured; NoProber says why.
	Prober   Prober
	NoProber string
	// Baseline is what drift is against; nil: the first topology of the feed.
	Baseline     *topo.Topology
	BaselineName string
	Overlay      topo.Overlay  // measured rates of links, from a probe's report
	Measured     *probe.Report // that report, nil none
	MeasuredName string        // its file
	// Counters says that the feed brings samples of counters, Agents how many agents it asks:
	// what Frame waits for.
	Counters bool
	Agents   int
	// Replay is the name of the recording that the feed plays; "" it is live.
	Replay       string
	Now          func() time.Time
	Color, ASCII bool
	Mouse        bool
	Suspend      bool // there is a shell to which ctrl+z goes, and which comes back
	Units        units.System
	View         string // the first view: "tree", ...
	// Save writes a snapshot or a copied selection under a name, and says where it is; nil: there is
	// nowhere to write.
	Save func(name string, data []byte) (string, error)
	// Record begins a recording, and says where it is written; nil: there is nowhere to write.
	Record func() (Recording, error)
	// RecordAtOnce begins one with the dashboard.
	RecordAtOnce bool
}

// Recording takes records until it is closed.
type Recording interface {
	Write(*record.Record) error
	Close() error
	Name() string
}
