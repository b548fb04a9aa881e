// Package route says at which addresses peers reach this engine: the one that
// they are told, and those of each port for the lanes. It decides on what Host
// knows; System asks the operating system.
//
// An address is never guessed from the order of interfaces: a bridge of
// containers (docker0) has an address too, and no peer can reach it.
package route

import (
	"context"
	"errors"
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
	// Want is what the user wants to be told, host or host:port; "" the route decides.
	Want string
	// Ports are this host's, from a pathsel.Host that was prepared for TCP; nil: not
	// known. They decide where no peer does.
	Ports []pathsel.Port
	// Peer is who is told; not valid: nobody in particular.
	Peer netip.Addr
}

// Choice is an address that peers are told.
type Choice struct {
	Addr netip.AddrPort
	// Name is the host name that the user gave, "" for an address.
	Name      string
	Interface string // that has the address, "" if none of this host's has
	// Reasons say why it is this one and why others are not; Warnings what may be
	// wrong with it.
	Reasons  []pathsel.Reason
	Warnings []pathsel.Reason
}

// String is host:port as peers are told.
func (c *Choice) String() string {
	if c.Name != "" {
		return net.JoinHostPort(c.Name, strconv.Itoa(int(c.Addr.Port())))
	}
	return c.Addr.String()
}

// Why an address is told, or not.
const (
	CodeGiven       pathsel.Code = "given"        // the user wants it
	CodeRouted      pathsel.Code = "routed"       // the kernel sends from it to the peer
	CodeNotRouted   pathsel.Code = "not-routed"   // the way to the peer is another
	CodeLoopback    pathsel.Code = "loopback"     // for peers of this host only
	CodeListened    pathsel.Code = "listened"     // the listener has this one
	CodeNotListened pathsel.Code = "not-listened" // no listener has it
	CodeLinkLocal   pathsel.Code = "link-local"   // means nothing without a zone
	CodeDataPort    pathsel.Code = "data-port"    // of a port that is there for data
	CodeDefault     pathsel.Code = "default"      // the default route leaves by it
	CodeOnly        pathsel.Code = "only"         // nothing better is known
	CodeForeign     pathsel.Code = "foreign"      // not an address of this host
	CodeNoRoute     pathsel.Code = "no-route"     // the kernel has no route to the peer
)

// ErrUnreachable is what Advertise fails with where no address is left that the
// peer can reach.
var ErrUnreachable = errors.New("no address for peers")

// Advertise chooses the address that a peer is told. ctx bounds resolving a name.
func Advertise(ctx context.Context, h Host, q Query) (*Choice, error) {
	if len(q.Listen) == 0 {
		return nil, pkgerr.Errorf("route", "%w: nothing listens", ErrUnreachable)
	}
	q.Peer = q.Peer.Unmap()
	d := decision{h: h, q: q}
	switch {
	case q.Want != "":
		return d.wanted(ctx)
	case q.Peer.IsValid() && (q.Peer.IsLoopback() || d.ours(q.Peer)):
		return d.forThisHost()
	case q.Peer.IsValid():
		return d.forPeer()
	}
	return d.forAnybody()
}

// decision is one question with what is found on the way to the answer.
type decision struct {
	h       Host
	q       Query
	reasons []pathsel.Reason
}

func (d *decision) note(code pathsel.Code, format string, args ...any) {
	d.reasons = append(d.reasons, pathsel.Reason{Code: code, Text: fmt.Sprintf(format, args...)})
}

// choose answers with an address of a listener. The reason comes first.
func (d *decision) choose(at netip.AddrPort, code pathsel.Code, format string, args ...any) (*Choice, error) {
	first := pathsel.Reason{Code: code, Text: fmt.Sprintf(format, args...)}
	return &Choice{Addr: at, Interface: d.h.interfaceOf(at.Addr()), Reasons: append([]pathsel.Reason{first}, d.reasons...)}, nil
}

// forThisHost is for peers that are engines of this host.
func (d *decision) forThisHost() (*Choice, error) {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if d.q.Peer.Is6() && d.q.Peer.IsLoopback() {
		loopback = netip.IPv6Loopback()
	}
	for _, a := range []netip.Addr{loopback, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		if at, ok := d.listened(a); ok {
			return d.choose(at, CodeLoopback, "peer %s is on this host", d.q.Peer)
		}
	}
	at := d.q.Listen[0]
	return d.choose(at, CodeListened, "peer %s is on this host, and the listener is bound to %s", d.q.Peer, at.Addr())
}

