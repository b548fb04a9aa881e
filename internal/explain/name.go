package explain

import (
	"fmt"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
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
func NodeText(h *pathsel.Host, id topo.ID) string {
	index := h.Index()
	switch n := index.Node(id).(type) {
	case *topo.GPU:
		return withAddress(string(n.ID), n.BDF)
	case *topo.RDMADevice:
		return withAddress(n.Name, n.BDF)
	case *topo.Netdev:
		return withAddress(n.Name, n.BDF)
	}
	if name := deviceText(index.On(id)); name != "" && id != "" {
		return name
	}
	if s := index.SwitchOf(id); s != nil {
		return "switch " + short(s.Upstream.Name())
	}
	if d := index.PCIDevice(id); d != nil {
		if d.Role == topo.RoleRootPort && strings.HasPrefix(string(d.Parent), "hb:") {
			return "host bridge " + d.Parent.Name()
		}
		return short(id.Name())
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

// deviceText names the devices of a PCI function by the first, "" without one.
func deviceText(on topo.Devices) string {
	switch {
	case len(on.GPUs) > 0:
		return withAddress(string(on.GPUs[0].ID), on.GPUs[0].BDF)
	case len(on.RDMADevices) > 0:
		return withAddress(on.RDMADevices[0].Name, on.RDMADevices[0].BDF)
	case len(on.NVMes) > 0:
		return withAddress(on.NVMes[0].Name, on.NVMes[0].BDF)
	case len(on.Netdevs) > 0:
		return withAddress(on.Netdevs[0].Name, on.Netdevs[0].BDF)
	}
	return ""
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
	l := h.Index().Link(id)
	if l == nil {
		return string(id)
	}
	switch l.Kind {
	case topo.LinkPCIe:
		return pcieText(h, l)
	case topo.LinkRootComplex:
		return "root complex " + l.B.Name()
	case topo.LinkSocket:
		name := fmt.Sprintf("link between NUMA %s and %s", l.A.Name(), l.B.Name())
		if l.Note != "" {
			name += " (" + l.Note + ")"
		}
		return name
	case topo.LinkC2C:
		return "C2C link of " + string(l.A)
	case topo.LinkNVLink, topo.LinkXGMI:
		name := text.Plural(l.Count, map[topo.LinkKind]string{topo.LinkNVLink: "NVLink", topo.LinkXGMI: "xGMI link"}[l.Kind])
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
	if p, ok := h.Port(topo.ID(id)); ok {
		name = p.Name
	}
	name = "wire of " + name
	if l.BytesPerSec != nil && *l.BytesPerSec > 0 {
		name += ", " + units.Rate(int64(*l.BytesPerSec), units.Gbit)
	} else if l.Note != "" {
		name += " (" + l.Note + ")"
	}
	return name
}

// pcieText names a PCIe link by what is below it, with its state.
func pcieText(h *pathsel.Host, l *topo.Link) string {
	name := "PCIe link of " + NodeText(h, l.B)
	state := l.Cur
	if l.Cur != nil && l.Max != nil && l.BytesPerSec != nil && *l.BytesPerSec == topo.PCIeRate(l.Max.SpeedMTs, l.Cur.Width) {
		state = &topo.LaneRate{SpeedMTs: l.Max.SpeedMTs, Width: l.Cur.Width} // a GPU that may be idle
	}
	if state != nil {
		name += ", " + laneText(state)
	}
	if isDegraded(h, l) {
		name += " (could be " + laneText(l.Max) + ")"
	}
	return name
}

func laneText(r *topo.LaneRate) string {
	return units.PCIe(r.SpeedMTs, r.Width)
}
