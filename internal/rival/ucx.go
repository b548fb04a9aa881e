package rival

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"
)

const ucxRule = "the two ports with the most bandwidth, each the lesser of port, slot and UCX's figure for the distance; " +
	"of equal ones that of the GPU's index (UCX 9466d10, ucs/sys/topo, ucp/proto/proto_multi.c)"

// UCX's figures for the distance of two devices, in bytes per second, and its
// settings. Its megabyte is 2^20 bytes.
// Source: UCX src/ucs/sys/topo/base/topo.c, src/ucp/core/ucp_context.c.
const (
	ucxMB          = 1 << 20
	ucxSameNUMA    = 17000 * ucxMB // other host bridge, same NUMA node
	ucxAcross      = 220 * ucxMB   // another NUMA node, or not known
	ucxSameRoot    = 3500 * ucxMB  // at most, below one host bridge
	ucxSameRootSum = 19200 * ucxMB // over the length of the path
	ucxRails       = 2             // UCX_MAX_RNDV_RAILS
	ucxSlowest     = 4             // UCX_MULTI_LANE_MAX_RATIO: less than a quarter of the fastest is not used
)

// ucxLane is one port as UCX sees it.
type ucxLane struct {
	port      pathsel.Port
	fn        *topo.PCIDevice
	bandwidth float64
	why       string
}

// ucxDistance is UCX's bandwidth between two functions, infinite below a common
// bridge, and what it is in words. An unknown function is near.
func (v *view) ucxDistance(a, b *topo.PCIDevice) (bandwidth float64, why string) {
	if a == nil || b == nil {
		return math.Inf(1), "taken as near, because its place is not known"
	}
	x, _ := v.realpath(a)
	y, _ := v.realpath(b)
	p, q := strings.Split(x, "/"), strings.Split(y, "/")
	common := 0
	for common < len(p) && common < len(q) && p[common] == q[common] {
		common++
	}
	root := slices.IndexFunc(p, func(name string) bool { return strings.HasPrefix(name, "pci") })
	numa := fileNUMA(a)
	switch {
	case common > root+1:
		return math.Inf(1), "below a common bridge: no limit"
	case common == root+1:
		length := len(p) + len(q) - 2*common
		return min(ucxSameRoot, ucxSameRootSum/float64(length)), "same host bridge"
	case numa >= 0 && numa == fileNUMA(b):
		return ucxSameNUMA, "another host bridge of the NUMA node"
	}
	return ucxAcross, "another NUMA node"
}

// ucxLanes lists the ACTIVE ports with UCX's bandwidth for the view's memory.
func (v *view) ucxLanes() []ucxLane {
	var out []ucxLane
	for _, p := range v.rdmaPorts() {
		if !v.active(&p) {
			continue
		}
		l := ucxLane{port: p, fn: v.function(p.NIC), bandwidth: math.Inf(1)}
		if rate := v.claimed(&p); rate > 0 {
			l.bandwidth = rate
		}
		if l.fn != nil {
			if slot, ok := currentRate(l.fn); ok {
				l.bandwidth = min(l.bandwidth, slot)
			}
		}
		if v.gpu == nil {
			l.why = "host memory: no limit by distance"
		} else {
			limit, why := v.ucxDistance(v.index.PCIDevice(v.gpu.PCI), l.fn)
			l.bandwidth, l.why = min(l.bandwidth, limit), why
		}
		out = append(out, l)
	}
	return out
}

// ucxOrdinal is the GPU's place in PCI order among those that the process sees;
// -1 for host memory. A process that sees its own GPU only has place 0
// whichever GPU it is, and so all processes take the same NIC of several.
func (v *view) ucxOrdinal() int {
	if v.gpu == nil {
		return -1
	}
	n := 0
	for _, g := range v.visibleGPUs() {
		if g.Index < v.gpu.Index {
			n++
		}
	}
	return n
}

