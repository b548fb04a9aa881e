// Package views has the six views of the dashboard, a file (or a few that begin with its name) for
// each. What the views of a host have in common is in host.go: its nodes by ID, what stands on
// what, what the doctor says of each, and the decisions of pathsel, computed once for a topology.
package views

import (
	"cmp"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
)

// Host is a topology prepared for drawing.
type Host struct {
	Topology *topo.Topology

	overlay  topo.Overlay
	graph    *topo.Graph // under those rates, nil until it is asked for
	index    *topo.Index
	paths    *pathsel.Host
	plan     *pathsel.Plan // of all GPUs, nil until it is asked for
	audited  audited
	pathsErr error
	ranks    map[pathsel.Location]*pathsel.Affinity
	doctor   *doctor.Report
	findings map[topo.ID][]*doctor.Finding
	worst    map[topo.ID]ui.Style // of the findings about a device, its ports and its function
}

// Cache keeps the host that views share. The zero value is empty.
type Cache struct {
	h *Host
}

// Of is the host of a state, nil where no topology is known. It is the same one until the
// topology changes.
func (c *Cache) Of(s *state.State) *Host {
	if s == nil || s.Topology == nil || s.Topology.Derived == nil {
		c.h = nil
		return nil
	}
	if c.h == nil || c.h.Topology != s.Topology {
		c.h = &Host{Topology: s.Topology, overlay: s.Overlay, index: topo.NewIndex(s.Topology), ranks: map[pathsel.Location]*pathsel.Affinity{}}
	}
	if c.h.doctor != s.Doctor || c.h.findings == nil {
		c.h.diagnose(s.Doctor)
	}
	return c.h
}

// Graph is the topology under the rates that were measured.
func (h *Host) Graph() *topo.Graph {
	if h.graph == nil {
		h.graph = topo.NewGraph(h.Topology, h.overlay)
	}
	return h.graph
}

// Node is a node of the topology as a pointer to its type (*topo.GPU), nil where there is
// none.
func (h *Host) Node(id topo.ID) any { return h.index.Node(id) }

// Ports are the ports of an RDMA device.
func (h *Host) Ports(rdma topo.ID) []topo.ID {
	var ids []topo.ID
	for _, p := range h.index.Ports(rdma) {
		ids = append(ids, p.ID)
	}
	return ids
}

// Device is the device that a node stands for: that of a port or a PCI function, and for a bridge
// the first GPU below it, else the first NIC. Other nodes are it themselves.
func (h *Host) Device(id topo.ID) topo.ID {
	if p := h.index.Port(id); p != nil {
		return p.RDMA
	}
	switch h.index.Node(id).(type) {
	case *topo.PCIDevice, *topo.HostBridge:
	default:
		return id
	}
	gpu, nic := h.on(id)
	for d := range h.index.Below(id) {
		below, card := h.on(d.ID)
		gpu, nic = cmp.Or(gpu, below), cmp.Or(nic, card)
	}
	return cmp.Or(gpu, nic, id)
}

// on are the GPU and the NIC of a PCI function, "" none.
func (h *Host) on(function topo.ID) (gpu, nic topo.ID) {
	devices := h.index.On(function)
	if len(devices.GPUs) > 0 {
		gpu = devices.GPUs[0].ID
	}
	switch {
	case len(devices.RDMADevices) > 0:
		nic = devices.RDMADevices[0].ID
	case len(devices.Netdevs) > 0:
		nic = devices.Netdevs[0].ID
	}
	return gpu, nic
}

// Paths is the host prepared for choices.
func (h *Host) Paths() (*pathsel.Host, error) {
	if h.paths == nil && h.pathsErr == nil {
		h.paths, h.pathsErr = pathsel.New(h.Topology, pathsel.Options{Overlay: h.overlay})
	}
	return h.paths, h.pathsErr
}

// Rank is the order of the ports for a memory location, nil without one.
func (h *Host) Rank(l pathsel.Location) *pathsel.Affinity {
	if a, ok := h.ranks[l]; ok {
		return a
	}
	paths, err := h.Paths()
	if err != nil {
		return nil
	}
	a, err := paths.Affinity(l, nil)
	if err != nil {
		a = nil
	}
	h.ranks[l] = a
	return a
}

// Preferring are the memory locations that prefer one of the given ports, or a port of the
// given devices.
func (h *Host) Preferring(ids ...topo.ID) []pathsel.Location {
	paths, err := h.Paths()
	if err != nil {
		return nil
	}
	var out []pathsel.Location
	for _, l := range paths.Locations() {
		a := h.Rank(l)
		if a == nil {
			continue
		}
		for i := range a.Ranked {
			c := &a.Ranked[i]
			if c.Verdict == pathsel.Preferred && c.Class.Known() && (slices.Contains(ids, c.Port) || slices.Contains(ids, c.NIC)) {
				out = append(out, l)
				break
			}
		}
	}
	return out
}

// diagnose notes which findings are about which node.
func (h *Host) diagnose(r *doctor.Report) {
	h.doctor, h.findings, h.worst = r, map[topo.ID][]*doctor.Finding{}, map[topo.ID]ui.Style{}
	if r == nil {
		return
	}
	list := r.Findings()
	for i := range list {
		f := &list[i]
		for _, id := range f.Subjects {
			h.findings[id] = append(h.findings[id], f)
			d := h.Device(id)
			h.worst[d] = max(h.worst[d], StyleOf(f.Severity))
		}
		if len(f.Subjects) == 0 {
			h.findings[""] = append(h.findings[""], f)
		}
	}
}

// Findings are those about one of the nodes, the worst first and each once; those about ""
// are about the host as a whole.
func (h *Host) Findings(ids ...topo.ID) []*doctor.Finding {
	var out []*doctor.Finding
	for _, id := range ids {
		for _, f := range h.findings[id] {
			if !slices.Contains(out, f) {
				out = append(out, f)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b *doctor.Finding) int { return rank(a.Severity) - rank(b.Severity) })
	return out
}

// Worst is how bad the worst finding about a device is.
func (h *Host) Worst(device topo.ID) ui.Style { return h.worst[device] }

// Subjects are the nodes that findings are about.
func (h *Host) Subjects() []topo.ID {
	out := make([]topo.ID, 0, len(h.findings))
	for id := range h.findings {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

func rank(s doctor.Severity) int {
	return slices.Index([]doctor.Severity{doctor.Error, doctor.Warning, doctor.Info}, s)
}
