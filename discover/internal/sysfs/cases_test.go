package sysfs

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/hosttree"
	"github.com/topoctl/topoctl/testkit/golden"
)

// changed is a machine that differs from the usual one of its group, and the golden file of the group has
// what is read otherwise of it: warnings ("!"), attributes that are gone ("-") and what they are now ("+").
type changed struct {
	what string
	how  func(*machine)
}

func TestChangedMachines(t *testing.T) {
	for group, cases := range map[string][]changed{
		"links": linkCases, "numa": numaCases, "pci": pciCases, "gpus": gpuCases, "config": configCases, "network": networkCases,
		"rdma": rdmaCases, "ports": portCases(), "host": hostCases(), "software": softwareCases(), "kfd": kfdCases,
	} {
		t.Run(group, func(t *testing.T) {
			usual := newMachine
			if group == "kfd" {
				usual = newAMD
			}
			before := told(t, usual().read(t))
			var b strings.Builder
			for _, c := range cases {
				m := usual()
				c.how(m)
				top := m.read(t)
				fmt.Fprintf(&b, "# %s (complete: %t)\n", c.what, top.Complete)
				for _, w := range texts(top.Warnings) {
					fmt.Fprintf(&b, "! %.200s\n", w)
				}
				b.WriteString(differences(before, told(t, top)) + "\n")
			}
			golden.Check(t, "testdata/changed/"+group+".txt", b.String())
		})
	}
}

// told is what a topology says: each attribute of the host, of nodes and of links, with where it is from.
func told(t testing.TB, top *topo.Topology) map[string]string {
	t.Helper()
	data, err := top.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Host         map[string]any
		Nodes, Links []map[string]any
		Facts        []map[string]any
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	add := func(id string, attributes map[string]any) {
		if at, ok := attributes["facts"].(float64); ok {
			attributes["facts"] = doc.Facts[int(at)]
		}
		for name, v := range attributes {
			facts, nested := v.(map[string]any)
			if !nested || name != "facts" && name != "link" && name != "software" {
				facts, name = map[string]any{name: v}, ""
			}
			for key, v := range facts {
				text, _ := json.Marshal(v)
				out[strings.TrimSpace(id+" "+strings.TrimPrefix(name+"."+key, "."))] = fmt.Sprintf("%.300s", text)
			}
		}
	}
	add("host", doc.Host)
	for _, n := range append(doc.Nodes, doc.Links...) {
		add(n["id"].(string), n)
	}
	return out
}

func differences(before, after map[string]string) string {
	var b strings.Builder
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		id, name, _ := strings.Cut(key, " ")
		was, is := before[key], after[key]
		switch gone := before[id+" id"] != "" && after[id+" id"] == ""; {
		case was == is, gone && name != "id":
			continue
		case gone:
			fmt.Fprintf(&b, "- %s\n", id)
			continue
		}
		if was != "" {
			fmt.Fprintf(&b, "- %s: %s\n", key, was)
		}
		if is != "" {
			fmt.Fprintf(&b, "+ %s: %s\n", key, is)
		}
	}
	return b.String()
}

// everywhere gives all files of a name another text.
func (m *machine) everywhere(below, name, text string) {
	for f := range m.files {
		if strings.HasPrefix(f, below) && path.Base(f) == name {
			m.file(f, text+"\n")
		}
	}
}

const (
	gpu0   = "sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0/0000:19:00.0/0000:1a:00.0"
	gpu1   = "sys/devices/pci0000:97/0000:97:01.0/0000:98:00.0/0000:99:00.0/0000:9a:00.0"
	nic0   = "sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0/0000:19:01.0/0000:1b:00.0"
	port0  = "sys/devices/pci0000:17/0000:17:01.0"
	mlx5   = nic0 + "/infiniband/mlx5_0"
	kfdDir = "sys/devices/virtual/kfd/kfd/topology/nodes"
)

var linkCases = []changed{
	{"odd speed", func(m *machine) { m.file(gpu0+"/current_link_speed", "32.0 GX/s\n") }},
	{"speeds of old kernels", func(m *machine) { m.dir(gpu0, "current_link_speed", "8 GT/s", "max_link_speed", "16GT/s") }},
	{"speeds beyond any", func(m *machine) { m.dir(gpu0, "current_link_speed", "9999 GT/s", "max_link_speed", "NaN GT/s") }},
	{"unknown link", func(m *machine) {
		m.dir(gpu0, "current_link_speed", "Unknown", "max_link_speed", "Unknown speed", "current_link_width", "0", "max_link_width", "255")
	}},
	{"no link files at all", func(m *machine) {
		for _, f := range linkFiles {
			m.remove(gpu0 + "/" + f.name)
		}
	}},
	{"without the link files that are asked first", func(m *machine) { m.remove(gpu0 + "/current_link_speed"); m.remove(gpu0 + "/max_link_width") }},
	{"a plain function has a link only below a port, a network function is asked", func(m *machine) {
		m.pcie("0000:17", "0000:17:00.1", "0x088000", "0x8086", "0x09a2", "0", "0-3")
		m.pcie("0000:17", "0000:17:00.2", "0x020000", "0x8086", "0x1521", "0", "0-3")
		m.pcie("0000:17", "0000:17:02.0/0000:1c:00.1", "0x0c0330", "0x1912", "0x0014", "0", "0-3")
	}},
	{"of configuration space, on a kernel without link files", func(m *machine) {
		for f := range m.files {
			if strings.Contains(f, "_link_") {
				m.remove(f)
			}
		}
		m.file(gpu0+"/config", string(configSpace(0x10de, 0x2330, 0, 0, 4096, -1)))
	}},
	{"a width of configuration space", func(m *machine) {
		m.remove(gpu0 + "/current_link_width")
		m.file(gpu0+"/config", string(configSpace(0x10de, 0x2330, 0, 0, 4096, -1)))
	}},
}

