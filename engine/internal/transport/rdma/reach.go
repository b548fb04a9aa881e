package rdma

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/topoctl/topoctl/internal/verbs"
)

// way is how a local port reaches a peer's: what a queue pair is connected with.
type way struct {
	local, remote gid  // where global
	global        bool // by GID; else by LID
	pkeyIndex     int
	pkey          uint16 // ours at that index
	mtu           int    // bytes
	maybe         bool   // nothing says that it does not, and nothing that it does
	reason        string
}

// routed says whether packets from a local GID's interface find a way to another
// subnet: known where the host's routes can be asked.
type routed func(from gid, to netip.Addr) (ok, known bool)

// reach decides how local reaches remote, or says why it does not.
func reach(local, remote *port, o *Options, route routed) (way, error) {
	fail := func(format string, args ...any) (way, error) {
		return way{}, &unreachable{local: local.String(), remote: remote.String(), why: fmt.Sprintf(format, args...)}
	}
	switch {
	case local.state != verbs.PortActive:
		return fail("our port is %s, not active", stateNames[local.state])
	case remote.state != verbs.PortActive:
		return fail("the peer's port is %s, not active", stateNames[remote.state])
	case local.link != remote.link:
		return fail("ours is %s, the peer's %s", linkWord(local.link), linkWord(remote.link))
	}
	w := way{mtu: min(local.mtu, remote.mtu, o.MTU)}
	var err error
	if local.link == verbs.LinkInfiniBand {
		err = w.overInfiniBand(local, remote, o)
	} else {
		err = w.overEthernet(local, remote, o, route)
	}
	if err != nil {
		return fail("%v", err)
	}
	return w, nil
}

// unreachable is why one port does not reach another.
type unreachable struct{ local, remote, why string }

func (e *unreachable) Error() string {
	return fmt.Sprintf("rdma: %s does not reach the peer's %s: %s", e.local, e.remote, e.why)
}

func linkWord(l verbs.LinkLayer) string {
	if l == verbs.LinkInfiniBand {
		return "InfiniBand"
	}
	return "Ethernet"
}

// overInfiniBand needs one subnet, a partition in common, and a LID or GIDs.
func (w *way) overInfiniBand(local, remote *port, o *Options) error {
	a, b := subnetOf(local), subnetOf(remote)
	if a != b {
		return fmt.Errorf("subnet prefix %016x here, %016x there: no router is asked for a path between InfiniBand subnets", a, b)
	}
	if err := w.partition(local, remote, o); err != nil {
		return err
	}
	if local.lid != 0 && remote.lid != 0 {
		w.reason = fmt.Sprintf("same InfiniBand subnet %016x, LID %d to %d, partition %#04x", a, local.lid, remote.lid, w.pkey)
		return nil
	}
	if len(local.gids) == 0 || len(remote.gids) == 0 {
		return fmt.Errorf("LID %d here, %d there, and no GIDs: is a subnet manager running?", local.lid, remote.lid)
	}
	w.global = true
	w.local, w.remote = local.gids[0], remote.gids[0]
	if o.GIDIndex != nil {
		i := slices.IndexFunc(local.gids, func(g gid) bool { return g.index == *o.GIDIndex })
		if i < 0 {
			return fmt.Errorf("GID index %d, set in the options, is not in use", *o.GIDIndex)
		}
		w.local = local.gids[i]
	}
	w.reason = fmt.Sprintf("same InfiniBand subnet %016x, by GID since LIDs are missing, partition %#04x", a, w.pkey)
	return nil
}

// subnetOf is the prefix of an InfiniBand port's first GID, the default without.
func subnetOf(p *port) uint64 {
	prefix := uint64(0xfe80) << 48
	if len(p.gids) > 0 {
		prefix = 0
		raw := p.gids[0].addr.As16()
		for _, b := range raw[:8] {
			prefix = prefix<<8 | uint64(b)
		}
	}
	return prefix
}

// partition finds a key of ours that one of the peer's goes with: the same
// partition, and not both limited members of it.
func (w *way) partition(local, remote *port, o *Options) error {
	limited := false
	for i, k := range local.pkeys {
		if k&^fullMember == 0 || o.PKeyIndex != nil && i != *o.PKeyIndex {
			continue
		}
		for _, other := range remote.pkeys {
			switch {
			case (k^other)&^fullMember != 0:
			case (k|other)&fullMember == 0:
				limited = true
			default:
				w.pkeyIndex, w.pkey = i, k
				return nil
			}
		}
	}
	if limited {
		return fmt.Errorf("both are limited members of their partition (keys %04x here, %04x there), which cannot talk to each other", local.pkeys, remote.pkeys)
	}
	if o.PKeyIndex != nil {
		return fmt.Errorf("partition key index %d, set in the options, has no partition in common with the peer (keys %04x here, %04x there)", *o.PKeyIndex, local.pkeys, remote.pkeys)
	}
	return fmt.Errorf("no partition in common (keys %04x here, %04x there)", local.pkeys, remote.pkeys)
}

