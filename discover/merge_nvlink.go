package discover

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/replies"
)

// nvFabric is the far end of NVLinks that lead to NVSwitches: all GPUs with
// links to it reach each other, with as many links as the smaller of the two.
const nvFabric topo.ID = "nvfabric"

// nvlinkRates are the rates of one NVLink in one direction, from the newest
// compute capability (major and minor digit) down.
// Source: NCCL 2.30, src/graph/topo.h.
var nvlinkRates = []struct {
	capability int
	rate       topo.Rate
}{
	{100, 40_100 * topo.MBPerSec},
	{90, 20_600 * topo.MBPerSec},
	{87, 20 * topo.GBPerSec},
	{86, 12 * topo.GBPerSec},
	{70, 20 * topo.GBPerSec},
	{60, 18 * topo.GBPerSec},
}

// nvlinkRate is the rate of one NVLink of a GPU, nil where it is not known.
func nvlinkRate(computeCap string) *topo.Rate {
	major, minor, ok := strings.Cut(computeCap, ".")
	a, err1 := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	if !ok || err1 != nil || err2 != nil || b < 0 || b > 9 || a < 0 || a > 1000 {
		return nil
	}
	for _, r := range nvlinkRates {
		if a*10+b >= r.capability {
			return &r.rate
		}
	}
	return nil
}

// peers turns what a report says between GPUs into links and relations.
type peers struct {
	t      *topo.Topology
	report *replies.GPUReport
	node   map[int]int // the node of each answer, by their places

	byBDF   map[topo.BDF]int // nodes by PCI address
	byIndex map[int]int      // nodes by NVML index
	order   []int            // the answers that have a node, in the nodes' order
}

func (p *peers) index() {
	p.byBDF, p.byIndex = map[topo.BDF]int{}, map[int]int{}
	for i, at := range p.node {
		p.order = append(p.order, i)
		p.byIndex[p.report.GPUs[i].Index] = at
		if bdf := p.t.GPUs[at].BDF; bdf != nil {
			p.byBDF[*bdf] = at
		}
	}
	slices.SortFunc(p.order, func(a, b int) int { return cmp.Compare(p.node[a], p.node[b]) })
}

// ends counts one GPU's active NVLinks by where they lead.
type ends struct {
	gpu     map[int]int // by the other GPU's place in the topology
	fabric  int
	cpu     int
	strange int // to a GPU or a device that is not visible here
}

func (p *peers) endsOf(i int) ends {
	e := ends{gpu: map[int]int{}}
	switches := map[topo.BDF]bool{}
	for _, s := range p.t.NVSwitches {
		if s.BDF != nil {
			switches[*s.BDF] = true
		}
	}
	for _, l := range p.report.GPUs[i].NVLinks {
		if !l.Active {
			continue
		}
		peer, isGPU := 0, false
		if l.RemoteBDF != nil {
			peer, isGPU = p.byBDF[*l.RemoteBDF]
			isGPU = isGPU && peer != p.node[i]
		}
		switch {
		case l.RemoteType == "switch" || l.RemoteBDF != nil && switches[*l.RemoteBDF]:
			e.fabric++
		case isGPU:
			e.gpu[peer]++
		case l.RemoteType == "cpu":
			e.cpu++
		default:
			e.strange++
		}
	}
	return e
}