var numaCases = []changed{
	{"-1, local CPUs tell", func(m *machine) { m.dir(gpu0, "numa_node", "-1") }},
	{"-1, bridge tells", func(m *machine) { m.dir(gpu0, "numa_node", "-1", "local_cpulist", "0-7") }},
	{"-1 of a bridge", func(m *machine) { m.dir("sys/devices/pci0000:17/0000:17:02.0", "numa_node", "-1") }},
	{"-1, nothing tells", func(m *machine) { m.everywhere("", "numa_node", "-1"); m.everywhere("", "local_cpulist", "0-7") }},
	{"-1, bus CPUs tell", func(m *machine) {
		m.everywhere("sys/devices/pci0000:97", "numa_node", "-1")
		m.everywhere("", "local_cpulist", "0-7")
		m.dir("sys/devices/pci0000:97/pci_bus/0000:97", "cpuaffinity", "f0")
	}},
	{"-1, bus CPUs of the class tell", func(m *machine) {
		m.dir(gpu0, "numa_node", "-1", "local_cpulist", "0-7")
		for _, up := range []string{port0, port0 + "/0000:18:00.0", port0 + "/0000:18:00.0/0000:19:00.0"} {
			m.dir(up, "numa_node", "-1")
		}
		m.dir("sys/devices/pci0000:17/pci_bus/0000:17", "cpulistaffinity", "0-3")
	}},
	{"a node that does not exist", func(m *machine) { m.dir(gpu0, "numa_node", "7") }},
	{"distances of another count", func(m *machine) { m.node(0, "0-3", "10 21 31") }},
	{"no NUMA", func(m *machine) {
		m.remove("sys/devices/system/node")
		for f := range m.files {
			if strings.HasSuffix(f, "/numa_node") {
				m.remove(f)
			}
		}
	}},
	{"nodes of GPU memory", func(m *machine) {
		m.node(0, "0-3", "10 40 80 80")
		m.node(1, "4-7", "40 10 80 80")
		m.node(2, "", "80 80 10 255")
		m.node(10, "", "80 80 255 10")
		m.dir("proc/driver/nvidia/gpus/0000:1a:00.0", "numa_status", "Node: 10\nOffline: 0")
	}},
	{"a node of GPU memory, no information", func(m *machine) {
		m.node(10, "", "10")
		m.dir("proc/driver/nvidia/gpus/0000:1a:00.0", "numa_status", "Node: 10\nOffline: 0")
		m.remove("proc/driver/nvidia/gpus/0000:1a:00.0/information")
	}},
	{"a zero byte at the end", func(m *machine) { m.file("sys/devices/system/node/node0/cpulist", "0-3\n\x00") }},
}

// uevent is what the kernel tells of a function that topologies are not about.
const uevent = "DRIVER=skx_uncore\nPCI_CLASS=88000\nPCI_ID=8086:09A2\nPCI_SUBSYS_ID=15D9:0001\nPCI_SLOT_NAME=0000:17:00.1\nMODALIAS=pci:x\n"

// plain adds such a function, whose other files tell another device.
func plainFunction(class, text string) func(*machine) {
	return func(m *machine) {
		dir := m.pci("0000:17", "0000:17:00.1", class, "0x8086", "0x09a3", "numa_node", "0", "local_cpulist", "9")
		m.driver(dir, "other")
		if text != "" {
			m.file(dir+"/uevent", text)
		}
	}
}

var pciCases = []changed{
	{"device directory gone", func(m *machine) { m.remove(gpu0) }},
	{"parent not listed", func(m *machine) { m.remove("sys/bus/pci/devices/0000:19:00.0") }},
	{"link to another device", func(m *machine) { m.link("sys/bus/pci/devices/0000:1a:00.0", "../../../devices/elsewhere") }},
	{"below itself", func(m *machine) {
		m.link("sys/bus/pci/devices/0000:1a:00.0", "../../../devices/pci0000:17/0000:1b:00.0/0000:1a:00.0")
		m.link("sys/bus/pci/devices/0000:1b:00.0", "../../../devices/pci0000:17/0000:1a:00.0/0000:1b:00.0")
	}},
	{"not an address", func(m *machine) { m.file("sys/bus/pci/devices/README", "x") }},
	{"no permission", func(m *machine) { m.errors[gpu0+"/revision"] = syscall.EACCES }},
	{"unplugged while read", func(m *machine) { m.errors[gpu0+"/revision"] = syscall.ENODEV }},
	{"no list of functions", func(m *machine) { m.remove("sys/bus") }},
	{"numbers in other spellings", func(m *machine) { m.dir(gpu0, "device", "2330", "vendor", "10DE", "subsystem_device", "0x115b3") }},
	{"an IOMMU group", func(m *machine) {
		m.link(gpu0+"/iommu_group", "../../../../../../kernel/iommu_groups/16")
		m.dir("sys/kernel/iommu_groups/16", "type", "DMA-FQ")
	}},
	{"virtual functions", func(m *machine) { virtualFunctions(m, "2") }},
	{"a virtual function without a link", func(m *machine) { virtualFunctions(m, "3") }},
	{"uevent: whole", plainFunction("0x088000", uevent)},
	{"uevent: no driver", plainFunction("0x088000", strings.TrimPrefix(uevent, "DRIVER=skx_uncore\n"))},
	{"uevent: missing", plainFunction("0x088000", "")},
	{"uevent: cut off", plainFunction("0x088000", uevent[:60])},
	{"uevent: another's", plainFunction("0x088000", strings.Replace(uevent, "17:00.1", "17:00.2", 1))},
	{"uevent: another class", plainFunction("0x088001", uevent)},
	{"uevent: garbled ID", plainFunction("0x088000", strings.Replace(uevent, "8086:09A2", "8086:9A2", 1))},
	{"uevent: garbled driver", plainFunction("0x088000", strings.Replace(uevent, "skx_uncore", "../x", 1))},
	{"uevent: of a NIC", plainFunction("0x020000", strings.Replace(uevent, "88000", "20000", 1))},
	{"an empty machine", func(m *machine) { clear(m.files); clear(m.links) }},
	{"a copy whose links became directories", copyWithoutLinks},
}

