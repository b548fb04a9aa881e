package state

import (
	"slices"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
)

// replaced forgets what was counted of devices whose names others have now.
func (s *State) replaced(was, now *topo.Topology) {
	gone := counters.Replaced(was, now)
	for id := range gone {
		delete(s.Ports, id)
		delete(s.GPUs, id)
	}
	if len(gone) > 0 {
		s.Recent = nil // some of it was of other devices
	}
	if s.sample == nil || len(gone) == 0 {
		return
	}
	rest := *s.sample // which a recording may hold
	rest.Ports = slices.DeleteFunc(slices.Clone(rest.Ports), func(p counters.Port) bool { return gone[p.ID] })
	rest.GPUs = slices.DeleteFunc(slices.Clone(rest.GPUs), func(g counters.GPU) bool { return gone[g.ID] })
	s.sample = &rest
}