// candidate is a pair of GIDs with its place in the order of choice.
type candidate struct {
	local, remote gid
	rank          int // the lowest is best
	maybe         bool
	reason        string
}

// Ranks: the protocol that routers carry first, then the nearer network, then
// addresses that somebody gave before those that are made up for each link.
const (
	rankSame = iota
	rankRouted
	rankLinkLocal
	ranksOfKind = 4
)

// overEthernet chooses the pair of GIDs.
func (w *way) overEthernet(local, remote *port, o *Options, route routed) error {
	var found []candidate
	whyNot := ""
	for _, a := range local.gids {
		if o.GIDIndex != nil && a.index != *o.GIDIndex {
			continue
		}
		for _, b := range remote.gids {
			c, why := judge(a, b, route)
			if why == "" {
				found = append(found, c)
			} else if whyNot == "" || isLinkLocal(a.addr) == isLinkLocal(b.addr) && !isLinkLocal(a.addr) {
				whyNot = why
			}
		}
	}
	// Where both have addresses of one family, these tell whether they share a network.
	// A link-local pair tells nothing, and would be believed in vain.
	if both := hasRoutable(local, remote); both {
		found = slices.DeleteFunc(found, func(c candidate) bool { return isLinkLocal(c.local.addr) })
	}
	if len(found) == 0 {
		return noGIDs(local, remote, o, whyNot)
	}
	c := slices.MinFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.local.index, b.local.index), cmp.Compare(a.remote.index, b.remote.index))
	})
	w.global, w.local, w.remote, w.maybe = true, c.local, c.remote, c.maybe
	w.reason = c.reason
	return nil
}

func noGIDs(local, remote *port, o *Options, whyNot string) error {
	switch {
	case len(local.gids) == 0:
		return fmt.Errorf("our port has no GID: does its interface have an address?")
	case len(remote.gids) == 0:
		return fmt.Errorf("the peer's port has no GID: does its interface have an address?")
	case o.GIDIndex != nil && !slices.ContainsFunc(local.gids, func(g gid) bool { return g.index == *o.GIDIndex }):
		return fmt.Errorf("GID index %d, set in the options, is not in use", *o.GIDIndex)
	}
	return fmt.Errorf("no pair of GIDs fits: %s", whyNot)
}

// judge looks at one pair of GIDs; why says what is against it.
func judge(a, b gid, route routed) (c candidate, why string) {
	from, to := a.addr.Unmap(), b.addr.Unmap()
	pair := fmt.Sprintf("%s to %s", from, to)
	switch {
	case a.kind != b.kind:
		return c, fmt.Sprintf("%s: RoCE %s here, %s there", pair, gidNames[a.kind], gidNames[b.kind])
	case from.Is4() != to.Is4() || isLinkLocal(from) != isLinkLocal(to):
		return c, pair + ": addresses of different kinds"
	}
	c = candidate{local: a, remote: b}
	word := "RoCE " + gidNames[a.kind]
	if a.kind != verbs.GIDRoCEv2 {
		c.rank = ranksOfKind
	}
	bits := a.bits
	if bits == 0 {
		bits = b.bits
	}
	switch {
	case isLinkLocal(from):
		c.rank += rankLinkLocal
		c.maybe = true
		c.reason = fmt.Sprintf("%s, %s: link-local addresses, which say nothing of the network", word, pair)
		return c, ""
	case bits > 0 && sameSubnet(from, to, bits):
		c.rank += rankSame
		c.reason = fmt.Sprintf("%s, %s: same subnet (/%d)", word, pair, bits)
		return c, ""
	case a.kind != verbs.GIDRoCEv2 && bits > 0:
		return c, pair + ": different subnets, which RoCE v1 does not cross"
	}
	c.rank += rankRouted
	ok, known := false, false
	if route != nil {
		ok, known = route(a, to)
	}
	switch {
	case known && !ok:
		return c, pair + ": different subnets, and no route leads there from our interface"
	case known:
		c.reason = fmt.Sprintf("%s, %s: the host has a route from that interface", word, pair)
	case bits == 0:
		c.reason = fmt.Sprintf("%s, %s: the subnets are not known", word, pair)
	default:
		c.reason = fmt.Sprintf("%s, %s: different subnets, may be routed", word, pair)
	}
	c.maybe = true
	return c, ""
}

func isLinkLocal(a netip.Addr) bool { return a.Unmap().IsLinkLocalUnicast() }

func sameSubnet(a, b netip.Addr, bits int) bool {
	p, err := a.Prefix(bits)
	return err == nil && p.Contains(b)
}

// hasRoutable says whether both have an address of one family that is more than
// link-local.
func hasRoutable(local, remote *port) bool {
	for _, a := range local.gids {
		for _, b := range remote.gids {
			if a.addr.Unmap().Is4() == b.addr.Unmap().Is4() && !isLinkLocal(a.addr) && !isLinkLocal(b.addr) {
				return true
			}
		}
	}
	return false
}
