package sysfs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
)

// cpuinfo is an x86 text of many CPUs, longer than what is read of it.
func cpuinfo(cpus int, flags string) string {
	var b strings.Builder
	for n := range cpus {
		fmt.Fprintf(&b, "processor\t: %d\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R)\nflags\t\t: %s\nbugs\t\t: none\n\n", n, flags)
	}
	return b.String()
}

// TestCPUInfoIsCut: wherever the text is cut, the first CPU's facts hold.
func TestCPUInfoIsCut(t *testing.T) {
	for pad := range 100 {
		m := newMachine()
		m.file("proc/cpuinfo", cpuinfo(200, strings.Repeat("x", pad+1)+" fpu tsc lm nx hypervisor"))
		m.dir("sys/class/dmi/id", "sys_vendor", "QEMU", "product_name", "Standard PC")
		if h := m.read(t).Host; h.Virtual != "qemu" || h.Arch != "x86_64" || *h.CPUModelID != 143 || h.CPUModel != "Intel(R) Xeon(R)" {
			t.Fatalf("%d bytes more: %+v", pad, h)
		}
	}
	m := newMachine()
	m.dir("sys/class/dmi/id", "sys_vendor", "QEMU", "product_name", "Standard PC")
	m.file("proc/cpuinfo", cpuinfo(1, strings.Repeat("x", 9000)+" lm hypervisor")) // the first CPU's flags themselves
	if h := m.read(t).Host; h.Virtual != "qemu" || h.Arch != "" || h.CPUVendor != "GenuineIntel" {
		t.Errorf("%+v", h)
	}
	m.file("proc/cpuinfo", "flags\t\t: "+strings.Repeat("f", 10000)) // no line ends in what is read
	if h := m.read(t).Host; h.Virtual != "qemu" || h.CPUVendor != "" {
		t.Errorf("%+v", h)
	}
	if c := parseCPUInfo([]byte(cpuinfo(1, "fpu lm hypervisor") + cpuinfo(1, "fpu"))); !c.hypervisor || c.arch != "x86_64" {
		t.Errorf("two CPUs: %+v", c)
	}
}

const armInfo = "processor\t: 0\nFeatures\t: fp asimd sve\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n\n"

func TestArchitecture(t *testing.T) {
	tests := []struct{ name, cpuinfo, kernel, arch, version, want string }{
		{"kernel says", cpuinfo(2, "fpu lm"), "6.8.0-45-generic", "i686", "", "i686"},
		{"32-bit kernel on a 64-bit processor", cpuinfo(2, "fpu lm"), "6.1.0-18-686-pae", "i686", "", "i686"},
		{"its release alone", cpuinfo(2, "fpu lm"), "6.1.0-18-686-pae", "", "", "i686"},
		{"long mode", cpuinfo(2, "fpu lm"), "6.8.0-45-generic", "", "", "x86_64"},
		{"release of a distribution", "", "4.18.0-553.el8_10.aarch64", "", "", "aarch64"},
		{"release of another", "", "6.1.0-18-amd64", "", "", "x86_64"},
		{"no long mode", cpuinfo(2, "fpu tsc"), "6.8.0-45-generic", "", "", ""},
		{"compiler", cpuinfo(2, "fpu tsc"), "6.8.0-45-generic", "", "Linux version 6.8.0-45-generic (build@host) (aarch64-linux-gnu-gcc-13 (Ubuntu) 13.2.0) #45", "aarch64"},
		{"ARM", armInfo, "6.8.0-1024-nvidia-64k", "", "", "aarch64"},
		{"ARM of 32 bits", "processor\t: 0\nFeatures\t: half thumb neon\nCPU implementer\t: 0x41\nCPU part\t: 0xd03\n", "6.8.0", "", "", ""},
		{"POWER of either byte order", "processor\t: 0\ncpu\t\t: POWER9, altivec supported\n", "6.8.0", "", "", ""},
		{"nothing", "", "", "", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine()
			for name, text := range map[string]string{
				"proc/cpuinfo": tt.cpuinfo, "proc/sys/kernel/osrelease": tt.kernel, "proc/sys/kernel/arch": tt.arch, "proc/version": tt.version,
			} {
				if m.remove(name); text != "" {
					m.file(name, text+"\n")
				}
			}
			h := m.read(t).Host
			if _, told := h.Facts.Get("arch"); h.Arch != tt.want || told != (tt.want != "") {
				t.Errorf("%q, want %q (%v)", h.Arch, tt.want, h.Facts)
			}
		})
	}
}

