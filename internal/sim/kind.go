package sim

import (
	"cmp"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/pathsel"
)

// Kind is what hosts of one kind share: topology, pathsel's view of it, and the paths through
// it. It is not safe for concurrent use.
type Kind struct {
	t     *topo.Topology
	graph *topo.Graph
	// Two of them, because pathsel takes one host twice for a host with itself.
	here, there *pathsel.Host

	lines  []topo.Rate // of the directions of links, -1 unknown: down (from A to B) at an even place, up at the next
	at     map[topo.LinkID]int32
	ports  []pathsel.Port
	portAt map[topo.ID]int
	wires  [][]int32 // the lines that leave by each port: its own wire, then that of its physical function
	inside map[[2]topo.ID]way
	routes map[[2]topo.ID]way
}

// way is a path: lines in the direction of travel.
type way struct {
	lines []int32
	err   error
}

// NewKind prepares a kind of host from a derived topology, which must not change
// afterwards.
func NewKind(t *topo.Topology, transport pathsel.Transport) (*Kind, error) {
	here, err := pathsel.New(t, pathsel.Options{Transport: transport})
	if err != nil {
		return nil, pkgerr.Errorf("sim", "%w", err)
	}
	there, err := pathsel.New(t, pathsel.Options{Transport: transport})
	if err != nil {
		return nil, pkgerr.Errorf("sim", "%w", err)
	}
	k := &Kind{t: t, graph: topo.NewGraph(t, nil), here: here, there: there, at: map[topo.LinkID]int32{}, ports: here.Ports(), portAt: map[topo.ID]int{},
		inside: map[[2]topo.ID]way{}, routes: map[[2]topo.ID]way{}}
	for i := range t.Links {
		l, _ := k.graph.Link(t.Links[i].ID)
		rate := topo.Rate(-1)
		if l.BytesPerSec != nil {
			rate = max(*l.BytesPerSec, 0)
		}
		k.addLink(l.ID, rate)
	}
	for i := range k.ports {
		k.portAt[k.ports[i].ID] = i
		k.addPort(i)
	}
	return k, nil
}

func (k *Kind) addLink(id topo.LinkID, rate topo.Rate) int32 {
	first := int32(len(k.lines))
	k.at[id] = first
	k.lines = append(k.lines, rate, rate)
	return first
}

// addPort finds the wires of a port. A port without a link in the topology gets one of
// unknown rate, to be cabled.
func (k *Kind) addPort(i int) {
	p := &k.ports[i]
	var wires []int32
	for _, loc := range k.here.Locations() {
		steps, err := k.here.Route(loc, p.ID)
		if err != nil {
			continue
		}
		for _, s := range steps {
			if s.Kind == topo.LinkPort {
				wires = append(wires, k.place(s))
			}
		}
		break // all locations share the end of the path
	}
	if len(wires) == 0 {
		wires = []int32{k.addLink(topo.LinkID("cable:"+p.ID.Name()), -1)}
	}
	k.wires = append(k.wires, wires)
}

// place is the line of a step.
func (k *Kind) place(s topo.Step) int32 {
	l := k.at[s.Link]
	if s.Dir == topo.Up {
		l++
	}
	return l
}

// Topology is the topology that the kind was made of.
func (k *Kind) Topology() *topo.Topology { return k.t }

// Host is pathsel's view of it.
func (k *Kind) Host() *pathsel.Host { return k.here }

// DataPorts lists the usable ports with the best role, in the order of names: those that
// a cluster's fabric connects.
func (k *Kind) DataPorts() []topo.ID {
	best := pathsel.RoleDecoy
	rank := map[pathsel.Role]int{pathsel.RoleData: 0, pathsel.RoleUnknown: 1, pathsel.RoleStorage: 2, pathsel.RoleManagement: 3, pathsel.RoleDecoy: 4}
	for i := range k.ports {
		if p := &k.ports[i]; p.Usable && rank[p.Role] < rank[best] {
			best = p.Role
		}
	}
	var out []topo.ID
	for i := range k.ports {
		if p := &k.ports[i]; p.Usable && p.Role == best && !p.VF {
			out = append(out, p.ID)
		}
	}
	return out
}

// toWire is the path from a memory location out over a port's wire; with an empty location
// the wire alone.
func (k *Kind) toWire(loc pathsel.Location, port topo.ID) way {
	key := [2]topo.ID{topo.ID(loc), port}
	if w, ok := k.routes[key]; ok {
		return w
	}
	w := k.findWire(loc, port)
	k.routes[key] = w
	return w
}

func (k *Kind) findWire(loc pathsel.Location, port topo.ID) way {
	i, ok := k.portAt[port]
	if !ok {
		return way{err: pkgerr.Errorf("sim", "no port %q", port)}
	}
	if loc == "" {
		return way{lines: k.wires[i]}
	}
	steps, err := k.here.Route(loc, port)
	if err != nil {
		return way{err: pkgerr.Errorf("sim", "%w", err)}
	}
	var w way
	for _, s := range steps {
		if s.Kind != topo.LinkPort {
			w.lines = append(w.lines, k.place(s))
		}
	}
	w.lines = append(w.lines, k.wires[i]...)
	return w
}

// within is the way between two nodes inside the host.
func (k *Kind) within(a, b topo.ID) way {
	key := [2]topo.ID{a, b}
	if w, ok := k.inside[key]; ok {
		return w
	}
	steps, ok := k.graph.Path(a, b)
	var w way
	if !ok {
		w.err = pkgerr.Errorf("sim", "no path from %s to %s is known", cmp.Or(a, "nothing"), cmp.Or(b, "nothing"))
	}
	for _, s := range steps {
		if s.Kind == topo.LinkPort {
			continue // memory and NIC, not the wire behind it
		}
		if s.Dir != topo.Up {
			w.lines = append(w.lines, k.at[s.Link])
		}
		if s.Dir != topo.Down {
			w.lines = append(w.lines, k.at[s.Link]+1)
		}
	}
	k.inside[key] = w
	return w
}
