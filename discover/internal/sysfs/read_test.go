package sysfs

import (
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/topo"
)

func TestReadWhole(t *testing.T) {
	top := newMachine().read(t)
	if len(top.Warnings) > 0 || !top.Complete {
		t.Errorf("complete %v, warnings %q", top.Complete, texts(top.Warnings))
	}
	want := []topo.ID{
		"gpu:0", "gpu:1", "hb:0000:17", "hb:0000:97", "net:ib0", "net:ib1", "numa:0", "numa:1", "nvme:nvme0",
		"pci:0000:17:01.0", "pci:0000:17:02.0", "pci:0000:18:00.0", "pci:0000:19:00.0", "pci:0000:19:01.0",
		"pci:0000:1a:00.0", "pci:0000:1b:00.0", "pci:0000:1c:00.0", "pci:0000:97:01.0", "pci:0000:98:00.0",
		"pci:0000:99:00.0", "pci:0000:99:01.0", "pci:0000:9a:00.0", "pci:0000:9b:00.0",
		"pkg:0", "pkg:1", "port:mlx5_0/1", "port:mlx5_1/1", "rdma:mlx5_0", "rdma:mlx5_1",
	}
	if d := cmp.Diff(want, ids(top)); d != "" {
		t.Error(d)
	}
	wantHost := topo.Host{
		Name: "node1", Arch: "x86_64", Kernel: "6.8.0-45-generic", Vendor: "NVIDIA", Product: "DGXH100",
		MachineIDSHA256: "3eb1bd439947eb762998e566ccc2e099c791118b2f40579cc4f7da2b5061b7f9",
		CPUVendor:       "GenuineIntel", CPUModel: "Intel(R) Xeon(R) Platinum 8480C", CPUFamily: new(6), CPUModelID: new(143),
		CPUs: "0-7", MemoryBytes: new(int64(2048 * 1024)), Virtual: "none",
		Software: &topo.Software{
			Modules: []string{"mlx5_core", "nvidia"}, GPUModule: "proprietary", KernelOptions: []string{"iommu=pt"},
			Memlock: &topo.Memlock{SoftBytes: new(int64(8 << 20))},
		},
	}
	host := top.Host
	host.Facts = nil
	if d := cmp.Diff(wantHost, host); d != "" {
		t.Error(d)
	}
}

