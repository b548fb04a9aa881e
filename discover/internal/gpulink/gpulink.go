// Package gpulink names the vendors of GPUs, and says what links between GPUs carry: NVLinks by the GPU, and xGMI also by the numbers
// of AMD's compute driver, which its files have and amd-smi prints.
// Source: drivers/gpu/drm/amd/amdkfd/kfd_crat.h and kfd_crat.c.
package gpulink

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

const hopWeight = 15 // of each hop

// MaxMBs is more megabytes per second than any link has.
const MaxMBs = 100_000_000

// XGMIEnd is one end's word on the xGMI between two GPUs.
type XGMIEnd struct {
	count  int    // links, 0 where they are not counted
	maxMBs uint64 // megabytes per second over all of them, 0 where not known
	hops   int    // GPUs to cross, the last included: 1 is a direct link
}

// NewXGMI reads the driver's numbers. The least rate is that of a single link, the highest that of all
// together; both are 0 where they are not known, as is the weight.
func NewXGMI(minMBs, maxMBs, weight uint64) XGMIEnd {
	e := XGMIEnd{count: 1, maxMBs: maxMBs, hops: 1}
	if minMBs > 0 && maxMBs >= minMBs && maxMBs%minMBs == 0 && maxMBs/minMBs <= 64 {
		e.count = int(maxMBs / minMBs)
	}
	if weight > hopWeight && weight%hopWeight == 0 && weight/hopWeight <= 64 {
		e.count, e.hops = 0, int(weight/hopWeight)
	}
	return e
}

// XGMI is the xGMI link of a pair of GPUs; the lowest of what its ends say.
func XGMI(a, b *topo.GPU, ends []XGMIEnd, source topo.Source, where string) topo.Link {
	x := slices.MinFunc(ends, func(x, y XGMIEnd) int {
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
	per := min(XGMIRate(a.ComputeCap), XGMIRate(b.ComputeCap))
	if x.hops == 1 && per > 0 {
		l.BytesPerSec, l.Basis = new(topo.Rate(x.count)*per), topo.BasisTypical
		l.Note = fmt.Sprintf("%d x %.1f GB/s (%s)", x.count, float64(per)/float64(topo.GBPerSec), a.ComputeCap)
	}
	return l
}

// XGMIRate is the rate of one xGMI link of a GPU ("gfx942") in one direction, 0 if it is not known.
// Source: RCCL, src/graph/topo.h (*_XGMI_WIDTH).
func XGMIRate(gfx string) topo.Rate {
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

// NVLinkRate is the rate of one NVLink of a GPU in one direction by its compute capability ("9.0"), 0 if it is
// not known.
func NVLinkRate(computeCap string) topo.Rate {
	major, minor, ok := strings.Cut(computeCap, ".")
	a, err1 := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	if !ok || err1 != nil || err2 != nil || b < 0 || b > 9 || a < 0 || a > 1000 {
		return 0
	}
	for _, r := range nvlinkRates {
		if a*10+b >= r.capability {
			return r.rate
		}
	}
	return 0
}

// PCI vendors with GPUs.
const (
	VendorNVIDIA topo.HexID = "0x10de"
	VendorAMD    topo.HexID = "0x1002"
	VendorIntel  topo.HexID = "0x8086"
)

// Vendor is the name of a GPU's vendor, its number where there is no name.
func Vendor(id topo.HexID) string {
	switch id {
	case VendorNVIDIA:
		return "nvidia"
	case VendorAMD:
		return "amd"
	case VendorIntel:
		return "intel"
	}
	return string(id)
}
