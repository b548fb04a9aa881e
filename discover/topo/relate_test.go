package topo_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
)

func TestRelateClasses(t *testing.T) {
	tests := []struct {
		name    string
		machine string
		a, b    topo.ID
		class   string
		nccl    topo.NCCLClass
		hops    int
	}{
		{"self", twoSockets, "gpu:0", "gpu:0", "X", "LOC", 0},
		{"one switch", twoSockets, "gpu:0", "rdma:mlx5_0", "PIX", "PIX", 2},
		{"nested switch", twoSockets, "gpu:1", "rdma:mlx5_0", "PXB", "PXB", 3},
		{"GPUs across nested switch", twoSockets, "gpu:0", "gpu:1", "PXB", "PXB", 3},
		{"same host bridge, other root port", twoSockets, "gpu:0", "rdma:mlx5_1", "PHB", "PHB", 4},
		{"two ports of one card", twoSockets, "rdma:mlx5_1", "rdma:mlx5_2", "PIX", "PIX", 2},
		{"other host bridge, same node", twoSockets, "gpu:0", "rdma:mlx5_3", "NODE", "PHB", 5},
		{"other socket", twoSockets, "gpu:0", "rdma:mlx5_10", "SYS", "SYS", 6},
		{"node and its NIC", twoSockets, "numa:0", "rdma:mlx5_0", "PHB", "PHB", 3},
		{"node and the other's NIC", twoSockets, "numa:1", "rdma:mlx5_0", "SYS", "SYS", 4},
		{"two nodes", twoSockets, "numa:0", "numa:1", "SYS", "SYS", 1},
		{"a node that is not there", twoSockets, "gpu:9", "numa:0", "", "", -1},

		{"NUMA unknown, several nodes", "numa 0\nnuma 1\nhb 0000:10\nhb 0000:20\ngpu 10:01.0 < 0000:10\nnic 20:01.0 < 0000:20 mlx5_0",
			"gpu:0", "rdma:mlx5_0", "", "PHB", -1},
		{"NUMA unknown, one node", "numa 0\nhb 0000:10\nhb 0000:20\ngpu 10:01.0 < 0000:10\nnic 20:01.0 < 0000:20 mlx5_0",
			"gpu:0", "rdma:mlx5_0", "NODE", "PHB", -1},
		{"NUMA unknown, flat tree", "numa 0\nnuma 1\nhb 0000:00\ngpu 00:01.0 < 0000:00\nnic 00:02.0 < 0000:00 mlx5_0",
			"gpu:0", "rdma:mlx5_0", "PHB", "PHB", 1},
		{"NUMA known on one side only", "numa 0\nnuma 1\nhb 0000:10 numa0\nhb 0000:20\ngpu 10:01.0 < 0000:10 numa0\nnic 20:01.0 < 0000:20 mlx5_0",
			"gpu:0", "rdma:mlx5_0", "", "SYS", -1},
		{"one domain per device", "numa 0\nhb 0001:00 numa0\nhb 0101:00 numa0\ngpu 0001:00:00.0 < 0001:00 numa0\nnic 0101:00:00.0 < 0101:00 mlx5_0 numa0",
			"gpu:0", "rdma:mlx5_0", "NODE", "PHB", 2},
		{"one card, its port left out", "numa 0\nhb 0003:00 numa0\nnic 0003:01:00.0 < 0003:00 mlx5_0 numa0\nnic 0003:01:00.1 < 0003:00 mlx5_1 numa0",
			"rdma:mlx5_0", "rdma:mlx5_1", "PIX", "PIX", -1},
		{"two cards, their ports left out", "numa 0\nhb 0003:00 numa0\nnic 0003:01:00.0 < 0003:00 mlx5_0 numa0\nnic 0003:02:00.0 < 0003:00 mlx5_1 numa0",
			"rdma:mlx5_0", "rdma:mlx5_1", "PHB", "PHB", 1},
		{"one device on the root bus", "numa 0\nhb 0000:00 numa0\nnic 00:05.0 < 0000:00 mlx5_0 numa0\nnic 00:05.1 < 0000:00 mlx5_1 numa0",
			"rdma:mlx5_0", "rdma:mlx5_1", "PHB", "PIX", 1},
		{"one device on a root bus above 0", "numa 0\nhb 0000:80 numa0\nnic 80:05.0 < 0000:80 mlx5_0 numa0\nnic 80:05.1 < 0000:80 mlx5_1 numa0",
			"rdma:mlx5_0", "rdma:mlx5_1", "PHB", "PIX", 1},
		{"conventional bridge", "numa 0\nhb 0000:00 numa0\nport 00:01.0 < 0000:00\nport 01:00.0 < 00:01.0\ngpu 02:01.0 < 01:00.0 numa0\nnic 02:02.0 < 01:00.0 mlx5_0 numa0",
			"gpu:0", "rdma:mlx5_0", "PIX", "PIX", 2},
		{"VF and its PF", "numa 0\nhb 0000:00 numa0\nport 00:01.0 < 0000:00\nnic 01:00.0 < 00:01.0 mlx5_0 numa0\nnic 01:00.1 < 00:01.0 mlx5_1 numa0 vf=01:00.0",
			"rdma:mlx5_0", "rdma:mlx5_1", "PIX", "PIX", 2},

		{"NVLinks between two GPUs", twoSockets + "nvlink 0 1 4", "gpu:0", "gpu:1", "NV4", "NVL", 1},
		{"NVLinks of two GPUs to one CPU join it, not each other", twoSockets + "nvlinkcpu 0 0 3\nnvlinkcpu 1 0 3", "gpu:0", "gpu:1", "PXB", "PXB", 3},
		{"NVLinks to the CPU", twoSockets + "nvlinkcpu 0 0 3", "gpu:0", "numa:0", "NV3", "NVL", 1},
		{"NVSwitches", twoSockets + "fabric 0 18\nfabric 1 12", "gpu:1", "gpu:0", "NV12", "NVL", 2},
		{"C2C to its own node", twoSockets + "c2c 0 0", "numa:0", "gpu:0", "C2C", "C2C", 1},
		{"C2C GPU and a NIC on its CPU", twoSockets + "c2c 0 0", "gpu:0", "rdma:mlx5_3", "NODE", "P2C", 3},
		{"C2C GPU and a NIC on the other CPU", twoSockets + "c2c 0 0", "gpu:0", "rdma:mlx5_10", "SYS", "SYS", 4},
		{"NVLink over a third GPU", twoSockets + "gpu 32:00.0 < 30:01.0 numa1\nnvlink 0 1 2\nnvlink 1 2 2", "gpu:0", "gpu:2", "SYS", "NVB", 6},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			topology := build(t, tt.machine)
			got := topology.Relate(tt.a, tt.b)
			if got.Class.String() != tt.class || got.NCCL != tt.nccl || hopsOf(got) != tt.hops {
				t.Errorf("%s to %s: class %q nccl %q hops %d, want %q %q %d", tt.a, tt.b,
					got.Class, got.NCCL, hopsOf(got), tt.class, tt.nccl, tt.hops)
			}
		})
	}
}

