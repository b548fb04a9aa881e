package engine

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
)

// servedMost bounds the connections that are listed.
const servedMost = 256

// servedStats lists the connections by which peers have us open, and says how many more
// there are.
func (e *Engine) servedStats() (_ []ServedStats, more int) {
	out := []ServedStats{}
	var ports map[netip.Addr]topo.ID
	for _, c := range e.carriers {
		serving, ok := transport.As[transport.Serving](c.t)
		if !ok {
			continue
		}
		for _, x := range serving.Serves() {
			s := ServedStats{
				Conn: uint64(x.Conn), Peer: x.Name, Transport: c.name, LocalAddress: x.LocalAddress, RemoteAddress: x.RemoteAddress,
				LocalPort: x.LocalPort, ReadBytes: x.ReadBytes, WrittenBytes: x.WrittenBytes,
			}
			if at, err := netip.ParseAddrPort(x.LocalAddress); err == nil && s.LocalPort == "" {
				if ports == nil {
					ports = e.portAddresses()
				}
				s.LocalPort = ports[at.Addr().Unmap().WithZone("")]
			}
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b ServedStats) int {
		return cmp.Or(cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Transport, b.Transport), cmp.Compare(a.Conn, b.Conn),
			cmp.Compare(a.RemoteAddress, b.RemoteAddress))
	})
	most := min(len(out), servedMost)
	return out[:most:most], len(out) - most
}

// portAddresses are the addresses of this host's ports, as far as its topology tells. Of
// one that several ports have (link-local ones) it is not known whose it is.
func (e *Engine) portAddresses() map[netip.Addr]topo.ID {
	out := map[netip.Addr]topo.ID{}
	if h := e.hostNow(); h != nil {
		for _, p := range h.Ports() {
			for _, a := range p.Addresses {
				if other, twice := out[a.Addr()]; twice && other != p.ID {
					out[a.Addr()] = ""
				} else {
					out[a.Addr()] = p.ID
				}
			}
		}
	}
	return out
}
