package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/units"
	"github.com/topoctl/topoctl/pathsel"
)

// ShortName is a node as people call it: memory locations with their kind.
func ShortName(id topo.ID) string {
	if s := string(id); strings.HasPrefix(s, "gpu:") || strings.HasPrefix(s, "numa:") {
		return string(pathsel.LocationOf(id))
	}
	return id.Name()
}

// NodeText names a node of a route for people: devices with their address,
// ports of a switch as the switch, root ports as their host bridge.
func NodeText(t *topo.Topology, id topo.ID) string {
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

// LinkText names a link for people.
func LinkText(h *pathsel.Host, id topo.LinkID) string {
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
	text := "PCIe link of " + NodeText(t, l.B)
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
