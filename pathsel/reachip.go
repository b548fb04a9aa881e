package pathsel

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
)

// way is how one address gets to another, the surer the higher.
type way int8

const (
	wayNone    way = iota
	waySame        // both hosts have the address
	wayUnknown     // the network that the address is in is not known
	wayDefault     // by the default route: somebody may forward it
	wayRoute       // a route of the interface covers it
	wayOnLink      // in one network
)

// to says how an address gets to another one, as its own host sees it.
func (e *ipEnd) to(other netip.Addr) way {
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
func judgeIPs(a, b []ipEnd, k kinship) cell {
	c := cell{reach: ReachNo, code: codeNoRoute, at: -1, there: -1}
	if len(a) == 0 || len(b) == 0 {
		return cell{reach: ReachAssumed, code: codeReachUnknown, at: -1, there: -1}
	}
	best := wayNone
	for i := range a {
		for j := range b {
			if a[i].addr.Is4() != b[j].addr.Is4() {
				continue
			}
			w := min(a[i].to(b[j].addr), b[j].to(a[i].addr))
			if a[i].addr == b[j].addr && !k.twins && !k.sameHost {
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

// addresses are the two addresses that a cell is about, nil where it has none.
func (c *cell) addresses(a, b *end) (x, y *ipEnd) {
	if c.at < 0 {
		return nil, nil
	}
	if c.near {
		return &a.near[c.at], &b.near[c.there]
	}
	return &a.ips[c.at], &b.ips[c.there]
}

// contact is what a transport needs to connect the two ports.
func (c *cell) contact(a, b *end) Contact {
	var out Contact
	if x, y := c.addresses(a, b); x != nil {
		if x.gid != nil {
			out.LocalGIDIndex, out.LocalGID = &x.gid.Index, x.gid.GID
			out.RemoteGIDIndex, out.RemoteGID = &y.gid.Index, y.gid.GID
		}
		if x.gid == nil || !c.near {
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

// reason says in words why two ports reach each other or do not.
func (c *cell) reason(a, b *end) Reason {
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
		r.Text = "only GIDs for one link: whether they share it is not known"
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
		r.Text = "what decides is not known (" + c.missing(a, b) + ")"
	default:
		r.Text, r.Evidence = c.refusal(a, b)
	}
	return r
}

// missing names what would decide.
func (c *cell) missing(a, b *end) string {
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
func (c *cell) refusal(a, b *end) (text, evidence string) {
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
func (e *ipEnd) String() string {
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