// Two-level Broadcom switches are one chip: NCCL calls PIX what crosses both. Those of Gen5 tell
// their level, those of Gen4 do not.
func TestBroadcomIsFlattenedForNCCLOnly(t *testing.T) {
	const switches = `
numa 0
hb 0000:10 numa0
port 10:01.0 < 0000:10
port 11:00.0 < 10:01.0 UPPER
port 12:00.0 < 11:00.0 UPPER
port 12:01.0 < 11:00.0 UPPER
port 13:00.0 < 12:00.0 LOWER
port 14:00.0 < 13:00.0 LOWER
gpu 15:00.0 < 14:00.0 numa0
port 16:00.0 < 12:01.0 LOWER
port 17:00.0 < 16:00.0 LOWER
nic 18:00.0 < 17:00.0 mlx5_0 numa0
`
	for name, level := range map[string]struct {
		upper, lower string
		nccl         topo.NCCLClass
	}{
		"gen5":                   {"bcm=0x0072", "bcm=0x1003", "PIX"},
		"gen5, both upper":       {"bcm=0x0072", "bcm=0x0072", "PXB"},
		"gen4":                   {"bcm4=0xa000", "bcm4=0xa000", "PIX"},
		"gen4, another function": {"bcm4=0xa012", "bcm4=0xa034", "PIX"},
		"gen4, another product":  {"bcm4=0xb000", "bcm4=0xb000", "PXB"},
	} {
		topology := build(t, strings.NewReplacer("UPPER", level.upper, "LOWER", level.lower).Replace(switches))
		got := topology.Relate("gpu:0", "rdma:mlx5_0")
		if got.Class.Kind != topo.ClassPXB || got.NCCL != level.nccl {
			t.Errorf("%s: class %q nccl %q, want PXB and %s", name, got.Class, got.NCCL, level.nccl)
		}
	}
}

