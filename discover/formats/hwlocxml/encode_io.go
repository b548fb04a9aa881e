package hwlocxml

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// ioTree is what hangs from what among the devices.
type ioTree struct {
	*topo.Index
	t  *topo.Topology
	os map[topo.ID][]*object // OS devices by PCI function, "" for none
}

// io adds the host bridges, with all below, to the objects of their NUMA nodes,
// and the devices that are on no PCI function to the machine.
func (l *layout) io() {
	io := &ioTree{Index: topo.NewIndex(l.t), t: l.t, os: map[topo.ID][]*object{}}
	io.osDevices()
	for i := range l.t.HostBridges {
		hb := &l.t.HostBridges[i]
		home := l.machine
		if hb.NUMA != nil && l.ofNode[*hb.NUMA] != nil {
			home = l.ofNode[*hb.NUMA]
		}
		home.children = append(home.children, io.hostBridge(hb))
	}
	l.machine.children = append(l.machine.children, io.os[""]...)
}

func (io *ioTree) hostBridge(hb *topo.HostBridge) *object {
	last := hb.Bus
	io.lastBus(hb.ID, hb.Domain, &last, 0)
	o := &object{attrs: []attr{{"type", "Bridge"}, {"bridge_type", "0-1"}, {"depth", "0"},
		{"bridge_pci", fmt.Sprintf("%04x:[%02x-%02x]", hb.Domain, hb.Bus, last)}}}
	o.keep(infoNode, hb)
	for _, d := range io.Children(hb.ID) {
		o.children = append(o.children, io.function(d, 1))
	}
	return o
}

// maxBridges bounds the depth of a tree that a hostile document made deep.
const maxBridges = 32

// lastBus raises last to the highest bus below a bridge.
func (io *ioTree) lastBus(id topo.ID, domain uint32, last *uint8, depth int) {
	if depth > maxBridges {
		return
	}
	for _, d := range io.Children(id) {
		if d.BDF.Domain == domain {
			*last = max(*last, d.BDF.Bus)
		}
		io.lastBus(d.ID, domain, last, depth+1)
	}
}

// function writes a PCI function: a bridge where something hangs from it or
// where its class says so.
func (io *ioTree) function(d *topo.PCIDevice, depth int) *object {
	o := &object{}
	class := d.Class.Uint() >> 8
	if below := io.Children(d.ID); d.IsBridge() || len(below) > 0 {
		class = 0x0604
		first, last := d.BDF.Bus, d.BDF.Bus
		domain := d.BDF.Domain
		if len(below) > 0 {
			first, last, domain = below[0].BDF.Bus, below[0].BDF.Bus, below[0].BDF.Domain
		}
		io.lastBus(d.ID, domain, &last, 0)
		o.attrs = []attr{{"type", "Bridge"}, {"bridge_type", "1-1"}, {"depth", strconv.Itoa(depth)},
			{"bridge_pci", fmt.Sprintf("%04x:[%02x-%02x]", domain, first, last)}}
		for _, c := range below {
			if depth < maxBridges {
				o.children = append(o.children, io.function(c, depth+1))
			}
		}
	} else {
		o.attrs = []attr{{"type", "PCIDev"}}
		if len(io.On(d.ID).NVSwitches) > 0 {
			o.attrs = append(o.attrs, attr{"subtype", subtypeNVSwitch})
		}
	}
	o.attrs = append(o.attrs, attr{"pci_busid", d.BDF.String()},
		attr{"pci_type", fmt.Sprintf("%04x [%04x:%04x] [%04x:%04x] %02x", class, d.Vendor.Uint(), d.Device.Uint(), d.SubVendor.Uint(), d.SubDevice.Uint(), d.Revision.Uint())},
		attr{"pci_link_speed", linkSpeed(d.Link)})
	o.say("PCIVendor", d.VendorName)
	o.say("PCIDevice", d.DeviceName)
	o.keep(infoNode, d)
	o.children = append(o.children, io.os[d.ID]...)
	return o
}