func virtualFunctions(m *machine, active string) {
	m.dir(nic0, "sriov_totalvfs", "16", "sriov_numvfs", active)
	for i, bdf := range []string{"0000:1b:00.1", "0000:1b:00.2"} {
		vf := m.pcie("0000:17", "0000:17:01.0/0000:18:00.0/0000:19:01.0/"+bdf, "0x020700", "0x15b3", "0x101e", "-1", "0-7")
		m.link(nic0+"/virtfn"+fmt.Sprint(i), "../"+bdf)
		m.link(vf+"/physfn", "../0000:1b:00.0")
	}
}

// copyWithoutLinks makes directories of links: parents come from the bridges' secondary buses.
func copyWithoutLinks(m *machine) {
	files, links := maps.Clone(m.files), maps.Clone(m.links)
	clear(m.files)
	clear(m.links)
	secondary := map[string]string{"0000:17:01.0": "24", "0000:18:00.0": "25", "0000:19:00.0": "26", "0000:19:01.0": "27",
		"0000:97:01.0": "152", "0000:98:00.0": "153", "0000:99:00.0": "154", "0000:99:01.0": "155"}
	for entry, target := range links {
		to := entry
		switch {
		case strings.HasPrefix(entry, "sys/bus/pci/devices/"):
			if bus := secondary[path.Base(entry)]; bus != "" {
				m.dir(to, "secondary_bus_number", bus)
			}
		case entry == "sys/class/net/ib0", entry == "sys/class/infiniband/mlx5_0":
			m.dir(to+"/device", "uevent", "DRIVER=mlx5_core\nPCI_CLASS=20700\nPCI_SLOT_NAME=0000:1b:00.0")
		default:
			continue
		}
		from := path.Join(path.Dir(entry), target)
		for name, text := range files {
			rest, ok := strings.CutPrefix(name, from+"/")
			if ok && (strings.HasPrefix(entry, "sys/class") || !strings.Contains(rest, "/")) {
				m.file(to+"/"+rest, text)
			}
		}
	}
}

var gpuCases = []changed{
	{"the driver lists a GPU that PCI does not", func(m *machine) { m.dir("proc/driver/nvidia/gpus/0000:ee:00.0", "information", "Model: X") }},
	{"no driver", func(m *machine) { m.remove("proc/driver/nvidia") }},
	{"others have drivers, so that a GPU has none is a fact", func(m *machine) { m.remove("proc/driver/nvidia"); m.remove(gpu0 + "/driver") }},
	{"no driver links", func(m *machine) {
		m.remove("proc/driver/nvidia")
		maps.DeleteFunc(m.links, func(name, _ string) bool { return path.Base(name) == "driver" })
	}},
	{"an NVSwitch", func(m *machine) { m.pcie("0000:97", "0000:97:07.0", "0x068000", "0x10de", "0x22a3", "1", "4-7") }},
}

// withATS is a NIC's configuration space with the register of ATS, or without it if control is negative.
func withATS(device uint16, control int) string {
	c := configSpace(0x15b3, device, 0, 0, 4096, 0)
	if control >= 0 {
		binary.LittleEndian.PutUint32(c[0x148:], 0x000f|1<<16)
		binary.LittleEndian.PutUint16(c[0x148+6:], uint16(control))
	}
	return string(c)
}

// ats is a NIC below a switch of a vendor.
func ats(vendor, config string) func(*machine) {
	return func(m *machine) {
		m.file(path.Dir(nic0)+"/vendor", vendor)
		m.file(nic0+"/config", config)
	}
}

// bridge is a root port with that configuration space.
func bridge(config []byte) func(*machine) {
	return func(m *machine) { m.file(port0+"/config", string(config)) }
}

