package diff

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// about is what an attribute is about; it decides when it counts.
type about uint8

const (
	hardware  about = iota // always
	settings               // software and how it is set up: not in structure-only reports
	naming                 // names and numbers that software gives: like settings
	numbering              // what firmware and the fabric number: on one host only
	identity               // what redaction replaces, and what differs between hosts
)

// attribute is something that can differ. Keys are those of the topology's
// document where it has one.
type attribute struct {
	key, words string
	about      about
}

// attributes are in the order in which a report lists differences of a kind.
var attributes = []attribute{
	{"presence", "presence", hardware},
	{"slot", "slot", hardware},
	{"pci_address", "PCI address", numbering}, // the same slot with other bus numbers
	{"name", "name", naming},
	{"index", "index", naming},
	{"nvml_index", "NVML index", naming},
	{"minor", "device minor", naming},

	{"state", "port state", hardware},
	{"phys_state", "physical state", hardware},
	{"carrier", "carrier", hardware},
	{"admin_up", "switched on", settings},
	{"pcie_width", "pcie width", hardware},
	{"pcie_speed", "pcie speed", hardware},
	{"pcie_max_width", "pcie maximum width", hardware},
	{"pcie_max_speed", "pcie maximum speed", hardware},
	{"bytes_per_sec", "rate", hardware},
	{"rate", "rate as the driver says it", hardware},
	{"links", "direct links", hardware},
	{"relation", "relation", hardware},
	{"link_layer", "link layer", hardware},

	{"host_name", "host name", identity},
	{"machine_id_sha256", "machine id", identity},
	{"vendor", "vendor", hardware},
	{"product", "product", hardware},
	{"arch", "architecture", hardware},
	{"virtual", "virtualisation", hardware},
	{"container", "in a container", settings},
	{"cpu_vendor", "CPU vendor", hardware},
	{"cpu_model", "CPU model", hardware},
	{"cpu_family", "CPU family", hardware},
	{"cpu_model_id", "CPU model number", hardware},
	{"cores", "cores", hardware},
	{"numa_nodes", "NUMA nodes", hardware},
	{"cpus", "CPUs", hardware},
	{"allowed_cpus", "allowed CPUs", settings},
	{"memory_bytes", "memory", hardware},
	{"memory_only", "memory only", hardware},
	{"package", "CPU package", hardware},
	{"owner", "owner", hardware},
	{"distances", "NUMA distances", hardware},
	{"kernel", "kernel", settings},
	{"kernel_options", "kernel option", settings},
	{"modules", "kernel module", settings},
	{"gpu_driver_version", "GPU driver version", settings},
	{"gpu_module", "GPU kernel module", settings},
	{"memlock", "memlock limit", settings},
	{"environment", "setting", settings},

	{"model", "model", hardware},
	{"numa_node", "NUMA node", hardware},
	{"local_cpus", "local CPUs", hardware},
	{"class", "PCI class", hardware},
	{"device", "PCI device number", hardware},
	{"subsystem_vendor", "PCI subsystem vendor", hardware},
	{"subsystem_device", "PCI subsystem", hardware},
	{"revision", "PCI revision", hardware},
	{"pf", "physical function", hardware},
	{"total_vfs", "possible virtual functions", hardware},
	{"num_vfs", "virtual functions", settings},
	{"vfs", "virtual functions of the link", settings},
	{"driver", "driver", settings},
	{"iommu_type", "IOMMU", settings},
	{"acs", "ACS", settings},

	{"uuid", "UUID", identity},
	{"serial", "serial number", identity},
	{"memory_numa_node", "NUMA node of its memory", hardware},
	{"compute_capability", "compute capability", hardware},
	{"cpu_affinity", "CPU affinity", hardware},
	{"mig", "MIG", settings},
	{"visible", "visible", settings},
	{"p2p", "peer access", settings},

	{"software", "software device", hardware},
	{"transport", "transport", hardware},
	{"node_type", "node type", hardware},
	{"node_guid", "node GUID", identity},
	{"sys_image_guid", "system image GUID", identity},
	{"firmware", "firmware", settings},
	{"board", "board", hardware},
	{"hca_type", "HCA type", hardware},
	{"uverbs", "access to uverbs", settings},
	{"netdevs", "interfaces", settings},

	{"mtu_bytes", "MTU", settings},
	{"gid_index", "GID index for RoCE v2", settings},
	{"gids", "GIDs", identity},
	{"gid_table_size", "GID table size", settings},
	{"pkeys", "partition keys", settings},
	{"traffic_class", "traffic class", settings},
	{"lid", "LID", numbering},
	{"sm_lid", "subnet manager's LID", numbering},

	{"type", "type", hardware},
	{"link_kind", "kind of interface", settings},
	{"mac", "MAC address", identity},
	{"master", "master", settings},
	{"lower", "lower interfaces", settings},
	{"vlan_id", "VLAN", settings},
	{"bond_mode", "bond mode", settings},
	{"xmit_hash_policy", "bond hash policy", settings},
	{"active_leg", "bond's active leg", settings},
	{"addresses", "IP addresses", identity},
	{"routes", "routes", identity},
	{"phys_port_name", "physical port name", settings},
	{"phys_switch_id", "switch id", identity},
	{"namespaces", "namespaces", settings},

	{ChoiceTransport + "_choice", "transport", hardware},
	{ChoicePreferred, "preferred ports", hardware},
	{ChoicePlan, "planned ports", hardware},
}

// place gives an attribute's place in the list, which must hold it.
func place(key string) int {
	return slices.IndexFunc(attributes, func(a attribute) bool { return a.key == key })
}

func wordsOf(key string) string { return attributes[place(key)].words }

// Ignorable lists what Options.Ignore takes: the kinds, then the attributes.
func Ignorable() []string {
	var out []string
	for _, k := range kinds {
		out = append(out, string(k))
	}
	var keys []string
	for _, a := range attributes {
		keys = append(keys, a.key)
	}
	slices.Sort(keys)
	return append(out, keys...)
}

// checkIgnore refuses words that mean nothing.
func checkIgnore(words []string) error {
	for _, w := range words {
		if !slices.Contains(Ignorable(), w) {
			return fmt.Errorf("diff: ignore %q: neither a kind of difference (%s) nor an attribute", w, strings.Join(Ignorable()[:len(kinds)], ", "))
		}
	}
	return nil
}

// wants says whether a difference of a kind and attribute counts in this report.
func (c *comparer) wants(kind Kind, key string) bool {
	if slices.Contains(c.o.Ignore, string(kind)) || slices.Contains(c.o.Ignore, key) {
		return false
	}
	return c.compares(key)
}

// compares says whether an attribute counts between these two hosts.
func (c *comparer) compares(key string) bool {
	switch attributes[place(key)].about {
	case settings, naming:
		return !c.o.Structure
	case numbering:
		return c.identities == IdentitiesCompared || c.identities == IdentitiesRedacted
	case identity:
		return c.identities == IdentitiesCompared
	}
	return true
}

// kindOrder is the order of node kinds in a report.
var kindOrder = []topo.Kind{KindHost, topo.KindPackage, topo.KindNUMA, topo.KindGPU, topo.KindRDMA, topo.KindPort,
	topo.KindNetdev, topo.KindNVMe, topo.KindNVSwitch, topo.KindSwitch, topo.KindPCI, topo.KindHostBridge, KindLink, KindLocation}
