package registry

import (
	"context"
	"errors"
	"net/netip"
)

// WithAddresses is a registry that also finds addresses, as P2P does: IP:port always, and host:port
// where r has no engine of that name. What r publishes, watches and lists stays as it is; closing
// it closes r.
func WithAddresses(r Registry) Registry {
	a := &withAddresses{Registry: r, p2p: P2P()}
	if l, ok := r.(Lister); ok {
		return &listerWithAddresses{a, l}
	}
	return a
}

type withAddresses struct {
	Registry
	p2p Registry
}

type listerWithAddresses struct {
	*withAddresses
	Lister
}

// Lookup implements Registry.
func (a *withAddresses) Lookup(ctx context.Context, name string) (Record, error) {
	if _, err := netip.ParseAddrPort(name); err == nil {
		return a.p2p.Lookup(ctx, name)
	}
	r, err := a.Registry.Lookup(ctx, name)
	if _, _, bad := splitName(name); errors.Is(err, ErrNotFound) && bad == nil {
		if at, p2p := a.p2p.Lookup(ctx, name); p2p == nil {
			return at, nil
		}
	}
	return r, err
}

// ReadOnly is a registry that publishes nothing: for engines that open others and that no one needs to find. Closing
// it closes r.
func ReadOnly(r Registry) Registry {
	o := &readOnly{r}
	if l, ok := r.(Lister); ok {
		return &listerReadOnly{o, l}
	}
	return o
}

type readOnly struct{ Registry }

type listerReadOnly struct {
	*readOnly
	Lister
}

// Publish implements Registry.
func (o *readOnly) Publish(ctx context.Context, r Record) (Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	return p2pLease{}, nil
}
