package sysfs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/topo"
)

// TestRealDirectories reads a copy whose links became directories: parents
// come from the bridges' secondary buses.
func TestRealDirectories(t *testing.T) {
	m := newMachine()
	top := m.read(t)
	c := &machine{files: map[string]string{}, links: map[string]string{}}
	secondary := map[string]string{"0000:17:01.0": "24", "0000:18:00.0": "25", "0000:19:00.0": "26", "0000:19:01.0": "27",
		"0000:97:01.0": "152", "0000:98:00.0": "153", "0000:99:00.0": "154", "0000:99:01.0": "155"}
	for _, d := range top.PCIDevices {
		from, to := strings.TrimPrefix(d.Evidence, "/"), "sys/bus/pci/devices/"+d.BDF.String()
		for name, text := range m.files {
			if dir, base := name[:strings.LastIndexByte(name, '/')], name[strings.LastIndexByte(name, '/')+1:]; dir == from {
				c.file(to+"/"+base, text)
			}
		}
		if bus := secondary[d.BDF.String()]; bus != "" {
			c.dir(to, "secondary_bus_number", bus)
		}
	}
	for _, class := range []string{"net/ib0", "infiniband/mlx5_0"} {
		for name, text := range m.files {
			if rest, ok := strings.CutPrefix(name, nic0+"/"+class+"/"); ok {
				c.file("sys/class/"+class+"/"+rest, text)
			}
		}
		c.dir("sys/class/"+class+"/device", "uevent", "DRIVER=mlx5_core\nPCI_CLASS=20700\nPCI_SLOT_NAME=0000:1b:00.0")
	}
	got := c.read(t)
	for _, d := range got.PCIDevices {
		want := pciOf(t, top, d.BDF.String()).Parent
		if d.BDF.String() == "0000:1c:00.0" {
			want = "hb:0000:1c" // no bridge says that it leads there
		}
		if d.Parent != want {
			t.Errorf("%s below %s, want %s", d.BDF, d.Parent, want)
		}
	}
	if b := rdmaOf(t, got, "mlx5_0").BDF; b == nil || b.String() != "0000:1b:00.0" {
		t.Errorf("mlx5_0 at %v", b)
	}
	if n := netdevOf(t, got, "ib0"); n.PCI != "pci:0000:1b:00.0" || n.Virtual {
		t.Errorf("ib0 is %+v", n)
	}
	if !warned(got, topo.CodeMissing, "pci:0000:1c:00.0") || !got.HostBridges[0].Synthetic {
		t.Errorf("%q", texts(got.Warnings))
	}
}

func TestSRIOV(t *testing.T) {
	m := newMachine()
	m.dir(nic0, "sriov_totalvfs", "16", "sriov_numvfs", "2")
	for i, bdf := range []string{"0000:1b:00.1", "0000:1b:00.2"} {
		vf := m.pcie("0000:17", "0000:17:01.0/0000:18:00.0/0000:19:01.0/"+bdf, "0x020700", "0x15b3", "0x101e", "-1", "0-7")
		m.link(nic0+"/virtfn"+fmt.Sprint(i), "../"+bdf)
		m.link(vf+"/physfn", "../../../discover/internal/0000:1b:00.0")
	}
	top := m.read(t)
	want := &topo.SRIOV{TotalVFs: new(16), NumVFs: new(2), VFs: []topo.ID{"pci:0000:1b:00.1", "pci:0000:1b:00.2"}}
	if d := cmp.Diff(want, pciOf(t, top, "0000:1b:00.0").SRIOV); d != "" {
		t.Error(d)
	}
	if vf := pciOf(t, top, "0000:1b:00.2"); vf.PF != "pci:0000:1b:00.0" || vf.NUMA == nil || len(top.Warnings) > 0 {
		t.Errorf("virtual function %+v, %q", vf, texts(top.Warnings))
	}
	m.dir(nic0, "sriov_numvfs", "3")
	if top := m.read(t); !warned(top, topo.CodeMissing, "virtfn2") {
		t.Errorf("%q", texts(top.Warnings))
	}
}

