package pathsel

import (
	"math"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/maxmin"
	"github.com/topoctl/topoctl/internal/base/pkgerr"
)

// Capacity is what several ports carry together for one memory location, in one
// direction; the other direction has the same. The rates are a max-min fair
// allocation over the links that the routes share: two NICs behind one switch
// uplink never count twice.
type Capacity struct {
	// BytesPerSec is the sum; nil where a port's share is not known.
	BytesPerSec *topo.Rate `json:"bytes_per_sec"`
	// Basis is the weakest basis of the limits: "assumed" means an upper bound.
	Basis  topo.Basis `json:"basis"`
	Shares []Share    `json:"shares"`
}

// Share is one port's part of a joint capacity.
type Share struct {
	Port        topo.ID     `json:"port"`
	BytesPerSec *topo.Rate  `json:"bytes_per_sec"`
	Limit       topo.LinkID `json:"limit_link,omitempty"` // the link that keeps it from more
	// SharedWith are the other ports of the set that are behind the same limit.
	SharedWith []topo.ID `json:"shared_with,omitempty"`
}

// Capacity returns what the given ports carry together for a location. Unusable ports count too: a
// port that is down adds 0.
func (h *Host) Capacity(location Location, ports []topo.ID) (*Capacity, error) {
	loc, err := h.location(location)
	if err != nil {
		return nil, err
	}
	flows := make([]maxmin.Flow, 0, len(ports))
	through := make([]*Port, 0, len(ports))
	seen := make(map[topo.ID]bool, len(ports))
	for _, id := range ports {
		i, ok := h.portIndex[id]
		if !ok {
			return nil, pkgerr.Errorf("pathsel", "%q is no port of this host", id)
		}
		if seen[id] {
			return nil, pkgerr.Errorf("pathsel", "port %q is given twice", id)
		}
		seen[id] = true
		flows = append(flows, maxmin.Flow{Segments: h.routes[loc][i].segments, Weight: 1})
		through = append(through, &h.ports[i])
	}
	h.share(flows, through)
	c := &Capacity{Shares: make([]Share, 0, len(ports))}
	bases := make([]topo.Basis, 0, len(ports))
	for i, id := range ports {
		s := Share{Port: id}
		f := &flows[i]
		basis := topo.BasisUnknown
		if !f.Unlimited() {
			rate := roundRate(f.Rate)
			link := &h.segLinks[f.Limit/2]
			s.BytesPerSec, s.Limit, basis = &rate, link.ID, link.Basis
			if h.routes[loc][h.portIndex[id]].uncertain && rate > 0 {
				basis = topo.BasisAssumed
			}
			for j := range flows {
				if j != i && flows[j].Limit == f.Limit {
					s.SharedWith = append(s.SharedWith, ports[j])
				}
			}
		}
		bases = append(bases, basis)
		c.Shares = append(c.Shares, s)
	}
	c.BytesPerSec, c.Basis = sum(c.Shares), weakest(bases)
	return c, nil
}

// share shares the links among flows, each through a port. What several flows through ports of unknown
// rate have of a PCIe link or a wire of unknown rate is not known, however fast the links are that each
// has for itself: such flows are left without limit, unless a link of known rate that all of them
// cross is full.
func (h *Host) share(flows []maxmin.Flow, through []*Port) {
	maxmin.New(h.caps).Share(flows)
	across := map[topo.LinkID][]int{} // flows that cross a link of unknown rate
	for i := range flows {
		unrated := slices.DeleteFunc(h.wires(through[i]), func(id topo.LinkID) bool {
			l, ok := h.graph.Link(id)
			return ok && l.BytesPerSec != nil
		})
		if len(unrated) == 0 {
			continue
		}
		for _, s := range flows[i].Segments {
			if l := &h.segLinks[s/2]; l.Kind == topo.LinkPCIe && l.BytesPerSec == nil {
				unrated = append(unrated, l.ID)
			}
		}
		for _, id := range unrated {
			across[id] = append(across[id], i)
		}
	}
	var unknown []int
	for _, of := range across {
		if len(of) > 1 && !fullTogether(flows, of) {
			unknown = append(unknown, of...)
		}
	}
	for _, i := range unknown {
		flows[i].Rate, flows[i].Limit = math.Inf(1), -1
	}
}

// fullTogether says whether a link that holds one of some flows back is on the way of all of them.
func fullTogether(flows []maxmin.Flow, of []int) bool {
	return slices.ContainsFunc(of, func(i int) bool {
		limit := flows[i].Limit
		return limit >= 0 && !slices.ContainsFunc(of, func(j int) bool { return !slices.Contains(flows[j].Segments, limit) })
	})
}

// sum adds the shares up, nil where one is not known.
func sum(shares []Share) *topo.Rate {
	total := topo.Rate(0)
	for _, s := range shares {
		if s.BytesPerSec == nil {
			return nil
		}
		total += *s.BytesPerSec
	}
	return &total
}

// roundRate gives whole bytes per second, never more than there are.
func roundRate(v float64) topo.Rate { return topo.Rate(maxmin.Whole(v)) }

// weakest is the basis of a figure that rests on several.
func weakest(bases []topo.Basis) topo.Basis {
	if len(bases) == 0 {
		return topo.BasisUnknown
	}
	return slices.MaxFunc(bases, topo.Basis.Compare)
}
