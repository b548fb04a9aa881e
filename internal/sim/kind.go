package sim

import (
	"cmp"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/pathsel"
)

// KindOptions configure a kind of host.
type KindOptions struct {
	Transport pathsel.Transport
	// Overlay has the actual rates of links, where they differ from those that the topology
	// expects.
	Overlay topo.Overlay
	// Believed has the rates that pathsel is told; nil: those that the topology expects.
	Believed topo.Overlay
	// Unknown are rates for links of unknown rate, by kind; without one such a link limits
	// nothing.
	Unknown map[topo.LinkKind]topo.Rate
	// LatencyNS is the one-way latency of links, by kind; ports have that of their cable.
	LatencyNS map[topo.LinkKind]int64
}

// Kind is what hosts of one kind share: topology, pathsel's view of it, and the paths through
// it. It is not safe for concurrent use.
type Kind struct {
	t     *topo.Topology
	graph *topo.Graph
	// Two of them, because pathsel takes one host twice for a host with itself.
	here, there *pathsel.Host

	lines  []line // directions of links
	at     map[topo.LinkID]int32
	ports  []pathsel.Port
	portAt map[topo.ID]int
	wires  [][]int32 // the lines that leave by each port: its own wire, then that of its physical function
	own    [][]int32 // the lines down of each port's NIC: its wires and the PCIe link above
	inside map[[2]topo.ID]way
	routes map[[2]topo.ID]way
}

// line is one direction of a link of a kind: down (from A to B) at an even place,
// up at the next.
type line struct {
	id      topo.LinkID
	rate    topo.Rate // -1 unknown
	latency int64
	port    int // whose own wire it is, -1: none
}

// way is a path: lines in the direction of travel.
type way struct {
	lines []int32
	err   error
}

// NewKind prepares a kind of host from a derived topology, which must not change
// afterwards.
func NewKind(t *topo.Topology, o KindOptions) (*Kind, error) {
	here, err := pathsel.New(t, pathsel.Options{Transport: o.Transport, Overlay: o.Believed})
	if err != nil {
		return nil, pkgerr.Errorf("sim", "%w", err)
	}
	there, err := pathsel.New(t, pathsel.Options{Transport: o.Transport, Overlay: o.Believed})
	if err != nil {
		return nil, pkgerr.Errorf("sim", "%w", err)
	}
	k := &Kind{t: t, graph: topo.NewGraph(t, o.Overlay), here: here, there: there, at: map[topo.LinkID]int32{}, ports: here.Ports(), portAt: map[topo.ID]int{},
		inside: map[[2]topo.ID]way{}, routes: map[[2]topo.ID]way{}}
	for i := range t.Links {
		l, _ := k.graph.Link(t.Links[i].ID)
		rate := topo.Rate(-1)
		if r, ok := o.Unknown[l.Kind]; ok {
			rate = r
		}
		if l.BytesPerSec != nil {
			rate = max(*l.BytesPerSec, 0)
		}
		k.addLink(l.ID, rate, o.LatencyNS[l.Kind])
	}
	for i := range k.ports {
		k.portAt[k.ports[i].ID] = i
		k.addPort(i)
	}
	return k, nil
}

func (k *Kind) addLink(id topo.LinkID, rate topo.Rate, latencyNS int64) int32 {
	first := int32(len(k.lines))
	x := line{id: id, rate: rate, latency: max(latencyNS, 0), port: -1}
	k.at[id] = first
	k.lines = append(k.lines, x, x)
	return first
}

// addPort finds the wires of a port. A port without a link in the topology gets one of
// unknown rate, to be cabled.
func (k *Kind) addPort(i int) {
	p := &k.ports[i]
	var wires, own []int32
	above := int32(-1)
	for _, loc := range k.here.Locations() {
		steps, err := k.here.Route(loc, p.ID)
		if err != nil {
			continue
		}
		for _, s := range steps {
			l := k.place(s)
			if s.Kind == topo.LinkPort {
				wires = append(wires, l)
			} else if s.Kind == topo.LinkPCIe && s.Dir == topo.Down {
				above = l &^ 1
			}
		}
		break // all locations share the end of the path
	}
	if len(wires) == 0 {
		wires = []int32{k.addLink(topo.LinkID("cable:"+p.ID.Name()), -1, 0)}
	}
	k.lines[wires[0]&^1].port, k.lines[wires[0]|1].port = i, i
	for _, w := range wires {
		own = append(own, w&^1)
	}
	if above >= 0 {
		own = append(own, above)
	}
	k.wires, k.own = append(k.wires, wires), append(k.own, own)
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
