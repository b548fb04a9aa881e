package vmlab

// What a lab machine consists of. The same value makes
// QEMU's command line, configures the guest, and is what discovery inside must find.

import (
	"fmt"
)

// Machine is one machine: NUMA nodes, and the host bridges that stand on them.
// Processors and memory are divided evenly among the nodes.
type Machine struct {
	Layout   string `json:"layout"`
	CPUs     int    `json:"cpus"`
	MemoryMB int    `json:"memory_mb"`
	// Distances has a row and a column for each NUMA node, as ACPI's SLIT has.
	Distances [][]int  `json:"distances"`
	Bridges   []Bridge `json:"bridges"`
	// Management is whether there is a NIC on bus 0, without a NUMA node, beside the rails.
	Management bool `json:"management"`
}

// Bridge is a host bridge: the root of the buses from Bus on.
type Bridge struct {
	Node  int    `json:"node"`
	Bus   int    `json:"bus"`
	Slots []Slot `json:"slots"`
}

// Slot is a port, of a host bridge (a root port) or of a switch (a downstream
// port), with the one thing that is plugged into it.
type Slot struct {
	Switch *Switch `json:"switch,omitempty"`
	NIC    *NIC    `json:"nic,omitempty"`
	GPU    *GPU    `json:"gpu,omitempty"`
}

// Switch is a PCIe switch. A switch in a slot of another makes paths across two.
type Switch struct {
	Slots []Slot `json:"slots"`
}

// Models of NICs. Virtio is the faster one; the netdev of an e1000e hangs on the PCI
// function itself, as with real NICs, and that of a virtio NIC on a device in between.
const (
	Virtio = "virtio"
	E1000e = "e1000e"
)

// NIC is the NIC of one rail, with a Soft-RoCE device on it.
type NIC struct {
	Rail  int    `json:"rail"`
	Model string `json:"model"`
	// MTU in bytes. RoCE takes the largest power of two that fits with its headers:
	// 1500 gives 1024, 4200 gives 4096.
	MTU int `json:"mtu"`
}

// GPU is a stand-in: a display controller that is given another's IDs in sysfs.
type GPU struct {
	Vendor          uint16 `json:"vendor"`
	Device          uint16 `json:"device"`
	Class           uint32 `json:"class"`
	SubsystemVendor uint16 `json:"subsystem_vendor"`
	SubsystemDevice uint16 `json:"subsystem_device"`
}

// H100 is what the stand-ins of the layouts look like.
var H100 = GPU{Vendor: 0x10de, Device: 0x2330, Class: 0x030200, SubsystemVendor: 0x10de, SubsystemDevice: 0x16c1}

// ManagementRail is the number of the NIC on bus 0, where a rail's number stands.
const ManagementRail = 99

// RailNetDev is the name of a rail's interface.
func RailNetDev(rail int) string {
	if rail == ManagementRail {
		return "mgmt"
	}
	return fmt.Sprintf("rail%d", rail)
}

// RDMADev is the name of a rail's RDMA device.
func RDMADev(rail int) string { return fmt.Sprintf("rxe%d", rail) }

// Address is the IPv4 address of a machine (1 or 2) on a rail, of which both are in one /24.
func Address(host, rail int) string { return fmt.Sprintf("10.7.%d.%d", rail, host) }

// MAC is the hardware address of a machine's NIC on a rail.
func MAC(host, rail int) string { return fmt.Sprintf("52:54:00:00:%02x:%02x", host, rail) }

// Nodes is the number of NUMA nodes.
func (m *Machine) Nodes() int { return len(m.Distances) }

// CPUsOf are the first and the last processor of a node.
func (m *Machine) CPUsOf(node int) (first, last int) {
	per := m.CPUs / m.Nodes()
	return node * per, node*per + per - 1
}

// Check says what QEMU could not build, or would build differently than it reads.
func (m *Machine) Check() error {
	nodes := m.Nodes()
	if nodes == 0 || m.CPUs%nodes != 0 || m.MemoryMB%nodes != 0 {
		return fmt.Errorf("hardware: layout %q: %d processors and %d MB do not divide among %d NUMA nodes", m.Layout, m.CPUs, m.MemoryMB, nodes)
	}
	for i, row := range m.Distances {
		if len(row) != nodes {
			return fmt.Errorf("hardware: layout %q: row %d of the distances has %d columns, want %d", m.Layout, i, len(row), nodes)
		}
		for j, d := range row {
			if (i == j) != (d == 10) || d < 10 || d > 254 || d != m.Distances[j][i] {
				return fmt.Errorf("hardware: layout %q: distance %d from node %d to %d (10 is a node's own, others are 11 to 254 and the same both ways)", m.Layout, d, i, j)
			}
		}
	}
	for _, b := range m.Bridges {
		if b.Node < 0 || b.Node >= nodes {
			return fmt.Errorf("hardware: layout %q: bridge at bus %#x is on NUMA node %d of %d", m.Layout, b.Bus, b.Node, nodes)
		}
	}
	seen := map[string]bool{}
	rails := map[int]bool{}
	for _, f := range m.Functions() {
		if seen[f.BDF] {
			return fmt.Errorf("hardware: layout %q: two functions are at %s: put the bridges' buses further apart", m.Layout, f.BDF)
		}
		seen[f.BDF] = true
		if f.NIC == nil {
			continue
		}
		if rails[f.NIC.Rail] || f.NIC.Rail < 0 || f.NIC.Rail >= ManagementRail {
			return fmt.Errorf("hardware: layout %q: rail %d is there twice or out of range", m.Layout, f.NIC.Rail)
		}
		if f.NIC.Model != Virtio && f.NIC.Model != E1000e {
			return fmt.Errorf("hardware: layout %q: rail %d: model %q: there is %s and %s", m.Layout, f.NIC.Rail, f.NIC.Model, Virtio, E1000e)
		}
		rails[f.NIC.Rail] = true
	}
	return nil
}
