package diff

import (
	"cmp"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/compare"
	"github.com/topoctl/topoctl/internal/redact"
)

// rule says how an attribute of the nodes of one kind is compared.
type rule struct {
	attr string
	// path is where the document has it, if not at the attribute's key; read reads what is
	// not one key.
	path string
	read func(*node) value
	// as makes a value of what the document has, where that is more than a word or number.
	as     func(*side, value) value
	absent absence
	// impliedBy are differences that imply this one: of attributes of the same node ("state"),
	// its function ("pci.driver"), its RDMA device ("rdma.slot"), the host ("host.cpus"), or
	// any NUMA node ("numa.cpus").
	impliedBy string
	// unless are other reasons to say nothing.
	unless func(c *comparer, p *pair) bool
	// quiet says that it is worth no line if only one side has it.
	quiet bool
}

// absence is what it means that a document does not hold an attribute.
type absence uint8

const (
	unknown        absence = iota
	meansNo                // false
	meansNone              // there is none, unless this is another tool's file
	noneIfRead             // there is none, if all of the PCI function could be read
	noneIfNetlink          // there is none, if netlink was asked
	minusOneIfSaid         // the kernel says -1, on a host where it does so
)

// rules are the attributes that are compared, in an order in which what implies others
// comes first.
var rules = map[topo.Kind][]rule{
	KindHost: {
		{attr: "host_name", path: "name"}, {attr: "machine_id_sha256"}, {attr: "vendor"}, {attr: "product"}, {attr: "arch"},
		{attr: "virtual", as: orUnknown}, {attr: "container"},
		{attr: "cpu_model"},
		{attr: "cpu_vendor", impliedBy: "cpu_model"},
		{attr: "cpu_family", impliedBy: "cpu_model"},
		{attr: "cpu_model_id", impliedBy: "cpu_model"},
		{attr: "cpus"}, {attr: "allowed_cpus", read: allowedCPUs},
		{attr: "memory_bytes", as: memory},
		{attr: "kernel"}, {attr: "gpu_driver_version"}, {attr: "gpu_module", path: "software.gpu_module"}, {attr: "memlock", read: memlock},
	},
	topo.KindNUMA: {
		{attr: "cpus", absent: meansNone},
		{attr: "memory_bytes", as: memory},
		{attr: "memory_only", impliedBy: "cpus"},
		{attr: "package"},
		{attr: "owner", as: nodeID, absent: meansNone, unless: sameOwner},
		{attr: "distances", read: distances, unless: otherNUMANodes},
	},
	topo.KindPackage: {
		{attr: "model", impliedBy: "host.cpu_model"},
		{attr: "cores"}, {attr: "numa_nodes"},
		{attr: "cpus", impliedBy: "host.cpus numa.cpus"},
	},
	topo.KindPCI: {
		{attr: "numa_node", absent: minusOneIfSaid, impliedBy: "numa_node"},
		{attr: "local_cpus", impliedBy: "numa.cpus numa_node", unless: otherNUMANode},
		{attr: "class"}, {attr: "vendor"}, {attr: "device"},
		{attr: "subsystem_vendor", absent: noneIfRead}, {attr: "subsystem_device", absent: noneIfRead},
		{attr: "revision"},
		{attr: "pf", as: functionID, absent: meansNone},
		{attr: "total_vfs", path: "sriov.total_vfs", absent: noneIfRead},
		{attr: "num_vfs", path: "sriov.num_vfs"},
		{attr: "driver", absent: noneIfRead}, {attr: "iommu_type", absent: noneIfRead}, {attr: "acs", read: acs}, {attr: "ats"},
	},
	topo.KindHostBridge: {
		{attr: "numa_node", absent: minusOneIfSaid, unless: functionsReport},
	},
	topo.KindGPU: {
		{attr: "nvml_index", unless: movesWithIndex("nvml_index")}, {attr: "minor", unless: movesWithIndex("minor")},
		{attr: "model"}, {attr: "vendor", impliedBy: "pci.vendor"},
		{attr: "numa_node", absent: minusOneIfSaid, impliedBy: "pci.numa_node"},
		{attr: "memory_numa_node", absent: meansNone},
		{attr: "memory_bytes", as: memory},
		{attr: "uuid"}, {attr: "serial"}, {attr: "compute_capability"},
		{attr: "nvlink_cluster", path: "nvlink_fabric.cluster_uuid"},
		{attr: "nvlink_clique", path: "nvlink_fabric.clique", impliedBy: "nvlink_cluster"},
		{attr: "cpu_affinity", impliedBy: "numa.cpus numa_node"},
		{attr: "driver", absent: noneIfRead, impliedBy: "pci.driver"},
		{attr: "mig", read: mig}, {attr: "visible"},
	},
	topo.KindRDMA: {
		{attr: "name", read: name, unless: matchedByOrder},
		{attr: "numa_node", absent: minusOneIfSaid, impliedBy: "pci.numa_node", unless: withoutFunction},
		{attr: "software", absent: meansNo},
		{attr: "driver", absent: noneIfRead, impliedBy: "slot pci.driver"},
		{attr: "transport"}, {attr: "node_type"}, {attr: "node_guid"},
		{attr: "sys_image_guid", impliedBy: "node_guid"},
		{attr: "firmware"}, {attr: "board"}, {attr: "hca_type"}, {attr: "uverbs", as: orUnknown},
		{attr: "netdevs", read: interfaces("netdevs"), impliedBy: "slot"},
	},
	topo.KindPort: {
		{attr: "link_layer"}, {attr: "state", as: portStates},
		{attr: "phys_state", impliedBy: "state"},
		{attr: "bytes_per_sec", as: rate, impliedBy: "state"},
		{attr: "rate", impliedBy: "state bytes_per_sec", quiet: true},
		{attr: "mtu_bytes"}, {attr: "gid_index", read: gidIndex},
		{attr: "gids", read: gids, impliedBy: "gid_index", unless: addressesReport},
		{attr: "gid_table_size"}, {attr: "pkeys"}, {attr: "traffic_class", absent: meansNone},
		{attr: "lid", impliedBy: "state"},
		{attr: "sm_lid", impliedBy: "state"},
		{attr: "netdevs", read: interfaces("netdevs"), impliedBy: "rdma.slot rdma.netdevs"},
	},
	topo.KindNetdev: {
		{attr: "name", read: name, unless: matchedByOrder},
		{attr: "type"}, {attr: "link_kind", absent: noneIfNetlink},
		{attr: "numa_node", absent: minusOneIfSaid, impliedBy: "pci.numa_node", unless: withoutFunction},
		{attr: "driver", absent: noneIfRead, impliedBy: "pci.driver"},
		{attr: "mac", as: lowerCase, unless: madeUpAddress},
		{attr: "state", as: netdevStates, unless: portReports("state")},
		{attr: "carrier", impliedBy: "state", unless: portReports("state"), quiet: true},
		{attr: "admin_up", quiet: true},
		{attr: "bytes_per_sec", as: rate, impliedBy: "state", unless: portReports("state", "bytes_per_sec")},
		{attr: "mtu_bytes"},
		{attr: "master", as: netdevName, absent: meansNone},
		{attr: "lower", read: interfaces("lower"), unless: isBridge},
		{attr: "vlan_id", absent: noneIfNetlink},
		{attr: "bond_mode", path: "bond.mode", absent: meansNone},
		{attr: "xmit_hash_policy", path: "bond.xmit_hash_policy", absent: meansNone},
		{attr: "active_leg", path: "bond.active_leg", as: netdevName, absent: meansNone},
		{attr: "addresses", read: addresses},
		{attr: "routes", read: routes, impliedBy: "addresses"},
		{attr: "vfs", impliedBy: "pci.num_vfs"},
		{attr: "phys_port_name", absent: meansNone}, {attr: "phys_switch_id", absent: meansNone},
	},
	topo.KindNVMe: {
		{attr: "name", read: name, unless: matchedByOrder},
		{attr: "numa_node", absent: minusOneIfSaid, impliedBy: "pci.numa_node"},
		{attr: "model"}, {attr: "serial"}, {attr: "namespaces", read: namespaces},
	},
}

