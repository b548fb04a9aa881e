package topo

import "time"

// SchemaTopology is the document's name and major version. A reader takes any
// document of this major version and ignores keys it does not know.
const SchemaTopology = "topoctl.topology/v1"

// Rules names the rule set that Derive applies, so that the derived part of an
// old document can be computed again and compared.
const Rules = "R1"

// Topology is one host as found at one moment: what was observed (the node
// lists and Links), what follows from it (Derived), and what could not be
// seen (Warnings, Sources, Host.Lacks).
//
// Pointers mean "may be unknown": nil is written as null and never stands for
// zero. Empty strings are facts that were not found and are left out.
type Topology struct {
	Tool       Tool
	CapturedAt *time.Time // UTC; nil where the origin does not say
	Origin     string     // "live", "capture", "fixture:NAME", "import:nccl", "import:hwloc", "import:nvsmi", "import:amdsmi", "import:lspci"
	Complete   bool       // false: something that is there could not be read (see Warnings)
	Host       Host

	Packages    []Package
	NUMANodes   []NUMANode
	HostBridges []HostBridge
	PCIDevices  []PCIDevice
	Switches    []Switch // derived from PCIDevices
	GPUs        []GPU
	NICs        []NIC // cards; derived from PCIDevices
	RDMADevices []RDMADevice
	Ports       []Port
	Netdevs     []Netdev
	NVMes       []NVMe
	NVSwitches  []NVSwitch

	// Links are the edges of the graph. Derive builds the PCIe, root-complex,
	// socket and port links from the nodes; sources add NVLink, C2C and xGMI.
	Links []Link

	// Asserted are classes that the origin states without the tree to derive
	// them from (the text of nvidia-smi topo -m). They override derived classes.
	Asserted *Asserted

	Derived  *Derived // nil until Derive
	Sources  []SourceReport
	Warnings []Warning
}

// Tool is the program that wrote a document.
type Tool struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Host are the facts of the machine as a whole.
type Host struct {
	Name            string `json:"name,omitempty"`
	MachineIDSHA256 string `json:"machine_id_sha256,omitempty"` // SHA-256 of /etc/machine-id
	Arch            string `json:"arch,omitempty"`              // as uname -m
	Kernel          string `json:"kernel,omitempty"`            // release, as uname -r
	Vendor          string `json:"vendor,omitempty"`            // DMI sys_vendor
	Product         string `json:"product,omitempty"`           // DMI product_name
	CPUVendor       string `json:"cpu_vendor,omitempty"`        // "GenuineIntel", "AuthenticAMD", "ARM"
	CPUModel        string `json:"cpu_model,omitempty"`
	CPUFamily       *int   `json:"cpu_family"`             // x86 family, decimal; null elsewhere
	CPUModelID      *int   `json:"cpu_model_id"`           // x86 model, decimal; null elsewhere
	CPUs            string `json:"cpus,omitempty"`         // online CPUs, list form "0-47"
	AllowedCPUs     string `json:"allowed_cpus,omitempty"` // what this process may use, where it is less than CPUs
	MemoryBytes     *int64 `json:"memory_bytes"`
	Virtual         string `json:"virtual,omitempty"` // "none", "kvm", "qemu" (no sign of KVM), "hyperv", "nitro", "vmware", "xen", "unknown"
	Container       *bool  `json:"container"`
	GPUDriver       string `json:"gpu_driver_version,omitempty"` // as NVML says
	Fingerprint     string `json:"fingerprint,omitempty"`        // see Fingerprint
	// ConfigBytes is the least that could be read of a bridge's configuration
	// space: 64 without root, 256 or 4096 with. ACS lies beyond 256.
	ConfigBytes *int      `json:"config_space_bytes"`
	Software    *Software `json:"software"`        // nil where the origin does not tell
	Lacks       []string  `json:"lacks,omitempty"` // what the origin cannot tell, in sentences
	Facts       Facts     `json:"facts,omitempty"`
}

