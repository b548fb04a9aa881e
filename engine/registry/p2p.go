package registry

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/topoctl/topoctl/engine/internal/peerdoc"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// P2P is the registry without a server: the name of an engine is host:port, an
// IPv4 address, an IPv6 address in brackets or a host name of the system's
// resolver. Every such name is found, whether an engine is there or not. Publish
// keeps nothing, and nothing can be watched.
func P2P() Registry { return &p2p{resolve: net.DefaultResolver.LookupNetIP} }

type p2p struct {
	resolve func(ctx context.Context, network, host string) ([]netip.Addr, error)
	closed  atomic.Bool
}

func (p *p2p) Lookup(ctx context.Context, name string) (Record, error) {
	if p.closed.Load() {
		return Record{}, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return Record{}, err
	}
	host, port, err := splitName(name)
	if err != nil {
		return Record{}, err
	}
	r := Record{Name: name}
	addrs := []netip.Addr{}
	if a, err := netip.ParseAddr(host); err == nil {
		addrs = append(addrs, a)
	} else if addrs, err = p.resolve(ctx, "ip", host); err != nil {
		return Record{}, lookupError(ctx, host, err)
	}
	for _, a := range addrs {
		if a = a.Unmap(); a.IsUnspecified() || a.IsMulticast() {
			return Record{}, pkgerr.Errorf("registry", "%s is not an address of a host: %w", a, ErrNotFound)
		}
		if ap := netip.AddrPortFrom(a, port); !slices.Contains(r.Addresses, ap) {
			r.Addresses = append(r.Addresses, ap)
		}
	}
	if len(r.Addresses) == 0 {
		return Record{}, pkgerr.Errorf("registry", "host %q has no address: %w", host, ErrNotFound)
	}
	return r, nil
}

// splitName reads host:port.
func splitName(name string) (host string, port uint16, err error) {
	if peerdoc.CheckText("name", name, 0, maxName) != nil {
		return "", 0, pkgerr.Errorf("registry", "want host:port: %w", ErrNotFound)
	}
	host, text, err := net.SplitHostPort(name)
	if err != nil || host == "" {
		return "", 0, pkgerr.Errorf("registry", "want host:port, with an IPv6 address in brackets: %w", ErrNotFound)
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return "", 0, pkgerr.Errorf("registry", "port %q: want 1 to 65535, where the peer's engine listens: %w", text, ErrNotFound)
	}
	return host, uint16(n), nil
}

// lookupError says whether the resolver knows that there is no such host.
func lookupError(ctx context.Context, host string, err error) error {
	if ctx.Err() != nil {
		return pkgerr.Errorf("registry", "resolving %q: %w", host, ctx.Err())
	}
	var dns *net.DNSError
	if errors.As(err, &dns) && dns.IsNotFound {
		return pkgerr.Errorf("registry", "%w: %w", ErrNotFound, err)
	}
	return pkgerr.Errorf("registry", "%w", err)
}

func (p *p2p) Publish(ctx context.Context, r Record) (Lease, error) {
	if p.closed.Load() {
		return nil, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	return p2pLease{}, nil
}

func (p *p2p) Watch(context.Context, string, func(Record, bool)) error {
	if p.closed.Load() {
		return ErrClosed
	}
	return ErrNoWatch
}

func (p *p2p) Close() error {
	p.closed.Store(true)
	return nil
}

// p2pLease is a lease on nothing: it cannot be lost.
type p2pLease struct{}

func (p2pLease) Lost() <-chan struct{} { return nil }
func (p2pLease) Close() error          { return nil }
