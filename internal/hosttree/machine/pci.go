package machine

import (
	"encoding/binary"
	"fmt"
	"strconv"
)

// addPCI adds the tree of PCI functions with their drivers and IOMMU groups, and
// the NVMe controllers.
func (e *expansion) addPCI() {
	for _, r := range e.Roots {
		e.put(r.path, "uevent", raw(""), "power", entry{dir: true})
		e.addBus(r.path, r.Bus, r.NUMA)
	}
	inSlot := map[string]int{}
	for _, f := range e.pci {
		inSlot[f.bdf.Slot()]++
	}
	groups := map[string]string{}                       // by slot, of a virtual function by itself
	seen := map[string]bool{"": true, "pcieport": true} // drivers; pcieport is no module
	for _, f := range e.pci {
		e.addFunction(f, inSlot[f.bdf.Slot()] > 1)
		if e.Host.IOMMU != "off" {
			key := f.bdf.Slot()
			if f.pf != nil {
				key = f.bdf.String()
			}
			if groups[key] == "" {
				groups[key] = "sys/kernel/iommu_groups/" + strconv.Itoa(len(groups))
				e.put(groups[key], "type", e.Host.IOMMU)
			}
			e.put(groups[key]+"/devices", f.bdf.String(), linkTo(f.path))
			e.put(f.path, "iommu_group", linkTo(groups[key]))
		}
		driver := "sys/bus/pci/drivers/" + f.Driver
		if !seen[f.Driver] {
			seen[f.Driver] = true
			e.put(driver, "module", linkTo("sys/module/"+moduleOf(f.Driver)))
		}
		if f.Driver != "" {
			e.put(f.path, "driver", linkTo(driver))
			e.put(driver, f.bdf.String(), linkTo(f.path))
		}
		if f.Driver == "nvme" && f.nvme != nil {
			e.addNVMe(f)
		}
	}
}

// near are the CPUs near a NUMA node, in the kernel's two forms; all where there is no such node.
func (e *expansion) near(numa int) (list, mask string) {
	all := e.cpus()
	near := all
	if n := e.node(numa); n != nil {
		near = n.CPUs
	}
	return near.String(), near.KernelMask(all.Last() + 1)
}

// addBus adds a bus below its bridge or root.
func (e *expansion) addBus(above string, b bus, numa int) {
	list, _ := e.near(numa)
	e.device("sys/class/pci_bus", above+"/pci_bus/"+b.String(), "cpulistaffinity", list, "uevent", raw(""), "device", linkTo(above))
}

// addFunction adds one function's directory.
// Source: Documentation/ABI/testing/sysfs-bus-pci, drivers/pci/pci-sysfs.c.
func (e *expansion) addFunction(f *function, sharesSlot bool) {
	hex := func(digits int, n any) string { return fmt.Sprintf("0x%0*x", digits, n) }
	modalias := fmt.Sprintf("pci:v%08Xd%08Xsv%08Xsd%08Xbc%02Xsc%02Xi%02X",
		f.ID.vendor, f.ID.device, f.Sub.vendor, f.Sub.device, f.Class>>16, f.Class>>8&0xff, f.Class&0xff)
	driver, enabled := "", 0
	if f.Driver != "" {
		driver, enabled = "DRIVER="+f.Driver+"\n", 1
	}
	list, mask := e.near(f.NUMA)
	e.device("sys/bus/pci", f.path, "class", hex(6, f.Class), "revision", hex(2, f.Rev), "vendor", hex(4, f.ID.vendor), "device", hex(4, f.ID.device),
		"subsystem_vendor", hex(4, f.Sub.vendor), "subsystem_device", hex(4, f.Sub.device), "modalias", modalias,
		"uevent", fmt.Sprintf("%sPCI_CLASS=%X\nPCI_ID=%04X:%04X\nPCI_SUBSYS_ID=%04X:%04X\nPCI_SLOT_NAME=%s\nMODALIAS=%s",
			driver, f.Class, f.ID.vendor, f.ID.device, f.Sub.vendor, f.Sub.device, f.bdf, modalias),
		"numa_node", f.NUMA, "local_cpulist", list, "local_cpus", mask,
		"irq", f.irq, "enable", enabled, "power_state", "D0", "dma_mask_bits", 64,
		"config", entry{data: f.config(e.Host.Config == "full", sharesSlot)})
	if f.Link != (lane{}) {
		cur := f.cur
		if f.pf != nil && f.At == (lane{}) { // it knows what its device could do, but has no link of its own
			cur = lane{}
		}
		e.put(f.path, "current_link_speed", speeds[cur.gen], "current_link_width", cur.width,
			"max_link_speed", speeds[f.Link.gen], "max_link_width", f.Link.width)
	}
	if f.pf != nil {
		e.put(f.path, "physfn", linkTo(f.pf.path))
	} else if f.nic != nil && max(f.nic.SRIOV, len(f.vfs)) > 0 {
		e.put(f.path, "sriov_totalvfs", max(f.nic.SRIOV, len(f.vfs)), "sriov_numvfs", len(f.vfs), "sriov_drivers_autoprobe", 1)
		for i, vf := range f.vfs {
			e.put(f.path, "virtfn"+strconv.Itoa(i), linkTo(vf.path))
		}
	}
	if len(f.Kids) > 0 {
		e.put(f.path, "secondary_bus_number", f.secondary, "subordinate_bus_number", f.last)
		e.addBus(f.path, bus{f.bdf.Domain, f.secondary}, f.NUMA)
	}
	if f.carrier != f.path { // a virtio device: interfaces hang from it, and it has no numa_node
		id := int(f.ID.device) - 0x1040
		e.device("sys/bus/virtio", f.carrier, "device", hex(4, id), "vendor", hex(4, f.ID.vendor), "modalias", fmt.Sprintf("virtio:d%08Xv%08X", id, f.ID.vendor))
	}
}

