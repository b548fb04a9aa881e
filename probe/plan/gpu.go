package plan

import (
	"fmt"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
)

// gpuPairs are the memory of every NUMA node with every GPU, in both directions, and every GPU with every
// other, with peer access and without.
func (h *host) gpuPairs() {
	if len(h.t.GPUs) == 0 {
		h.b.reject(Rejection{Kind: probe.GPU, From: h.name, Reason: pathsel.Reason{Code: CodeNone, Text: "no GPU in this host"}})
		return
	}
	nodes := h.memoryNodes()
	for i := range h.t.GPUs {
		g := &h.t.GPUs[i]
		for _, m := range nodes {
			waived := h.noMemory(m)
			if why := unmeasurable(g); why != "" {
				waived = why
			}
			h.gpuPair(m.ID, g.ID, waived)
			h.gpuPair(g.ID, m.ID, waived)
		}
		for j := range h.t.GPUs {
			if i == j {
				continue
			}
			to := &h.t.GPUs[j]
			waived := unmeasurable(g)
			if waived == "" {
				waived = unmeasurable(to)
			}
			staged := waived
			if answer, ok := g.P2P[to.ID]; ok && answer != "ok" && waived == "" {
				waived = fmt.Sprintf("%s has no peer access to %s: %s", g.ID, to.ID, answer)
			}
			h.gpuPair(g.ID, to.ID, waived)
			h.stagedPair(g, to, staged)
		}
	}
}

// unmeasurable says why a GPU cannot be measured, "" if nothing speaks against it.
func unmeasurable(g *topo.GPU) string {
	switch {
	case g.Vendor != "" && g.Vendor != "nvidia":
		return fmt.Sprintf("%s is not measured: copies go through CUDA, and its vendor is %s", g.ID, g.Vendor)
	case g.Visible != nil && !*g.Visible:
		return fmt.Sprintf("%s is not visible to this process", g.ID)
	case g.KnownFrom == "pci":
		return fmt.Sprintf("%s has no driver: it is known from PCI only", g.ID)
	case g.MIG != nil && g.MIG.Enabled:
		return fmt.Sprintf("%s is partitioned (MIG): its parts share what would be measured", g.ID)
	}
	return ""
}

// gpuPair copies from one memory to another, at least one of them a GPU's.
func (h *host) gpuPair(from, to topo.ID, waived string) {
	cpu := isNUMA(from) || isNUMA(to)
	direction := ""
	switch {
	case isNUMA(from):
		direction = "to GPU"
	case isNUMA(to):
		direction = "from GPU"
	}
	h.addCopy(probe.Pair{Variant: h.b.variant, Waived: waived}, from, to, h.path(from, to, cpu), direction)
}

func isNUMA(id topo.ID) bool { return string(pathsel.LocationOf(id)) != string(id) }

// stagedPair copies between GPUs through memory of the host. Wherever that memory is, the bytes go up from
// one GPU, across the sockets once and down to the other.
func (h *host) stagedPair(a, b *topo.GPU, waived string) {
	p := probe.Pair{Variant: probe.VariantNoPeer, Waived: waived}
	if a.NUMA == nil || b.NUMA == nil {
		h.addCopy(p, a.ID, b.ID, way{}, "")
		return
	}
	here, there := topo.NUMAID(*a.NUMA), topo.NUMAID(*b.NUMA)
	w := h.path(a.ID, here, true).then(h.path(here, there, true)).then(h.path(there, b.ID, true))
	p.Expected = h.b.expect(&w)
	if p.Expected.BytesPerSec != nil {
		p.Expected.Basis = p.Expected.Basis.Bounded()
		p.Expected.Why += "; the driver copies it piece by piece, which may be slower"
	}
	h.addCopy(p, a.ID, b.ID, w, "through "+classText(h.g.Relate(here, there).Class))
}

func (h *host) addCopy(p probe.Pair, from, to topo.ID, w way, distance string) {
	class := h.g.Relate(from, to).Class
	end := func(id topo.ID) probe.End {
		l := pathsel.LocationOf(id)
		return probe.End{Host: h.name, Node: id, Name: string(l), Location: l, Class: class}
	}
	p.Kind, p.Transport, p.From, p.To = probe.GPU, probe.CUDA, end(from), end(to)
	h.b.add(p, w, distance)
}
