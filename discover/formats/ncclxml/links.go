package ncclxml

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/internal/gpulink"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/document"
)

// gpuLinks adds the NVLink, XGMI and C2C links. A pair's link stands at both
// GPUs; it is one link here.
func (d *decoder) gpuLinks() {
	byBDF := map[topo.BDF]int{}
	for i := range d.gpus {
		if _, ok := byBDF[*d.gpus[i].gpu.BDF]; !ok {
			byBDF[*d.gpus[i].gpu.BDF] = i
		}
	}
	pairs := map[topo.LinkID]*pair{}
	var order []topo.LinkID
	for i := range d.gpus {
		if d.gpus[i].e == nil {
			continue
		}
		for _, e := range d.gpus[i].e.Children {
			switch e.Name {
			case "nvlink", "xgmi":
				p, ok := d.peerLink(i, e, byBDF)
				if !ok {
					continue
				}
				if known := pairs[p.id]; known == nil {
					pairs[p.id] = &p
					order = append(order, p.id)
				} else {
					known.count[0] += p.count[0]
					known.count[1] += p.count[1]
				}
			case "c2c":
				if e != d.gpus[i].e.All("c2c")[0] {
					d.Warn(topo.CodeConflict, d.gpus[i].gpu.ID, "a second c2c element: the first is kept", e.Path())
					continue
				}
				d.c2c(&d.gpus[i], e)
			}
		}
	}
	for _, id := range order {
		d.Links = append(d.Links, d.link2(pairs[id]))
	}
}

// pair is the links between two GPUs, or between a GPU and the NVSwitches (z < 0).
type pair struct {
	id    topo.LinkID
	kind  topo.LinkKind
	a, z  int
	count [2]int // as either end says
	path  string
}

// maxLinks bounds the links that one element states.
const maxLinks = 1024

// peerLink reads an nvlink or xgmi element. An address that no device can have
// (NCCL writes fffffff:ff:ff.0) is an NVSwitch that a virtual machine cannot see.
func (d *decoder) peerLink(i int, e *document.Element, byBDF map[topo.BDF]int) (pair, bool) {
	g := &d.gpus[i].gpu
	target, tclass := e.Get("target"), strings.TrimPrefix(e.Get("tclass"), "0x")
	count, err := strconv.Atoi(e.Get("count"))
	if err != nil || count < 1 || count > maxLinks {
		d.Warn(topo.CodeMalformed, g.ID, fmt.Sprintf("%s count %.40q is no count of links", e.Name, e.Get("count")), e.Path())
		return pair{}, false
	}
	p := pair{kind: topo.LinkNVLink, a: i, z: -1, path: e.Path()}
	if e.Name == "xgmi" {
		p.kind = topo.LinkXGMI
	}
	bdf, err := topo.ParseBDF(target)
	peer, known := byBDF[bdf]
	switch {
	case err == nil && bdf == *g.BDF:
		d.Warn(topo.CodeMalformed, g.ID, e.Name+" to itself: left out", e.Path())
		return pair{}, false
	case err == nil && known:
		p.z = peer
	case p.kind == topo.LinkXGMI, tclass == "068001", err == nil && !strings.HasPrefix(tclass, "0680"):
		d.Warn(topo.CodeLossyImport, g.ID, fmt.Sprintf("%s to %.40q, which is no GPU of this file: left out", e.Name, target), e.Path())
		return pair{}, false
	}
	if p.z < 0 {
		p.id = topo.NVLinkID(g.ID, topo.FabricID)
		p.count = [2]int{count, count}
		return p, true
	}
	side := 0
	if p.z < p.a {
		p.a, p.z, side = p.z, p.a, 1
	}
	p.count[side] = count
	a, z := d.gpus[p.a].gpu.ID, d.gpus[p.z].gpu.ID
	if p.id = topo.NVLinkID(a, z); p.kind == topo.LinkXGMI {
		p.id = topo.XGMILinkID(a, z)
	}
	return p, true
}

// link2 makes the link of a pair. Where only one end states links, it is
// believed; where the ends differ, the smaller count is kept.
func (d *decoder) link2(p *pair) topo.Link {
	count := min(p.count[0], p.count[1])
	if count == 0 {
		count = max(p.count[0], p.count[1])
	} else if p.count[0] != p.count[1] {
		d.Warn(topo.CodeConflict, d.gpus[p.a].gpu.ID, fmt.Sprintf("one end states %d links, the other %d: the smaller is kept", p.count[0], p.count[1]), p.path)
	}
	l := topo.Link{ID: p.id, Kind: p.kind, A: d.gpus[p.a].gpu.ID, B: topo.FabricID, Count: count, Basis: topo.BasisUnknown}
	one := d.gpus[p.a].linkRate(p.kind)
	if p.z >= 0 {
		l.B = d.gpus[p.z].gpu.ID
		one = min(one, d.gpus[p.z].linkRate(p.kind))
	}
	if one > 0 {
		r := one * topo.Rate(count)
		l.BytesPerSec, l.Basis = &r, topo.BasisTypical
		l.Note = "NCCL's constant for one link of this GPU, times the count"
	}
	l.Facts.Set("count", topo.SourceNCCL, p.path)
	return l
}

// linkRate is what NCCL and RCCL assume for one link in one direction, 0 if they have no figure.
func (g *gpuElement) linkRate(kind topo.LinkKind) topo.Rate {
	if kind == topo.LinkXGMI {
		return gpulink.XGMIRate(g.gpu.ComputeCap)
	}
	return gpulink.NVLinkRate(g.gpu.ComputeCap)
}

// c2c adds a GPU's link to its CPU: bw is MB/s of one link.
func (d *decoder) c2c(g *gpuElement, e *document.Element) {
	bw, err1 := strconv.ParseInt(e.Get("bw"), 10, 32)
	count, err2 := strconv.Atoi(e.Get("count"))
	if err1 != nil || err2 != nil || bw < 1 || count < 1 || count > maxLinks {
		d.Warn(topo.CodeMalformed, g.gpu.ID, fmt.Sprintf("c2c bw %.40q count %.40q: want two positive numbers", e.Get("bw"), e.Get("count")), e.Path())
		return
	}
	r := topo.Rate(bw) * topo.MBPerSec * topo.Rate(count)
	end := g.cpu.bridge
	if g.cpu.numa != nil {
		end = topo.NUMAID(*g.cpu.numa)
	}
	l := topo.Link{ID: topo.C2CLinkID(g.gpu.ID), Kind: topo.LinkC2C, A: g.gpu.ID, B: end, Count: count, BytesPerSec: &r, Basis: topo.BasisRead}
	l.Facts.Set("bytes_per_sec", topo.SourceNCCL, e.Path()+" bw")
	d.Links = append(d.Links, l)
}
