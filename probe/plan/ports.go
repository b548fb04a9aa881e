package plan

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
)

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

// findWays lists the links between a port's memory and the end of its wire. A wire that the topology does
// not list (a container's interface) is a link of unknown rate.
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

// wireOf is the link on which a port's traffic leaves.
func wireOf(p *pathsel.Port) topo.LinkID {
	switch {
	case !p.RDMA():
		return topo.LinkID("port:" + p.NIC.Name())
	case p.Software && p.Netdev != "":
		return topo.LinkID("port:" + p.Netdev)
	}
	return topo.LinkID(p.ID)
}

// nearMemory is a memory location and how near it is to a port.
type nearMemory struct {
	location pathsel.Location
	class    topo.Class
	rate     topo.Rate
	hops     int
	used     int // ports that have it
}

// nearest finds the memory of a kind that is nearest to each port, by Port.Index: by class, rate and hops,
// then the memory that the fewest other ports use.
func nearest(ph *pathsel.Host, memory Where) ([]nearMemory, error) {
	gpus := len(ph.GPUs())
	locations := ph.Locations()[gpus:]
	if memory == OnGPU {
		locations = ph.GPUs()
	}
	ports := ph.Ports()
	candidates := make([][]nearMemory, len(ports))
	for _, l := range locations {
		a, err := ph.Affinity(l, nil)
		if err != nil {
			return nil, err
		}
		for i := range a.Ranked {
			c := &a.Ranked[i]
			p, ok := ph.Port(c.Port)
			if !ok {
				return nil, pkgerr.New("plan", "pathsel ranks a port that it does not have")
			}
			at := nearMemory{location: l, class: c.Class, rate: -1, hops: 1 << 20}
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
	out := make([]nearMemory, len(ports))
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

func (p *nearMemory) before(o *nearMemory) bool {
	return cmp.Or(p.class.Compare(o.class), cmp.Compare(o.rate, p.rate), cmp.Compare(p.hops, o.hops), cmp.Compare(p.used, o.used)) < 0
}

// rejectPorts lists the ports that take no part. A data port that is down makes the run partial; a virtual
// port may be down because it is not used.
func (h *host) rejectPorts(ph *pathsel.Host) {
	for _, p := range ph.Ports() {
		if p.Usable || len(p.Reasons) == 0 {
			continue
		}
		h.b.reject(Rejection{Kind: probe.Port, From: h.name + "/" + p.Name, Reason: p.Reasons[0]})
		broken := p.Reasons[0].Code == pathsel.CodePortDown && p.Role == pathsel.RoleData && !p.Software && !p.Virtual && !p.VF
		if broken && h.b.sel.namesEnd(&probe.End{Host: h.name, Name: p.Name}) {
			h.b.out.Notes = append(h.b.out.Notes, fmt.Sprintf("%s%s/%s is down and was not measured", probe.PartialNote, h.name, p.Name))
		}
	}
}

// addPorts adds a pair of ports; between is the way through the fabric.
func (b *builder) addPorts(from, to *portEnd, transport string, between way, distance string) {
	waived := from.waived
	if waived == "" {
		waived = to.waived
	}
	p := probe.Pair{Kind: probe.Port, Transport: transport, Variant: b.variant, From: from.end, To: to.end, Waived: waived}
	b.add(p, from.out.then(between).then(to.in), distance)
}

// reachable says which ports of two hosts reach each other.
type reachable struct {
	here, there *hostPorts

	cells               []bool
	nextHere, nextThere int // how far the cell of the next port is
	refused             []pathsel.Rejection
	notes               []pathsel.Reason
}

func (r *reachable) reach(i, j int) bool { return r.cells[i*r.nextHere+j*r.nextThere] }

// reversed is the same from the other host's side.
func (r *reachable) reversed() *reachable {
	return &reachable{here: r.there, there: r.here, cells: r.cells, nextHere: r.nextThere, nextThere: r.nextHere}
}

// connect asks pathsel which ports reach each other.
func connect(a, b *hostPorts, fabric *pathsel.Fabric) (*reachable, error) {
	out := &reachable{here: a, there: b, nextHere: len(b.ends), nextThere: 1, cells: make([]bool, len(a.ends)*len(b.ends))}
	if len(out.cells) == 0 {
		return out, nil
	}
	pair, err := pathsel.Connect(a.ph, b.ph, pathsel.PairOptions{Fabric: fabric, LocalName: a.name, RemoteName: b.name})
	if err != nil {
		return nil, err
	}
	src, dst := a.ph.Locations(), b.ph.Locations() // any will do: reach has nothing to do with memory
	set, err := pair.Lanes(src[len(src)-1], dst[len(dst)-1])
	if err != nil && !errors.Is(err, pathsel.ErrNoLane) {
		return nil, err
	}
	here, there := a.indexOfPorts(), b.indexOfPorts()
	for i := range set.Lanes {
		l := &set.Lanes[i]
		out.cells[here[l.LocalIndex]*out.nextHere+there[l.RemoteIndex]] = true
	}
	for _, r := range set.Rejected {
		if r.Pairs > 0 {
			out.refused = append(out.refused, r)
		}
	}
	out.notes = set.Notes
	return out, nil
}

// rejectPairs lists the selected pairs that are rejected for one reason.
func (b *builder) rejectPairs(r pathsel.Rejection, from, to string, here, there []portEnd, wanted func(i, j int) bool) {
	out := Rejection{Kind: probe.Port, From: from, To: to, Reason: r.Reason}
	at := func(ends []portEnd, id topo.ID) int {
		for i := range ends {
			if ends[i].port.ID == id {
				return i
			}
		}
		return -1
	}
	for _, x := range r.Local {
		for _, y := range r.Remote {
			i, j := at(here, x), at(there, y)
			if i < 0 || j < 0 || !wanted(i, j) || !b.sel.pair(&here[i].end, &there[j].end) {
				continue
			}
			if out.Pairs++; out.Pairs == 1 {
				out.Example = here[i].end.Name + ">" + there[j].end.Name
			}
		}
	}
	if out.Pairs > 0 {
		b.reject(out)
	}
}