func TestNetdevShapes(t *testing.T) {
	m := newMachine()
	m.file("sys/class/net/bonding_masters", "bond0\n")
	bond := m.netdev("sys/devices/virtual", "bond0", "uevent", "DEVTYPE=bond\nINTERFACE=bond0", "speed", "800000")
	m.dir(bond+"/bonding", "mode", "802.3ad 4", "xmit_hash_policy", "layer3+4 1", "active_slave", "", "slaves", "eth10 eth2")
	m.link(bond+"/lower_eth2", "../eth2")
	vlan := m.netdev("sys/devices/virtual", "bond0.77", "uevent", "DEVTYPE=vlan\n", "type", "1")
	m.link(vlan+"/lower_bond0", "../bond0")
	m.file("proc/net/vlan/bond0.77", "bond0.77  VID: 77\t REORDER_HDR: 1  dev->priv_flags: 1021\n  total frames received 0\nDevice: bond0\nINGRESS priority mappings:\n")
	m.link(nic0+"/net/ib0/master", "../../../../../virtual/net/bond0")
	virtio := m.pcie("0000:17", "0000:17:03.0", "0x020000", "0x1af4", "0x1041", "0", "0-3") + "/virtio2"
	down := m.netdev(virtio, "eth0", "operstate", "down")
	m.errors[down+"/speed"], m.errors[down+"/carrier"] = syscall.EINVAL, syscall.EINVAL
	m.errors[down+"/phys_port_name"] = errors.ErrUnsupported
	m.netdev(virtio, "eth1", "speed", "-1")
	m.netdev(nic0, "pf0vf3", "phys_port_name", "pf0vf3", "phys_switch_id", "a088c20003123456")
	top := m.read(t)
	if len(top.Warnings) > 0 || len(top.Netdevs) != 7 {
		t.Errorf("%d interfaces, %q", len(top.Netdevs), texts(top.Warnings))
	}
	b := netdevOf(t, top, "bond0")
	if d := cmp.Diff(&topo.Bond{Mode: "802.3ad", HashPolicy: "layer3+4"}, b.Bond); d != "" ||
		!slices.Equal(b.Lower, []string{"eth2", "eth10"}) || b.LinkKind != "bond" || !b.Virtual || *b.BytesPerSec != 100_000_000_000 {
		t.Errorf("bond0 is %+v %s", b, d)
	}
	if v := netdevOf(t, top, "bond0.77"); v.LinkKind != "vlan" || *v.VLANID != 77 || !slices.Equal(v.Lower, []string{"bond0"}) {
		t.Errorf("bond0.77 is %+v", v)
	}
	if n := netdevOf(t, top, "ib0"); n.Master != "bond0" || n.Type != "infiniband" {
		t.Errorf("ib0 is %+v", n)
	}
	if n := netdevOf(t, top, "eth0"); n.PCI != "pci:0000:17:03.0" || *n.NUMA != 0 || n.BytesPerSec != nil || n.Carrier != nil || n.State != "down" {
		t.Errorf("eth0 is %+v", n)
	}
	if n := netdevOf(t, top, "eth1"); n.BytesPerSec != nil || !*n.Carrier {
		t.Errorf("eth1 is %+v", n)
	}
	if d := rdmaOf(t, top, "mlx5_0"); !slices.Equal(d.Netdevs, []string{"ib0"}) {
		t.Errorf("mlx5_0 has %v, a representor is not its interface", d.Netdevs)
	}
}

