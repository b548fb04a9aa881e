package ncclxml

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// invisibleSwitch is the address that NCCL writes for NVSwitches.
const invisibleSwitch = "fffffff:ff:ff.0"

// pciAttrs are the attributes of a pci element. NCCL wants a class everywhere;
// class is taken where the origin told none.
func (e *encoder) pciAttrs(d *topo.PCIDevice, busID topo.BDF, class topo.HexID) []attr {
	if d.Class != "" {
		class = d.Class
	}
	attrs := []attr{{"busid", busID.String()}}
	for _, a := range []struct {
		name  string
		value topo.HexID
	}{{"class", class}, {"vendor", d.Vendor}, {"device", d.Device}, {"subsystem_vendor", d.SubVendor}, {"subsystem_device", d.SubDevice}} {
		if a.value != "" {
			attrs = append(attrs, attr{a.name, string(a.value)})
		}
	}
	speed, width := e.link(d)
	return append(attrs, attr{"link_speed", speed}, attr{"link_width", strconv.Itoa(width)})
}

// link gives what NCCL takes for a function's link: the lower maximum of both
// ends; "" and 0 where it is not known.
func (e *encoder) link(d *topo.PCIDevice) (speed string, width int) {
	var mts int
	parent := e.host.PCIDevice(d.Parent)
	ends := []*topo.PCIDevice{d}
	if parent != nil && (parent.Role == topo.RoleRootPort || parent.Role == topo.RoleDownstream) && !parent.Implausible {
		ends = append(ends, parent)
	}
	for _, end := range ends {
		if end.Link == nil {
			continue
		}
		if v := end.Link.MaxSpeedMTs; v != nil && *v > 0 && (mts == 0 || *v < mts) {
			mts = *v
		}
		if v := end.Link.MaxWidth; v != nil && *v > 0 && (width == 0 || *v < width) {
			width = *v
		}
	}
	if mts > 0 {
		speed = fmt.Sprintf("%.1f GT/s PCIe", float64(mts)/1000)
	}
	return speed, width
}

// card writes a GPU, a NIC or both of one slot.
func (e *encoder) card(depth int, c *card) {
	gpus := e.host.On(c.first.ID).GPUs
	class := topo.HexID("")
	switch {
	case len(gpus) > 0:
		class = "0x030200"
	case len(c.rdma)+len(c.netd) > 0:
		class = "0x020000"
	}
	attrs := e.pciAttrs(c.first, c.busID, class)
	named := c.netd != nil
	for _, r := range c.rdma {
		named = named || r.Name != c.busID.String()
	}
	if len(gpus) == 0 && !named || e.skeleton {
		e.leaf(depth, "pci", attrs...)
		return
	}
	e.open(depth, "pci", attrs...)
	for part, g := range gpus {
		e.gpu(depth+1, g, part, len(gpus))
	}
	if named {
		e.open(depth+1, "nic")
		for _, r := range c.rdma {
			e.rdma(depth+2, c, r)
		}
		for _, n := range c.netd {
			e.net(depth+2, n.Name, 0, "0x0", n.BytesPerSec)
		}
		e.close(depth+1, "nic")
	}
	e.close(depth, "pci")
}

// rdma writes a net element for each port of a device. Of a card's functions
// NCCL adds the function number to the port number.
func (e *encoder) rdma(depth int, c *card, r *topo.RDMADevice) {
	fn := 0
	if r.BDF != nil {
		fn = int(r.BDF.Func) - int(c.busID.Func)
	}
	ports := e.host.Ports(r.ID)
	if len(ports) == 0 {
		e.net(depth, r.Name, 1+fn, ncclGUID(r.SysImageGUID), nil)
	}
	for _, p := range ports {
		e.net(depth, r.Name, p.Number+fn, ncclGUID(r.SysImageGUID), p.BytesPerSec)
	}
}

// net writes one net element; speed 0 is unknown to NCCL too.
func (e *encoder) net(depth int, name string, port int, guid string, rate *topo.Rate) {
	mbps := int64(0)
	if rate != nil {
		mbps = int64(*rate) / int64(topo.FromMbps(1))
	}
	e.leaf(depth, "net", attr{"name", name}, attr{"dev", strconv.Itoa(e.nets)}, attr{"speed", strconv.FormatInt(mbps, 10)},
		attr{"port", strconv.Itoa(port)}, attr{"latency", "0.000000"}, attr{"guid", guid}, attr{"maxconn", "131072"}, attr{"gdr", "1"})
	e.nets++
}

// gpu writes a gpu element with its links.
func (e *encoder) gpu(depth int, g *topo.GPU, part, parts int) {
	dev := g.Index
	if g.NVMLIndex != nil {
		dev = *g.NVMLIndex
	}
	attrs := []attr{{"dev", strconv.Itoa(dev)}}
	if strings.HasPrefix(g.ComputeCap, "gfx") {
		attrs = append(attrs, attr{"gcn", g.ComputeCap})
	} else if major, minor, ok := strings.Cut(g.ComputeCap, "."); ok {
		attrs = append(attrs, attr{"sm", major + minor})
	}
	if parts > 1 {
		attrs = append(attrs, attr{"mlopart", strconv.Itoa(part)})
	}
	attrs = append(attrs, attr{"rank", strconv.Itoa(e.index[g.ID])}, attr{"gdr", "1"})
	links := e.links(g)
	if len(links) == 0 {
		e.leaf(depth, "gpu", attrs...)
		return
	}
	e.open(depth, "gpu", attrs...)
	for _, l := range links {
		e.leaf(depth+1, l.name, l.attrs...)
	}
	e.close(depth, "gpu")
}

// element is an empty element, ready to be written.
type element struct {
	name  string
	attrs []attr
}

// links are the nvlink, xgmi and c2c elements of a GPU.
func (e *encoder) links(g *topo.GPU) []element {
	var out []element
	for i := range e.t.Links {
		l := &e.t.Links[i]
		switch l.Kind {
		case topo.LinkNVLink, topo.LinkXGMI:
			if target, tclass, ok := e.target(g, l); ok {
				out = append(out, element{string(l.Kind), []attr{{"target", target}, {"count", strconv.Itoa(max(l.Count, 1))}, {"tclass", tclass}}})
			}
		case topo.LinkC2C:
			if l.A == g.ID && l.BytesPerSec != nil {
				count := max(l.Count, 1)
				bw := int64(*l.BytesPerSec) / int64(topo.MBPerSec) / int64(count)
				out = append(out, element{"c2c", []attr{{"bw", strconv.FormatInt(bw, 10)}, {"count", strconv.Itoa(count)}}})
			}
		}
	}
	return out
}

// target is the other end of a GPU's link and its class.
func (e *encoder) target(g *topo.GPU, l *topo.Link) (target, tclass string, ok bool) {
	other := l.B
	switch g.ID {
	case l.A:
	case l.B:
		other = l.A
	default:
		return "", "", false
	}
	if other == topo.FabricID {
		return invisibleSwitch, "0x068000", true
	}
	i, known := e.index[other]
	if !known || e.t.GPUs[i].BDF == nil {
		return "", "", false
	}
	peer := &e.t.GPUs[i]
	tclass = "0x030200"
	if d := e.host.PCIDevice(peer.PCI); d != nil && d.Class != "" {
		tclass = string(d.Class)
	}
	return peer.BDF.String(), tclass, true
}
