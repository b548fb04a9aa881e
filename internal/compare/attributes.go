// Package compare says what the attributes of hosts and their devices mean: what people call them, which comparisons
// they are part of, which values are one, how bad it is to differ, and what to do about it. Diff compares two hosts by
// it, watch one host with itself, fleet many.
package compare

import (
	"fmt"
	"strings"
)

// Attribute is something that can differ.
type Attribute struct {
	// Key is that of the topology's document where it has one.
	Key string
	// Words are for people. Of a set and of what is counted they are in the plural, with an "s".
	Words string
	Form  Form
	Scope Scope

	// Severe says that a host carries less, or nothing, with another value than its kin.
	Severe bool
	// Structural attributes are what the fingerprint of a host is made of.
	Structural bool
	// Follows says that other attributes decide about it: it is worth no line beside a difference of these.
	Follows bool
	// Decides says that the choice of ports rests on it.
	Decides bool
	// Link says what it has to do with links that go up and down.
	Link Link
	// Fix is what to do about a host that differs from its kin.
	Fix string
}

// Form is what the values are.
type Form uint8

// The forms of values.
const (
	One    Form = iota
	Many        // of which the words are a plural
	Count       // hosts of one kind have as many
	Set         // each element differs for itself
	Amount      // of memory: near values are one
	Label       // what software calls a thing, which is the same thing under another one
)

// Scope says of which comparisons an attribute is part.
type Scope uint8

// The scopes of attributes.
const (
	Hardware  Scope = iota // all
	Settings               // software, names that it gives, how it is set up: not where only the structure is compared
	Numbering              // what firmware and the fabric number: on one host only
	Identity               // what redaction replaces, and what differs between hosts
	Summary                // what a fleet keeps of a host, in place of what the host's document has
)

// Link is what an attribute has to do with links that go up and down.
type Link uint8

// The relations to links.
const (
	Apart    Link = iota
	OfLink        // it says how a link does
	WithLink      // a port that goes down takes it with it, and brings it again
)

