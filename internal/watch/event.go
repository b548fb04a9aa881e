// Package watch says what has changed on a host that is looked at again and again: links
// that went down or came back, PCIe links that trained otherwise, errors that count up,
// findings of the doctor that appear or go, drift against a baseline. It is pure: who
// steps it brings the time and the news.
package watch

import (
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

// Schema is the name and major version of an event.
const Schema = "topoctl.watch/v1"

// Kind says what has changed.
type Kind string

// The kinds of events.
const (
	Started    Kind = "started"         // the first look: what is there, what is wrong from the beginning
	Finding    Kind = "finding"         // of the doctor, that was not there before
	Cleared    Kind = "finding-cleared" // it is there no more
	Drift      Kind = "drift"           // a difference to the baseline, or to the start
	DriftGone  Kind = "drift-cleared"
	LinkDown   Kind = "link-down" // a port that carried data does not any more
	LinkUp     Kind = "link-up"
	LinkSpeed  Kind = "link-speed"     // a port's rate, or speed and width of a PCIe link
	Errors     Kind = "errors"         // error counters moved
	ErrorsStop Kind = "errors-stopped" // they have stood still for a while
	SourceLost Kind = "source-lost"    // who brings the news brings none
	SourceBack Kind = "source-back"
)

// Event is one change. Text leaves the subject out: Who names it.
type Event struct {
	Schema   string  `json:"schema"`
	AtNS     int64   `json:"at_ns"`          // since the watch began
	Time     string  `json:"time,omitempty"` // RFC 3339, UTC; set by the command, which has a clock
	Kind     Kind    `json:"event"`
	Severity string  `json:"severity"`          // "error", "warning", "info", as the doctor's
	Subject  topo.ID `json:"subject,omitempty"` // the device; "" the host
	// Subjects are all devices that it is about, Subject the first of them, where there are
	// several.
	Subjects []topo.ID `json:"subjects,omitempty"`
	Source   string    `json:"source,omitempty"` // of source-lost and source-back
	Code     string    `json:"code,omitempty"`   // the doctor's check, or the kind of a difference
	Text     string    `json:"text"`             // one line for people
	Detail   []string  `json:"detail,omitempty"` // evidence, fix, consequences
	// Initial says that it was so at the first look already.
	Initial bool `json:"initial,omitempty"`
	// Flaps is how often the port went down since the watch began, with link events.
	Flaps int `json:"flaps,omitempty"`
	// Counters are how much each error counter moved: with errors since the event before, so
	// that they add up; with errors-stopped in all.
	Counters map[string]uint64 `json:"counters,omitempty"`
}

// The severities of events are those of the doctor.
const (
	severe  = string(doctor.Error)
	warning = string(doctor.Warning)
	info    = string(doctor.Info)
)

// mostNamed is how many devices an event names.
const mostNamed = 3

// Who names what an event is about: "mlx5_6", "gpu:0, gpu:1 and 6 more", the source; "" is
// the host as a whole. Names are as the host gives them: they may hold anything.
func (e *Event) Who() string {
	if len(e.Subjects) == 0 {
		if e.Subject == "" {
			return e.Source
		}
		return doctor.SubjectName(e.Subject)
	}
	var names []string
	for _, id := range e.Subjects {
		names = append(names, doctor.SubjectName(id))
	}
	return text.List(names, mostNamed)
}

// Change says whether an event says that something has changed: not the start,
// and not what was so from the start.
func (e *Event) Change() bool { return e.Kind != Started && !e.Initial }
