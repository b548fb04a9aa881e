// Package show is what "topoctl path" prints: answers of package explain and lanes to another host as a document, and
// as text for people, which the dashboard shows too.
package show

import (
	"fmt"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/build"
	"github.com/topoctl/topoctl/internal/explain"
	"github.com/topoctl/topoctl/internal/pick"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/rival"
	"github.com/topoctl/topoctl/pathsel"
)

// Schema is the name and major version of what path -o json prints.
const Schema = "topoctl.path/v1"

// Document is one answer of the path command.
type Document struct {
	Schema  string    `json:"schema"`
	Tool    topo.Tool `json:"tool"`
	Host    string    `json:"host"`
	Request Request   `json:"request"`
	// Chosen is the port to use for the source's memory, null where none can be
	// used or the question was for something else.
	Chosen *pathsel.Candidate `json:"chosen"`
	// Ranked are the usable ports for that memory, best first; Rejected the others.
	Ranked   []pathsel.Candidate `json:"ranked"`
	Rejected []pathsel.Candidate `json:"rejected"`
	// Route is the way to the chosen port, or to the destination.
	Route    *explain.Route     `json:"route"`
	Capacity []explain.Capacity `json:"capacity"`
	// Lanes are the pairs of ports of two hosts, null without a peer.
	Lanes    *pathsel.LaneSet `json:"lanes"`
	Transfer *Transfer        `json:"transfer"`
	Engines  []*rival.Choice  `json:"engines"`
	Hints    []pathsel.Reason `json:"hints"`
	// Nearness says that nothing tells which port is near the source's memory, absent where something does.
	Nearness *pathsel.Reason `json:"nearness,omitempty"`

	More int    `json:"-"` // ranked ports, or lanes, that the document leaves out
	Why  string `json:"-"` // why there is no answer, "" there is one
	h    *pathsel.Host
}

// New is a document about a host, without an answer yet.
func New(h *pathsel.Host) *Document {
	return &Document{Schema: Schema, Tool: build.Tool(), Host: h.Topology().Host.Name, Request: Request{Transport: h.Transport()},
		Ranked: []pathsel.Candidate{}, Rejected: []pathsel.Candidate{}, Capacity: []explain.Capacity{}, Engines: []*rival.Choice{}, Hints: []pathsel.Reason{}, h: h}
}

// Take makes an explanation the answer, and its ends the question.
func (d *Document) Take(a *explain.Answer) {
	d.Request.Source, d.Request.Destination = a.From, a.To
	d.Chosen, d.Ranked, d.Rejected, d.Route, d.Capacity = a.Chosen, a.Ranked, a.Rejected, a.Route, a.Capacity
	d.Why, d.Nearness = a.Why, a.Nearness
	for _, r := range a.Hints {
		if r.Code == explain.HintDegraded {
			r.Text += `: run "topoctl doctor"`
		}
		d.Hints = append(d.Hints, r)
	}
}

// Text is an explanation as "topoctl path" prints it, in the given look.
func Text(h *pathsel.Host, a *explain.Answer, l *report.Look) string {
	d := New(h)
	d.Take(a)
	return report.Finish(d.Text(l))
}

// Hint adds a hint.
func (d *Document) Hint(code pathsel.Code, evidence, format string, args ...any) {
	d.Hints = append(d.Hints, pathsel.Reason{Code: code, Text: fmt.Sprintf(format, args...), Evidence: evidence})
}

// Request is the question, devices as their IDs.
type Request struct {
	Source      topo.ID           `json:"source"`
	Destination topo.ID           `json:"destination,omitempty"`
	Peer        string            `json:"peer,omitempty"` // the other host's name
	Transport   pathsel.Transport `json:"transport"`
	Down        []topo.ID         `json:"down,omitempty"` // NICs and ports that are taken to be down
	Bytes       *int64            `json:"bytes,omitempty"`
	Policy      pick.Policy       `json:"policy,omitempty"`
}

// Transfer is one transfer over the lanes.
type Transfer struct {
	Bytes  int64       `json:"bytes"`
	Policy pick.Policy `json:"policy"`
	// DeservedLanes is how many lanes a transfer of this size is worth.
	DeservedLanes int     `json:"deserved_lanes"`
	Shares        []Share `json:"shares"`
	// FinishNS is when the last byte is through if the links are kept busy, by the
	// most loaded one of either host: the prediction for adaptive, otherwise a
	// lower bound; null where rates are not known.
	FinishNS *int64 `json:"finish_ns"`
	// AdaptiveFinishNS is the same for the adaptive policy, to compare with.
	AdaptiveFinishNS *int64 `json:"adaptive_finish_ns"`
	// UnreachablePicks counts the slices that the policy would give to a pair of
	// ports that cannot reach each other, of Picks.
	UnreachablePicks int64 `json:"unreachable_picks"`
	Picks            int64 `json:"picks"`

	basis, adaptiveBasis topo.Basis // of the rates that the ends rest on
}

// Share is a lane's part of a transfer.
type Share struct {
	Lane   int    `json:"lane"` // place in lanes.ranked
	Local  string `json:"local"`
	Remote string `json:"remote"`
	Bytes  int64  `json:"bytes"`
}
