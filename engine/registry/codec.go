package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
)

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
	var texts bounded[string]
	if err := json.Unmarshal(data, &texts); err != nil {
		return fmt.Errorf("region IDs: %w", err)
	}
	*ids = nil
	for _, s := range texts {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return fmt.Errorf("region ID %q: want a number", clip(s))
		}
		*ids = append(*ids, memory.ID(n))
	}
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
	data, err := json.Marshal(&out)
	if err != nil {
		return nil, fmt.Errorf("registry: descriptor of %q: %w", d.Name, err)
	}
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("registry: descriptor of %q: %d bytes: want at most %d, close regions", d.Name, len(data), MaxBytes)
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
	}{Descriptor: d}
	if err := parse(data, &in, "descriptor"); err != nil {
		return nil, err
	}
	d.Endpoints, d.Regions = in.Endpoints, in.Regions
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
	data, err := json.Marshal(x)
	if err != nil {
		return nil, fmt.Errorf("registry: delta: %w", err)
	}
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("registry: delta from %d to %d: %d bytes: want at most %d, send the descriptor", x.From, x.To, len(data), MaxBytes)
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
	}{Delta: x}
	if err := parse(data, &in, "delta"); err != nil {
		return nil, err
	}
	x.Opened, x.Endpoints = in.Opened, in.Endpoints
	if err := x.check(); err != nil {
		return nil, err
	}
	return x, nil
}

// parse reads JSON of a bounded size.
func parse(data []byte, into any, what string) error {
	if len(data) > MaxBytes {
		return fmt.Errorf("registry: %s: %d bytes: want at most %d", what, len(data), MaxBytes)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("registry: %s: %w", what, err)
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