func TestRDMAShapes(t *testing.T) {
	m := newMachine()
	rxe := m.attach("sys/devices/virtual", "infiniband", "rxe0", "node_type", "1: CA", "fw_ver", "", "parent", "eth0")
	m.dir(rxe+"/ports/1", "state", "4: ACTIVE", "phys_state", "5: LinkUp", "link_layer", "Ethernet", "rate", "2.5 Gb/sec (1X SDR)")
	virtio := m.pcie("0000:97", "0000:97:03.0", "0x020000", "0x1af4", "0x1041", "1", "4-7") + "/virtio2"
	m.netdev(virtio, "eth0")
	efa := m.pcie("0000:97", "0000:97:04.0", "0x020000", "0x1d0f", "0xefa1", "1", "4-7")
	m.driver(efa, "efa")
	efaDev := m.attach(efa, "infiniband", "efa_0", "node_type", "7: unspecified")
	m.dir(efaDev+"/ports/1", "state", "4: ACTIVE", "phys_state", "5: LinkUp", "link_layer", "Unspecified")
	roce := m.pcie("0000:97", "0000:97:05.0", "0x020000", "0x15b3", "0x1021", "1", "4-7")
	m.driver(roce, "mlx5_core")
	m.rdma(roce, "mlx5_bond_0", "Ethernet", 256, "fe80:0000:0000:0000:0000:0000:0000:0000", "0000:0000:0000:0000:0000:ffff:0a00:0001")
	m.dir(roce+"/infiniband/mlx5_bond_0/ports/1/gid_attrs/ndevs", "1", "bond0")
	m.errors[roce+"/infiniband/mlx5_bond_0/ports/1/gid_attrs/ndevs/0"] = syscall.EINVAL
	sf := roce + "/mlx5_core.sf.2"
	m.rdma(sf, "mlx5_2", "Ethernet", 1)
	two := m.pcie("0000:97", "0000:97:06.0", "0x020000", "0x15b3", "0x1003", "1", "4-7")
	m.rdma(two, "mlx4_0", "Ethernet", 1)
	m.dir(two+"/infiniband/mlx4_0/ports/2", "state", "1: DOWN", "phys_state", "3: Disabled", "link_layer", "InfiniBand", "rate", "10 Gb/sec (4X)")
	m.netdev(two, "en1", "dev_port", "0")
	m.netdev(two, "en2", "dev_port", "1")
	m.dir("sys/class/infiniband_verbs/uverbs0", "ibdev", "mlx5_0")
	m.dir("sys/class/infiniband_mad/umad0", "ibdev", "mlx5_0", "port", "1")
	m.file("sys/class/infiniband_verbs/abi_version", "6\n")
	top := m.read(t)
	if len(top.Warnings) > 0 {
		t.Errorf("%q", texts(top.Warnings))
	}
	for name, want := range map[string]string{"rxe0": "roce", "efa_0": "efa", "mlx5_bond_0": "roce", "mlx5_0": "ib", "mlx5_2": "roce"} {
		if d := rdmaOf(t, top, name); d.Transport != want || d.Software != (name == "rxe0") {
			t.Errorf("%s: transport %q, software %v", name, d.Transport, d.Software)
		}
	}
	if d := rdmaOf(t, top, "rxe0"); d.PCI != "pci:0000:97:03.0" || *d.NUMA != 1 || d.Driver != "rdma_rxe" {
		t.Errorf("rxe0 is %+v", d)
	}
	if d := rdmaOf(t, top, "mlx5_2"); d.PCI != "pci:0000:97:05.0" {
		t.Errorf("a sub-function hangs from %s", d.PCI)
	}
	p := portOf(t, top, "mlx5_bond_0", 1)
	want := []topo.GID{
		{Index: 0, GID: "fe80:0000:0000:0000:0000:0000:0000:0000", Type: "RoCE v2"},
		{Index: 1, GID: "0000:0000:0000:0000:0000:ffff:0a00:0001", Type: "RoCE v2", Netdev: "bond0"},
	}
	if d := cmp.Diff(want, p.GIDs); d != "" || *p.GIDTable != 256 {
		t.Error(d)
	}
	if a, b := portOf(t, top, "mlx4_0", 1), portOf(t, top, "mlx4_0", 2); !slices.Equal(a.Netdevs, []string{"en1"}) || !slices.Equal(b.Netdevs, []string{"en2"}) || b.State != "DOWN" {
		t.Errorf("ports have %v and %v", a.Netdevs, b.Netdevs)
	}
	if d := rdmaOf(t, top, "mlx5_0"); !slices.Equal(d.CharDevs, []string{"/dev/infiniband/umad0", "/dev/infiniband/uverbs0"}) {
		t.Errorf("char devices %v", d.CharDevs)
	}
}

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

