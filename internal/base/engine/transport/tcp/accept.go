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

// connKey names a passive end: peers choose the second part themselves.
type connKey struct {
	session transport.SessionID
	conn    transport.ConnID
}

// expectation is a connection that was agreed on and has not arrived.
type expectation struct {
	agreed offer
	until  time.Time
}

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
	key := connKey{from.Session, from.Conn}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, fmt.Errorf("tcp: the transport is %w", net.ErrClosed)
	}
	t.expire(now)
	_, twice := t.expected[key]
	if t.passive[key] != nil || twice {
		return nil, fmt.Errorf("tcp: peer %q: connection %d exists already", from.Name, from.Conn)
	}
	if t.perSession[from.Session] >= t.o.ConnsPerSession || len(t.passive)+len(t.expected) >= t.o.Conns {
		return nil, fmt.Errorf("tcp: peer %q: too many connections (%d of %d, all peers %d of %d)", from.Name,
			t.perSession[from.Session], t.o.ConnsPerSession, len(t.passive)+len(t.expected), t.o.Conns)
	}
	t.expected[key] = expectation{agreed: agreed, until: now.Add(t.o.ArriveTime)}
	t.perSession[from.Session]++
	return agreed.put(), nil
}

// expire drops what has not arrived in time. mu is held.
func (t *Transport) expire(now time.Time) {
	for key, e := range t.expected {
		if now.After(e.until) {
			delete(t.expected, key)
			t.countOff(key)
		}
	}
}

// countOff counts one connection of a session less. mu is held.
func (t *Transport) countOff(key connKey) {
	if t.perSession[key.session]--; t.perSession[key.session] == 0 {
		delete(t.perSession, key.session)
	}
}

// Serve takes over a data connection that belongs to a session, if it was agreed
// on.
func (t *Transport) Serve(session transport.SessionID, id transport.ConnID, name string, nc net.Conn) error {
	key := connKey{session, id}
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.expected[key]
	if !ok || t.closed || time.Now().After(e.until) {
		_ = nc.Close()
		return fmt.Errorf("tcp: peer %q: connection %d was not agreed on, or was left", name, id)
	}
	p := newPassive(t, key, name, e.agreed)
	if err := p.init(p, nc, t.polls()); err != nil {
		_ = nc.Close()
		return fmt.Errorf("tcp: peer %q: connection %d: %w", name, id, err)
	}
	delete(t.expected, key)
	t.passive[key] = p
	t.wg.Go(p.live)
	return nil
}

// gone takes a passive end out that touches nothing any more.
func (t *Transport) gone(p *passive, cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.passive, p.key)
	t.bytesRead += p.bytesRead.Load()
	t.bytesWritten += p.bytesWritten.Load()
	t.countOff(p.key)
	var v *violated
	if errors.As(cause, &v) {
		t.dropped[v.reason]++
	}
}

// Leave ends a passive end.
func (t *Transport) Leave(ctx context.Context, from transport.Origin, id transport.ConnID) error {
	key := connKey{from.Session, id}
	t.mu.Lock()
	t.disown(key)
	p := t.passive[key]
	t.mu.Unlock()
	if p == nil {
		return nil
	}
	p.fail(errLeft)
	return p.await(ctx)
}

// disown expects a connection no more. mu is held.
func (t *Transport) disown(key connKey) {
	if _, ok := t.expected[key]; ok {
		delete(t.expected, key)
		t.countOff(key)
	}
}

// LeaveAll ends all passive ends of a session.
func (t *Transport) LeaveAll(ctx context.Context, session transport.SessionID) error {
	var left []*passive
	t.mu.Lock()
	for key := range t.expected {
		if key.session == session {
			t.disown(key)
		}
	}
	for key, p := range t.passive {
		if key.session == session {
			left = append(left, p)
		}
	}
	t.mu.Unlock()
	for _, p := range left {
		p.fail(errLeft)
	}
	for _, p := range left {
		if err := p.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// await waits until the end touches no memory any more.
func (p *passive) await(ctx context.Context) error {
	select {
	case <-p.finished:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("tcp: leave connection %d: %w", p.key.conn, ctx.Err())
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
	for _, p := range t.passive {
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
			t.expire(now)
			for _, p := range t.passive {
				if p.stuck(watchRounds) {
					p.fail(errStuck)
				}
			}
			t.mu.Unlock()
		}
	}
}
