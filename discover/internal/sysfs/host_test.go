package sysfs

import (
	"strings"
	"testing"
)

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
