package fake

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

// Conn is an active end, with the switches that tests have beside the contract.
type Conn struct {
	transport *Transport
	id        transport.ConnID
	local     string
	port      topo.ID // of a transport that has ports
	remote    string
	events    transport.Events
	peer      *passive
	wake      chan struct{} // holds one token

	mu          sync.Mutex
	queue       []posted
	outstanding int
	hold        bool // writes stay on the wire
	stalled     bool // nothing moves
	held        []onWire
	released    []onWire // to land now
	closed      bool
	cause       error // of completions
	lost        error // for Lost
	over        bool  // Lost is next, or was

	free time.Time // of the modelled wire; run's own
}

type posted struct {
	request *transport.Request
	at      time.Time
}

// onWire is a WRITE that has left, with the bytes as they were then. Of the
// request only the pointer counts: its poster has it back when the connection is
// over.
type onWire struct {
	request *transport.Request
	spans   []transport.Span
	bytes   []byte
}

var _ transport.Conn = (*Conn)(nil)

func newConn(t *Transport, d transport.Dial) *Conn {
	return &Conn{
		transport: t, id: d.Conn, local: t.address, port: d.LocalPort, remote: d.Remote.Address, events: d.Events,
		wake: make(chan struct{}, 1),
	}
}

// ID is the connection's.
func (c *Conn) ID() transport.ConnID { return c.id }

// Limits are those of both transports.
func (c *Conn) Limits() transport.Caps {
	a, b := c.transport.Caps(), c.peer.transport.Caps()
	a.MaxSpans = min(a.MaxSpans, b.MaxSpans)
	a.MaxBytes = min(a.MaxBytes, b.MaxBytes)
	a.MaxPosted = min(a.MaxPosted, b.MaxPosted)
	return a
}

// Describe says that it is no wire.
func (c *Conn) Describe() string {
	local := c.local
	if c.port != "" {
		local += "#" + string(c.port)
	}
	return fmt.Sprintf("%s: %s to %s in one process", c.transport.options.Name, local, c.remote)
}

// Post queues what fits.
func (c *Conn) Post(requests []*transport.Request, done []transport.Completion) (int, []transport.Completion) {
	limits := c.Limits()
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, done
	}
	taken := 0
	for _, r := range requests {
		if c.outstanding >= limits.MaxPosted {
			break
		}
		taken++
		if err := limits.Refuse(r); err != nil {
			done = append(done, transport.Completion{Request: r, Err: c.transport.errorf("%w", err)})
			continue
		}
		c.outstanding++
		c.queue = append(c.queue, posted{r, now})
	}
	c.signal()
	return taken, done
}

func (c *Conn) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run is the connection's goroutine: it moves the bytes and makes all reports.
func (c *Conn) run() {
	defer c.transport.forget(c)
	for {
		released, next, closed := c.next()
		if closed {
			break
		}
		var done []transport.Completion
		for _, w := range released {
			done = c.complete(done, w.request, c.peer.serve(transport.Write, w.spans, w.bytes))
		}
		if next.request != nil {
			if !c.pace(next) {
				break // it is still in the queue
			}
			done = c.carry(done)
		}
		c.report(done)
	}
	c.finish()
}

// next waits for work or the end.
func (c *Conn) next() (released []onWire, next posted, closed bool) {
	for {
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return nil, posted{}, true
		}
		if !c.stalled {
			released, c.released = c.released, nil
			if len(c.queue) > 0 {
				next = c.queue[0]
			}
		}
		c.mu.Unlock()
		if len(released) > 0 || next.request != nil {
			return released, next, false
		}
		<-c.wake
	}
}

// pace waits until the modelled wire has carried the request; false when the
// connection ended meanwhile.
func (c *Conn) pace(p posted) bool {
	o := c.transport.options
	if o.BytesPerSec == 0 && o.Latency == 0 {
		return true
	}
	if c.free.Before(p.at) {
		c.free = p.at
	}
	if o.BytesPerSec > 0 {
		c.free = c.free.Add(time.Duration(float64(p.request.Bytes) / float64(o.BytesPerSec) * 1e9))
	}
	timer := time.NewTimer(time.Until(c.free.Add(o.Latency)))
	defer timer.Stop()
	for {
		c.mu.Lock()
		closed := c.closed
		c.mu.Unlock()
		if closed {
			return false
		}
		select {
		case <-timer.C:
			return true
		case <-c.wake:
		}
	}
}

// carry moves the first request of the queue and, where no wire is modelled, all
// that wait behind it, up to a batch.
func (c *Conn) carry(done []transport.Completion) []transport.Completion {
	const batch = 32
	c.mu.Lock()
	n := 1
	if o := c.transport.options; o.BytesPerSec == 0 && o.Latency == 0 {
		n = min(len(c.queue), batch)
	}
	work := append([]posted(nil), c.queue[:n]...)
	c.queue = append(c.queue[:0], c.queue[n:]...)
	c.mu.Unlock()
	for _, p := range work {
		if p.request.Op == transport.Write && c.keep(p.request) {
			continue
		}
		done = c.complete(done, p.request, c.peer.serve(p.request.Op, p.request.Spans, nil))
	}
	return done
}

// keep puts a WRITE on the wire where writes are held.
func (c *Conn) keep(r *transport.Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hold {
		return false
	}
	w := onWire{request: r, spans: append([]transport.Span(nil), r.Spans...)}
	for _, s := range r.Spans {
		w.bytes = append(w.bytes, s.Local.Bytes(s.LocalOffset, s.Bytes)...)
	}
	c.held = append(c.held, w)
	return true
}

