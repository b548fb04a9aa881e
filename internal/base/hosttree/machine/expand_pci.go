package machine

import (
	"fmt"
	"strconv"
	"strings"
)

func (e *expansion) pciTree() {
	all := e.s.allCPUs()
	local := localCPUs{e: e, all: all, bits: maskBits(all), text: map[int][2]string{}}
	drivers := map[string]bool{}
	for _, r := range e.s.roots {
		e.raw(r.path+"/uevent", nil)
		e.dir(r.path + "/power")
		e.pciBus(r.path, fmt.Sprintf("%04x:%02x", r.domain, r.bus), local.list(r.numa))
	}
	for _, f := range e.s.pci {
		e.pciFunction(f, &local)
		if f.driver != "" {
			dir := "sys/bus/pci/drivers/" + f.driver
			if !drivers[f.driver] && f.driver != "pcieport" { // which is no module
				drivers[f.driver] = true
				e.link(dir+"/module", "sys/module/"+strings.ReplaceAll(f.driver, "-", "_"))
			}
			e.link(dir+"/"+f.bdf.String(), f.path)
		}
	}
}

// localCPUs caches the CPU lists of NUMA nodes.
type localCPUs struct {
	e    *expansion
	all  []int
	bits int
	text map[int][2]string
}

func (l *localCPUs) get(node int) [2]string {
	t, ok := l.text[node]
	if !ok {
		cpus := l.all
		if n := l.e.s.node(node); n != nil {
			cpus = n.cpus
		}
		t = [2]string{list(cpus), mask(cpus, l.bits)}
		l.text[node] = t
	}
	return t
}

func (l *localCPUs) list(node int) string { return l.get(node)[0] }

// pciBus adds a bus below its bridge or root.
func (e *expansion) pciBus(above, bus, cpus string) {
	dir := above + "/pci_bus/" + bus
	e.file(dir+"/cpulistaffinity", cpus)
	e.raw(dir+"/uevent", nil)
	e.link(dir+"/device", above)
	e.link(dir+"/subsystem", "sys/class/pci_bus")
	e.link("sys/class/pci_bus/"+bus, dir)
}

// pciFunction adds one function's directory.
// Source: Documentation/ABI/testing/sysfs-bus-pci, drivers/pci/pci-sysfs.c.
func (e *expansion) pciFunction(f *function, local *localCPUs) {
	d := f.path + "/"
	modalias := fmt.Sprintf("pci:v%08Xd%08Xsv%08Xsd%08Xbc%02Xsc%02Xi%02X",
		f.vendor, f.device, f.subVendor, f.subDevice, f.class>>16, f.class>>8&0xff, f.class&0xff)
	e.file(d+"class", fmt.Sprintf("0x%06x", f.class))
	e.file(d+"vendor", fmt.Sprintf("0x%04x", f.vendor))
	e.file(d+"device", fmt.Sprintf("0x%04x", f.device))
	e.file(d+"subsystem_vendor", fmt.Sprintf("0x%04x", f.subVendor))
	e.file(d+"subsystem_device", fmt.Sprintf("0x%04x", f.subDevice))
	e.file(d+"revision", fmt.Sprintf("0x%02x", f.rev))
	e.file(d+"modalias", modalias)
	driver := ""
	if f.driver != "" {
		driver = "DRIVER=" + f.driver + "\n"
		e.link(d+"driver", "sys/bus/pci/drivers/"+f.driver)
	}
	e.file(d+"uevent", fmt.Sprintf("%sPCI_CLASS=%X\nPCI_ID=%04X:%04X\nPCI_SUBSYS_ID=%04X:%04X\nPCI_SLOT_NAME=%s\nMODALIAS=%s",
		driver, f.class, f.vendor, f.device, f.subVendor, f.subDevice, f.bdf, modalias))
	e.number(d+"numa_node", f.numa)
	cpus := local.get(f.numa)
	e.file(d+"local_cpulist", cpus[0])
	e.file(d+"local_cpus", cpus[1])
	e.number(d+"irq", f.irq())
	e.file(d+"enable", map[bool]string{true: "1", false: "0"}[f.driver != ""])
	e.file(d+"power_state", "D0")
	e.file(d+"dma_mask_bits", "64")
	e.raw(d+"config", f.config(e.s.host.fullConfig))
	e.link(d+"subsystem", "sys/bus/pci")
	e.link("sys/bus/pci/devices/"+f.bdf.String(), f.path)
	e.linkState(f)
	e.sriov(f)
	if e.s.host.iommu != "off" {
		e.iommu(f)
	}
	if f.isBridge() && len(f.kids) > 0 {
		e.number(d+"secondary_bus_number", int(f.secondary))
		e.number(d+"subordinate_bus_number", int(f.last))
		e.pciBus(f.path, fmt.Sprintf("%04x:%02x", f.bdf.Domain, f.secondary), cpus[0])
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
	e.file(f.path+"/current_link_speed", speeds[cur.gen])
	e.number(f.path+"/current_link_width", cur.width)
	e.file(f.path+"/max_link_speed", speeds[f.link.gen])
	e.number(f.path+"/max_link_width", f.link.width)
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
	e.number(f.path+"/sriov_totalvfs", total)
	e.number(f.path+"/sriov_numvfs", len(f.vfs))
	e.number(f.path+"/sriov_drivers_autoprobe", 1)
	for i, vf := range f.vfs {
		e.link(f.path+"/virtfn"+strconv.Itoa(i), vf.path)
	}
}

func (e *expansion) iommu(f *function) {
	group := "sys/kernel/iommu_groups/" + strconv.Itoa(f.group)
	if f.leads {
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
		name := f.nvme
		d := f.path + "/nvme/" + name
		e.file(d+"/model", fmt.Sprintf("%-40s", f.part.model))
		e.file(d+"/serial", fmt.Sprintf("S%013X", e.s.made("nvme "+f.bdf.String(), 6)))
		e.file(d+"/firmware_rev", "1.0.0")
		e.file(d+"/transport", "pcie")
		e.file(d+"/address", f.bdf.String())
		e.file(d+"/state", "live")
		e.number(d+"/numa_node", f.numa)
		e.raw(d+"/uevent", nil)
		e.file(d+"/"+name+"n1/size", strconv.FormatInt(f.part.bytes/512, 10))
		e.link(d+"/"+name+"n1/subsystem", "sys/class/block")
		e.link("sys/class/block/"+name+"n1", d+"/"+name+"n1")
		e.link(d+"/device", f.path)
		e.link(d+"/subsystem", "sys/class/nvme")
		e.link("sys/class/nvme/"+name, d)
	}
}
