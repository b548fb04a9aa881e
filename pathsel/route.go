package pathsel

import (
	"math"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/maxmin"
	"github.com/topoctl/topoctl/internal/pick"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// A segment is one direction of a link: 2*link for Down, 2*link+1 for Up.
// Segments of unknown capacity are infinite: they limit nothing and make what
// is computed over them an upper bound.
type segment = maxmin.Segment

// route is the way from a memory location to a port, in that direction: the
// segments it takes and what they allow one transfer alone.
type route struct {
	class     topo.Class
	nccl      topo.NCCLClass
	hops      int // -1 unknown
	segments  []segment
	rate      topo.Rate // -1 unknown
	limit     topo.LinkID
	basis     topo.Basis
	uncertain bool // a link of unknown rate is on the way
}

// findRoutes computes the way from every location to every port.
func (h *Host) findRoutes() {
	links := make(map[topo.LinkID]int, len(h.t.Links))
	h.segLinks = make([]topo.Link, len(h.t.Links))
	for i := range h.t.Links {
		l, _ := h.graph.Link(h.t.Links[i].ID)
		if l.BytesPerSec != nil {
			rate := min(max(*l.BytesPerSec, 0), pick.MaxRate)
			l.BytesPerSec = &rate
		}
		links[l.ID], h.segLinks[i] = i, l
	}
	h.findCaps()
	h.routes = make([][]route, len(h.locations))
	for l, loc := range h.nodes {
		h.routes[l] = make([]route, len(h.ports))
		for p := range h.ports {
			r := &h.routes[l][p]
			r.hops, r.rate, r.basis = -1, -1, topo.BasisUnknown
			if kind, ok := h.index.Relation(loc, h.ports[p].NIC); ok {
				r.class, r.nccl = h.near.Of(kind.Class), kind.NCCL
				if kind.Hops != nil {
					r.hops = *kind.Hops
				}
			}
			h.walk(r, loc, &h.ports[p], links)
		}
	}
}

// findCaps lists the capacities of the links' segments.
func (h *Host) findCaps() {
	h.caps = make([]float64, 2*len(h.segLinks))
	for i := range h.segLinks {
		c := math.Inf(1)
		if r := h.segLinks[i].BytesPerSec; r != nil {
			c = float64(*r)
		}
		h.caps[2*i], h.caps[2*i+1] = c, c
	}
}

// walk lists the segments of a route: through the host, then the wires.
func (h *Host) walk(r *route, loc topo.ID, p *Port, links map[topo.LinkID]int) {
	steps, ok := h.graph.Path(loc, h.anchor(p))
	r.uncertain = !ok
	for _, s := range steps {
		if s.Kind == topo.LinkPort {
			continue // which wire it is depends on the port
		}
		i := links[s.Link]
		if s.Dir != topo.Up {
			r.segments = append(r.segments, segment(2*i))
		}
		if s.Dir != topo.Down {
			r.segments = append(r.segments, segment(2*i+1))
		}
	}
	for _, id := range h.wires(p) {
		if i, ok := links[id]; ok {
			r.segments = append(r.segments, segment(2*i))
		} else {
			r.uncertain = true
		}
	}
	h.bound(r, loc)
}

// Route lists the links that data crosses from a memory location to a port and out
// by its wire, in the direction of travel, with the rates that the host was prepared
// with; incoming data crosses them the other way. A link that is crossed both ways, as a root
// complex may be, is listed twice. Parts of the way that are not known are missing.
func (h *Host) Route(location Location, port topo.ID) ([]topo.Step, error) {
	loc, err := h.location(location)
	if err != nil {
		return nil, err
	}
	i, ok := h.portIndex[port]
	if !ok {
		return nil, pkgerr.Errorf("pathsel", "%q is no port of this host", port)
	}
	var steps []topo.Step
	for _, s := range h.routes[loc][i].segments {
		l := h.linkOf(s)
		dir := topo.Down
		if s%2 == 1 {
			dir = topo.Up
		}
		steps = append(steps, topo.Step{Link: l.ID, Kind: l.Kind, Dir: dir, BytesPerSec: l.BytesPerSec, Basis: l.Basis})
	}
	return steps, nil
}

// anchor is the node where a port's traffic leaves the PCI tree.
func (h *Host) anchor(p *Port) topo.ID {
	if p.rdma != nil && p.rdma.PCI == "" && p.netdev != nil {
		return p.netdev.ID // software RDMA on an interface
	}
	return p.NIC
}

// wires are the links that a port's traffic leaves by: its own, and for a
// virtual function its physical function's too, so that both share it.
func (h *Host) wires(p *Port) []topo.LinkID {
	own := topo.LinkID(p.ID)
	switch {
	case !p.RDMA():
		own = topo.LinkID("port:" + p.NIC.Name()) // also as a leg of a bond
	case p.netdev != nil && p.Software:
		own = topo.LinkID("port:" + p.netdev.Name)
	case p.Software:
		own = "" // on an interface that is not known
	}
	if i, ok := h.portIndex[p.PF]; ok {
		return append([]topo.LinkID{own}, h.wires(&h.ports[i])...)
	}
	if p.wire != "" && p.wire != own {
		return []topo.LinkID{own, p.wire}
	}
	return []topo.LinkID{own}
}

// bound finds what a route allows one transfer alone, by the rule of
// topo.Relation: the smallest known rate, a bound where it is sure and another link has
// none. A root complex on the way to memory of the CPU's is built for that.
func (h *Host) bound(r *route, loc topo.ID) {
	memory := strings.HasPrefix(string(loc), "numa:") || slices.ContainsFunc(r.segments, func(s segment) bool { return h.linkOf(s).Kind == topo.LinkC2C })
	for _, s := range r.segments {
		l := h.linkOf(s)
		switch {
		case l.BytesPerSec == nil:
			r.uncertain = r.uncertain || !memory || l.Kind != topo.LinkRootComplex
		case r.rate < 0 || *l.BytesPerSec < r.rate:
			r.rate, r.limit, r.basis = *l.BytesPerSec, l.ID, l.Basis
		}
	}
	if r.uncertain && r.rate > 0 {
		r.basis = r.basis.Bounded()
	}
}

// expected is the route's rate as a pointer, nil where it is unknown.
func (r *route) expected() *topo.Rate {
	if r.rate < 0 {
		return nil
	}
	rate := r.rate
	return &rate
}
