package peerdoc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
)

// What a peer may make us hold.
const (
	MaxBytes         = 4 << 20 // of a descriptor or a delta
	MaxTopologyBytes = 3 << 20
	MaxRegions       = 1 << 17
	maxListed        = 1 << 16 // elements of a list: more regions than that are sent packed
	MaxEndpoints     = 4096
	maxKeys          = 16 // of one region
	maxName          = 255
	maxValue         = 1024 // bytes of an address or a key
)

// check is everything that must hold of a descriptor, whoever sent it.
func (d *Descriptor) check() error {
	where := fmt.Sprintf("descriptor of %q", Clip(d.Name))
	switch {
	case d.Schema != SchemaPeer:
		return pkgerr.Errorf("peerdoc", "descriptor: schema %q: want %s", Clip(d.Schema), SchemaPeer)
	case d.Epoch == 0:
		return pkgerr.Errorf("peerdoc", "%s: epoch 0: want one that was drawn", where)
	}
	for _, f := range []field{{"name", d.Name, 1, maxName}, {"machine", d.Machine, 0, maxName}, {"boot", d.Boot, 0, maxName}} {
		if err := f.check(); err != nil {
			return pkgerr.Errorf("peerdoc", "%s: %w", where, err)
		}
	}
	return checkOffer(where, d.Topology, d.Endpoints, d.Regions)
}

// checkOffer checks what a descriptor and a delta have in common.
func checkOffer(where string, topology json.RawMessage, endpoints []transport.Endpoint, regions []Region) error {
	for _, err := range []error{checkTopology(topology), checkEndpoints(endpoints), checkRegions(regions)} {
		if err != nil {
			return pkgerr.Errorf("peerdoc", "%s: %w", where, err)
		}
	}
	return nil
}

// check is everything that must hold of a delta by itself.
func (x *Delta) check() error {
	where := fmt.Sprintf("delta from %d to %d", x.From, x.To)
	if x.To <= x.From {
		return pkgerr.Errorf("peerdoc", "%s: want it to go forward", where)
	}
	if len(x.Closed) > MaxRegions {
		return pkgerr.Errorf("peerdoc", "%s: %d closed regions: want at most %d", where, len(x.Closed), MaxRegions)
	}
	for i, id := range x.Closed {
		if id == 0 || i > 0 && id <= x.Closed[i-1] {
			return pkgerr.Errorf("peerdoc", "%s: closed region %d: want IDs above 0, in order", where, id)
		}
	}
	topology := x.Topology
	if isNull(topology) {
		topology = nil
	}
	return checkOffer(where, topology, x.Endpoints, x.Opened)
}

// checkTopology looks at size and form; the reader of the document checks more.
func checkTopology(doc json.RawMessage) error {
	if len(doc) == 0 {
		return nil
	}
	switch t := bytes.TrimSpace(doc); {
	case len(doc) > MaxTopologyBytes:
		return fmt.Errorf("topology: %d bytes: want at most %d", len(doc), MaxTopologyBytes)
	case len(t) == 0 || t[0] != '{' || !json.Valid(doc):
		return fmt.Errorf("topology: want a JSON object")
	}
	return nil
}

func checkEndpoints(list []transport.Endpoint) error {
	if len(list) > MaxEndpoints {
		return fmt.Errorf("%d endpoints: want at most %d", len(list), MaxEndpoints)
	}
	seen := make(map[transport.Endpoint]bool, len(list))
	for i, e := range list {
		for _, f := range []field{{"transport", e.Transport, 1, 32}, {"port", string(e.Port), 0, maxName}, {"address", e.Address, 1, maxValue}} {
			if err := f.check(); err != nil {
				return fmt.Errorf("endpoint %d: %w", i, err)
			}
		}
		if e.BytesPerSec < 0 {
			return fmt.Errorf("endpoint %d: bytes_per_sec %d: want 0 or more", i, e.BytesPerSec)
		}
		if seen[e] {
			return fmt.Errorf("endpoint %d: %s %s is given twice", i, e.Transport, e.Address)
		}
		seen[e] = true
	}
	return nil
}

func checkRegions(list []Region) error {
	if len(list) > MaxRegions {
		return fmt.Errorf("%d regions: want at most %d", len(list), MaxRegions)
	}
	names := make(map[string]memory.ID, len(list))
	for i := range list {
		r := &list[i]
		switch {
		case r.ID == 0 || i > 0 && r.ID <= list[i-1].ID:
			return fmt.Errorf("region %d: ID %d: want IDs above 0, in order, none twice", i, r.ID)
		case r.Bytes <= 0:
			return fmt.Errorf("region %d: %d bytes: want more than 0", i, r.Bytes)
		case r.Address > math.MaxUint64-uint64(r.Bytes):
			return fmt.Errorf("region %d: %d bytes at address %#x: want them to end below 2^64", i, r.Bytes, r.Address)
		case len(r.Keys) > maxKeys:
			return fmt.Errorf("region %d: %d keys: want at most %d", i, len(r.Keys), maxKeys)
		}
		fields := []field{{"name", r.Name, 1, maxName}, {"location", r.Location, 0, maxName}}
		for transport, key := range r.Keys {
			fields = append(fields, field{"transport of a key", transport, 1, 32}, field{"key", key, 0, maxValue})
		}
		for _, f := range fields {
			if err := f.check(); err != nil {
				return fmt.Errorf("region %d: %w", i, err)
			}
		}
		if other, ok := names[r.Name]; ok {
			return fmt.Errorf("regions %d and %d are both named %q", other, r.ID, r.Name)
		}
		names[r.Name] = r.ID
	}
	return nil
}

// field is a text that must be printable and of some length, in bytes.
type field struct {
	what, text  string
	least, most int
}

func (f field) check() error { return CheckText(f.what, f.text, f.least, f.most) }

// CheckText refuses a text of another length in bytes, and one that cannot be printed.
func CheckText(what, s string, least, most int) error {
	if len(s) < least || len(s) > most {
		return fmt.Errorf("%s %q: %d bytes: want %d to %d", what, Clip(s), len(s), least, most)
	}
	if text.Printable(s) != s {
		return fmt.Errorf("%s %q: want printable text", what, s)
	}
	return nil
}

// Clip bounds a text of a peer in messages.
func Clip(s string) string { return text.Clip(s, 64) }
