package topo_test

import (
	"fmt"

	"github.com/topoctl/topoctl/discover/topo"
)

// A GPU and an RDMA device behind one PCIe switch.
func Example() {
	link := &topo.PCILink{SpeedMTs: ptr(32000), Width: ptr(16), MaxSpeedMTs: ptr(32000), MaxWidth: ptr(16)}
	function := func(address, parent string, class topo.HexID) topo.PCIDevice {
		b := bdf(address)
		return topo.PCIDevice{Node: topo.Node{ID: topo.PCIID(b)}, BDF: b, Parent: topo.ID(parent), Class: class, Link: link, NUMA: ptr(0)}
	}
	t := &topo.Topology{
		NUMANodes:   []topo.NUMANode{{Node: topo.Node{ID: topo.NUMAID(0)}, CPUs: "0-47"}},
		HostBridges: []topo.HostBridge{{Node: topo.Node{ID: topo.HostBridgeID("0000:17")}, Bus: 0x17, NUMA: ptr(0)}},
		PCIDevices: []topo.PCIDevice{
			function("17:01.0", "hb:0000:17", "0x060400"),       // root port
			function("18:00.0", "pci:0000:17:01.0", "0x060400"), // the switch's upstream port
			function("19:00.0", "pci:0000:18:00.0", "0x060400"), // and two downstream ports
			function("19:01.0", "pci:0000:18:00.0", "0x060400"),
			function("1a:00.0", "pci:0000:19:00.0", "0x030200"),
			function("1b:00.0", "pci:0000:19:01.0", "0x020700"),
		},
		GPUs:        []topo.GPU{{Node: topo.Node{ID: topo.GPUID(0)}, PCI: "pci:0000:1a:00.0", NUMA: ptr(0)}},
		RDMADevices: []topo.RDMADevice{{Node: topo.Node{ID: topo.RDMAID("mlx5_0")}, Name: "mlx5_0", PCI: "pci:0000:1b:00.0", NUMA: ptr(0)}},
		Ports: []topo.Port{{Node: topo.Node{ID: topo.PortID("mlx5_0", 1)}, RDMA: topo.RDMAID("mlx5_0"), Number: 1, State: "ACTIVE",
			BytesPerSec: ptr(topo.FromMbps(400_000))}},
	}
	t.Derive()
	r := t.Relate("gpu:0", "rdma:mlx5_0")
	fmt.Println(r.Class, r.NCCL, *r.BytesPerSec, r.Limit, r.Basis)
	// Output: PIX PIX 50.0 GB/s port:mlx5_0/1 read
}
