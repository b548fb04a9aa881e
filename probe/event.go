package probe

import (
	"fmt"

	"github.com/topoctl/topoctl/internal/base/jsontext"
)

// EventSchema is the name and major version of the lines that a run writes.
const EventSchema = "topoctl.probe-event/v1"

// EventType says what an event tells.
type EventType string

// The events, each a line of JSON. A run begins with start and, if nobody stops it,
// ends with end.
const (
	EventStart  EventType = "start"  // Start: what is about to be measured
	EventRound  EventType = "round"  // Round: pairs begin
	EventSample EventType = "sample" // Sample
	EventResult EventType = "result" // Result; a later one of the same pair replaces it
	EventRetest EventType = "retest" // Retest
	EventError  EventType = "error"  // Error: something went wrong, the run goes on
	EventEnd    EventType = "end"    // End
)

// Event is one line of a run's log (topoctl.probe-event/v1). Only the field of its type
// is set.
type Event struct {
	Schema string    `json:"schema"`
	Type   EventType `json:"event"`
	AtNS   int64     `json:"at_ns"` // since the run began
	// Start is the report before the first measurement: hosts, links and plan, no results.
	Start  *Report      `json:"start,omitempty"`
	Round  *RoundEvent  `json:"round,omitempty"`
	Sample *SampleEvent `json:"sample,omitempty"`
	Result *Result      `json:"result,omitempty"`
	Retest *RetestEvent `json:"retest,omitempty"`
	Error  string       `json:"error,omitempty"`
	End    *Outcome     `json:"end,omitempty"`
}

// RoundEvent says that a round begins.
type RoundEvent struct {
	Round  int      `json:"round"`  // counts from 1; retests go on counting
	Rounds int      `json:"rounds"` // as planned, without retests
	Pairs  []string `json:"pairs"`  // IDs
}

// SampleEvent is one sample of a pair.
type SampleEvent struct {
	Pair string `json:"pair"`
	Sample
}

// RetestEvent is a retest because of a pair.
type RetestEvent struct {
	Of string `json:"of_pair"` // the doubtful one
	Retest
}

// Outcome is what is known at the end only.
type Outcome struct {
	DurationNS int64    `json:"duration_ns"`
	Complete   bool     `json:"complete"`
	Hosts      []Host   `json:"hosts"` // with the errors that they met
	Blame      []Blame  `json:"blame"`
	Summary    Summary  `json:"summary"`
	Notes      []string `json:"notes,omitempty"`
}

// StartEvent is the first line of a run: the report without results.
func StartEvent(r *Report) *Event {
	start := *r
	start.Results, start.Blame = nil, nil
	return &Event{Type: EventStart, Start: &start}
}

// EndEvent is the last line of a run.
func EndEvent(r *Report) *Event {
	return &Event{Type: EventEnd, AtNS: r.DurationNS, End: &Outcome{DurationNS: r.DurationNS, Complete: r.Complete,
		Hosts: r.Hosts, Blame: r.Blame, Summary: r.Summary, Notes: r.Notes}}
}

// Encode writes the event as one line with its line end. The event is left as it is.
func (e *Event) Encode() ([]byte, error) {
	n := *e
	n.Schema = EventSchema
	if n.Start != nil {
		n.Start = n.Start.normal()
	}
	if n.Round != nil {
		round := *n.Round
		round.Pairs = names(round.Pairs)
		n.Round = &round
	}
	if n.Result != nil {
		result := *n.Result
		result.normal()
		n.Result = &result
	}
	if n.End != nil {
		r := (&Report{Hosts: n.End.Hosts, Blame: n.End.Blame}).normal()
		end := *n.End
		end.Hosts, end.Blame = r.Hosts, r.Blame
		n.End = &end
	}
	line, err := jsontext.Line(&n)
	if err != nil {
		return nil, fmt.Errorf("probe: encode event %q: %w", e.Type, err)
	}
	return line, nil
}