// nvlinks adds the NVLinks. Both ends of a link count it; where they differ the
// smaller count is taken.
func (p *peers) nvlinks() {
	counts := map[[2]int][]int{} // by pair of nodes: what each end counts
	for _, i := range p.order {
		at := p.node[i]
		g := &p.t.GPUs[at]
		e := p.endsOf(i)
		for peer, n := range e.gpu {
			pair := [2]int{min(at, peer), max(at, peer)}
			counts[pair] = append(counts[pair], n)
		}
		if e.fabric > 0 {
			p.link(g, nvFabric, e.fabric, nvlinkRate(g.ComputeCap), "to NVSwitches")
		}
		if e.cpu > 0 && g.NUMA != nil {
			p.link(g, topo.NUMAID(*g.NUMA), e.cpu, nvlinkRate(g.ComputeCap), "to the CPU")
		}
		if e.strange > 0 {
			p.t.Warnings = append(p.t.Warnings, topo.Warning{
				Code: topo.CodePartialView, Subject: g.ID, Source: topo.SourceNVML, Evidence: "nvmlDeviceGetNvLinkRemotePciInfo",
				Detail: fmt.Sprintf("%d of its active NVLinks lead to devices that are not visible here", e.strange),
			})
		}
	}
	for _, pair := range sortedPairs(counts) {
		a, b := &p.t.GPUs[pair[0]], &p.t.GPUs[pair[1]]
		seen := counts[pair]
		if len(seen) == 2 && seen[0] != seen[1] {
			conflict(p.t, a.ID, "NVLinks to "+string(b.ID), topo.SourceNVML, slices.Min(seen), topo.SourceNVML, slices.Max(seen))
		}
		rate := nvlinkRate(a.ComputeCap)
		if other := nvlinkRate(b.ComputeCap); rate != nil && other != nil && *other < *rate {
			rate = other
		}
		p.link(a, b.ID, slices.Min(seen), rate, "")
	}
}

func sortedPairs(counts map[[2]int][]int) [][2]int {
	pairs := make([][2]int, 0, len(counts))
	for pair := range counts {
		pairs = append(pairs, pair)
	}
	slices.SortFunc(pairs, func(a, b [2]int) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	return pairs
}

// link adds NVLinks between a GPU and what is at their other end.
func (p *peers) link(g *topo.GPU, b topo.ID, count int, perLink *topo.Rate, note string) {
	l := topo.Link{ID: topo.NVLinkID(g.ID, b), Kind: topo.LinkNVLink, A: g.ID, B: b, Count: count, Basis: topo.BasisUnknown, Note: note}
	if perLink != nil {
		rate := topo.Rate(count) * *perLink
		l.BytesPerSec, l.Basis = &rate, topo.BasisConstant
		per := fmt.Sprintf("%d x %.1f GB/s (compute capability %s)", count, float64(*perLink)/float64(topo.GBPerSec), g.ComputeCap)
		l.Note = strings.TrimSpace(note + " " + per)
	}
	l.Facts.Set("count", topo.SourceNVML, "nvmlDeviceGetNvLinkState")
	p.t.Links = append(p.t.Links, l)
}

// c2c adds the links of GPUs to their CPUs.
func (p *peers) c2c() {
	for _, i := range p.order {
		a, g := p.report.GPUs[i].C2C, &p.t.GPUs[p.node[i]]
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
		l := topo.Link{
			ID: topo.C2CLinkID(g.ID), Kind: topo.LinkC2C, A: g.ID, B: topo.NUMAID(*g.NUMA),
			Count: a.Links, Basis: topo.BasisUnknown,
		}
		if a.BytesPerSec != nil && *a.BytesPerSec > 0 {
			rate := *a.BytesPerSec
			l.BytesPerSec, l.Basis = &rate, topo.BasisRead
		}
		l.Facts.Set("count", topo.SourceNVML, "nvmlDeviceGetFieldValues")
		p.t.Links = append(p.t.Links, l)
	}
}

// p2p gives each GPU NVML's word on peer access, by the peers' IDs.
func (p *peers) p2p() {
	for _, i := range p.order {
		g := &p.t.GPUs[p.node[i]]
		for index, status := range p.report.GPUs[i].P2P {
			peer, ok := p.byIndex[index]
			if !ok || peer == p.node[i] {
				continue
			}
			if g.P2P == nil {
				g.P2P = map[topo.ID]string{}
				g.Facts.Set("p2p", topo.SourceNVML, "nvmlDeviceGetP2PStatus")
			}
			g.P2P[p.t.GPUs[peer].ID] = status
		}
	}
}
