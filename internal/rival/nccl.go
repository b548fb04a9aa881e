package rival

import (
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"
)

const ncclRule = "of the NICs with the most bandwidth and then the best path type, as many as there are for each GPU, " +
	"starting at the GPU's mirrored index (NCCL 2.30.7, graph/topo.cc)"

// ncclNet is one of NCCL's network devices: a port, or ports of one card that it
// joins to one.
type ncclNet struct {
	ports []pathsel.Port
	fn    *topo.PCIDevice
	speed float64 // bytes per second
	guess bool    // the speed is not known, NCCL takes a figure of its own
}

// ncclReach is what NCCL thinks of the way between a GPU and a NIC.
type ncclReach struct {
	bandwidth float64 // bytes per second
	path      topo.NCCLClass
}

// ncclOrder ranks NCCL's path types, near to far; unknown is last.
// Source: NCCL src/include/graph.h.
var ncclOrder = map[topo.NCCLClass]int{"LOC": 0, "NVL": 1, "NVB": 2, "C2C": 3, "PIX": 4,
	"PXB": 5, "P2C": 6, "PHB": 8, "SYS": 9, "": 11}

// ncclUnknownSpeed is NCCL's figure for a port of unknown speed: 10 Gb/s.
const ncclUnknownSpeed = 1.25e9

// ncclMostPorts is how many ports NCCL joins at most (NCCL_NET_MAX_DEVS_PER_NIC).
const ncclMostPorts = 4

// ncclNets lists the network devices in PCI order: ACTIVE ports, those on one
// bus joined if they are of one link layer. Virtual functions are on the bus of
// their physical function, so they are joined with it (NCCL_IB_MERGE_VFS).
func (v *view) ncclNets() []ncclNet {
	var out []ncclNet
	for _, p := range v.rdmaPorts() {
		if !v.active(&p) {
			continue
		}
		fn := v.function(p.NIC)
		speed, guess := v.claimed(&p), false
		if speed == 0 {
			speed, guess = ncclUnknownSpeed, true
		}
		i := slices.IndexFunc(out, func(n ncclNet) bool {
			return fn != nil && n.fn != nil && fn.BDF.Domain == n.fn.BDF.Domain && fn.BDF.Bus == n.fn.BDF.Bus &&
				n.ports[0].LinkLayer == p.LinkLayer && len(n.ports) < ncclMostPorts
		})
		if i >= 0 {
			out[i].ports, out[i].speed = append(out[i].ports, p), out[i].speed+speed
			continue
		}
		out = append(out, ncclNet{[]pathsel.Port{p}, fn, speed, guess})
	}
	slices.SortStableFunc(out, func(a, b ncclNet) int {
		return compareFunctions(a.fn, b.fn)
	})
	return out
}

// compareFunctions orders by PCI address, what has none last.
func compareFunctions(a, b *topo.PCIDevice) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return a.BDF.Compare(b.BDF)
}

// reach is NCCL's bandwidth and path type between a GPU and a network device.
func (v *view) reach(g *topo.GPU, n *ncclNet) ncclReach {
	r := ncclReach{bandwidth: n.speed}
	if way, ok := v.index.Relation(g.ID, n.ports[0].NIC); ok {
		r.path = way.NCCL
	}
	fn := v.index.PCIDevice(g.PCI)
	above, below := v.ncclChain(fn), v.ncclChain(n.fn)
	for len(above) > 0 && len(below) > 0 && above[len(above)-1] == below[len(below)-1] {
		above, below = above[:len(above)-1], below[:len(below)-1]
	}
	if r.path == "P2C" {
		above = nil // over C2C instead of the GPU's PCIe link
		if l := v.index.Link(topo.C2CLinkID(g.ID)); l != nil && l.BytesPerSec != nil {
			r.bandwidth = min(r.bandwidth, float64(*l.BytesPerSec))
		}
	}
	for _, d := range append(above, below...) {
		r.bandwidth = min(r.bandwidth, v.ncclLink(d, d == fn))
	}
	if r.path == "SYS" {
		r.bandwidth = min(r.bandwidth, v.ncclSocket())
	}
	return r
}

