package route

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/pathsel"
)

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
		return nil, fmt.Errorf("route: advertise %q: %s is no address of a host: give one that peers can reach", d.q.Want, a)
	case a.IsLinkLocalUnicast():
		return nil, fmt.Errorf("route: advertise %q: %s is link-local: it means nothing to a peer without a zone of its own, give another", d.q.Want, a)
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
		return "", 0, fmt.Errorf("route: advertise %q: want host or host:port, with an IPv6 address in brackets", want)
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("route: advertise %q: port %q: want 1 to 65535", want, text)
	}
	return host, uint16(n), nil
}

// resolve finds the address of a host name, one of ours first.
func (d *decision) resolve(ctx context.Context, host string) (netip.Addr, error) {
	addrs, err := d.h.Resolve(ctx, host)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("route: advertise %q: %w: give an address", d.q.Want, err)
	}
	for _, a := range addrs {
		if d.ours(a.Unmap()) && told(a.Unmap()) {
			return a, nil
		}
	}
	if len(addrs) == 0 {
		return netip.Addr{}, fmt.Errorf("route: advertise %q: the name has no address: give an address", d.q.Want)
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
			return 0, fmt.Errorf("route: advertise %q: the listeners have several ports (%d, %d): give host:port", d.q.Want, port, l.Port())
		}
	}
	return port, nil
}
