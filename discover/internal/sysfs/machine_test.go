package sysfs

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/hosttree"
)

// machine is a small host that tests change before they read it: files by
// name, links by name, and errors that reading a file gives.
type machine struct {
	files  map[string]string
	links  map[string]string
	errors map[string]error
}

func (m *machine) file(name, text string) { m.files[name] = text }
func (m *machine) link(name, target string) {
	m.links[name] = target
}

// dir adds files to one directory from pairs of name and text.
func (m *machine) dir(dir string, pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		m.file(dir+"/"+pairs[i], pairs[i+1]+"\n")
	}
}

// remove takes away everything at and below a name.
func (m *machine) remove(name string) {
	below := func(n string) bool { return n == name || strings.HasPrefix(n, name+"/") }
	maps.DeleteFunc(m.files, func(n, _ string) bool { return below(n) })
	maps.DeleteFunc(m.links, func(n, _ string) bool { return below(n) })
}

func (m *machine) tree(t testing.TB) *hosttree.Mem {
	t.Helper()
	mem := hosttree.NewMem()
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range m.files {
		if m.errors[name] == nil {
			check(mem.AddFile(name, []byte(text)))
		}
	}
	for name, err := range m.errors {
		check(mem.AddUnreadable(name, err))
	}
	for name, target := range m.links {
		check(mem.AddSymlink(name, target))
	}
	return mem
}

func (m *machine) read(t testing.TB) *topo.Topology {
	t.Helper()
	return Read(m.tree(t), false)
}

// pci adds a function below a path of addresses ("0000:17:01.0/0000:18:00.0")
// under a root bus ("0000:17").
func (m *machine) pci(root, path, class, vendor, device string, more ...string) string {
	bdf := path[strings.LastIndexByte(path, '/')+1:]
	dir := "sys/devices/pci" + root + "/" + path
	m.link("sys/bus/pci/devices/"+bdf, "../../../devices/pci"+root+"/"+path)
	m.dir(dir, "class", class, "vendor", vendor, "device", device,
		"subsystem_vendor", "0x15d9", "subsystem_device", "0x0001", "revision", "0x01")
	m.dir(dir, more...)
	return dir
}

// pcie is pci with a link of 32 GT/s x16 and a NUMA node.
func (m *machine) pcie(root, path, class, vendor, device, numa, cpus string) string {
	return m.pci(root, path, class, vendor, device, "numa_node", numa, "local_cpulist", cpus,
		"current_link_speed", "32.0 GT/s PCIe", "current_link_width", "16",
		"max_link_speed", "32.0 GT/s PCIe", "max_link_width", "16")
}

// driver binds a driver.
func (m *machine) driver(dir, name string) {
	m.link(dir+"/driver", strings.Repeat("../", strings.Count(dir, "/")-1)+"bus/pci/drivers/"+name)
}

// attach adds a device of a class below a device's directory.
func (m *machine) attach(device, class, name string, pairs ...string) string {
	dir := device + "/" + class + "/" + name
	m.dir(dir, pairs...)
	m.link("sys/class/"+class+"/"+name, "../../"+strings.TrimPrefix(dir, "sys/"))
	if !strings.HasPrefix(device, "sys/devices/virtual") {
		m.link(dir+"/device", "../../../"+device[strings.LastIndexByte(device, '/')+1:])
	}
	return dir
}

// rdma adds an mlx5 device with one port and a GID table.
func (m *machine) rdma(device, name, layer string, table int, gids ...string) {
	dir := m.attach(device, "infiniband", name, "node_type", "1: CA", "node_guid", "a088:c203:0012:3456",
		"sys_image_guid", "a088:c203:0012:3456", "fw_ver", "28.40.1000", "board_id", "MT_0000000838", "hca_type", "MT4129")
	port := dir + "/ports/1"
	m.dir(port+"/pkeys", "0", "0xffff", "1", "0x0000")
	m.dir(dir+"/tc/1", "traffic_class", "Global tclass=106")
	m.dir(port, "state", "4: ACTIVE", "phys_state", "5: LinkUp", "link_layer", layer,
		"rate", "400 Gb/sec (4X NDR)", "lid", "0x3a4", "sm_lid", "0x1")
	for i := range table {
		gid := string(zeroGID)
		if i < len(gids) {
			gid = gids[i]
			m.dir(port+"/gid_attrs/types", fmt.Sprint(i), "RoCE v2")
		}
		m.dir(port+"/gids", fmt.Sprint(i), gid)
	}
}

func (m *machine) netdev(device, name string, more ...string) string {
	return m.attach(device, "net", name, append([]string{"address", "b8:ce:f6:00:00:01", "ifindex", "2", "mtu", "9000",
		"operstate", "up", "carrier", "1", "type", "1", "speed", "400000"}, more...)...)
}

func (m *machine) node(n int, cpulist, distance string) {
	m.dir(fmt.Sprintf("sys/devices/system/node/node%d", n), "cpulist", cpulist, "distance", distance,
		"meminfo", fmt.Sprintf("Node %d MemTotal:       1024 kB\nNode %d MemFree: 1 kB", n, n))
}

// limits is a part of /proc/self/limits.
func limits(soft, hard string) string {
	return "Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max open files            1024                 1048576              files     \n" +
		fmt.Sprintf("Max locked memory         %-20s %-20s bytes     \n", soft, hard) +
		"Max address space         unlimited            unlimited            bytes     \n"
}

