package registry

import (
	"encoding/json"
	"errors"

	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
)

// SchemaPeer is the name and major version of a descriptor.
const SchemaPeer = "topoctl.peer/v1"

// Descriptor is all that an engine tells its peers about itself.
type Descriptor struct {
	Schema string `json:"schema"`
	Name   string `json:"name"`
	Epoch  uint64 `json:"epoch,string"`
	// Sequence counts the changes since the epoch began.
	Sequence uint64 `json:"sequence"`
	// Machine and Boot tell whether two engines are on one machine, since one boot:
	// hashes, "" not known.
	Machine string `json:"machine,omitempty"`
	Boot    string `json:"boot,omitempty"`
	// Topology is a topoctl.topology/v1 document, absent where the host has none.
	Topology  json.RawMessage      `json:"topology,omitempty"`
	Endpoints []transport.Endpoint `json:"endpoints"`
	Regions   []Region             `json:"regions"` // in the order of IDs
}

// Region is a region that peers may touch.
type Region struct {
	ID       memory.ID `json:"id,string"`
	Name     string    `json:"name"`
	Bytes    int64     `json:"bytes"`
	Location string    `json:"location,omitempty"`
	Read     bool      `json:"read"`
	Write    bool      `json:"write"`
	Keys     Keys      `json:"keys,omitempty"` // by transport
}

// Keys are what the transports need to name a region, by transport.
type Keys map[string]string

// Delta is what changed between two sequences of one epoch.
type Delta struct {
	From uint64 `json:"from"` // it applies to this sequence only
	To   uint64 `json:"to"`   // above From
	// Closed regions go first, then Opened ones come, both in the order of IDs: a
	// region that changed is in both.
	Closed IDs      `json:"closed,omitempty"`
	Opened []Region `json:"opened,omitempty"`
	// Endpoints are all of them; nil: they did not change.
	Endpoints []transport.Endpoint `json:"endpoints,omitzero"`
	// Topology is the new one, JSON's null if there is none any more; nil: it did not
	// change.
	Topology json.RawMessage `json:"topology,omitempty"`
}

// IDs are region IDs; in JSON they are strings, like those of regions.
type IDs []memory.ID

// ErrStale is why a delta cannot be applied: the whole descriptor is needed then.
var ErrStale = errors.New("delta does not follow")
