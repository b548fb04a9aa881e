package diff

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

func netdevFunction(n *topo.Netdev) topo.ID { return n.PCI }

var netdevFields = []field[topo.Netdev]{
	{attr: "type", get: func(_ *side, n *topo.Netdev) value { return word(n.Type) }},
	{attr: "link_kind", get: func(s *side, n *topo.Netdev) value { return wordOrNone(n.LinkKind, s.asksNetlink()) }},
	{attr: "numa_node", get: func(s *side, n *topo.Netdev) value {
		if n.PCI == "" {
			return value{}
		}
		return s.numa(n.NUMA)
	}, follows: func(c *comparer, p *pair[topo.Netdev]) bool {
		return p.old.PCI == "" || p.new.PCI == "" || c.tells(p.new.PCI, "numa_node")
	}},
	{attr: "driver", get: func(s *side, n *topo.Netdev) value { return wordOrNone(n.Driver, s.readsFunction(n.PCI)) }, follows: byFunction("driver", netdevFunction)},
	{attr: "mac", get: func(_ *side, n *topo.Netdev) value { return word(strings.ToLower(n.MAC)) },
		follows: func(_ *comparer, p *pair[topo.Netdev]) bool { return !sameWhenKept(p.old, p.new) }},
	{attr: "state", get: func(_ *side, n *topo.Netdev) value { return netdevState(n) }, follows: portTells("state")},
	{attr: "carrier", get: func(_ *side, n *topo.Netdev) value { return maybe(n.Carrier) },
		follows: func(c *comparer, p *pair[topo.Netdev]) bool {
			return c.tells(p.n.ID, "state") || portTells("state")(c, p) || p.old.Carrier == nil || p.new.Carrier == nil
		}},
	{attr: "admin_up", get: func(_ *side, n *topo.Netdev) value { return maybe(n.AdminUp) },
		follows: func(c *comparer, p *pair[topo.Netdev]) bool { return p.old.AdminUp == nil || p.new.AdminUp == nil }},
	{attr: "bytes_per_sec", get: func(_ *side, n *topo.Netdev) value { return rateOf(n.BytesPerSec) },
		follows: func(c *comparer, p *pair[topo.Netdev]) bool {
			return p.new.Virtual || c.tells(p.n.ID, "state") || portTells("state")(c, p) || portTells("bytes_per_sec")(c, p)
		}},
	{attr: "mtu_bytes", get: func(_ *side, n *topo.Netdev) value { return number(n.MTU) }},
	{attr: "master", get: func(s *side, n *topo.Netdev) value {
		v := wordOrNone(n.Master, !s.imported)
		if n.Master != "" {
			v.key = string(s.rename(topo.NetdevID(n.Master)))
		}
		return v
	}},
	{attr: "lower", get: func(s *side, n *topo.Netdev) value { return s.interfaces(n.Lower) },
		follows: func(c *comparer, p *pair[topo.Netdev]) bool { return p.new.LinkKind == "bridge" }},
	{attr: "vlan_id", get: func(s *side, n *topo.Netdev) value {
		if n.VLANID == nil {
			return wordOrNone("", s.asksNetlink())
		}
		return number(n.VLANID)
	}},
	{attr: "bond_mode", get: bondField(func(b *topo.Bond) string { return b.Mode })},
	{attr: "xmit_hash_policy", get: bondField(func(b *topo.Bond) string { return b.HashPolicy })},
	{attr: "active_leg", get: func(s *side, n *topo.Netdev) value {
		v := bondField(func(b *topo.Bond) string { return b.ActiveLeg })(s, n)
		if v.data != nil {
			v.key = string(s.rename(topo.NetdevID(v.text)))
		}
		return v
	}},
	{attr: "addresses", get: func(s *side, n *topo.Netdev) value {
		if len(n.Addresses) == 0 && !s.asksNetlink() {
			return value{}
		}
		// Link-local addresses are made from the MAC address.
		own := slices.DeleteFunc(slices.Clone(n.Addresses), func(a string) bool { return strings.HasPrefix(a, "fe80:") })
		return list(own, own)
	}},
	{attr: "routes", get: func(s *side, n *topo.Netdev) value {
		if len(n.Routes) == 0 && !s.asksNetlink() {
			return value{}
		}
		var words []string
		for _, r := range n.Routes {
			w := r.Dst
			if r.Gateway != "" {
				w += " via " + r.Gateway
			}
			if r.Metric != 0 {
				w += fmt.Sprintf(" metric %d", r.Metric)
			}
			words = append(words, w)
		}
		return list(words, words)
	}, follows: func(c *comparer, p *pair[topo.Netdev]) bool { return c.tells(p.n.ID, "addresses") }},
	{attr: "vfs", get: func(_ *side, n *topo.Netdev) value { return number(n.VFs) },
		follows: byFunction("num_vfs", netdevFunction)},
	{attr: "phys_port_name", get: func(s *side, n *topo.Netdev) value { return wordOrNone(n.PhysPort, !s.imported) }},
	{attr: "phys_switch_id", get: func(s *side, n *topo.Netdev) value { return wordOrNone(n.PhysSwitch, !s.imported) }},
}

// asksNetlink says whether interfaces' settings were asked for, so that what is
// absent is not there.
func (s *side) asksNetlink() bool {
	for _, r := range s.t.Sources {
		if r.Source == topo.SourceNetlink {
			return r.Status == topo.StatusOK
		}
	}
	return false
}

