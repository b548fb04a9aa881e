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

// The values of Reach. ReachAssumed means that nothing speaks against it but not everything is
// known; where that is doubtful, the lane ranks behind others.
const (
	ReachYes     Reach = "yes"
	ReachAssumed Reach = "assumed"
	reachNo      Reach = "no"
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

// endpoint is one port as the other side sees it.
type endpoint struct {
	p        *Port
	proto    string // "" unknown
	cabled   cabling
	ips      []ipAddress // routable addresses: of the interface, or of GIDs of RoCE v2
	sameLink []ipAddress // GIDs that reach the same link only: link-local ones and RoCE v1
	prefix   string      // InfiniBand: the upper half of GID 0, "" unknown
	pkeys    []uint16
}

// ipAddress is an address of a port with the ways that lead from it.
type ipAddress struct {
	addr   netip.Addr
	subnet netip.Prefix // not valid where its length is not known
	routes []netip.Prefix
	byGW   bool // the interface has the host's default route
	gid    *topo.GID
}

// endpoints prepares the usable ports of a host, and gives each port's place among
// them by Port.Index, -1 for a port that is not usable.
func (h *Host) endpoints(cabled []cabling) ([]*endpoint, []int) {
	var out []*endpoint
	at := make([]int, len(h.ports))
	for i := range h.ports {
		p := &h.ports[i]
		at[i] = -1
		if !p.Usable {
			continue
		}
		e := &endpoint{p: p, proto: protoTCP, cabled: cabled[i]}
		if h.transport == RDMA {
			e.proto = p.protocol()
		}
		switch e.proto {
		case protoTCP, protoIWARP:
			for _, a := range p.Addresses {
				if routable(a.Addr()) {
					e.ips = append(e.ips, newIPAddress(a.Addr(), p.netdev, nil))
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

// newIPAddress finds the network that an address is in and the ways of its interface.
func newIPAddress(addr netip.Addr, n *topo.Netdev, gid *topo.GID) ipAddress {
	ip := ipAddress{addr: addr, gid: gid}
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
func (e *endpoint) addGIDs(index *topo.Index) {
	if e.p.port == nil {
		return
	}
	add := func(list []ipAddress, g topo.GID) []ipAddress {
		addr, err := netip.ParseAddr(g.GID)
		if err != nil {
			return list
		}
		n := index.NetdevNamed(g.Netdev)
		if n == nil || len(n.Addresses) == 0 {
			n = e.p.netdev
		}
		return append(list, newIPAddress(addr.Unmap(), n, &g))
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
			e.sameLink = add(e.sameLink, g)
		}
	}
}

// gidRoCEv2 is the kernel's name of the GID type (gid_attrs/types of
// Documentation/ABI/stable/sysfs-class-infiniband).
const gidRoCEv2 = "RoCE v2"

// addSubnet reads the subnet prefix and the partitions of an InfiniBand port.
func (e *endpoint) addSubnet() {
	if e.p.port == nil {
		return
	}
	for i := range e.p.port.GIDs {
		g := &e.p.port.GIDs[i]
		if addr, err := netip.ParseAddr(g.GID); err == nil && g.Index == 0 {
			raw := addr.As16()
			e.prefix = fmt.Sprintf("%x", raw[:8])
			e.sameLink = append(e.sameLink, ipAddress{addr: addr, gid: g})
		}
	}
	for _, k := range e.p.port.PKeys {
		if v, err := strconv.ParseUint(string(k), 0, 16); err == nil {
			e.pkeys = append(e.pkeys, uint16(v))
		}
	}
}

// reachability is the answer for one pair of ports: the addresses are places in the
// ends' lists, -1 for none.
type reachability struct {
	reach     Reach
	code      Code
	at, there int16
	sameLink  bool // the addresses are in the lists of that name
	pkey      uint16
}

// doubtful says that a pair may well not reach each other. InfiniBand's default
// prefix, unread partition keys and EFA are no reason to go another way: they
// are the same for all ports of a host, and nearly always right.
func (c *reachability) doubtful() bool {
	switch c.code {
	case codeDefaultPrefix, codePKeyUnknown, codeProvider:
		return false
	}
	return c.reach == ReachAssumed
}

// hostPair is what holds for all pairs of ports of two hosts.
type hostPair struct {
	railOnly    bool
	sameHost    bool
	sameMachine bool // both topologies are of one machine
}

// judgePair says whether two ports reach each other. Both must see the other:
// each rule looks from both sides.
func judgePair(a, b *endpoint, k hostPair) reachability {
	c := reachability{at: -1, there: -1}
	no := func(code Code) reachability { return reachability{reach: reachNo, code: code, at: -1, there: -1} }
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
	case c.reach == reachNo:
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
func judgeSubnets(a, b *endpoint, k hostPair) reachability {
	c := reachability{reach: ReachYes, code: codeSameSubnet, at: -1, there: -1, sameLink: true}
	if a.prefix != "" && b.prefix != "" {
		c.at, c.there = 0, 0
		if a.prefix != b.prefix {
			return reachability{reach: reachNo, code: codeOtherSubnet, at: 0, there: 0, sameLink: true}
		}
	}
	key, code := commonPKey(a.pkeys, b.pkeys)
	c.pkey = key
	switch {
	case code == codePKey || code == codePKeyLimited:
		c.reach, c.code = reachNo, code
	case !k.sameMachine && c.at >= 0 && a.sameLink[0].addr == b.sameLink[0].addr:
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
func judgeRoCE(a, b *endpoint, k hostPair) reachability {
	if len(a.ips) > 0 && len(b.ips) > 0 {
		return judgeIPs(a.ips, b.ips, k)
	}
	c := reachability{reach: reachNo, code: codeGIDType, at: -1, there: -1, sameLink: true}
	if len(a.ips)+len(a.sameLink) == 0 || len(b.ips)+len(b.sameLink) == 0 {
		c.reach, c.code = ReachAssumed, codeReachUnknown
		return c
	}
	for i := range a.sameLink {
		for j := range b.sameLink {
			g, h := a.sameLink[i].gid, b.sameLink[j].gid
			if g.Type == h.Type && a.sameLink[i].addr.Is4() == b.sameLink[j].addr.Is4() {
				c.reach, c.code, c.at, c.there = ReachAssumed, CodeLinkLocal, int16(i), int16(j)
				return c
			}
		}
	}
	return c
}

// way is how one address gets to another, the surer the higher.
type way int8

const (
	wayNone    way = iota
	waySame        // both hosts have the address
	wayUnknown     // the network that the address is in is not known
	wayDefault     // by the default route: a router may forward it
	wayRoute       // a route of the interface covers it
	wayOnLink      // in one network
)

// to says how an address gets to another one, as its own host sees it.
func (e *ipAddress) to(other netip.Addr) way {
	switch {
	case e.subnet.IsValid() && e.subnet.Contains(other):
		return wayOnLink
	case slices.ContainsFunc(e.routes, func(r netip.Prefix) bool { return r.Contains(other) }):
		return wayRoute
	case e.byGW:
		return wayDefault
	case !e.subnet.IsValid():
		return wayUnknown
	}
	return wayNone
}

// judgeIPs finds the addresses of two ports that reach each other most
// certainly, each from its own host's view; the first such pair wins.
func judgeIPs(a, b []ipAddress, k hostPair) reachability {
	c := reachability{reach: reachNo, code: codeNoRoute, at: -1, there: -1}
	if len(a) == 0 || len(b) == 0 {
		return reachability{reach: ReachAssumed, code: codeReachUnknown, at: -1, there: -1}
	}
	best := wayNone
	for i := range a {
		for j := range b {
			if a[i].addr.Is4() != b[j].addr.Is4() {
				continue
			}
			w := min(a[i].to(b[j].addr), b[j].to(a[i].addr))
			if a[i].addr == b[j].addr && !k.sameMachine && !k.sameHost {
				w = waySame
			}
			if c.at < 0 || w > best {
				best, c.at, c.there = w, int16(i), int16(j)
			}
		}
	}
	switch best {
	case wayOnLink:
		c.reach, c.code = ReachYes, codeSameSubnet
	case wayRoute:
		c.reach, c.code = ReachYes, codeRouted
	case wayDefault:
		c.reach, c.code = ReachAssumed, codeDefaultRoute
	case wayUnknown:
		c.reach, c.code = ReachAssumed, codeReachUnknown
	case waySame:
		c.reach, c.code = ReachAssumed, codeSameAddress
	}
	return c
}

// addresses are the two addresses that an answer is about, nil if it is not about addresses.
func (c *reachability) addresses(a, b *endpoint) (x, y *ipAddress) {
	if c.at < 0 {
		return nil, nil
	}
	if c.sameLink {
		return &a.sameLink[c.at], &b.sameLink[c.there]
	}
	return &a.ips[c.at], &b.ips[c.there]
}

// contact is what a transport needs to connect the two ports.
func (c *reachability) contact(a, b *endpoint) Contact {
	var out Contact
	if x, y := c.addresses(a, b); x != nil {
		if x.gid != nil {
			out.LocalGIDIndex, out.LocalGID = &x.gid.Index, x.gid.GID
			out.RemoteGIDIndex, out.RemoteGID = &y.gid.Index, y.gid.GID
		}
		if x.gid == nil || !c.sameLink {
			out.LocalAddress, out.RemoteAddress = x.addr, y.addr
		}
	}
	if a.proto == protoEFA && a.p.port != nil && b.p.port != nil && len(a.p.port.GIDs) > 0 && len(b.p.port.GIDs) > 0 {
		x, y := &a.p.port.GIDs[0], &b.p.port.GIDs[0]
		out.LocalGIDIndex, out.LocalGID, out.RemoteGIDIndex, out.RemoteGID = &x.Index, x.GID, &y.Index, y.GID
	}
	if (a.proto == protoIB || a.proto == protoOPA) && a.p.port != nil && b.p.port != nil {
		out.LocalLID, out.RemoteLID = a.p.port.LID, b.p.port.LID
	}
	if c.pkey != 0 {
		out.PKey = topo.HexID(fmt.Sprintf("0x%04x", c.pkey))
	}
	return out
}

// reason explains why two ports reach each other or do not.
func (c *reachability) reason(a, b *endpoint) Reason {
	x, y := c.addresses(a, b)
	r := Reason{Code: c.code, Evidence: a.p.evidence}
	switch c.code {
	case codeSameSubnet:
		if a.proto == protoIB || a.proto == protoOPA {
			r.Text = fmt.Sprintf("one subnet, prefix %s, and a common partition", a.prefix)
			break
		}
		r.Text = fmt.Sprintf("%s and %s are in one network", x, y)
	case codeRouted:
		r.Text = fmt.Sprintf("%s and %s have routes to each other", x, y)
	case codeSameLeaf:
		r.Text, r.Evidence = fmt.Sprintf("both are on %s", a.cabled.leaf), a.cabled.evidence
	case codeDefaultPrefix:
		r.Text = "both have the default subnet prefix: one subnet is likely, not certain"
	case codeDefaultRoute:
		r.Text = fmt.Sprintf("only by default route: %s to %s", x, y)
	case CodeLinkLocal:
		r.Text = "only link-local GIDs: whether both are on one link is not known"
	case codeProvider:
		r.Text = "EFA: whether the cloud lets them talk (zone, subnet, security group) cannot be seen from a host"
	case codeSameAddress:
		r.Text = fmt.Sprintf("both hosts have the address %s: at least one of them is not on this network", x.addr)
	case codeLoopback:
		r.Text = "the port to itself: every byte crosses it twice"
	case codeRailUnknown:
		r.Text = "the fabric is rail-only and the rail of a port is not known"
	case codePKeyUnknown:
		r.Text = "a partition key table is not known"
	case codeReachUnknown:
		r.Text = "it cannot be told from what is known (" + c.missing(a, b) + ")"
	default:
		r.Text, r.Evidence = c.refusal(a, b)
	}
	return r
}

// missing names what would decide.
func (c *reachability) missing(a, b *endpoint) string {
	switch {
	case a.proto == "" || b.proto == "":
		return "the protocol of a port"
	case a.proto == protoIB || a.proto == protoOPA:
		return "LID or GID"
	case c.at >= 0:
		return "the networks of the addresses"
	case a.proto == protoRoCE:
		return "GIDs"
	}
	return "IP addresses"
}

// refusal says why two ports do not reach each other.
func (c *reachability) refusal(a, b *endpoint) (text, evidence string) {
	x, y := c.addresses(a, b)
	switch c.code {
	case codeOtherPlane:
		return fmt.Sprintf("plane %d and plane %d", a.cabled.plane, b.cabled.plane), a.cabled.evidence
	case codeOtherRail:
		return fmt.Sprintf("rail %d and rail %d of a rail-only fabric", a.cabled.rail, b.cabled.rail), a.cabled.evidence
	case codeProtocol:
		return fmt.Sprintf("the local %s speaks %s, the remote %s speaks %s", a.p.Name, a.proto, b.p.Name, b.proto), a.p.evidence
	case codeOtherSubnet:
		return fmt.Sprintf("subnet prefix %s and subnet prefix %s", a.prefix, b.prefix), a.p.at("gids/0")
	case codePKey:
		return fmt.Sprintf("no common partition: %s and %s", pkeyText(a.pkeys), pkeyText(b.pkeys)), a.p.at("pkeys")
	case codePKeyLimited:
		return fmt.Sprintf("both are only limited members of their common partitions: %s and %s", pkeyText(a.pkeys), pkeyText(b.pkeys)), a.p.at("pkeys")
	case codeGIDType:
		return "no GID type that both have: one has RoCE v1 only, or IPv4 against IPv6", a.p.at("gids")
	}
	if x == nil {
		return "one has IPv4 addresses only, the other IPv6 only", a.p.evidence
	}
	if x.to(y.addr) == wayNone {
		return fmt.Sprintf("the local %s has no route to %s over %s", x, y, a.p.Name), a.p.evidence
	}
	return fmt.Sprintf("the remote %s has no route back to %s over %s", y, x, b.p.Name), b.p.evidence
}

// String is an address with the length of its network, where that is known.
func (e *ipAddress) String() string {
	if e.subnet.IsValid() {
		return netip.PrefixFrom(e.addr, e.subnet.Bits()).String()
	}
	return e.addr.String()
}

// pkeyText lists the first partition keys of a table.
func pkeyText(keys []uint16) string {
	const shown = 4
	text := ""
	for i, k := range keys {
		if i == shown {
			return text + fmt.Sprintf(" and %d more", len(keys)-shown)
		}
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf("0x%04x", k)
	}
	return text
}