var configCases = []changed{
	{"the bridge counts of which least can be read", func(m *machine) {
		full := string(configSpace(0x8086, 0x352a, 1, 4, 4096, 0))
		m.file(port0+"/config", full)
		m.file(port0+"/0000:18:00.0/config", string(configSpace(0x1000, 0xc030, 1, 5, 256, 0)))
		m.file("sys/devices/pci0000:97/0000:97:01.0/config", full)
		m.remove(gpu0 + "/current_link_width") // so that the GPU's is read, which does not count
		m.file(gpu0+"/config", string(configSpace(0x10de, 0x2330, 0, 0, 64, -1)))
	}},
	{"root port", bridge(configSpace(0x8086, 0x352a, 1, 4, 4096, 0x1d))},
	{"upstream, ACS off", bridge(configSpace(0x8086, 0x352a, 1, 5, 4096, 0))},
	{"downstream, no ACS", bridge(configSpace(0x8086, 0x352a, 1, 6, 4096, -1))},
	{"256 bytes", bridge(configSpace(0x8086, 0x352a, 1, 6, 256, 0x1d))},
	{"64 bytes", bridge(configSpace(0x8086, 0x352a, 1, 6, 64, 0x1d))},
	{"conventional bridge", bridge(conventional())},
	{"all ones", bridge([]byte(strings.Repeat("\xff", 4096)))},
	{"of another device", bridge(configSpace(0x8086, 0x352b, 1, 6, 4096, 0))},
	{"short", bridge(make([]byte, 63))},
	{"ATS on", ats("0x15b3", withATS(0x1021, 0x8000))},
	{"ATS off", ats("0x15b3", withATS(0x1021, 0x0000))},
	{"no ATS", ats("0x15b3", withATS(0x1021, -1))},
	{"ATS, not root", ats("0x15b3", withATS(0x1021, -1)[:64])},
	{"ATS below another's switch", ats("0x1000", withATS(0x1021, 0x8000))},
	{"ATS of another function", ats("0x15b3", withATS(0x1023, 0x8000))},
}

var networkCases = []changed{
	{"class link broken", func(m *machine) { m.remove(nic0 + "/net/ib0") }},
	{"no address", func(m *machine) { m.remove(nic0 + "/net/ib0/address") }},
	{"an address in capitals, up", func(m *machine) { m.dir(nic0+"/net/ib0", "address", "B8:CE:F6:00:00:01", "flags", "0x1003") }},
	{"a malformed address, not up", func(m *machine) { m.dir(nic0+"/net/ib0", "address", "b8:ce:zz", "flags", "0x1002") }},
	{"an address that is too long, flags without 0x", func(m *machine) {
		m.dir(nic0+"/net/ib0", "address", strings.Repeat("00:", 40)+"00", "flags", "1003")
	}},
	{"flags of more than 32 bits", func(m *machine) { m.dir(nic0+"/net/ib0", "flags", "0x100000000") }},
	{"a bond, a VLAN, interfaces that are down or have no speed, a representor", func(m *machine) {
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
	}},
}

// onVirtio is a software device over an interface of a virtio function.
func onVirtio(device, speed string) func(*machine) {
	return func(m *machine) {
		if device == "siw0" { // which names its interface by its GID alone
			siw := m.attach("sys/devices/virtual", "infiniband", "siw0", "node_type", "4: RNIC")
			m.dir(siw+"/ports/1", "state", "4: ACTIVE", "link_layer", "Ethernet", "rate", "2.5 Gb/sec (1X SDR)")
			m.dir(siw+"/ports/1/gids", "0", "b8ce:f600:0001:0000:0000:0000:0000:0000")
			m.dir(siw+"/ports/1/gid_attrs/ndevs", "0", "eth0")
		} else {
			rxe := m.attach("sys/devices/virtual", "infiniband", "rxe0", "node_type", "1: CA", "fw_ver", "", "parent", "eth0")
			m.dir(rxe+"/ports/1", "state", "4: ACTIVE", "phys_state", "5: LinkUp", "link_layer", "Ethernet", "rate", device)
		}
		m.netdev(m.pcie("0000:97", "0000:97:03.0", "0x020000", "0x1af4", "0x1041", "1", "4-7")+"/virtio2", "eth0", "speed", speed)
	}
}

