package machine

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// localCPUs are the CPUs near a function, in the kernel's two forms.
type localCPUs struct{ list, mask string }

func (e *expansion) pciTree() {
	all := e.s.cpus()
	byNode := map[int]localCPUs{}
	local := func(numa int) localCPUs {
		if _, ok := byNode[numa]; !ok {
			near := all
			if n := e.s.node(numa); n != nil {
				near = n.cpus
			}
			byNode[numa] = localCPUs{near.String(), near.KernelMask(all.Last() + 1)}
		}
		return byNode[numa]
	}
	for _, r := range e.s.roots {
		e.raw(r.path+"/uevent", nil)
		e.add(r.path+"/power", entry{dir: true})
		e.pciBus(r.path, fmt.Sprintf("%04x:%02x", r.domain, r.bus), local(r.numa))
	}
	modules := map[string]bool{"": true, "pcieport": true} // which is no module
	for _, f := range e.s.pci {
		e.pciFunction(f, local(f.numa))
		driver := "sys/bus/pci/drivers/" + f.driver
		if !modules[f.driver] {
			modules[f.driver] = true
			e.link(driver+"/module", "sys/module/"+strings.ReplaceAll(f.driver, "-", "_"))
		}
		if f.driver != "" {
			e.link(f.path+"/driver", driver)
			e.link(driver+"/"+f.bdf.String(), f.path)
		}
	}
}

// pciBus adds a bus below its bridge or root.
func (e *expansion) pciBus(above, bus string, local localCPUs) {
	dir := above + "/pci_bus/" + bus
	e.file(dir+"/cpulistaffinity", local.list)
	e.raw(dir+"/uevent", nil)
	e.link(dir+"/device", above)
	e.inClass("sys/class/pci_bus", bus, dir)
}

// pciFunction adds one function's directory.
// Source: Documentation/ABI/testing/sysfs-bus-pci, drivers/pci/pci-sysfs.c.
func (e *expansion) pciFunction(f *function, local localCPUs) {
	hex := func(digits int, n any) string { return fmt.Sprintf("0x%0*x", digits, n) }
	modalias := fmt.Sprintf("pci:v%08Xd%08Xsv%08Xsd%08Xbc%02Xsc%02Xi%02X",
		f.id.vendor, f.id.device, f.sub.vendor, f.sub.device, f.class>>16, f.class>>8&0xff, f.class&0xff)
	driver, enabled := "", 0
	if f.driver != "" {
		driver, enabled = "DRIVER="+f.driver+"\n", 1
	}
	e.files(f.path, "class", hex(6, f.class), "revision", hex(2, f.rev), "vendor", hex(4, f.id.vendor), "device", hex(4, f.id.device),
		"subsystem_vendor", hex(4, f.sub.vendor), "subsystem_device", hex(4, f.sub.device), "modalias", modalias,
		"uevent", fmt.Sprintf("%sPCI_CLASS=%X\nPCI_ID=%04X:%04X\nPCI_SUBSYS_ID=%04X:%04X\nPCI_SLOT_NAME=%s\nMODALIAS=%s",
			driver, f.class, f.id.vendor, f.id.device, f.sub.vendor, f.sub.device, f.bdf, modalias),
		"numa_node", f.numa, "local_cpulist", local.list, "local_cpus", local.mask,
		"irq", f.irq(), "enable", enabled, "power_state", "D0", "dma_mask_bits", 64)
	e.raw(f.path+"/config", f.config(e.s.host.config == "full"))
	e.inClass("sys/bus/pci", f.bdf.String(), f.path)
	e.linkState(f)
	e.sriov(f)
	if e.s.host.iommu != "off" {
		e.iommu(f)
	}
	if len(f.kids) > 0 {
		e.files(f.path, "secondary_bus_number", f.secondary, "subordinate_bus_number", f.last)
		e.pciBus(f.path, fmt.Sprintf("%04x:%02x", f.bdf.Domain, f.secondary), local)
	}
}

func (f *function) irq() int {
	if f.driver == "" {
		return 0
	}
	return 24 + f.order
}

// speeds are the kernel's texts of PCIe generations.
// Source: drivers/pci/probe.c, pci_speed_string.
var speeds = [...]string{"Unknown", "2.5 GT/s PCIe", "5.0 GT/s PCIe", "8.0 GT/s PCIe", "16.0 GT/s PCIe", "32.0 GT/s PCIe", "64.0 GT/s PCIe", "128.0 GT/s PCIe"}

// linkState adds the four link files of a PCIe function. A virtual function
// knows what its device could do, but has no link of its own.
func (e *expansion) linkState(f *function) {
	if f.link == (lane{}) {
		return
	}
	cur := f.cur
	if f.pf != nil && f.at == (lane{}) {
		cur = lane{}
	}
	e.files(f.path, "current_link_speed", speeds[cur.gen], "current_link_width", cur.width,
		"max_link_speed", speeds[f.link.gen], "max_link_width", f.link.width)
}

