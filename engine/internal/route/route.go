// Package route says at which addresses peers reach this engine: the one that
// they are told, and those of each port for the lanes. It decides by what Host
// knows; System asks the operating system.
//
// An address is never guessed from the order of interfaces: a bridge of
// containers (docker0) has an address too, and no peer can reach it.
package route

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/pathsel"
)

// Host is what the operating system knows of addresses and routes.
type Host struct {
	// Addresses are this host's.
	Addresses []Address
	// Source is the address that the kernel would send from to a peer.
	Source func(peer netip.Addr) (netip.Addr, error)
	// Resolve finds the addresses of a host name.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
}

// Address is one address of an interface that is up.
type Address struct {
	Interface string
	Addr      netip.Addr
}

// Query asks for an address.
type Query struct {
	// Listen are the addresses that listeners are bound to, with their real ports.
	Listen []netip.AddrPort
	// Want is the address that the user wants peers to be told, host or host:port; without one
	// Advertise chooses.
	Want string
	// Ports are this host's, from a pathsel.Host that was prepared for TCP; nil: not known.
	Ports []pathsel.Port
}

// Choice is an address that peers are told.
type Choice struct {
	Addr netip.AddrPort
	// Name is the host name that the user gave, "" for an address.
	Name     string
	Reason   string   // why it is this one
	Warnings []string // what may be wrong with it
}

// String is host:port as peers are told.
func (c *Choice) String() string {
	if c.Name != "" {
		return net.JoinHostPort(c.Name, strconv.Itoa(int(c.Addr.Port())))
	}
	return c.Addr.String()
}

// Advertise chooses the address that peers are told. ctx bounds resolving a name.
func Advertise(ctx context.Context, h Host, q Query) (*Choice, error) {
	if len(q.Listen) == 0 {
		return nil, pkgerr.New("route", "no address for peers: nothing listens")
	}
	d := decision{h: h, q: q}
	if q.Want != "" {
		return d.wanted(ctx)
	}
	return d.best()
}

// decision is one question.
type decision struct {
	h Host
	q Query
}

// choose answers with an address of a listener.
func choose(at netip.AddrPort, format string, args ...any) (*Choice, error) {
	return &Choice{Addr: at, Reason: fmt.Sprintf(format, args...)}, nil
}

// best prefers the addresses that listeners are bound to, then those of data ports, then that of
// the interface of the default route, then any.
func (d *decision) best() (*Choice, error) {
	for _, l := range d.q.Listen {
		if told(l.Addr()) {
			return choose(l, "the listener is bound to %s", l.Addr())
		}
	}
	for i := range d.q.Ports {
		p := &d.q.Ports[i]
		for _, prefix := range p.Addresses {
			if at, ok := d.listened(prefix.Addr()); ok && p.Usable && told(prefix.Addr()) {
				return choose(at, "%s is a port for data", p.Name)
			}
		}
	}
	// Documentation addresses (RFC 5737, RFC 3849): nobody has a route of their own
	// to them, and nothing is sent.
	for _, far := range []string{"192.0.2.1", "2001:db8::1"} {
		src, err := d.h.Source(netip.MustParseAddr(far))
		if err != nil {
			continue
		}
		if at, ok := d.listened(src.Unmap()); ok && told(src.Unmap()) {
			return choose(at, "the default route leaves by %s", name(d.h.interfaceOf(src.Unmap())))
		}
	}
	for _, a := range d.h.Addresses {
		if at, ok := d.listened(a.Addr); ok && told(a.Addr) {
			return choose(at, "no route tells, %s is the first interface with an address", a.Interface)
		}
	}
	return d.loopbackOnly()
}

// loopbackOnly is the end where peers of other hosts cannot reach anything.
func (d *decision) loopbackOnly() (*Choice, error) {
	for _, l := range d.q.Listen {
		if !l.Addr().IsLoopback() {
			continue
		}
		return choose(l, "the listener is bound to %s: peers of this host only", l.Addr())
	}
	if at, ok := d.listened(netip.AddrFrom4([4]byte{127, 0, 0, 1})); ok {
		return choose(at, "this host has no other address: peers of this host only")
	}
	return nil, pkgerr.New("route", "no address for peers: this host has none that they could reach: give one with --advertise")
}

// listened is a listener's address and port for one of our addresses.
func (d *decision) listened(a netip.Addr) (netip.AddrPort, bool) { return listenedAt(d.q.Listen, a) }

