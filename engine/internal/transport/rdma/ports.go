//go:build cgo && linux && (amd64 || arm64)

package rdma

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/topoctl/topoctl/internal/verbs"
)

func (d *device) portList() []*port {
	if list := d.ports.Load(); list != nil {
		return *list
	}
	return nil
}

// usablePorts are those that carry data now: active, with an address of their kind.
func (d *device) usablePorts() []*port {
	var list []*port
	for _, p := range d.portList() {
		if p.state == verbs.PortActive && (len(p.gids) > 0 || p.link == verbs.LinkInfiniBand && p.lid != 0) {
			list = append(list, p)
		}
	}
	return list
}

// readPorts asks the device for its ports. One that cannot be read costs the others
// nothing.
func (d *device) readPorts() error {
	var list []*port
	var errs []error
	subnets := interfaceSubnets{}
	for n := 1; n <= min(d.limits.Ports, maxPorts); n++ {
		p, err := d.readPort(n, subnets)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		list = append(list, p)
	}
	if len(list) == 0 && len(errs) > 0 {
		return errors.Join(errs...)
	}
	d.ports.Store(&list)
	return nil
}

func (d *device) readPort(n int, subnets interfaceSubnets) (*port, error) {
	a, err := d.v.QueryPort(n)
	if err != nil {
		return nil, err
	}
	p := &port{
		device: d.name, number: n, generation: d.generation, link: a.LinkLayer, state: a.State,
		lid: a.LID, smLID: a.SMLID, mtu: a.ActiveMTU, rate: a.BytesPerSec, maxMsg: int64(a.MaxMsgBytes),
	}
	if p.link == verbs.LinkUnspecified { // as old devices that are InfiniBand say
		p.link = verbs.LinkInfiniBand
	}
	if stateNames[p.state] == "" || !validMTU(p.mtu) {
		p.state, p.mtu = verbs.PortDown, max(256, p.mtu)
	}
	gids, err := d.v.GIDs(n)
	if err != nil {
		return nil, err
	}
	for _, g := range gids {
		addr := netip.AddrFrom16(g.Raw)
		if gidNames[g.Type] == "" || g.Index > 255 || !addr.IsValid() || addr.IsUnspecified() {
			continue
		}
		p.gids = append(p.gids, gid{index: g.Index, kind: g.Type, addr: addr, iface: g.Interface, bits: subnets.bits(g.Interface, addr)})
	}
	// The best known come first: what does not fit into the endpoint is at the end.
	slices.SortStableFunc(p.gids, func(a, b gid) int { return gidClass(a) - gidClass(b) })
	if p.pkeys, err = d.v.PKeys(n); err != nil {
		return nil, err
	}
	return p, nil
}

// gidClass orders GIDs by what they are good for. InfiniBand's keep their order: the
// first one has the subnet's prefix.
func gidClass(g gid) int {
	class := 0
	if g.kind == verbs.GIDRoCEv1 {
		class += 2
	}
	if g.kind != verbs.GIDInfiniBand && isLinkLocal(g.addr) {
		class++
	}
	return class
}

// interfaceSubnets remembers the addresses of netdevs while ports are read.
type interfaceSubnets map[int][]netip.Prefix

// bits is the length of the prefix that an interface has for an address, 0 not known.
func (s interfaceSubnets) bits(iface int, addr netip.Addr) int {
	if iface == 0 {
		return 0
	}
	list, ok := s[iface]
	if !ok {
		list = subnetsOf(iface)
		s[iface] = list
	}
	for _, p := range list {
		if p.Addr() == addr.Unmap() {
			return p.Bits()
		}
	}
	return 0
}

func subnetsOf(iface int) []netip.Prefix {
	ifi, err := net.InterfaceByIndex(iface)
	if err != nil {
		return nil
	}
	addrs, err := ifi.Addrs()
	if err != nil {
		return nil
	}
	var list []netip.Prefix
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			list = append(list, netip.PrefixFrom(p.Addr().Unmap(), p.Bits()))
		}
	}
	return list
}

// reread reads the ports again and ends the connections that have lost theirs.
func (d *device) reread() {
	if err := d.readPorts(); err != nil {
		d.lose(&PortError{Local: d.name, What: "the device is gone or has failed", Advice: "see the kernel log; it is opened again when it is back", Err: err})
		return
	}
	for _, c := range d.t.conns(d) {
		if why := c.lostPort(d.portList()); why != nil {
			c.lose(why)
		}
	}
	d.t.changed()
}

// lostPort says what of the connection's own port is not any more as it was dialled.
func (c *conn) lostPort(ports []*port) error {
	var now *port
	for _, p := range ports {
		if p.number == c.local.number {
			now = p
		}
	}
	event := verbs.EventPortErr
	switch {
	case now == nil || now.state != verbs.PortActive:
	case c.way.global && !slices.ContainsFunc(now.gids, func(g gid) bool {
		return g.index == c.way.local.index && g.addr == c.way.local.addr && g.kind == c.way.local.kind
	}):
		event = verbs.EventGIDChange
	case !c.way.global && now.lid != c.local.lid:
		event = verbs.EventLIDChange
	case c.local.link == verbs.LinkInfiniBand && (c.way.pkeyIndex >= len(now.pkeys) || now.pkeys[c.way.pkeyIndex] != c.way.pkey):
		event = verbs.EventPKeyChange
	default:
		return nil
	}
	return eventError(event, c.local.String(), c.remote.String())
}

// watch reads devices and ports again from time to time: not all that happens to them
// has an event.
func (t *Transport) watch(now time.Time) {
	_ = t.scan(now) // a list that cannot be read now is read again
	for _, d := range t.openDevices() {
		d.reread()
	}
	t.changed()
}
