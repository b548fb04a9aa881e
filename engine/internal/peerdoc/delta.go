package peerdoc

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// endpoints is a list of endpoints that is not nil.
func endpoints(list []transport.Endpoint) []transport.Endpoint {
	return append([]transport.Endpoint{}, list...)
}

// Diff is what makes from into to, a later sequence of the same epoch. Neither is
// changed; the delta shares their parts.
func Diff(from, to *Descriptor) (*Delta, error) {
	if from.Name != to.Name || from.Epoch != to.Epoch || from.Machine != to.Machine || from.Boot != to.Boot {
		return nil, pkgerr.Errorf("peerdoc", "%q of epoch %d and %q of epoch %d: two engines, a delta is between sequences of one", from.Name, from.Epoch, to.Name, to.Epoch)
	}
	if to.Sequence <= from.Sequence {
		return nil, pkgerr.Errorf("peerdoc", "%q: from sequence %d to %d: a delta goes forward", from.Name, from.Sequence, to.Sequence)
	}
	x := &Delta{From: from.Sequence, To: to.Sequence}
	a, b := from.Regions, to.Regions
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].ID < b[0].ID:
			x.Closed, a = append(x.Closed, a[0].ID), a[1:]
		case len(a) == 0 || b[0].ID < a[0].ID:
			x.Opened, b = append(x.Opened, b[0]), b[1:]
		default:
			if !a[0].equal(&b[0]) {
				x.Closed, x.Opened = append(x.Closed, a[0].ID), append(x.Opened, b[0])
			}
			a, b = a[1:], b[1:]
		}
	}
	if !slices.Equal(from.Endpoints, to.Endpoints) {
		x.Endpoints = endpoints(to.Endpoints)
	}
	if !bytes.Equal(from.Topology, to.Topology) {
		x.Topology = to.Topology
		if len(to.Topology) == 0 {
			x.Topology = json.RawMessage("null")
		}
	}
	return x, nil
}

func (r *Region) equal(o *Region) bool {
	return r.ID == o.ID && r.Name == o.Name && r.Bytes == o.Bytes && r.Address == o.Address && r.Location == o.Location &&
		r.Read == o.Read && r.Write == o.Write && maps.Equal(r.Keys, o.Keys)
}

// Apply gives the descriptor after a delta; d is not changed. Where the delta is
// not for d's sequence, or names regions that d does not have, the error wraps
// ErrStale. Whatever the error, the way on is to fetch the whole descriptor.
func (d *Descriptor) Apply(x *Delta) (*Descriptor, error) {
	if x.From != d.Sequence {
		return nil, pkgerr.Errorf("peerdoc", "%q: delta from sequence %d to %d, we have %d: %w", Clip(d.Name), x.From, x.To, d.Sequence, ErrStale)
	}
	if err := x.check(); err != nil {
		return nil, err
	}
	out := *d
	out.Sequence = x.To
	closed := make(map[memory.ID]bool, len(x.Closed))
	for _, id := range x.Closed {
		closed[id] = true
	}
	out.Regions = make([]Region, 0, len(d.Regions)+len(x.Opened))
	for _, r := range d.Regions {
		if closed[r.ID] {
			delete(closed, r.ID)
			continue
		}
		out.Regions = append(out.Regions, r)
	}
	if len(closed) > 0 {
		return nil, pkgerr.Errorf("peerdoc", "%q: delta from sequence %d to %d closes %d regions that we do not have: %w", Clip(d.Name), x.From, x.To, len(closed), ErrStale)
	}
	out.Regions = append(out.Regions, x.Opened...)
	slices.SortStableFunc(out.Regions, func(a, b Region) int { return cmp.Compare(a.ID, b.ID) })
	if x.Endpoints != nil {
		out.Endpoints = endpoints(x.Endpoints)
	}
	if x.Topology != nil {
		out.Topology = x.Topology
	}
	out.normalize()
	if err := out.check(); err != nil {
		return nil, pkgerr.Errorf("peerdoc", "delta from sequence %d to %d: %w", x.From, x.To, err)
	}
	return &out, nil
}