// Node is the part that all nodes have. Evidence is where its facts were read: a path in the
// host's file tree, or a place in the imported file. Facts say for each attribute (by JSON key)
// which source it came from.
type Node struct {
	ID       ID     `json:"id"`
	Kind     Kind   `json:"kind"`
	Evidence string `json:"evidence,omitempty"`
	Facts    Facts  `json:"-"` // written as an index into the document's table
}

// Package is a CPU socket.
type Package struct {
	Node
	Index int    `json:"index"`
	CPUs  string `json:"cpus,omitempty"`
	Cores *int   `json:"cores"`
	Model string `json:"model,omitempty"`
	NUMA  []int  `json:"numa_nodes,omitempty"`
}

// NUMANode is a NUMA node of CPUs, memory or both; GPU memory may be one too.
type NUMANode struct {
	Node
	Index       int    `json:"index"`
	CPUs        string `json:"cpus"` // list form, empty for a memory-only node
	MemoryBytes *int64 `json:"memory_bytes"`
	MemoryOnly  bool   `json:"memory_only"`
	Package     *int   `json:"package"`
	Owner       ID     `json:"owner,omitempty"`     // the GPU whose memory this is
	Distances   []int  `json:"distances,omitempty"` // SLIT values to each NUMA node, in the order of the list; empty if unknown
}

// HostBridge is a PCI root bus: one root complex's view of one domain and bus.
type HostBridge struct {
	Node
	Domain    uint32 `json:"domain"`
	Bus       uint8  `json:"bus"`
	NUMA      *int   `json:"numa_node"`
	Synthetic bool   `json:"synthetic,omitempty"` // invented by an importer whose format has none
}

// PCIRole is a function's place in the PCI tree.
type PCIRole string

// The roles of PCI functions. RoleBridge is a bridge that belongs to no PCIe
// switch (conventional PCI, or a virtual machine's invention).
const (
	RoleRootPort   PCIRole = "root_port"
	RoleUpstream   PCIRole = "switch_upstream"
	RoleDownstream PCIRole = "switch_downstream"
	RoleBridge     PCIRole = "bridge"
	RoleEndpoint   PCIRole = "endpoint"
)

// PCIDevice is one PCI function.
type PCIDevice struct {
	Node
	BDF         BDF      `json:"bdf"`
	Role        PCIRole  `json:"role"`
	Parent      ID       `json:"parent"`          // "hb:..." or the bridge above, "pci:..."
	Class       HexID    `json:"class,omitempty"` // 24 bits: "0x030200"
	Vendor      HexID    `json:"vendor,omitempty"`
	Device      HexID    `json:"device,omitempty"`
	SubVendor   HexID    `json:"subsystem_vendor,omitempty"`
	SubDevice   HexID    `json:"subsystem_device,omitempty"`
	Revision    HexID    `json:"revision,omitempty"`
	VendorName  string   `json:"vendor_name,omitempty"`
	DeviceName  string   `json:"device_name,omitempty"`
	Driver      string   `json:"driver,omitempty"`
	NUMA        *int     `json:"numa_node"` // nil where the kernel says -1 and nothing else tells
	LocalCPUs   string   `json:"local_cpus,omitempty"`
	IOMMUGroup  *int     `json:"iommu_group,omitempty"`
	IOMMUType   string   `json:"iommu_type,omitempty"` // "DMA", "DMA-FQ", "identity"
	Link        *PCILink `json:"link,omitempty"`
	SRIOV       *SRIOV   `json:"sriov,omitempty"`
	PF          ID       `json:"pf,omitempty"`               // on a virtual function: its physical function
	ACS         *ACS     `json:"acs,omitempty"`              // nil: no capability, or configuration space not readable
	ATS         string   `json:"ats,omitempty"`              // of NICs that were asked: "on", "off", "unknown", or "absent" (no capability)
	Implausible bool     `json:"implausible_link,omitempty"` // a virtual bridge's invented link: never a bottleneck
}

