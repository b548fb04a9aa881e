package plan

import (
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/probe"
)

// host is one host while its pairs are made.
type host struct {
	b      *builder
	name   string
	prefix string // before names for people: "n1/" among several hosts
	t      *topo.Topology
	g      *topo.Graph
	leaves map[topo.LinkID]string // of wires
	index  *topo.Index
}

func newHost(b *builder, name, prefix string, t *topo.Topology) (*host, error) {
	if t == nil || t.Derived == nil {
		return nil, pkgerr.Errorf("plan", "host %q: its topology is not derived: call Derive first", name)
	}
	if err := checkHostName(name); err != nil {
		return nil, err
	}
	if err := checkTopology(name, t); err != nil {
		return nil, err
	}
	h := &host{b: b, name: name, prefix: prefix, t: t, g: topo.NewGraph(t, nil), leaves: map[topo.LinkID]string{}, index: topo.NewIndex(t)}
	b.out.Hosts = append(b.out.Hosts, probe.Host{Name: name, Fingerprint: t.Host.Fingerprint})
	return h, nil
}

// checkTopology refuses names of nodes and links that a report cannot show: topologies may come from
// untrusted sources.
func checkTopology(host string, t *topo.Topology) error {
	var ids []string
	for i := range t.Links {
		ids = append(ids, string(t.Links[i].ID), string(t.Links[i].A), string(t.Links[i].B))
	}
	for i := range t.NUMANodes {
		ids = append(ids, string(t.NUMANodes[i].ID))
	}
	for i := range t.GPUs {
		ids = append(ids, string(t.GPUs[i].ID))
	}
	for i := range t.RDMADevices {
		ids = append(ids, string(t.RDMADevices[i].ID), t.RDMADevices[i].Name)
	}
	for i := range t.Ports {
		ids = append(ids, string(t.Ports[i].ID))
	}
	for i := range t.Netdevs {
		ids = append(ids, string(t.Netdevs[i].ID), t.Netdevs[i].Name)
	}
	for _, id := range ids {
		if !showable(id) {
			return pkgerr.Errorf("plan", "host %q: its topology has the name %.60q: want printable names without space and >, of at most %d bytes", host, id, maxName)
		}
	}
	return nil
}

// path is the way between two nodes of the host. toMemory: one end is memory of the CPUs, which root
// complexes are built for.
func (h *host) path(a, b topo.ID, toMemory bool) way {
	steps, ok := h.g.Path(a, b)
	return h.way(steps, ok, toMemory)
}

// way makes a way of steps. A GPU that a chip-to-chip link joins to a CPU is reached as that CPU's memory is.
func (h *host) way(steps []topo.Step, known, toMemory bool) way {
	w := way{known: known}
	toMemory = toMemory || slices.ContainsFunc(steps, func(s topo.Step) bool { return s.Kind == topo.LinkC2C })
	for _, s := range steps {
		dirs := []topo.Direction{s.Dir}
		if s.Dir == topo.Both { // each direction is a link of its own here
			dirs = []topo.Direction{topo.Up, topo.Down}
		}
		for _, d := range dirs {
			l := h.link(s.Link, d)
			w.links = append(w.links, l)
			if l.BytesPerSec == nil && w.unknownLink == nil && !(toMemory && s.Kind == topo.LinkRootComplex) {
				w.unknownLink = l
			}
		}
	}
	return w
}

// reversed are the steps in the other direction.
func reversed(steps []topo.Step) []topo.Step {
	out := make([]topo.Step, 0, len(steps))
	for _, s := range slices.Backward(steps) {
		switch s.Dir {
		case topo.Down:
			s.Dir = topo.Up
		case topo.Up:
			s.Dir = topo.Down
		}
		out = append(out, s)
	}
	return out
}
