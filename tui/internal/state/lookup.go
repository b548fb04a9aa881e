package state

import (
	"cmp"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
)

// Busy is what the port carries in the direction in which it carries more; nil: neither
// is known.
func (p *Port) Busy() *topo.Rate {
	sent, received := p.SentBytesPerSec, p.ReceivedBytesPerSec
	if sent == nil || received != nil && *received > *sent {
		return received
	}
	return sent
}

// findEngine is the place of a source's engine in Engines.
func (s *State) findEngine(source string) (int, bool) {
	return slices.BinarySearchFunc(s.Engines, source, func(e *Engine, name string) int { return cmp.Compare(e.Source, name) })
}

// Engine is that of a source; nil: it has reported none.
func (s *State) Engine(source string) *Engine {
	if i, found := s.findEngine(source); found {
		return s.Engines[i]
	}
	return nil
}

// SourceOf is how a source does; false: nothing was heard of it.
func (s *State) SourceOf(name string) (Source, bool) {
	i, found := s.find(name)
	if !found {
		return Source{}, false
	}
	return s.Sources[i], true
}