func (e *expansion) sriov(f *function) {
	if f.pf != nil {
		e.link(f.path+"/physfn", f.pf.path)
	}
	if f.nic == nil || f.pf != nil {
		return
	}
	total := f.part.sriov
	if f.nic.sriov != nil {
		total = *f.nic.sriov
	}
	if total = max(total, len(f.vfs)); total == 0 {
		return
	}
	e.files(f.path, "sriov_totalvfs", total, "sriov_numvfs", len(f.vfs), "sriov_drivers_autoprobe", 1)
	for i, vf := range f.vfs {
		e.link(f.path+"/virtfn"+strconv.Itoa(i), vf.path)
	}
}

func (e *expansion) iommu(f *function) {
	group := "sys/kernel/iommu_groups/" + strconv.Itoa(f.group)
	if f.firstInGroup {
		e.file(group+"/type", e.s.host.iommu)
	}
	e.link(group+"/devices/"+f.bdf.String(), f.path)
	e.link(f.path+"/iommu_group", group)
}

// nvmes adds the controllers.
func (e *expansion) nvmes() {
	for _, f := range e.s.pci {
		if f.kind != "nvme" || f.driver != "nvme" {
			continue
		}
		d, namespace := f.path+"/nvme/"+f.nvme, f.nvme+"n1"
		e.files(d, "model", fmt.Sprintf("%-40s", f.part.model), "serial", fmt.Sprintf("S%013X", e.s.made("nvme "+f.bdf.String(), 6)),
			"firmware_rev", "1.0.0", "transport", "pcie", "address", f.bdf, "state", "live", "numa_node", f.numa, namespace+"/size", f.part.bytes/512)
		e.raw(d+"/uevent", nil)
		e.link(d+"/device", f.path)
		e.inClass("sys/class/block", namespace, d+"/"+namespace)
		e.inClass("sys/class/nvme", f.nvme, d)
	}
}

// Offsets in configuration space that expansion uses.
// Source: PCI Express Base Specification, chapters 7.5 and 7.7.
const (
	capPCIe   = 0x40 // PCI Express capability
	capSSVID  = 0x80 // subsystem IDs of a bridge
	extAER    = 0x100
	extACS    = 0x148
	configAll = 4096
	configTop = 64 // what a reader without privilege sees
)

// config is the function's configuration space: its header, or all of it where
// the spec says so (host config full) or gives the function's ACS register.
func (f *function) config(full bool) []byte {
	b := make([]byte, configAll)
	f.header(b)
	if !full && f.acs == nil {
		return b[:configTop:configTop]
	}
	f.capabilities(b)
	return b
}

func put16(b []byte, at int, v uint16) { binary.LittleEndian.PutUint16(b[at:], v) }

func put32(b []byte, at int, v uint32) { binary.LittleEndian.PutUint32(b[at:], v) }

func (f *function) header(b []byte) {
	put16(b, 0x00, f.id.vendor)
	put16(b, 0x02, f.id.device)
	if f.pf != nil { // a virtual function answers with ones here
		put32(b, 0x00, 0xffffffff)
	}
	if f.driver != "" {
		put16(b, 0x04, 0x0406) // bus master, memory, no INTx
	}
	put32(b, 0x08, uint32(f.rev)|f.class<<8)
	b[0x0c] = 0x10
	if f.link != (lane{}) {
		put16(b, 0x06, 0x0010) // has capabilities
		b[0x34] = capPCIe
	}
	if f.multi && f.pf == nil {
		b[0x0e] = 0x80
	}
	if !f.isBridge() {
		put16(b, 0x2c, f.sub.vendor)
		put16(b, 0x2e, f.sub.device)
		return
	}
	b[0x0e] |= 0x01
	b[0x18], b[0x19], b[0x1a] = f.bdf.Bus, f.secondary, f.last
}

// portType is the device or port type of the PCI Express capability.
func (f *function) portType() uint16 {
	if f.parent == nil && f.cur == (lane{}) && !f.isBridge() {
		return 9 // integrated in the root complex
	}
	return map[string]uint16{"port": 4, "switch": 5, "down": 6, "bridge": 7}[f.kind]
}

func (f *function) capabilities(b []byte) {
	if f.link == (lane{}) {
		return
	}
	b[capPCIe] = 0x10
	flags := 2 | f.portType()<<4
	if f.kind == "port" || f.kind == "down" {
		flags |= 1 << 8 // has a slot
	}
	put16(b, capPCIe+0x02, flags)
	put32(b, capPCIe+0x0c, uint32(f.link.gen)|uint32(f.link.width)<<4)
	put16(b, capPCIe+0x12, uint16(f.cur.gen)|uint16(f.cur.width)<<4)
	put32(b, capPCIe+0x2c, 1<<(f.link.gen+1)-2) // every speed up to the highest
	if f.isBridge() {
		b[capPCIe+1] = capSSVID
		b[capSSVID] = 0x0d
		put16(b, capSSVID+4, f.sub.vendor)
		put16(b, capSSVID+6, f.sub.device)
	}
	next := uint32(0)
	if f.acs != nil {
		next = extACS
		put32(b, extACS, 0x0001_000d)
		put16(b, extACS+4, 0x001f)
		put16(b, extACS+6, *f.acs)
	}
	put32(b, extAER, 0x0002_0001|next<<20)
}