func TestExpectedRate(t *testing.T) {
	const gen5x16, gen4x16 = topo.Rate(63015384615), topo.Rate(31507692307)
	port := func(extra string) string {
		return "numa 0\nhb 0000:10 numa0\nport 10:01.0 < 0000:10 gen5x16\nport 11:00.0 < 10:01.0 gen5x16\n" +
			"port 12:00.0 < 11:00.0 gen5x16\nport 12:01.0 < 11:00.0 gen5x16\n" + extra
	}
	tests := []struct {
		name    string
		machine string
		a, b    topo.ID
		rate    topo.Rate // -1: unknown
		limit   topo.LinkID
		basis   topo.Basis
	}{
		{"the NIC's port", twoSockets, "gpu:0", "rdma:mlx5_0", 50e9, "port:mlx5_0/1", "read"},
		{"the slot, to memory", twoSockets, "numa:0", "rdma:mlx5_3", gen4x16, "pcie:0000:21:00.0", "read"},
		{"across the root complex it is an upper bound", twoSockets, "gpu:0", "rdma:mlx5_3", gen4x16, "pcie:0000:21:00.0", "bound"},
		{"an x8 GPU", port("gpu 13:00.0 < 12:00.0 numa0 gen5x8/gen5x16\nnic 14:00.0 < 12:01.0 mlx5_0 numa0 gen5x16 rate=50000000000"),
			"gpu:0", "rdma:mlx5_0", gen5x16 / 2, "pcie:0000:13:00.0", "read"},
		{"an idle GPU at Gen1 counts at its maximum speed", port("gpu 13:00.0 < 12:00.0 numa0 gen1x16/gen5x16\nnic 14:00.0 < 12:01.0 mlx5_0 numa0 gen5x16 rate=50000000000"),
			"gpu:0", "rdma:mlx5_0", 50e9, "port:mlx5_0/1", "read"},
		{"a NIC at Gen1 counts as it is", port("gpu 13:00.0 < 12:00.0 numa0 gen5x16\nnic 14:00.0 < 12:01.0 mlx5_0 numa0 gen1x16/gen5x16 rate=50000000000"),
			"gpu:0", "rdma:mlx5_0", 4e9, "pcie:0000:14:00.0", "read"},
		{"a port that is down carries nothing", port("gpu 13:00.0 < 12:00.0 numa0 gen5x16\nnic 14:00.0 < 12:01.0 mlx5_0 numa0 gen5x16 rate=50000000000 down"),
			"gpu:0", "rdma:mlx5_0", 0, "port:mlx5_0/1", "read"},
		{"a virtual port's invented rate is not believed, the device's is", port("port 12:04.0 < 11:00.0 gen1x1 implausible\ngpu 13:00.0 < 12:04.0 numa0 gen4x16\nnic 14:00.0 < 12:01.0 mlx5_0 numa0 gen5x16 rate=50000000000"),
			"gpu:0", "rdma:mlx5_0", gen4x16, "pcie:0000:13:00.0", "read"},
		{"a virtual link is no bottleneck", port("gpu 13:00.0 < 12:00.0 numa0 gen1x1 implausible\nnic 14:00.0 < 12:01.0 mlx5_0 numa0 gen5x16 rate=50000000000"),
			"gpu:0", "rdma:mlx5_0", 50e9, "port:mlx5_0/1", "bound"},
		{"NVLink by its constant", twoSockets + "nvlink 0 1 4", "gpu:0", "gpu:1", 80e9, "nvlink:gpu:0/gpu:1", "typical"},
		{"nothing known", "numa 0\nhb 0000:00 numa0\ngpu 00:01.0 < 0000:00 numa0\nnic 00:02.0 < 0000:00 mlx5_0 numa0", "gpu:0", "rdma:mlx5_0", -1, "", "unknown"},
		{"the port's rate not known", port("gpu 13:00.0 < 12:00.0 numa0 gen5x16\nnic 14:00.0 < 12:01.0 mlx5_0 numa0 gen4x16"),
			"gpu:0", "rdma:mlx5_0", gen4x16, "pcie:0000:14:00.0", "bound"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := build(t, tt.machine).Relate(tt.a, tt.b)
			rate := topo.Rate(-1)
			if got.BytesPerSec != nil {
				rate = *got.BytesPerSec
			}
			if rate != tt.rate || got.Limit != tt.limit || got.Basis != tt.basis {
				t.Errorf("%d by %q (%s), want %d by %q (%s)", rate, got.Limit, got.Basis, tt.rate, tt.limit, tt.basis)
			}
		})
	}
}

func TestSocketConstantAndSamePackage(t *testing.T) {
	topology := build(t, "numa 0 pkg0\nnuma 1 pkg0\nnuma 2 pkg1\nhb 0000:00 numa0\ngpu 00:01.0 < 0000:00 numa0 gen5x16")
	topology.Host.CPUVendor = "AuthenticAMD"
	topology.Links = nil
	topology.Derive()
	if got := topology.Relate("gpu:0", "numa:1"); got.Class.Kind != topo.ClassSYS || !got.SamePackage {
		t.Errorf("gpu:0 to numa:1: %+v, want SYS within one package", got)
	}
	got := topology.Relate("gpu:0", "numa:2")
	if got.SamePackage || got.Basis != topo.BasisTypical || *got.BytesPerSec != 16*topo.GBPerSec {
		t.Errorf("gpu:0 to numa:2: %+v, want the AMD constant", got)
	}
}

