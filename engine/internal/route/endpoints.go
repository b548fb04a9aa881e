package route

import (
	"net/netip"
	"slices"

	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/pathsel"
)

// Endpoints lists where peers reach TCP's listeners, for the engine's descriptor:
// every address of every port that is up, in the order of ports, whether this
// host would use the port for data or not, because that is the peer's own
// decision; then, for no port, loopback addresses and those that a listener is
// bound to though no port has them.
func Endpoints(listen []netip.AddrPort, ports []pathsel.Port) []transport.Endpoint {
	out := []transport.Endpoint{}
	known := map[netip.Addr]bool{}
	add := func(e transport.Endpoint) {
		if !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	for i := range ports {
		p := &ports[i]
		down := p.BytesPerSec != nil && *p.BytesPerSec == 0
		for _, prefix := range p.Addresses {
			known[prefix.Addr()] = true
			if at, ok := listenedAt(listen, prefix.Addr()); ok && !down && told(prefix.Addr()) {
				add(transport.Endpoint{Transport: "tcp", Port: p.ID, Address: at.String()})
			}
		}
	}
	for _, loopback := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		if at, ok := listenedAt(listen, loopback); ok {
			add(transport.Endpoint{Transport: "tcp", Address: at.String()})
		}
	}
	for _, l := range listen {
		a := l.Addr().Unmap()
		if (told(a) || a.IsLoopback()) && !known[a] {
			add(transport.Endpoint{Transport: "tcp", Address: netip.AddrPortFrom(a, l.Port()).String()})
		}
	}
	return out
}