var rdmaCases = []changed{
	{"no PCI function", func(m *machine) {
		m.remove("sys/class/infiniband/mlx5_0")
		m.remove("sys/class/net/ib0")
		m.attach("sys/devices/virtual", "infiniband", "siw0", "node_type", "4: RNIC")
	}},
	{"its function not listed", func(m *machine) { m.remove("sys/bus/pci/devices/0000:1b:00.0") }},
	{"no ports", func(m *machine) { m.remove(mlx5 + "/ports") }},
	{"rxe, EFA, RoCE, a sub-function, two ports", func(m *machine) {
		rxe := m.attach("sys/devices/virtual", "infiniband", "rxe0", "node_type", "1: CA", "fw_ver", "", "parent", "eth0")
		m.dir(rxe+"/ports/1", "state", "4: ACTIVE", "phys_state", "5: LinkUp", "link_layer", "Ethernet", "rate", "2.5 Gb/sec (1X SDR)")
		m.netdev(m.pcie("0000:97", "0000:97:03.0", "0x020000", "0x1af4", "0x1041", "1", "4-7")+"/virtio2", "eth0")
		efa := m.pcie("0000:97", "0000:97:04.0", "0x020000", "0x1d0f", "0xefa1", "1", "4-7")
		m.driver(efa, "efa")
		efaDev := m.attach(efa, "infiniband", "efa_0", "node_type", "7: unspecified")
		m.dir(efaDev+"/ports/1", "state", "4: ACTIVE", "phys_state", "5: LinkUp", "link_layer", "Unspecified")
		roce := m.pcie("0000:97", "0000:97:05.0", "0x020000", "0x15b3", "0x1021", "1", "4-7")
		m.driver(roce, "mlx5_core")
		m.rdma(roce, "mlx5_bond_0", "Ethernet", 256, "fe80:0000:0000:0000:0000:0000:0000:0000", "0000:0000:0000:0000:0000:ffff:0a00:0001")
		m.dir(roce+"/infiniband/mlx5_bond_0/ports/1/gid_attrs/ndevs", "1", "bond0")
		m.errors[roce+"/infiniband/mlx5_bond_0/ports/1/gid_attrs/ndevs/0"] = syscall.EINVAL
		m.rdma(roce+"/mlx5_core.sf.2", "mlx5_2", "Ethernet", 1)
		two := m.pcie("0000:97", "0000:97:06.0", "0x020000", "0x15b3", "0x1003", "1", "4-7")
		m.rdma(two, "mlx4_0", "Ethernet", 1)
		m.dir(two+"/infiniband/mlx4_0/ports/2", "state", "1: DOWN", "phys_state", "3: Disabled", "link_layer", "InfiniBand", "rate", "10 Gb/sec (4X)")
		m.netdev(two, "en1", "dev_port", "0")
		m.netdev(two, "en2", "dev_port", "1")
		m.dir("sys/class/infiniband_verbs/uverbs0", "ibdev", "mlx5_0")
		m.dir("sys/class/infiniband_mad/umad0", "ibdev", "mlx5_0", "port", "1")
		m.file("sys/class/infiniband_verbs/abi_version", "6\n")
	}},
	{"a rate that the kernel has rounded up", onVirtio("2.5 Gb/sec (1X SDR)", "1000")},
	{"the rate that the interface has", onVirtio("25 Gb/sec (1X EDR)", "25000")},
	{"a faster interface", onVirtio("25 Gb/sec (1X EDR)", "100000")},
	{"an interface without a speed", onVirtio("2.5 Gb/sec (1X SDR)", "-1")},
	{"siw on 100 Mb/s", onVirtio("siw0", "100")},
	{"a card's port is believed", func(m *machine) {
		nic := m.pcie("0000:97", "0000:97:05.0", "0x020000", "0x15b3", "0x1021", "1", "4-7")
		m.rdma(nic, "mlx5_5", "Ethernet", 1)
		m.netdev(nic, "eth5", "speed", "1000")
	}},
}

func portCases() []changed {
	const port, keys, class, used = mlx5 + "/ports/1", mlx5 + "/ports/1/pkeys", mlx5 + "/tc/1/traffic_class", "fe80:0000:0000:0000:a088:c203:0012:3456"
	zeros := func(m *machine, from, to int) {
		for i := from; i < to; i++ {
			m.dir(keys, fmt.Sprint(i), "0x0000")
		}
	}
	cases := []changed{
		{"pkeys: whole and limited membership, in the order of the table", func(m *machine) { m.dir(keys, "0", "0x7fff", "1", "0x8001", "2", "0x0000", "3", "0x0002") }},
		{"pkeys: behind a gap", func(m *machine) { zeros(m, 1, 128); m.dir(keys, fmt.Sprint(pkeyGap), "0x8001") }},
		{"pkeys: behind too long a gap", func(m *machine) { zeros(m, 1, 128); m.dir(keys, fmt.Sprint(pkeyGap+1), "0x8001") }},
		{"pkeys: all unused", func(m *machine) { zeros(m, 0, 128) }},
		{"pkeys: no table", func(m *machine) { m.remove(keys) }},
		{"pkeys: garbled", func(m *machine) { m.dir(keys, "0", "ffff0000", "1", "0x8001") }},
		{"pkeys: denied", func(m *machine) { m.errors[keys+"/0"] = syscall.EACCES }},
		{"pkeys: without a prefix", func(m *machine) { m.dir(keys, "0", "8001") }},
		{"traffic class: denied", func(m *machine) { m.errors[class] = syscall.EACCES }},
		{"traffic class: no file", func(m *machine) { m.remove(class) }},
		{"GIDs: as far as they are read", func(m *machine) {
			m.rdma(nic0, "mlx5_0", "Ethernet", 256, used, used, string(zeroGID), used)
			m.rdma(nic0, "mlx5_9", "Ethernet", 16, used)
		}},
		{"GIDs: of a capture without the spare ones", func(m *machine) {
			m.rdma(nic0, "mlx5_0", "Ethernet", 1024, used)
			for i := 1 + gidGap; i < 1023; i++ {
				m.remove(port + "/gids/" + strconv.Itoa(i))
			}
			m.errors[port+"/gids/1023"] = hosttree.ErrNotCaptured
		}},
	}
	for _, at := range []int{1, gidGap, gidGap + 1} {
		cases = append(cases, changed{fmt.Sprint("GIDs: a second one at ", at), func(m *machine) {
			m.rdma("sys/devices/pci0000:97/0000:97:01.0", "mlx5_9", "Ethernet", 128, used)
			m.dir("sys/devices/pci0000:97/0000:97:01.0/infiniband/mlx5_9/ports/1/gids", fmt.Sprint(at), used)
		}})
	}
	for _, text := range []string{"Global tclass=0\n", "Global tclass=255", "src_ip=10.1.2.3,tclass=96\nGlobal tclass=106\n", "src_ip=10.1.2.3,tclass=96\n", "",
		"\n", "Global tclass=256\n", "Global tclass=-1\n", "106\n", strings.Repeat("\n", 70000)} {
		cases = append(cases, changed{fmt.Sprintf("traffic class: %.60q", text), func(m *machine) { m.file(class, text) }})
	}
	for _, c := range [][2]string{{"state", "4:"}, {"state", "x: Y"}, {"lid", "932"}, {"lid", "0x0"}, {"rate", "56 Gb/sec (4X FDR)"}, {"rate", "2.5 Gb/sec (1X SDR)"},
		{"rate", "0 Gb/sec"}, {"rate", "400"}, {"rate", "-1 Gb/sec"}, {"rate", "NaN Gb/sec"}, {"rate", "400 GB/sec"}, {"link_layer", "Token Ring"}} {
		cases = append(cases, changed{c[0] + " " + c[1], func(m *machine) { m.dir(port, c[0], c[1]) }})
	}
	return append(cases, changed{"GUIDs in capitals, and a malformed one", func(m *machine) {
		m.dir(mlx5, "node_guid", "A088:c203:0012:3456", "sys_image_guid", "a088:c203:0012:345x")
	}})
}

