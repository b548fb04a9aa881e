package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/picture"
	"github.com/topoctl/topoctl/internal/text"
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
func ToPort(h *pathsel.Host, location pathsel.Location, c *pathsel.Candidate) *Route {
	r := RouteBetween(h, location.Node(), c.Port)
	r.Class, r.NCCL, r.Hops = c.Class, c.NCCL, c.Hops
	r.BytesPerSec, r.Limit, r.Basis = c.BytesPerSec, c.Limit, c.Basis
	return r
}

// RouteBetween is the way between two nodes, with the rates that the host was prepared with.
func RouteBetween(h *pathsel.Host, from, to topo.ID) *Route {
	g := h.Graph()
	a, wireA := Anchor(h, from)
	b, wireB := Anchor(h, to)
	rel := g.Relate(a, b)
	r := &Route{From: from, To: to, Class: h.Nearness().Of(rel.Class), NCCL: rel.NCCL, Hops: rel.Hops, BytesPerSec: rel.BytesPerSec, Limit: rel.Limit,
		Basis: rel.Basis, SamePackage: rel.SamePackage, Steps: []Step{}}
	path, ok := g.Path(a, b)
	r.Known = ok
	wired := false
	for _, s := range path {
		wired = wired || s.Kind == topo.LinkPort
		r.add(h, s.Link, s.Dir)
	}
	if wireB != "" && !wired && ok { // a NIC with several ports: Path cannot know which
		r.add(h, wireB, topo.Down)
	}
	if wireA != "" && !wired && ok {
		r.add(h, wireA, topo.Up)
		last := len(r.Steps) - 1
		r.Steps = append([]Step{r.Steps[last]}, r.Steps[:last]...)
	}
	if gpu := h.Index().GPU(from); gpu != nil {
		r.PeerAccess = gpu.P2P[to]
	}
	return r
}

// Anchor is the node of the graph that a device stands on, and the wire of a
// port.
func Anchor(h *pathsel.Host, id topo.ID) (topo.ID, topo.LinkID) {
	if p, ok := h.Port(id); ok {
		if p.Software && p.Netdev != "" {
			return topo.NetdevID(p.Netdev), ""
		}
		if p.Number > 0 {
			return p.NIC, topo.LinkID(p.ID)
		}
		return p.NIC, ""
	}
	if n := h.Index().NVMe(id); n != nil {
		return n.PCI, ""
	}
	return id, ""
}

// add appends a link to the route.
func (r *Route) add(h *pathsel.Host, id topo.LinkID, dir topo.Direction) {
	l, ok := h.Graph().Link(id)
	if !ok {
		return
	}
	s := Step{Link: id, Kind: l.Kind, From: l.A, To: l.B, BytesPerSec: l.BytesPerSec, Basis: l.Basis,
		Current: l.Cur, Max: l.Max, Degraded: isDegraded(h, &l), Note: l.Note, Evidence: evidenceOf(h.Index(), &l), Dir: dir}
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
func isDegraded(h *pathsel.Host, l *topo.Link) bool {
	if l.Kind != topo.LinkPCIe || l.BytesPerSec == nil || l.Max == nil || *l.BytesPerSec >= l.Max.BytesPerSec {
		return false
	}
	ends := picture.EndsOf(h.Index().PCIDevice(l.A), h.Index().PCIDevice(l.B))
	return ends.Degraded(false)
}

// evidenceOf is where a link's rate was read.
func evidenceOf(index *topo.Index, l *topo.Link) string {
	at, file := "", ""
	switch n := index.Node(l.B).(type) {
	case *topo.PCIDevice:
		at, file = n.Evidence, "/current_link_speed"
		if l.Cur != nil && l.Max != nil && l.Cur.Width < l.Max.Width {
			file = "/current_link_width"
		}
	case *topo.Port:
		at, file = n.Evidence, "/rate"
	case *topo.Netdev:
		at, file = n.Evidence, "/speed"
	}
	if l.Kind != topo.LinkPCIe && l.Kind != topo.LinkPort || !strings.HasPrefix(at, "/") {
		return ""
	}
	return at + file
}

// Facts say what the route is in the terms of nvidia-smi and, with nccl, of NCCL; unknown stands for a class
// that is not known.
func (r *Route) Facts(unknown string, nccl bool) []string {
	class := cmp.Or(r.Class.String(), unknown)
	if nccl && r.NCCL != "" && string(r.NCCL) != class {
		class += " (NCCL " + string(r.NCCL) + ")"
	}
	facts := []string{class}
	if r.SamePackage {
		facts = append(facts, "one socket")
	}
	if r.Hops != nil {
		facts = append(facts, text.Plural(*r.Hops, "link"))
	}
	return facts
}

// Why says what makes the class of a route: the switch or host bridge where the ways of
// both ends meet, or the link that leads from one to the other.
func Why(h *pathsel.Host, r *Route) string {
	switch {
	case r.From == r.To:
		return "the device itself"
	case !r.Known && r.Class.Known():
		return "the origin says so; the links between are not known"
	case !r.Known:
		return "the way between them is not known"
	case !r.Class.Known():
		return "how near " + h.Unseen()
	}
	for _, kind := range []topo.LinkKind{topo.LinkNVLink, topo.LinkXGMI, topo.LinkSocket, topo.LinkC2C} {
		if i := slices.IndexFunc(r.Steps, func(s Step) bool { return s.Kind == kind }); i >= 0 {
			return "by the " + LinkText(h, r.Steps[i].Link)
		}
	}
	var bridges []string
	for i := range r.Steps {
		if s := &r.Steps[i]; s.Kind == topo.LinkRootComplex {
			bridges = append(bridges, h.Index().Link(s.Link).B.Name())
		}
	}
	switch len(bridges) {
	case 0:
	case 1:
		return "by host bridge " + bridges[0]
	default:
		return fmt.Sprintf("by host bridges %s and %s of one NUMA node", bridges[0], bridges[len(bridges)-1])
	}
	top := topo.ID("")
	for i := range r.Steps {
		if r.Steps[i].Dir == topo.Up && r.Steps[i].Kind == topo.LinkPCIe {
			top = r.Steps[i].To
		}
	}
	if top == "" {
		return "on one card"
	}
	return "they meet at " + NodeText(h, top) + ", below any host bridge"
}
