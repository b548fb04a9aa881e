package pathsel

import (
	"cmp"
	"math"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/maxmin"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Capacity is what several ports carry together for one memory location, in one
// direction; the other direction has the same. The rates are a max-min fair
// allocation over the links that the routes share: two NICs behind one switch
// uplink never count twice.
type Capacity struct {
	// BytesPerSec is the sum; nil where a port's share is not known.
	BytesPerSec *topo.Rate `json:"bytes_per_sec"`
	// Basis is the weakest basis of the shares.
	Basis  topo.Basis `json:"basis"`
	Shares []Share    `json:"shares"`
}

// Share is one port's part of a joint capacity.
type Share struct {
	Port        topo.ID     `json:"port"`
	BytesPerSec *topo.Rate  `json:"bytes_per_sec"`
	Basis       topo.Basis  `json:"basis"`
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
	routes := make([]*route, 0, len(ports))
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
		routes = append(routes, &h.routes[loc][i])
		through = append(through, &h.ports[i])
	}
	flows, bases := h.flows(routes, through)
	c := &Capacity{Shares: make([]Share, 0, len(ports))}
	for i, id := range ports {
		s := Share{Port: id, Basis: bases[i]}
		if f := &flows[i]; !f.Unlimited() {
			rate := roundRate(f.Rate)
			s.BytesPerSec, s.Limit = &rate, h.linkOf(f.Limit).ID
			for j := range flows {
				if j != i && flows[j].Limit == f.Limit {
					s.SharedWith = append(s.SharedWith, ports[j])
				}
			}
		}
		c.Shares = append(c.Shares, s)
	}
	c.BytesPerSec, c.Basis = h.together(flows, bases)
	return c, nil
}

// flows shares the links among flows along some routes, each through a port, and says how the share of
// each is known.
func (h *Host) flows(routes []*route, through []*Port) ([]maxmin.Flow, []topo.Basis) {
	flows := make([]maxmin.Flow, len(routes))
	for i, r := range routes {
		flows[i] = maxmin.Flow{Segments: r.segments, Weight: 1}
	}
	h.share(flows, through)
	return flows, basesOf(flows, func(i int) bool { return routes[i].uncertain || through[i].mayShareWire(through) }, h.linkOf)
}

// together gives the sum of some flows, nil if one share is not known, and the basis of the sum. That is
// the basis of the weakest share; but if a link that all flows cross is full, the rate of that link
// bounds the sum, however the single shares are known.
func (h *Host) together(flows []maxmin.Flow, bases []topo.Basis) (*topo.Rate, topo.Basis) {
	sum, basis := topo.Rate(0), weakest(bases)
	for i := range flows {
		if flows[i].Unlimited() {
			return nil, basis
		}
		sum += roundRate(flows[i].Rate)
	}
	for i := range flows {
		avoids := func(f maxmin.Flow) bool { return !slices.Contains(f.Segments, flows[i].Limit) }
		if basis == topo.BasisTypical && h.linkOf(flows[i].Limit).Basis.Sure() && !slices.ContainsFunc(flows, avoids) {
			basis = topo.BasisBound
		}
	}
	return &sum, basis
}

func (h *Host) linkOf(s segment) *topo.Link { return &h.segLinks[s/2] }

// basesOf says how the shares of flows are known: each as the link that holds it back, a bound where
// uncertain says that a link of unknown rate is on its way. What a flow has of a link that another
// one leaves to it is typical if the other's is.
func basesOf(flows []maxmin.Flow, uncertain func(flow int) bool, linkOf func(segment) *topo.Link) []topo.Basis {
	out := make([]topo.Basis, len(flows))
	order := make([]int, len(flows))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(flows[a].Rate/flows[a].Weight, flows[b].Rate/flows[b].Weight) })
	for n, i := range order {
		f := &flows[i]
		if f.Unlimited() {
			out[i] = topo.BasisUnknown
			continue
		}
		out[i] = linkOf(f.Limit).Basis
		for _, j := range order[:n] {
			if o := &flows[j]; out[j] == topo.BasisTypical && o.Limit != f.Limit && slices.Contains(o.Segments, f.Limit) {
				out[i] = topo.BasisTypical
			}
		}
		if uncertain(i) && f.Rate > 0 {
			out[i] = out[i].Bounded()
		}
	}
	return out
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
			if l := h.linkOf(s); l.Kind == topo.LinkPCIe && l.BytesPerSec == nil {
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

// roundRate gives whole bytes per second, never more than there are.
func roundRate(v float64) topo.Rate { return topo.Rate(maxmin.Whole(v)) }

// weakest is the basis of a figure that rests on several.
func weakest(bases []topo.Basis) topo.Basis {
	if len(bases) == 0 {
		return topo.BasisUnknown
	}
	return slices.MaxFunc(bases, topo.Basis.Compare)
}
