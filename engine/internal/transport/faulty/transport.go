// Package faulty makes transports and networks fail, for tests.
//
// Wrap is a transport around another one that delays, drops, duplicates,
// reorders and fails requests, kills connections, and lets WRITEs land after
// their connection is over: at random by a Plan, which a seed makes repeatable,
// or by hand. All of it stays within the contract of package transport, so an
// engine must come through it without a wrong byte.
//
// Proxy stands between two ends of TCP connections and does to bytes what
// networks do: it delays, holds back, corrupts, cuts.
package faulty

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

// Errors of faults.
var (
	ErrInjected = errors.New("injected fault")
	errKilled   = fmt.Errorf("%w: the connection was killed", ErrInjected)
)

// Plan says what happens at random, each with its probability (0 never, 1 always).
// The zero value does nothing.
type Plan struct {
	Seed uint64
	// Drop is for requests that are lost on the way: no completion until the
	// connection ends.
	Drop float64
	// Hold is for WRITEs that stay on the way, like those that are dropped, and land
	// after the connection has ended (up to LateMax later), unless the peer has left
	// it or what else was on the connection does not end within a second.
	Hold    float64
	LateMax time.Duration
	// Delay is for requests that go up to DelayMax later; others overtake them.
	Delay    float64
	DelayMax time.Duration
	// Duplicate is for requests that are executed twice.
	Duplicate float64
	// Fail is for requests that fail at once, without having been sent.
	Fail float64
	// Corrupt is for requests with Check whose checksum is wrong at the other end:
	// nothing lands.
	Corrupt float64
	// Kill is for requests that the connection dies of.
	Kill float64
	// FailDial is for dials, FailLeave for calls of Leave, which have no effect then.
	FailDial, FailLeave float64
}

// Counts are how often each fault happened.
type Counts struct {
	Dropped, Held, Landed, Delayed, Duplicated, Failed, Corrupted, Killed, FailedDials, FailedLeaves int64
}

// Sum is all faults together.
func (c Counts) Sum() int64 {
	return c.Dropped + c.Held + c.Delayed + c.Duplicated + c.Failed + c.Corrupted + c.Killed + c.FailedDials + c.FailedLeaves
}

func (c *Counts) add(n Counts) {
	c.Dropped += n.Dropped
	c.Held += n.Held
	c.Delayed += n.Delayed
	c.Duplicated += n.Duplicated
	c.Failed += n.Failed
	c.Corrupted += n.Corrupted
	c.Killed += n.Killed
}

// Transport is a transport with faults. Its passive side is that of the transport
// inside, but for FailLeave.
type Transport struct {
	transport.Transport               // the one inside
	stage               *memory.Table // copies of what WRITEs carry that land late

	plan    Plan
	running sync.WaitGroup

	mu     sync.Mutex
	rng    *rand.Rand
	counts Counts
	conns  map[*Conn]bool
	closed bool
}

var _ transport.Transport = (*Transport)(nil)

// Wrap puts faults around a transport. Closing it closes the one inside.
func Wrap(inner transport.Transport, plan Plan) *Transport {
	return &Transport{
		Transport: inner, stage: memory.NewTable(1 << 16), plan: plan,
		rng: rand.New(rand.NewPCG(plan.Seed, 0)), conns: map[*Conn]bool{},
	}
}

// Counts are the faults so far.
func (t *Transport) Counts() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts
}

func (t *Transport) count(what func(*Counts)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	what(&t.counts)
}

// Conns are the connections that were dialled and are not over, or from which
// WRITEs may still land.
func (t *Transport) Conns() []*Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.conns))
}

// Unwrap is the transport inside.
func (t *Transport) Unwrap() transport.Transport { return t.Transport }

// Leave goes inside, or fails.
func (t *Transport) Leave(ctx context.Context, from transport.Origin, conn transport.ConnID) error {
	if t.draw(t.plan.FailLeave) {
		t.count(func(c *Counts) { c.FailedLeaves++ })
		return fmt.Errorf("%w: leave of connection %d", ErrInjected, conn)
	}
	return t.Transport.Leave(ctx, from, conn)
}

// draw decides one thing that is not a connection's.
func (t *Transport) draw(probability float64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rng.Float64() < probability
}

// Dial dials inside, or fails.
func (t *Transport) Dial(ctx context.Context, d transport.Dial) (transport.Conn, error) {
	if t.draw(t.plan.FailDial) {
		t.count(func(c *Counts) { c.FailedDials++ })
		return nil, fmt.Errorf("dial %q: %w", d.Remote.Address, ErrInjected)
	}
	c := &Conn{
		transport: t, events: d.Events, wake: make(chan struct{}, 1),
		rng: rand.New(rand.NewPCG(t.plan.Seed, uint64(d.Conn))),
	}
	d.Events = transport.Events{Done: c.innerDone, Lost: c.innerLost}
	inner, err := t.Transport.Dial(ctx, d)
	if err != nil {
		return nil, err
	}
	c.inner = inner
	t.mu.Lock()
	closed := t.closed
	if !closed {
		t.conns[c] = true
		t.running.Add(1)
	}
	t.mu.Unlock()
	if closed {
		inner.Close(ErrInjected)
		return nil, fmt.Errorf("dial %q: transport is closed", d.Remote.Address)
	}
	go c.run()
	return c, nil
}

// Close ends all connections; nothing lands late any more.
func (t *Transport) Close() error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	err := t.Transport.Close()
	for _, c := range t.Conns() {
		c.Close(errors.New("transport is closed"))
	}
	t.running.Wait()
	return errors.Join(err, t.stage.Close())
}

func (t *Transport) forget(c *Conn) {
	t.mu.Lock()
	delete(t.conns, c)
	t.mu.Unlock()
	t.running.Done()
}

// keep copies a WRITE and its bytes, for landing when the poster has its memory
// back; nil where that is not possible.
func (t *Transport) keep(r *transport.Request) *transport.Request {
	if r.Bytes == 0 {
		return nil
	}
	b, err := memory.Alloc(r.Bytes, memory.Options{Backing: memory.Private, Lazy: true})
	if err != nil {
		return nil
	}
	region, err := t.stage.Add(b, "", "", memory.None)
	if err != nil {
		_ = b.Free() // it was never shown to anybody
		return nil
	}
	if _, err := t.Transport.Register(region); err != nil {
		return nil // the stage owns the block
	}
	late := &transport.Request{Op: r.Op, Bytes: r.Bytes, Check: r.Check, Spans: make([]transport.Span, len(r.Spans))}
	at := int64(0)
	for i, s := range r.Spans {
		copy(region.Bytes(at, s.Bytes), s.Local.Bytes(s.LocalOffset, s.Bytes))
		s.Local, s.LocalOffset = region, at
		late.Spans[i] = s
		at += s.Bytes
	}
	return late
}

// drop gives back what keep took.
func (t *Transport) drop(late *transport.Request) {
	region := late.Spans[0].Local
	// Nothing is pinned here, and the stage's Close frees what is left.
	_ = t.Transport.Deregister(region)
	_ = region.Close(context.Background())
}