// forPeer follows the kernel's route to the peer.
func (d *decision) forPeer() (*Choice, error) {
	peer := d.q.Peer
	src, err := d.h.Source(peer)
	if err != nil {
		d.note(CodeNoRoute, "the kernel has no route to peer %s: %v", peer, err)
		return d.forAnybody()
	}
	src = src.Unmap()
	by := d.h.interfaceOf(src)
	if src.IsLinkLocalUnicast() {
		d.note(CodeLinkLocal, "peer %s is routed by %s from %s, a link-local address: peers would need a zone of their own for it", peer, name(by), src.WithZone(""))
		for _, a := range d.h.Addresses {
			if at, ok := d.listened(a.Addr); ok && a.Interface == by && told(a.Addr) {
				return d.choose(at, CodeRouted, "peer %s is routed by %s, which has %s too", peer, name(by), a.Addr)
			}
		}
		return d.forAnybody()
	}
	at, ok := d.listened(src)
	if !ok {
		d.note(CodeNotListened, "peer %s is routed by %s from %s, where nothing listens", peer, name(by), src)
		return d.forAnybody()
	}
	for _, a := range d.h.Addresses {
		if _, ok := d.listened(a.Addr); ok && a.Interface != by && told(a.Addr) {
			d.note(CodeNotRouted, "%s (%s) is not on the way to peer %s", a.Interface, a.Addr, peer)
		}
	}
	return d.choose(at, CodeRouted, "peer %s is routed by %s", peer, name(by))
}

// forAnybody chooses where no peer's route does: what the listeners are bound
// to, data ports, the interface of the default route, whatever is left.
func (d *decision) forAnybody() (*Choice, error) {
	for _, l := range d.q.Listen {
		if told(l.Addr()) {
			return d.choose(l, CodeListened, "the listener is bound to %s", l.Addr())
		}
	}
	for i := range d.q.Ports {
		p := &d.q.Ports[i]
		for _, prefix := range p.Addresses {
			if at, ok := d.listened(prefix.Addr()); ok && p.Usable && told(prefix.Addr()) {
				return d.choose(at, CodeDataPort, "%s is a port for data", p.Name)
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
			return d.choose(at, CodeDefault, "the default route leaves by %s", name(d.h.interfaceOf(src.Unmap())))
		}
	}
	for _, a := range d.h.Addresses {
		if at, ok := d.listened(a.Addr); ok && told(a.Addr) {
			return d.choose(at, CodeOnly, "no route tells, %s is the first interface with an address", a.Interface)
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
		if d.q.Peer.IsValid() {
			return nil, pkgerr.Errorf("route", "%w: the listener is bound to %s, which peer %s cannot reach: listen at an address of a network port", ErrUnreachable, l.Addr(), d.q.Peer)
		}
		return d.choose(l, CodeLoopback, "the listener is bound to %s: peers of this host only", l.Addr())
	}
	if at, ok := d.listened(netip.AddrFrom4([4]byte{127, 0, 0, 1})); ok && !d.q.Peer.IsValid() {
		return d.choose(at, CodeLoopback, "this host has no other address: peers of this host only")
	}
	return nil, pkgerr.Errorf("route", "%w: this host has no address that they could reach: give one with --advertise", ErrUnreachable)
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
	c.Addr, c.Interface = netip.AddrPortFrom(a, port), d.h.interfaceOf(a)
	c.Reasons = []pathsel.Reason{{Code: CodeGiven, Text: fmt.Sprintf("advertise %q is given", d.q.Want)}}
	warn := func(code pathsel.Code, format string, args ...any) {
		c.Warnings = append(c.Warnings, pathsel.Reason{Code: code, Text: fmt.Sprintf(format, args...)})
	}
	at, listened := d.listened(a)
	switch {
	case a.IsLoopback() && d.q.Peer.IsValid() && !d.q.Peer.IsLoopback() && !d.ours(d.q.Peer):
		warn(CodeLoopback, "%s is told to peer %s, which is on another host", a, d.q.Peer)
	case a.IsLoopback():
		warn(CodeLoopback, "%s is for peers of this host only", a)
	case c.Interface == "":
		warn(CodeForeign, "%s is not an address of this host: right only where something forwards it to here", a)
	}
	if c.Interface != "" && (!listened || at.Port() != port) {
		warn(CodeNotListened, "nothing listens at %s", c.Addr)
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