// sameWhenKept says whether an interface's address stays the same as long as it
// is the same: a virtual interface's is made up, and that of IP over InfiniBand
// has a part that changes with every start.
func sameWhenKept(o, n *topo.Netdev) bool {
	switch {
	case o.PCI == "" || n.PCI == "":
		return false
	case n.Type == "infiniband":
		return hardwareAddress(o) != hardwareAddress(n)
	}
	return true
}

// portTells says that the port of the interface's RDMA device tells a difference.
func portTells(attr string) func(*comparer, *pair[topo.Netdev]) bool {
	return func(c *comparer, p *pair[topo.Netdev]) bool {
		return c.wireTells[p.new.PCI+" "+topo.ID(attr)] && p.new.PCI != ""
	}
}

// netdevState ranks states; others than these are neither better nor worse.
func netdevState(n *topo.Netdev) value {
	v := word(n.State)
	rank := map[string]int64{"down": 0, "lowerlayerdown": 0, "dormant": 1, "up": 2}
	if r, ok := rank[n.State]; ok {
		v.rank = &r
	}
	return v
}

// bondField is a bond's setting; what is no bond has none.
func bondField(get func(*topo.Bond) string) func(*side, *topo.Netdev) value {
	return func(s *side, n *topo.Netdev) value {
		if n.Bond == nil {
			return wordOrNone("", !s.imported)
		}
		return wordOrNone(get(n.Bond), !s.imported)
	}
}

// netdevs compares interfaces.
func (c *comparer) netdevs() {
	c.notePorts()
	news := map[topo.ID]*topo.Netdev{}
	for i := range c.new.t.Netdevs {
		news[c.new.t.Netdevs[i].ID] = &c.new.t.Netdevs[i]
	}
	for i := range c.old.t.Netdevs {
		o := &c.old.t.Netdevs[i]
		m := c.m.to[o.ID]
		if m == nil {
			continue
		}
		n := news[m.New]
		if comesAndGoes(o) && comesAndGoes(n) {
			continue
		}
		p := pair[topo.Netdev]{topo.KindNetdev, o, n, &o.Node, &n.Node, m, n.Name}
		if m.Replaced {
			fields(c, p, netdevPlaceFields)
		} else {
			fields(c, p, netdevFields)
		}
		c.named(topo.KindNetdev, &o.Node, &n.Node, m, o.Name, n.Name)
	}
}

// comesAndGoes knows the host's ends of containers' interfaces.
func comesAndGoes(n *topo.Netdev) bool { return n.LinkKind == "veth" && n.Master != "" }

// notePorts finds the functions whose RDMA port changes state or rate: that
// tells the same of their interfaces.
func (c *comparer) notePorts() {
	c.wireTells = map[topo.ID]bool{}
	pci := map[topo.ID]topo.ID{}
	for i := range c.new.t.RDMADevices {
		pci[c.new.t.RDMADevices[i].ID] = c.new.t.RDMADevices[i].PCI
	}
	olds := map[topo.ID]*topo.Port{}
	for i := range c.old.t.Ports {
		olds[c.old.t.Ports[i].ID] = &c.old.t.Ports[i]
	}
	for i := range c.new.t.Ports {
		n := &c.new.t.Ports[i]
		m := c.m.from[n.ID]
		if m == nil {
			continue
		}
		o := olds[m.Old]
		fn := pci[n.RDMA]
		x, y := portState(o), portState(n)
		c.wireTells[fn+" state"] = c.wireTells[fn+" state"] || x.known && y.known && x.key != y.key
		a, b := rateOf(o.BytesPerSec), rateOf(n.BytesPerSec)
		c.wireTells[fn+" bytes_per_sec"] = c.wireTells[fn+" bytes_per_sec"] || a.known && b.known && a.key != b.key
	}
}

var nvmeFields = []field[topo.NVMe]{
	{attr: "numa_node", get: func(s *side, n *topo.NVMe) value { return s.numa(n.NUMA) },
		follows: func(c *comparer, p *pair[topo.NVMe]) bool { return p.new.PCI != "" && c.tells(p.new.PCI, "numa_node") }},
	{attr: "model", get: func(_ *side, n *topo.NVMe) value { return word(n.Model) }},
	{attr: "serial", get: func(_ *side, n *topo.NVMe) value { return word(n.Serial) }},
	{attr: "namespaces", get: func(_ *side, n *topo.NVMe) value {
		var words []string
		for _, ns := range n.Namespaces {
			words = append(words, strings.TrimPrefix(ns, n.Name))
		}
		return list(words, words)
	}},
}

var nvmePlaceFields = []field[topo.NVMe]{fieldOf(nvmeFields, "namespaces")}

// nvmes compares NVMe controllers.
func (c *comparer) nvmes() {
	news := map[topo.ID]*topo.NVMe{}
	for i := range c.new.t.NVMes {
		news[c.new.t.NVMes[i].ID] = &c.new.t.NVMes[i]
	}
	for i := range c.old.t.NVMes {
		o := &c.old.t.NVMes[i]
		m := c.m.to[o.ID]
		if m == nil {
			continue
		}
		n := news[m.New]
		p := pair[topo.NVMe]{topo.KindNVMe, o, n, &o.Node, &n.Node, m, n.Name}
		if m.Replaced {
			fields(c, p, nvmePlaceFields)
		} else {
			fields(c, p, nvmeFields)
		}
		c.named(topo.KindNVMe, &o.Node, &n.Node, m, o.Name, n.Name)
	}
}
