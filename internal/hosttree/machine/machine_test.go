package machine_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/internal/hosttree"
	"github.com/topoctl/topoctl/internal/hosttree/machine"
	"github.com/topoctl/topoctl/internal/replies"
	"github.com/topoctl/topoctl/testkit/golden"
)

func parse(t testing.TB, text string) *machine.Spec {
	t.Helper()
	spec, err := machine.Parse([]byte(text))
	if err != nil {
		t.Fatalf("Parse: %v", err)
	}
	return spec
}

func tree(t testing.TB, spec *machine.Spec) *hosttree.Mem {
	t.Helper()
	m, err := spec.Tree()
	if err != nil {
		t.Fatalf("Tree: %v", err)
	}
	return m
}

func read(t testing.TB, m *hosttree.Mem, name string) string {
	t.Helper()
	data, err := m.ReadFile(name)
	if err != nil {
		t.Error(err)
	}
	return strings.TrimSuffix(string(data), "\n")
}

// head is the part of a machine that most tests do not care about.
const head = "machine: m\ndescription: a machine\ncpu: {vendor: GenuineIntel, threads: 2}\nnuma: [{node: 0, cpus: 0-3, mem: 1GiB}]\n"

// TestGolden compares every file of a small machine with the golden file.
func TestGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/small.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := hosttree.WriteArchive(&got, tree(t, parse(t, string(text))), "small.machine, expanded"); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/small.tree", got.Bytes())
}

func TestExpansionIsStable(t *testing.T) {
	text, err := os.ReadFile("testdata/small.yaml")
	if err != nil {
		t.Fatal(err)
	}
	spec := parse(t, string(text))
	var first, second, third bytes.Buffer
	for b, s := range map[*bytes.Buffer]*machine.Spec{&first: spec, &second: spec, &third: parse(t, string(text))} {
		if err := hosttree.WriteArchive(b, tree(t, s), ""); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) || !bytes.Equal(first.Bytes(), third.Bytes()) {
		t.Error("two expansions differ")
	}
}

