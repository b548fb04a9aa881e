// Package state is what the dashboard knows: it takes records in and holds the host, the
// histories of its ports and lanes, a probe's progress and the events. It is pure: the
// time is that of the records and ticks. All that grows is bounded.
package state

import (
	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/internal/watch"
	"github.com/topoctl/topoctl/pathsel/diff"
	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/probe"
)

// State is what is known at Now. Fields are read by views and changed by Apply and
// Tick only.
type State struct {
	Now   int64 // the time of the feed: that of the last record or tick
	Start record.Start

	Topology *topo.Topology // nil until there is one
	Overlay  topo.Overlay
	// Measured is the report that the dashboard was given, nil none. Probe has what was
	// measured since.
	Measured *probe.Report
	Doctor   *doctor.Report // nil until there is a topology
	// Drift is the difference to the baseline, or to the first topology of the feed
	// (BaselineName is "" then).
	Drift        *diff.Report
	BaselineName string

	Ports map[topo.ID]*Port // of RDMA ports and interfaces that have counters
	Links map[topo.ID]counters.Link
	GPUs  map[topo.ID]*GPU
	// Recent are the latest looks at the counters, the oldest first, at most MaxRecent.
	Recent []*counters.Sample
	// CounterNotes say what could not be read at the last look.
	CounterNotes []string

	Engines []*Engine // by source
	Probe   *Probe    // nil: no probe was seen

	Events  []watch.Event // the oldest first, at most MaxEvents
	Dropped int           // events that there was no room for
	Sources []Source      // by name

	applyState
}

// The bounds of what grows.
const (
	MaxEvents  = 1000
	HistoryLen = 120 // values of a Series
	MaxSources = 64
	MaxPorts   = 4096
	MaxGPUs    = 1024
	MaxLanes   = 1024    // of an engine, and as many connections that it serves
	MaxResults = 1 << 15 // pairs of a probe
	MaxErrors  = 100     // of a probe
	MaxRecent  = 30      // looks at the counters
)

// Port is what is known of a port's traffic. Rates are nil until two looks were taken, and
// where the last look did not find the port; it is forgotten goneNS later.
type Port struct {
	counters.Port
	LastNS                               int64 // when it was seen last, on State.Now
	Seen                                 bool  // by the last look: State and BytesPerSec are of now
	SentBytesPerSec, ReceivedBytesPerSec *topo.Rate
	Sent, Received                       Series // bytes per second
	// RecentErrors are the error counters that moved within the last minute, and by how much
	// in it.
	RecentErrors map[string]uint64
	Flaps        int // times it went down since the feed began

	errorMoves []errorMove // of error counters, the oldest first
}

// GPU is what is known of a GPU's load.
type GPU struct {
	counters.GPU
	LastNS                                             int64  // when it was seen last, on State.Now
	Utilization                                        Series // percent
	PCIeSent, PCIeReceived, NVLinkSent, NVLinkReceived Series // bytes per second
}

// Engine is an engine that an agent reports.
type Engine struct {
	Source string // "agent http://127.0.0.1:9411"
	Last   *record.Engine
	LastNS int64
	Lanes  []*Lane   // in the order of Last.Lanes
	Served []*Served // in the order of Last.Served
	// What peers took from and put into this engine's memory.
	ReadBytesPerSec, WrittenBytesPerSec Series
}

// Lane is a lane with its history.
type Lane struct {
	engine.LaneStats
	Throughput Series // bytes per second
	Retried    int64  // slices sent again since this dashboard first saw the lane
}

// Served is a connection of a peer with its history.
type Served struct {
	engine.ServedStats
	Throughput Series // bytes per second, both directions together; NaN where they are not counted
}

// Probe is a probe that runs or ran.
type Probe struct {
	// Report has what was measured so far: results, blame and summary as of the last
	// event. Results are in the order in which they came, at the end by ID.
	Report  *probe.Report
	Running bool
	Round   int // counts from 1
	Retest  bool
	Active  []string // IDs of the pairs that are being measured
	// Samples are the latest samples of the Active pairs, by ID.
	Samples map[string]probe.Sample
	BeganNS int64 // on State.Now
	// RemainingNS is until the rounds end, by what rounds took so far; 0 not known.
	RemainingNS int64
	Done        int      // pairs that were measured, or could not be
	ResultsSeen int      // results, repeated ones included
	Errors      []string // the latest MaxErrors
	// Omitted are pairs with results beyond MaxResults, which are not in Report.
	Omitted int

	placeOf map[string]int // the place of a pair's result

	roundBeganNS, doneRoundsNS int64 // when the round began, and how long those before took
	doneRounds                 int   // before this one
}

// Source is how one source does.
type Source struct {
	Name   string
	Status string // record.StatusOK, ...
	Detail string
	Failed bool  // Status is failed, or was when the source ended; Detail says why
	LastNS int64 // of its last news, on State.Now

	hasNews  bool
	periodNS int64 // that they come in, 0 not known
	filledNS int64 // until when the histories that it feeds have values
}