// PCILink is what one function says of its link towards the root (for a port
// that has a link below: of the link below). Speeds are per lane in mega
// transfers per second (32 GT/s is 32000); nil is unknown. Raw strings are kept
// where they could not be understood.
// Source: current_link_speed, max_link_speed, *_width of
// Documentation/ABI/testing/sysfs-bus-pci.
type PCILink struct {
	SpeedMTs    *int   `json:"speed_mts"`
	Width       *int   `json:"width"`
	MaxSpeedMTs *int   `json:"max_speed_mts"`
	MaxWidth    *int   `json:"max_width"`
	RawSpeed    string `json:"raw_speed,omitempty"`
	RawMaxSpeed string `json:"raw_max_speed,omitempty"`
}

// SRIOV is a physical function's count of virtual functions.
type SRIOV struct {
	TotalVFs *int `json:"total_vfs"`
	NumVFs   *int `json:"num_vfs"`
	VFs      []ID `json:"vfs,omitempty"`
}

// ACS is the Access Control Services control register of a port.
// Source: PCI Express Base Specification, ACS Extended Capability.
type ACS struct {
	Control         HexID `json:"control"`
	RequestRedirect bool  `json:"request_redirect"`
	CompletionRedir bool  `json:"completion_redirect"`
	UpstreamForward bool  `json:"upstream_forwarding"`
}

// Switch is one PCIe switch, as its upstream port and downstream ports show it.
type Switch struct {
	Node
	Upstream   ID     `json:"upstream"`
	Downstream []ID   `json:"downstream"`
	Name       string `json:"name,omitempty"`
	NUMA       *int   `json:"numa_node"`
}

// GPU is a GPU or another accelerator. gpu:N counts in PCI order; the indices
// that NVML and CUDA use are attributes.
type GPU struct {
	Node
	Index       int    `json:"index"`
	PCI         ID     `json:"pci,omitempty"` // empty where the origin does not say
	BDF         *BDF   `json:"bdf"`
	Vendor      string `json:"vendor,omitempty"` // "nvidia", "amd", "intel", or the PCI vendor number
	Model       string `json:"model,omitempty"`
	NUMA        *int   `json:"numa_node"`        // the CPU NUMA node it hangs from
	MemoryNUMA  *int   `json:"memory_numa_node"` // the NUMA node that its memory is, on coherent machines
	MemoryBytes *int64 `json:"memory_bytes"`
	UUID        string `json:"uuid,omitempty"`
	Serial      string `json:"serial,omitempty"`
	NVMLIndex   *int   `json:"nvml_index"`
	Minor       *int   `json:"minor"`                        // /dev/nvidiaN
	ComputeCap  string `json:"compute_capability,omitempty"` // "9.0"; "gfx942" for AMD
	CPUAffinity string `json:"cpu_affinity,omitempty"`
	Driver      string `json:"driver,omitempty"`
	MIG         *MIG   `json:"mig,omitempty"`
	// NVLinkFabric is the NVLink domain of several hosts that the GPU has joined; nil: none, or it
	// could not be told.
	NVLinkFabric *NVLinkFabric `json:"nvlink_fabric,omitempty"`
	Visible      *bool         `json:"visible"`    // can this process use it; nil: could not be told
	KnownFrom    string        `json:"known_from"` // "pci" (class alone), "proc" (the driver's files in /proc or /sys), "driver" (NVML), "import"
	// P2P are NVML's answers on peer access, by the other GPU's ID: "ok" or
	// the driver's reason. Empty where NVML was not asked.
	P2P map[ID]string `json:"p2p,omitempty"`
}

// NVLinkFabric is an NVLink domain of several hosts: GPUs of one cluster and clique reach each other
// over NVLink.
type NVLinkFabric struct {
	ClusterUUID string `json:"cluster_uuid"`
	Clique      int    `json:"clique"`
}

// MIG is a GPU's partitioning.
type MIG struct {
	Enabled   bool          `json:"enabled"`
	Instances []MIGInstance `json:"instances,omitempty"`
}