func TestOverlayReplacesExpectedRates(t *testing.T) {
	topology := build(t, twoSockets)
	g := topo.NewGraph(topology, topo.Overlay{"pcie:0000:13:00.0": 20 * topo.GBPerSec})
	got := g.Relate("gpu:0", "rdma:mlx5_0")
	if *got.BytesPerSec != 20*topo.GBPerSec || got.Basis != topo.BasisMeasured {
		t.Errorf("with overlay: %d (%s), want 20 GB/s measured", *got.BytesPerSec, got.Basis)
	}
	if again := topology.Relate("gpu:0", "rdma:mlx5_0"); *again.BytesPerSec != 50*topo.GBPerSec {
		t.Errorf("the overlay changed the topology: %d", *again.BytesPerSec)
	}
}

func TestPathNamesEveryLink(t *testing.T) {
	g := topo.NewGraph(build(t, twoSockets), nil)
	path, ok := g.Path("gpu:0", "rdma:mlx5_10")
	var got []topo.LinkID
	for _, s := range path {
		got = append(got, s.Link)
	}
	want := []topo.LinkID{"pcie:0000:13:00.0", "pcie:0000:11:00.0", "rc:0000:10", "smp:0/1", "rc:0000:30", "pcie:0000:31:00.0", "port:mlx5_10/1"}
	if !ok || len(got) != len(want) {
		t.Fatalf("path %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("step %d: %s, want %s", i, got[i], want[i])
		}
	}
	if s, ok := topo.Bottleneck(path); !ok || s.Link != "port:mlx5_10/1" {
		t.Errorf("bottleneck %+v", s)
	}
	if _, ok := g.Path("gpu:0", "rdma:none"); ok {
		t.Error("a path to a node that is not there")
	}
}

// A guest's bridges that claim a fraction of what the device below them runs
// at are not believed; on bare metal the same is a broken link, and counts.
func TestInventedLinksCountOnlyOnBareMetal(t *testing.T) {
	const text = "numa 0\nhb 0000:00 numa0\nport 00:01.0 < 0000:00 gen1x1\ngpu 01:00.0 < 00:01.0 numa0 gen5x16"
	for virtual, want := range map[string]topo.Rate{"kvm": 63015384615, "none": 250_000_000} {
		topology := build(t, text)
		topology.Host.Virtual, topology.Links, topology.Warnings = virtual, nil, nil
		topology.Derive()
		got := topology.Relate("gpu:0", "numa:0")
		if got.BytesPerSec == nil || *got.BytesPerSec != want {
			t.Errorf("virtual %q: %v, want %d", virtual, got.BytesPerSec, want)
		}
		code := topo.CodeLinkDisagrees
		if virtual == "kvm" {
			code = topo.CodeImplausible
		}
		if len(topology.Warnings) != 1 || topology.Warnings[0].Code != code {
			t.Errorf("virtual %q: warnings %v, want one %s", virtual, topology.Warnings, code)
		}
	}
}

// The NICs of a matrix: RDMA devices, and the netdevs that none stands for.
func TestMatrixNICs(t *testing.T) {
	topology := build(t, "numa 0\nhb 0000:00 numa0\nport 00:01.0 < 0000:00\nnic 01:00.0 < 00:01.0 mlx5_bond_0 numa0\n"+
		"dev 01:00.1 < 00:01.0 numa0\ndev 02:00.0 < 0000:00 numa0\ndev 03:00.0 < 0000:00 numa0")
	netdev := func(name, pci, master, port string, virtual bool) topo.Netdev {
		return topo.Netdev{Node: topo.Node{ID: topo.NetdevID(name)}, Name: name, PCI: topo.ID(pci), Master: master, PhysPort: port, Virtual: virtual}
	}
	topology.RDMADevices[0].Netdevs = []string{"bond0", "eth0"}
	topology.Netdevs = []topo.Netdev{
		netdev("bond0", "", "", "", true),
		netdev("eth0", "pci:0000:01:00.0", "bond0", "p0", false),
		netdev("eth1", "pci:0000:01:00.1", "bond0", "p1", false), // the bond's other leg
		netdev("eth2", "pci:0000:02:00.0", "", "", false),
		netdev("eth2_rep0", "pci:0000:03:00.0", "", "pf0vf0", false),
	}
	topology.Derive()
	got := fmt.Sprint(topology.MatrixAxis(topo.KindNIC))
	if want := "[rdma:mlx5_bond_0 net:eth2]"; got != want {
		t.Errorf("NICs %s, want %s", got, want)
	}
}

// hopsOf is the number of links on the path, -1 where no path is known.
func hopsOf(r topo.Relation) int {
	if r.Hops == nil {
		return -1
	}
	return *r.Hops
}