func TestVirtual(t *testing.T) {
	guest, metal := cpuinfo(4, "fpu lm hypervisor"), cpuinfo(4, "fpu lm")
	tests := []struct{ cpuinfo, vendor, product, hypervisor, want string }{
		{metal, "Supermicro", "SYS-821GE-TNHR", "", "none"},
		{metal, "QEMU", "Standard PC", "", "none"}, // tables are text, the flag is the processor's
		{guest, "QEMU", "Standard PC (Q35 + ICH9, 2009)", "", "qemu"},
		{guest, "Amazon EC2", "p5.48xlarge", "", "nitro"},
		{guest, "Microsoft Corporation", "Virtual Machine", "", "hyperv"},
		{guest, "Supermicro", "SYS-821GE-TNHR", "", "unknown"},
		{guest, "", "", "xen", "xen"},
		{armInfo, "NVIDIA", "GB200 NVL", "", "none"},
		{armInfo, "NVIDIA", "", "", ""}, // half of the tables
		{armInfo, "QEMU", "KVM Virtual Machine", "", "kvm"},
		{armInfo, "QEMU", "QEMU Virtual Machine", "", "qemu"},
		{armInfo, "Amazon EC2", "c7g.16xlarge", "", "nitro"},
		{armInfo, "Amazon EC2", "c7g.metal", "", "none"},
		{armInfo, "Google", "Google Compute Engine", "", "kvm"},
		{armInfo, "Microsoft Corporation", "Virtual Machine", "", "hyperv"},
		{armInfo, "ACME", "ACME Virtualization Platform", "", "unknown"},
		{armInfo, "ACME", "Server", "xen", "xen"},
		{armInfo, "", "", "", ""},
		{armInfo, "", "GB200 NVL", "", ""},
		{"", "NVIDIA", "DGXH100", "", ""},
	}
	for _, tt := range tests {
		m := newMachine()
		m.remove("sys/class/dmi")
		m.remove("proc/cpuinfo")
		for name, text := range map[string]string{
			"proc/cpuinfo": tt.cpuinfo, "sys/class/dmi/id/sys_vendor": tt.vendor, "sys/class/dmi/id/product_name": tt.product, "sys/hypervisor/type": tt.hypervisor,
		} {
			if text != "" {
				m.file(name, text+"\n")
			}
		}
		h := m.read(t).Host
		if _, told := h.Facts.Get("virtual"); h.Virtual != tt.want || told != (tt.want != "") {
			t.Errorf("%q %q on %.20q: %q, want %q", tt.vendor, tt.product, tt.cpuinfo, h.Virtual, tt.want)
		}
	}
}

// QEMU also emulates processors: KVM is told where its clock is, and the table
// that says QEMU is the source of no more than that.
func TestVirtualQEMU(t *testing.T) {
	const tables, clocks = "/sys/class/dmi/id", "/sys/devices/system/clocksource/clocksource0/available_clocksource"
	for _, tt := range []struct{ clocks, want, where string }{
		{"kvm-clock tsc hpet acpi_pm ", "kvm", clocks},
		{"tsc hpet acpi_pm ", "qemu", tables},
		{"hyperv_clocksource_tsc_page tsc ", "qemu", tables}, // what QEMU offers to Windows
		{"", "qemu", tables},
	} {
		m := newMachine()
		m.file("proc/cpuinfo", cpuinfo(2, "fpu lm hypervisor"))
		m.dir("sys/class/dmi/id", "sys_vendor", "QEMU", "product_name", "Standard PC (Q35 + ICH9, 2009)")
		if tt.clocks != "" {
			m.file(clocks[1:], tt.clocks+"\n")
		}
		h := m.read(t).Host
		if from, _ := h.Facts.Get("virtual"); h.Virtual != tt.want || from.Source != topo.SourceSysfs || from.Where != tt.where {
			t.Errorf("clocks %q: %q from %v, want %q from %s", tt.clocks, h.Virtual, from, tt.want, tt.where)
		}
	}
}

// TestMissingParts: what every such device has leaves a warning where it is not
// there, even if nothing else of its kind is left.
func TestMissingParts(t *testing.T) {
	tests := []struct {
		name   string
		remove []string
		want   []string
	}{
		{"ports", []string{nic0 + "/infiniband/mlx5_0/ports"}, []string{"rdma:mlx5_0: ports: no such directory (/sys/class/infiniband/mlx5_0/ports)"}},
		{"address", []string{nic0 + "/net/ib0/address"}, []string{"net:ib0: address: no such file (/sys/class/net/ib0/address)"}},
		{"the link files that are asked first", []string{gpu0 + "/current_link_speed", gpu0 + "/max_link_width"}, []string{
			"pci:0000:1a:00.0: current_link_speed: no such file (/sys/bus/pci/devices/0000:1a:00.0/current_link_speed)",
			"pci:0000:1a:00.0: max_link_width: no such file (/sys/bus/pci/devices/0000:1a:00.0/max_link_width)",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine()
			for _, name := range tt.remove {
				m.remove(name)
			}
			top := m.read(t)
			for _, want := range tt.want {
				if !warned(top, topo.CodeMissing, want) {
					t.Errorf("want %q, got %q", want, texts(top.Warnings))
				}
			}
			if len(top.Warnings) != len(tt.want) || top.Complete {
				t.Errorf("complete %v, %q", top.Complete, texts(top.Warnings))
			}
			l := pciOf(t, top, "0000:1a:00.0").Link
			if l == nil || *l.Width != 16 || *l.MaxSpeedMTs != 32000 {
				t.Errorf("link %+v", l)
			}
		})
	}
}