// ncclChain are the functions whose links NCCL counts above a device: its own
// and those of the switches, nearest first. It skips what is between a switch's
// ports.
func (v *view) ncclChain(d *topo.PCIDevice) []*topo.PCIDevice {
	var out []*topo.PCIDevice
	if d == nil {
		return nil
	}
	for up := range v.index.Climb(d.ID) {
		if up == d || up.Role == topo.RoleUpstream || up.Role == topo.RoleBridge {
			out = append(out, up)
		}
	}
	return out
}

// ncclLink is what NCCL takes a link to carry: the lower maximum of both ends,
// whatever it runs at; no width is 16 lanes, no speed generation 3. Of a GPU
// NVML tells it the current width.
func (v *view) ncclLink(d *topo.PCIDevice, gpu bool) float64 {
	speed, width := 0, 0
	ends := []*topo.PCILink{d.Link}
	if port := v.index.PCIDevice(d.Parent); port != nil && port.Role != topo.RoleUpstream {
		ends = append(ends, port.Link)
	}
	for _, l := range ends {
		if l == nil {
			continue
		}
		lower(&speed, l.MaxSpeedMTs)
		lower(&width, l.MaxWidth)
	}
	if gpu && d.Link != nil {
		lower(&width, d.Link.Width)
	}
	if width == 0 {
		width = 16
	}
	return float64(width) * ncclLane(speed)
}

func lower(v *int, other *int) {
	if other != nil && *other > 0 && (*v == 0 || *other < *v) {
		*v = *other
	}
}

// ncclLane is NCCL's figure for one lane in bytes per second: 100 Mb/s units
// over 80, so that generation 5 with 16 lanes is 48 GB/s.
// Source: NCCL src/graph/topo.h and topo.cc (kvDictPciGen).
func ncclLane(speedMTs int) float64 {
	units := map[int]float64{2500: 15, 5000: 30, 8000: 60, 16000: 120, 32000: 240, 64000: 480}[speedMTs]
	if units == 0 {
		units = 60
	}
	return units / 80 * 1e9
}

// ncclSocket is NCCL's constant between NUMA nodes: the model's, which the
// topology's links carry, and 6 GB/s on ARM.
func (v *view) ncclSocket() float64 {
	for i := range v.t.Links {
		if l := &v.t.Links[i]; l.Kind == topo.LinkSocket && l.BytesPerSec != nil && l.Basis == topo.BasisTypical {
			return float64(*l.BytesPerSec)
		}
	}
	if v.t.Host.CPUVendor == "ARM" {
		return 6e9
	}
	return math.Inf(1)
}

// locals are the places of the best among ways: the most bandwidth, then the
// best path type.
func locals(ways []ncclReach) []int {
	var out []int
	for i, w := range ways {
		if w.path == "" {
			continue
		}
		if len(out) > 0 {
			best := ways[out[0]]
			if w.bandwidth < best.bandwidth || w.bandwidth == best.bandwidth && ncclOrder[w.path] > ncclOrder[best.path] {
				continue
			}
			if w != best {
				out = out[:0]
			}
		}
		out = append(out, i)
	}
	return out
}

// mirror turns the bits of an index around, for a power of two of places.
func mirror(index, places int) int {
	width := bits.Len(uint(places)) - 1
	if width == 0 {
		return 0
	}
	return int(bits.Reverse64(uint64(index%places)) >> (64 - width))
}

// nccl applies the rule to the view's location.
func (v *view) nccl(c *Choice) {
	if v.gpu == nil {
		c.note(CodeNoRule, "NCCL moves GPU memory only")
		return
	}
	nets := v.ncclNets()
	ways := make([]ncclReach, len(nets))
	for i := range nets {
		ways[i] = v.reach(v.gpu, &nets[i])
	}
	local := locals(ways)
	if len(local) == 0 {
		c.note(CodeFiltered, "no RDMA port that is ACTIVE and has a known path: NCCL would use sockets")
	}
	turn := map[int]bool{}
	var perGPU int
	if len(local) > 0 {
		perGPU = v.ncclTurns(&nets[local[0]], local, turn)
	}
	for i := range nets {
		v.ncclJudge(c, &nets[i], ways[i], slices.Contains(local, i), turn[i], len(local), perGPU)
	}
	v.rejectInactive(c)
	v.ncclNotes(c, nets, ways, turn)
}