// belongsToPlace says whether an attribute is one that the next device in the same place
// should share: it is compared where a device was replaced.
func belongsToPlace(kind topo.Kind, attr string) bool {
	switch kind {
	case topo.KindPCI:
		return attr == "numa_node"
	case topo.KindGPU:
		return slices.Contains([]string{"nvml_index", "minor", "driver", "mig", "visible"}, attr)
	case topo.KindRDMA:
		return slices.Contains([]string{"name", "driver", "transport", "firmware", "uverbs", "netdevs"}, attr)
	case topo.KindNVMe:
		return attr == "name" || attr == "namespaces"
	}
	return !slices.Contains([]string{"gids", "lid", "mac"}, attr)
}

// of is the attribute's value of a node.
func (r *rule) of(n *node) value {
	if r.read != nil {
		return r.read(n)
	}
	v := decoded(n.attribute(cmp.Or(r.path, r.attr)))
	switch {
	case !v.known:
		return n.without(r.absent)
	case r.as != nil:
		return r.as(n.side, v)
	}
	return v
}

// same says whether two known values are one.
func (r *rule) same(x, y value) bool {
	if compare.Of(r.attr).Form == compare.Amount {
		a, _ := x.data.(int64)
		b, _ := y.data.(int64)
		return compare.SameAmount(a, b)
	}
	return x.key == y.key
}

