package cli

import (
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/explain"
	"github.com/topoctl/topoctl/internal/pick"
	"github.com/topoctl/topoctl/internal/rival"
	"github.com/topoctl/topoctl/pathsel"
)

// pathSchema is the name and major version of what path -o json prints.
const pathSchema = "topoctl.path/v1"

// pathDoc is one answer of the path command.
type pathDoc struct {
	Schema  string      `json:"schema"`
	Tool    topo.Tool   `json:"tool"`
	Host    string      `json:"host"`
	Request pathRequest `json:"request"`
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
	Transfer *pathTransfer    `json:"transfer"`
	Engines  []*rival.Choice  `json:"engines"`
	Hints    []pathsel.Reason `json:"hints"`
	// Nearness says that nothing tells which port is near the source's memory, absent where something does.
	Nearness *pathsel.Reason `json:"nearness,omitempty"`

	more int // ranked ports that --k leaves out
	h    *pathsel.Host
	why  string // why there is no answer, "" there is one
}

// pathRequest is the question, devices as their IDs.
type pathRequest struct {
	Source      topo.ID           `json:"source"`
	Destination topo.ID           `json:"destination,omitempty"`
	Peer        string            `json:"peer,omitempty"` // the other host's name
	Transport   pathsel.Transport `json:"transport"`
	Down        []topo.ID         `json:"down,omitempty"` // NICs and ports that are taken to be down
	Bytes       *int64            `json:"bytes,omitempty"`
	Policy      pick.Policy       `json:"policy,omitempty"`
}

// pathTransfer is one transfer over the lanes.
type pathTransfer struct {
	Bytes  int64       `json:"bytes"`
	Policy pick.Policy `json:"policy"`
	// DeservedLanes is how many lanes a transfer of this size is worth.
	DeservedLanes int         `json:"deserved_lanes"`
	Shares        []pathShare `json:"shares"`
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

// pathShare is a lane's part of a transfer.
type pathShare struct {
	Lane   int    `json:"lane"` // place in lanes.ranked
	Local  string `json:"local"`
	Remote string `json:"remote"`
	Bytes  int64  `json:"bytes"`
}
