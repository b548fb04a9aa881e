package discover

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/topoctl/topoctl/discover/internal/gpulink"
	"github.com/topoctl/topoctl/discover/topo"
)

// peers turns what NVML says between GPUs into links and relations.
type peers struct {
	t      *topo.Topology
	index  *topo.Index
	listed []listedGPU // in the topology's order
	byNVML map[int]*topo.GPU
	known  map[*topo.GPU]bool // those that NVML lists
}

// nvlinkEnds counts one GPU's active NVLinks by where they lead.
type nvlinkEnds struct {
	gpu     map[*topo.GPU]int
	fabric  int
	cpu     int
	strange int // to a GPU or a device that is not visible here
}

func (p *peers) nvlinkEnds(l listedGPU) nvlinkEnds {
	ends := nvlinkEnds{gpu: map[*topo.GPU]int{}}
	for _, link := range l.answer.NVLinks {
		if !link.Active {
			continue
		}
		var peer *topo.GPU
		isSwitch := link.RemoteType == "switch"
		if link.RemoteBDF != nil {
			isSwitch = isSwitch || p.index.NVSwitch(topo.NVSwitchID(*link.RemoteBDF)) != nil
			peer = p.index.GPUAt(*link.RemoteBDF)
		}
		switch {
		case isSwitch:
			ends.fabric++
		case p.known[peer] && peer != l.gpu:
			ends.gpu[peer]++
		case link.RemoteType == "cpu":
			ends.cpu++
		default:
			ends.strange++
		}
	}
	return ends
}

// nvlinks adds the NVLinks. Both ends of a link count it; where they differ the
// smaller count is taken.
func (p *peers) nvlinks() {
	all := map[*topo.GPU]nvlinkEnds{}
	for _, l := range p.listed {
		g, ends := l.gpu, p.nvlinkEnds(l)
		all[g] = ends
		if ends.fabric > 0 {
			p.link(g, topo.FabricID, ends.fabric, gpulink.NVLinkRate(g.ComputeCap), "to NVSwitches")
		}
		if ends.cpu > 0 && g.NUMA != nil {
			p.link(g, topo.NUMAID(*g.NUMA), ends.cpu, gpulink.NVLinkRate(g.ComputeCap), "to the CPU")
		}
		if ends.strange > 0 {
			p.t.Warnings = append(p.t.Warnings, topo.Warning{
				Code: topo.CodePartialView, Subject: g.ID, Source: topo.SourceNVML, Evidence: "nvmlDeviceGetNvLinkRemotePciInfo",
				Detail: fmt.Sprintf("%d of its active NVLinks lead to devices that are not visible here", ends.strange),
			})
		}
	}
	for i, l := range p.listed {
		for _, other := range p.listed[i+1:] {
			if a, b := l.gpu, other.gpu; all[a].gpu[b]+all[b].gpu[a] > 0 {
				p.pairLink(a, b, all[a].gpu[b], all[b].gpu[a])
			}
		}
	}
}

// pairLink adds the NVLinks of two GPUs. there and back are what each counts, 0 where it says
// nothing of the other.
func (p *peers) pairLink(a, b *topo.GPU, there, back int) {
	count := min(cmp.Or(there, back), cmp.Or(back, there))
	if there > 0 && back > 0 && there != back {
		conflict(p.t, a.ID, "NVLinks to "+string(b.ID), topo.SourceNVML, count, topo.SourceNVML, max(there, back))
	}
	rate := gpulink.NVLinkRate(a.ComputeCap)
	if other := gpulink.NVLinkRate(b.ComputeCap); rate > 0 && other > 0 {
		rate = min(rate, other)
	}
	p.link(a, b.ID, count, rate, "")
}

// link adds NVLinks between a GPU and what is at their other end.
func (p *peers) link(g *topo.GPU, b topo.ID, count int, perLink topo.Rate, note string) {
	l := topo.Link{ID: topo.NVLinkID(g.ID, b), Kind: topo.LinkNVLink, A: g.ID, B: b, Count: count, Basis: topo.BasisUnknown, Note: note}
	if perLink > 0 {
		rate := topo.Rate(count) * perLink
		l.BytesPerSec, l.Basis = &rate, topo.BasisTypical
		per := fmt.Sprintf("%d x %.1f GB/s (compute capability %s)", count, float64(perLink)/float64(topo.GBPerSec), g.ComputeCap)
		l.Note = strings.TrimSpace(note + " " + per)
	}
	l.Facts.Set("count", topo.SourceNVML, "nvmlDeviceGetNvLinkState")
	p.t.Links = append(p.t.Links, l)
}

// c2c adds the links of GPUs to their CPUs.
func (p *peers) c2c() {
	for _, l := range p.listed {
		a, g := l.answer.C2C, l.gpu
		if a == nil || a.Links <= 0 {
			continue
		}
		if g.NUMA == nil {
			p.t.Warnings = append(p.t.Warnings, topo.Warning{
				Code: topo.CodeNUMAUnknown, Subject: g.ID, Source: topo.SourceNVML,
				Detail: "it has NVLink-C2C, but to which NUMA node is unknown: the link is left out",
			})
			continue
		}
		link := topo.Link{
			ID: topo.C2CLinkID(g.ID), Kind: topo.LinkC2C, A: g.ID, B: topo.NUMAID(*g.NUMA),
			Count: a.Links, Basis: topo.BasisUnknown,
		}
		if a.BytesPerSec != nil && *a.BytesPerSec > 0 {
			rate := *a.BytesPerSec
			link.BytesPerSec, link.Basis = &rate, topo.BasisRead
		}
		link.Facts.Set("count", topo.SourceNVML, "nvmlDeviceGetFieldValues")
		p.t.Links = append(p.t.Links, link)
	}
}

// p2p gives each GPU NVML's word on peer access, by the peers' IDs.
func (p *peers) p2p() {
	for _, l := range p.listed {
		g := l.gpu
		for index, status := range l.answer.P2P {
			peer := p.byNVML[index]
			if peer == nil || peer == g {
				continue
			}
			if g.P2P == nil {
				g.P2P = map[topo.ID]string{}
				g.Facts.Set("p2p", topo.SourceNVML, "nvmlDeviceGetP2PStatus")
			}
			g.P2P[peer.ID] = status
		}
	}
}
