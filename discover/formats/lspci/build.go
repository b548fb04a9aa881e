package lspci

import (
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
)

// builder makes a topology of functions.
type builder struct {
	t         *topo.Topology
	functions []*function // beside t.PCIDevices
	at        map[topo.BDF]int
	bridges   map[topo.ID]int
	lost      map[topo.ID]bool // host bridges that stand for a bridge which the text does not have
}

func newBuilder() *builder {
	return &builder{t: &topo.Topology{Origin: string(Source)}, at: map[topo.BDF]int{}, bridges: map[topo.ID]int{}, lost: map[topo.ID]bool{}}
}

// roles are the roles of bridges by the kind of their PCI Express capability.
var roles = map[string]topo.PCIRole{
	"Root Port": topo.RoleRootPort, "Upstream Port": topo.RoleUpstream, "Downstream Port": topo.RoleDownstream,
}

// function adds the PCI function itself.
func (b *builder) function(f *function, names *names) {
	d := topo.PCIDevice{Node: topo.Node{ID: topo.PCIID(f.bdf), Evidence: f.evidence()}, BDF: f.bdf,
		Class: f.hexClass(), Driver: f.driver, NUMA: f.numa, IOMMUGroup: f.group, Link: f.link}
	var id ids
	id, d.VendorName, d.DeviceName = names.identify(f.name)
	d.Vendor, d.Device = id.vendor, id.device
	if f.subsystem != "" {
		sub, _, _ := names.identify(f.subsystem)
		d.SubVendor, d.SubDevice = sub.vendor, sub.device
	}
	if f.revision != "" {
		d.Revision = topo.HexID("0x" + f.revision)
	}
	for _, fact := range []struct {
		name  string
		known bool
		where string
	}{
		{"bdf", true, ""}, {"class", d.Class != "", ""}, {"vendor", d.Vendor != "", ""}, {"device", d.Device != "", ""},
		{"subsystem_vendor", d.SubVendor != "", "Subsystem"}, {"subsystem_device", d.SubDevice != "", "Subsystem"},
		{"revision", d.Revision != "", "rev"}, {"driver", d.Driver != "", "Kernel driver in use"}, {"numa_node", d.NUMA != nil, "NUMA node"},
		{"iommu_group", d.IOMMUGroup != nil, "IOMMU group"}, {"link", d.Link != nil, "LnkCap LnkSta"},
	} {
		if fact.known {
			d.Facts.Set(fact.name, Source, fact.where)
		}
	}
	if d.IsBridge() && f.capabilities {
		if d.Role = roles[f.port]; d.Role == "" {
			d.Role = topo.RoleBridge
		}
		d.ACS = f.acs
		// lspci decodes configuration space: what it printed of it was read there.
		if !f.acsListed || f.acs != nil {
			d.Facts.Set("role", topo.SourceConfig, "lspci Express")
		}
		if d.ACS != nil {
			d.Facts.Set("acs", topo.SourceConfig, "lspci ACSCtl")
		}
	}
	if d.Class.Uint()>>16 == 0x02 && (f.extended || f.ats != "") {
		if d.ATS = f.ats; d.ATS == "" {
			d.ATS = "absent"
		}
		d.Facts.Set("ats", topo.SourceConfig, "lspci ATSCtl")
	}
	if base := d.Class.Uint() >> 16; d.Vendor == "" && (base == 0x03 || base == 0x12) {
		b.warn(topo.CodeLossyImport, f, fmt.Sprintf("vendor of %.40q is not known, so whether it is a GPU is not either: lspci -nnvv prints numbers", f.name))
	}
	b.at[f.bdf] = len(b.functions)
	b.functions = append(b.functions, f)
	b.t.PCIDevices = append(b.t.PCIDevices, d)
}

// findParents puts each function below the bridge whose secondary bus it is on. The virtual
// functions of a card may be on a later bus, which belongs to the same bridge. Functions of
// other buses are on a root bus.
func (b *builder) findParents() {
	type bus struct {
		domain uint32
		number int
	}
	leads := map[bus]int{} // the bridge whose secondary bus it is
	for i, f := range b.functions {
		if f.secondary <= int(f.bdf.Bus) { // bus numbers grow away from the root; 0 is a bridge that is not set up
			continue
		}
		key := bus{f.bdf.Domain, f.secondary}
		if other, twice := leads[key]; twice {
			b.warn(topo.CodeConflict, f, fmt.Sprintf("leads to bus %02x, as %s does: that one is kept", f.secondary, b.functions[other].bdf))
			continue
		}
		leads[key] = i
	}
	for i, f := range b.functions {
		d := &b.t.PCIDevices[i]
		d.Facts.Set("parent", Source, "Bus")
		for number := int(f.bdf.Bus); number > 0 && d.Parent == ""; number-- {
			up, ok := leads[bus{f.bdf.Domain, number}]
			if ok && (number == int(f.bdf.Bus) || b.functions[up].subordinate >= int(f.bdf.Bus)) {
				d.Parent = b.t.PCIDevices[up].ID
			}
		}
		if d.Parent == "" {
			d.Parent = b.hostBridge(i)
		}
	}
}

