package state

import (
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/counters"
)

// Port is what is known of the port or the interface with an ID, or of the first port of an
// RDMA device; nil nothing.
func (s *State) Port(id topo.ID) *Port {
	if p := s.Ports[id]; p != nil {
		return p
	}
	if s.Topology == nil || !strings.HasPrefix(string(id), "rdma:") {
		return nil
	}
	for i := range s.Topology.Ports {
		if p := &s.Topology.Ports[i]; p.RDMA == id {
			return s.Ports[p.ID]
		}
	}
	return nil
}

// Rates are what a port carries now, in bytes per second; nil not known.
func (s *State) Rates(id topo.ID) (sent, received *topo.Rate) {
	p := s.Port(id)
	if p == nil {
		return nil, nil
	}
	return p.SentBytesPerSec, p.ReceivedBytesPerSec
}

// Busy is what the port carries in the direction in which it carries more; nil: neither
// is known.
func (p *Port) Busy() *topo.Rate {
	sent, received := p.SentBytesPerSec, p.ReceivedBytesPerSec
	if sent == nil || received != nil && *received > *sent {
		return received
	}
	return sent
}

// Share is the part of the line's rate that Busy is; false: not known.
func (p *Port) Share() (part float64, known bool) { return counters.Share(p.Busy(), p.BytesPerSec) }

// Engine is that of a source; nil: it has reported none.
func (s *State) Engine(source string) *Engine {
	i, found := slices.BinarySearchFunc(s.Engines, source, func(e *Engine, name string) int { return compareNames(e.Source, name) })
	if !found {
		return nil
	}
	return s.Engines[i]
}

// SourceOf is how a source does; false: nothing was heard of it.
func (s *State) SourceOf(name string) (Source, bool) {
	i, found := s.find(name)
	if !found {
		return Source{}, false
	}
	return s.Sources[i], true
}
