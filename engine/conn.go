package engine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/sched"
)

const (
	dialTimeout  = 1500 * time.Millisecond
	leaveTimeout = 2 * time.Second
)

// carrier is a transport with what the engine needs to know of it.
type carrier struct {
	t    transport.Transport
	name string
	caps transport.Caps
	data transport.DataServer // nil: it has its own way to get connections
	some transport.Selective  // nil: it reaches every region
	only transport.Bounded    // nil: it connects to every address
	// ports is not nil where it has ports of its own.
	ports transport.Ported
}

// reach says which carriers reach a peer's region, by bit.
func (e *Engine) reach(r *transport.RemoteRegion) uint32 {
	bits := uint32(0)
	for i, c := range e.carriers {
		if c.some == nil || c.some.Reaches(r) {
			bits |= 1 << i
		}
	}
	return bits
}

// lane is one pair of ports to one peer. It does not change, but for what is
// under the engine's mutex.
type lane struct {
	laneKey
	id   sched.LaneID
	peer *Peer
	rtt  time.Duration

	// Under the engine's mutex:
	gone      bool
	suspended bool
	described string // its last connection
}

// laneKey tells lanes of one peer apart.
type laneKey struct {
	carrier *carrier
	laneEnds
	side, other sched.SideID // of this host and of the peer
}

// laneEnds are what a lane is between, as it is dialled.
type laneEnds struct {
	name      string
	local     netip.Addr
	iface     string
	localPort topo.ID
	remote    transport.Endpoint // no address: it cannot be dialled now
}

// conn is the engine's side of one connection of a lane.
type conn struct {
	id     sched.ConnID
	lane   *lane
	ctx    context.Context // of the dial
	cancel context.CancelCauseFunc

	// t is there from Connected on, and so is poller, unless it cannot be polled.
	t      transport.Conn
	poller transport.Poller

	// Under the engine's mutex:
	outstanding int  // slices that were given to it and have not come back
	connected   bool // the core knows
	killed      error
	lost        bool
	lostErr     error
}

func (e *Engine) newConn(id sched.ConnID, l *lane) *conn {
	c := &conn{id: id, lane: l}
	c.ctx, c.cancel = context.WithCancelCause(e.ctx)
	return c
}

// connect dials in a goroutine of its own.
func (e *Engine) connect(a *sched.Action) {
	e.mu.Lock()
	c := e.conns[a.Conn]
	e.mu.Unlock()
	if !e.start(func() { e.dial(c) }) {
		e.tell(sched.Event{Kind: sched.ConnectFailed, Lane: c.lane.id, Conn: c.id, Err: ErrClosed})
	}
}

func (e *Engine) dial(c *conn) {
	l := c.lane
	ctx, cancel := context.WithTimeoutCause(c.ctx, dialTimeout, fmt.Errorf("no connection within %v", dialTimeout))
	defer cancel()
	var asked atomic.Bool // transports ask after Dial, too
	var localPort topo.ID
	if l.carrier.ports != nil {
		localPort = l.localPort
	}
	t, err := l.carrier.t.Dial(ctx, transport.Dial{
		Session: l.peer.session.ID(), Conn: transport.ConnID(c.id),
		Local: l.local, Interface: l.iface, LocalPort: localPort, Remote: l.remote,
		Exchange: func(ctx context.Context, request []byte) ([]byte, error) {
			asked.Store(true)
			return l.peer.callEngine(ctx, methodAccept, acceptBody(l.carrier.name, transport.ConnID(c.id), request))
		},
		Events: transport.Events{Done: c.completed, Lost: c.wasLost},
	})
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", err, cause)
		}
		e.tell(sched.Event{Kind: sched.ConnectFailed, Lane: l.id, Conn: c.id, Err: err})
		if asked.Load() {
			e.forget(c)
		}
		return
	}
	limits := t.Limits()
	description := t.Describe()
	e.mu.Lock()
	c.t = t
	c.poller, _ = t.(transport.Poller)
	killed := c.killed
	if killed == nil {
		l.described = description
	}
	e.mu.Unlock()
	if killed != nil { // while it was dialled
		t.Close(killed)
		e.tell(sched.Event{Kind: sched.ConnectFailed, Lane: l.id, Conn: c.id, Err: killed})
		e.forget(c)
		return
	}
	e.tell(sched.Event{
		Kind: sched.Connected, Lane: l.id, Conn: c.id,
		Limits: sched.Limits{MaxSpans: limits.MaxSpans, MaxBytes: limits.MaxBytes, MaxPosted: limits.MaxPosted, Parallel: limits.Parallel},
	})
}

// forget has the peer give up waiting for a connection that will not come. It is
// a courtesy: the peer's transport does not wait for ever.
func (e *Engine) forget(c *conn) {
	ctx, cancel := context.WithTimeout(e.ctx, leaveTimeout)
	defer cancel()
	p := c.lane.peer
	l := newLeaving(p.session, c.lane.carrier.name, transport.ConnID(c.id))
	_, _ = p.session.Call(ctx, methodLeave, l.body())
}

// kill closes a connection, or gives its dial up.
func (e *Engine) kill(a *sched.Action) {
	e.mu.Lock()
	c := e.conns[a.Conn]
	if c == nil {
		e.mu.Unlock()
		return
	}
	c.killed = a.Err
	if c.killed == nil {
		c.killed = ErrClosed
	}
	t := c.t
	e.mu.Unlock()
	c.cancel(c.killed)
	if t != nil {
		t.Close(a.Err)
	}
}
