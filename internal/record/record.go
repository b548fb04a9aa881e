// Package record is what the dashboard is fed with and what is kept of it: records of a
// host, of its counters, of an engine, of a probe, each with its time, as lines of JSON
// (topoctl.record/v1). Whoever replays them sees what was seen.
package record

import (
	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/probe"
)

// Schema is the name and major version of a line.
const Schema = "topoctl.record/v1"

// Record is one piece of news. Exactly one of the pointers is set, or State is.
type Record struct {
	Schema string `json:"schema"`
	AtNS   int64  `json:"at_ns"` // since the feed began
	// Source says where it is from: SourceHost, SourceCounters, SourceProbe, or "agent URL".
	Source   string           `json:"source"`
	Start    *Start           `json:"start,omitempty"`
	Topology *topo.Topology   `json:"topology,omitempty"`
	Counters *counters.Sample `json:"counters,omitempty"`
	Engine   *Engine          `json:"engine,omitempty"`
	Probe    *probe.Event     `json:"probe,omitempty"`
	// State is how the source does where that has changed.
	State *SourceState `json:"state,omitempty"`
}

// The sources that every feed may have.
const (
	SourceHost     = "host"
	SourceCounters = "counters"
	SourceProbe    = "probe"
	AgentPrefix    = "agent " // + its URL
)

// Start is the first line of a recording.
type Start struct {
	Tool      topo.Tool `json:"tool"`
	At        string    `json:"at"`                  // RFC 3339, UTC
	Host      string    `json:"host"`                // what is looked at: "live", "fixture:dgx-h100"
	Synthetic string    `json:"synthetic,omitempty"` // what about the feed is made up; "" nothing
}

// SourceState says that a source works, is late, failed, or is gone.
type SourceState struct {
	Status string `json:"status"` // StatusOK, StatusWaiting, StatusFailed, StatusEnded
	Detail string `json:"detail,omitempty"`
}

// How a source does.
const (
	StatusOK      = "ok"
	StatusWaiting = "waiting" // it was asked and has not answered for longer than it should take
	StatusFailed  = "failed"  // Detail says why; it is asked again
	StatusEnded   = "ended"   // no more will come
)
