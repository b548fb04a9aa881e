package state

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
)

// replaced forgets what was counted of devices whose names others have now: interfaces are
// renamed, and where a GPU is gone the next ones take its number.
func (s *State) replaced(was, now *topo.Topology) {
	if was == nil || was == now {
		return
	}
	before, gone := identities(was), map[topo.ID]bool{}
	for id, is := range identities(now) {
		if old := before[id]; is != "" && old != "" && is != old {
			gone[id] = true
			delete(s.Ports, id)
			delete(s.GPUs, id)
		}
	}
	if s.sample == nil || len(gone) == 0 {
		return
	}
	rest := *s.sample // which a recording may hold
	rest.Ports = slices.DeleteFunc(slices.Clone(rest.Ports), func(p counters.Port) bool { return gone[p.ID] })
	rest.GPUs = slices.DeleteFunc(slices.Clone(rest.GPUs), func(g counters.GPU) bool { return gone[g.ID] })
	s.sample = &rest
}

// identities are the devices behind the names of what is counted, "" where that is not known.
func identities(t *topo.Topology) map[topo.ID]string {
	out := map[topo.ID]string{}
	for i := range t.RDMADevices {
		out[t.RDMADevices[i].ID] = cmp.Or(string(t.RDMADevices[i].PCI), t.RDMADevices[i].NodeGUID)
	}
	for i := range t.Ports {
		out[t.Ports[i].ID] = out[t.Ports[i].RDMA]
	}
	for i := range t.Netdevs {
		if n := &t.Netdevs[i]; n.Index != nil {
			out[n.ID] = strconv.Itoa(*n.Index)
		}
	}
	for i := range t.GPUs {
		if g := &t.GPUs[i]; g.BDF != nil {
			out[g.ID] = g.BDF.String()
		}
	}
	return out
}
