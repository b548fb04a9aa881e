package pathsel

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/topoctl/topoctl/discover/topo"
)

// Reach says whether two ports can reach each other.
type Reach string

// The answers. Assumed means that nothing speaks against it and something that
// decides is not known; where that may well be otherwise, the lane ranks behind.
const (
	ReachYes     Reach = "yes"
	ReachAssumed Reach = "assumed"
	ReachNo      Reach = "no"
)

// Contact is what a transport needs to connect the two ports of a lane. What
// its protocol does not use is left out.
type Contact struct {
	LocalGIDIndex  *int       `json:"local_gid_index,omitempty"`
	LocalGID       string     `json:"local_gid,omitempty"`
	LocalLID       *int       `json:"local_lid,omitempty"`
	LocalAddress   netip.Addr `json:"local_address,omitzero"`
	RemoteGIDIndex *int       `json:"remote_gid_index,omitempty"`
	RemoteGID      string     `json:"remote_gid,omitempty"`
	RemoteLID      *int       `json:"remote_lid,omitempty"`
	RemoteAddress  netip.Addr `json:"remote_address,omitzero"`
	// PKey is the partition that both are members of, as the local table has it.
	PKey topo.HexID `json:"pkey,omitempty"`
}

// The protocols that ports speak to each other.
const (
	protoTCP   = "TCP"
	protoIB    = "InfiniBand"
	protoOPA   = "Omni-Path"
	protoRoCE  = "RoCE"
	protoIWARP = "iWARP"
	protoEFA   = "EFA"
)

// end is one port as the other side sees it.
type end struct {
	p      *Port
	proto  string // "" unknown
	cabled cabling
	ips    []ipEnd // routable addresses: of the interface, or of GIDs of RoCE v2
	near   []ipEnd // GIDs that reach the same link only: link-local ones and RoCE v1
	prefix string  // InfiniBand: the upper half of GID 0, "" unknown
	pkeys  []uint16
}

// ipEnd is one address of a port.
type ipEnd struct {
	addr   netip.Addr
	subnet netip.Prefix // not valid where its length is not known
	routes []netip.Prefix
	byGW   bool // the interface has the host's default route
	gid    *topo.GID
}

// ends prepares the usable ports of a host, and gives each port's place among
// them by Port.Index, -1 for a port that is not usable.
func (h *Host) ends(cabled []cabling) ([]*end, []int) {
	var out []*end
	at := make([]int, len(h.ports))
	for i := range h.ports {
		p := &h.ports[i]
		at[i] = -1
		if !p.Usable {
			continue
		}
		e := &end{p: p, proto: protoTCP, cabled: cabled[i]}
		if h.transport == RDMA {
			e.proto = p.protocol()
		}
		switch e.proto {
		case protoTCP, protoIWARP:
			for _, a := range p.Addresses {
				if routable(a.Addr()) {
					e.ips = append(e.ips, newIPEnd(a.Addr(), p.netdev, nil))
				}
			}
		case protoRoCE:
			e.addGIDs(h.index)
		case protoIB, protoOPA:
			e.addSubnet()
		}
		at[i] = len(out)
		out = append(out, e)
	}
	return out, at
}

// protocol is what an RDMA port speaks on the wire, "" unknown.
func (p *Port) protocol() string {
	switch p.rdma.Transport {
	case "ib":
		return protoIB
	case "opa":
		return protoOPA
	case "roce":
		return protoRoCE
	case "iwarp":
		return protoIWARP
	case "efa":
		return protoEFA
	}
	switch p.LinkLayer {
	case "InfiniBand":
		return protoIB
	case "Ethernet":
		return protoRoCE
	}
	return ""
}

