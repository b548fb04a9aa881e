package route

import (
	"context"
	"net"
	"net/netip"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// System asks the operating system for this host's addresses, of the network
// namespace that the calling thread is in.
func System() (Host, error) {
	h := Host{Source: source, Resolve: func(ctx context.Context, host string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	}}
	interfaces, err := net.Interfaces()
	if err != nil {
		return Host{}, pkgerr.Errorf("route", "interfaces: %w", err)
	}
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue // it went away meanwhile
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				addr := p.Addr()
				if addr.IsLinkLocalUnicast() && addr.Is6() {
					addr = addr.WithZone(i.Name)
				}
				h.Addresses = append(h.Addresses, Address{i.Name, addr})
			}
		}
	}
	return h, nil
}

// source lets the kernel route: connecting a datagram socket chooses the address
// to send from, and sends nothing.
func source(peer netip.Addr) (netip.Addr, error) {
	const discard = 9 // any port but 0 does
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(peer, discard)))
	if err != nil {
		return netip.Addr{}, err
	}
	defer func() { _ = c.Close() }() // nothing was sent
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr(), nil
}
