package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/cpuset"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
)

// LocalOptions say which pairs of one host are wanted.
type LocalOptions struct {
	Name  string       // of the host; "": what its topology says
	Kinds []probe.Kind // none: all
	// Select picks pairs by patterns of their ends' names: "gpu:0>*", "*>mlx5_?"; a name
	// alone means either end. None: all.
	Select []string
	// Transport of port pairs; Auto is RDMA if the host has it.
	Transport pathsel.Transport
	Memory    Where // of port pairs; "": OnCPU
	BothWays  bool  // pairs of ports, and direct copies of GPUs, keep the other direction as busy at the same time
}

// Local lists the pairs of one host: memory, GPUs and ports. What the host lacks is in
// Rejected, what it has and cannot be measured is there and waived. Errors are SelectionError, and those of a topology
// that is not derived.
func Local(t *topo.Topology, o LocalOptions) (*Pairs, error) {
	if t == nil {
		return nil, pkgerr.New("plan", "no topology")
	}
	b, err := newBuilder("local", o.Select, o.BothWays)
	if err != nil {
		return nil, err
	}
	h, err := newHost(b, cmp.Or(o.Name, t.Host.Name, "localhost"), "", t)
	if err != nil {
		return nil, err
	}
	wanted := func(k probe.Kind) bool { return len(o.Kinds) == 0 || slices.Contains(o.Kinds, k) }
	nodes, gpus := len(t.NUMANodes), len(t.GPUs)
	if err := errors.Join(checkCount(h.name, probe.Memory, 2*nodes*nodes), checkCount(h.name, probe.GPU, 2*gpus*(nodes+gpus))); err != nil {
		return nil, err
	}
	if wanted(probe.Memory) {
		h.memoryPairs()
	}
	if wanted(probe.GPU) {
		h.gpuPairs()
	}
	if wanted(probe.Port) {
		if err := h.portPairs(&o); err != nil {
			return nil, err
		}
	}
	return b.finish()
}

// memoryPairs are the CPUs of every NUMA node with the memory of every one.
func (h *host) memoryPairs() {
	nodes := h.memoryNodes()
	for i := range h.t.NUMANodes {
		if n := &h.t.NUMANodes[i]; n.Owner != "" {
			h.b.reject(Rejection{Kind: probe.Memory, From: h.name + "/" + string(pathsel.LocationOf(n.ID)),
				Reason: pathsel.Reason{Code: CodeOwnMemory, Text: fmt.Sprintf("it is the memory of %s, which is measured with the GPUs", n.Owner)}})
		}
	}
	for _, m := range nodes {
		for i := range h.t.NUMANodes {
			c := &h.t.NUMANodes[i]
			if c.MemoryOnly || c.CPUs == "" {
				continue
			}
			waived := h.noMemory(m)
			if waived == "" && !overlap(c.CPUs, h.t.Host.AllowedCPUs) {
				waived = fmt.Sprintf("this process may not run on the CPUs of cpu:%d", c.Index)
			}
			for _, variant := range []string{probe.VariantRead, probe.VariantCopy} {
				h.memoryPair(m, c, variant, waived)
			}
		}
	}
	if len(nodes) == 0 {
		h.b.reject(Rejection{Kind: probe.Memory, From: h.name, Reason: pathsel.Reason{Code: CodeNone, Text: "no NUMA node with memory is known"}})
	}
}

// memoryNodes are the NUMA nodes of the host's own memory.
func (h *host) memoryNodes() []*topo.NUMANode {
	var out []*topo.NUMANode
	for i := range h.t.NUMANodes {
		if n := &h.t.NUMANodes[i]; n.Owner == "" {
			out = append(out, n)
		}
	}
	return out
}

func (h *host) noMemory(n *topo.NUMANode) string {
	if n.MemoryBytes != nil && *n.MemoryBytes == 0 {
		return fmt.Sprintf("no memory in cpu:%d", n.Index)
	}
	return ""
}

// memoryPair is one of CPUs and memory. Copying loads and stores: each crosses the
// links once, in opposite directions, and both count.
func (h *host) memoryPair(m, c *topo.NUMANode, variant, waived string) {
	own := topo.LinkID("memory:" + string(pathsel.LocationOf(m.ID)))
	steps, ok := h.g.Path(m.ID, c.ID)
	between := h.way(steps, ok && (m == c || len(steps) > 0), true)
	w := way{links: []*probe.Link{h.link(own, topo.Up)}, known: true}.then(between)
	p := probe.Pair{Kind: probe.Memory, Transport: probe.CPU, Variant: variant, Waived: waived}
	class := topo.Class{Kind: topo.ClassSelf}
	if m != c {
		class = h.g.Relate(m.ID, c.ID).Class
	}
	p.From, p.To = h.memoryEnd(m, class), h.memoryEnd(c, class)
	if variant == probe.VariantCopy {
		w = w.then(h.way(reversed(steps), true, true)).then(way{links: []*probe.Link{h.link(own, topo.Down)}, known: true})
		p.Expected = bothDirections(h.b.expect(&w))
	}
	h.b.add(p, w, nodeDistance(h.t, m, c))
}