// TestLinks checks what both ends of a link show.
func TestLinks(t *testing.T) {
	m := tree(t, parse(t, head+`pci:
- root: 0000:10
  numa: 0
  below:
  - port: 10:00.0
    part: intel-port-gen4
    below:
    - {gpu: 11:00.0, part: h100-sxm}
  - port: 10:01.0
    below:
    - switch: 12:00.0
      part: broadcom-c030
      below:
      - down: 13:00.0
        below:
        - {gpu: 14:00.0, part: h100-sxm, at: x8}
      - down: 13:01.0
        link: gen4x4
        below:
        - {nvme: 15:00.0, part: nvme-1920, link: gen5x4}
      - {down: 13:02.0}
  - port: 10:02.0
    at: gen1
    below:
    - {nic: 16:00.0, part: connectx7}
  - port: 10:03.0
    part: qemu-port
    at: gen1x1
    below:
    - {gpu: 17:00.0, part: h100-sxm}
`))
	for address, want := range map[string]string{
		"10:00.0": "16.0 GT/s PCIe x16 of 16.0 GT/s PCIe x16",
		"11:00.0": "16.0 GT/s PCIe x16 of 32.0 GT/s PCIe x16", // the port's limit
		"12:00.0": "32.0 GT/s PCIe x16 of 32.0 GT/s PCIe x16",
		"13:00.0": "32.0 GT/s PCIe x8 of 32.0 GT/s PCIe x16", // a port shows the link below
		"14:00.0": "32.0 GT/s PCIe x8 of 32.0 GT/s PCIe x16",
		"13:01.0": "16.0 GT/s PCIe x4 of 16.0 GT/s PCIe x4",
		"15:00.0": "16.0 GT/s PCIe x4 of 32.0 GT/s PCIe x4",
		"13:02.0": "2.5 GT/s PCIe x0 of 32.0 GT/s PCIe x16", // nothing in the slot
		"10:02.0": "2.5 GT/s PCIe x16 of 32.0 GT/s PCIe x16",
		"16:00.0": "2.5 GT/s PCIe x16 of 32.0 GT/s PCIe x16",
		"10:03.0": "2.5 GT/s PCIe x1 of 16.0 GT/s PCIe x32", // a virtual port's link is its own
		"17:00.0": "32.0 GT/s PCIe x16 of 32.0 GT/s PCIe x16",
	} {
		d := "sys/bus/pci/devices/0000:" + address + "/"
		got := read(t, m, d+"current_link_speed") + " x" + read(t, m, d+"current_link_width") +
			" of " + read(t, m, d+"max_link_speed") + " x" + read(t, m, d+"max_link_width")
		if got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

// TestConfig reads configuration space as discovery does.
func TestConfig(t *testing.T) {
	m := tree(t, parse(t, head+`pci:
- root: 0000:10
  numa: 0
  below:
  - port: 10:00.0
    acs: 0x001d
    below:
    - switch: 11:00.0
      part: broadcom-c030
      below:
      - down: 12:00.0
        acs: 5d
        below:
        - {gpu: 13:00.0, part: h100-sxm}
`))
	sizes := map[string]int{"10:00.0": 4096, "11:00.0": 64, "12:00.0": 4096, "13:00.0": 64}
	portType := map[string]byte{"10:00.0": 4, "12:00.0": 6}
	control := map[string]byte{"10:00.0": 0x1d, "12:00.0": 0x5d}
	for address, size := range sizes {
		b, err := m.ReadFile("sys/bus/pci/devices/0000:" + address + "/config")
		if err != nil {
			t.Fatal(err)
		}
		if len(b) != size {
			t.Errorf("%s: %d bytes of configuration space, want %d", address, len(b), size)
		}
		if got := "0x" + strconv.FormatUint(uint64(b[1])<<8|uint64(b[0]), 16); got != read(t, m, "sys/bus/pci/devices/0000:"+address+"/vendor") {
			t.Errorf("%s: vendor %s in configuration space", address, got)
		}
		if size == 64 {
			continue
		}
		if b[0x34] != 0x40 || b[0x40] != 0x10 || b[0x42]>>4 != portType[address] {
			t.Errorf("%s: no PCI Express capability of type %d: %x", address, portType[address], b[0x40:0x44])
		}
		if got := b[0x100+3]; got != 0x14 || b[0x148] != 0x0d || b[0x14e] != control[address] {
			t.Errorf("%s: no ACS capability with control %#x: %x %x", address, control[address], b[0x100:0x104], b[0x148:0x150])
		}
	}
	b, _ := m.ReadFile("sys/bus/pci/devices/0000:10:00.0/config")
	if want := []byte{0x10, 0x11, 0x13}; !bytes.Equal(b[0x18:0x1b], want) {
		t.Errorf("bus numbers of the root port %x, want %x", b[0x18:0x1b], want)
	}
}

func TestCPUs(t *testing.T) {
	m := tree(t, parse(t, `machine: m
description: two sockets
cpu: {vendor: GenuineIntel, family: 6, model: 85, name: X, threads: 2}
numa:
- {node: 0, package: 0, cpus: "0-19,40-59", mem: 8GiB}
- {node: 1, package: 1, cpus: "20-39,60-79", mem: 8GiB}
- {node: 2, package: 1, mem: 16GiB, distance: [30, 20, 10]}
`))
	for name, want := range map[string]string{
		"sys/devices/system/cpu/online":                               "0-79",
		"sys/devices/system/cpu/cpu41/topology/thread_siblings_list":  "1,41",
		"sys/devices/system/cpu/cpu41/topology/physical_package_id":   "0",
		"sys/devices/system/cpu/cpu61/topology/core_siblings_list":    "20-39,60-79",
		"sys/devices/system/node/node1/cpumap":                        "ffff,f00000ff,fff00000",
		"sys/devices/system/node/node0/distance":                      "10 21 21",
		"sys/devices/system/node/node1/distance":                      "21 10 12",
		"sys/devices/system/node/node2/distance":                      "30 20 10",
		"sys/devices/system/node/node2/cpulist":                       "",
		"sys/devices/system/node/has_cpu":                             "0-1",
		"sys/devices/system/node/online":                              "0-2",
		"sys/devices/system/node/node1/cpu61/topology/core_cpus_list": "21,61",
	} {
		if got := read(t, m, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if info := read(t, m, "proc/cpuinfo"); strings.Count(info, "processor\t:") != 80 {
		t.Errorf("%d CPUs in /proc/cpuinfo, want 80", strings.Count(info, "processor\t:"))
	}
	if mem := read(t, m, "proc/meminfo"); !strings.Contains(mem, "MemTotal:       33554432 kB") {
		t.Errorf("meminfo: %s", mem)
	}
}

// TestGIDs checks the tables of the three kinds of port.
func TestGIDs(t *testing.T) {
	m := tree(t, parse(t, head+`pci:
- root: 0000:10
  numa: 0
  below:
  - {nic: 10:00.0, part: connectx7, layer: ib, rdma: mlx5_0, guid: a088:c203:0000:0001, lid: 12}
  - {nic: 10:01.0, part: connectx7, layer: eth, rdma: mlx5_1, net: eth1, mac: a0:88:c2:00:00:02, ip: [10.0.0.1/24, fd00::1/64]}
  - {nic: 10:02.0, part: efa, rdma: efa_0}
`))
	type port struct {
		Layer, LID, GID0, Type1, GID3, Last string
		Entries, Types                      int
	}
	got := map[string]port{}
	for _, dev := range []string{"mlx5_0", "mlx5_1", "efa_0"} {
		p := "sys/class/infiniband/" + dev + "/ports/1/"
		x := port{Layer: read(t, m, p+"link_layer"), LID: read(t, m, p+"lid"), GID0: read(t, m, p+"gids/0")}
		gids, err := m.ReadDir(p + "gids")
		if err != nil {
			t.Fatal(err)
		}
		types, _ := m.ReadDir(p + "gid_attrs/types")
		x.Entries, x.Types = len(gids), len(types)
		if x.Types > 1 {
			x.Type1, x.GID3 = read(t, m, p+"gid_attrs/types/1"), read(t, m, p+"gids/3")
		}
		x.Last = read(t, m, p+"gids/"+strconv.Itoa(x.Entries-1))
		got[dev] = x
	}
	zero := "0000:0000:0000:0000:0000:0000:0000:0000"
	want := map[string]port{
		"mlx5_0": {Layer: "InfiniBand", LID: "0xc", GID0: "fe80:0000:0000:0000:a088:c203:0000:0001", Entries: 256, Types: 1, Last: zero},
		"mlx5_1": {Layer: "Ethernet", LID: "0x0", GID0: "fe80:0000:0000:0000:a288:c2ff:fe00:0002", Type1: "RoCE v2",
			GID3: "0000:0000:0000:0000:0000:ffff:0a00:0001", Entries: 256, Types: 6, Last: zero},
	}
	efa := got["efa_0"]
	delete(got, "efa_0")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	if efa.Entries != 1 || efa.Types != 0 || efa.Layer != "Unspecified" {
		t.Errorf("EFA port: %+v", efa)
	}
	if _, err := m.Lstat("sys/class/infiniband/efa_0/ports/1/rate"); err == nil {
		t.Error("an EFA device has no rate file")
	}
}

func answers(t testing.TB, m *hosttree.Mem) (gpus replies.GPUReport, net replies.NetlinkReport) {
	t.Helper()
	for name, v := range map[string]any{replies.NVMLPath: &gpus, replies.NetlinkPath: &net} {
		data, err := m.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, v); err != nil {
			t.Fatal(err)
		}
	}
	return gpus, net
}

func TestAnswers(t *testing.T) {
	gpus, net := answers(t, tree(t, parse(t, head+`pci:
- root: 0000:10
  numa: 0
  below:
  - {gpu: 10:00.0, part: a100-sxm4-40, nvml-index: 1}
  - {gpu: 10:01.0, part: a100-sxm4-40, mig: [1g.5gb, 2g.10gb]}
  - {gpu: 10:02.0, part: a100-sxm4-40, driver: vfio-pci}
  - {nic: 10:03.0, part: connectx6-dx, net: eth0, ip: 10.0.0.1/24, sriov: 4}
  - {nic: 10:03.1, part: connectx7-vf, layer: eth, net: eth0v0, vf-of: 10:03.0}
nvlink:
- {gpus: [0, 1], links: 4}
p2p:
- {gpus: all, answer: ok}
- {gpus: [0, 1], answer: not supported}
interfaces:
- {name: eth0.5, kind: vlan, on: eth0, id: 5}
routes:
- {to: 0.0.0.0/0, dev: eth0, via: 10.0.0.254, metric: 3}
`)))
	if len(gpus.GPUs) != 2 || gpus.GPUs[0].BDF.String() != "0000:10:01.0" || gpus.GPUs[1].BDF.String() != "0000:10:00.0" {
		t.Fatalf("NVML order: %+v", gpus.GPUs)
	}
	first := gpus.GPUs[0]
	if len(first.NVLinks) != 4 || first.NVLinks[0].RemoteType != "gpu" || *first.NVLinks[0].RemoteBDF != gpus.GPUs[1].BDF {
		t.Errorf("NVLinks: %+v", first.NVLinks)
	}
	if diff := cmp.Diff(map[int]string{1: "not supported"}, first.P2P); diff != "" {
		t.Errorf("P2P (-want +got): %s", diff)
	}
	if first.MIG == nil || len(first.MIG.Instances) != 2 || *first.MIG.Instances[1].MemoryBytes != 10<<30 {
		t.Errorf("MIG: %+v", first.MIG)
	}
	byName := map[string]replies.Link{}
	for _, l := range net.Links {
		byName[l.Name] = l
	}
	if len(byName["eth0"].VFs) != 1 || byName["eth0.5"].Parent != byName["eth0"].Index || *byName["eth0.5"].VLANID != 5 {
		t.Errorf("links: %+v", net.Links)
	}
	want := []replies.Route{{Link: byName["eth0"].Index, Dst: "10.0.0.0/24"}, {Link: byName["eth0"].Index, Dst: "0.0.0.0/0", Gateway: "10.0.0.254", Metric: 3}}
	if diff := cmp.Diff(want, net.Routes); diff != "" {
		t.Errorf("routes (-want +got): %s", diff)
	}
}

func TestNoNVIDIADriverMeansNoAnswers(t *testing.T) {
	m := tree(t, parse(t, head+"pci:\n- root: 0000:10\n  numa: 0\n  below:\n  - {gpu: 10:00.0, part: h100-sxm, driver: none}\n"))
	if _, err := m.Lstat(replies.NVMLPath); err == nil {
		t.Error("a machine whose GPU has no driver has NVML answers")
	}
	if _, err := m.Lstat("proc/driver/nvidia"); err == nil {
		t.Error("a machine whose GPU has no driver has /proc/driver/nvidia")
	}
}

func TestXGMI(t *testing.T) {
	m := tree(t, parse(t, head+"pci:\n- root: 0000:10\n  numa: 0\n  below:\n  - {gpu: 10:00.0, part: mi300x}\n  - {gpu: 10:01.0, part: mi300x}\nxgmi:\n- {gpus: all, links: 1}\n"))
	nodes := "sys/class/kfd/kfd/topology/nodes/"
	if got := read(t, m, nodes+"1/io_links/1/properties"); !strings.Contains(got, "type 11\n") || !strings.Contains(got, "node_to 2\n") {
		t.Errorf("xGMI link: %s", got)
	}
	if got := read(t, m, nodes+"2/properties"); !strings.Contains(got, "location_id 4104\n") || !strings.Contains(got, "gfx_target_version 90402\n") {
		t.Errorf("GPU node: %s", got)
	}
}

func TestPatches(t *testing.T) {
	m := tree(t, parse(t, head+`pci:
- root: 0000:10
  numa: 0
  below:
  - {gpu: 10:00.0, part: h100-sxm}
  - {nic: 10:01.0, part: connectx7, layer: eth, rdma: mlx5_0, net: eth0}
patches:
- {set: sys/bus/pci/devices/*/numa_node, to: -1}
- {set: /sys/class/net/eth0/new, to: "two\nlines"}
- {set: sys/class/net/eth0/address, to: ""}
- {remove: sys/bus/pci/devices/0000:10:00.0/class}
- {remove: sys/class/infiniband/mlx5_0/ports}
- {link: sys/class/net/eth0/master, to: ../nowhere}
- {unreadable: sys/class/net/eth0/speed, error: EINVAL}
- {unreadable: sys/class/infiniband_verbs/uverbs0, error: EACCES}
- {move: sys/class/infiniband/mlx5_0, to: sys/devices/virtual/infiniband/mlx5_0}
`))
	if a, b := read(t, m, "sys/bus/pci/devices/0000:10:00.0/numa_node"), read(t, m, "sys/bus/pci/devices/0000:10:01.0/numa_node"); a+b != "-1-1" {
		t.Errorf("numa_node %q and %q, want -1", a, b)
	}
	if got := read(t, m, "sys/class/net/eth0/new"); got != "two\nlines" {
		t.Errorf("new file: %q", got)
	}
	if got, err := m.ReadFile("sys/class/net/eth0/address"); err != nil || len(got) != 0 {
		t.Errorf("emptied file: %q, %v", got, err)
	}
	for _, gone := range []string{"sys/bus/pci/devices/0000:10:00.0/class", "sys/class/infiniband/mlx5_0/ports", "sys/devices/pci0000:10/0000:10:01.0/infiniband"} {
		if _, err := fs.Stat(m, gone); err == nil {
			t.Errorf("%s is still there", gone)
		}
	}
	if got, _ := m.ReadLink("sys/class/net/eth0/master"); got != "../nowhere" {
		t.Errorf("link: %q", got)
	}
	if _, err := m.ReadFile("sys/class/net/eth0/speed"); err == nil || !strings.Contains(err.Error(), "invalid argument") {
		t.Errorf("unreadable file: %v", err)
	}
	if _, err := m.ReadDir("sys/class/infiniband_verbs/uverbs0"); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("unreadable directory: %v", err)
	}
	real, err := hosttree.RealPath(m, "sys/class/infiniband/mlx5_0")
	if err != nil || real != "sys/devices/virtual/infiniband/mlx5_0" {
		t.Errorf("moved to %s, %v", real, err)
	}
	if real, err := hosttree.RealPath(m, "sys/class/infiniband/mlx5_0/device"); err != nil || path.Base(real) != "0000:10:01.0" {
		t.Errorf("a moved link leads to %s, %v", real, err)
	}
}

func TestVariant(t *testing.T) {
	base := parse(t, head+"pci:\n- root: 0000:10\n  numa: 0\n  below:\n  - port: 10:01.0\n    below:\n    - {gpu: 11:00.0, part: h100-sxm, nvlink: 2}\npatches:\n- {remove: proc/version}\n")
	variant := parse(t, "machine: slow\ndescription: a slow one\nbase: m\npatches:\n- {change: 0000:11:00.0, at: x4, nvlink: 1}\n- {set: proc/cmdline, to: quiet}\n")
	if _, err := variant.Tree(); err == nil || !strings.Contains(err.Error(), "variant of m") {
		t.Errorf("Tree of a variant without its base: %v", err)
	}
	whole, err := variant.On(base)
	if err != nil {
		t.Fatal(err)
	}
	if whole.Name != "slow" || whole.Description != "a slow one" || variant.Base != "m" || whole.Base != "" {
		t.Errorf("name %q, description %q, base %q", whole.Name, whole.Description, whole.Base)
	}
	was, is := tree(t, base), tree(t, whole)
	if got := read(t, is, "sys/bus/pci/devices/0000:10:01.0/current_link_width"); got != "4" {
		t.Errorf("width of the port above: %s, want 4", got)
	}
	if got := read(t, was, "sys/bus/pci/devices/0000:10:01.0/current_link_width"); got != "16" {
		t.Errorf("the base has changed: width %s", got)
	}
	if _, err := is.Lstat("proc/version"); err == nil || read(t, is, "proc/cmdline") != "quiet" {
		t.Error("the patches of base and variant were not both applied")
	}
	a, _ := answers(t, was)
	b, _ := answers(t, is)
	if a.GPUs[0].UUID != b.GPUs[0].UUID {
		t.Error("a variant has other made-up identifiers than its base")
	}
	if *b.GPUs[0].PCIeWidth != 4 || len(b.GPUs[0].NVLinks) != 1 {
		t.Errorf("NVML of the variant: %+v", b.GPUs[0])
	}
	if _, err := parse(t, "machine: x\ndescription: x\nbase: m\npatches:\n- {change: 12:00.0, at: x4}\n").On(base); err == nil || !strings.Contains(err.Error(), "line 5, column 3: change: there is no function 0000:12:00.0") {
		t.Errorf("change of nothing: %v", err)
	}
}