// speeds are the kernel's texts of PCIe generations.
// Source: drivers/pci/probe.c, pci_speed_string.
var speeds = [...]string{"Unknown", "2.5 GT/s PCIe", "5.0 GT/s PCIe", "8.0 GT/s PCIe", "16.0 GT/s PCIe", "32.0 GT/s PCIe", "64.0 GT/s PCIe", "128.0 GT/s PCIe"}

func (e *expansion) addNVMe(f *function) {
	dir := f.path + "/nvme/" + f.nvme.Name
	namespace := dir + "/" + f.nvme.Name + "n1"
	e.device("sys/class/nvme", dir, "model", fmt.Sprintf("%-40s", f.part.Model), "serial", fmt.Sprintf("S%013X", e.made("nvme "+f.bdf.String(), 6)),
		"firmware_rev", "1.0.0", "transport", "pcie", "address", f.bdf, "state", "live", "numa_node", f.NUMA, "uevent", raw(""), "device", linkTo(f.path))
	e.device("sys/class/block", namespace, "size", f.part.Bytes/512)
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
func (f *function) config(full, sharesSlot bool) []byte {
	b := make([]byte, configAll)
	f.header(b, sharesSlot)
	if !full && f.ACS == nil {
		return b[:configTop:configTop]
	}
	if f.Link != (lane{}) {
		f.capabilities(b)
	}
	return b
}

func put16(b []byte, at int, v uint16) { binary.LittleEndian.PutUint16(b[at:], v) }

func put32(b []byte, at int, v uint32) { binary.LittleEndian.PutUint32(b[at:], v) }

func (p idPair) put(b []byte, at int) {
	put16(b, at, p.vendor)
	put16(b, at+2, p.device)
}

func (f *function) header(b []byte, sharesSlot bool) {
	f.ID.put(b, 0x00)
	if f.pf != nil { // a virtual function answers with ones here
		put32(b, 0x00, 0xffffffff)
	}
	if f.Driver != "" {
		put16(b, 0x04, 0x0406) // bus master, memory, no INTx
	}
	put32(b, 0x08, uint32(f.Rev)|f.Class<<8)
	b[0x0c] = 0x10
	if f.Link != (lane{}) {
		put16(b, 0x06, 0x0010) // has capabilities
		b[0x34] = capPCIe
	}
	if sharesSlot && f.pf == nil {
		b[0x0e] = 0x80
	}
	if !f.isBridge() {
		f.Sub.put(b, 0x2c)
		return
	}
	b[0x0e] |= 0x01
	b[0x18], b[0x19], b[0x1a] = f.bdf.Bus, f.secondary, f.last
}

func (f *function) capabilities(b []byte) {
	portType := map[string]uint16{"port": 4, "switch": 5, "down": 6, "bridge": 7}[f.kind]
	if f.parent == nil && f.cur == (lane{}) && !f.isBridge() {
		portType = 9 // integrated in the root complex
	}
	b[capPCIe] = 0x10
	flags := 2 | portType<<4
	if f.kind == "port" || f.kind == "down" {
		flags |= 1 << 8 // has a slot
	}
	put16(b, capPCIe+0x02, flags)
	put32(b, capPCIe+0x0c, uint32(f.Link.gen)|uint32(f.Link.width)<<4)
	put16(b, capPCIe+0x12, uint16(f.cur.gen)|uint16(f.cur.width)<<4)
	put32(b, capPCIe+0x2c, 1<<(f.Link.gen+1)-2) // every speed up to the highest
	if f.isBridge() {
		b[capPCIe+1] = capSSVID
		b[capSSVID] = 0x0d
		f.Sub.put(b, capSSVID+4)
	}
	next := uint32(0)
	if f.ACS != nil {
		next = extACS
		put32(b, extACS, 0x0001_000d)
		put16(b, extACS+4, 0x001f)
		put16(b, extACS+6, *f.ACS)
	}
	put32(b, extAER, 0x0002_0001|next<<20)
}