// newIPEnd finds the network that an address is in and the ways of its interface.
func newIPEnd(addr netip.Addr, n *topo.Netdev, gid *topo.GID) ipEnd {
	ip := ipEnd{addr: addr, gid: gid}
	if n == nil {
		return ip
	}
	for _, a := range n.Addresses {
		if p, err := netip.ParsePrefix(a); err == nil && p.Addr() == addr {
			ip.subnet = p.Masked()
		}
	}
	for _, r := range n.Routes {
		p, err := netip.ParsePrefix(r.Dst)
		switch {
		case r.Dst == "default" || err == nil && p.Bits() == 0:
			ip.byGW = true
		case err == nil:
			ip.routes = append(ip.routes, p.Masked())
		}
	}
	return ip
}

// addGIDs sorts the GIDs of a RoCE port into routable ones and those that reach
// the same link only, RoCE v2 first.
func (e *end) addGIDs(index *topo.Index) {
	if e.p.port == nil {
		return
	}
	add := func(list []ipEnd, g topo.GID) []ipEnd {
		addr, err := netip.ParseAddr(g.GID)
		if err != nil {
			return list
		}
		n := index.NetdevNamed(g.Netdev)
		if n == nil || len(n.Addresses) == 0 {
			n = e.p.netdev
		}
		return append(list, newIPEnd(addr.Unmap(), n, &g))
	}
	best := RoCEGIDs(e.p.port)
	for _, g := range best {
		e.ips = add(e.ips, g)
	}
	for _, v2 := range []bool{true, false} {
		for _, g := range e.p.port.GIDs {
			if isV2 := g.Type == gidRoCEv2; isV2 != v2 || isV2 && slices.ContainsFunc(best, func(b topo.GID) bool { return b.Index == g.Index }) {
				continue
			}
			e.near = add(e.near, g)
		}
	}
}

// gidRoCEv2 is the kernel's name of the GID type (gid_attrs/types of
// Documentation/ABI/stable/sysfs-class-infiniband).
const gidRoCEv2 = "RoCE v2"

// addSubnet reads the subnet prefix and the partitions of an InfiniBand port.
func (e *end) addSubnet() {
	if e.p.port == nil {
		return
	}
	for i := range e.p.port.GIDs {
		g := &e.p.port.GIDs[i]
		if addr, err := netip.ParseAddr(g.GID); err == nil && g.Index == 0 {
			raw := addr.As16()
			e.prefix = fmt.Sprintf("%x", raw[:8])
			e.near = append(e.near, ipEnd{addr: addr, gid: g})
		}
	}
	for _, k := range e.p.port.PKeys {
		if v, err := strconv.ParseUint(string(k), 0, 16); err == nil {
			e.pkeys = append(e.pkeys, uint16(v))
		}
	}
}

// cell is the answer for one pair of ports: the addresses are places in the
// ends' lists, -1 for none.
type cell struct {
	reach     Reach
	code      Code
	at, there int16
	near      bool // the addresses are of the near lists
	pkey      uint16
}

// doubtful says that a pair may well not reach each other. InfiniBand's default
// prefix, unread partition keys and EFA are no reason to go another way: they
// are the same for all ports of a host, and nearly always right.
func (c *cell) doubtful() bool {
	switch c.code {
	case codeDefaultPrefix, codePKeyUnknown, codeProvider:
		return false
	}
	return c.reach == ReachAssumed
}

// kinship is what holds for all pairs of ports of two hosts.
type kinship struct {
	railOnly bool
	sameHost bool
	twins    bool // both topologies are of one machine
}

