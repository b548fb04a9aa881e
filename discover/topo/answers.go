package topo

// Schemas of the recorded answers that a capture carries, and the places in a
// host tree where they lie.
const (
	SchemaNVML    = "topoctl.nvml/v1"
	SchemaNetlink = "topoctl.netlink/v1"

	NVMLAnswersPath    = "topoctl/nvml.json"
	NetlinkAnswersPath = "topoctl/netlink.json"
)

// GPUReport is what the vendor's library (NVML) said about a host's GPUs.
// It is plain data, so that a capture can hold it and a test can write it.
type GPUReport struct {
	Schema        string      `json:"schema"`
	DriverVersion string      `json:"driver_version,omitempty"`
	NVMLVersion   string      `json:"nvml_version,omitempty"`
	CUDAVersion   string      `json:"cuda_version,omitempty"` // highest the driver supports, "13.0"
	GPUs          []GPUAnswer `json:"gpus"`
	Warnings      []Warning   `json:"warnings,omitempty"` // calls that failed, one each
}

// GPUAnswer is one GPU as NVML sees it. nil and "" are calls that the driver
// does not support or that failed.
type GPUAnswer struct {
	Index        int            `json:"index"` // NVML's
	BDF          BDF            `json:"bdf"`
	UUID         string         `json:"uuid,omitempty"`
	Serial       string         `json:"serial,omitempty"`
	Name         string         `json:"name,omitempty"`
	Minor        *int           `json:"minor,omitempty"`
	MemoryBytes  *int64         `json:"memory_bytes,omitempty"`
	ComputeCap   string         `json:"compute_capability,omitempty"`
	PCIeGen      *int           `json:"pcie_gen,omitempty"`
	PCIeWidth    *int           `json:"pcie_width,omitempty"`
	PCIeMaxGen   *int           `json:"pcie_max_gen,omitempty"`
	PCIeMaxWidth *int           `json:"pcie_max_width,omitempty"`
	CPUAffinity  string         `json:"cpu_affinity,omitempty"`     // list form
	CPUNUMA      *int           `json:"cpu_numa_node,omitempty"`    // from memory affinity
	MemoryNUMA   *int           `json:"memory_numa_node,omitempty"` // the NUMA node that the GPU's memory is
	MIG          *MIG           `json:"mig,omitempty"`
	NVLinks      []NVLinkAnswer `json:"nvlinks,omitempty"`
	C2C          *C2CAnswer     `json:"c2c,omitempty"`
	// P2P is, by the peer's NVML index, "ok" or the driver's reason for read
	// peer access over PCIe or NVLink.
	P2P map[int]string `json:"p2p,omitempty"`
}

// NVLinkAnswer is one NVLink of a GPU.
type NVLinkAnswer struct {
	Link       int    `json:"link"`
	Active     bool   `json:"active"`
	RemoteType string `json:"remote_type,omitempty"` // "gpu", "switch", "cpu"; empty: not told
	RemoteBDF  *BDF   `json:"remote_bdf,omitempty"`  // nil where the driver hides it (NVSwitch in a guest)
	Version    *int   `json:"version,omitempty"`
}

// C2CAnswer is a GPU's NVLink-C2C to its CPU.
type C2CAnswer struct {
	Links       int   `json:"links"`
	BytesPerSec *Rate `json:"bytes_per_sec,omitempty"` // of all links, one direction
}

// NetlinkReport is what rtnetlink and RDMA netlink said.
type NetlinkReport struct {
	Schema    string          `json:"schema"`
	Links     []LinkAnswer    `json:"links"`
	Addresses []AddressAnswer `json:"addresses,omitempty"`
	Routes    []RouteAnswer   `json:"routes,omitempty"`
	RDMA      []RDMAAnswer    `json:"rdma,omitempty"`
	Warnings  []Warning       `json:"warnings,omitempty"`
}

// LinkAnswer is one interface of an RTM_GETLINK dump.
type LinkAnswer struct {
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
	Bond      *Bond      `json:"bond,omitempty"`
	VFs       []VFAnswer `json:"vfs,omitempty"`
}

// VFAnswer is one virtual function that a link reports.
type VFAnswer struct {
	ID  int    `json:"id"`
	MAC string `json:"mac,omitempty"`
}

// AddressAnswer is one address of an interface.
type AddressAnswer struct {
	Link  int    `json:"link"` // ifindex
	CIDR  string `json:"cidr"`
	Scope string `json:"scope,omitempty"` // "universe", "link", "host"
}

// RouteAnswer is one unicast route of the main table.
type RouteAnswer struct {
	Link    int    `json:"link"` // ifindex
	Dst     string `json:"dst"`  // CIDR; "default"
	Gateway string `json:"gateway,omitempty"`
	Metric  int    `json:"metric,omitempty"`
}

// RDMAAnswer is one RDMA device of an RDMA netlink dump.
type RDMAAnswer struct {
	Index        int    `json:"index"`
	Name         string `json:"name"`
	Firmware     string `json:"firmware,omitempty"`
	NodeGUID     string `json:"node_guid,omitempty"`
	SysImageGUID string `json:"sys_image_guid,omitempty"`
	Ports        int    `json:"ports"`
}
