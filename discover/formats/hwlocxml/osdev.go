package hwlocxml

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/formats/internal/imported"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/document"
)

// osKind is what an OS device is, in the bits of version 3.
type osKind int

const (
	osStorage osKind = 1 << iota
	osMemory
	osGPU
	osCoproc
	osNetwork
	osOpenFabrics
	osDMA
)

// osKindOf reads osdev_type: a bit set since version 3, a number before.
func (d *decoder) osKindOf(e *document.Element) osKind {
	n, err := strconv.Atoi(e.Get("osdev_type"))
	if err != nil || n < 0 {
		return 0
	}
	if d.version >= 3 {
		return osKind(n)
	}
	old := []osKind{osStorage, osGPU, osNetwork, osOpenFabrics, osDMA, osCoproc, osMemory}
	if n >= len(old) {
		return 0
	}
	return old[n]
}

// osDevice adds an OS device that is no GPU; functionNodes took the GPUs of
// PCI functions.
func (d *decoder) osDevice(e *document.Element, at place) {
	var pci *topo.PCIDevice
	if at.pci >= 0 {
		pci = &d.PCIDevices[at.pci]
	}
	k := d.osKindOf(e)
	switch {
	case k&osOpenFabrics != 0:
		d.rdma(e, pci)
	case k&osNetwork != 0:
		d.netdev(e, pci)
	case k&osStorage != 0:
		d.nvme(e, pci)
	case k&(osGPU|osCoproc) != 0 && pci == nil:
		d.strays++
	}
}

// fresh says whether a name is not taken yet.
func (d *decoder) fresh(id topo.ID, e *document.Element) bool {
	if id.Name() == "" || len(id) > 300 || d.names[id] {
		d.Warn(topo.CodeConflict, "", fmt.Sprintf("a device called %.40q, which is no name or a second one: left out", e.Get("name")), e.Path())
		return false
	}
	d.names[id] = true
	return true
}

func (d *decoder) rdma(e *document.Element, pci *topo.PCIDevice) {
	name := e.Get("name")
	if !d.fresh(topo.RDMAID(name), e) {
		return
	}
	r := topo.RDMADevice{Node: topo.Node{ID: topo.RDMAID(name), Evidence: e.Path()}, Name: name, Uverbs: "unknown", Software: pci == nil}
	r.PCI, r.BDF, r.NUMA = imported.On(pci)
	r.Facts.Set("name", topo.SourceHwloc, "")
	if pci != nil {
		r.Facts.Set("pci", topo.SourceHwloc, "")
		if pci.Vendor == "0x1d0f" && strings.HasPrefix(string(pci.Device), "0xefa") {
			r.Transport = "efa"
			r.Facts.Set("transport", topo.SourceDerived, "pci_type")
		}
	} else {
		r.Transport = "software"
		d.Warn(topo.CodeNoPCIParent, topo.RDMAID(name), "on no PCI function: taken for a software device", e.Path())
	}
	d.Text(&r.Facts, "node_guid", &r.NodeGUID, info(e, "NodeGUID"), "info NodeGUID")
	d.Text(&r.Facts, "sys_image_guid", &r.SysImageGUID, info(e, "SysImageGUID"), "info SysImageGUID")
	d.RDMADevices = append(d.RDMADevices, r)
	d.ports(e, &r)
}

var portInfo = regexp.MustCompile(`^Port([1-9][0-9]{0,2})(State|LID|LMC|GID[0-9]{1,3})$`)

// portStates are the states of a port by the number that hwloc copies from
// sysfs. Source: InfiniBand Architecture, PortInfo.
var portStates = map[string]string{"1": "DOWN", "2": "INIT", "3": "ARMED", "4": "ACTIVE"}

// ports adds the ports that a device's infos tell of.
func (d *decoder) ports(e *document.Element, r *topo.RDMADevice) {
	byNumber := map[int]*topo.Port{}
	var numbers []int
	for _, c := range e.All("info") {
		m := portInfo.FindStringSubmatch(c.Get("name"))
		if m == nil {
			continue
		}
		n, err := strconv.Atoi(m[1])
		if err != nil || n > 255 {
			continue
		}
		p := byNumber[n]
		if p == nil {
			p = &topo.Port{RDMA: r.ID, Number: n}
			byNumber[n] = p
			numbers = append(numbers, n)
		}
		d.portFact(p, m[2], strings.TrimSpace(c.Get("value")))
	}
	slices.Sort(numbers)
	for _, n := range numbers {
		p := byNumber[n]
		p.ID, p.Evidence = topo.PortID(r.Name, n), e.Path()
		d.Ports = append(d.Ports, *p)
	}
}

