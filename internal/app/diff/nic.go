package diff

import (
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

func rdmaFunction(r *topo.RDMADevice) topo.ID { return r.PCI }

var rdmaFields = []field[topo.RDMADevice]{
	{attr: "numa_node", get: func(s *side, r *topo.RDMADevice) value {
		if r.PCI == "" {
			return value{}
		}
		return s.numa(r.NUMA)
	}, follows: func(c *comparer, p *pair[topo.RDMADevice]) bool {
		return p.old.PCI == "" || p.new.PCI == "" || c.tells(p.new.PCI, "numa_node")
	}},
	{attr: "software", get: func(_ *side, r *topo.RDMADevice) value { return yes(r.Software) }},
	{attr: "driver", get: func(s *side, r *topo.RDMADevice) value {
		return wordOrNone(r.Driver, r.Software || s.readsFunction(r.PCI))
	},
		follows: func(c *comparer, p *pair[topo.RDMADevice]) bool {
			return c.tells(p.n.ID, "slot") || byFunction("driver", rdmaFunction)(c, p)
		}},
	{attr: "transport", get: func(_ *side, r *topo.RDMADevice) value { return word(r.Transport) }},
	{attr: "node_type", get: func(_ *side, r *topo.RDMADevice) value { return word(r.NodeType) }},
	{attr: "node_guid", get: func(_ *side, r *topo.RDMADevice) value { return word(r.NodeGUID) }},
	{attr: "sys_image_guid", get: func(_ *side, r *topo.RDMADevice) value { return word(r.SysImageGUID) },
		follows: func(c *comparer, p *pair[topo.RDMADevice]) bool { return c.tells(p.n.ID, "node_guid") }},
	{attr: "firmware", get: func(_ *side, r *topo.RDMADevice) value { return word(r.Firmware) }},
	{attr: "board", get: func(_ *side, r *topo.RDMADevice) value { return word(r.Board) }},
	{attr: "hca_type", get: func(_ *side, r *topo.RDMADevice) value { return word(r.HCAType) }},
	{attr: "uverbs", get: func(_ *side, r *topo.RDMADevice) value { return word(strings.TrimPrefix(r.Uverbs, "unknown")) }},
	{attr: "netdevs", get: func(s *side, r *topo.RDMADevice) value {
		if len(r.Netdevs) == 0 && !r.Software && r.PCI == "" {
			return value{} // they are found by the function
		}
		return s.interfaces(r.Netdevs)
	}, follows: func(c *comparer, p *pair[topo.RDMADevice]) bool { return c.tells(p.n.ID, "slot") }},
}

// Those attributes that a replaced card's successor should share.
var (
	rdmaPlaceFields = []field[topo.RDMADevice]{fieldOf(rdmaFields, "driver"), fieldOf(rdmaFields, "transport"),
		fieldOf(rdmaFields, "firmware"), fieldOf(rdmaFields, "uverbs"), fieldOf(rdmaFields, "netdevs")}
	portPlaceFields   = slices.DeleteFunc(slices.Clone(portFields), func(f field[topo.Port]) bool { return f.attr == "gids" || f.attr == "lid" })
	netdevPlaceFields = slices.DeleteFunc(slices.Clone(netdevFields), func(f field[topo.Netdev]) bool { return f.attr == "mac" })
)

// interfaces are names of interfaces; a renamed one is the same.
func (s *side) interfaces(names []string) value {
	if len(names) == 0 && s.imported {
		return value{}
	}
	keys := make([]string, len(names))
	for i, n := range names {
		keys[i] = string(s.rename(topo.NetdevID(n)))
	}
	return list(names, keys)
}

var portFields = []field[topo.Port]{
	{attr: "link_layer", get: func(_ *side, p *topo.Port) value { return word(p.LinkLayer) }},
	{attr: "state", get: func(_ *side, p *topo.Port) value { return portState(p) }},
	{attr: "phys_state", get: func(_ *side, p *topo.Port) value { return word(p.PhysState) },
		follows: func(c *comparer, p *pair[topo.Port]) bool { return c.tells(p.n.ID, "state") }},
	{attr: "bytes_per_sec", get: func(_ *side, p *topo.Port) value { return rateOf(p.BytesPerSec) },
		follows: func(c *comparer, p *pair[topo.Port]) bool { return c.tells(p.n.ID, "state") }},
	{attr: "rate", get: func(_ *side, p *topo.Port) value { return word(p.RateRaw) },
		follows: func(c *comparer, p *pair[topo.Port]) bool {
			return c.tells(p.n.ID, "state") || c.tells(p.n.ID, "bytes_per_sec") || p.old.RateRaw == "" || p.new.RateRaw == ""
		}},
	{attr: "mtu_bytes", get: func(_ *side, p *topo.Port) value { return number(p.MTU) }},
	{attr: "gid_index", get: func(_ *side, p *topo.Port) value { return gidIndex(p) }},
	{attr: "gids", get: func(_ *side, p *topo.Port) value { return gids(p) },
		follows: func(c *comparer, p *pair[topo.Port]) bool {
			return c.tells(p.n.ID, "gid_index") || slices.ContainsFunc(p.new.Netdevs, func(n string) bool { return c.tells(topo.NetdevID(n), "addresses") })
		}},
	{attr: "gid_table_size", get: func(_ *side, p *topo.Port) value { return number(p.GIDTable) }},
	{attr: "pkeys", get: func(_ *side, p *topo.Port) value {
		var keys []string
		for _, k := range p.PKeys {
			keys = append(keys, string(k))
		}
		return word(strings.Join(keys, ", "))
	}},
	{attr: "traffic_class", get: func(s *side, p *topo.Port) value {
		if p.TrafficClass == nil {
			return wordOrNone("", !s.imported)
		}
		return number(p.TrafficClass)
	}},
	{attr: "lid", get: func(_ *side, p *topo.Port) value { return number(p.LID) }, follows: downPort},
	{attr: "sm_lid", get: func(_ *side, p *topo.Port) value { return number(p.SMLID) }, follows: downPort},
	{attr: "netdevs", get: func(s *side, p *topo.Port) value { return s.interfaces(p.Netdevs) },
		follows: func(c *comparer, p *pair[topo.Port]) bool {
			return c.tells(p.new.RDMA, "slot") || c.tells(p.new.RDMA, "netdevs") || c.unsaid[[2]string{string(p.new.RDMA), "netdevs"}]
		}},
}

// downPort says that a port went down or up, and its addresses with it.
func downPort(c *comparer, p *pair[topo.Port]) bool { return c.tells(p.n.ID, "state") }

// portState ranks states by how near they are to carrying data.
func portState(p *topo.Port) value {
	v := word(p.State)
	for i, state := range []string{"DOWN", "INIT", "ARMED", "ACTIVE"} {
		if p.State == state {
			rank := int64(i)
			v.rank = &rank
		}
	}
	return v
}

// gidIndex is the index that RoCE v2 to other networks needs.
func gidIndex(p *topo.Port) value {
	if p.LinkLayer != "Ethernet" || p.GIDTable == nil {
		return value{}
	}
	usable := pathsel.RoCEGIDs(p)
	if len(usable) == 0 {
		return none()
	}
	return number(&usable[0].Index)
}

func gids(p *topo.Port) value {
	if p.GIDTable == nil {
		return value{}
	}
	var words []string
	for _, g := range p.GIDs {
		words = append(words, strings.TrimSpace(strconv.Itoa(g.Index)+" "+g.GID+" "+g.Type))
	}
	return list(words, words)
}

// rdma compares RDMA devices and their ports.
func (c *comparer) rdma() {
	news := map[topo.ID]*topo.RDMADevice{}
	for i := range c.new.t.RDMADevices {
		news[c.new.t.RDMADevices[i].ID] = &c.new.t.RDMADevices[i]
	}
	for i := range c.old.t.RDMADevices {
		o := &c.old.t.RDMADevices[i]
		m := c.m.to[o.ID]
		if m == nil {
			continue
		}
		n := news[m.New]
		p := pair[topo.RDMADevice]{topo.KindRDMA, o, n, &o.Node, &n.Node, m, n.Name}
		c.functionOf(p)
		if m.Replaced {
			fields(c, p, rdmaPlaceFields)
		} else {
			fields(c, p, rdmaFields)
		}
		c.named(topo.KindRDMA, &o.Node, &n.Node, m, o.Name, n.Name)
	}
	c.ports()
}

// functionOf notes that only one side knows a device's PCI function: the kernel
// shows none any more, or its file does not tell.
func (c *comparer) functionOf(p pair[topo.RDMADevice]) {
	if (p.old.PCI == "") == (p.new.PCI == "") || p.old.Software || p.new.Software {
		return
	}
	silent, id := c.new, p.n.ID
	if p.old.PCI == "" {
		silent, id = c.old, p.o.ID
	}
	node := c.node(topo.KindRDMA, p.o, p.n, p.match, p.name, "pci")
	if slices.ContainsFunc(silent.warned[id], func(w *topo.Warning) bool { return w.Code == topo.CodeNoPCIParent }) {
		at := func(r *topo.RDMADevice) value { return wordOrNone(r.PCI.Name(), true) }
		c.add(finding{kind: Changed, attr: "slot", node: node, old: at(p.old), new: at(p.new)})
		return
	}
	c.omit("slot", node, p.old.PCI != "", p.o, p.n)
}

// ports compares the ports of matched RDMA devices.
func (c *comparer) ports() {
	news := map[topo.ID]*topo.Port{}
	count := map[topo.ID]int{}
	for i := range c.new.t.Ports {
		news[c.new.t.Ports[i].ID] = &c.new.t.Ports[i]
		count[c.new.t.Ports[i].RDMA]++
	}
	for i := range c.old.t.Ports {
		o := &c.old.t.Ports[i]
		m := c.m.to[o.ID]
		if m == nil {
			continue
		}
		n := news[m.New]
		name := n.RDMA.Name()
		if count[n.RDMA] > 1 {
			name += "/" + strconv.Itoa(n.Number)
		}
		p := pair[topo.Port]{topo.KindPort, o, n, &o.Node, &n.Node, m, name}
		if m.Replaced {
			fields(c, p, portPlaceFields)
		} else {
			fields(c, p, portFields)
		}
	}
}

// named notes that a device goes by another name.
func (c *comparer) named(kind topo.Kind, o, n *topo.Node, m *Match, x, y string) {
	if x != y && c.compares("name") && m.Why != sameOrder {
		c.add(finding{kind: Renumbered, attr: "name", node: c.node(kind, o, n, m, y, "name"), old: word(x), new: word(y), note: m.Why})
	}
}