// newMachine is a host with two sockets; on each a root port, a switch with a
// GPU and a ConnectX-7, and on socket 0 an NVMe disk below its own root port.
func newMachine() *machine {
	m := &machine{files: map[string]string{}, links: map[string]string{}, errors: map[string]error{}}
	m.dir("proc/sys/kernel", "hostname", "node1", "osrelease", "6.8.0-45-generic")
	m.file("etc/machine-id", "0123456789abcdef0123456789abcdef\n")
	m.file("proc/meminfo", "MemTotal:       2048 kB\nMemFree:  1 kB\n")
	m.file("proc/cmdline", "BOOT_IMAGE=/vmlinuz root=UUID=5e0ffa1d-0000-1111-8222-333344445555 iommu=pt\n")
	m.file("proc/self/limits", limits("8388608", "unlimited"))
	m.file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\nGCC version:  x\n")
	m.dir("sys/module", "nvidia/version", "535.129.03", "mlx5_core/initstate", "live", "secret_sensor/initstate", "live")
	var cpuinfo strings.Builder
	for cpu := range 8 {
		fmt.Fprintf(&cpuinfo, "processor\t: %d\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R) Platinum 8480C\nphysical id\t: %d\ncpu cores\t: 2\nflags\t\t: fpu lm\n\n", cpu, cpu/4)
	}
	m.file("proc/cpuinfo", cpuinfo.String())
	m.dir("sys/class/dmi/id", "sys_vendor", "NVIDIA", "product_name", "DGXH100")
	m.dir("sys/devices/system/cpu", "online", "0-7")
	for cpu, pkg := range []string{"0-3", "0-3", "0-3", "0-3", "4-7", "4-7", "4-7", "4-7"} {
		m.dir(fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology", cpu), "physical_package_id", fmt.Sprint(cpu/4),
			"package_cpus_list", pkg, "core_cpus_list", fmt.Sprintf("%d-%d", cpu&^1, cpu|1))
	}
	m.node(0, "0-3", "10 21")
	m.node(1, "4-7", "21 10")
	for i, root := range []string{"0000:17", "0000:97"} {
		numa, cpus := fmt.Sprint(i), []string{"0-3", "4-7"}[i]
		bus := func(n int) string { return fmt.Sprintf("0000:%02x", map[int]int{0: 0x17, 1: 0x97}[i]+n) }
		port := bus(0) + ":01.0"
		up := port + "/" + bus(1) + ":00.0"
		m.pcie(root, port, "0x060400", "0x8086", "0x352a", numa, cpus)
		m.pcie(root, up, "0x060400", "0x1000", "0xc030", numa, cpus)
		m.pcie(root, up+"/"+bus(2)+":00.0", "0x060400", "0x1000", "0xc030", numa, cpus)
		m.pcie(root, up+"/"+bus(2)+":01.0", "0x060400", "0x1000", "0xc030", numa, cpus)
		gpu := m.pcie(root, up+"/"+bus(2)+":00.0/"+bus(3)+":00.0", "0x030200", "0x10de", "0x2330", numa, cpus)
		m.driver(gpu, "nvidia")
		m.dir("proc/driver/nvidia/gpus/"+bus(3)+":00.0", "information", fmt.Sprintf(
			"Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 18\nGPU UUID: \t GPU-%08d-0000-0000-0000-000000000000\nBus Location: \t %s:00.0\nDevice Minor: \t %d", i, bus(3), i), "registry", "")
		nic := m.pcie(root, up+"/"+bus(2)+":01.0/"+bus(4)+":00.0", "0x020700", "0x15b3", "0x1021", numa, cpus)
		m.driver(nic, "mlx5_core")
		m.rdma(nic, fmt.Sprintf("mlx5_%d", i), "InfiniBand", 8, "fe80:0000:0000:0000:a088:c203:0012:3456")
		m.netdev(nic, fmt.Sprintf("ib%d", i), "type", "32", "address", "00:00:10:29:fe:80:00:00:00:00:00:00:a0:88:c2:03:00:12:34:56")
	}
	disk := m.pcie("0000:17", "0000:17:02.0/0000:1c:00.0", "0x010802", "0x144d", "0xa808", "0", "0-3")
	m.pcie("0000:17", "0000:17:02.0", "0x060400", "0x8086", "0x352b", "0", "0-3")
	m.attach(disk, "nvme", "nvme0", "model", "SAMSUNG MZWLJ3T8HBLS-00007", "serial", "S5TANE0T100001")
	m.dir(disk+"/nvme/nvme0/nvme0n1", "size", "1")
	return m
}

var nodeID = regexp.MustCompile(`(?m)^\{"id":"([^"]+)"`) // a node is a line of the document

// ids are the IDs of all nodes, for comparing what two reads found.
func ids(t testing.TB, top *topo.Topology) []topo.ID {
	t.Helper()
	document, err := top.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var out []topo.ID
	for _, m := range nodeID.FindAllSubmatch(document, -1) {
		out = append(out, topo.ID(m[1]))
	}
	return out
}

// texts are warnings as lines.
func texts(warnings []topo.Warning) []string {
	out := []string{}
	for _, w := range warnings {
		out = append(out, w.String())
	}
	return out
}

// find gives the element with an ID.
func find[T any](t testing.TB, list []T, id topo.ID, of func(*T) topo.ID) *T {
	t.Helper()
	for i := range list {
		if of(&list[i]) == id {
			return &list[i]
		}
	}
	t.Fatalf("no node %s", id)
	return nil
}

func pciOf(t testing.TB, top *topo.Topology, bdf string) *topo.PCIDevice {
	return find(t, top.PCIDevices, topo.ID("pci:"+bdf), func(d *topo.PCIDevice) topo.ID { return d.ID })
}

func rdmaOf(t testing.TB, top *topo.Topology, name string) *topo.RDMADevice {
	return find(t, top.RDMADevices, topo.RDMAID(name), func(d *topo.RDMADevice) topo.ID { return d.ID })
}