// hostBridge gives the root bus of a function. Below a port there is one device, number 0: if such a
// one is on no bridge's bus, the text lacks the bridge, and places are not known.
func (b *builder) hostBridge(i int) topo.ID {
	f, d := b.functions[i], &b.t.PCIDevices[i]
	id := topo.HostBridgeID(fmt.Sprintf("%04x:%02x", f.bdf.Domain, f.bdf.Bus))
	at, known := b.bridges[id]
	if !known {
		at = len(b.t.HostBridges)
		b.bridges[id] = at
		hb := topo.HostBridge{Node: topo.Node{ID: id, Evidence: f.evidence()}, Domain: f.bdf.Domain, Bus: f.bdf.Bus, NUMA: f.numa}
		hb.Facts.Set("bus", topo.SourceDerived, "no bridge of the text leads to this bus")
		b.t.HostBridges = append(b.t.HostBridges, hb)
	}
	hb := &b.t.HostBridges[at]
	if lost := f.bdf.Bus != 0 && f.bdf.Device == 0 && needsPort(d, f); lost && !b.lost[id] {
		b.lost[id], hb.Synthetic = true, true
		b.warn(topo.CodeMissing, f, fmt.Sprintf("no bridge of the text leads to bus %02x: where it hangs is not known; lspci without -s and -d prints all bridges", f.bdf.Bus))
	}
	if b.lost[id] || hb.NUMA != nil && f.numa != nil && *hb.NUMA != *f.numa {
		hb.NUMA = nil
	}
	return id
}

// needsPort says whether a function can only be below a port.
func needsPort(d *topo.PCIDevice, f *function) bool {
	switch f.port {
	case "Endpoint", "Legacy Endpoint", "Upstream Port":
		return true
	case "":
		return d.Accelerator() || d.Class.Uint()>>16 == 0x02 || d.Class.Uint()>>8 == 0x0108
	}
	return false
}

// virtualFunctions ties virtual functions to their physical one, by the places that its SR-IOV
// capability gives them. Source: PCI Express Base Specification, First VF Offset and VF Stride.
func (b *builder) virtualFunctions() {
	for i, f := range b.functions {
		v := f.vfs
		if v.total == 0 {
			continue
		}
		d := &b.t.PCIDevices[i]
		d.SRIOV = &topo.SRIOV{TotalVFs: &v.total, NumVFs: &v.active}
		d.Facts.Set("sriov", Source, "Total VFs, Number of VFs")
		if v.offset == 0 {
			continue
		}
		for n := range min(v.active, v.total) {
			place := int(f.bdf.Bus)<<8 + int(f.bdf.Device)<<3 + int(f.bdf.Func) + v.offset + n*v.stride
			if place > 0xffff {
				break
			}
			at, ok := b.at[topo.BDF{Domain: f.bdf.Domain, Bus: uint8(place >> 8), Device: uint8(place >> 3 & 31), Func: uint8(place & 7)}]
			if !ok || at == i || b.t.PCIDevices[at].PF != "" {
				continue
			}
			vf := &b.t.PCIDevices[at]
			vf.PF = d.ID
			vf.Facts.Set("pf", Source, "VF offset, stride")
			d.SRIOV.VFs = append(d.SRIOV.VFs, vf.ID)
		}
	}
}

// nodes adds the NUMA nodes that functions are on. What hangs from a place that is not known has no
// node either: near and far would follow from it. If a single node is named and some root bus has
// none, there may be others, so nothing is said.
func (b *builder) nodes() {
	index := topo.NewIndex(b.t)
	for i := range b.t.PCIDevices {
		d := &b.t.PCIDevices[i]
		for up := range index.Climb(d.ID) {
			if b.lost[up.Parent] {
				d.NUMA = nil
			}
		}
	}
	where := map[int]string{}
	for i := range b.t.PCIDevices {
		if d := &b.t.PCIDevices[i]; d.NUMA != nil && where[*d.NUMA] == "" {
			where[*d.NUMA] = d.Evidence
		}
	}
	unknown := slices.ContainsFunc(b.t.HostBridges, func(hb topo.HostBridge) bool { return hb.NUMA == nil })
	if len(where) == 1 && unknown {
		return
	}
	for n, evidence := range where {
		node := topo.NUMANode{Node: topo.Node{ID: topo.NUMAID(n), Evidence: evidence}, Index: n}
		node.Facts.Set("index", Source, "NUMA node")
		b.t.NUMANodes = append(b.t.NUMANodes, node)
	}
}