// MIGInstance is one MIG device.
type MIGInstance struct {
	UUID        string `json:"uuid"`
	Profile     string `json:"profile,omitempty"` // "1g.10gb"
	MemoryBytes *int64 `json:"memory_bytes"`
}

// NIC is a network card: the functions of one slot. Virtual functions are
// cards of their own, with VFOf naming the card that carries them.
type NIC struct {
	Node
	Model     string `json:"model,omitempty"`
	Functions []ID   `json:"functions"`
	VFOf      ID     `json:"vf_of,omitempty"`
	NUMA      *int   `json:"numa_node"`
}

// RDMADevice is a device of /sys/class/infiniband.
type RDMADevice struct {
	Node
	Name         string   `json:"name"`
	PCI          ID       `json:"pci,omitempty"` // empty for software devices
	BDF          *BDF     `json:"bdf"`
	NIC          ID       `json:"nic,omitempty"`
	NUMA         *int     `json:"numa_node"`
	Driver       string   `json:"driver,omitempty"`
	Software     bool     `json:"software,omitempty"`  // rxe, siw, scif: no hardware of its own
	Transport    string   `json:"transport,omitempty"` // "ib", "roce", "iwarp", "efa", "opa", "software"; empty: unknown
	NodeType     string   `json:"node_type,omitempty"`
	NodeGUID     string   `json:"node_guid,omitempty"`
	SysImageGUID string   `json:"sys_image_guid,omitempty"`
	Firmware     string   `json:"firmware,omitempty"`
	Board        string   `json:"board,omitempty"`
	HCAType      string   `json:"hca_type,omitempty"`
	Netdevs      []string `json:"netdevs,omitempty"`
	CharDevs     []string `json:"char_devs,omitempty"`
	Uverbs       string   `json:"uverbs"` // "rw", "ro", "denied", "none", or "unknown" on a foreign tree
}

// Port is a port of an RDMA device: what data leaves by.
type Port struct {
	Node
	RDMA        ID       `json:"rdma"`
	Number      int      `json:"number"`
	AdapterPort *int     `json:"adapter_port,omitempty"` // where the origin numbers the ports of all functions of a card: NCCL
	State       string   `json:"state,omitempty"`        // "ACTIVE", "DOWN", "INIT", "ARMED"
	PhysState   string   `json:"phys_state,omitempty"`   // "LinkUp", "Disabled", "Polling"
	LinkLayer   string   `json:"link_layer,omitempty"`   // "InfiniBand", "Ethernet"
	BytesPerSec *Rate    `json:"bytes_per_sec"`          // from RateRaw; of a software device at most its interface's
	RateRaw     string   `json:"rate,omitempty"`         // "400 Gb/sec (4X NDR)"
	LID         *int     `json:"lid"`
	SMLID       *int     `json:"sm_lid"`
	MTU         *int     `json:"mtu_bytes"` // active RDMA MTU, where the source tells
	GIDs        []GID    `json:"gids,omitempty"`
	GIDTable    *int     `json:"gid_table_size"`
	GIDsRead    *int     `json:"gids_read,omitempty"` // entries looked at, where fewer than the table has
	Netdevs     []string `json:"netdevs,omitempty"`
	// PKeys are the used entries of the partition key table, in its order.
	// Source: ports/N/pkeys/* of Documentation/ABI/stable/sysfs-class-infiniband.
	PKeys []HexID `json:"pkeys,omitempty"`
	// TrafficClass is what the vendor's driver package forces on the port's
	// connections (/sys/class/infiniband/DEV/tc/N/traffic_class). null with a
	// fact "traffic_class": the file sets nothing; without: there is no such file.
	TrafficClass *int `json:"traffic_class"`
}

// GID is one used entry of a port's GID table.
type GID struct {
	Index  int    `json:"index"`
	GID    string `json:"gid"`
	Type   string `json:"type,omitempty"` // "IB/RoCE v1", "RoCE v2"
	Netdev string `json:"netdev,omitempty"`
}