func TestReadDevices(t *testing.T) {
	top := newMachine().read(t)
	dir := "/sys/devices/pci0000:97/0000:97:01.0/0000:98:00.0/0000:99:01.0/0000:9b:00.0"
	wantPCI := &topo.PCIDevice{
		Node: topo.Node{ID: "pci:0000:9b:00.0", Kind: topo.KindPCI, Evidence: dir, Facts: topo.Facts{
			fact("class", "class"), fact("device", "device"), fact("driver", "driver"), fact("link", linkWhere),
			{Name: "local_cpus", Source: topo.SourceDerived, Where: "numa_node"}, fact("numa_node", "numa_node"), fact("parent", ""),
			fact("revision", "revision"), fact("subsystem_device", "subsystem_device"),
			fact("subsystem_vendor", "subsystem_vendor"), fact("vendor", "vendor"),
		}},
		BDF: topo.BDF{Bus: 0x9b}, Parent: "pci:0000:99:01.0", Class: "0x020700", Vendor: "0x15b3", Device: "0x1021",
		SubVendor: "0x15d9", SubDevice: "0x0001", Revision: "0x01", Driver: "mlx5_core", NUMA: new(1), LocalCPUs: "4-7",
		Link: &topo.PCILink{SpeedMTs: new(32000), Width: new(16), MaxSpeedMTs: new(32000), MaxWidth: new(16)},
	}
	if d := cmp.Diff(wantPCI, pciOf(t, top, "0000:9b:00.0")); d != "" {
		t.Error(d)
	}
	rdma := rdmaOf(t, top, "mlx5_1")
	rdma.Facts = nil
	wantRDMA := &topo.RDMADevice{
		Node: topo.Node{ID: "rdma:mlx5_1", Kind: topo.KindRDMA, Evidence: dir + "/infiniband/mlx5_1"},
		Name: "mlx5_1", PCI: "pci:0000:9b:00.0", BDF: &topo.BDF{Bus: 0x9b}, NUMA: new(1), Driver: "mlx5_core",
		Transport: "ib", NodeType: "CA", NodeGUID: "a088:c203:0012:3456", SysImageGUID: "a088:c203:0012:3456",
		Firmware: "28.40.1000", Board: "MT_0000000838", HCAType: "MT4129", Netdevs: []string{"ib1"}, Uverbs: "unknown",
	}
	if d := cmp.Diff(wantRDMA, rdma); d != "" {
		t.Error(d)
	}
	port := portOf(t, top, "mlx5_1", 1)
	port.Facts = nil
	wantPort := &topo.Port{
		Node: topo.Node{ID: "port:mlx5_1/1", Kind: topo.KindPort, Evidence: dir + "/infiniband/mlx5_1/ports/1"},
		RDMA: "rdma:mlx5_1", Number: 1, State: "ACTIVE", PhysState: "LinkUp", LinkLayer: "InfiniBand",
		BytesPerSec: new(topo.Rate(50_000_000_000)), RateRaw: "400 Gb/sec (4X NDR)", LID: new(0x3a4), SMLID: new(1),
		GIDs: []topo.GID{{GID: "fe80:0000:0000:0000:a088:c203:0012:3456", Type: "RoCE v2"}}, GIDTable: new(8),
		Netdevs: []string{"ib1"}, PKeys: []topo.HexID{"0xffff"}, TrafficClass: new(106),
	}
	if d := cmp.Diff(wantPort, port); d != "" {
		t.Error(d)
	}
	gpu := top.GPUs[1]
	if gpu.Model != "NVIDIA H100 80GB HBM3" || gpu.UUID == "" || *gpu.Minor != 1 || *gpu.NUMA != 1 ||
		gpu.KnownFrom != "proc" || gpu.Vendor != "nvidia" || gpu.Driver != "nvidia" || gpu.Visible != nil {
		t.Errorf("gpu:1 is %+v", gpu)
	}
	nvme := top.NVMes[0]
	if nvme.PCI != "pci:0000:1c:00.0" || nvme.Model == "" || nvme.Serial == "" || !slices.Equal(nvme.Namespaces, []string{"nvme0n1"}) {
		t.Errorf("nvme0 is %+v", nvme)
	}
	pkg := top.Packages[1]
	if pkg.CPUs != "4-7" || *pkg.Cores != 2 || !slices.Equal(pkg.NUMA, []int{1}) || pkg.Model == "" {
		t.Errorf("pkg:1 is %+v", pkg)
	}
	node := top.NUMANodes[1]
	if node.CPUs != "4-7" || *node.Package != 1 || *node.MemoryBytes != 1<<20 || !slices.Equal(node.Distances, []int{21, 10}) || node.MemoryOnly {
		t.Errorf("numa:1 is %+v", node)
	}
	if hb := top.HostBridges[1]; *hb.NUMA != 1 || hb.Synthetic {
		t.Errorf("%s is %+v", hb.ID, hb)
	}
}

// TestFactsSorted: facts must be ordered by name, whoever appended them.
func TestFactsSorted(t *testing.T) {
	m := newMachine()
	bond := m.netdev("sys/devices/virtual", "bond0")
	m.dir(bond, "bonding/mode", "802.3ad 4")
	top := m.read(t)
	check := func(n topo.Node) {
		if !slices.IsSortedFunc(n.Facts, func(a, b topo.Fact) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("%s: %v", n.ID, n.Facts)
		}
	}
	check(topo.Node{Facts: top.Host.Facts})
	for _, x := range top.PCIDevices {
		check(x.Node)
	}
	for _, x := range top.RDMADevices {
		check(x.Node)
	}
	for _, x := range top.Ports {
		check(x.Node)
	}
	for _, x := range top.Netdevs {
		check(x.Node)
	}
	for _, x := range top.NUMANodes {
		check(x.Node)
	}
	for _, x := range top.GPUs {
		check(x.Node)
	}
	for _, x := range top.NVMes {
		check(x.Node)
	}
	for _, x := range top.Packages {
		check(x.Node)
	}
}

