package transport

import (
	"context"
	"net/netip"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/internal/memory"
)

// OnPort leaves a transport one of its ports. One without any stays as it is.
func OnPort(t Transport, port topo.ID) Transport {
	if ported, ok := As[Ported](t); ok {
		return onPort{t, ported, port}
	}
	return t
}

// onPort is a transport that shows one of its ports.
type onPort struct {
	Transport
	all  Ported
	port topo.ID
}

var _ Ported = onPort{}

func (o onPort) Unwrap() Transport { return o.Transport }

func (o onPort) Offers() []Endpoint {
	return slices.DeleteFunc(slices.Clone(o.all.Offers()), func(e Endpoint) bool { return e.Port != o.port })
}

func (o onPort) LocalPorts() []LocalPort {
	return slices.DeleteFunc(slices.Clone(o.all.LocalPorts()), func(p LocalPort) bool { return p.ID != o.port })
}

func (o onPort) Key(r *memory.Region) string { return o.all.Key(r) }

func (o onPort) PortReaches(local topo.ID, remote Endpoint) error {
	return o.all.PortReaches(local, remote)
}

// Within bounds a transport to the addresses that allow has no error for.
func Within(t Transport, allow func(context.Context, netip.AddrPort) error) Transport {
	return bounded{t, allow}
}

type bounded struct {
	Transport
	allow func(context.Context, netip.AddrPort) error
}

func (b bounded) Unwrap() Transport { return b.Transport }

// Connects implements Bounded.
func (b bounded) Connects(ctx context.Context, to netip.AddrPort) error { return b.allow(ctx, to) }

func (b bounded) Dial(ctx context.Context, d Dial) (Conn, error) {
	if to, err := netip.ParseAddrPort(d.Remote.Address); err == nil {
		if err := b.allow(ctx, to); err != nil {
			return nil, err
		}
	}
	return b.Transport.Dial(ctx, d)
}