func TestOtherMachines(t *testing.T) {
	t.Run("no NUMA", func(t *testing.T) {
		m := newMachine()
		m.remove("sys/devices/system/node")
		for f := range m.files {
			if strings.HasSuffix(f, "/numa_node") {
				m.remove(f)
			}
		}
		top := m.read(t)
		n := top.NUMANodes[0]
		if len(top.NUMANodes) != 1 || n.CPUs != "0-7" || n.Package != nil || *n.MemoryBytes != 2048*1024 || len(top.Warnings) > 0 {
			t.Errorf("%+v %q", top.NUMANodes, texts(top.Warnings))
		}
		if g := top.GPUs[1]; *g.NUMA != 0 {
			t.Errorf("gpu:1 on %d", *g.NUMA)
		}
		if f, _ := pciOf(t, top, "0000:9a:00.0").Facts.Get("numa_node"); f.Source != topo.SourceDerived {
			t.Errorf("numa_node from %v", f)
		}
	})
	t.Run("GPU memory nodes", func(t *testing.T) {
		m := newMachine()
		m.node(0, "0-3", "10 40 80 80")
		m.node(1, "4-7", "40 10 80 80")
		m.node(2, "", "80 80 10 255")
		m.node(10, "", "80 80 255 10")
		m.dir("proc/driver/nvidia/gpus/0000:1a:00.0", "numa_status", "Node: 10\nOffline: 0")
		top := m.read(t)
		n := top.NUMANodes[3]
		if n.Index != 10 || !n.MemoryOnly || n.Owner != "gpu:0" || n.Package != nil || *top.GPUs[0].MemoryNUMA != 10 || len(top.Warnings) > 0 {
			t.Errorf("%+v %q", n, texts(top.Warnings))
		}
	})
	t.Run("GPU memory node, no information", func(t *testing.T) {
		m := newMachine()
		m.node(10, "", "10")
		m.dir("proc/driver/nvidia/gpus/0000:1a:00.0", "numa_status", "Node: 10\nOffline: 0")
		m.remove("proc/driver/nvidia/gpus/0000:1a:00.0/information")
		top := m.read(t)
		if g := top.GPUs[0]; g.MemoryNUMA == nil || *g.MemoryNUMA != 10 || g.KnownFrom != "proc" {
			t.Errorf("%+v %q", g, texts(top.Warnings))
		}
	})
	t.Run("zero byte at the end", func(t *testing.T) {
		m := newMachine()
		m.file("sys/devices/system/node/node0/cpulist", "0-3\n\x00")
		if top := m.read(t); top.NUMANodes[0].CPUs != "0-3" || len(top.Warnings) > 0 {
			t.Errorf("%+v %q", top.NUMANodes, texts(top.Warnings))
		}
	})
	t.Run("IOMMU", func(t *testing.T) {
		m := newMachine()
		m.link(gpu0+"/iommu_group", "../../../../../../kernel/iommu_groups/16")
		m.dir("sys/kernel/iommu_groups/16", "type", "DMA-FQ")
		if d := pciOf(t, m.read(t), "0000:1a:00.0"); *d.IOMMUGroup != 16 || d.IOMMUType != "DMA-FQ" {
			t.Errorf("%+v", d)
		}
	})
	t.Run("NVSwitch", func(t *testing.T) {
		m := newMachine()
		m.pcie("0000:97", "0000:97:07.0", "0x068000", "0x10de", "0x22a3", "1", "4-7")
		if top := m.read(t); len(top.NVSwitches) != 1 || top.NVSwitches[0].ID != "nvsw:0000:97:07.0" || *top.NVSwitches[0].NUMA != 1 || len(top.GPUs) != 2 {
			t.Errorf("%+v", top.NVSwitches)
		}
	})
	t.Run("arm", func(t *testing.T) {
		m := newMachine()
		m.file("proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd87\n\nprocessor\t: 1\nCPU implementer\t: 0x41\nCPU part\t: 0xd85\n")
		if h := m.read(t).Host; h.Arch != "aarch64" || h.CPUVendor != "ARM" || h.CPUModel != "Cortex-A725 + Cortex-X925" || h.Virtual != "none" || h.CPUFamily != nil {
			t.Errorf("%+v", h)
		}
	})
	t.Run("empty", func(t *testing.T) {
		top := (&machine{}).read(t)
		if len(top.NUMANodes) != 1 || len(top.Warnings) > 0 || len(top.PCIDevices) > 0 {
			t.Errorf("%v %q", ids(top), texts(top.Warnings))
		}
	})
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

// TestGIDGap: the kernel fills a GID table from its beginning, so that reading
// ends after gidGap unused entries; the table's size is still the whole.
func TestGIDGap(t *testing.T) {
	for at, want := range map[int]int{1: 2, gidGap: 2, gidGap + 1: 1} {
		m := newMachine()
		m.rdma("sys/devices/pci0000:97/0000:97:01.0", "mlx5_9", "Ethernet", 128, "0000:0000:0000:0000:0000:ffff:0a00:0001")
		port := "sys/devices/pci0000:97/0000:97:01.0/infiniband/mlx5_9/ports/1"
		m.dir(port+"/gids", fmt.Sprint(at), "0000:0000:0000:0000:0000:ffff:0a00:0002")
		if p := portOf(t, m.read(t), "mlx5_9", 1); len(p.GIDs) != want || *p.GIDTable != 128 {
			t.Errorf("second GID at %d: %d of %d entries used", at, len(p.GIDs), *p.GIDTable)
		}
	}
}