// cpuinfo is an x86 text of many CPUs, longer than what is read of it.
func cpuinfo(cpus int, flags string) string {
	var b strings.Builder
	for n := range cpus {
		fmt.Fprintf(&b, "processor\t: %d\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R)\nflags\t\t: %s\nbugs\t\t: none\n\n", n, flags)
	}
	return b.String()
}

const armInfo = "processor\t: 0\nFeatures\t: fp asimd sve\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n\n"

func hostCases() []changed {
	var cases []changed
	add := func(what string, how func(*machine)) { cases = append(cases, changed{what, how}) }
	texts := func(m *machine, texts map[string]string) { // and no file where there is no text
		for name, text := range texts {
			if m.remove(name); text != "" {
				m.file(name, text+"\n")
			}
		}
	}
	for _, tt := range [][5]string{
		{"kernel says", cpuinfo(2, "fpu lm"), "6.8.0-45-generic", "i686"},
		{"32-bit kernel on a 64-bit processor", cpuinfo(2, "fpu lm"), "6.1.0-18-686-pae", "i686"},
		{"its release alone", cpuinfo(2, "fpu lm"), "6.1.0-18-686-pae"},
		{"long mode", cpuinfo(2, "fpu lm"), "6.8.0-45-generic"},
		{"release of a distribution", "", "4.18.0-553.el8_10.aarch64"},
		{"release of another", "", "6.1.0-18-amd64"},
		{"no long mode", cpuinfo(2, "fpu tsc"), "6.8.0-45-generic"},
		{"compiler", cpuinfo(2, "fpu tsc"), "6.8.0-45-generic", "", "Linux version 6.8.0-45-generic (build@host) (aarch64-linux-gnu-gcc-13 (Ubuntu) 13.2.0) #45"},
		{"ARM", armInfo, "6.8.0-1024-nvidia-64k"},
		{"ARM of 32 bits", "processor\t: 0\nFeatures\t: half thumb neon\nCPU implementer\t: 0x41\nCPU part\t: 0xd03\n", "6.8.0"},
		{"two kinds of ARM cores", "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd87\n\nprocessor\t: 1\nCPU implementer\t: 0x41\nCPU part\t: 0xd85\n", "6.8.0"},
		{"POWER of either byte order", "processor\t: 0\ncpu\t\t: POWER9, altivec supported\n", "6.8.0"},
		{"nothing", ""},
	} {
		add("architecture: "+tt[0], func(m *machine) {
			texts(m, map[string]string{"proc/cpuinfo": tt[1], "proc/sys/kernel/osrelease": tt[2], "proc/sys/kernel/arch": tt[3], "proc/version": tt[4]})
		})
	}
	guest, metal := cpuinfo(4, "fpu lm hypervisor"), cpuinfo(4, "fpu lm")
	for _, tt := range [][5]string{ // the text of the processor, of the tables, and of a hypervisor
		{"", metal, "Supermicro", "SYS-821GE-TNHR"}, {"tables are text, the flag is the processor's", metal, "QEMU", "Standard PC"},
		{"", guest, "QEMU", "Standard PC (Q35 + ICH9, 2009)"}, {"", guest, "Amazon EC2", "p5.48xlarge"}, {"", guest, "Microsoft Corporation", "Virtual Machine"},
		{"", guest, "Microsoft Corporation", "Surface"}, {"", guest, "VMware, Inc.", "VMware7,1"}, {"", guest, "RDO", "OpenStack Compute"}, {"", guest, "Xen", "HVM domU"},
		{"", guest, "Supermicro", "SYS-821GE-TNHR"}, {"", guest, "", "", "xen"}, {"ARM", armInfo, "NVIDIA", "GB200 NVL"}, {"ARM, half of the tables", armInfo, "NVIDIA"},
		{"ARM", armInfo, "QEMU", "KVM Virtual Machine"}, {"ARM", armInfo, "QEMU", "QEMU Virtual Machine"}, {"ARM", armInfo, "Amazon EC2", "c7g.16xlarge"},
		{"ARM", armInfo, "Amazon EC2", "c7g.metal"}, {"ARM", armInfo, "Google", "Google Compute Engine"}, {"ARM", armInfo, "Microsoft Corporation", "Virtual Machine"},
		{"ARM", armInfo, "ACME", "ACME Virtualization Platform"}, {"ARM", armInfo, "ACME", "Server", "xen"}, {"ARM", armInfo}, {"ARM", armInfo, "", "GB200 NVL"},
		{"no processor", "", "NVIDIA", "DGXH100"},
	} {
		add(fmt.Sprintf("virtual: %s %q", tt[0], tt[2:]), func(m *machine) {
			texts(m, map[string]string{"proc/cpuinfo": tt[1], "sys/class/dmi/id/sys_vendor": tt[2], "sys/class/dmi/id/product_name": tt[3], "sys/hypervisor/type": tt[4]})
		})
	}
	for _, clocks := range []string{"kvm-clock tsc hpet acpi_pm ", "tsc hpet acpi_pm ", "hyperv_clocksource_tsc_page tsc "} { // the last is what QEMU offers to Windows
		add("QEMU with "+clocks, func(m *machine) {
			m.file("proc/cpuinfo", cpuinfo(2, "fpu lm hypervisor"))
			m.dir("sys/class/dmi/id", "sys_vendor", "QEMU", "product_name", "Standard PC (Q35 + ICH9, 2009)")
			m.file("sys/devices/system/clocksource/clocksource0/available_clocksource", clocks+"\n")
		})
	}
	for _, tt := range [][2]string{{"4", "3"}, {"6", "3"}, {"", "3"}} {
		add(fmt.Sprintf("cores: %q siblings, %s cores", tt[0], tt[1]), func(m *machine) {
			info := strings.ReplaceAll(m.files["proc/cpuinfo"], "cpu cores\t: 2", "cpu cores\t: "+tt[1])
			if tt[0] != "" {
				info = strings.ReplaceAll(info, "cpu cores", "siblings\t: "+tt[0]+"\ncpu cores")
			}
			m.file("proc/cpuinfo", info)
		})
	}
	add("the first CPU's flags are cut", func(m *machine) { m.file("proc/cpuinfo", cpuinfo(1, strings.Repeat("x", 9000)+" lm hypervisor")) })
	add("no line ends in what is read", func(m *machine) { m.file("proc/cpuinfo", "flags\t\t: "+strings.Repeat("f", 10000)) })
	add("two CPUs that differ", func(m *machine) { m.file("proc/cpuinfo", cpuinfo(1, "fpu lm hypervisor")+cpuinfo(1, "fpu")) })
	return cases
}

