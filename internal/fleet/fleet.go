// Package fleet is many hosts as one document, topoctl.fleet/v1: what they are made of, which of
// them are alike, how their ports are cabled to switches, and which host differs from its kin.
//
//   - Summarize makes a Host of one host's topology. Documents of hosts stay files beside the
//     fleet's; a Host names its file and keeps what hosts are compared by.
//   - Build puts hosts and what is known of the fabric together: it finds classes of equal hosts,
//     compares what equal hosts should have in common, and judges the cables.
//   - Encode and Decode write and read the document.
//
// The order and the names of hosts change nothing of the verdicts. A fact that one host lacks is
// unknown and no difference, and a host that was not reached is blamed for nothing.
//
// The package is pure: it opens nothing and has no clock. internal/fleet/collect reads hosts.
package fleet

import (
	"iter"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

// Schema is the name and major version of a fleet document.
const Schema = "topoctl.fleet/v1"

// Fleet is many hosts, and what is known of the network between them.
type Fleet struct {
	Schema     string     `json:"schema"`
	Tool       topo.Tool  `json:"tool"`
	CapturedAt *time.Time `json:"captured_at"` // when the collection ended
	Hosts      []Host     `json:"hosts"`       // in the natural order of names
	// What is known of the fabric: cables are in the hosts' ports.
	Switches []Switch `json:"switches"`
	Links    []Link   `json:"links"` // between switches
	// RailOnly says that ports of different rails cannot reach each other.
	RailOnly bool `json:"rail_only,omitempty"`

	// What Build finds. Decode does not read it back.
	Classes  []Class   `json:"classes"`
	Groups   []Group   `json:"groups"`
	Domains  []Domain  `json:"domains"`
	Facts    []Fact    `json:"facts"`
	Findings []Finding `json:"findings"` // the worst first
	Unknown  []Unknown `json:"unknown"`
	unjoined []Cable
}

// Status says what is known of a host.
type Status string

// The values of Status. A partial host is one whose document says that something could not be read.
const (
	OK         Status = "ok"
	Partial    Status = "partial"
	NotReached Status = "not-reached"
)

// Host is one host. Of a host that was not reached only the first fields are known.
type Host struct {
	Host   string `json:"host"` // unique in the fleet
	Status Status `json:"status"`
	Reason string `json:"reason,omitempty"` // why it was not reached, or is partial
	Source string `json:"source"`           // "file n1.json", "agent 10.0.0.1:7474", "ssh n1"
	// Document is the host's topology: the path of a file relative to the fleet's own, with
	// slashes, "" for none. SHA256 is the digest of its bytes, in hex.
	Document   string     `json:"document,omitempty"`
	SHA256     string     `json:"sha256,omitempty"`
	CapturedAt *time.Time `json:"captured_at"` // of the document

	Origin string `json:"origin,omitempty"` // of the document, as topo.Topology has it
	// Anonymous says that identities and addresses are stand-ins: the document is a redacted capture,
	// or describes a model of host.
	Anonymous     bool     `json:"anonymous,omitempty"`
	Class         string   `json:"class,omitempty"` // set by Build
	Fingerprint   string   `json:"fingerprint,omitempty"`
	Name          string   `json:"name,omitempty"` // what the host calls itself
	MachineID     string   `json:"machine_id_sha256,omitempty"`
	Arch          string   `json:"arch,omitempty"`
	Vendor        string   `json:"vendor,omitempty"`
	Product       string   `json:"product,omitempty"`
	Virtual       string   `json:"virtual,omitempty"`
	CPUModel      string   `json:"cpu_model,omitempty"`
	CPUs          *int     `json:"cpus"` // online
	MemoryBytes   *int64   `json:"memory_bytes"`
	Kernel        string   `json:"kernel,omitempty"`
	KernelOptions []string `json:"kernel_options"` // null: not known
	Modules       []string `json:"modules"`        // null: not known
	GPUDriver     string   `json:"gpu_driver_version,omitempty"`
	GPUModule     string   `json:"gpu_module,omitempty"`    // "open" or "proprietary"
	NVLinkDomain  string   `json:"nvlink_domain,omitempty"` // "ClusterUUID.CliqueId"

	// NICs are the network functions of the PCI tree, virtual ones left out; of another tool's file, which may have no
	// tree or only cards in it, the NICs where they are more.
	NICs int `json:"network_functions"`
	// Parts are what the host is built of, with the number of each: "GPU 10de:2330", "NUMA node of 56 CPUs".
	Parts map[string]int `json:"parts,omitempty"`
	NUMA  []NUMANode     `json:"numa_nodes,omitempty"`
	GPUs  []GPU          `json:"gpus,omitempty"`
	Ports []Port         `json:"ports,omitempty"`
	// Doctor are the findings of the checks of "topoctl doctor", the worst first; Unchecked are the
	// checks that could not be made.
	Doctor    []HostFinding `json:"doctor,omitempty"`
	Unchecked []doctor.Code `json:"unchecked,omitempty"`
}

// Ports are the ports of all hosts, host by host.
func (f *Fleet) Ports() iter.Seq2[*Host, *Port] {
	return func(yield func(*Host, *Port) bool) {
		for i := range f.Hosts {
			for j := range f.Hosts[i].Ports {
				if !yield(&f.Hosts[i], &f.Hosts[i].Ports[j]) {
					return
				}
			}
		}
	}
}

// Known says whether there is anything to compare the host by.
func (h *Host) Known() bool { return h.Status == OK || h.Status == Partial }

// NUMANode is a NUMA node of a host.
type NUMANode struct {
	Index       int    `json:"index"`
	MemoryBytes *int64 `json:"memory_bytes"`
}

// GPU is a GPU of a host, counted in PCI order.
type GPU struct {
	GPU         string `json:"gpu"` // "gpu:0"
	PCI         string `json:"pci_address,omitempty"`
	Model       string `json:"model,omitempty"`
	UUID        string `json:"uuid,omitempty"`
	MemoryBytes *int64 `json:"memory_bytes"`
	NUMA        *int   `json:"numa_node"`
	Width       *int   `json:"pcie_width"` // current lanes; the speed of an idle GPU says nothing
	MIG         *bool  `json:"mig"`
	// Links are its NVLinks or xGMI links that are up, null where that is not known; NoLinkTo are GPUs that it has
	// fewer of them to than to others, though switches join all.
	Links    *int     `json:"direct_links,omitempty"`
	NoLinkTo []string `json:"no_direct_link_to,omitempty"`
	// Plan are the places of the ports that the plan for all GPUs gives it ("topoctl path --plan"),
	// best first; null where there is no plan.
	Plan []string `json:"plan"`
	// PlanClass is the class to that one of these ports which is farthest away, "" where one is not known.
	PlanClass string `json:"plan_class,omitempty"`
}

// Port is a port that data leaves a host by.
type Port struct {
	Port string `json:"port"` // "mlx5_0/1", or an interface: "eth0"
	// Place says which card of the host it is, whatever it is called: "nic:3/1" is port 1 of the
	// fourth network function in PCI order. Hosts of one class have the same places. "" is a port
	// without hardware.
	Place  string `json:"place,omitempty"`
	Device string `json:"device,omitempty"` // the RDMA device, "" for an interface
	Netdev string `json:"netdev,omitempty"`
	PCI    string `json:"pci_address,omitempty"`
	// Switch is the PCI address of the upstream port of the topmost PCIe switch above the port. A GPU and a NIC below one
	// switch share it, even if the switch has several levels.
	Switch string `json:"pcie_switch,omitempty"`
	// GUID and NodeGUID are those of InfiniBand's port and of the device, "0x" and 16 hex digits.
	GUID        string       `json:"guid,omitempty"`
	NodeGUID    string       `json:"node_guid,omitempty"`
	MAC         string       `json:"mac,omitempty"`
	Description string       `json:"description,omitempty"` // NodeDescription, as the fabric has it
	LinkLayer   string       `json:"link_layer,omitempty"`
	Role        pathsel.Role `json:"role,omitempty"`
	Usable      *bool        `json:"usable"`
	State       string       `json:"state,omitempty"`
	BytesPerSec *topo.Rate   `json:"bytes_per_sec"`
	MTU         *int         `json:"mtu_bytes"` // of RDMA
	NetdevMTU   *int         `json:"netdev_mtu_bytes"`
	// GIDIndex and GIDType are those of the entry that reaches peers on other links of a RoCE port.
	GIDIndex     *int     `json:"gid_index,omitempty"`
	GIDType      string   `json:"gid_type,omitempty"`
	TrafficClass *int     `json:"traffic_class,omitempty"`
	PKeys        []string `json:"pkeys,omitempty"`
	Firmware     string   `json:"firmware,omitempty"`
	Driver       string   `json:"driver,omitempty"`
	Board        string   `json:"board,omitempty"`
	NUMA         *int     `json:"numa_node"`
	SpeedMTs     *int     `json:"pcie_speed_mts"`
	Width        *int     `json:"pcie_width"`
	VFs          *int     `json:"vfs,omitempty"`
	Nearest      []string `json:"nearest,omitempty"` // GPUs of the best class that the host has for it
	Class        string   `json:"class,omitempty"`   // that class

	// Where it is cabled to: Build joins this from the Network.
	Rail     *int   `json:"rail,omitempty"`
	Plane    *int   `json:"plane,omitempty"`
	Leaf     string `json:"leaf,omitempty"`      // Switch.ID
	LeafPort string `json:"leaf_port,omitempty"` // as the switch calls it: "17", "Ethernet1/4"
	Known    string `json:"known,omitempty"`     // by what: "ibnetdiscover", "lldp", "fabric file"
}

// HostFinding is what one check of "topoctl doctor" says of a host.
type HostFinding struct {
	Code     doctor.Code     `json:"code"`
	Severity doctor.Severity `json:"severity"`
	Subjects []string        `json:"subjects,omitempty"`
	Text     string          `json:"text"` // without the consequences: "topoctl doctor" on the document has them
}

// Switch is a switch of the fabric.
type Switch struct {
	ID          string `json:"id"` // "sw:2c5eab0300b87b40", or the name that a file gives it
	Name        string `json:"name,omitempty"`
	Kind        string `json:"kind,omitempty"`        // "ib", "ethernet"
	Tier        *int   `json:"tier"`                  // 0 has hosts; null unknown
	Description string `json:"description,omitempty"` // its model, as it says
	// UnjoinedPorts are the ports cabled to it that no host of the fleet is known to have: those of
	// hosts that were not reached, or are not part of the fleet.
	UnjoinedPorts int `json:"unjoined_ports,omitempty"`
}

// Link joins two switches; the one with the lower tier is A.
type Link struct {
	A     string `json:"a"` // Switch.ID
	APort string `json:"a_port,omitempty"`
	B     string `json:"b"`
	BPort string `json:"b_port,omitempty"`
	// BytesPerSec is what each of Count parallel links carries in one direction; null unknown.
	BytesPerSec *topo.Rate `json:"bytes_per_sec"`
	Count       int        `json:"count"`
	Down        bool       `json:"down,omitempty"`
	Known       string     `json:"known,omitempty"`
}

// Class is hosts that are built alike: those of one fingerprint.
type Class struct {
	Class       string   `json:"class"` // "c-" and the beginning of the fingerprint
	Fingerprint string   `json:"fingerprint"`
	Model       string   `json:"model,omitempty"`
	Hosts       []string `json:"hosts"`
	GPUs        int      `json:"gpus"`
	GPUModel    string   `json:"gpu_model,omitempty"`
	DataPorts   int      `json:"data_ports"` // of most of its hosts
}

// Group is leaves with the same hosts: on a fabric with rails, one of each rail.
type Group struct {
	Group  string   `json:"group"` // its leaf's name, or "su-" and a digest of the first of its leaves
	Tier   int      `json:"tier"`
	Leaves []string `json:"leaves"` // Switch.ID
	Hosts  []string `json:"hosts"`
}

// Domain is the hosts whose GPUs share NVLinks.
type Domain struct {
	Domain string   `json:"domain"`
	Hosts  []string `json:"hosts"`
	GPUs   int      `json:"gpus"`
}

// Fact is something that hosts of a kind are expected to have in common.
type Fact struct {
	// Among names the hosts that are compared: a class, or "kind:" and what hosts of one kind have in common.
	Among    string   `json:"among"`
	Key      string   `json:"key"`                // "firmware", "kernel"
	Subjects []string `json:"subjects,omitempty"` // devices, as most hosts call them; none: the host
	// Majority is the value of most hosts, null where hosts disagree. Hosts have it, of Of whose
	// value is known; Unknown are those whose documents do not tell.
	Majority *string  `json:"majority"`
	Hosts    int      `json:"hosts"`
	Of       int      `json:"of"`
	Unknown  []string `json:"unknown,omitempty"`
	Others   []Others `json:"others,omitempty"`
}

// Others are the hosts that have another value; where there is no majority, each value's.
type Others struct {
	Value string   `json:"value"`
	Hosts []string `json:"hosts"`
}

// Code names a finding about the fleet. Codes are stable: scripts match on them.
type Code string

// Finding is something that is wrong with the fleet.
type Finding struct {
	Code     Code            `json:"code"`   // of ours, or of a check of "topoctl doctor"
	Source   string          `json:"source"` // SourceFleet or SourceDoctor
	Severity doctor.Severity `json:"severity"`
	Hosts    []string        `json:"hosts"`              // the ones it is about; not blame where Code says that hosts disagree
	Subjects []string        `json:"subjects,omitempty"` // "n7/mlx5_3", a switch
	Text     string          `json:"text"`
	Evidence []string        `json:"evidence"`
	Fix      string          `json:"fix,omitempty"`
}

// Unknown is something that could not be checked.
type Unknown struct {
	Code  Code     `json:"code"`
	Hosts []string `json:"hosts,omitempty"` // none: the fleet
	Text  string   `json:"text"`
	How   string   `json:"how,omitempty"` // how to find out
}

// Network is what is known of the fabric beyond the hosts.
type Network struct {
	Source   string // for texts: "fabric.json", "ibnetdiscover"
	RailOnly bool
	Switches []Switch
	Links    []Link
	Cables   []Cable
}

// Cable says which switch a port of a host is cabled to. It is joined to the host's port by GUID,
// by MAC, or by host and port, in this order, and never by a description.
type Cable struct {
	GUID, NodeGUID string // as Port has them
	MAC            string
	Host, Port     string // Host "*" is every host without an entry of its own
	Description    string // what the fabric calls the port's node
	Rail, Plane    *int
	Leaf           string // Switch.ID
	LeafPort       string
	Known          string
}