// complete appends a request's end. Where the peer has left, its end is that of
// the connection.
func (c *Conn) complete(done []transport.Completion, r *transport.Request, err error) []transport.Completion {
	if errors.Is(err, errLeft) {
		c.die(errLeft)
		c.mu.Lock()
		err = c.cause
		c.mu.Unlock()
	}
	return append(done, transport.Completion{Request: r, Err: err})
}

func (c *Conn) report(done []transport.Completion) {
	if len(done) == 0 {
		return
	}
	c.mu.Lock()
	c.outstanding -= len(done)
	c.mu.Unlock()
	c.events.Done(c, done)
}

var errLeft = errors.New("the peer has left the connection")

// passive is the end of a connection that answers. Its lock is held while bytes
// move, so that leave returns only when none do.
type passive struct {
	transport *Transport
	key       transport.ConnKey
	conn      *Conn

	mu   sync.Mutex
	left bool
}

// serve checks spans against the table of regions and moves their bytes. sent, if
// not nil, is what was in the poster's memory when the request went out.
func (p *passive) serve(op transport.Op, spans []transport.Span, sent []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left {
		return errLeft
	}
	t := p.transport
	t.requests.Add(1)
	want := memory.PeerRead
	if op == transport.Write {
		want = memory.PeerWrite
	}
	pinned := make([]*memory.Region, 0, len(spans))
	defer func() {
		for _, region := range pinned {
			region.Unpin()
		}
	}()
	for _, s := range spans {
		region, err := t.regions.Pin(s.Remote.ID, uint64(s.RemoteOffset), uint64(s.Bytes), want)
		if err != nil {
			t.refused.Add(err)
			return fmt.Errorf("%s: %q: %w: %w", t.options.Name, t.address, transport.ErrRefused, err)
		}
		pinned = append(pinned, region)
	}
	for i, s := range spans {
		there := pinned[i].Bytes(s.RemoteOffset, s.Bytes)
		switch {
		case op == transport.Read:
			t.readBytes.Add(int64(copy(s.Local.Bytes(s.LocalOffset, s.Bytes), there)))
		case sent != nil:
			t.writtenBytes.Add(int64(copy(there, sent)))
			sent = sent[s.Bytes:]
		default:
			t.writtenBytes.Add(int64(copy(there, s.Local.Bytes(s.LocalOffset, s.Bytes))))
		}
	}
	return nil
}

// Leave ends it: nothing lands any more when this returns.
func (p *passive) Leave(context.Context) error {
	p.mu.Lock()
	p.left = true
	p.mu.Unlock()
	p.conn.die(fmt.Errorf("%s: connection %d: %w", p.transport.options.Name, p.conn.id, errLeft))
	p.unbook()
	return nil
}

// unbook takes it out of its transport's books, when nothing is on the wire.
func (p *passive) unbook() {
	p.transport.mu.Lock()
	defer p.transport.mu.Unlock()
	p.transport.ends.Close(p.key)
}

// HoldWrites keeps WRITEs on the wire from now on: they neither land nor complete
// before ReleaseWrites. Where the connection ends first, they complete with an
// error and MayLand, and may land all the same, until the peer has left.
func (c *Conn) HoldWrites() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hold = true
}

// Held is how many WRITEs are on the wire because of HoldWrites.
func (c *Conn) Held() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.held)
}

// ReleaseWrites lets what was held land. After the connection is over that
// happens before it returns; it says how many landed then.
func (c *Conn) ReleaseWrites() (landed int) {
	c.mu.Lock()
	c.hold = false
	held := c.held
	c.held = nil
	if !c.over {
		c.released = append(c.released, held...)
		c.signal()
		c.mu.Unlock()
		return 0
	}
	c.mu.Unlock()
	for _, w := range held {
		if c.peer.serve(transport.Write, w.spans, w.bytes) == nil {
			landed++
		}
	}
	c.peer.unbook()
	return landed
}

// Stall makes everything stand still, or go on: posts are taken, nothing happens.
func (c *Conn) Stall(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stalled = on
	c.signal()
}

// Close ends the connection.
func (c *Conn) Close(cause error) {
	err := transport.ErrClosed
	if cause != nil {
		err = fmt.Errorf("%w: %w", transport.ErrClosed, cause)
	}
	c.end(err, nil)
}

// Kill ends the connection as a network that failed would do.
func (c *Conn) Kill(err error) { c.die(err) }

func (c *Conn) die(err error) { c.end(fmt.Errorf("%w: %w", transport.ErrClosed, err), err) }

func (c *Conn) end(cause, lost error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed, c.cause, c.lost = true, cause, lost
	}
	c.signal()
}

// finish completes what is left and says that the connection is over.
func (c *Conn) finish() {
	c.mu.Lock()
	var done []transport.Completion
	for _, p := range c.queue {
		done = append(done, transport.Completion{Request: p.request, Err: c.cause})
	}
	// What was released and has not landed is on the wire like what is held.
	c.held = append(c.held, c.released...)
	for _, w := range c.held {
		done = append(done, transport.Completion{Request: w.request, Err: c.cause, MayLand: true})
	}
	c.queue, c.released, c.over = nil, nil, true
	onWire, lost := len(c.held), c.lost
	c.mu.Unlock()
	if onWire == 0 {
		c.peer.unbook()
	}
	c.report(done)
	c.events.Lost(c, lost)
}
