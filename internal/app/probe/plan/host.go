package plan

import (
	"errors"
	"fmt"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
)

// host is one host while its pairs are made.
type host struct {
	b       *builder
	name    string
	prefix  string // before names for people: "n1/" among several hosts
	t       *topo.Topology
	g       *topo.Graph
	overlay topo.Overlay
	leaves  map[topo.LinkID]string // of wires
	index   *topo.Index
}

func newHost(b *builder, name, prefix string, t *topo.Topology, overlay topo.Overlay) (*host, error) {
	if t == nil || t.Derived == nil {
		return nil, fmt.Errorf("plan: host %q: its topology is not derived: call Derive first", name)
	}
	if err := checkHostName(name); err != nil {
		return nil, err
	}
	if err := checkTopology(name, t); err != nil {
		return nil, err
	}
	h := &host{b: b, name: name, prefix: prefix, t: t, g: topo.NewGraph(t, overlay), overlay: overlay, leaves: map[topo.LinkID]string{}, index: topo.NewIndex(t)}
	b.out.Hosts = append(b.out.Hosts, probe.Host{Name: name, Fingerprint: t.Host.Fingerprint})
	return h, nil
}

// checkTopology refuses names of nodes and links that a report cannot show: a topology may
// come from anybody.
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
			return fmt.Errorf("plan: host %q: its topology calls something %.60q: want printable names without space and >, of at most %d bytes", host, id, maxName)
		}
	}
	return nil
}

// path is the way between two nodes of the host. toMemory: one end is memory of the
// CPUs, for which root complexes are built.
func (h *host) path(a, b topo.ID, toMemory bool) way {
	steps, ok := h.g.Path(a, b)
	return h.way(steps, ok, toMemory)
}

// way makes a way of steps.
func (h *host) way(steps []topo.Step, known, toMemory bool) way {
	w := way{known: known}
	for _, s := range steps {
		dirs := []topo.Direction{s.Dir}
		if s.Dir == topo.Both { // each direction is a link of its own here
			dirs = []topo.Direction{topo.Up, topo.Down}
		}
		for _, d := range dirs {
			l := h.link(s.Link, d)
			w.links = append(w.links, l)
			if l.BytesPerSec == nil && w.open == nil && !(toMemory && s.Kind == topo.LinkRootComplex) {
				w.open = l
			}
		}
	}
	return w
}

