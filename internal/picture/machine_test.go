package picture

import (
	"fmt"

	"github.com/topoctl/topoctl/discover/topo"
)

func ptr[T any](v T) *T { return &v }

func bdf(s string) topo.BDF {
	b, err := topo.ParseBDF(s)
	if err != nil {
		panic(err)
	}
	return b
}

// machine is a host that grows by one device a call.
type machine struct{ *topo.Topology }

func newMachine(name string, sockets int) machine {
	m := machine{&topo.Topology{Complete: true, Origin: "live", Host: topo.Host{Name: name}}}
	for i := range sockets {
		cpus := fmt.Sprintf("%d-%d", i*48, i*48+47)
		m.Packages = append(m.Packages, topo.Package{Node: topo.Node{ID: topo.PackageID(i)}, Index: i, CPUs: cpus, NUMA: []int{i}})
		m.NUMANodes = append(m.NUMANodes, topo.NUMANode{Node: topo.Node{ID: topo.NUMAID(i)}, Index: i, CPUs: cpus,
			Package: ptr(i), MemoryBytes: ptr(int64(512) << 30)})
	}
	return m
}

// root adds a host bridge; numa below zero is unknown.
func (m machine) root(bus uint8, numa int) topo.ID {
	hb := topo.HostBridge{Node: topo.Node{ID: topo.HostBridgeID(fmt.Sprintf("0000:%02x", bus))}, Bus: bus}
	if numa >= 0 {
		hb.NUMA = &numa
	}
	m.HostBridges = append(m.HostBridges, hb)
	return hb.ID
}

// link is a PCIe link at its full speed.
func link(speedMTs, width int) *topo.PCILink {
	return &topo.PCILink{SpeedMTs: &speedMTs, Width: &width, MaxSpeedMTs: &speedMTs, MaxWidth: &width}
}

// pci adds a function below parent.
func (m machine) pci(addr string, parent topo.ID, class topo.HexID, l *topo.PCILink) *topo.PCIDevice {
	var numa *int
	for i := range m.HostBridges {
		if m.HostBridges[i].ID == parent {
			numa = m.HostBridges[i].NUMA
		}
	}
	for i := range m.PCIDevices {
		if m.PCIDevices[i].ID == parent {
			numa = m.PCIDevices[i].NUMA
		}
	}
	b := bdf(addr)
	m.PCIDevices = append(m.PCIDevices, topo.PCIDevice{Node: topo.Node{ID: topo.PCIID(b)}, BDF: b, Parent: parent,
		Class: class, Vendor: "0x15b3", Device: "0x1021", NUMA: numa, Link: l})
	return &m.PCIDevices[len(m.PCIDevices)-1]
}

const (
	classBridge  = "0x060400"
	classGPU     = "0x030200"
	classNetwork = "0x020000"
	classNVMe    = "0x010802"
)

// pcieSwitch adds a root port and a switch with ports on buses bus+1 to bus+2+n;
// it gives the downstream ports.
func (m machine) pcieSwitch(root topo.ID, bus, n int) []topo.ID {
	port := m.pci(fmt.Sprintf("%02x:01.0", bus), root, classBridge, link(32000, 16)).ID
	up := m.pci(fmt.Sprintf("%02x:00.0", bus+1), port, classBridge, link(32000, 16))
	up.DeviceName = "Test Switch"
	parent := up.ID
	var down []topo.ID
	for i := range n {
		down = append(down, m.pci(fmt.Sprintf("%02x:%02x.0", bus+2, i), parent, classBridge, link(32000, 16)).ID)
	}
	return down
}

func (m machine) gpu(addr string, parent topo.ID, l *topo.PCILink) *topo.GPU {
	d := m.pci(addr, parent, classGPU, l)
	i := len(m.GPUs)
	m.GPUs = append(m.GPUs, topo.GPU{Node: topo.Node{ID: topo.GPUID(i)}, Index: i, PCI: d.ID, BDF: &d.BDF,
		Model: "Test GPU", NUMA: d.NUMA, KnownFrom: "driver"})
	return &m.GPUs[i]
}