// without is the value of an attribute that the document does not hold.
func (n *node) without(a absence) value {
	s, known := n.side, false
	switch a {
	case meansNo:
		return boolean(false)
	case minusOneIfSaid:
		if s.statesNoNUMA {
			return value{known: true, key: "-1", text: "none (-1)"}
		}
	case meansNone:
		known = !s.imported
	case noneIfRead:
		known = n.function != nil && n.function.wasRead() || n.attribute("software") == true
	case noneIfNetlink:
		known = s.asksNetlink()
	}
	if known {
		return none()
	}
	return value{}
}

// wasRead says whether all that there is of a function was read, so that what is absent is
// not there.
func (n *node) wasRead() bool {
	return !n.side.imported && !slices.ContainsFunc(n.side.warned[n.ID], (*topo.Warning).Partial)
}

// asksNetlink says whether interfaces' settings were asked for, so that what is absent is
// not there.
func (s *side) asksNetlink() bool {
	return slices.ContainsFunc(s.t.Sources, func(r topo.SourceReport) bool {
		return r.Source == topo.SourceNetlink && r.Status == topo.StatusOK
	})
}

// The reasons to say nothing of a difference.

// movesWithIndex says that a number of a GPU changed just as its place in PCI order did, which says it all.
func movesWithIndex(attr string) func(*comparer, *pair) bool {
	return func(c *comparer, p *pair) bool {
		return c.isReported(p.new.ID, "index") && p.old.attribute(attr) == p.old.attribute("index") && p.new.attribute(attr) == p.new.attribute("index")
	}
}

// matchedByOrder says that names are numbers in the order of which devices were matched.
func matchedByOrder(_ *comparer, p *pair) bool { return p.match.Why == sameOrder }

func sameOwner(_ *comparer, p *pair) bool {
	return p.old.attribute("owner") == p.new.attribute("owner")
}

// otherNUMANodes says that distances have no counterparts.
func otherNUMANodes(c *comparer, _ *pair) bool { return len(c.old.numa) != len(c.new.numa) }

// otherNUMANode says that a function's CPUs differ with its NUMA node.
func otherNUMANode(_ *comparer, p *pair) bool {
	x, y := p.old.attribute("numa_node"), p.new.attribute("numa_node")
	return x != y || x == nil
}