func (d *decoder) portFact(p *topo.Port, what, value string) {
	switch {
	case what == "State":
		p.State = portStates[value]
		p.Facts.Set("state", topo.SourceHwloc, fmt.Sprintf("info Port%dState", p.Number))
	case what == "LID":
		lid, err := strconv.ParseUint(strings.TrimPrefix(value, "0x"), 16, 16)
		if err != nil {
			return
		}
		n := int(lid)
		p.LID = &n
		p.Facts.Set("lid", topo.SourceHwloc, fmt.Sprintf("info Port%dLID", p.Number))
		if n > 0 {
			p.LinkLayer = "InfiniBand"
			p.Facts.Set("link_layer", topo.SourceDerived, "a LID above 0")
		}
	case strings.HasPrefix(what, "GID"):
		index, err := strconv.Atoi(what[len("GID"):])
		if err != nil || len(value) > 64 || value == "" {
			return
		}
		p.GIDs = append(p.GIDs, topo.GID{Index: index, GID: value})
		p.Facts.Set("gids", topo.SourceHwloc, fmt.Sprintf("info Port%dGIDn", p.Number))
	}
}

func (d *decoder) netdev(e *document.Element, pci *topo.PCIDevice) {
	name := e.Get("name")
	if !d.fresh(topo.NetdevID(name), e) {
		return
	}
	n := topo.Netdev{Node: topo.Node{ID: topo.NetdevID(name), Evidence: e.Path()}, Name: name, MAC: info(e, "Address"), Virtual: pci == nil}
	n.PCI, n.BDF, n.NUMA = imported.On(pci)
	n.Facts.Set("name", topo.SourceHwloc, "")
	if n.MAC != "" {
		n.Facts.Set("mac", topo.SourceHwloc, "info Address")
		switch strings.Count(n.MAC, ":") {
		case 5:
			n.Type = "ether"
		case 19:
			n.Type = "infiniband"
		}
		n.Facts.Set("type", topo.SourceDerived, "length of the address")
	}
	d.Netdevs = append(d.Netdevs, n)
}

var nvmeName = regexp.MustCompile(`^(nvme[0-9]{1,5})(c[0-9]{1,5})?(n[0-9]{1,5})?$`)

// nvme adds the controller of a namespace, or the namespace to its controller.
func (d *decoder) nvme(e *document.Element, pci *topo.PCIDevice) {
	m := nvmeName.FindStringSubmatch(e.Get("name"))
	if m == nil || pci == nil {
		return
	}
	id := topo.NVMeID(m[1])
	for i := range d.NVMes {
		if n := &d.NVMes[i]; n.ID == id {
			if m[3] != "" && !slices.Contains(n.Namespaces, m[1]+m[3]) {
				n.Namespaces = append(n.Namespaces, m[1]+m[3])
			}
			return
		}
	}
	n := topo.NVMe{Node: topo.Node{ID: id, Evidence: e.Path()}, Name: m[1], Model: info(e, "Model"), Serial: info(e, "SerialNumber")}
	if strings.HasPrefix(n.Model, "LVM PV ") {
		n.Model = "" // udev's word for the volume on it. Source: LVM2 udev/69-dm-lvm.rules.in
	}
	n.PCI, n.BDF, n.NUMA = imported.On(pci)
	if m[3] != "" {
		n.Namespaces = []string{m[1] + m[3]}
	}
	n.Facts.Set("name", topo.SourceHwloc, "")
	d.NVMes = append(d.NVMes, n)
}

// numberGPUs gives the GPUs their indices in PCI order.
func (d *decoder) numberGPUs() {
	slices.SortStableFunc(d.gpus, func(a, b gpuItem) int { return a.gpu.BDF.Compare(*b.gpu.BDF) })
	for i := range d.gpus {
		g := &d.gpus[i].gpu
		g.ID, g.Index = topo.GPUID(i), i
		for _, gp := range d.gpus[i].objects {
			d.objects[gp] = g.ID
		}
		d.GPUs = append(d.GPUs, *g)
	}
	d.gpuMemory()
}

// gpuMemory ties NUMA nodes that are GPU memory to their GPUs.
func (d *decoder) gpuMemory() {
	for i := range d.NUMANodes {
		n := &d.NUMANodes[i]
		bdf, err := topo.ParseBDF(d.memoryOf[n.Index])
		if err != nil {
			continue
		}
		for j := range d.GPUs {
			if g := &d.GPUs[j]; g.BDF != nil && *g.BDF == bdf {
				index := n.Index
				n.Owner, g.MemoryNUMA = g.ID, &index
				g.Facts.Set("memory_numa_node", topo.SourceHwloc, n.Evidence)
			}
		}
	}
}