func (m machine) rdma(name, addr string, parent topo.ID, state string) *topo.RDMADevice {
	d := m.pci(addr, parent, classNetwork, link(32000, 16))
	m.RDMADevices = append(m.RDMADevices, topo.RDMADevice{Node: topo.Node{ID: topo.RDMAID(name)}, Name: name,
		PCI: d.ID, BDF: &d.BDF, NUMA: d.NUMA, Transport: "ib", Netdevs: []string{"ib" + name[len(name)-1:]}})
	m.port(name, 1, state)
	return &m.RDMADevices[len(m.RDMADevices)-1]
}

func (m machine) port(rdma string, n int, state string) {
	phys := "LinkUp"
	if state != "ACTIVE" {
		phys = "Disabled"
	}
	m.Ports = append(m.Ports, topo.Port{Node: topo.Node{ID: topo.PortID(rdma, n)}, RDMA: topo.RDMAID(rdma), Number: n,
		State: state, PhysState: phys, LinkLayer: "InfiniBand", BytesPerSec: ptr(50 * topo.GBPerSec)})
}

func (m machine) netdev(n topo.Netdev) {
	n.ID = topo.NetdevID(n.Name)
	m.Netdevs = append(m.Netdevs, n)
}

// twoSockets is a host with two switches, each with two GPUs and two NICs, and
// one thing of every sort that a tree shows.
func twoSockets() machine {
	m := newMachine("node17", 2)
	for s := range 2 {
		bus := 0x10 + 0x40*s
		down := m.pcieSwitch(m.root(uint8(bus), s), bus, 4)
		for i := range 2 {
			m.gpu(fmt.Sprintf("%02x:00.0", bus+4+i), down[i], link(32000, 16))
			m.rdma(fmt.Sprintf("mlx5_%d", 2*s+i), fmt.Sprintf("%02x:00.0", bus+8+i), down[2+i], "ACTIVE")
		}
	}
	for i := range m.GPUs {
		for j := i + 1; j < len(m.GPUs); j++ {
			a, b := m.GPUs[i].ID, m.GPUs[j].ID
			m.Links = append(m.Links, topo.Link{ID: topo.NVLinkID(a, b), Kind: topo.LinkNVLink, A: a, B: b, Count: 6,
				BytesPerSec: ptr(150 * topo.GBPerSec), Basis: topo.BasisTypical})
		}
	}
	return m
}

