package sysfs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// Numbers of the KFD topology's links.
// Source: drivers/gpu/drm/amd/amdkfd/kfd_crat.h and kfd_crat.c.
const (
	kfdTypeXGMI = 11
	xgmiWeight  = 15          // of each hop
	maxLinkMBs  = 100_000_000 // megabytes per second: more than any link has
)

// xgmiWhere names the files of all links: one fact for all of them.
const xgmiWhere = "/" + kfdNodes + "/*/io_links/*/properties"

// xgmi is one end's word on the xGMI between two nodes.
type xgmi struct {
	count  int    // links, 0 where they are not counted
	maxMBs uint64 // megabytes per second over all of them, 0 where not known
	hops   int    // GPUs to cross, the last included: 1 is a direct link
}

// readXGMI adds a link for each pair of GPUs with xGMI between them. Links to
// CPUs and between partitions of one GPU are none of these; the directory
// p2p_links, beside io_links, holds ways over PCIe only.
func (k *kfd) readXGMI() {
	byNumber := map[int]*kfdNode{}
	for i := range k.nodes {
		byNumber[k.nodes[i].number] = &k.nodes[i]
		k.readLinks(k.nodes[i])
	}
	pairs := map[[2]int][]xgmi{} // by place of the GPUs: several where they are partitioned
	compare := func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }
	for _, key := range slices.SortedFunc(maps.Keys(k.ends), compare) {
		a, b := byNumber[key[0]], byNumber[key[1]]
		if b == nil || a.gpu == b.gpu {
			continue
		}
		end := k.ends[key]
		back, ok := k.ends[[2]int{key[1], key[0]}]
		if !ok && k.hidden == 0 {
			a.warn(topo.CodeLinkDisagrees, "io_links", fmt.Sprintf("xGMI to node %d, which has none to node %d", b.number, a.number))
		} else if ok && key[0] < key[1] && end != back {
			a.warn(topo.CodeLinkDisagrees, "io_links", fmt.Sprintf("xGMI to node %d, which describes it otherwise", b.number))
		}
		pair := [2]int{min(a.gpu, b.gpu), max(a.gpu, b.gpu)}
		pairs[pair] = append(pairs[pair], end)
	}
	for _, pair := range slices.SortedFunc(maps.Keys(pairs), compare) {
		a, b := &k.t.GPUs[pair[0]], &k.t.GPUs[pair[1]]
		k.t.Links = append(k.t.Links, xgmiLink(a, b, pairs[pair]))
	}
}

// readLinks collects a node's xGMI links.
func (k *kfd) readLinks(n kfdNode) {
	for _, i := range k.numbers(n.dir + "/io_links") {
		name := "io_links/" + strconv.Itoa(i) + "/properties"
		p := k.properties(n.files, name)
		if p["type"] != kfdTypeXGMI {
			continue
		}
		from, to := p["node_from"], p["node_to"]
		_, told := p["node_to"]
		key := [2]int{n.number, int(min(to, 1<<30))}
		_, twice := k.ends[key]
		wrong := ""
		switch {
		case from != uint64(n.number):
			wrong = fmt.Sprintf("node_from %d, in the directory of node %d", from, n.number)
		case !told:
			wrong = "no node_to"
		case !k.listed[key[1]] || key[1] == n.number:
			wrong = fmt.Sprintf("node_to %d: no other node", to)
		case twice:
			wrong = fmt.Sprintf("a second link to node %d", to)
		default:
			if p["max_bandwidth"] > maxLinkMBs {
				wrong = fmt.Sprintf("max_bandwidth %d: more than any link has", p["max_bandwidth"])
				delete(p, "max_bandwidth")
			}
			k.ends[key] = p.xgmi()
		}
		if wrong != "" {
			n.warn(topo.CodeMalformed, name, wrong)
		}
	}
}

// xgmi reads an xGMI link. min_bandwidth is that of a single link,
// max_bandwidth that of all together; old kernels leave both at 0.
func (p kfdProps) xgmi() xgmi {
	x := xgmi{count: 1, maxMBs: p["max_bandwidth"], hops: 1}
	if one := p["min_bandwidth"]; one > 0 && x.maxMBs >= one && x.maxMBs%one == 0 && x.maxMBs/one <= 64 {
		x.count = int(x.maxMBs / one)
	}
	if w := p["weight"]; w > xgmiWeight && w%xgmiWeight == 0 && w/xgmiWeight <= 64 {
		x.count, x.hops = 0, int(w/xgmiWeight)
	}
	return x
}

// xgmiLink is the link of a pair of GPUs; the lowest of what its ends say.
func xgmiLink(a, b *topo.GPU, ends []xgmi) topo.Link {
	x := slices.MinFunc(ends, func(x, y xgmi) int {
		return cmp.Or(cmp.Compare(x.hops, y.hops), cmp.Compare(x.count, y.count), cmp.Compare(x.maxMBs, y.maxMBs))
	})
	l := topo.Link{
		ID: topo.XGMILinkID(a.ID, b.ID), Kind: topo.LinkXGMI, A: a.ID, B: b.ID, Count: x.count, Basis: topo.BasisUnknown,
	}
	l.Facts.Set("kind", topo.SourceSysfs, xgmiWhere)
	if x.hops > 1 {
		l.Note = fmt.Sprintf("%d hops", x.hops)
	}
	if x.maxMBs > 0 {
		l.BytesPerSec, l.Basis = new(topo.Rate(x.maxMBs)*topo.MBPerSec), topo.BasisRead
		l.Facts.Set("bytes_per_sec", topo.SourceSysfs, xgmiWhere)
		return l
	}
	per := min(xgmiRate(a.ComputeCap), xgmiRate(b.ComputeCap))
	if x.hops == 1 && per > 0 {
		l.BytesPerSec, l.Basis = new(topo.Rate(x.count)*per), topo.BasisConstant
		l.Note = fmt.Sprintf("%d x %.1f GB/s (%s)", x.count, float64(per)/float64(topo.GBPerSec), a.ComputeCap)
	}
	return l
}

// xgmiRate is the rate of one xGMI link by GPU, 0 where it is not known.
// Source: RCCL, src/graph/topo.h (*_XGMI_WIDTH).
func xgmiRate(gfx string) topo.Rate {
	switch {
	case strings.HasPrefix(gfx, "gfx94"), strings.HasPrefix(gfx, "gfx95"):
		return 48 * topo.GBPerSec
	case gfx == "gfx90a":
		return 36 * topo.GBPerSec
	case gfx == "gfx906", gfx == "gfx908":
		return 24 * topo.GBPerSec
	}
	return 0
}