// Netdev is a network interface.
type Netdev struct {
	Node
	Name        string   `json:"name"`
	Index       *int     `json:"ifindex"`
	PCI         ID       `json:"pci,omitempty"`
	BDF         *BDF     `json:"bdf"`
	NUMA        *int     `json:"numa_node"`
	Type        string   `json:"type,omitempty"`      // "ether", "infiniband", "loopback", or the ARPHRD number
	LinkKind    string   `json:"link_kind,omitempty"` // "bond", "vlan", "bridge", "veth", ... ; empty: a plain device
	Virtual     bool     `json:"virtual,omitempty"`
	Driver      string   `json:"driver,omitempty"`
	MAC         string   `json:"mac,omitempty"`
	BytesPerSec *Rate    `json:"bytes_per_sec"`
	MTU         *int     `json:"mtu_bytes"`
	State       string   `json:"state,omitempty"` // operstate: "up", "down", "unknown", ...
	Carrier     *bool    `json:"carrier"`
	AdminUp     *bool    `json:"admin_up,omitempty"` // switched on: IFF_UP; nil unknown
	Master      string   `json:"master,omitempty"`
	Lower       []string `json:"lower,omitempty"` // bond legs, a VLAN's parent
	VLANID      *int     `json:"vlan_id,omitempty"`
	Bond        *Bond    `json:"bond,omitempty"`
	Addresses   []string `json:"addresses,omitempty"`      // CIDR
	Routes      []Route  `json:"routes,omitempty"`         // unicast, main table
	VFs         *int     `json:"vfs,omitempty"`            // virtual functions that the link reports
	PhysPort    string   `json:"phys_port_name,omitempty"` // representors: "pf0vf3"
	PhysSwitch  string   `json:"phys_switch_id,omitempty"`
}

// Route is one route that leaves by an interface.
type Route struct {
	Dst     string `json:"dst"` // CIDR, or "default"
	Gateway string `json:"gateway,omitempty"`
	Metric  int    `json:"metric,omitempty"`
}

// IsDefault says whether the route covers every address of an IP version.
func (r Route) IsDefault() bool {
	return r.Dst == "default" || r.Dst == "0.0.0.0/0" || r.Dst == "::/0"
}

// Bond is a bonding device's settings.
type Bond struct {
	Mode       string `json:"mode,omitempty"` // "802.3ad"
	HashPolicy string `json:"xmit_hash_policy,omitempty"`
	ActiveLeg  string `json:"active_leg,omitempty"`
}

// NVMe is an NVMe controller.
type NVMe struct {
	Node
	Name       string   `json:"name"`
	PCI        ID       `json:"pci,omitempty"`
	BDF        *BDF     `json:"bdf"`
	NUMA       *int     `json:"numa_node"`
	Model      string   `json:"model,omitempty"`
	Serial     string   `json:"serial,omitempty"`
	Namespaces []string `json:"namespaces,omitempty"`
}

// NVSwitch is an NVSwitch found on PCI.
type NVSwitch struct {
	Node
	PCI  ID   `json:"pci"`
	BDF  *BDF `json:"bdf"`
	NUMA *int `json:"numa_node"`
}

// SourceStatus says how a source did.
type SourceStatus string

// What a source can report of itself. Absent is not a failure: the host has no
// such thing (no NVML library and no NVIDIA GPU).
const (
	StatusOK      SourceStatus = "ok"
	StatusPartial SourceStatus = "partial"
	StatusAbsent  SourceStatus = "absent"
	StatusFailed  SourceStatus = "failed"
	StatusSkipped SourceStatus = "skipped"
)

// SourceReport is how one source did, and why.
type SourceReport struct {
	Source   Source       `json:"source"`
	Status   SourceStatus `json:"status"`
	Detail   string       `json:"detail,omitempty"`
	Recorded bool         `json:"recorded,omitempty"` // answers replayed from a capture
}
