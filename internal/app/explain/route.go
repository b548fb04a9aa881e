package explain

import (
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

// Route is the way between two nodes of one host.
type Route struct {
	From        topo.ID        `json:"from"`
	To          topo.ID        `json:"to"`
	Class       topo.Class     `json:"class"`
	NCCL        topo.NCCLClass `json:"nccl"`
	Hops        *int           `json:"hops"` // links within the host
	BytesPerSec *topo.Rate     `json:"expected_bytes_per_sec"`
	Limit       topo.LinkID    `json:"limit_link,omitempty"`
	Basis       topo.Basis     `json:"basis"`
	SamePackage bool           `json:"same_package,omitempty"`
	Steps       []Step         `json:"steps"`
	// PeerAccess is NVML's answer on peer access between two GPUs: "ok" or the
	// driver's reason; "" where NVML was not asked.
	PeerAccess string `json:"peer_access,omitempty"`
	// Known is false where a part of the way is not: Steps lack that part.
	Known bool `json:"-"`
}

// Step is one link of a route, in the direction of travel.
type Step struct {
	Link        topo.LinkID    `json:"link"`
	Kind        topo.LinkKind  `json:"kind"`
	From        topo.ID        `json:"from"`
	To          topo.ID        `json:"to"` // the same as From for peers below one root complex
	BytesPerSec *topo.Rate     `json:"bytes_per_sec"`
	Basis       topo.Basis     `json:"basis"`
	Current     *topo.LaneRate `json:"current,omitempty"`
	Max         *topo.LaneRate `json:"max,omitempty"`
	Degraded    bool           `json:"degraded"` // runs below what both ends can do
	Note        string         `json:"note,omitempty"`
	Evidence    string         `json:"evidence,omitempty"`
	Dir         topo.Direction `json:"-"`
}

// ToPort is the way from memory to a port, the wire included. Its rate is
// the candidate's, so that both say the same.
func ToPort(h *pathsel.Host, g *topo.Graph, location pathsel.Location, c *pathsel.Candidate) *Route {
	r := RouteBetween(h, g, location.Node(), c.Port)
	r.Class, r.NCCL, r.Hops = c.Class, c.NCCL, c.Hops
	r.BytesPerSec, r.Limit, r.Basis = c.BytesPerSec, c.Limit, c.Basis
	return r
}

// RouteBetween is the way between two nodes, with the rates of the graph.
func RouteBetween(h *pathsel.Host, g *topo.Graph, from, to topo.ID) *Route {
	t := h.Topology()
	a, wireA := Anchor(h, from)
	b, wireB := Anchor(h, to)
	rel := g.Relate(a, b)
	r := &Route{From: from, To: to, Class: rel.Class, NCCL: rel.NCCL, BytesPerSec: rel.BytesPerSec, Limit: rel.Limit,
		Basis: rel.Basis, SamePackage: rel.SamePackage, Steps: []Step{}}
	if rel.Hops >= 0 {
		r.Hops = &rel.Hops
	}
	path, ok := g.Path(a, b)
	r.Known = ok
	wired := false
	for _, s := range path {
		wired = wired || s.Kind == topo.LinkPort
		r.add(h, g, s.Link, s.Dir)
	}
	if wireB != "" && !wired && ok { // a NIC with several ports: Path cannot know which
		r.add(h, g, wireB, topo.Down)
	}
	if wireA != "" && !wired && ok {
		r.add(h, g, wireA, topo.Up)
		last := len(r.Steps) - 1
		r.Steps = append([]Step{r.Steps[last]}, r.Steps[:last]...)
	}
	for i := range t.GPUs {
		if t.GPUs[i].ID == from {
			r.PeerAccess = t.GPUs[i].P2P[to]
		}
	}
	return r
}

// Anchor is the node of the graph that a device stands on, and the wire of a
// port.
func Anchor(h *pathsel.Host, id topo.ID) (topo.ID, topo.LinkID) {
	t := h.Topology()
	if p, ok := h.Port(id); ok {
		if p.Software && p.Netdev != "" {
			return topo.NetdevID(p.Netdev), ""
		}
		if p.Number > 0 {
			return p.NIC, topo.LinkID(p.ID)
		}
		return p.NIC, ""
	}
	for i := range t.NVMes {
		if t.NVMes[i].ID == id {
			return t.NVMes[i].PCI, ""
		}
	}
	return id, ""
}

// add appends a link to the route.
func (r *Route) add(h *pathsel.Host, g *topo.Graph, id topo.LinkID, dir topo.Direction) {
	l, ok := g.Link(id)
	if !ok {
		return
	}
	s := Step{Link: id, Kind: l.Kind, From: l.A, To: l.B, BytesPerSec: l.BytesPerSec, Basis: l.Basis,
		Current: l.Cur, Max: l.Max, Degraded: isDegraded(h.Topology(), &l), Note: l.Note, Evidence: evidenceOf(h, &l), Dir: dir}
	switch dir {
	case topo.Up:
		s.From, s.To = l.B, l.A
	case topo.Both:
		s.From, s.To = l.B, l.B
	}
	r.Steps = append(r.Steps, s)
}

// isDegraded says whether a link carries less than both ends can do. The rate of
// an idle GPU's link counts with its maximum speed, so only its width matters.
func isDegraded(t *topo.Topology, l *topo.Link) bool {
	if l.Kind != topo.LinkPCIe || l.BytesPerSec == nil || l.Max == nil || *l.BytesPerSec >= l.Max.BytesPerSec {
		return false
	}
	var above, below *topo.PCIDevice
	for i := range t.PCIDevices {
		switch t.PCIDevices[i].ID {
		case l.A:
			above = &t.PCIDevices[i]
		case l.B:
			below = &t.PCIDevices[i]
		}
	}
	ends := topo.EndsOf(above, below)
	return ends.Degraded(false)
}

// evidenceOf is where a link's rate was read.
func evidenceOf(h *pathsel.Host, l *topo.Link) string {
	t := h.Topology()
	switch l.Kind {
	case topo.LinkPCIe:
		if i := slices.IndexFunc(t.PCIDevices, func(d topo.PCIDevice) bool { return d.ID == l.B }); i >= 0 && strings.HasPrefix(t.PCIDevices[i].Evidence, "/") {
			if l.Cur != nil && l.Max != nil && l.Cur.Width < l.Max.Width {
				return t.PCIDevices[i].Evidence + "/current_link_width"
			}
			return t.PCIDevices[i].Evidence + "/current_link_speed"
		}
	case topo.LinkPort:
		if i := slices.IndexFunc(t.Ports, func(p topo.Port) bool { return p.ID == l.B }); i >= 0 && strings.HasPrefix(t.Ports[i].Evidence, "/") {
			return t.Ports[i].Evidence + "/rate"
		}
		if i := slices.IndexFunc(t.Netdevs, func(n topo.Netdev) bool { return n.ID == l.B }); i >= 0 && strings.HasPrefix(t.Netdevs[i].Evidence, "/") {
			return t.Netdevs[i].Evidence + "/speed"
		}
	}
	return ""
}
