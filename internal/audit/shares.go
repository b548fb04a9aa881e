package audit

import (
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

// planned is what a plan says of a port.
type planned struct {
	share float64
	of    []string // consumers
}

// sharesOf gives each port's part of all traffic: every consumer moves as much as the others, and
// its ports carry that in proportion to their rates, or equally where one is not known.
func sharesOf(p *pathsel.Plan) map[topo.ID]*planned {
	out := map[topo.ID]*planned{}
	busy := 0
	for i := range p.Assignments {
		if len(p.Assignments[i].Ports) > 0 {
			busy++
		}
	}
	for i := range p.Assignments {
		a := &p.Assignments[i]
		sum, known := 0.0, true
		for j := range a.Ports {
			r := a.Ports[j].BytesPerSec
			if r == nil || *r <= 0 {
				known = false
				break
			}
			sum += float64(*r)
		}
		for j := range a.Ports {
			c := &a.Ports[j]
			part := 1 / float64(len(a.Ports))
			if known {
				part = float64(*c.BytesPerSec) / sum
			}
			if out[c.Port] == nil {
				out[c.Port] = &planned{}
			}
			out[c.Port].share += part / float64(busy)
			out[c.Port].of = append(out[c.Port].of, a.Consumer)
		}
	}
	return out
}