// ucxTake takes the best of the lanes that are left: of equal ones the first,
// or for a GPU, in PCI order, that of the GPU's place.
func ucxTake(lanes []ucxLane, left []int, ordinal int) (taken, equal int) {
	best := left[0]
	for _, i := range left[1:] {
		if lanes[i].bandwidth > lanes[best].bandwidth {
			best = i
		}
	}
	var tied, devices []int
	for _, i := range left {
		if lanes[i].bandwidth != lanes[best].bandwidth {
			continue
		}
		tied = append(tied, i)
		if !slices.ContainsFunc(devices, func(j int) bool { return sameFunction(&lanes[i], &lanes[j]) }) {
			devices = append(devices, i)
		}
	}
	if ordinal < 0 || len(devices) == 1 {
		return tied[0], len(tied)
	}
	slices.SortStableFunc(devices, func(i, j int) int { return compareFunctions(lanes[i].fn, lanes[j].fn) })
	return devices[ordinal%len(devices)], len(devices)
}

// sameFunction says whether two ports are of one PCI function.
func sameFunction(a, b *ucxLane) bool { return a.port.NIC == b.port.NIC || a.fn != nil && a.fn == b.fn }

// ucx applies the rule to the view's location.
func (v *view) ucx(c *Choice) {
	lanes := v.ucxLanes()
	fastest := 0.0
	for i := range lanes {
		fastest = max(fastest, lanes[i].bandwidth)
	}
	var left []int
	for i := range lanes {
		if lanes[i].bandwidth*ucxSlowest >= fastest {
			left = append(left, i)
		}
	}
	sum := 0.0
	reasons := map[int]pathsel.Reason{}
	ordinal := v.ucxOrdinal()
	for len(left) > 0 && len(reasons) < ucxRails {
		i, equal := ucxTake(lanes, left, ordinal)
		reasons[i] = lanes[i].taken(equal, ordinal)
		sum += lanes[i].bandwidth
		left = slices.DeleteFunc(left, func(j int) bool { return j == i })
	}
	for i := range lanes {
		l := &lanes[i]
		reason, taken := reasons[i]
		switch {
		case taken && math.IsInf(sum, 1):
			v.choose(c, &l.port, 1/float64(len(reasons)), reason.Code, "%s", reason.Text)
		case taken:
			v.choose(c, &l.port, l.bandwidth/sum, reason.Code, "%s", reason.Text)
		case slices.Contains(left, i):
			v.reject(c, &l.port, CodeEnough, "%s: two ports are enough", l.figure())
		default:
			v.reject(c, &l.port, CodeTooSlow, "%s: less than a quarter of the fastest", l.figure())
		}
	}
	v.rejectInactive(c)
	switch {
	case len(lanes) == 0:
		c.note(CodeFiltered, "no RDMA port is ACTIVE: UCX would use TCP")
	case !math.IsInf(sum, 1):
		rate := topo.Rate(sum)
		c.BelievedBytesPerSec = &rate
	}
}

// figure is UCX's bandwidth of a lane with the reason.
func (l *ucxLane) figure() string {
	if math.IsInf(l.bandwidth, 1) {
		return l.why
	}
	return units.Rate(int64(l.bandwidth), units.Gbyte) + " by UCX's figures (" + l.why + ")"
}

// taken says why a lane was taken among a number of equal ones.
func (l *ucxLane) taken(equal, ordinal int) pathsel.Reason {
	switch {
	case equal == 1:
		return pathsel.Reason{Code: CodeNearest, Text: l.figure()}
	case ordinal < 0:
		return pathsel.Reason{Code: CodeTurn, Text: fmt.Sprintf("%s: the first of %d equal", l.figure(), equal)}
	}
	return pathsel.Reason{Code: CodeTurn, Text: fmt.Sprintf("%s: number %d of %d equal, by the GPU's index %d", l.figure(), ordinal%equal+1, equal, ordinal)}
}