func withoutFunction(_ *comparer, p *pair) bool {
	return p.old.attribute("pci") == nil || p.new.attribute("pci") == nil
}

// functionsReport says that the functions below a root bus report its NUMA node.
func functionsReport(c *comparer, p *pair) bool {
	if p.old.attribute("synthetic") != nil || p.new.attribute("synthetic") != nil {
		return true
	}
	return slices.ContainsFunc(c.new.functions, func(n *node) bool {
		if n.other == nil || !c.isReported(n.ID, "numa_node") {
			return false
		}
		was, _ := n.other.way()
		is, _ := n.way()
		return is == p.new.ID || c.old.rename(was) == p.new.ID
	})
}

func addressesReport(c *comparer, p *pair) bool {
	return slices.ContainsFunc(p.new.words("netdevs"), func(name string) bool { return c.isReported(topo.NetdevID(name), "addresses") })
}

// madeUpAddress says that an interface's address does not stay the same as long as the
// interface is the same: a virtual one's is made up, and that of IP over InfiniBand has a
// part that changes with every start.
func madeUpAddress(_ *comparer, p *pair) bool {
	o, _ := p.old.value.(*topo.Netdev)
	n, _ := p.new.value.(*topo.Netdev)
	switch {
	case o.PCI == "" || n.PCI == "":
		return true
	case n.Type == "infiniband":
		return redact.HardwareAddress(o) == redact.HardwareAddress(n)
	}
	return false
}

// portReports says that the port of the interface's RDMA device reports a difference. The rate
// of a virtual interface is made up.
func portReports(attrs ...string) func(*comparer, *pair) bool {
	return func(c *comparer, p *pair) bool {
		if p.new.attribute("virtual") != nil && slices.Contains(attrs, "bytes_per_sec") {
			return true
		}
		d, _ := p.new.value.(*topo.Netdev)
		return d.PCI != "" && slices.ContainsFunc(c.new.ports, func(n *node) bool {
			port, _ := n.value.(*topo.Port)
			device := c.new.index.RDMADevice(port.RDMA)
			if n.other == nil || device == nil || device.PCI != d.PCI {
				return false
			}
			return slices.ContainsFunc(attrs, func(attr string) bool {
				x, y := n.other.attribute(attr), n.attribute(attr)
				return x != nil && y != nil && x != y
			})
		})
	}
}

func isBridge(_ *comparer, p *pair) bool { return p.new.attribute("link_kind") == "bridge" }

// Ignorable lists what Options.Ignore takes: the kinds, then the attributes.
func Ignorable() []string {
	var out []string
	for _, k := range kinds {
		out = append(out, string(k))
	}
	var keys []string
	for i := range compare.Attributes {
		if a := &compare.Attributes[i]; a.Scope != compare.Summary {
			keys = append(keys, a.Key)
		}
	}
	slices.Sort(keys)
	return append(out, keys...)
}

// wants says whether a difference of a kind and attribute counts in this report.
func (c *comparer) wants(kind Kind, key string) bool {
	return !slices.Contains(c.o.Ignore, string(kind)) && !slices.Contains(c.o.Ignore, key) && c.compares(key)
}

// compares says whether an attribute counts between these two hosts.
func (c *comparer) compares(key string) bool {
	switch compare.Of(key).Scope {
	case compare.Settings:
		return !c.o.Structure
	case compare.Numbering:
		return c.identities == IdentitiesCompared || c.identities == IdentitiesRedacted
	case compare.Identity:
		return c.identities == IdentitiesCompared
	}
	return true
}

// kindOrder is the order of node kinds in a report.
var kindOrder = []topo.Kind{KindHost, topo.KindPackage, topo.KindNUMA, topo.KindGPU, topo.KindRDMA, topo.KindPort,
	topo.KindNetdev, topo.KindNVMe, topo.KindNVSwitch, topo.KindSwitch, topo.KindPCI, topo.KindHostBridge, KindLink, KindLocation}
