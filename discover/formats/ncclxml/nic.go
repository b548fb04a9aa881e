package ncclxml

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"

	"github.com/topoctl/topoctl/discover/formats/internal/imported"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/text"
)

// maxMbps bounds port rates: the fastest port in 2026 carries 1.6 Tb/s. RCCL
// writes 200 Tb/s for Slingshot.
const maxMbps = 6_400_000

// nic adds the net elements of one card. NCCL merges the functions of a card
// into function 0 and adds the function number to each port number, so where a
// card has several names, each is an own device with its port 1.
//
// NICs that are on no PCI function it attaches to its first CPU, so their NUMA node is not known.
func (d *decoder) nic(e *document.Element, c *cpu, at *function) {
	named := slices.DeleteFunc(e.All("net"), func(net *document.Element) bool {
		if net.Get("name") == "" {
			d.Warn(topo.CodeMalformed, "", "a net element without a name", net.Path())
			return true
		}
		return false
	})
	devices := group.By(named, func(net *document.Element) string { return net.Get("name") })
	for _, nets := range devices {
		var id topo.ID
		var numa *int
		if at != nil {
			numa = c.numa
		}
		if isSocket(nets[0]) {
			id = d.netdev(nets[0], at, numa)
		} else {
			id = d.rdma(nets, at, numa, len(devices) > 1)
		}
		if at == nil {
			d.Warn(topo.CodeNoPCIParent, id, "on no PCI function: it has no class to any device", nets[0].Path())
		}
	}
}

// isSocket says whether a net element is of NCCL's socket transport, which
// counts ports from 0; RDMA ports start at 1.
func isSocket(net *document.Element) bool { return net.Get("port") == "0" }

// rdma adds an RDMA device with one port for each of its net elements.
func (d *decoder) rdma(nets []*document.Element, at *function, numa *int, merged bool) topo.ID {
	name := d.free(topo.RDMAID, nets[0].Get("name"), at, nets[0])
	r := topo.RDMADevice{Node: topo.Node{ID: topo.RDMAID(name), Evidence: nets[0].Path()}, Name: name, NUMA: numa, Uverbs: "unknown"}
	r.Facts.Set("name", topo.SourceNCCL, "")
	if at != nil {
		r.PCI, r.BDF = at.id, &at.bdf
		r.Facts.Set("pci", topo.SourceNCCL, "")
	}
	if numa != nil {
		r.Facts.Set("numa_node", topo.SourceNCCL, "numaid of the cpu")
	}
	if guid, ok := sysImageGUID(nets[0].Get("guid")); ok {
		r.SysImageGUID = guid
		r.Facts.Set("sys_image_guid", topo.SourceNCCL, "guid, bytes in network order")
	}
	d.RDMADevices = append(d.RDMADevices, r)
	used := map[int]bool{}
	for _, net := range nets {
		number, adapterPort := 1, (*int)(nil)
		if n, err := strconv.Atoi(net.Get("port")); err == nil && n >= 1 && n <= 255 {
			adapterPort = &n
			if !merged || len(nets) > 1 {
				number = n
			}
		}
		if used[number] {
			d.Warn(topo.CodeConflict, r.ID, fmt.Sprintf("two net elements of %.40q port %d: the first is kept", name, number), net.Path())
			continue
		}
		used[number] = true
		p := topo.Port{Node: topo.Node{ID: topo.PortID(name, number), Evidence: net.Path()}, RDMA: r.ID, Number: number, AdapterPort: adapterPort}
		p.Facts.Set("number", topo.SourceNCCL, "port")
		if p.BytesPerSec = d.rate(net, p.ID); p.BytesPerSec != nil {
			p.Facts.Set("bytes_per_sec", topo.SourceNCCL, "speed")
		}
		d.Ports = append(d.Ports, p)
	}
	return r.ID
}

