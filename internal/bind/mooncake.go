package bind

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/internal/bind/mooncake"
)

// compat is the side of an engine that speaks Mooncake's classic protocol (docs/mooncake.md).
type compat struct {
	*mooncake.Node
	received chan engine.Notification // of stock peers
}

// openCompat starts it, for an engine that runs. Connections come by other.
func (e *Engine) openCompat(ctx context.Context) error {
	c := &compat{received: make(chan engine.Notification, maxReceived)}
	address := e.Address()
	listen := e.e.Addrs()[0].Addr() // or where it is reached, of several
	if told, err := netip.ParseAddrPort(address); err == nil {
		for _, a := range e.e.Addrs() {
			if a.Addr() == told.Addr() {
				listen = a.Addr()
			}
		}
	}
	var err error
	c.Node, err = mooncake.New(ctx, mooncake.Options{
		Address: address, Metadata: e.o.Metadata, Name: e.Name(), Engine: e.Name(),
		Listen:  netip.AddrPortFrom(listen, 0).String(),
		Offered: view{e, true}, Ranges: e.offered, Own: view{e, false},
		Notified: c.notified, Logger: e.log,
	})
	if err != nil {
		return &Error{Failed, err}
	}
	e.compat.Store(c)
	return nil
}

// maxReceived are the notifications that are not taken yet; more are refused.
const maxReceived = 1 << 10

func (c *compat) notified(name, message string) bool {
	select {
	case c.received <- engine.Notification{From: trust.PeerID{Claimed: name}, Payload: []byte(message)}:
		return true
	default:
		return false
	}
}

// other takes a connection to the engine's port that is no engine's.
func (e *Engine) other(c net.Conn) {
	if m := e.compat.Load(); m != nil {
		m.Serve(c)
		return
	}
	_ = c.Close() // it came before all was ready
}

// offered are the ranges that stock peers are told of: Mooncake knows no rights.
func (e *Engine) offered() []mooncake.Range {
	var out []mooncake.Range
	for _, x := range *e.local.Load() {
		if x.of.Grant() != memory.None {
			out = append(out, mooncake.Range{Address: x.lo, Length: x.hi - x.lo})
		}
	}
	return out
}

// view is registered memory, as peers may use it or as this process may.
type view struct {
	e     *Engine
	peers bool
}

// each calls f for the parts of a range that lie in one region each.
func (v view) each(address, length uint64, write bool, f func(r *region, offset, length uint64) error) error {
	want := memory.None
	if v.peers {
		want = memory.PeerRead
		if write {
			want = memory.PeerWrite
		}
	}
	c := cursor[*region]{space: *v.e.local.Load()}
	for length > 0 {
		x := c.at(address)
		switch {
		case x == nil:
			return fail(NoRegion, "%d bytes at %#x: not registered: %w", length, address, engine.ErrNoRegion)
		case x.of.Grant()&want != want:
			return fail(NoRegion, "%d bytes at %#x: peers may only %s: %w", length, address, x.of.Grant(), engine.ErrDenied)
		}
		n := min(length, x.hi-address)
		if err := f(x.of, address-x.lo, n); err != nil {
			return err
		}
		address, length = address+n, length-n
	}
	return nil
}

// Check implements mooncake.Memory.
func (v view) Check(r mooncake.Range, write bool) error {
	return v.each(r.Address, r.Length, write, func(*region, uint64, uint64) error { return nil })
}

// ReadAt implements mooncake.Memory.
func (v view) ReadAt(p []byte, address uint64) error {
	return v.each(address, uint64(len(p)), false, func(r *region, offset, n uint64) error {
		_, err := r.ReadAt(p[:n], int64(offset))
		p = p[n:]
		return err
	})
}

// WriteAt implements mooncake.Memory.
func (v view) WriteAt(p []byte, address uint64) error {
	return v.each(address, uint64(len(p)), true, func(r *region, offset, n uint64) error {
		_, err := r.WriteAt(p[:n], int64(offset))
		p = p[n:]
		return err
	})
}

// publish tells peers what is registered now.
func (e *Engine) publish() error {
	m := e.compat.Load()
	if m == nil {
		return nil
	}
	ctx, cancel := e.bounded(0)
	defer cancel()
	if err := m.Publish(ctx); err != nil {
		return &Error{Failed, err}
	}
	return nil
}

// find says who a peer is: a stock one, or at which address an engine of ours.
func (e *Engine) find(ctx context.Context, name string) (stock *mooncake.Peer, address string, err error) {
	m := e.compat.Load()
	e.mu.Lock()
	_, added := e.added[name]
	e.mu.Unlock()
	if m == nil || added {
		return nil, name, nil
	}
	p, err := m.Open(ctx, name)
	switch {
	case err == nil:
	case e.o.Metadata == mooncake.P2P && errors.Is(err, mooncake.ErrMalformed):
		return nil, name, nil // an engine without this option, maybe
	default:
		return nil, "", err
	}
	_, at, ours, err := p.Engine(ctx)
	if ours || err != nil {
		p.Close()
		return nil, at, err
	}
	return p, "", nil
}

// beginClassic starts a batch with a stock peer. Its memory of this process is checked here, that of
// the peer when the peer is asked.
func (e *Engine) beginClassic(x *peer, r *request, until time.Time) (*operation, error) {
	ops := make([]mooncake.Op, r.n)
	o := &operation{
		peer: r.peer, ops: r.n, check: "no checksums: Mooncake's protocol has none",
		notes: []string{"a stock Mooncake peer: TCP to the address that it gave, by the host's routes"},
	}
	own := view{e, false}
	for i := range ops {
		m, err := r.at(i)
		if err == nil {
			err = m.check(i)
		}
		if err == nil {
			err = own.Check(mooncake.Range{Address: m.local, Length: m.length}, r.op == 0)
		}
		if err != nil {
			return nil, err
		}
		ops[i] = mooncake.Op{Local: m.local, Remote: m.remote, Length: m.length}
		o.total += int64(m.length)
	}
	notify := slices.Clone(r.notify) // nil stays nil
	return e.operate(o, func(ctx context.Context) ([]byte, error) {
		ctx, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		err := x.stock.Transfer(ctx, r.op == 1, ops)
		if err == nil && notify != nil {
			err = x.stock.Notify(ctx, string(notify))
		}
		if errors.Is(err, mooncake.ErrUnconfirmed) {
			err = &Error{Unsafe, err}
		}
		return nil, err
	})
}
