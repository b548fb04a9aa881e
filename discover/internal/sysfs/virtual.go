package sysfs

import (
	"bytes"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// readVirtual tells whether the machine is virtual and by which hypervisor:
// "none" on x86 without the CPU's hypervisor flag, and on ARM with DMI tables
// that name no hypervisor, as those of guests do; "" where nothing tells.
// DMI tables that say QEMU do not tell KVM from an emulated processor: "kvm"
// is told where KVM's clock is, which guests on x86 have unless it is hidden
// from them, else "qemu".
func (r *reader) readVirtual(info cpuInfo) {
	h := &r.t.Host
	set := func(kind string, source topo.Source, where string) {
		h.Virtual = kind
		h.Facts.Set("virtual", source, where)
	}
	if info.flags && !info.hypervisor {
		set("none", topo.SourceProc, "/proc/cpuinfo")
		return
	}
	byDMI := hypervisorByDMI(h.Vendor, h.Product)
	if byDMI != "" && byDMI != "qemu" {
		set(byDMI, topo.SourceSysfs, "/sys/class/dmi/id")
		return
	}
	hints := []struct{ dir, file string }{
		{"sys/hypervisor", "type"},
		{"sys/devices/system/clocksource/clocksource0", "available_clocksource"},
	}
	for _, hint := range hints {
		f := files{r: r, dir: hint.dir, show: hint.dir}
		s, _ := f.text(hint.file, quiet)
		// QEMU can offer Hyper-V's clock too, to guests that want that one.
		if kind := hypervisorByWord(s); kind != "" && (byDMI == "" || kind == "kvm") {
			set(kind, topo.SourceSysfs, "/"+hint.dir+"/"+hint.file)
			return
		}
	}
	switch {
	case byDMI != "":
		set(byDMI, topo.SourceSysfs, "/sys/class/dmi/id")
	case info.hypervisor:
		set("unknown", topo.SourceProc, "/proc/cpuinfo")
	case strings.Contains(strings.ToLower(h.Product), "virtual"):
		set("unknown", topo.SourceSysfs, "/sys/class/dmi/id")
	case info.arm && h.Vendor != "" && h.Product != "":
		set("none", topo.SourceSysfs, "/sys/class/dmi/id")
	}
}

// hypervisorByDMI knows what hypervisors write into the DMI tables. A machine
// of Amazon's that is bare metal says so in its product name.
func hypervisorByDMI(vendor, product string) string {
	both := vendor + " " + product
	switch {
	case vendor == "Amazon EC2" && strings.Contains(product, ".metal"):
		return "none"
	case vendor == "Amazon EC2":
		return "nitro"
	case vendor == "Microsoft Corporation" && strings.HasPrefix(product, "Virtual Machine"):
		return "hyperv"
	case strings.Contains(both, "VMware"):
		return "vmware"
	case vendor == "Xen", strings.Contains(product, "HVM domU"):
		return "xen"
	case strings.Contains(both, "KVM"), strings.Contains(both, "OpenStack"),
		vendor == "Google", vendor == "Alibaba Cloud", vendor == "DigitalOcean":
		return "kvm"
	case strings.Contains(both, "QEMU"):
		return "qemu"
	}
	return ""
}

// hypervisorByWord knows the names in sys/hypervisor/type and the clock
// sources that guests get.
func hypervisorByWord(s string) string {
	for word := range strings.FieldsSeq(s) {
		switch word {
		case "kvm-clock":
			return "kvm"
		case "xen":
			return "xen"
		case "hyperv_clocksource_tsc_page", "hyperv_clocksource_msr":
			return "hyperv"
		}
	}
	return ""
}

// readContainer looks for what container engines leave in the file tree.
func (r *reader) readContainer() {
	set := func(inside bool, where string) {
		r.t.Host.Container = &inside
		r.t.Host.Facts.Set("container", sourceOf(where), "/"+where)
	}
	for _, mark := range []string{".dockerenv", "run/.containerenv", "run/systemd/container", "run/secrets/kubernetes.io"} {
		if r.exists(mark) {
			set(true, mark)
			return
		}
	}
	data, err := r.tree.ReadFile("proc/1/cgroup")
	if err == nil {
		set(cgroupOfContainer(data), "proc/1/cgroup")
	}
}

// cgroupOfContainer knows the names that container engines give their groups.
func cgroupOfContainer(data []byte) bool {
	for _, name := range []string{"docker", "kubepods", "containerd", "libpod", "lxc"} {
		if bytes.Contains(data, []byte(name)) {
			return true
		}
	}
	return false
}