func softwareCases() []changed {
	cases := []changed{
		{"modules: one more", func(m *machine) { m.dir("sys/module", "nvidia_peermem/initstate", "live") }},
		{"modules: none of them", func(m *machine) { m.remove("sys/module/nvidia"); m.remove("sys/module/mlx5_core") }},
		{"modules: no list", func(m *machine) { m.remove("sys/module") }},
		{"modules: not a directory", func(m *machine) { m.remove("sys/module"); m.file("sys/module", "") }},
		{"nothing at all", func(m *machine) {
			for _, name := range []string{"sys/module", "proc/cmdline", "proc/self/limits", "proc/driver/nvidia/version"} {
				m.remove(name)
			}
		}},
		{"self is a link", func(m *machine) {
			m.remove("proc/self")
			m.file("proc/4711/limits", limits("65536", "65536"))
			m.link("proc/self", "4711")
		}},
		{"self is of a process that is not there", func(m *machine) { m.remove("proc/self"); m.link("proc/self", "4711") }},
		{"environment: empty", func(m *machine) { m.file("proc/self/environ", "") }},
		{"environment: settings that count, files first", environment},
		{"environment: denied", func(m *machine) { environment(m); m.errors["proc/self/environ"] = syscall.EACCES }},
		{"capabilities: garbled", func(m *machine) { m.file("proc/self/status", "CapEff:\tall\n") }},
	}
	for _, name := range []string{"proc/cmdline", "proc/self/limits", "proc/driver/nvidia/version"} {
		cases = append(cases,
			changed{name + ": gone", func(m *machine) { m.remove(name) }},
			changed{name + ": denied", func(m *machine) { m.errors[name] = syscall.EACCES }},
			changed{name + ": garbled", func(m *machine) { m.file(name, "\x00\x01") }})
	}
	first, other := "         0          0 4294967295\n", "         0     100000      65536\n"
	for _, tt := range [][2]string{ // CAP_IPC_LOCK counts in the first user namespace only
		{"CapEff:\t000001ffffffffff\n"}, {"CapEff:\t000001ffffffffff\n", first}, {"CapEff:\t0000000000004000\n", first}, {"CapEff:\t000001ffffffffff\n", other},
		{"CapEff:\t0000000000000000\n", first}, {"CapInh:\t0000000000004000\nCapEff:\t0000000000000001\n", first}, {"Name:\tx\n", first},
	} {
		cases = append(cases, changed{fmt.Sprintf("capabilities: %q", tt), func(m *machine) {
			m.file("proc/self/status", tt[0])
			if tt[1] != "" {
				m.file("proc/self/uid_map", tt[1])
			}
		}})
	}
	for _, text := range []string{limits("8388608", "8388608"), limits("unlimited", "unlimited"), limits("8388608", "18446744073708503040"), limits("0", "8388608"), "Max locked memory 0 0",
		"Max open files 1 2 files\n", "", "Max locked memory 5\n", limits("-1", "8388608"), limits("8388608", "99999999999999999999"), limits("much", "more")} {
		_, line, _ := strings.Cut(text, "Max locked memory")
		cases = append(cases, changed{fmt.Sprintf("limits: %.50q", line), func(m *machine) { m.file("proc/self/limits", text) }})
	}
	for _, text := range []string{"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build  (root@gpu12)  Sat\nGCC version:  x\n",
		"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  560.35.03  Release Build", "NVRM version: NVIDIA UNIX aarch64 Kernel Module  550.54.15",
		"GCC version: Open Kernel Module", "NVRM version: something else", "\nNVIDIA UNIX x86_64 Kernel Module", ""} {
		cases = append(cases, changed{fmt.Sprintf("module: %.60q", text), func(m *machine) { m.file("proc/driver/nvidia/version", text) }})
	}
	return cases
}