// judgeEnds says whether two ports reach each other. Both must see the other:
// each rule looks from both sides.
func judgeEnds(a, b *end, k kinship) cell {
	c := cell{at: -1, there: -1}
	no := func(code Code) cell { return cell{reach: ReachNo, code: code, at: -1, there: -1} }
	x, y := &a.cabled, &b.cabled
	switch {
	case x.plane >= 0 && y.plane >= 0 && x.plane != y.plane:
		return no(codeOtherPlane)
	case k.railOnly && x.rail >= 0 && y.rail >= 0 && x.rail != y.rail:
		return no(codeOtherRail)
	case a.proto != "" && b.proto != "" && a.proto != b.proto:
		return no(codeProtocol)
	}
	switch {
	case a.proto == "" || b.proto == "":
		c.reach, c.code = ReachAssumed, codeReachUnknown
	case a.proto == protoEFA:
		c.reach, c.code = ReachAssumed, codeProvider
	case a.proto == protoIB || a.proto == protoOPA:
		c = judgeSubnets(a, b, k)
	case a.proto == protoRoCE:
		c = judgeRoCE(a, b, k)
	default:
		c = judgeIPs(a.ips, b.ips, k)
	}
	switch {
	case c.reach == ReachNo:
	case k.sameHost && a.p == b.p:
		c.reach, c.code = ReachYes, codeLoopback
	case k.railOnly && (x.rail < 0 || y.rail < 0):
		c.reach, c.code = ReachAssumed, codeRailUnknown
	case x.leaf != "" && x.leaf == y.leaf && (c.code == codeDefaultPrefix || c.code == CodeLinkLocal):
		c.reach, c.code = ReachYes, codeSameLeaf
	}
	return c
}

// defaultPrefix is the subnet prefix of a subnet manager that was told none
// (InfiniBand Architecture Specification, 4.1.1).
const defaultPrefix = "fe80000000000000"

// judgeSubnets is the rule of InfiniBand: one subnet, and a partition of which
// one side at least is a full member.
func judgeSubnets(a, b *end, k kinship) cell {
	c := cell{reach: ReachYes, code: codeSameSubnet, at: -1, there: -1, near: true}
	if a.prefix != "" && b.prefix != "" {
		c.at, c.there = 0, 0
		if a.prefix != b.prefix {
			return cell{reach: ReachNo, code: codeOtherSubnet, at: 0, there: 0, near: true}
		}
	}
	key, code := commonPKey(a.pkeys, b.pkeys)
	c.pkey = key
	switch {
	case code == codePKey || code == codePKeyLimited:
		c.reach, c.code = ReachNo, code
	case !k.twins && c.at >= 0 && a.near[0].addr == b.near[0].addr:
		c.reach, c.code = ReachAssumed, codeSameAddress
	case c.at < 0 || a.p.port.LID == nil || b.p.port.LID == nil:
		c.reach, c.code = ReachAssumed, codeReachUnknown
	case code == codePKeyUnknown:
		c.reach, c.code = ReachAssumed, code
	case a.prefix == defaultPrefix:
		c.reach, c.code = ReachAssumed, codeDefaultPrefix
	}
	return c
}

// fullMember is the membership bit of a partition key: two limited members of
// a partition do not hear each other (InfiniBand Architecture Specification,
// 10.9.3).
const fullMember = 0x8000

// commonPKey finds the first partition of a that b is in too, where one of them
// is a full member. A key whose low 15 bits are zero is not valid.
func commonPKey(a, b []uint16) (uint16, Code) {
	if len(a) == 0 || len(b) == 0 {
		return 0, codePKeyUnknown
	}
	code := codePKey
	for _, k := range a {
		for _, l := range b {
			switch {
			case k&^fullMember == 0 || (k^l)&^fullMember != 0:
			case (k|l)&fullMember != 0:
				return k, ""
			default:
				code = codePKeyLimited
			}
		}
	}
	return 0, code
}

// judgeRoCE tries the routable GIDs of RoCE v2, and where a side has none the
// GIDs that reach the same link.
func judgeRoCE(a, b *end, k kinship) cell {
	if len(a.ips) > 0 && len(b.ips) > 0 {
		return judgeIPs(a.ips, b.ips, k)
	}
	c := cell{reach: ReachNo, code: codeGIDType, at: -1, there: -1, near: true}
	if len(a.ips)+len(a.near) == 0 || len(b.ips)+len(b.near) == 0 {
		c.reach, c.code = ReachAssumed, codeReachUnknown
		return c
	}
	for i := range a.near {
		for j := range b.near {
			g, h := a.near[i].gid, b.near[j].gid
			if g.Type == h.Type && a.near[i].addr.Is4() == b.near[j].addr.Is4() {
				c.reach, c.code, c.at, c.there = ReachAssumed, CodeLinkLocal, int16(i), int16(j)
				return c
			}
		}
	}
	return c
}
