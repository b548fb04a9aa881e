package rival

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// ErrMalformed is the error for a priority matrix that Mooncake would refuse.
var ErrMalformed = pkgerr.New("rival", "malformed priority matrix")

// Bounds of a priority matrix. Mooncake's control messages are 1 MiB at most.
const (
	maxMatrixBytes = 1 << 20
	maxLocations   = 4096
)

// Entry is one location of a priority matrix with its NICs.
type Entry struct {
	Location  string
	Preferred []string
	Available []string
}

// Matrix is Mooncake's priority matrix with the numbers that it gives to NICs:
// a NIC's number is its place in the order in which the NICs are first met, and
// that order is the one in which a C++ hash map holds the locations.
// Source: Mooncake 3b5a594, mooncake-transfer-engine/src/topology.cpp.
type Matrix struct {
	entries  map[string]*Entry
	devices  []string // by number; a disabled NIC keeps its place
	index    map[string]int
	resolved map[string]*resolved
}

// resolved is a location with NICs as numbers.
type resolved struct {
	preferred, available []int
}

// NewMatrix numbers the NICs of entries that were found in the given order.
func NewMatrix(entries []Entry) *Matrix {
	m := &Matrix{entries: map[string]*Entry{}, index: map[string]int{}, resolved: map[string]*resolved{}}
	keys := make([]string, 0, len(entries))
	for _, e := range entries {
		if m.entries[e.Location] == nil {
			keys = append(keys, e.Location)
		}
		m.entries[e.Location] = &Entry{e.Location, slices.Clone(e.Preferred), slices.Clone(e.Available)}
	}
	for _, key := range mapOrder(keys) {
		e := m.entries[key]
		m.resolved[key] = &resolved{m.number(e.Preferred), m.number(e.Available)}
	}
	return m
}

// number gives NICs their numbers.
func (m *Matrix) number(names []string) []int {
	out := make([]int, 0, len(names))
	for _, name := range names {
		i, ok := m.index[name]
		if !ok {
			i = len(m.devices)
			m.devices, m.index[name] = append(m.devices, name), i
		}
		out = append(out, i)
	}
	return out
}

// ParseMatrix reads a priority matrix as Mooncake does: an object that holds
// for each location exactly two arrays of names. Locations are taken in the
// order of their names, because that is how its JSON library keeps them.
func ParseMatrix(data []byte) (*Matrix, error) {
	if len(data) > maxMatrixBytes {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrMalformed, len(data), maxMatrixBytes)
	}
	var root map[string]json.RawMessage
	if err := json.Unmarshal(data, &root); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	switch {
	case root == nil:
		return nil, fmt.Errorf("%w: no object", ErrMalformed)
	case len(root) > maxLocations:
		return nil, fmt.Errorf("%w: %d locations, at most %d", ErrMalformed, len(root), maxLocations)
	}
	entries := make([]Entry, 0, len(root))
	for _, key := range slices.Sorted(maps.Keys(root)) { // in byte order, as C++'s std::map has them
		var lists [][]string
		if err := json.Unmarshal(root[key], &lists); err != nil {
			return nil, fmt.Errorf("%w: location %q: %w", ErrMalformed, key, err)
		}
		if len(lists) != 2 || lists[0] == nil || lists[1] == nil {
			return nil, fmt.Errorf("%w: location %q: want exactly two arrays, preferred and available", ErrMalformed, key)
		}
		entries = append(entries, Entry{key, lists[0], lists[1]})
	}
	return NewMatrix(entries), nil
}

// JSON is the matrix as it is published to peers.
func (m *Matrix) JSON() []byte {
	doc := make(map[string][2][]string, len(m.entries))
	for key, e := range m.entries {
		doc[key] = [2][]string{append([]string{}, e.Preferred...), append([]string{}, e.Available...)}
	}
	data, err := json.Marshal(doc) // sorts the keys
	if err != nil {
		panic(err) // strings always can be written
	}
	return data
}

// Entries lists the locations with their NICs, in the order of names.
func (m *Matrix) Entries() []Entry {
	keys := slices.SortedFunc(maps.Keys(m.entries), topo.NaturalCompare)
	out := make([]Entry, 0, len(keys))
	for _, key := range keys {
		out = append(out, *m.entries[key])
	}
	return out
}

// first are the NICs that a first try chooses from.
func (r *resolved) first() []int {
	if len(r.preferred) > 0 {
		return r.preferred
	}
	return r.available
}

// Misroute is where a peer's first picks for one location of a host end.
type Misroute struct {
	Location string
	Lands    []Landing // by NIC number
	// Wrong is the part of the picks that end on a NIC which the host does not
	// prefer for the location, or which has failed.
	Wrong float64
}

// Landing is the part of the picks that ends on one NIC.
type Landing struct {
	Device string
	Share  float64
}

// Misroutes follows what a peer does with this host's matrix. The peer numbers
// the NICs of the published matrix for itself and uses its numbers as places in
// the host's own list of NICs. The numbers differ where locations are published
// in another order than they were found (from 10 GPUs on, or where the kernel
// lists NUMA nodes backwards), and after a NIC has failed, which leaves the
// matrix but not the list.
func (m *Matrix) Misroutes() ([]Misroute, error) {
	peer, err := ParseMatrix(m.JSON())
	if err != nil {
		return nil, err
	}
	var out []Misroute
	for _, e := range peer.Entries() {
		picks := peer.resolved[e.Location].first()
		if len(picks) == 0 {
			continue
		}
		meant := e.Preferred
		if len(meant) == 0 {
			meant = e.Available
		}
		route := Misroute{Location: e.Location}
		share := 1 / float64(len(picks))
		for _, i := range slices.Sorted(slices.Values(picks)) {
			device := m.devices[i]
			route.Lands = append(route.Lands, Landing{device, share})
			if !slices.Contains(meant, device) {
				route.Wrong += share
			}
		}
		out = append(out, route)
	}
	return out, nil
}
