package rival

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

// view is a host as the rules look at it: files' values instead of what topoctl
// concluded, and pathsel's own answer to compare with.
type view struct {
	h     *pathsel.Host
	t     *topo.Topology
	index *topo.Index
	loc   pathsel.Location
	gpu   *topo.GPU // nil for a NUMA node
	node  int       // the NUMA node's number, -1 for a GPU
	own   *pathsel.Affinity
}

func newView(h *pathsel.Host, location pathsel.Location) (*view, error) {
	own, err := h.Affinity(location, nil)
	if err != nil {
		return nil, err
	}
	v := &view{h: h, t: h.Topology(), index: h.Index(), loc: location, gpu: h.Index().GPU(location.Node()), node: -1, own: own}
	if n := v.index.NUMANode(location.Node()); n != nil {
		v.node = n.Index
	}
	return v, nil
}

// rdmaPorts lists the ports of RDMA devices, in the order of names.
func (v *view) rdmaPorts() []pathsel.Port {
	return slices.DeleteFunc(v.h.Ports(), func(p pathsel.Port) bool { return !p.RDMA() })
}

// function is the PCI function of an RDMA device, nil for a software device.
func (v *view) function(nic topo.ID) *topo.PCIDevice {
	if r := v.index.RDMADevice(nic); r != nil {
		return v.index.PCIDevice(r.PCI)
	}
	return nil
}

// active says whether a port is up, as far as the origin says, and not taken as down.
func (v *view) active(p *pathsel.Port) bool {
	port := v.index.Port(p.ID)
	down := p.BytesPerSec != nil && *p.BytesPerSec == 0
	return !down && (port == nil || port.State == "" || port.State == "ACTIVE")
}

// claimed is the rate that a port's driver reports, which is what engines see:
// topoctl does not believe that of software devices. 0 is unknown.
func (v *view) claimed(p *pathsel.Port) float64 {
	rate := p.BytesPerSec
	if port := v.index.Port(p.ID); port != nil && port.BytesPerSec != nil {
		if f, ok := port.Facts.Get("bytes_per_sec"); ok && f.Source == topo.SourceDerived { // its interface's
			number, _, _ := strings.Cut(port.RateRaw, " ")
			gbps, _ := strconv.ParseFloat(number, 64)
			return gbps * 1e9 / 8
		}
		rate = port.BytesPerSec
	}
	if rate == nil || *rate <= 0 {
		return 0
	}
	return float64(*rate)
}

// fileNUMA is what a function's numa_node file says: topoctl finds the node in
// other ways where the kernel says -1, the engines do not.
func fileNUMA(d *topo.PCIDevice) int {
	if d == nil || d.NUMA == nil {
		return -1
	}
	if f, ok := d.Facts.Get("numa_node"); ok && (f.Source == topo.SourceDerived || f.Source == topo.SourceRemap) {
		return -1
	}
	return *d.NUMA
}

// realpath is a function's directory below /sys/devices: as it was read, else
// rebuilt from the functions above it. exact is false where an importer may
// have left functions out.
func (v *view) realpath(d *topo.PCIDevice) (path string, exact bool) {
	if strings.HasPrefix(d.Evidence, "/sys/devices/") {
		return d.Evidence, true
	}
	top := d
	for up := range v.index.Climb(d.ID) {
		path, top = "/"+up.BDF.String()+path, up
	}
	return "/sys/devices/pci" + strings.TrimPrefix(string(top.Parent), "hb:") + path, false
}

// visibleGPUs are the GPUs that the process sees, in PCI order.
func (v *view) visibleGPUs() []*topo.GPU {
	var out []*topo.GPU
	for i := range v.t.GPUs {
		if g := &v.t.GPUs[i]; g.Visible == nil || *g.Visible {
			out = append(out, g)
		}
	}
	return out
}

// pick makes a port's record, with pathsel's opinion of it.
func (v *view) pick(p *pathsel.Port, share float64, code pathsel.Code, format string, args ...any) Pick {
	out := Pick{Port: p.ID, NIC: p.NIC, Name: p.Name, Share: share, Basis: topo.BasisUnknown,
		Reason: pathsel.Reason{Code: code, Text: fmt.Sprintf(format, args...)}}
	for i := range v.own.Ranked {
		if c := &v.own.Ranked[i]; c.Port == p.ID {
			rank := i + 1
			out.Rank, out.BytesPerSec, out.Basis = &rank, c.BytesPerSec, c.Basis
			out.preferred = c.Verdict == pathsel.Preferred
		}
	}
	for i := range v.own.Rejected {
		if c := &v.own.Rejected[i]; c.Port == p.ID {
			out.Rejects, out.BytesPerSec, out.Basis = &c.Reason, c.BytesPerSec, c.Basis
		}
	}
	return out
}

func (v *view) choose(c *Choice, p *pathsel.Port, share float64, code pathsel.Code, format string, args ...any) {
	c.Chosen = append(c.Chosen, v.pick(p, share, code, format, args...))
}

func (v *view) reject(c *Choice, p *pathsel.Port, code pathsel.Code, format string, args ...any) {
	c.Rejected = append(c.Rejected, v.pick(p, 0, code, format, args...))
}

func (v *view) rejectInactive(c *Choice) {
	for _, p := range v.rdmaPorts() {
		if !v.active(&p) {
			v.reject(c, &p, CodeFiltered, "port is not ACTIVE")
		}
	}
}

// note adds something that holds for the choice as a whole.
func (c *Choice) note(code pathsel.Code, format string, args ...any) {
	c.Notes = append(c.Notes, pathsel.Reason{Code: code, Text: fmt.Sprintf(format, args...)})
}

// percent prints a part of a whole: "12.5 %".
func percent(part float64) string {
	s := fmt.Sprintf("%.1f", 100*part)
	return strings.TrimSuffix(s, ".0") + " %"
}