// bothDirections is the expected rate of both directions of a link together.
func bothDirections(e probe.Expected) probe.Expected {
	if e.BytesPerSec == nil {
		return e
	}
	twice := 2 * *e.BytesPerSec
	e.BytesPerSec = &twice
	e.Why += "; both directions together"
	return e
}

// nodeDistance is the distance between two NUMA nodes that the firmware states, "" not known.
func nodeDistance(t *topo.Topology, m, c *topo.NUMANode) string {
	for i := range t.NUMANodes {
		if t.NUMANodes[i].Index == m.Index && i < len(c.Distances) {
			return fmt.Sprintf("distance %d", c.Distances[i])
		}
	}
	return ""
}

// memoryEnd is a NUMA node as an end. Such ends, and GPUs, are themselves memory, so their class is that
// of the pair.
func (h *host) memoryEnd(n *topo.NUMANode, class topo.Class) probe.End {
	l := pathsel.LocationOf(n.ID)
	return probe.End{Host: h.name, Node: n.ID, Name: string(l), Location: l, Class: class}
}

// overlap says whether two lists of CPUs have one in common; "" and unreadable lists mean all CPUs.
func overlap(a, b string) bool {
	x, errX := cpuset.Parse(a)
	y, errY := cpuset.Parse(b)
	return errX != nil || errY != nil || x.IsEmpty() || y.IsEmpty() || x.Overlaps(y)
}

// portPairs are the ports of this host with each other, through the wire.
func (h *host) portPairs(o *LocalOptions) error {
	ph, err := pathsel.New(h.t, pathsel.Options{Transport: o.Transport})
	if err != nil {
		return err
	}
	ends, err := h.portEnds(ph, o.Memory, nil)
	if err != nil {
		return err
	}
	if err := checkCount(h.name, probe.Port, len(ends)*len(ends)); err != nil {
		return err
	}
	h.rejectPorts(ph)
	if len(ends) == 0 {
		h.b.reject(Rejection{Kind: probe.Port, From: h.name, Reason: pathsel.Reason{Code: CodeNone, Text: fmt.Sprintf("no port of this host can be used over %s", ph.Transport())}})
	}
	if ph.Transport() == pathsel.RDMA {
		err = h.rdmaPairs(ph, ends)
	} else {
		h.waivedTCP(ends)
	}
	if err == nil && o.Transport != pathsel.RDMA {
		h.stackPair()
	}
	return err
}

// rdmaPairs are the ports that reach each other. A port with itself stays within its card, and says
// nothing about a wire.
func (h *host) rdmaPairs(ph *pathsel.Host, ends []portEnd) error {
	if len(ends) == 0 {
		return nil
	}
	m, err := connect(&hostPorts{host: h, ph: ph, ends: ends}, &hostPorts{host: h, ph: ph, ends: ends}, nil)
	if err != nil {
		return err
	}
	if len(ends) == 1 {
		h.b.reject(Rejection{Kind: probe.Port, From: h.name + "/" + ends[0].port.Name, Reason: pathsel.Reason{Code: CodeNone, Text: "the only port of this host: there is no other to reach"}})
	}
	for i := range ends {
		for j := range ends {
			if i != j && m.reach(i, j) {
				h.b.addPorts(&ends[i], &ends[j], probe.RDMA, way{known: true, gap: true}, "")
			}
		}
	}
	for _, r := range m.refused {
		h.b.rejectPairs(r, h.name, h.name, ends, ends, func(i, j int) bool { return i != j })
	}
	return nil
}

// waivedTCP adds the waived pairs that TCP would have.
func (h *host) waivedTCP(ends []portEnd) {
	for i := range ends {
		for j := range ends {
			if i != j {
				ends[i].waived = "the kernel takes a short cut between two addresses of one host: nothing would cross the wire"
				h.b.addPorts(&ends[i], &ends[j], probe.TCP, way{known: true, gap: true}, "")
			}
		}
	}
}

// stackPair is TCP over loopback: what the host's own stack can do.
func (h *host) stackPair() {
	end := probe.End{Host: h.name, Node: topo.NetdevID("lo"), Name: "lo", Class: topo.Class{Kind: topo.ClassSelf}}
	for i := range h.t.NUMANodes {
		if n := &h.t.NUMANodes[i]; !n.MemoryOnly && n.CPUs != "" {
			end.Location = pathsel.LocationOf(n.ID)
			break
		}
	}
	p := probe.Pair{Kind: probe.Port, Transport: probe.TCP, Variant: h.b.variant, From: end, To: end,
		Expected: probe.Expected{Basis: topo.BasisUnknown, Why: "loopback: the processors copy, no link is crossed"}}
	if h.loopbackDown() {
		p.Waived = "lo is down"
		if h.b.sel.pair(&end, &end) {
			h.b.out.Notes = append(h.b.out.Notes, fmt.Sprintf("%s%s/lo is down and was not measured", probe.PartialNote, h.name))
		}
	}
	h.b.add(p, way{}, "")
}

// loopbackDown says whether lo is known to be down.
func (h *host) loopbackDown() bool {
	lo := h.index.NetdevNamed("lo")
	return lo != nil && (lo.State == "down" || lo.AdminUp != nil && !*lo.AdminUp)
}