func environment(m *machine) {
	m.file("proc/self/environ", "PASSWORD=x\x00UCX_IB_GID_INDEX=auto\x00XNCCL_IB_GID_INDEX=9\x00NCCL_IB_GID_INDEX=3\x00")
	m.file("etc/nccl.conf", "NCCL_IB_GID_INDEX=1\n#NCCL_IB_GID_INDEX=5\nNCCL_SOCKET_IFNAME=eth0\n")
	m.file("etc/ucx/ucx.conf", "UCX_IB_GID_INDEX=\"2\"\n")
}

// bothWays is the xGMI link of both GPUs.
func bothWays(weight, least, most int) func(*machine) {
	return func(m *machine) {
		m.kfdLink(2, 1, 11, 3, weight, least, most)
		m.kfdLink(3, 1, 11, 2, weight, least, most)
	}
}

// bank is the GPU's memory as its node tells it.
func bank(n int, text string) func(*machine) {
	return func(m *machine) { m.file(fmt.Sprintf("%s/2/mem_banks/%d/properties", kfdDir, n), text) }
}

var kfdCases = []changed{
	{"no driver", func(m *machine) { m.remove("sys/class/kfd") }},
	{"rate of one link", bothWays(15, 64000, 64000)},
	{"rate of four links", bothWays(15, 50000, 200000)},
	{"rates that do not divide", bothWays(15, 70000, 100000)},
	{"two hops", bothWays(30, 0, 0)},
	{"MI200", func(m *machine) { m.kfdGPU(2, 0x1a00, "90010", "1"); m.kfdGPU(3, 0x9a00, "90010", "2") }},
	{"unequal GPUs", func(m *machine) { m.kfdGPU(3, 0x9a00, "90008", "2") }},
	{"unknown GPU", func(m *machine) { m.kfdGPU(2, 0x1a00, "110000", "1") }},
	{"no unique ID", func(m *machine) { m.kfdGPU(2, 0x1a00, "90402", "0") }},
	{"malformed version", func(m *machine) { m.kfdGPU(2, 0x1a00, "94299", "0") }},
	{"memory of the display driver", func(m *machine) { m.remove(kfdDir + "/2/mem_banks") }},
	{"memory in two heaps", func(m *machine) {
		bank(0, "heap_type 1\nsize_in_bytes 1024\n")(m)
		bank(1, "heap_type 2\nsize_in_bytes 2048\n")(m)
		bank(2, "heap_type 4\nsize_in_bytes 64\n")(m)
	}},
	{"memory too large", bank(0, "heap_type 1\nsize_in_bytes 18446744073709551615\n")},
	{"partitions", func(m *machine) {
		m.kfdGPU(2, 0x1a00, "90402", "11")
		m.kfdGPU(4, 0x1a00|1<<28, "90402", "12")
		m.kfdLink(4, 0, 11, 3, 41, 0, 0)
		m.kfdLink(3, 2, 11, 4, 41, 0, 0)
		m.kfdLink(4, 1, 11, 2, 13, 819200, 819200) // within the GPU
		m.kfdLink(2, 2, 11, 4, 13, 819200, 819200)
	}},
	{"partition in the function's place", func(m *machine) { m.kfdGPU(4, 0x1a03, "90402", "0") }},
	{"xGMI to a CPU", func(m *machine) { m.kfdLink(2, 0, 11, 0, 15, 0, 0) }},
	{"one direction", func(m *machine) { m.remove(kfdDir + "/3/io_links/1") }},
	{"two rates", func(m *machine) { m.kfdLink(2, 1, 11, 3, 15, 0, 64000); m.kfdLink(3, 1, 11, 2, 15, 0, 32000) }},
	{"link of another node", func(m *machine) {
		m.file(kfdDir+"/2/io_links/1/properties", "type 11\nnode_from 3\nnode_to 2\n")
		m.remove(kfdDir + "/3/io_links/1")
	}},
	{"link to itself", func(m *machine) { m.kfdLink(2, 2, 11, 2, 15, 0, 0) }},
	{"link to nowhere", func(m *machine) { m.kfdLink(2, 2, 11, 77, 15, 0, 0) }},
	{"same link twice", func(m *machine) { m.kfdLink(2, 2, 11, 3, 15, 0, 9) }},
	{"rate too high", bothWays(15, 0, 1<<40)},
	{"GPU that PCI does not show", func(m *machine) { m.kfdGPU(3, 0x4200, "90402", "1") }},
	{"impossible location", func(m *machine) { m.kfdGPU(3, 1<<20, "90402", "1") }},
	{"GPUs of others", func(m *machine) {
		m.errors[kfdDir+"/3/properties"] = syscall.EPERM
		m.errors[kfdDir+"/2/io_links/1/properties"] = syscall.EPERM
	}},
	{"malformed node", func(m *machine) { m.file(kfdDir+"/two/properties", "x 1\n") }},
	{"a forged tree with too many nodes", func(m *machine) {
		for n := range maxKFD + 10 {
			m.kfdNode(10+n, "simd_count", "0")
		}
	}},
	{"properties: a name twice", bank(0, "heap_type 1\nheap_type 2\nsize_in_bytes 8\n")},
	{"properties: no number", bank(0, "heap_type\nsize_in_bytes 18446744073709551616\n")},
	{"properties: blanks", bank(0, "heap_type 1\n\n  size_in_bytes 8  ")},
}
