package diff

import (
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

// plans compares which ports each GPU (or NUMA node, on a host without GPUs) has
// when all of them share the ports.
func (c *comparer) plans(r *rivals) {
	older, ok1 := c.plan(r.old, c.old)
	newer, ok2 := c.plan(r.new, c.new)
	if !ok1 || !ok2 {
		return
	}
	why := c.restsOn(r, usablePorts(r.old), usablePorts(r.new))
	for _, l := range r.locations {
		x, ok1 := older.Of(string(l.old))
		y, ok2 := newer.Of(string(l.new))
		if !ok1 || !ok2 || r.samePorts(planned(x), planned(y)) {
			continue
		}
		ch := Choice{Choice: ChoicePlan, Locations: []Node{c.location(l)}, Old: []string{}, New: []string{}, OldNames: []string{}, NewNames: []string{}}
		for _, p := range x.Ports {
			ch.Old, ch.OldNames = append(ch.Old, string(p.Port)), append(ch.OldNames, p.Name)
		}
		for _, p := range y.Ports {
			ch.New, ch.NewNames = append(ch.New, string(p.Port)), append(ch.NewNames, p.Name)
		}
		bounds := x.Basis == topo.BasisAssumed || y.Basis == topo.BasisAssumed
		if x.BytesPerSec != nil && y.BytesPerSec != nil && *x.BytesPerSec != *y.BytesPerSec && !bounds {
			ch.Effect = "with all busy " + rates(*x.BytesPerSec, *y.BytesPerSec)
		}
		if why != nil {
			c.unsure(ch, ch.Locations[0], why)
			continue
		}
		c.choose(ch)
	}
}

func planned(a *pathsel.Assignment) []topo.ID {
	out := make([]topo.ID, len(a.Ports))
	for i := range a.Ports {
		out[i] = a.Ports[i].Port
	}
	return out
}

// plan makes one side's plan. A host with more ports than a plan is made for has
// none.
func (c *comparer) plan(h *pathsel.Host, s *side) (*pathsel.Plan, bool) {
	p, err := h.Plan(nil)
	if err != nil {
		c.omitFor(ChoicePlan, Node{Kind: KindHost, Old: string(KindHost), New: string(KindHost), Name: string(KindHost)}, s, err.Error())
		return nil, false
	}
	return p, true
}
