// Package replies holds what the libraries and kernel interfaces of a host said (NVML,
// netlink, libibverbs), as plain data: what a capture records, a replay reads and a
// test writes.
package replies

import "github.com/topoctl/topoctl/discover/topo"

// Schemas of the recorded answers that a capture carries, and the places in a
// host tree where they lie.
const (
	SchemaNVML    = "topoctl.nvml/v1"
	SchemaNetlink = "topoctl.netlink/v1"

	NVMLPath    = "topoctl/nvml.json"
	NetlinkPath = "topoctl/netlink.json"
)

// GPUReport is what the vendor's library (NVML) said about a host's GPUs.
// It is plain data, so that a capture can hold it and a test can write it.
type GPUReport struct {
	Schema        string         `json:"schema"`
	DriverVersion string         `json:"driver_version,omitempty"`
	NVMLVersion   string         `json:"nvml_version,omitempty"`
	CUDAVersion   string         `json:"cuda_version,omitempty"` // highest the driver supports, "13.0"
	GPUs          []GPU          `json:"gpus"`
	Warnings      []topo.Warning `json:"warnings,omitempty"` // calls that failed, one each
}

// GPU is one GPU as NVML sees it. nil and "" are calls that the driver
// does not support or that failed.
type GPU struct {
	Index        int       `json:"index"` // NVML's
	BDF          topo.BDF  `json:"bdf"`
	UUID         string    `json:"uuid,omitempty"`
	Serial       string    `json:"serial,omitempty"`
	Name         string    `json:"name,omitempty"`
	Minor        *int      `json:"minor,omitempty"`
	MemoryBytes  *int64    `json:"memory_bytes,omitempty"`
	ComputeCap   string    `json:"compute_capability,omitempty"`
	PCIeGen      *int      `json:"pcie_gen,omitempty"`
	PCIeWidth    *int      `json:"pcie_width,omitempty"`
	PCIeMaxGen   *int      `json:"pcie_max_gen,omitempty"`
	PCIeMaxWidth *int      `json:"pcie_max_width,omitempty"`
	CPUAffinity  string    `json:"cpu_affinity,omitempty"`     // list form
	CPUNUMA      *int      `json:"cpu_numa_node,omitempty"`    // from memory affinity
	MemoryNUMA   *int      `json:"memory_numa_node,omitempty"` // the NUMA node that the GPU's memory is
	MIG          *topo.MIG `json:"mig,omitempty"`
	NVLinks      []NVLink  `json:"nvlinks,omitempty"`
	C2C          *C2C      `json:"c2c,omitempty"`
	// NVLinkFabric is there once the GPU has joined an NVLink domain of several hosts.
	NVLinkFabric *topo.NVLinkFabric `json:"nvlink_fabric,omitempty"`
	// P2P is, by the peer's NVML index, "ok" or the driver's reason for read
	// peer access over PCIe or NVLink.
	P2P map[int]string `json:"p2p,omitempty"`
}

// NVLink is one NVLink of a GPU.
type NVLink struct {
	Link       int       `json:"link"`
	Active     bool      `json:"active"`
	RemoteType string    `json:"remote_type,omitempty"` // "gpu", "switch", "cpu"; empty: not told
	RemoteBDF  *topo.BDF `json:"remote_bdf,omitempty"`  // nil where the driver hides it (NVSwitch in a guest)
	Version    *int      `json:"version,omitempty"`
}

// C2C is a GPU's NVLink-C2C to its CPU.
type C2C struct {
	Links       int        `json:"links"`
	BytesPerSec *topo.Rate `json:"bytes_per_sec,omitempty"` // of all links, one direction
}

// NetlinkReport is what rtnetlink and RDMA netlink said.
type NetlinkReport struct {
	Schema    string         `json:"schema"`
	Links     []Link         `json:"links"`
	Addresses []Address      `json:"addresses,omitempty"`
	Routes    []Route        `json:"routes,omitempty"`
	RDMA      []RDMA         `json:"rdma,omitempty"`
	Warnings  []topo.Warning `json:"warnings,omitempty"`
}

// Link is one interface of an RTM_GETLINK dump.
type Link struct {
	Index     int        `json:"index"`
	Name      string     `json:"name"`
	Kind      string     `json:"kind,omitempty"`  // "bond", "vlan", "veth"; "device" for a plain one
	Encap     string     `json:"encap,omitempty"` // "ether", "infiniband", "loopback"
	MTU       int        `json:"mtu"`
	MAC       string     `json:"mac,omitempty"`
	PermMAC   string     `json:"perm_mac,omitempty"`
	OperState string     `json:"oper_state,omitempty"` // lower case, as sysfs operstate
	Master    int        `json:"master,omitempty"`     // ifindex
	Parent    int        `json:"parent,omitempty"`     // ifindex of a VLAN's or macvlan's device
	ParentDev string     `json:"parent_dev,omitempty"` // "0000:00:03.0", "virtio2"
	ParentBus string     `json:"parent_bus,omitempty"` // "pci", "virtio"
	VLANID    *int       `json:"vlan_id,omitempty"`
	Bond      *topo.Bond `json:"bond,omitempty"`
	VFs       []VF       `json:"vfs,omitempty"`
}

// VF is one virtual function that a link reports.
type VF struct {
	ID  int    `json:"id"`
	MAC string `json:"mac,omitempty"`
}

// Address is one address of an interface.
type Address struct {
	Link  int    `json:"link"` // ifindex
	CIDR  string `json:"cidr"`
	Scope string `json:"scope,omitempty"` // "universe", "link", "host"
}

// Route is one unicast route of the main table.
type Route struct {
	Link    int    `json:"link"` // ifindex
	Dst     string `json:"dst"`  // CIDR; "default"
	Gateway string `json:"gateway,omitempty"`
	Metric  int    `json:"metric,omitempty"`
}

// RDMA is one RDMA device of an RDMA netlink dump.
type RDMA struct {
	Index        int    `json:"index"`
	Name         string `json:"name"`
	Firmware     string `json:"firmware,omitempty"`
	NodeGUID     string `json:"node_guid,omitempty"`
	SysImageGUID string `json:"sys_image_guid,omitempty"`
	Ports        int    `json:"ports"`
}