func listenedAt(listen []netip.AddrPort, a netip.Addr) (netip.AddrPort, bool) {
	for _, l := range listen {
		bound := l.Addr().Unmap()
		// The wildcard of IPv6 takes IPv4 too: Go's listeners do.
		if bound.WithZone("") == a.WithZone("") || bound.IsUnspecified() && (bound.Is6() || a.Is4()) {
			return netip.AddrPortFrom(a, l.Port()), true
		}
	}
	return netip.AddrPort{}, false
}

// ours says whether an address is this host's.
func (d *decision) ours(a netip.Addr) bool { return d.h.interfaceOf(a) != "" }

// interfaceOf is the interface that has an address, "" if none has.
func (h *Host) interfaceOf(a netip.Addr) string {
	for _, x := range h.Addresses {
		if x.Addr.WithZone("") == a.WithZone("") && (a.Zone() == "" || x.Addr.Zone() == "" || a.Zone() == x.Addr.Zone()) {
			return x.Interface
		}
	}
	return ""
}

// told says whether peers of other hosts can be told an address at all.
func told(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast() && !a.IsLinkLocalUnicast()
}

func name(iface string) string {
	if iface == "" {
		return "an interface that is not known"
	}
	return iface
}

// wanted checks the address that the user wants peers to be told.
func (d *decision) wanted(ctx context.Context) (*Choice, error) {
	host, port, err := d.split()
	if err != nil {
		return nil, err
	}
	c := &Choice{}
	a, err := netip.ParseAddr(host)
	if err != nil {
		if a, err = d.resolve(ctx, host); err != nil {
			return nil, err
		}
		c.Name = host
	}
	a = a.Unmap()
	switch {
	case a.IsUnspecified() || a.IsMulticast():
		return nil, pkgerr.Errorf("route", "advertise %q: %s is not an address of a host: give one that peers can reach", d.q.Want, a)
	case a.IsLinkLocalUnicast():
		return nil, pkgerr.Errorf("route", "advertise %q: %s is link-local: a peer needs a zone of its own to use it, give another", d.q.Want, a)
	}
	if port == 0 {
		if port, err = d.portFor(a); err != nil {
			return nil, err
		}
	}
	c.Addr, c.Reason = netip.AddrPortFrom(a, port), fmt.Sprintf("advertise %q is given", d.q.Want)
	warn := func(format string, args ...any) { c.Warnings = append(c.Warnings, fmt.Sprintf(format, args...)) }
	at, listened := d.listened(a)
	switch {
	case a.IsLoopback():
		warn("%s is for peers of this host only", a)
	case !d.ours(a):
		warn("%s is not an address of this host: right only where something forwards it to here", a)
	}
	if d.ours(a) && (!listened || at.Port() != port) {
		warn("nothing listens at %s", c.Addr)
	}
	return c, nil
}

// split reads host or host:port; port 0 is not given.
func (d *decision) split() (host string, port uint16, err error) {
	want := d.q.Want
	if inner, ok := strings.CutPrefix(want, "["); ok && strings.HasSuffix(inner, "]") {
		return strings.TrimSuffix(inner, "]"), 0, nil
	}
	if _, err := netip.ParseAddr(want); err == nil || !strings.Contains(want, ":") {
		return want, 0, nil
	}
	host, text, err := net.SplitHostPort(want)
	if err != nil || host == "" {
		return "", 0, pkgerr.Errorf("route", "advertise %q: want host or host:port, with an IPv6 address in brackets", want)
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return "", 0, pkgerr.Errorf("route", "advertise %q: port %q: want 1 to 65535", want, text)
	}
	return host, uint16(n), nil
}

// resolve finds the address of a host name, one of ours first.
func (d *decision) resolve(ctx context.Context, host string) (netip.Addr, error) {
	addrs, err := d.h.Resolve(ctx, host)
	if err != nil {
		return netip.Addr{}, pkgerr.Errorf("route", "advertise %q: %w: give an address", d.q.Want, err)
	}
	for _, a := range addrs {
		if d.ours(a.Unmap()) && told(a.Unmap()) {
			return a, nil
		}
	}
	if len(addrs) == 0 {
		return netip.Addr{}, pkgerr.Errorf("route", "advertise %q: the name has no address: give an address", d.q.Want)
	}
	return addrs[0], nil
}

// portFor is the port of the listener that has an address, or of all of them.
func (d *decision) portFor(a netip.Addr) (uint16, error) {
	if at, ok := d.listened(a); ok {
		return at.Port(), nil
	}
	port := d.q.Listen[0].Port()
	for _, l := range d.q.Listen {
		if l.Port() != port {
			return 0, pkgerr.Errorf("route", "advertise %q: the listeners have several ports (%d, %d): give host:port", d.q.Want, port, l.Port())
		}
	}
	return port, nil
}