// Attributes are in the order in which differences of a kind are told.
var Attributes = []Attribute{
	{Key: "presence", Words: "presence", Decides: true, Severe: true, Fix: "look for its driver: lspci -k, dmesg"},
	{Key: "slot", Words: "slot", Decides: true},
	{Key: "pci_address", Words: "PCI address", Form: Label, Scope: Numbering}, // the same slot with other bus numbers
	{Key: "name", Words: "name", Form: Label, Scope: Settings},
	{Key: "index", Words: "index", Form: Label, Scope: Settings},
	{Key: "nvml_index", Words: "NVML index", Form: Label, Scope: Settings},
	{Key: "minor", Words: "device minor", Form: Label, Scope: Settings},
	{Key: "gpus", Words: "GPUs", Form: Count, Scope: Summary, Structural: true, Severe: true, Fix: "look for a GPU that fell off the bus: dmesg, nvidia-smi, lspci"},
	{Key: "network_functions", Words: "network functions", Form: Count, Scope: Summary, Structural: true, Severe: true, Fix: "look for a card that is not seen: lspci, dmesg"},
	{Key: "direct_links", Words: "NVLink or xGMI links", Form: Many, Scope: Summary, Severe: true, Fix: "nvidia-smi nvlink -s, or amd-smi xgmi, on the host; dmesg for Xid messages"},
	{Key: "structure", Words: "structure", Scope: Summary, Structural: true, Fix: "\"topoctl diff --structure\" of its document and that of another host says what differs"},

	{Key: "state", Words: "port state", Link: OfLink, Decides: true, Severe: true, Fix: "look at cable, transceiver and switch port"},
	{Key: "phys_state", Words: "physical state", Link: OfLink},
	{Key: "carrier", Words: "carrier", Link: OfLink},
	{Key: "admin_up", Words: "switched on", Scope: Settings},
	{Key: "pcie_width", Words: "PCIe width", Link: OfLink, Decides: true, Severe: true, Fix: "reseat the card, look at riser and slot"},
	{Key: "pcie_speed", Words: "PCIe speed", Link: OfLink, Decides: true, Severe: true, Fix: "reseat the card, look at riser, slot and firmware settings"},
	{Key: "pcie_max_width", Words: "PCIe maximum width", Decides: true},
	{Key: "pcie_max_speed", Words: "PCIe maximum speed", Decides: true},
	{Key: "bytes_per_sec", Words: "rate", Link: OfLink, Decides: true, Severe: true, Fix: "look at cable, transceiver and switch port"},
	{Key: "rate", Words: "rate reported by the driver", Link: OfLink},
	{Key: "links", Words: "direct links"},
	{Key: "relation", Words: "relation"},
	{Key: "link_layer", Words: "link layer", Decides: true, Severe: true, Fix: "set it as on the others: mlxconfig LINK_TYPE"},

	{Key: "host_name", Words: "host name", Scope: Identity},
	{Key: "machine_id_sha256", Words: "machine id", Scope: Identity},
	{Key: "vendor", Words: "vendor"},
	{Key: "product", Words: "product"},
	{Key: "arch", Words: "architecture"},
	{Key: "virtual", Words: "virtualization"},
	{Key: "container", Words: "in a container", Scope: Settings},
	{Key: "cpu_vendor", Words: "CPU vendor"},
	{Key: "cpu_model", Words: "CPU model", Structural: true},
	{Key: "cpu_family", Words: "CPU family"},
	{Key: "cpu_model_id", Words: "CPU model number"},
	{Key: "cores", Words: "cores"},
	{Key: "numa_nodes", Words: "NUMA nodes", Form: Count, Structural: true, Fix: "compare the firmware's settings (NPS, SNC)"},
	{Key: "cpus", Words: "CPUs", Form: Count, Structural: true, Fix: "compare the firmware's settings (SMT) and what is offline"},
	{Key: "allowed_cpus", Words: "allowed CPUs", Scope: Settings},
	{Key: "memory_bytes", Words: "memory", Form: Amount, Fix: "look for a memory module that is not seen: dmidecode -t memory"},
	{Key: "gpu_memory_bytes", Words: "memory", Form: Amount, Scope: Summary},
	{Key: "memory_only", Words: "memory only"},
	{Key: "package", Words: "CPU package"},
	{Key: "owner", Words: "owner"},
	{Key: "distances", Words: "NUMA distances"},
	{Key: "kernel", Words: "kernel", Scope: Settings, Fix: "install and boot the kernel of the others"},
	{Key: "kernel_options", Words: "kernel options", Form: Set, Scope: Settings, Fix: "compare /proc/cmdline"},
	{Key: "modules", Words: "kernel modules", Form: Set, Scope: Settings, Fix: "load what is missing: modprobe"},
	{Key: "gpu_driver_version", Words: "GPU driver version", Scope: Settings, Fix: "install the GPU driver of the others"},
	{Key: "gpu_module", Words: "GPU kernel module", Scope: Settings, Fix: "install the kernel module of the others (open or proprietary)"},
	{Key: "memlock", Words: "memlock limit", Scope: Settings},
	{Key: "environment", Words: "settings", Form: Set, Scope: Settings},

	{Key: "model", Words: "model"},
	{Key: "numa_node", Words: "NUMA node", Decides: true, Fix: "compare the firmware's settings"},
	{Key: "local_cpus", Words: "local CPUs"},
	{Key: "class", Words: "PCI class"},
	{Key: "device", Words: "PCI device number"},
	{Key: "subsystem_vendor", Words: "PCI subsystem vendor"},
	{Key: "subsystem_device", Words: "PCI subsystem"},
	{Key: "revision", Words: "PCI revision"},
	{Key: "pf", Words: "physical function"},
	{Key: "total_vfs", Words: "possible virtual functions"},
	{Key: "num_vfs", Words: "virtual functions", Form: Many, Scope: Settings},
	{Key: "vfs", Words: "virtual functions", Form: Many, Scope: Settings},
	{Key: "driver", Words: "driver", Scope: Settings},
	{Key: "iommu_type", Words: "IOMMU", Scope: Settings},
	{Key: "acs", Words: "ACS", Scope: Settings},
	{Key: "ats", Words: "ATS", Scope: Settings},

	{Key: "uuid", Words: "UUID", Scope: Identity},
	{Key: "serial", Words: "serial number", Scope: Identity},
	{Key: "nvlink_cluster", Words: "NVLink domain", Scope: Identity},
	{Key: "nvlink_clique", Words: "clique of its NVLink domain", Scope: Identity},
	{Key: "memory_numa_node", Words: "NUMA node of its memory"},
	{Key: "compute_capability", Words: "compute capability"},
	{Key: "cpu_affinity", Words: "CPU affinity"},
	{Key: "mig", Words: "MIG", Scope: Settings, Fix: "nvidia-smi -mig"},
	{Key: "visible", Words: "visible", Scope: Settings},
	{Key: "p2p", Words: "peer access", Scope: Settings},

	{Key: "software", Words: "software device"},
	{Key: "transport", Words: "transport"},
	{Key: "node_type", Words: "node type"},
	{Key: "node_guid", Words: "node GUID", Scope: Identity},
	{Key: "sys_image_guid", Words: "system image GUID", Scope: Identity},
	{Key: "firmware", Words: "firmware", Scope: Settings, Fix: "install the firmware of the others"},
	{Key: "board", Words: "board"},
	{Key: "hca_type", Words: "HCA type"},
	{Key: "uverbs", Words: "access to uverbs", Scope: Settings, Decides: true},
	{Key: "netdevs", Words: "interfaces", Scope: Settings},

	{Key: "mtu_bytes", Words: "MTU", Scope: Settings, Fix: "set the MTU of the others, on the switch port too"},
	{Key: "netdev_mtu_bytes", Words: "interface MTU", Scope: Summary, Fix: "ip link set DEV mtu BYTES"},
	{Key: "gid_index", Words: "GID index for RoCE v2", Scope: Settings, Link: WithLink, Decides: true, Fix: "programs that are told one index for all hosts reach nobody from here: make addresses in the order of the others"},
	{Key: "gid_type", Words: "GID type", Scope: Summary},
	{Key: "gids", Words: "GIDs", Scope: Identity, Link: WithLink, Decides: true},
	{Key: "gid_table_size", Words: "GID table size", Scope: Settings},
	{Key: "pkeys", Words: "partition keys", Form: Many, Scope: Settings, Fix: "compare the subnet manager's partitions"},
	{Key: "traffic_class", Words: "traffic class", Scope: Settings, Fix: "set it as on the others"},
	{Key: "lid", Words: "LID", Scope: Numbering, Link: WithLink, Decides: true},
	{Key: "sm_lid", Words: "subnet manager's LID", Scope: Numbering, Link: WithLink},

	{Key: "type", Words: "type", Decides: true},
	{Key: "link_kind", Words: "kind of interface", Scope: Settings},
	{Key: "mac", Words: "MAC address", Scope: Identity},
	{Key: "master", Words: "master", Scope: Settings},
	{Key: "lower", Words: "lower interfaces", Scope: Settings},
	{Key: "vlan_id", Words: "VLAN", Scope: Settings},
	{Key: "bond_mode", Words: "bond mode", Scope: Settings},
	{Key: "xmit_hash_policy", Words: "bond hash policy", Scope: Settings},
	{Key: "active_leg", Words: "bond's active leg", Scope: Settings, Link: WithLink},
	{Key: "addresses", Words: "IP addresses", Scope: Identity, Link: WithLink, Decides: true},
	{Key: "routes", Words: "routes", Scope: Identity, Link: WithLink, Decides: true},
	{Key: "phys_port_name", Words: "physical port name", Scope: Settings},
	{Key: "phys_switch_id", Words: "switch id", Scope: Identity},
	{Key: "namespaces", Words: "namespaces", Scope: Settings},

	{Key: "transport_choice", Words: "transport"},
	{Key: "nearest_class", Words: "class to its nearest GPUs", Scope: Summary, Follows: true},
	{Key: "nearest", Words: "nearest GPUs", Form: Many, Scope: Summary, Follows: true},
	{Key: "role", Words: "role", Scope: Summary, Follows: true},
	{Key: "preferred", Words: "preferred ports", Form: Many},
	{Key: "plan", Words: "planned ports", Form: Many, Follows: true},
}

var positions = func() map[string]int {
	out := make(map[string]int, len(Attributes))
	for i := range Attributes {
		out[Attributes[i].Key] = i
	}
	return out
}()

// Position is an attribute's place in the order in which differences are told.
func Position(key string) int {
	i, ok := positions[key]
	if !ok {
		panic(fmt.Sprintf("compare: no attribute %q", key))
	}
	return i
}

// Of is the attribute with a key, which must be one.
func Of(key string) *Attribute { return &Attributes[Position(key)] }

// Single is what one element of a set is called, or one of what is counted.
func (a *Attribute) Single() string { return strings.TrimSuffix(a.Words, "s") }

// SameAmount says whether two amounts of memory differ by no more than what firmware and kernel keep for themselves,
// 1 % or 512 MiB: less than any memory module.
func SameAmount(a, b int64) bool {
	return max(a, b)-min(a, b) <= max(max(a, b)/100, 512<<20)
}