// free gives a NIC name that no other node has.
func (d *decoder) free(id func(string) topo.ID, name string, at *function, e *document.Element) string {
	name = text.Clip(name, maxName)
	if d.names[id(name)] {
		other := name
		if at != nil {
			name += "-" + at.bdf.String()
		}
		for n := 2; d.names[id(name)]; n++ {
			name = fmt.Sprintf("%s-%d", other, n)
		}
		d.Warn(topo.CodeConflict, id(name), fmt.Sprintf("a second NIC is called %q", other), e.Path())
	}
	d.names[id(name)] = true
	return name
}

// netdev adds a network interface.
func (d *decoder) netdev(net *document.Element, at *function, numa *int) topo.ID {
	name := d.free(topo.NetdevID, net.Get("name"), at, net)
	n := topo.Netdev{Node: topo.Node{ID: topo.NetdevID(name), Evidence: net.Path()}, Name: name, NUMA: numa, Virtual: at == nil}
	if at != nil {
		n.PCI, n.BDF = at.id, &at.bdf
	}
	n.Facts.Set("name", topo.SourceNCCL, "")
	if n.BytesPerSec = d.rate(net, n.ID); n.BytesPerSec != nil {
		n.Facts.Set("bytes_per_sec", topo.SourceNCCL, "speed")
	}
	d.Netdevs = append(d.Netdevs, n)
	return n.ID
}

// unnamedNIC stands for a NIC of which only the PCI function is known: files
// for virtual machines name none, NCCL finds them on the host.
func (d *decoder) unnamedNIC(e *document.Element, p *topo.PCIDevice) {
	d.noName++
	name := d.free(topo.RDMAID, p.BDF.String(), nil, e)
	r := topo.RDMADevice{Node: topo.Node{ID: topo.RDMAID(name), Evidence: e.Path()}, Name: name, Uverbs: "unknown"}
	r.PCI, r.BDF, r.NUMA = imported.On(p)
	r.Facts.Set("name", topo.SourceDerived, "PCI address: the file names no NIC")
	r.Facts.Set("pci", topo.SourceNCCL, "class")
	d.RDMADevices = append(d.RDMADevices, r)
}

// rate is a net element's speed (Mb/s); nil where it is not told or absurd.
func (d *decoder) rate(net *document.Element, id topo.ID) *topo.Rate {
	text := net.Get("speed")
	if text == "" {
		return nil
	}
	mbps, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		d.Warn(topo.CodeMalformed, id, fmt.Sprintf("speed %.40q is no number of Mb/s", text), net.Path())
		return nil
	case mbps <= 0:
		return nil
	case mbps > maxMbps:
		d.Warn(topo.CodeImplausible, id, fmt.Sprintf("speed %d Mb/s is beyond any port: not believed", mbps), net.Path())
		return nil
	}
	r := topo.FromMbps(mbps)
	return &r
}

// sysImageGUID reads the guid of a net element. NCCL prints the big-endian
// number as the little-endian CPU sees it; small numbers are a plugin's own.
func sysImageGUID(text string) (string, bool) {
	if len(text) < 3 || text[:2] != "0x" {
		return "", false
	}
	v, err := strconv.ParseUint(text[2:], 16, 64)
	if err != nil || v>>32 == 0 {
		return "", false
	}
	v = bits.ReverseBytes64(v)
	return fmt.Sprintf("%04x:%04x:%04x:%04x", v>>48, v>>32&0xffff, v>>16&0xffff, v&0xffff), true
}

// ncclGUID is the inverse of sysImageGUID, "0x0" for a text that is no GUID.
func ncclGUID(guid string) string {
	var a, b, c, d uint64
	if n, err := fmt.Sscanf(guid, "%04x:%04x:%04x:%04x", &a, &b, &c, &d); n != 4 || err != nil {
		return "0x0"
	}
	return fmt.Sprintf("0x%x", bits.ReverseBytes64(a<<48|b<<32|c<<16|d))
}
