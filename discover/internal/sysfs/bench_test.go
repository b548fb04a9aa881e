package sysfs

import (
	"fmt"
	"os"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/hosttree"
)

// bigMachine has the size of a DGX H100: 200 PCI functions, 12 RDMA devices
// with 256 GIDs each, 224 CPUs in two sockets.
func bigMachine() *machine {
	m := &machine{files: map[string]string{}, links: map[string]string{}}
	base := newMachine()
	for _, f := range []string{"proc/cpuinfo", "proc/meminfo", "proc/sys/kernel/hostname"} {
		m.files[f] = base.files[f]
	}
	m.dir("sys/devices/system/cpu", "online", "0-223")
	lists := []string{"0-55,112-167", "56-111,168-223"}
	for cpu := range 224 {
		m.dir(fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology", cpu), "physical_package_id", fmt.Sprint(cpu%112/56),
			"package_cpus_list", lists[cpu%112/56], "core_cpus_list", fmt.Sprintf("%d,%d", cpu%112, cpu%112+112))
	}
	m.node(0, lists[0], "10 21")
	m.node(1, lists[1], "21 10")
	// 20 root buses: a root port, a switch of an upstream and three downstream
	// ports, below them a GPU or plain function and two adapters; two spares.
	for i := range 20 {
		numa, cpus := fmt.Sprint(i/10), lists[i/10]
		bus := func(n int) string { return fmt.Sprintf("0000:%02x", i*12+n) }
		root, path := bus(0), bus(0)+":01.0"
		m.pcie(root, path, "0x060400", "0x8086", "0x352a", numa, cpus)
		path += "/" + bus(1) + ":00.0"
		m.pcie(root, path, "0x060400", "0x1000", "0xc030", numa, cpus)
		for n := range 3 {
			port := fmt.Sprintf("%s/%s:%02x.0", path, bus(2), n)
			m.pcie(root, port, "0x060400", "0x1000", "0xc030", numa, cpus)
			m.file("sys/devices/pci"+root+"/"+port+"/config", string(configSpace(0x1000, 0xc030, 1, 6, 4096, 0)))
			class, vendor, device := "0x020700", "0x15b3", "0x1021"
			if n == 0 && i%2 == 0 {
				class, vendor, device = "0x030200", "0x10de", "0x2330"
			}
			end := m.pcie(root, port+"/"+bus(3+n)+":00.0", class, vendor, device, numa, cpus)
			m.driver(end, "mlx5_core")
			m.link(end+"/iommu_group", fmt.Sprintf("../../../../../../kernel/iommu_groups/%d", i*12+n))
			m.dir(fmt.Sprintf("sys/kernel/iommu_groups/%d", i*12+n), "type", "DMA-FQ")
			if n == 1 && i < 12 {
				m.rdma(end, fmt.Sprintf("mlx5_%d", i), "Ethernet", 256, "fe80:0000:0000:0000:a088:c203:0012:3456", "fe80:0000:0000:0000:a088:c203:0012:3456",
					"0000:0000:0000:0000:0000:ffff:0a00:0001", "0000:0000:0000:0000:0000:ffff:0a00:0001")
				m.netdev(end, fmt.Sprintf("eth%d", i))
			}
		}
		m.pci(root, bus(0)+":02.0", "0x088000", "0x8086", "0x0b00", "numa_node", numa, "local_cpulist", cpus)
		m.pci(root, bus(0)+":03.0", "0x080700", "0x8086", "0x0b23", "numa_node", numa, "local_cpulist", cpus)
	}
	return m
}

func TestBigMachine(t *testing.T) {
	top := bigMachine().read(t)
	if n := len(top.PCIDevices); n != 200 || len(top.GPUs) != 10 || len(top.RDMADevices) != 12 || *top.Packages[1].Cores != 56 {
		t.Errorf("%d functions, %d GPUs, %d RDMA devices, %d cores", n, len(top.GPUs), len(top.RDMADevices), *top.Packages[1].Cores)
	}
	if p := portOf(t, top, "mlx5_3", 1); *p.GIDTable != 256 || len(p.GIDs) != 4 {
		t.Errorf("%+v", p)
	}
	if d := pciOf(t, top, "0000:02:00.0"); d.Role != topo.RoleDownstream {
		t.Errorf("%+v", d)
	}
}

func BenchmarkReadMemory(b *testing.B) {
	tree := bigMachine().tree(b)
	for b.Loop() {
		Read(tree, false)
	}
}

func BenchmarkReadDirectory(b *testing.B) {
	dir := b.TempDir()
	if err := os.CopyFS(dir, bigMachine().tree(b)); err != nil {
		b.Fatal(err)
	}
	tree, err := hosttree.OpenDir(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer tree.Close()
	for b.Loop() {
		Read(tree, false)
	}
}