// linkSpeed is the rate of the whole link in GB/s as hwloc writes it, 0 where it
// is not known.
func linkSpeed(l *topo.PCILink) string {
	gbs := 0.0
	switch {
	case l == nil:
	case strings.HasSuffix(l.RawSpeed, rawUnit):
		if v, err := strconv.ParseFloat(strings.TrimSuffix(l.RawSpeed, rawUnit), 64); err == nil {
			gbs = v
		}
	case l.SpeedMTs != nil && l.Width != nil:
		gbs = float64(topo.PCIeRate(*l.SpeedMTs, *l.Width)) / float64(topo.GBPerSec)
	case l.MaxSpeedMTs != nil && l.MaxWidth != nil:
		gbs = float64(topo.PCIeRate(*l.MaxSpeedMTs, *l.MaxWidth)) / float64(topo.GBPerSec)
	}
	return fmt.Sprintf("%.6f", gbs)
}

// osDevices makes the objects of GPUs, NICs and NVMe controllers.
func (io *ioTree) osDevices() {
	add := func(pci topo.ID, o *object) {
		if io.PCIDevice(pci) == nil {
			pci = ""
		}
		io.os[pci] = append(io.os[pci], o)
	}
	for i := range io.t.GPUs {
		add(io.t.GPUs[i].PCI, gpuObject(&io.t.GPUs[i]))
	}
	for i := range io.t.RDMADevices {
		add(io.t.RDMADevices[i].PCI, io.rdmaObject(&io.t.RDMADevices[i]))
	}
	for i := range io.t.Netdevs {
		n := &io.t.Netdevs[i]
		o := osObject(n.Name, 2)
		o.say("Address", n.MAC)
		o.keep(infoNode, n)
		add(n.PCI, o)
	}
	for i := range io.t.NVMes {
		n := &io.t.NVMes[i]
		name := n.Name
		if len(n.Namespaces) > 0 {
			name = n.Namespaces[0]
		}
		o := osObject(name, 0)
		o.attrs = append(o.attrs, attr{"subtype", "Disk"})
		o.say("Model", n.Model)
		o.say("SerialNumber", n.Serial)
		o.keep(infoNode, n)
		add(n.PCI, o)
	}
}

// osObject is an OS device; kind is the number of hwloc 2: 0 block, 1 GPU,
// 2 network, 3 OpenFabrics.
func osObject(name string, kind int) *object {
	return &object{attrs: []attr{{"type", "OSDev"}, {"name", name}, {"osdev_type", strconv.Itoa(kind)}}}
}

func gpuObject(g *topo.GPU) *object {
	name, backend, key := "gpu"+strconv.Itoa(g.Index), "", ""
	index := g.Index
	if g.NVMLIndex != nil {
		index = *g.NVMLIndex
	}
	switch g.Vendor {
	case "nvidia":
		name, backend, key = "nvml"+strconv.Itoa(index), "NVML", "NVIDIA"
	case "amd":
		name, backend, key = "rsmi"+strconv.Itoa(index), "RSMI", "AMD"
	}
	o := osObject(name, 1)
	if backend != "" {
		o.attrs = append(o.attrs, attr{"subtype", backend})
		o.say("Backend", backend)
		o.say(key+"Serial", g.Serial)
		o.say(key+"UUID", g.UUID)
	}
	o.say("GPUVendor", g.Vendor)
	o.say("GPUModel", g.Model)
	o.keep(infoNode, g)
	return o
}

func (io *ioTree) rdmaObject(r *topo.RDMADevice) *object {
	o := osObject(r.Name, 3)
	o.say("NodeGUID", r.NodeGUID)
	o.say("SysImageGUID", r.SysImageGUID)
	for i := range io.t.Ports {
		p := &io.t.Ports[i]
		if p.RDMA != r.ID {
			continue
		}
		prefix := fmt.Sprintf("Port%d", p.Number)
		for number, name := range portStates {
			if name == p.State {
				o.say(prefix+"State", number)
			}
		}
		if p.LID != nil {
			o.say(prefix+"LID", fmt.Sprintf("0x%x", *p.LID))
		}
		for _, g := range p.GIDs {
			o.say(fmt.Sprintf("%sGID%d", prefix, g.Index), g.GID)
		}
		o.keep(infoPort, p)
	}
	o.keep(infoNode, r)
	return o
}