// ncclTurns marks the local NICs that are this GPU's and gives their number.
func (v *view) ncclTurns(first *ncclNet, local []int, turn map[int]bool) int {
	back := make([]ncclReach, len(v.t.GPUs))
	for i := range v.t.GPUs {
		back[i] = v.reach(&v.t.GPUs[i], first)
	}
	sharing := max(1, len(locals(back)))
	perGPU := (len(local) + sharing - 1) / sharing
	start := v.gpu.Index % sharing
	if len(local)&(len(local)-1) == 0 {
		start = mirror(start, len(local))
	}
	for channel := range perGPU {
		turn[local[(start+channel)%len(local)]] = true
	}
	return perGPU
}

func (v *view) ncclJudge(c *Choice, n *ncclNet, way ncclReach, local, turn bool, locals, perGPU int) {
	figure := string(way.path) + ", " + units.Rate(int64(way.bandwidth), units.Gbyte) + " by NCCL's figures"
	for _, p := range n.ports {
		switch {
		case turn && locals == 1:
			v.choose(c, &p, 0, CodeNearest, "%s: the best", figure)
		case turn:
			v.choose(c, &p, 0, CodeTurn, "%s: among the best %d, %d for each GPU", figure, locals, perGPU)
		case local:
			v.reject(c, &p, CodeOtherTurn, "%s: among the best %d, other GPUs' turn", figure, locals)
		case way.path == "":
			v.reject(c, &p, CodeFiltered, "its path is not known")
		default:
			v.reject(c, &p, CodeFarther, "%s: less than the best", figure)
		}
	}
}

// ncclNotes says what the choice carries in NCCL's eyes, whether the NICs reach
// GPU memory, and which degraded links it does not see.
func (v *view) ncclNotes(c *Choice, nets []ncclNet, ways []ncclReach, turn map[int]bool) {
	believed, far, guess := 0.0, topo.NCCLClass(""), false
	blind := []string{}
	for i := range nets {
		if !turn[i] {
			continue
		}
		believed += ways[i].bandwidth
		guess = guess || nets[i].guess
		if ncclOrder[ways[i].path] > ncclOrder["P2C"] {
			far = ways[i].path
		}
		for _, d := range v.ncclChain(nets[i].fn) {
			if actual, ok := currentRate(d); ok && actual < v.ncclLink(d, false)*0.8 {
				blind = append(blind, string(topo.PCIeLinkID(d.BDF))+" runs at "+units.Rate(int64(actual), units.Gbyte))
			}
		}
	}
	for k := range c.Chosen {
		c.Chosen[k].Share = 1 / float64(len(c.Chosen))
	}
	if len(c.Chosen) == 0 {
		return
	}
	if fn := v.index.PCIDevice(v.gpu.PCI); fn != nil { // several NICs share the GPU's own link
		believed = min(believed, v.ncclGPU(fn))
	}
	if rate := topo.Rate(believed); !guess {
		c.BelievedBytesPerSec = &rate
	} else {
		c.note(CodeGuess, "the speed of its ports is not known here; NCCL or its network plugin may know it")
	}
	if far != "" {
		c.note(CodeNoGPUDirect, "no GPUDirect: %s is farther than P2C (NCCL_NET_GDR_LEVEL), so data is copied through host memory", far)
	} else {
		c.note(CodeGPUDirect, "GPUDirect as far as the distance decides, if peer memory is set up")
	}
	if len(blind) > 0 {
		c.note(CodeMaximumSpeed, "NCCL reads maximum link speeds, so it does not see that %s", strings.Join(blind, " and "))
	}
}

// ncclGPU is NCCL's figure for all that a GPU's PCIe or C2C link carries.
func (v *view) ncclGPU(fn *topo.PCIDevice) float64 {
	if l := v.index.Link(topo.C2CLinkID(v.gpu.ID)); l != nil && l.BytesPerSec != nil {
		return float64(*l.BytesPerSec)
	}
	return v.ncclLink(fn, true)
}

// currentRate is what a function's link runs at.
func currentRate(d *topo.PCIDevice) (rate float64, ok bool) {
	if d.Link == nil || d.Implausible || d.Link.SpeedMTs == nil || d.Link.Width == nil {
		return 0, false
	}
	return float64(topo.PCIeRate(*d.Link.SpeedMTs, *d.Link.Width)), true
}
