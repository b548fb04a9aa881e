// Package xgmi says what the numbers of AMD's compute driver mean that describe a link between two
// GPUs. The driver's files have them, and amd-smi prints them.
// Source: drivers/gpu/drm/amd/amdkfd/kfd_crat.h and kfd_crat.c.
package xgmi

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

const hopWeight = 15 // of each hop

// MaxMBs is more megabytes per second than any link has.
const MaxMBs = 100_000_000

// End is one end's word on the xGMI between two GPUs.
type End struct {
	count  int    // links, 0 where they are not counted
	maxMBs uint64 // megabytes per second over all of them, 0 where not known
	hops   int    // GPUs to cross, the last included: 1 is a direct link
}

// New reads the driver's numbers. The least rate is that of a single link, the highest that of all
// together; both are 0 where they are not known, as is the weight.
func New(minMBs, maxMBs, weight uint64) End {
	e := End{count: 1, maxMBs: maxMBs, hops: 1}
	if minMBs > 0 && maxMBs >= minMBs && maxMBs%minMBs == 0 && maxMBs/minMBs <= 64 {
		e.count = int(maxMBs / minMBs)
	}
	if weight > hopWeight && weight%hopWeight == 0 && weight/hopWeight <= 64 {
		e.count, e.hops = 0, int(weight/hopWeight)
	}
	return e
}

// Link is the link of a pair of GPUs; the lowest of what its ends say.
func Link(a, b *topo.GPU, ends []End, source topo.Source, where string) topo.Link {
	x := slices.MinFunc(ends, func(x, y End) int {
		return cmp.Or(cmp.Compare(x.hops, y.hops), cmp.Compare(x.count, y.count), cmp.Compare(x.maxMBs, y.maxMBs))
	})
	l := topo.Link{
		ID: topo.XGMILinkID(a.ID, b.ID), Kind: topo.LinkXGMI, A: a.ID, B: b.ID, Count: x.count, Basis: topo.BasisUnknown,
	}
	l.Facts.Set("kind", source, where)
	if x.hops > 1 {
		l.Note = fmt.Sprintf("%d hops", x.hops)
	}
	if x.maxMBs > 0 {
		l.BytesPerSec, l.Basis = new(topo.Rate(x.maxMBs)*topo.MBPerSec), topo.BasisRead
		l.Facts.Set("bytes_per_sec", source, where)
		return l
	}
	per := min(rate(a.ComputeCap), rate(b.ComputeCap))
	if x.hops == 1 && per > 0 {
		l.BytesPerSec, l.Basis = new(topo.Rate(x.count)*per), topo.BasisTypical
		l.Note = fmt.Sprintf("%d x %.1f GB/s (%s)", x.count, float64(per)/float64(topo.GBPerSec), a.ComputeCap)
	}
	return l
}

// rate is the rate of one xGMI link by GPU, 0 where it is not known.
// Source: RCCL, src/graph/topo.h (*_XGMI_WIDTH).
func rate(gfx string) topo.Rate {
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
