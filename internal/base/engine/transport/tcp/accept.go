package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/topoctl/topoctl/internal/base/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
)

var (
	errStuck  = &violated{reason: "stuck", text: "a frame made no progress"}
	errRegion = &violated{reason: "region", text: "a frame held a region that was closed"}
	errLeft   = errors.New("tcp: the connection was left")
)

// Accept expects the connection that a peer announces.
func (t *Transport) Accept(_ context.Context, from transport.Origin, request []byte) ([]byte, error) {
	theirs, err := getOffer(request)
	if err != nil {
		return nil, err
	}
	agreed := t.offer.common(theirs)
	key := transport.ConnKey{Session: from.Session, Conn: from.Conn}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, fmt.Errorf("tcp: the transport is %w", net.ErrClosed)
	}
	t.ends.Expire(now)
	if err := t.ends.CheckNew(key); err != nil {
		return nil, fmt.Errorf("tcp: peer %q: %w", from.Name, err)
	}
	expected, open := t.ends.Len()
	if theirs := t.ends.OfSession(from.Session); theirs >= t.o.ConnsPerSession || expected+open >= t.o.Conns {
		return nil, fmt.Errorf("tcp: peer %q: too many connections (%d of %d, all peers %d of %d)", from.Name,
			theirs, t.o.ConnsPerSession, expected+open, t.o.Conns)
	}
	t.ends.Expect(key, agreed, now.Add(t.o.ArriveTime))
	return agreed.put(), nil
}

// Serve takes over a data connection that belongs to a session, if it was agreed
// on.
func (t *Transport) Serve(session transport.SessionID, id transport.ConnID, name string, nc net.Conn) error {
	key := transport.ConnKey{Session: session, Conn: id}
	t.mu.Lock()
	defer t.mu.Unlock()
	agreed, ok := t.ends.Expected(key, time.Now())
	if !ok || t.closed {
		_ = nc.Close()
		return fmt.Errorf("tcp: peer %q: connection %d was not agreed on, or was left", name, id)
	}
	p := newPassive(t, key, name, agreed)
	if err := p.init(p, nc, t.polls()); err != nil {
		_ = nc.Close()
		return fmt.Errorf("tcp: peer %q: connection %d: %w", name, id, err)
	}
	t.ends.Open(key, p)
	t.wg.Go(p.live)
	return nil
}

// gone takes a passive end out that touches nothing any more.
func (t *Transport) gone(p *passive, cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ends.Close(p.key)
	t.bytesRead += p.bytesRead.Load()
	t.bytesWritten += p.bytesWritten.Load()
	var v *violated
	if errors.As(cause, &v) {
		t.dropped[v.reason]++
	}
}

// Leave ends a passive end.
func (t *Transport) Leave(ctx context.Context, from transport.Origin, id transport.ConnID) error {
	t.mu.Lock()
	p, open := t.ends.Leave(transport.ConnKey{Session: from.Session, Conn: id})
	t.mu.Unlock()
	if !open {
		return nil
	}
	return p.leave(ctx)
}

// LeaveAll ends all passive ends of a session.
func (t *Transport) LeaveAll(ctx context.Context, session transport.SessionID) error {
	t.mu.Lock()
	open := t.ends.LeaveAll(session)
	t.mu.Unlock()
	return transport.Each(open, func(p *passive) error { return p.leave(ctx) })
}

// leave ends the connection, and waits until it touches no memory any more.
func (p *passive) leave(ctx context.Context) error {
	p.fail(errLeft)
	select {
	case <-p.finished:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("tcp: leave connection %d: %w", p.key.Conn, ctx.Err())
	}
}

// Deregister waits until no frame of a peer holds the region, and ends the
// connections whose frames do for longer than CloseTime: a peer that sends slowly
// could keep it from being closed for ever. The region must refuse new pins
// already, so its Close must have been called.
func (t *Transport) Deregister(r *memory.Region) error {
	holders := t.holders(r)
	if len(holders) == 0 {
		return nil
	}
	timer := time.NewTimer(t.o.CloseTime)
	defer timer.Stop()
	tick := time.NewTicker(t.o.CloseTime/50 + time.Millisecond)
	defer tick.Stop()
	for len(holders) > 0 {
		select {
		case <-tick.C:
		case <-timer.C:
			for _, p := range t.holders(r) {
				p.fail(errRegion)
				<-p.finished
			}
			return nil
		}
		holders = t.holders(r)
	}
	return nil
}

func (t *Transport) holders(r *memory.Region) []*passive {
	var list []*passive
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.ends.All() {
		if p.touches(r) {
			list = append(list, p)
		}
	}
	return list
}

// watchRounds is in how many looks of the watchdog a frame must make progress.
const watchRounds = 4

// watch ends connections whose frames make no progress, and expectations that do
// not come true.
func (t *Transport) watch() {
	tick := time.NewTicker(max(t.o.FrameTime/watchRounds, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-t.quit:
			return
		case now := <-tick.C:
			t.mu.Lock()
			t.ends.Expire(now)
			for _, p := range t.ends.All() {
				if p.stuck(watchRounds) {
					p.fail(errStuck)
				}
			}
			t.mu.Unlock()
		}
	}
}
