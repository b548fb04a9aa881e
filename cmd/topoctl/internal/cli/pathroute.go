package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"
)

// routeToPort is the way from memory to a port, the wire included. Its rate is
// the candidate's, so that both say the same.
func routeToPort(h *pathsel.Host, rates topo.Overlay, location pathsel.Location, c *pathsel.Candidate) *pathRoute {
	r := routeBetween(h, rates, location.Node(), c.Port)
	r.Class, r.NCCL, r.Hops = c.Class, c.NCCL, c.Hops
	r.BytesPerSec, r.Limit, r.Basis = c.BytesPerSec, c.Limit, c.Basis
	return r
}

// routeBetween is the way between two nodes, with measured rates of links.
func routeBetween(h *pathsel.Host, rates topo.Overlay, from, to topo.ID) *pathRoute {
	t := h.Topology()
	g := topo.NewGraph(t, rates)
	a, wireA := anchor(h, from)
	b, wireB := anchor(h, to)
	rel := g.Relate(a, b)
	r := &pathRoute{From: from, To: to, Class: rel.Class, NCCL: rel.NCCL, BytesPerSec: rel.BytesPerSec, Limit: rel.Limit,
		Basis: rel.Basis, SamePackage: rel.SamePackage, Steps: []pathStep{}}
	if rel.Hops >= 0 {
		r.Hops = &rel.Hops
	}
	path, ok := g.Path(a, b)
	r.known = ok
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
		r.Steps = append([]pathStep{r.Steps[last]}, r.Steps[:last]...)
	}
	for i := range t.GPUs {
		if t.GPUs[i].ID == from {
			r.PeerAccess = t.GPUs[i].P2P[to]
		}
	}
	return r
}

// anchor is the node of the graph that a device stands on, and the wire of a
// port.
func anchor(h *pathsel.Host, id topo.ID) (topo.ID, topo.LinkID) {
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
func (r *pathRoute) add(h *pathsel.Host, g *topo.Graph, id topo.LinkID, dir topo.Direction) {
	l, ok := g.Link(id)
	if !ok {
		return
	}
	s := pathStep{Link: id, Kind: l.Kind, From: l.A, To: l.B, BytesPerSec: l.BytesPerSec, Basis: l.Basis,
		Current: l.Cur, Max: l.Max, Degraded: isDegraded(h.Topology(), &l), Note: l.Note, Evidence: evidenceOf(h, &l)}
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

// nodeText names a node of a route for people: devices with their address,
// ports of a switch as the switch, root ports as their host bridge.
func nodeText(t *topo.Topology, id topo.ID) string {
	for i := range t.GPUs {
		if g := &t.GPUs[i]; g.ID == id || g.PCI == id && id != "" {
			return withAddress(string(g.ID), g.BDF)
		}
	}
	for i := range t.RDMADevices {
		if r := &t.RDMADevices[i]; r.ID == id || r.PCI == id && id != "" {
			return withAddress(r.Name, r.BDF)
		}
	}
	for i := range t.NVMes {
		if n := &t.NVMes[i]; n.PCI == id && id != "" {
			return withAddress(n.Name, n.BDF)
		}
	}
	for i := range t.Netdevs {
		if n := &t.Netdevs[i]; n.ID == id || n.PCI == id && id != "" {
			return withAddress(n.Name, n.BDF)
		}
	}
	return bridgeText(t, id)
}

// bridgeText names what is no device: switches, host bridges, NUMA nodes.
func bridgeText(t *topo.Topology, id topo.ID) string {
	for i := range t.Switches {
		s := &t.Switches[i]
		if s.Upstream == id || slices.Contains(s.Downstream, id) {
			return "switch " + short(s.Upstream.Name())
		}
	}
	for i := range t.PCIDevices {
		d := &t.PCIDevices[i]
		switch {
		case d.ID != id:
		case d.Role == topo.RoleRootPort && strings.HasPrefix(string(d.Parent), "hb:"):
			return "host bridge " + d.Parent.Name()
		default:
			return short(id.Name())
		}
	}
	kind, name, _ := strings.Cut(string(id), ":")
	switch kind {
	case "numa":
		return "NUMA " + name
	case "hb":
		return "host bridge " + name
	case "port":
		return "wire"
	case "nvme":
		return name
	}
	if id == topo.FabricID {
		return "NVSwitch"
	}
	return string(id)
}

func withAddress(name string, bdf *topo.BDF) string {
	if bdf == nil {
		return name
	}
	return name + " " + short(bdf.String())
}

// short leaves out domain 0.
func short(address string) string { return strings.TrimPrefix(address, "0000:") }

// linkText names a link for people.
func linkText(h *pathsel.Host, id topo.LinkID) string {
	t := h.Topology()
	i := slices.IndexFunc(t.Links, func(l topo.Link) bool { return l.ID == id })
	if i < 0 {
		return string(id)
	}
	l := &t.Links[i]
	switch l.Kind {
	case topo.LinkPCIe:
		return pcieText(t, l)
	case topo.LinkRootComplex:
		return "root complex " + l.B.Name()
	case topo.LinkSocket:
		text := fmt.Sprintf("link between NUMA %s and %s", l.A.Name(), l.B.Name())
		if l.Note != "" {
			text += " (" + l.Note + ")"
		}
		return text
	case topo.LinkC2C:
		return "C2C link of " + string(l.A)
	case topo.LinkNVLink, topo.LinkXGMI:
		name := plural(l.Count, map[topo.LinkKind]string{topo.LinkNVLink: "NVLink", topo.LinkXGMI: "xGMI link"}[l.Kind])
		if l.A == topo.FabricID || l.B == topo.FabricID {
			gpu := l.A
			if gpu == topo.FabricID {
				gpu = l.B
			}
			return fmt.Sprintf("%s of %s to NVSwitch", name, gpu)
		}
		return fmt.Sprintf("%s between %s and %s", name, l.A, l.B)
	}
	name := strings.TrimPrefix(string(id), "port:")
	for _, p := range h.Ports() {
		if string(p.ID) == string(id) {
			name = p.Name
		}
	}
	text := "wire of " + name
	if l.BytesPerSec != nil && *l.BytesPerSec > 0 {
		text += ", " + units.Rate(int64(*l.BytesPerSec), units.Gbit)
	} else if l.Note != "" {
		text += " (" + l.Note + ")"
	}
	return text
}

// pcieText names a PCIe link by what is below it, with its state.
func pcieText(t *topo.Topology, l *topo.Link) string {
	text := "PCIe link of " + nodeText(t, l.B)
	state := l.Cur
	if l.Cur != nil && l.Max != nil && l.BytesPerSec != nil && *l.BytesPerSec == topo.PCIeRate(l.Max.SpeedMTs, l.Cur.Width) {
		state = &topo.LaneRate{SpeedMTs: l.Max.SpeedMTs, Width: l.Cur.Width} // a GPU that may be idle
	}
	if state != nil {
		text += ", " + laneText(state)
	}
	if isDegraded(t, l) {
		text += " (could be " + laneText(l.Max) + ")"
	}
	return text
}

func laneText(r *topo.LaneRate) string {
	return units.PCIe(topo.PCIeGen(r.SpeedMTs), r.SpeedMTs, r.Width)
}