// reversed are the steps of the way back.
func reversed(steps []topo.Step) []topo.Step {
	out := make([]topo.Step, 0, len(steps))
	for i := len(steps) - 1; i >= 0; i-- {
		s := steps[i]
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

// portEnd is a port as an end of pairs.
type portEnd struct {
	end     probe.End
	port    pathsel.Port
	out, in way // from the memory to the wire, and back
	rail    *int
	leaf    string
	waived  string
}

// Where says which memory port pairs use.
type Where string

// The kinds of memory.
const (
	OnCPU Where = "cpu" // of the NUMA node that is nearest to the port
	OnGPU Where = "gpu" // of the GPU that is nearest to the port
)

// portEnds prepares the usable ports of a host, in their order.
func (h *host) portEnds(ph *pathsel.Host, memory Where, cabled []pathsel.FabricPort) ([]portEnd, error) {
	if len(ph.Locations()) == 0 {
		h.b.reject(Rejection{Kind: probe.Port, From: h.name, Reason: pathsel.Reason{Code: CodeNone,
			Text: "neither a NUMA node nor a GPU is known: there is no memory to move"}})
		return nil, nil
	}
	near, err := nearest(ph, memory)
	if err != nil {
		return nil, err
	}
	var out []portEnd
	named := map[string]bool{}
	for _, p := range ph.Ports() {
		if !p.Usable {
			continue
		}
		if named[p.Name] {
			h.b.reject(Rejection{Kind: probe.Port, From: h.name + "/" + p.Name, Reason: pathsel.Reason{Code: CodeSameName, Text: fmt.Sprintf("another port of the host has this name: %s is left out", p.ID)}})
			continue
		}
		named[p.Name] = true
		e := portEnd{port: p, end: probe.End{Host: h.name, Node: p.ID, Name: p.Name}}
		if cabled != nil {
			e.rail, e.leaf = cabled[p.Index].Rail, cabled[p.Index].Leaf
		}
		h.leaves[wireOf(&p)] = e.leaf
		at := near[p.Index]
		e.end.Location, e.end.Class = at.location, at.class
		if at.location == "" && memory == OnGPU {
			e.waived = fmt.Sprintf("no GPU in host %s", h.name)
		}
		if err := h.findWays(ph, &e); err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// findWays lists the links between a port's memory and the end of its wire. A wire
// that the topology does not list (a container's interface) is a link of unknown rate.
func (h *host) findWays(ph *pathsel.Host, e *portEnd) error {
	var steps []topo.Step
	known := false
	if e.end.Location != "" {
		var err error
		if steps, err = ph.Route(e.end.Location, e.port.ID); err != nil {
			return err
		}
		anchor := e.port.NIC
		if e.port.Software && e.port.Netdev != "" {
			anchor = topo.NetdevID(e.port.Netdev)
		}
		_, known = h.g.Path(e.end.Location.Node(), anchor)
	}
	if n := len(steps); n == 0 || steps[n-1].Kind != topo.LinkPort {
		steps = append(steps, topo.Step{Link: wireOf(&e.port), Kind: topo.LinkPort, Dir: topo.Down})
	}
	onCPU := e.end.Location.Node() != topo.ID(e.end.Location)
	e.out, e.in = h.way(steps, known, onCPU), h.way(reversed(steps), known, onCPU)
	return nil
}

// wireOf is the link that a port's traffic leaves by.
func wireOf(p *pathsel.Port) topo.LinkID {
	switch {
	case !p.RDMA():
		return topo.LinkID("port:" + p.NIC.Name())
	case p.Software && p.Netdev != "":
		return topo.LinkID("port:" + p.Netdev)
	}
	return topo.LinkID(p.ID)
}

// place is a memory location and how near it is to a port.
type place struct {
	location pathsel.Location
	class    topo.Class
	rate     topo.Rate
	hops     int
	used     int // ports that have it
}

// nearest finds the memory of a kind that is nearest to each port, by Port.Index: by
// class, rate and hops, then what the fewest other ports have.
func nearest(ph *pathsel.Host, memory Where) ([]place, error) {
	gpus := len(ph.GPUs())
	locations := ph.Locations()
	switch memory {
	case OnCPU:
		locations = locations[gpus:]
	case OnGPU:
		locations = locations[:gpus]
	default:
		return nil, fmt.Errorf("plan: memory %q: want cpu or gpu", memory)
	}
	ports := ph.Ports()
	candidates := make([][]place, len(ports))
	for _, l := range locations {
		a, err := ph.Affinity(l, nil)
		if err != nil {
			return nil, err
		}
		for i := range a.Ranked {
			c := &a.Ranked[i]
			p, ok := ph.Port(c.Port)
			if !ok {
				return nil, errors.New("plan: pathsel ranks a port that it does not have")
			}
			at := place{location: l, class: c.Class, rate: -1, hops: 1 << 20}
			if c.BytesPerSec != nil {
				at.rate = *c.BytesPerSec
			}
			if c.Hops != nil {
				at.hops = *c.Hops
			}
			candidates[p.Index] = append(candidates[p.Index], at)
		}
	}
	used := map[pathsel.Location]int{}
	out := make([]place, len(ports))
	for i := range ports {
		for k, c := range candidates[i] {
			c.used = used[c.location]
			if k == 0 || c.before(&out[i]) {
				out[i] = c
			}
		}
		used[out[i].location]++
	}
	return out, nil
}

func (p *place) before(o *place) bool {
	if c := p.class.Compare(o.class); c != 0 {
		return c < 0
	}
	switch {
	case p.rate != o.rate:
		return p.rate > o.rate
	case p.hops != o.hops:
		return p.hops < o.hops
	}
	return p.used < o.used
}