// host says what the text tells of the host, and how much of configuration space it shows.
func (b *builder) host() {
	h := &b.t.Host
	h.Lacks = slices.Clone(lacks)
	denied, capabilities, extended := false, false, false
	for _, f := range b.functions {
		denied, capabilities, extended = denied || f.denied, capabilities || f.capabilities, extended || f.extended
	}
	size := 64
	switch {
	case denied:
		h.Lacks = append(h.Lacks, "PCIe links, port types and ACS: lspci may read them as root only")
	case extended:
		size = 4096
	case capabilities:
		size = 256
	}
	h.ConfigBytes = &size
	h.Facts.Set("config_space_bytes", topo.SourceConfig, "lspci Capabilities")
	b.warn(topo.CodeLossyImport, nil, "lspci lists PCI functions: names, states and rates of network ports are not known, nor are links between GPUs other than PCIe")
	b.t.Complete = !slices.ContainsFunc(b.t.Warnings, topo.Warning.Partial)
	status := topo.StatusOK
	if !b.t.Complete {
		status = topo.StatusPartial
	}
	b.t.Sources = []topo.SourceReport{{Source: Source, Status: status, Detail: fmt.Sprintf("%d PCI functions", len(b.functions))}}
}

// devices adds what stands on functions, by their class: GPUs, NVSwitches and NICs.
func (b *builder) devices() {
	order := make([]int, len(b.functions))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(x, y int) int { return b.functions[x].bdf.Compare(b.functions[y].bdf) })
	drivers := slices.ContainsFunc(b.functions, func(f *function) bool { return f.driver != "" })
	for _, i := range order {
		d := &b.t.PCIDevices[i]
		switch network := d.Class.Uint()>>16 == 0x02 || d.Class.Uint()>>8 == 0x0c06; {
		case d.Accelerator():
			b.gpu(d, b.functions[i])
		case d.Class.Uint()>>8 == 0x0680 && d.Vendor == "0x10de":
			bdf := d.BDF
			s := topo.NVSwitch{Node: topo.Node{ID: topo.NVSwitchID(bdf), Evidence: d.Evidence}, PCI: d.ID, BDF: &bdf, NUMA: d.NUMA}
			s.Facts.Set("pci", Source, "")
			b.t.NVSwitches = append(b.t.NVSwitches, s)
		case network && (drivers && d.Driver == "" || d.Driver == "vfio-pci"):
			// It has no interface: no driver of the host's is bound to it.
		case network:
			b.nic(d)
		}
	}
}

func (b *builder) gpu(d *topo.PCIDevice, f *function) {
	bdf := d.BDF
	g := topo.GPU{Node: topo.Node{ID: topo.GPUID(len(b.t.GPUs)), Evidence: d.Evidence}, Index: len(b.t.GPUs), PCI: d.ID, BDF: &bdf,
		Vendor: string(d.Vendor), Model: d.DeviceName, NUMA: d.NUMA, Serial: f.serial, Driver: d.Driver, KnownFrom: "import"}
	if name, ok := map[topo.HexID]string{"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel"}[d.Vendor]; ok {
		g.Vendor = name
	}
	g.Facts.Set("pci", Source, "")
	g.Facts.Set("vendor", Source, "")
	for name, fact := range map[string]struct {
		known bool
		where string
	}{
		"model": {g.Model != "", ""}, "numa_node": {g.NUMA != nil, "NUMA node"},
		"driver": {g.Driver != "", "Kernel driver in use"}, "serial": {g.Serial != "", "[SN]"},
	} {
		if fact.known {
			g.Facts.Set(name, Source, fact.where)
		}
	}
	b.t.GPUs = append(b.t.GPUs, g)
}

// rdmaDrivers make an RDMA device of each of their functions, whatever its class.
// Source: drivers/infiniband/hw of the kernel.
var rdmaDrivers = []string{"mlx4_core", "mlx5_core", "efa", "hfi1", "ib_qib"}

// nic adds the RDMA device or the interface of a network function, under its address.
func (b *builder) nic(d *topo.PCIDevice) {
	bdf, name := d.BDF, d.BDF.String()
	const named = "PCI address: the text names no interface"
	rdma := d.Class.Uint()>>8 == 0x0207 || d.Class.Uint()>>8 == 0x0c06 || slices.Contains(rdmaDrivers, d.Driver)
	if !rdma {
		n := topo.Netdev{Node: topo.Node{ID: topo.NetdevID(name), Evidence: d.Evidence}, Name: name, PCI: d.ID, BDF: &bdf, NUMA: d.NUMA, Driver: d.Driver}
		n.Facts.Set("name", topo.SourceDerived, named)
		n.Facts.Set("pci", Source, "")
		b.t.Netdevs = append(b.t.Netdevs, n)
		return
	}
	r := topo.RDMADevice{Node: topo.Node{ID: topo.RDMAID(name), Evidence: d.Evidence}, Name: name, PCI: d.ID, BDF: &bdf, NUMA: d.NUMA,
		Driver: d.Driver, Uverbs: "unknown"}
	if d.Driver == "efa" {
		r.Transport = "efa"
		r.Facts.Set("transport", topo.SourceDerived, "driver")
	}
	r.Facts.Set("name", topo.SourceDerived, named)
	r.Facts.Set("pci", Source, "")
	b.t.RDMADevices = append(b.t.RDMADevices, r)
}
