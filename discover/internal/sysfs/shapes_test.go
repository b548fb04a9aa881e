package sysfs

import (
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
)

func TestIsGPU(t *testing.T) {
	tests := []struct {
		what                  string
		class, vendor, device topo.HexID
		bdf                   string
		want                  bool
	}{
		{"H100", "0x030200", "0x10de", "0x2330", "0000:1a:00.0", true},
		{"GeForce", "0x030000", "0x10de", "0x2684", "0000:01:00.0", true},
		{"its sound", "0x040300", "0x10de", "0x22ba", "0000:01:00.1", false},
		{"NVSwitch", "0x068000", "0x10de", "0x22a3", "0000:05:00.0", false},
		{"MI300X", "0x120000", "0x1002", "0x74a1", "0000:0c:00.0", true},
		{"MI250", "0x038000", "0x1002", "0x740c", "0000:29:00.0", true},
		{"ES1000", "0x030000", "0x1002", "0x515e", "0000:10:00.0", false},
		{"Max 1550", "0x038000", "0x8086", "0x0bd5", "0000:18:00.0", true},
		{"Arc", "0x030000", "0x8086", "0x56a0", "0000:03:00.0", true},
		{"integrated", "0x030000", "0x8086", "0x4680", "0000:00:02.0", false},
		{"NPU", "0x120000", "0x8086", "0x7d1d", "0000:00:0b.0", false},
		{"Gaudi", "0x120000", "0x1da3", "0x1020", "0000:33:00.0", true},
		{"vector engine", "0x0b4000", "0x1bcf", "0x001c", "0000:1b:00.0", true},
		{"Xeon Phi", "0x0b4000", "0x8086", "0x225e", "0000:83:00.0", true},
		{"QuickAssist", "0x0b4000", "0x8086", "0x4940", "0000:6b:00.0", false},
		{"BMC", "0x030000", "0x1a03", "0x2000", "0000:04:00.0", false},
		{"QEMU", "0x038000", "0x1234", "0x1111", "0000:25:00.0", false},
		{"VMware", "0x030000", "0x15ad", "0x0405", "0000:00:0f.0", false},
		{"Hyper-V", "0x030000", "0x1414", "0x5353", "0000:00:08.0", false},
		{"Amazon", "0x030000", "0x1d0f", "0x1111", "0000:00:03.0", false},
		{"unknown class", "", "0x10de", "0x2330", "0000:1a:00.0", false},
	}
	for _, tt := range tests {
		b, err := topo.ParseBDF(tt.bdf)
		if err != nil {
			t.Fatal(err)
		}
		if got := (&topo.PCIDevice{Class: tt.class, Vendor: tt.vendor, Device: tt.device, BDF: b}).Accelerator(); got != tt.want {
			t.Errorf("%s: %v", tt.what, got)
		}
	}
}

func TestLive(t *testing.T) {
	m := newMachine()
	m.dir("proc/self", "status", "Name:\tx\nCpus_allowed:\t0f\nCpus_allowed_list:\t0-1")
	m.file("dev/nvidia0", "")
	m.file("proc/1/cgroup", "0::/kubepods.slice/kubepods-pod1.slice\n")
	top := Read(m.tree(t), true)
	h := top.Host
	if h.AllowedCPUs != "0-1" || h.Container == nil || !*h.Container || h.Arch == "" {
		t.Errorf("%+v", h)
	}
	if a, b := top.GPUs[0].Visible, top.GPUs[1].Visible; a == nil || !*a || b == nil || *b {
		t.Errorf("visible %v %v", a, b)
	}
	for _, piece := range []string{"may use 2 of 8 CPUs", "cannot use gpu:1", "cannot use mlx5_0, mlx5_1"} {
		if !warned(top, topo.CodePartialView, piece) {
			t.Errorf("no %q in %q", piece, texts(top.Warnings))
		}
	}
	if d := rdmaOf(t, top, "mlx5_0"); d.Uverbs != "none" {
		t.Errorf("uverbs %q", d.Uverbs)
	}
}
