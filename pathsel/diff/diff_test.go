package diff_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/formats/hwlocxml"
	"github.com/topoctl/topoctl/discover/formats/ncclxml"
	"github.com/topoctl/topoctl/discover/formats/texts"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/redact"
	"github.com/topoctl/topoctl/pathsel/diff"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
)

// machine discovers a host that ships with topoctl ("fixture:NAME"), or one that
// is written down.
func machine(t testing.TB, text string) *topo.Topology {
	t.Helper()
	if name, ok := strings.CutPrefix(text, "fixture:"); ok {
		return fixturetest.Topology(t, name)
	}
	return fixturetest.Spec(t, text)
}

// again gives a copy that shares nothing with t.
func again(t testing.TB, top *topo.Topology) *topo.Topology {
	t.Helper()
	data, err := top.Encode()
	if err != nil {
		t.Fatal(err)
	}
	out, err := topo.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func compare(t testing.TB, older, newer *topo.Topology, o diff.Options) *diff.Report {
	t.Helper()
	if o.OldLabel == "" {
		o.OldLabel, o.NewLabel = "old.json", "new.json"
	}
	r, err := diff.Compare(older, newer, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// box is a host small enough to be read: two sockets, two GPUs, four cards, one
// of them with two ports, and a drive. Lines can be taken out and put elsewhere.
const box = `machine: box
description: a host to be changed
host: {arch: x86_64, kernel: 6.1.0, vendor: ACME, product: Box, name: box1, iommu: identity}
cpu: {vendor: GenuineIntel, family: 6, model: 143, name: Intel(R) Xeon(R), threads: 1}
numa:
- {node: 0, package: 0, cpus: 0-7, mem: 64GiB, distance: [10, 21]}
- {node: 1, package: 1, cpus: 8-15, mem: 64GiB, distance: [21, 10]}
nvidia: {driver: 560.35, cuda: 12.6}
modules: [nvidia_peermem]
pci:
- root: 0000:10
  numa: 0
  below:
  - port: 10:01.0
    below:
    - switch: 11:00.0
      part: broadcom-c030
      below:
      - down: 12:00.0
        below:
        - {gpu: 13:00.0, part: h100-sxm, uuid: GPU-aaaaaaaa-0000-0000-0000-000000000001, serial: 1650000000001}
      - down: 12:01.0
        below:
        - {nic: 14:00.0, part: connectx7, layer: eth, gbps: 400, rdma: mlx5_0, net: ens1, guid: a088:c203:0001:0000, mac: a0:88:c2:01:00:00, ip: 10.1.0.1/24}
  - port: 10:02.0
    below:
    - {nic: 15:00.0, part: connectx7, layer: eth, gbps: 400, rdma: mlx5_1, net: ens2, guid: a088:c203:0002:0000, mac: a0:88:c2:02:00:00, ip: 10.2.0.1/24}
  - port: 10:03.0
    below:
    - {nvme: 16:00.0, part: nvme-3840}
- root: 0000:20
  numa: 1
  below:
  - port: 20:01.0
    below:
    - switch: 21:00.0
      part: broadcom-c030
      below:
      - down: 22:00.0
        below:
        - {gpu: 23:00.0, part: h100-sxm, uuid: GPU-aaaaaaaa-0000-0000-0000-000000000002, serial: 1650000000002}
      - down: 22:01.0
        below:
        - {nic: 24:00.0, part: connectx7, layer: eth, gbps: 400, rdma: mlx5_2, net: ens3, guid: a088:c203:0003:0000, mac: a0:88:c2:03:00:00, ip: 10.3.0.1/24}
  - port: 20:02.0
    below:
    - {nic: 25:00.0, part: connectx7, layer: ib, gbps: 200, rdma: mlx5_3, net: ib0, guid: a088:c203:0004:0000, lid: 7}
    - {nic: 25:00.1, part: connectx7, layer: ib, gbps: 200, rdma: mlx5_4, net: ib1, guid: a088:c203:0004:0001, lid: 8}
  - {port: 20:03.0}
nvlink:
- {gpus: [0, 1], links: 4}
`

// swap changes a text, which must hold what is replaced.
func swap(t testing.TB, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("%q is not in the text", pairs[i])
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	return text
}

const (
	nic1 = "    - {nic: 15:00.0, part: connectx7, layer: eth, gbps: 400, rdma: mlx5_1, net: ens2, guid: a088:c203:0002:0000, mac: a0:88:c2:02:00:00, ip: 10.2.0.1/24}\n"
	gpu0 = "        - {gpu: 13:00.0, part: h100-sxm, uuid: GPU-aaaaaaaa-0000-0000-0000-000000000001, serial: 1650000000001}\n"
)

// Transcripts: two machines and what is said of them.
func TestTranscripts(t *testing.T) {
	other := func(t *testing.T, more ...string) string {
		text := swap(t, box, "name: box1", "name: box2")
		for i, old := range []string{"aaaaaaaa", "aaaaaaaa", "1650000000001", "1650000000002", "a088:c203:0001", "a088:c203:0002", "a088:c203:0003",
			"a088:c203:0004", "a088:c203:0004", "c2:01", "c2:02", "c2:03", "10.1.0.1", "10.2.0.1", "10.3.0.1", "lid: 7", "lid: 8"} {
			text = swap(t, text, old, []string{"bbbbbbbb", "bbbbbbbb", "1660000000001", "1660000000002", "b088:c203:0001", "b088:c203:0002", "b088:c203:0003",
				"b088:c203:0004", "b088:c203:0004", "c2:11", "c2:12", "c2:13", "10.1.0.2", "10.2.0.2", "10.3.0.2", "lid: 17", "lid: 18"}[i])
		}
		return swap(t, text, more...)
	}
	dgx := func(name string) [2]string { return [2]string{"fixture:dgx-h100", "fixture:" + name} }
	for _, tt := range []struct {
		name string
		pair [2]string
		o    diff.Options
	}{
		{"gpu-x8", dgx("dgx-h100-gpu2-x8"), diff.Options{}},
		{"nic-gen1", dgx("dgx-h100-nic-gen1"), diff.Options{}},
		{"port-down", dgx("dgx-h100-port-down"), diff.Options{}},
		{"numa-unknown", dgx("dgx-h100-numa-unknown"), diff.Options{}},
		{"rdma-no-pci", dgx("dgx-h100-rdma-no-pci"), diff.Options{}},
		{"missing-files", dgx("dgx-h100-missing-files"), diff.Options{}},
		{"other-model", dgx("dgx-a100"), diff.Options{}},
		{"other-model-structure", dgx("dgx-a100"), diff.Options{Structure: true}},
		{"nic-renamed", [2]string{box, swap(t, box, "mlx5_0", "rdma_a")}, diff.Options{}},
		{"nics-renumbered", [2]string{box, swap(t, box, "mlx5_4", "mlx5_14", "mlx5_3", "mlx5_13", "mlx5_2", "mlx5_12", "mlx5_1,", "mlx5_11,", "mlx5_0", "mlx5_10")}, diff.Options{}},
		{"nics-swapped", [2]string{box, swap(t, box, "mlx5_1,", "mlx5_x,", "mlx5_0", "mlx5_1", "mlx5_x,", "mlx5_0,")}, diff.Options{}},
		{"nic-moved", [2]string{box, swap(t, box, nic1, "", "  - {port: 20:03.0}\n", "  - port: 20:03.0\n    below:\n"+strings.Replace(nic1, "15:00.0", "26:00.0", 1))}, diff.Options{}},
		{"nic-replaced", [2]string{box, swap(t, box, "a088:c203:0001:0000", "a088:c203:0009:0000", "a0:88:c2:01", "a0:88:c2:09")}, diff.Options{}},
		{"nic-gone", [2]string{box, swap(t, box, nic1, "")}, diff.Options{}},
		{"gpu-replaced", [2]string{box, swap(t, box, "000000000001", "000000000009", "1650000000001", "1650000000009")}, diff.Options{}},
		{"gpu-other-model", [2]string{box, swap(t, box, "h100-sxm, uuid: GPU-aaaaaaaa-0000-0000-0000-000000000002", "h200-sxm, uuid: GPU-aaaaaaaa-0000-0000-0000-000000000009")}, diff.Options{}},
		{"gpu-missing", [2]string{box, swap(t, box, gpu0, "", "nvlink:\n- {gpus: [0, 1], links: 4}\n", "")}, diff.Options{}},
		{"bus-numbers", [2]string{swap(t, box, "    - {nvme: 16:00.0, part: nvme-3840}\n", ""), shiftBuses(swap(t, box, "    - {nvme: 16:00.0, part: nvme-3840}\n", ""))}, diff.Options{}},
		{"settings", [2]string{box, swap(t, box, "kernel: 6.1.0", "kernel: 6.8.0", "iommu: identity", "iommu: DMA-FQ, cmdline: ro intel_iommu=on, memlock: 8388608", "modules: [nvidia_peermem]\n", "",
			"560.35", "570.86", "ip: 10.1.0.1/24", "ip: 10.1.0.1/24, fw: 28.41.1000, mtu: 9000, pkeys: [0xffff, 0x8001], tc: 106", "links: 4", "links: 2")}, diff.Options{}},
		{"address", [2]string{box, swap(t, box, "ip: 10.2.0.1/24", "ip: 10.2.0.77/24")}, diff.Options{}},
		{"gid-index", [2]string{box, box + "patches:\n- {set: sys/class/infiniband/mlx5_1/ports/1/gids/3, to: 0000:0000:0000:0000:0000:0000:0000:0000}\n" +
			"- {set: sys/class/infiniband/mlx5_1/ports/1/gids/5, to: 0000:0000:0000:0000:0000:ffff:0a02:0001}\n" +
			"- {set: sys/class/infiniband/mlx5_1/ports/1/gid_attrs/types/5, to: RoCE v2}\n"}, diff.Options{}},
		{"acs-and-numa", [2]string{swap(t, box, "iommu: identity", "iommu: identity, config: full"), swap(t, box, "iommu: identity", "iommu: identity, config: full", "down: 12:01.0", "down: 12:01.0\n        acs: 0x001d", "nic: 15:00.0", "nic: 15:00.0, numa: 1")}, diff.Options{}},
		{"without-root", [2]string{swap(t, box, "iommu: identity", "iommu: identity, config: full", "down: 12:01.0", "down: 12:01.0\n        acs: 0x001d"), box}, diff.Options{}},
		{"other-host", [2]string{box, other(t)}, diff.Options{}},
		{"other-host-one-difference", [2]string{box, other(t, "gpu: 23:00.0", "gpu: 23:00.0, at: x8", "kernel: 6.1.0", "kernel: 6.2.0")}, diff.Options{}},
		{"other-host-structure", [2]string{box, other(t, "gpu: 23:00.0", "gpu: 23:00.0, at: x8", "kernel: 6.1.0", "kernel: 6.2.0", "mlx5_2", "mlx5_9")}, diff.Options{Structure: true}},
		{"ignored", [2]string{box, swap(t, box, "kernel: 6.1.0", "kernel: 6.8.0", "mlx5_0", "rdma_a")}, diff.Options{Ignore: []string{"renumbered", "kernel"}}},
		{"gpu-worse-nic-better", [2]string{swap(t, box, "nic: 14:00.0", "nic: 14:00.0, at: gen1"), swap(t, box, "gpu: 13:00.0", "gpu: 13:00.0, at: x4")}, diff.Options{}},
		{"nothing", [2]string{box, box}, diff.Options{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := compare(t, machine(t, tt.pair[0]), machine(t, tt.pair[1]), tt.o)
			golden.Check(t, "testdata/"+tt.name+".txt", r.Text(diff.TextOptions{All: true}))
		})
	}
}

// shiftBuses adds one to every bus number, as a card in front does.
func shiftBuses(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		for bus := 0x26; bus >= 0x10; bus-- {
			for _, before := range []string{" ", ":"} {
				line = strings.ReplaceAll(line, fmt.Sprintf("%s%02x:0", before, bus), fmt.Sprintf("%s%02x:0", before, bus+1))
			}
			line = strings.ReplaceAll(line, fmt.Sprintf("root: 0000:%02x", bus), fmt.Sprintf("root: 0000:%02x", bus+1))
		}
		out.WriteString(line)
	}
	return out.String()
}

// changed is a copy of a topology with something done to it.
func changed(t testing.TB, top *topo.Topology, f func(*topo.Topology)) *topo.Topology {
	t.Helper()
	out := again(t, top)
	f(out)
	derive(out)
	return out
}

// Transcripts of what a machine's description cannot say.
func TestOtherTranscripts(t *testing.T) {
	plain := machine(t, box)
	through := func(top *topo.Topology) *topo.Topology {
		var xml bytes.Buffer
		if err := ncclxml.Encode(&xml, top); err != nil {
			t.Fatal(err)
		}
		out, err := ncclxml.Decode(xml.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	xml, err := os.ReadFile("testdata/box.hwloc.xml") // the same machine, as lstopo writes it
	if err != nil {
		t.Fatal(err)
	}
	hwloc, err := hwlocxml.Decode(xml)
	if err != nil {
		t.Fatal(err)
	}
	matrix := func(text string) *topo.Topology {
		out, err := texts.Decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	redacted := func(top *topo.Topology) *topo.Topology { return redact.New(top).Topology(top) }
	renumbered := machine(t, swap(t, box, "mlx5_1,", "mlx5_x,", "mlx5_0", "mlx5_1", "mlx5_x,", "mlx5_0,"))
	replaced := machine(t, swap(t, box, "000000000001", "000000000009", "1650000000001", "1650000000009"))
	const smi = "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV18\tPIX\tSYS\t0-7\t0\n" +
		"GPU1\tNV18\t X \tSYS\tPIX\t8-15\t1\nNIC0\tPIX\tSYS\t X \tSYS\nNIC1\tSYS\tPIX\tSYS\t X \n\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_2\n"
	for _, tt := range []struct {
		name         string
		older, newer *topo.Topology
	}{
		{"redacted-both", redacted(plain), redacted(machine(t, swap(t, box, "gpu: 13:00.0", "gpu: 13:00.0, at: x8")))},
		{"redacted-one-renamed", plain, redacted(renumbered)},
		{"redacted-hides-replaced", redacted(plain), redacted(replaced)},
		{"import-nccl", plain, through(plain)},
		{"import-nccl-x8", through(plain), through(machine(t, swap(t, box, "nic: 14:00.0", "nic: 14:00.0, link: gen5x8")))},
		{"import-hwloc", plain, hwloc},
		{"import-nvsmi", plain, matrix(smi)},
		{"import-nvsmi-both", matrix(smi), matrix(strings.ReplaceAll(smi, "PIX", "NODE"))},
		{"virtual-functions", machine(t, "fixture:sriov-pf-vf"), changed(t, machine(t, "fixture:sriov-pf-vf"), withoutVFs)},
		{"bond", machine(t, "fixture:bonds"), changed(t, machine(t, "fixture:bonds"), func(top *topo.Topology) {
			for i := range top.Netdevs {
				if b := top.Netdevs[i].Bond; b != nil {
					b.Mode = "active-backup"
				}
			}
		})},
		{"gpu-unread", plain, changed(t, plain, func(top *topo.Topology) {
			top.Links, top.GPUs = nil, top.GPUs[1:]
			top.GPUs[0].ID, top.GPUs[0].Index = "gpu:0", 0
			top.Complete = false
			top.Warnings = append(top.Warnings, topo.Warning{Code: topo.CodeUnreadable, Subject: "pci:0000:13:00.0", Detail: "class: input/output error",
				Evidence: "/sys/bus/pci/devices/0000:13:00.0/class"})
		})},
		{"no-nvml", plain, changed(t, plain, withoutNVML)},
		{"gpu-moved-no-nvml", plain, changed(t, machine(t, swap(t, box, gpu0, "", "nvlink:\n- {gpus: [0, 1], links: 4}\n", "",
			"  - {port: 20:03.0}\n", "  - port: 20:03.0\n    below:\n"+strings.Replace(gpu0[4:], "13:00.0", "26:00.0", 1))), withoutNVML)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			golden.Check(t, "testdata/"+tt.name+".txt", compare(t, tt.older, tt.newer, diff.Options{}).Text(diff.TextOptions{All: true}))
		})
	}
}

// withoutNVML takes away what only NVIDIA's library says.
func withoutNVML(top *topo.Topology) {
	top.Links = nil
	for i := range top.GPUs {
		g := &top.GPUs[i]
		g.UUID, g.Serial, g.NVMLIndex, g.P2P, g.ComputeCap, g.CPUAffinity, g.MemoryBytes = "", "", nil, nil, "", "", nil
	}
	top.Host.GPUDriver = ""
	for i := range top.Sources {
		if s := &top.Sources[i]; s.Source == topo.SourceNVML {
			s.Status, s.Detail = topo.StatusAbsent, "no libnvidia-ml.so.1"
		}
	}
}

// withoutVFs takes all virtual functions away.
func withoutVFs(top *topo.Topology) {
	gone := map[topo.ID]bool{}
	top.PCIDevices = slices.DeleteFunc(top.PCIDevices, func(d topo.PCIDevice) bool {
		gone[d.ID] = d.PF != ""
		return d.PF != ""
	})
	top.RDMADevices = slices.DeleteFunc(top.RDMADevices, func(r topo.RDMADevice) bool {
		gone[r.ID] = gone[r.PCI]
		return gone[r.PCI]
	})
	top.Ports = slices.DeleteFunc(top.Ports, func(p topo.Port) bool { return gone[p.RDMA] })
	top.Netdevs = slices.DeleteFunc(top.Netdevs, func(n topo.Netdev) bool { return gone[n.PCI] })
	zero := 0
	for i := range top.PCIDevices {
		if s := top.PCIDevices[i].SRIOV; s != nil {
			s.NumVFs, s.VFs = &zero, nil
		}
	}
}
