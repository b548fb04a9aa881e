//go:build race

package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/fake"
)

// history is what happened to one place of a peer's memory, and which connections a write
// that was given up may still land by. It knows nothing of the engine: the peer's word
// alone takes a connection off the list.
type history struct {
	mu      sync.Mutex
	events  []string
	mayLand map[transport.ConnID]bool
	allowed map[transport.ConnID]chan struct{} // closed: the peer may leave it
	over    chan struct{}                      // closed: it may leave all
}

func (h *history) note(format string, args ...any) {
	h.events = append(h.events, fmt.Sprintf(format, args...))
}

func (h *history) gate(conn transport.ConnID) chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.allowed[conn] == nil {
		h.allowed[conn] = make(chan struct{})
	}
	return h.allowed[conn]
}

// given says that the engine has let a write begin at the place.
func (h *history) given(t *testing.T, value byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.note("write of %d was taken", value)
	for conn := range h.mayLand {
		t.Errorf("the place was given out while a write may land there by connection %d: %q", conn, h.events)
	}
}

// gated is a transport that leaves a connection when the history lets it, and whose
// connections may take their time to end.
type gated struct {
	*faked
	h    *history
	hold atomic.Bool                   // new connections hold their writes
	slow atomic.Pointer[chan struct{}] // not nil: connections that are closed end after it
}

func (g *gated) Offers() []transport.Endpoint { return g.Transport.Offers() }

func (g *gated) Leave(ctx context.Context, from transport.Origin, conn transport.ConnID) error {
	select {
	case <-g.h.gate(conn):
	case <-g.h.over:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := g.Transport.Leave(ctx, from, conn)
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	delete(g.h.mayLand, conn)
	g.h.note("connection %d was left", conn)
	return err
}

// LeaveAll waits, too: the end of a session is no fence.
func (g *gated) LeaveAll(ctx context.Context, session transport.SessionID) error {
	select {
	case <-g.h.over:
		return g.Transport.LeaveAll(ctx, session)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gated) Dial(ctx context.Context, d transport.Dial) (transport.Conn, error) {
	c, err := g.Transport.Dial(ctx, d)
	if err != nil {
		return nil, err
	}
	if g.hold.Load() {
		c.(*fake.Conn).HoldWrites()
	}
	return &gatedConn{c, g}, nil
}

type gatedConn struct {
	transport.Conn
	g *gated
}

func (c *gatedConn) Close(cause error) {
	if slow := c.g.slow.Load(); slow != nil {
		slowConn{c.Conn, *slow}.Close(cause)
	} else {
		c.Conn.Close(cause)
	}
}

// A place that a write may still land at is not given out, whatever runs between any two
// steps of the engine: each run pauses whoever releases the engine's mutex for the n-th
// time, while the peer is closed and opened again.
func TestPauses(t *testing.T) {
	checkLeaks(t)
	for n := int64(1); ; n++ {
		if last := pauseAt(t, n); n > last || t.Failed() {
			t.Logf("paused at %d of %d releases", n-1, last)
			return
		}
	}
}

// pauseAt says how often the mutex was released.
func pauseAt(t *testing.T, n int64) int64 {
	const pause = 40 * time.Millisecond // longer than all else between; a shorter one finds less and fails nothing
	const size = 128 << 10              // a slice for each of two connections
	h := &history{mayLand: map[transport.ConnID]bool{}, allowed: map[transport.ConnID]chan struct{}{}, over: make(chan struct{})}
	net := newNetwork()
	var ends []*gated
	fakes := net.transport(fake.Options{Name: "fake", Lanes: 2, MaxBytes: size / 2, MaxPosted: 1}).(*transport.Factory)
	build := &transport.Factory{Make: func(env transport.Env) (transport.Transport, error) {
		x, err := fakes.Make(env)
		g := &gated{faked: x.(*faked), h: h}
		ends = append(ends, g)
		return g, err
	}}
	list := []TransportFactory{build}
	p := newPair(t, size, Options{Transports: list}, Options{Transports: list})
	client := ends[1]
	p.client.closeTime = 5 * time.Millisecond
	p.warm(t)
	client.hold.Store(true)
	for _, c := range client.Conns() {
		c.HoldWrites()
	}
	slow := make(chan struct{})
	client.slow.Store(&slow)
	var releases atomic.Int64
	hook := func() {
		if releases.Add(1) == n {
			time.Sleep(pause)
		}
	}
	p.client.mu.released.Store(&hook)

	ctx := testContext(t)
	write := func(value byte) (*Batch, error) {
		copy(p.mine.Bytes(), bytes.Repeat([]byte{value}, size))
		b, err := p.peer.Submit(ctx, []Op{WriteOp(p.mine.All(), p.to.At(0))}, SubmitOptions{})
		if err == nil {
			h.given(t, value)
		}
		return b, err
	}
	b, err := write(1)
	must(t, err)
	var conns []*fake.Conn // that the write went out on
	another := func() {
		eventually(t, fmt.Sprintf("the write is on the wire of %d connections", len(conns)+1), func() bool {
			all := client.Conns()
			at := slices.IndexFunc(all, func(c *fake.Conn) bool { return !slices.Contains(conns, c) && c.Held() > 0 })
			if at >= 0 {
				conns = append(conns, all[at])
			}
			return at >= 0
		})
		h.mu.Lock()
		defer h.mu.Unlock()
		id := conns[len(conns)-1].ID()
		h.mayLand[id] = true
		h.note("the write is on the wire of connection %d", id)
	}
	another()
	// What was lost waits for the peer. The rest goes out on the other lane.
	conns[0].Kill(errors.New("the cable was pulled"))
	another()
	client.hold.Store(false)
	if n%2 == 0 { // the other one ends after Close has stopped to wait for it, or before
		close(slow)
	}
	ok(t, p.peer.Close())
	if n%2 != 0 {
		close(slow)
	}
	p.open(t, ctx)
	<-b.Done()
	if err := b.Err(); !errors.Is(err, ErrUnsafeBuffer) {
		t.Errorf("the batch ended with %v", err)
	}
	h.mu.Lock()
	h.note("write of 1 was given up")
	h.mu.Unlock()
	// Each connection alone keeps the place from being used.
	for _, left := range [][]*fake.Conn{nil, conns[1:], conns[:1]} {
		for _, c := range left {
			close(h.gate(c.ID()))
			eventually(t, "the connection was left", func() bool {
				h.mu.Lock()
				defer h.mu.Unlock()
				return !h.mayLand[c.ID()]
			})
		}
		b, err := write(2)
		for len(left) == 1 && left[0] == conns[0] && errors.Is(err, ErrQuarantined) { // the answer is on its way
			time.Sleep(time.Millisecond)
			b, err = write(2)
		}
		if err == nil {
			ok(t, b.Wait(ctx))
			break
		}
		if !errors.Is(err, ErrQuarantined) {
			t.Error(err)
		}
	}
	p.client.mu.released.Store(nil)
	b, err = write(3) // the same place again
	if err != nil || b.Wait(ctx) != nil {
		t.Fatal(err, b.Err())
	}
	for _, c := range conns {
		if landed := c.ReleaseWrites(); landed > 0 {
			t.Errorf("%d late writes landed by connection %d: %q", landed, c.ID(), h.events)
		}
	}
	if !bytes.Equal(p.theirs.Bytes(), bytes.Repeat([]byte{3}, size)) {
		t.Errorf("the place does not hold what was written last: %q", h.events)
	}
	close(h.over)
	ok(t, errors.Join(p.peer.Close(), p.client.Close(), p.server.Close()))
	return releases.Load()
}