// troubled is twoSockets with everything that can be out of order.
func troubled() machine {
	m := twoSockets()
	m.Host.Product, m.Complete = "Test Server", false
	m.PCIDevices[6].Link = &topo.PCILink{SpeedMTs: ptr(2500), Width: ptr(16), MaxSpeedMTs: ptr(32000), MaxWidth: ptr(16)} // GPU0 idles
	m.PCIDevices[7].Link = &topo.PCILink{SpeedMTs: ptr(2500), Width: ptr(8), MaxSpeedMTs: ptr(32000), MaxWidth: ptr(16)}
	m.Ports[1].State, m.Ports[1].PhysState = "DOWN", "Polling"
	m.port("mlx5_2", 2, "DOWN")
	m.GPUs[1].MIG = &topo.MIG{Enabled: true, Instances: []topo.MIGInstance{{}, {}}}
	m.GPUs[2].Visible, m.GPUs[3].KnownFrom = ptr(false), "pci"
	m.GPUs[2].KnownFrom, m.GPUs[2].Driver = "pci", "amdgpu"

	port := m.pci("20:01.0", m.root(0x20, 0), classBridge, link(16000, 8)).ID
	pf := *m.pci("21:00.0", port, classNetwork, link(16000, 8))
	m.netdev(topo.Netdev{Name: "eth0", PCI: pf.ID, BDF: &pf.BDF, NUMA: ptr(0), State: "up", Driver: "mlx5_core",
		BytesPerSec: ptr(topo.FromMbps(25000)), Master: "bond0"})
	for i := range 6 {
		vf := m.pci(fmt.Sprintf("21:00.%d", i+1), port, classNetwork, nil)
		vf.PF = pf.ID
		m.netdev(topo.Netdev{Name: fmt.Sprintf("eth0v%d", i), PCI: vf.ID, BDF: &vf.BDF, NUMA: ptr(0), State: "down"})
		m.netdev(topo.Netdev{Name: fmt.Sprintf("eth0_%d", i), PCI: pf.ID, BDF: &pf.BDF, PhysPort: fmt.Sprintf("pf0vf%d", i)})
	}
	m.pci("22:00.0", topo.HostBridgeID("0000:20"), classNetwork, nil)
	virtual := m.pci("20:02.0", topo.HostBridgeID("0000:20"), classBridge, link(2500, 1))
	virtual.Implausible = true
	m.netdev(topo.Netdev{Name: "eth9", PCI: m.pci("24:00.0", virtual.ID, classNetwork, link(32000, 16)).ID, NUMA: ptr(0), State: "up"})
	m.pci("23:00.0", topo.HostBridgeID("0000:20"), "0x088000", nil)
	nvme := *m.pci("01:00.0", m.root(0, -1), classNVMe, link(16000, 4))
	m.NVMes = append(m.NVMes, topo.NVMe{Node: topo.Node{ID: topo.NVMeID("nvme0")}, Name: "nvme0", PCI: nvme.ID,
		BDF: &nvme.BDF, Model: "disk\x1b[31m\u202e"})

	m.RDMADevices = append(m.RDMADevices, topo.RDMADevice{Node: topo.Node{ID: topo.RDMAID("rxe0")}, Name: "rxe0",
		Software: true, Transport: "software", Uverbs: "denied"})
	m.netdev(topo.Netdev{Name: "bond0", LinkKind: "bond", Virtual: true, State: "up", Bond: &topo.Bond{Mode: "802.3ad"},
		Lower: []string{"eth0", "eth1"}, BytesPerSec: ptr(topo.FromMbps(50000))})
	m.netdev(topo.Netdev{Name: "bond0.7", LinkKind: "vlan", Virtual: true, State: "up", VLANID: ptr(7), Lower: []string{"bond0"}})
	m.netdev(topo.Netdev{Name: "lo", Type: "loopback", Virtual: true})
	for i := range 3 {
		m.netdev(topo.Netdev{Name: fmt.Sprintf("veth%d", i), LinkKind: "veth", Virtual: true})
	}
	m.Warnings = append(m.Warnings, topo.Warning{Code: topo.CodeNUMAUnknown, Subject: nvme.ID, Detail: "numa_node is -1"})
	return m
}

// asserted is what the text of nvidia-smi topo -m gives: no PCI devices.
func asserted() machine {
	m := newMachine("", 0)
	m.Origin, m.Host.Lacks = "import:nvsmi", []string{"PCI devices and their links"}
	m.NUMANodes = []topo.NUMANode{{Node: topo.Node{ID: topo.NUMAID(0)}, CPUs: "0-47"}}
	var axis []topo.ID
	for i := range 2 {
		g := topo.GPU{Node: topo.Node{ID: topo.GPUID(i)}, Index: i, KnownFrom: "import", NUMA: ptr(0), CPUAffinity: "0-23"}
		m.GPUs = append(m.GPUs, g)
		axis = append(axis, g.ID)
	}
	m.GPUs[0].MemoryNUMA = ptr(4)
	m.RDMADevices = []topo.RDMADevice{{Node: topo.Node{ID: topo.RDMAID("mlx5_0")}, Name: "mlx5_0"}}
	axis = append(axis, topo.RDMAID("mlx5_0"))
	x, pix, sys, nv := topo.Class{Kind: topo.ClassSelf}, topo.Class{Kind: topo.ClassPIX}, topo.Class{Kind: topo.ClassSYS}, topo.NV(12)
	m.Asserted = &topo.Asserted{Source: topo.SourceSMI, Axis: axis, Class: [][]topo.Class{{x, nv, pix}, {nv, x, sys}, {pix, sys, x}}}
	return m
}
