package explain

import (
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

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
	}
	for _, kind := range []topo.LinkKind{topo.LinkNVLink, topo.LinkXGMI, topo.LinkSocket, topo.LinkC2C} {
		if i := slices.IndexFunc(r.Steps, func(s Step) bool { return s.Kind == kind }); i >= 0 {
			return "by the " + LinkText(h, r.Steps[i].Link)
		}
	}
	var bridges []string
	for i := range r.Steps {
		if s := &r.Steps[i]; s.Kind == topo.LinkRootComplex {
			bridges = append(bridges, rootComplexText(h.Topology(), s.Link))
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
	return "they meet at " + NodeText(h.Topology(), top) + ", below any host bridge"
}

// rootComplexText is the host bridge of a root complex's link.
func rootComplexText(t *topo.Topology, id topo.LinkID) string {
	i := slices.IndexFunc(t.Links, func(l topo.Link) bool { return l.ID == id })
	if i < 0 {
		return string(id)
	}
	return t.Links[i].B.Name()
}