// warned says whether some warning has a code and a piece of its line.
func warned(top *topo.Topology, code topo.Code, piece string) bool {
	return slices.ContainsFunc(top.Warnings, func(w topo.Warning) bool {
		return w.Code == code && strings.Contains(w.String(), piece)
	})
}

const gpu0 = "sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0/0000:19:00.0/0000:1a:00.0"
const nic0 = "sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0/0000:19:01.0/0000:1b:00.0"

func TestWarnings(t *testing.T) {
	tests := []struct {
		name   string
		change func(*machine)
		code   topo.Code
		piece  string // of the warning's line
		more   func(*testing.T, *topo.Topology)
	}{
		{"odd speed", func(m *machine) { m.file(gpu0+"/current_link_speed", "32.0 GX/s\n") }, topo.CodeMalformed,
			`pci:0000:1a:00.0: current_link_speed: "32.0 GX/s": unknown unit (/sys/bus/pci/devices/0000:1a:00.0/current_link_speed)`,
			func(t *testing.T, top *topo.Topology) {
				l := pciOf(t, top, "0000:1a:00.0").Link
				if l.SpeedMTs != nil || l.RawSpeed != "32.0 GX/s" || *l.Width != 16 || *l.MaxSpeedMTs != 32000 {
					t.Errorf("link %+v", l)
				}
			}},
		{"unknown link is no warning", func(m *machine) {
			m.dir(gpu0, "current_link_speed", "Unknown", "max_link_speed", "Unknown speed", "current_link_width", "0", "max_link_width", "255")
		}, "", "", func(t *testing.T, top *topo.Topology) {
			if d := cmp.Diff(&topo.PCILink{}, pciOf(t, top, "0000:1a:00.0").Link); d != "" {
				t.Error(d)
			}
		}},
		{"no link files at all is no warning", func(m *machine) {
			for _, f := range linkFiles {
				m.remove(gpu0 + "/" + f.name)
			}
		}, "", "", func(t *testing.T, top *topo.Topology) {
			if l := pciOf(t, top, "0000:1a:00.0").Link; l != nil {
				t.Errorf("link %+v", l)
			}
		}},
		{"numa -1, local CPUs tell", func(m *machine) { m.dir(gpu0, "numa_node", "-1") }, topo.CodeNUMAGuessed, "node 0 taken from local_cpulist",
			func(t *testing.T, top *topo.Topology) {
				if g := top.GPUs[0]; g.NUMA == nil || *g.NUMA != 0 {
					t.Errorf("gpu:0 on node %v", g.NUMA)
				}
			}},
		{"numa -1, bridge tells", func(m *machine) { m.dir(gpu0, "numa_node", "-1", "local_cpulist", "0-7") }, topo.CodeNUMAGuessed, "0000:19:00.0/numa_node", nil},
		{"numa -1 of a bridge is no warning", func(m *machine) {
			m.dir("sys/devices/pci0000:17/0000:17:02.0", "numa_node", "-1")
		}, "", "", nil},
		{"numa -1, nothing tells", func(m *machine) {
			for name := range m.files {
				if strings.HasSuffix(name, "/numa_node") {
					m.file(name, "-1\n")
				}
				if strings.HasSuffix(name, "/local_cpulist") {
					m.file(name, "0-7\n")
				}
			}
		}, topo.CodeNUMAUnknown, "pci:0000:9b:00.0", func(t *testing.T, top *topo.Topology) {
			if n := len(top.Warnings); n != 5 { // two GPUs, two NICs, one disk
				t.Errorf("%d warnings: %q", n, texts(top.Warnings))
			}
			if pciOf(t, top, "0000:1a:00.0").NUMA != nil || top.HostBridges[0].NUMA != nil {
				t.Error("a node out of nothing")
			}
		}},
		{"numa -1, bus CPUs tell", func(m *machine) {
			for name := range m.files {
				if strings.HasPrefix(name, "sys/devices/pci0000:97") && strings.HasSuffix(name, "/numa_node") {
					m.file(name, "-1\n")
				}
				if strings.HasSuffix(name, "/local_cpulist") {
					m.file(name, "0-7\n")
				}
			}
			m.dir("sys/devices/pci0000:97/pci_bus/0000:97", "cpuaffinity", "f0")
		}, topo.CodeNUMAGuessed, "node 1 taken from /sys/devices/pci0000:97/pci_bus/0000:97/cpuaffinity", nil},
		{"numa node that does not exist", func(m *machine) { m.dir(gpu0, "numa_node", "7") }, topo.CodeMalformed, "7: no such node",
			func(t *testing.T, top *topo.Topology) {
				if n := pciOf(t, top, "0000:1a:00.0").NUMA; n == nil || *n != 7 {
					t.Errorf("node %v, want what the file says", n)
				}
			}},
		{"device directory gone", func(m *machine) { m.remove(gpu0) }, topo.CodeVanished, "pci:0000:1a:00.0",
			func(t *testing.T, top *topo.Topology) {
				if d := pciOf(t, top, "0000:1a:00.0"); d.Parent != "pci:0000:19:00.0" {
					t.Errorf("parent %s, the link names another", d.Parent)
				}
				if len(top.Warnings) != 1 || len(top.GPUs) != 2 || top.GPUs[0].Vendor != "nvidia" {
					t.Errorf("%d GPUs, %q; the driver lists both", len(top.GPUs), texts(top.Warnings))
				}
			}},
		{"parent not listed", func(m *machine) { m.remove("sys/bus/pci/devices/0000:19:00.0") }, topo.CodeMissing, "its parent 0000:19:00.0",
			func(t *testing.T, top *topo.Topology) {
				if d := pciOf(t, top, "0000:1a:00.0"); d.Parent != "pci:0000:18:00.0" {
					t.Errorf("parent %s", d.Parent)
				}
			}},
		{"link to another device", func(m *machine) { m.link("sys/bus/pci/devices/0000:1a:00.0", "../../../devices/elsewhere") },
			topo.CodeMalformed, "which is not this device", nil},
		{"below itself", func(m *machine) {
			m.link("sys/bus/pci/devices/0000:1a:00.0", "../../../devices/pci0000:17/0000:1b:00.0/0000:1a:00.0")
			m.link("sys/bus/pci/devices/0000:1b:00.0", "../../../devices/pci0000:17/0000:1a:00.0/0000:1b:00.0")
		}, topo.CodeMalformed, "below itself", nil},
		{"not an address", func(m *machine) { m.file("sys/bus/pci/devices/README", "x") }, topo.CodeMalformed, "not a PCI address", nil},
		{"bus CPUs of the class tell", func(m *machine) {
			m.dir(gpu0, "numa_node", "-1", "local_cpulist", "0-7")
			for _, up := range []string{"0000:17:01.0", "0000:17:01.0/0000:18:00.0", "0000:17:01.0/0000:18:00.0/0000:19:00.0"} {
				m.dir("sys/devices/pci0000:17/"+up, "numa_node", "-1")
			}
			m.dir("sys/devices/pci0000:17/pci_bus/0000:17", "cpulistaffinity", "0-3")
		}, topo.CodeNUMAGuessed, "node 0 taken from /sys/devices/pci0000:17/pci_bus/0000:17/cpulistaffinity", nil},
		{"permission", func(m *machine) { m.errors[gpu0+"/revision"] = syscall.EACCES }, topo.CodeUnreadable, "0000:1a:00.0: revision: permission denied", nil},
		{"unplugged while read", func(m *machine) { m.errors[gpu0+"/revision"] = syscall.ENODEV }, topo.CodeVanished, "0000:1a:00.0: revision", nil},
		{"RDMA without PCI", func(m *machine) {
			m.remove("sys/class/infiniband/mlx5_0")
			m.remove("sys/class/net/ib0")
			m.attach("sys/devices/virtual", "infiniband", "siw0", "node_type", "4: RNIC")
		}, topo.CodeNoPCIParent, "rdma:siw0: a software device", func(t *testing.T, top *topo.Topology) {
			if d := rdmaOf(t, top, "siw0"); !d.Software || d.Transport != "iwarp" || d.PCI != "" {
				t.Errorf("%+v", d)
			}
		}},
		{"RDMA's function not listed", func(m *machine) { m.remove("sys/bus/pci/devices/0000:1b:00.0") }, topo.CodePartialView, "rdma:mlx5_0: its PCI function 0000:1b:00.0", nil},
		{"class link broken", func(m *machine) { m.remove(nic0 + "/net/ib0") }, topo.CodeMissing, "net:ib0: the class link leads nowhere", nil},
		{"distance of another count", func(m *machine) { m.node(0, "0-3", "10 21 31") }, topo.CodeMalformed, "3 values for 2 nodes",
			func(t *testing.T, top *topo.Topology) {
				if top.NUMANodes[0].Distances != nil {
					t.Error("distances kept")
				}
			}},
		{"driver lists a GPU that PCI does not", func(m *machine) {
			m.dir("proc/driver/nvidia/gpus/0000:ee:00.0", "information", "Model: X")
		}, topo.CodePartialView, "lists GPU 0000:ee:00.0", nil},
		{"no driver", func(m *machine) { m.remove("proc/driver/nvidia") }, topo.CodeDriverOnly, "GPUs of vendor nvidia known from their PCI class alone: 2",
			func(t *testing.T, top *topo.Topology) {
				if len(top.Warnings) != 1 || top.GPUs[0].KnownFrom != "pci" {
					t.Errorf("%q", texts(top.Warnings))
				}
			}},
		{"a driver of others", func(m *machine) {
			m.remove("proc/driver/nvidia")
			m.remove(gpu0 + "/driver")
		}, topo.CodeDriverOnly, "2", func(t *testing.T, top *topo.Topology) {
			if _, told := top.GPUs[0].Facts.Get("driver"); !told {
				t.Error("others have drivers, so this GPU has none: that is a fact")
			}
		}},
		{"no driver links", func(m *machine) {
			m.remove("proc/driver/nvidia")
			maps.DeleteFunc(m.links, func(name, _ string) bool { return path.Base(name) == "driver" })
		}, topo.CodeDriverOnly, "2", func(t *testing.T, top *topo.Topology) {
			if f, told := top.GPUs[0].Facts.Get("driver"); told {
				t.Errorf("no function has a driver, but %v tells that of a GPU", f)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine()
			before := m.read(t)
			tt.change(m)
			top := m.read(t)
			if tt.code == "" && len(top.Warnings) > 0 || tt.code != "" && !warned(top, tt.code, tt.piece) {
				t.Errorf("want %s %q, got %q", tt.code, tt.piece, texts(top.Warnings))
			}
			if len(top.PCIDevices) < len(before.PCIDevices)-1 {
				t.Errorf("%d functions of %d", len(top.PCIDevices), len(before.PCIDevices))
			}
			if tt.more != nil {
				tt.more(t, top)
			}
		})
	}
}

func TestNoFunctionList(t *testing.T) {
	m := newMachine()
	m.remove("sys/bus")
	if top := m.read(t); !warned(top, topo.CodeMissing, "lists no function") || len(top.RDMADevices) != 2 {
		t.Errorf("%q", texts(top.Warnings))
	}
}
