package texts

import (
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/formats/internal/imported"
	"github.com/topoctl/topoctl/discover/internal/gpulink"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// The text of lspci -vv: with or without -nn, -D and -k, run by root or by a user without permission
// to read capabilities.
//
// It holds PCI functions and the bridges between them, so places and links are known. What
// the kernel or a driver makes of a function is not: RDMA devices and interfaces have the PCI address
// as their name.
// Source: pciutils 3.14: lspci.c, ls-caps.c, ls-ecaps.c, ls-vpd.c, ls-kernel.c and lib/names.c.

const sourceLspci topo.Source = "import:lspci"

// lspciLacks is what no text of lspci tells.
var lspciLacks = []string{
	"names of RDMA devices and interfaces: they are called by their PCI address",
	"which interfaces have an RDMA device, other than those of mlx5_core, mlx4_core and InfiniBand",
	"network ports: their states, rates, link layers and addresses",
	"links between GPUs other than PCIe, GPU UUIDs and memory",
	"CPUs and memory of NUMA nodes",
}

func detectLspci(head []byte) bool {
	return !isDocument(head) && slices.ContainsFunc(lines(head), headLine.MatchString)
}

func decodeLspci(data []byte) (*topo.Topology, error) {
	functions, err := parseLspci(data)
	if err != nil {
		return nil, err
	}
	names, err := openNames()
	if err != nil {
		return nil, pkgerr.Errorf("texts", "%w", err)
	}
	b := &lspciHost{Host: imported.New(sourceLspci, lspciLacks...), at: map[topo.BDF]int{}, bridges: map[topo.ID]int{}, lost: map[topo.ID]bool{}}
	for i := range functions {
		b.function(&functions[i], names)
	}
	b.findParents()
	b.virtualFunctions()
	b.nodes()
	b.configuration()
	b.devices()
	return finish(b.Host, fmt.Sprintf("%d PCI functions", len(b.functions)))
}

// lspciHost makes a host of functions.
type lspciHost struct {
	imported.Host
	functions []*function // beside PCIDevices
	at        map[topo.BDF]int
	bridges   map[topo.ID]int
	lost      map[topo.ID]bool // host bridges that stand for a bridge which the text does not have
}

// warn adds a warning about a function.
func (b *lspciHost) warn(code topo.Code, f *function, format string, args ...any) {
	b.Warn(code, topo.PCIID(f.bdf), fmt.Sprintf(format, args...), where(f.line))
}

// portRoles are the roles of bridges by the kind of their PCI Express capability.
var portRoles = map[string]topo.PCIRole{
	"Root Port": topo.RoleRootPort, "Upstream Port": topo.RoleUpstream, "Downstream Port": topo.RoleDownstream,
}

// function adds the PCI function itself.
func (b *lspciHost) function(f *function, names *pciNames) {
	d := topo.PCIDevice{Node: topo.Node{ID: topo.PCIID(f.bdf), Evidence: where(f.line)}, BDF: f.bdf,
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
	set := func(known bool, name, where string) { b.Fact(&d.Facts, known, name, where) }
	set(true, "bdf", "")
	set(d.Class != "", "class", "")
	set(d.Vendor != "", "vendor", "")
	set(d.Device != "", "device", "")
	set(d.SubVendor != "", "subsystem_vendor", "Subsystem")
	set(d.SubDevice != "", "subsystem_device", "Subsystem")
	set(d.Revision != "", "revision", "rev")
	set(d.Driver != "", "driver", "Kernel driver in use")
	set(d.NUMA != nil, "numa_node", "NUMA node")
	set(d.IOMMUGroup != nil, "iommu_group", "IOMMU group")
	set(d.Link != nil, "link", "LnkCap LnkSta")
	if d.IsBridge() && f.capabilities {
		if d.Role = portRoles[f.port]; d.Role == "" {
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
		b.warn(topo.CodeLossyImport, f, "vendor of %.40q is not known, so whether it is a GPU is not either: lspci -nnvv prints numbers", f.name)
	}
	b.at[f.bdf] = len(b.functions)
	b.functions = append(b.functions, f)
	b.PCIDevices = append(b.PCIDevices, d)
}

// findParents puts each function below the bridge whose secondary bus it is on. The virtual
// functions of a card may be on a later bus, which belongs to the same bridge. Functions of
// other buses are on a root bus.
func (b *lspciHost) findParents() {
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
			b.warn(topo.CodeConflict, f, "leads to bus %02x, as %s does: that one is kept", f.secondary, b.functions[other].bdf)
			continue
		}
		leads[key] = i
	}
	for i, f := range b.functions {
		d := &b.PCIDevices[i]
		d.Facts.Set("parent", sourceLspci, "Bus")
		for number := int(f.bdf.Bus); number > 0 && d.Parent == ""; number-- {
			up, ok := leads[bus{f.bdf.Domain, number}]
			if ok && (number == int(f.bdf.Bus) || b.functions[up].subordinate >= int(f.bdf.Bus)) {
				d.Parent = b.PCIDevices[up].ID
			}
		}
		if d.Parent == "" {
			d.Parent = b.hostBridge(i)
		}
	}
}

// hostBridge gives the root bus of a function. Below a port there is one device, number 0: if such a
// one is on no bridge's bus, the text lacks the bridge, and places are not known.
func (b *lspciHost) hostBridge(i int) topo.ID {
	f, d := b.functions[i], &b.PCIDevices[i]
	id := topo.HostBridgeID(fmt.Sprintf("%04x:%02x", f.bdf.Domain, f.bdf.Bus))
	at, known := b.bridges[id]
	if !known {
		at = len(b.HostBridges)
		b.bridges[id] = at
		hb := topo.HostBridge{Node: topo.Node{ID: id, Evidence: where(f.line)}, Domain: f.bdf.Domain, Bus: f.bdf.Bus, NUMA: f.numa}
		hb.Facts.Set("bus", topo.SourceDerived, "no bridge of the text leads to this bus")
		b.HostBridges = append(b.HostBridges, hb)
	}
	hb := &b.HostBridges[at]
	if lost := f.bdf.Bus != 0 && f.bdf.Device == 0 && needsPort(d, f); lost && !b.lost[id] {
		b.lost[id], hb.Synthetic = true, true
		b.warn(topo.CodeMissing, f, "no bridge of the text leads to bus %02x: where it hangs is not known; lspci without -s and -d prints all bridges", f.bdf.Bus)
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
func (b *lspciHost) virtualFunctions() {
	for i, f := range b.functions {
		v := f.vfs
		if v.total == 0 {
			continue
		}
		d := &b.PCIDevices[i]
		d.SRIOV = &topo.SRIOV{TotalVFs: &v.total, NumVFs: &v.active}
		d.Facts.Set("sriov", sourceLspci, "Total VFs, Number of VFs")
		if v.offset == 0 {
			continue
		}
		for n := range min(v.active, v.total) {
			place := int(f.bdf.Bus)<<8 + int(f.bdf.Device)<<3 + int(f.bdf.Func) + v.offset + n*v.stride
			if place > 0xffff {
				break
			}
			at, ok := b.at[topo.BDF{Domain: f.bdf.Domain, Bus: uint8(place >> 8), Device: uint8(place >> 3 & 31), Func: uint8(place & 7)}]
			if !ok || at == i || b.PCIDevices[at].PF != "" {
				continue
			}
			vf := &b.PCIDevices[at]
			vf.PF = d.ID
			vf.Facts.Set("pf", sourceLspci, "VF offset, stride")
			d.SRIOV.VFs = append(d.SRIOV.VFs, vf.ID)
		}
	}
}

// nodes adds the NUMA nodes that functions are on. What hangs from a place that is not known has no
// node either: near and far would follow from it. If a single node is named and some root bus has
// none, there may be others, so nothing is said.
func (b *lspciHost) nodes() {
	index := topo.NewIndex(b.Topology)
	for i := range b.PCIDevices {
		d := &b.PCIDevices[i]
		for up := range index.Climb(d.ID) {
			if b.lost[up.Parent] {
				d.NUMA = nil
			}
		}
	}
	where := map[int]string{}
	for i := range b.PCIDevices {
		if d := &b.PCIDevices[i]; d.NUMA != nil && where[*d.NUMA] == "" {
			where[*d.NUMA] = d.Evidence
		}
	}
	unknown := slices.ContainsFunc(b.HostBridges, func(hb topo.HostBridge) bool { return hb.NUMA == nil })
	if len(where) == 1 && unknown {
		return
	}
	for n, evidence := range where {
		node := topo.NUMANode{Node: topo.Node{ID: topo.NUMAID(n), Evidence: evidence}, Index: n}
		node.Facts.Set("index", sourceLspci, "NUMA node")
		b.NUMANodes = append(b.NUMANodes, node)
	}
}

// configuration says how much of configuration space the text shows.
func (b *lspciHost) configuration() {
	h := &b.Topology.Host
	shows := func(is func(*function) bool) bool { return slices.ContainsFunc(b.functions, is) }
	size := 64
	switch {
	case shows(func(f *function) bool { return f.denied }):
		h.Lacks = append(h.Lacks, "PCIe links, port types and ACS: lspci may read them as root only")
	case shows(func(f *function) bool { return f.extended }):
		size = 4096
	case shows(func(f *function) bool { return f.capabilities }):
		size = 256
	}
	h.ConfigBytes = &size
	h.Facts.Set("config_space_bytes", topo.SourceConfig, "lspci Capabilities")
	b.Warn(topo.CodeLossyImport, "", "lspci lists PCI functions: names, states and rates of network ports are not known, nor are links between GPUs other than PCIe", "")
}

// devices adds what stands on functions, by their class: GPUs, NVSwitches and NICs.
func (b *lspciHost) devices() {
	order := make([]int, len(b.functions))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(x, y int) int { return b.functions[x].bdf.Compare(b.functions[y].bdf) })
	drivers := slices.ContainsFunc(b.functions, func(f *function) bool { return f.driver != "" })
	for _, i := range order {
		d := &b.PCIDevices[i]
		switch network := d.Class.Uint()>>16 == 0x02 || d.Class.Uint()>>8 == 0x0c06; {
		case d.Accelerator():
			b.gpu(d, b.functions[i])
		case d.Class.Uint()>>8 == 0x0680 && d.Vendor == gpulink.VendorNVIDIA:
			b.AddNVSwitch(d, "")
		case network && (drivers && d.Driver == "" || d.Driver == "vfio-pci"):
			// It has no interface: no driver of the host's is bound to it.
		case network:
			b.nic(d)
		}
	}
}

func (b *lspciHost) gpu(d *topo.PCIDevice, f *function) {
	g := b.GPU(d)
	g.ID, g.Index, g.Model, g.Driver, g.Serial = topo.GPUID(len(b.GPUs)), len(b.GPUs), d.DeviceName, d.Driver, f.serial
	g.Facts.Set("vendor", sourceLspci, "")
	b.Fact(&g.Facts, g.Model != "", "model", "")
	b.Fact(&g.Facts, g.Driver != "", "driver", "Kernel driver in use")
	b.Fact(&g.Facts, g.Serial != "", "serial", "[SN]")
	b.GPUs = append(b.GPUs, g)
}

// rdmaDrivers make an RDMA device of each of their functions, whatever its class.
// Source: drivers/infiniband/hw of the kernel.
var rdmaDrivers = []string{"mlx4_core", "mlx5_core", "efa", "hfi1", "ib_qib"}

// nic adds the RDMA device or the interface of a network function, under its address.
func (b *lspciHost) nic(d *topo.PCIDevice) {
	name := d.BDF.String()
	const named = "PCI address: the text names no interface"
	if rdma := d.Class.Uint()>>8 == 0x0207 || d.Class.Uint()>>8 == 0x0c06 || slices.Contains(rdmaDrivers, d.Driver); !rdma {
		n := topo.Netdev{Node: topo.Node{ID: topo.NetdevID(name), Evidence: d.Evidence}, Name: name, Driver: d.Driver}
		n.PCI, n.BDF, n.NUMA = imported.On(d)
		n.Facts.Set("name", topo.SourceDerived, named)
		n.Facts.Set("pci", sourceLspci, "")
		b.Netdevs = append(b.Netdevs, n)
		return
	}
	r := topo.RDMADevice{Node: topo.Node{ID: topo.RDMAID(name), Evidence: d.Evidence}, Name: name, Driver: d.Driver, Uverbs: "unknown"}
	r.PCI, r.BDF, r.NUMA = imported.On(d)
	if d.Driver == "efa" {
		r.Transport = "efa"
		r.Facts.Set("transport", topo.SourceDerived, "driver")
	}
	r.Facts.Set("name", topo.SourceDerived, named)
	r.Facts.Set("pci", sourceLspci, "")
	b.RDMADevices = append(b.RDMADevices, r)
}
