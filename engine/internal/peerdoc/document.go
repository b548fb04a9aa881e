// Package peerdoc is what an engine tells its peers about itself: a Descriptor, then
// Deltas. What comes from a peer is hostile: it is bounded and checked.
package peerdoc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/pkgerr"
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
	ID    memory.ID `json:"id,string"`
	Name  string    `json:"name"`
	Bytes int64     `json:"bytes"`
	// Address is where the memory is in the engine's process, 0 where it does not tell.
	Address  uint64 `json:"address,string,omitempty"`
	Location string `json:"location,omitempty"`
	Read     bool   `json:"read"`
	Write    bool   `json:"write"`
	Keys     Keys   `json:"keys,omitempty"` // by transport
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

// MarshalJSON writes the IDs as strings: readers in other languages lose digits
// of large numbers.
func (ids IDs) MarshalJSON() ([]byte, error) {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = strconv.FormatUint(uint64(id), 10)
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (ids *IDs) UnmarshalJSON(data []byte) error {
	var list []textID
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("region IDs: %w", err)
	}
	if len(list) > MaxRegions {
		return fmt.Errorf("region IDs: too many: at most %d", MaxRegions)
	}
	*ids = make(IDs, len(list))
	for i, id := range list {
		(*ids)[i] = memory.ID(id)
	}
	return nil
}

// textID is an ID as a string. It takes as much memory as its digits at most.
type textID memory.ID

// UnmarshalText reads a number.
func (id *textID) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return fmt.Errorf("region ID %q: want a number", Clip(string(text)))
	}
	*id = textID(n)
	return nil
}

// Encode checks a descriptor and writes it.
func (d *Descriptor) Encode() ([]byte, error) {
	out := *d
	out.Schema = SchemaPeer
	out.normalize()
	if err := out.check(); err != nil {
		return nil, err
	}
	plain, packs, err := packRegions(out.Regions)
	if err != nil {
		return nil, pkgerr.Errorf("peerdoc", "descriptor of %q: %w", d.Name, err)
	}
	data, err := json.Marshal(struct {
		*Descriptor
		Regions []Region `json:"regions"`
		Packed  []pack   `json:"packed,omitempty"`
	}{&out, plain, packs})
	if err != nil {
		return nil, pkgerr.Errorf("peerdoc", "descriptor of %q: %w", d.Name, err)
	}
	if len(data) > MaxBytes {
		return nil, pkgerr.Errorf("peerdoc", "descriptor of %q: %d bytes: want at most %d, close regions", d.Name, len(data), MaxBytes)
	}
	return data, nil
}

// ParseDescriptor reads and checks a descriptor that a peer sent. Keys that are
// not known are ignored.
func ParseDescriptor(data []byte) (*Descriptor, error) {
	d := &Descriptor{}
	in := struct { // the lists are read with bounds
		*Descriptor
		Endpoints bounded[transport.Endpoint] `json:"endpoints"`
		Regions   bounded[Region]             `json:"regions"`
		Packed    bounded[pack]               `json:"packed"`
	}{Descriptor: d}
	if err := parse(data, &in, "descriptor"); err != nil {
		return nil, err
	}
	d.Endpoints = in.Endpoints
	var err error
	if d.Regions, err = unpack(in.Regions, in.Packed); err != nil {
		return nil, pkgerr.Errorf("peerdoc", "descriptor: %w", err)
	}
	d.normalize()
	if err := d.check(); err != nil {
		return nil, err
	}
	return d, nil
}

// Encode checks a delta and writes it.
func (x *Delta) Encode() ([]byte, error) {
	if err := x.check(); err != nil {
		return nil, err
	}
	plain, packs, err := packRegions(x.Opened)
	if err != nil {
		return nil, pkgerr.Errorf("peerdoc", "delta from %d to %d: %w", x.From, x.To, err)
	}
	data, err := json.Marshal(struct {
		*Delta
		Opened []Region `json:"opened,omitempty"`
		Packed []pack   `json:"packed,omitempty"`
	}{x, plain, packs})
	if err != nil {
		return nil, pkgerr.Errorf("peerdoc", "delta: %w", err)
	}
	if len(data) > MaxBytes {
		return nil, pkgerr.Errorf("peerdoc", "delta from %d to %d: %d bytes: want at most %d, send the descriptor", x.From, x.To, len(data), MaxBytes)
	}
	return data, nil
}

// ParseDelta reads and checks a delta that a peer sent. Keys that are not known
// are ignored.
func ParseDelta(data []byte) (*Delta, error) {
	x := &Delta{}
	in := struct {
		*Delta
		Opened    bounded[Region]             `json:"opened"`
		Endpoints bounded[transport.Endpoint] `json:"endpoints"`
		Packed    bounded[pack]               `json:"packed"`
	}{Delta: x}
	if err := parse(data, &in, "delta"); err != nil {
		return nil, err
	}
	x.Endpoints = in.Endpoints
	var err error
	if x.Opened, err = unpack(in.Opened, in.Packed); err != nil {
		return nil, pkgerr.Errorf("peerdoc", "delta: %w", err)
	}
	if err := x.check(); err != nil {
		return nil, err
	}
	return x, nil
}

// parse reads JSON of a bounded size.
func parse(data []byte, into any, what string) error {
	if len(data) > MaxBytes {
		return pkgerr.Errorf("peerdoc", "%s: %d bytes: want at most %d", what, len(data), MaxBytes)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return pkgerr.Errorf("peerdoc", "%s: %w", what, err)
	}
	return nil
}

// normalize gives equal descriptors one form: lists that are there, no topology
// instead of a null one.
func (d *Descriptor) normalize() {
	if isNull(d.Topology) {
		d.Topology = nil
	}
	if d.Regions == nil {
		d.Regions = []Region{}
	}
	if d.Endpoints == nil {
		d.Endpoints = endpoints(nil)
	}
}

func isNull(data json.RawMessage) bool { return string(bytes.TrimSpace(data)) == "null" }

// bounded is a list that is read element by element, so that a small document of
// very many empty elements cannot make us hold much more than its own size.
type bounded[T any] []T

// UnmarshalJSON leaves the list nil for null.
func (b *bounded[T]) UnmarshalJSON(data []byte) error {
	*b = nil
	if isNull(data) {
		return nil
	}
	out := []T{}
	err := document.ReadList(document.NewReader(data), &out, maxListed, 0, nil)
	*b = out
	return err
}

// UnmarshalJSON reads an object of at most maxKeys keys.
func (k *Keys) UnmarshalJSON(data []byte) error {
	*k = nil
	if isNull(data) {
		return nil
	}
	out := Keys{}
	r := document.NewReader(data)
	err := r.Object(maxKeys, func(name string) error {
		var value string
		err := r.Value(&value, 0)
		out[name] = value
		return err
	})
	*k = out
	return err
}
