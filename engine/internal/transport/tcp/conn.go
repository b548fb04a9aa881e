package tcp

import (
	"sync/atomic"

	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// States of a place for a request.
const (
	placeFree = iota
	placeQueued
	placeSending // the kernel may have a part of it
	placeSent
)

// place holds a request from Post to its completion.
type place struct {
	req   *transport.Request
	state uint8
	turn  uint16 // counts the requests that were here
}

// conn is the active end of a connection.
type conn struct {
	link
	t        *Transport
	id       transport.ConnID
	events   transport.Events
	limits   transport.Caps
	sums     bool
	describe string
	finished chan struct{}

	// Guarded by mu.
	places   []place
	free     []uint16
	queue    ring[uint16]
	waiting  int64 // bytes of the frames that are queued
	byUs     bool  // Close was called
	inFlight atomic.Int32

	// Of whoever has the turn.
	reading uint16 // place of the READ whose answer is coming
	poller  poller
	done    []transport.Completion
}

func newConn(t *Transport, d transport.Dial, o grant) *conn {
	c := &conn{
		t:        t,
		id:       d.Conn,
		events:   d.Events,
		limits:   transport.Caps{MaxSpans: int(o.spans), MaxBytes: int64(o.bytes), MaxPosted: int(o.posted)},
		sums:     o.features&featureSum != 0,
		finished: make(chan struct{}),
		places:   make([]place, o.posted),
		free:     make([]uint16, o.posted),
		queue:    makeRing[uint16](int(o.posted)),
		done:     make([]transport.Completion, 0, o.posted),
	}
	c.out.guard, c.in.guard = o.guards()
	c.in.tagged, c.out.tagged = o.level == transport.Payload, o.level == transport.Payload
	for i := range c.free {
		c.free[i] = uint16(len(c.free) - 1 - i)
	}
	return c
}

// ID names the connection.
func (c *conn) ID() transport.ConnID { return c.id }

// Limits are what both ends take.
func (c *conn) Limits() transport.Caps { return c.limits }

// Describe gives addresses, congestion control and checksum.
func (c *conn) Describe() string { return c.describe }

// Post queues requests, and sends them where nobody else is sending and they are
// few.
func (c *conn) Post(requests []*transport.Request, done []transport.Completion) (int, []transport.Completion) {
	taken := 0
	c.mu.Lock()
	for _, req := range requests {
		if c.closed {
			done = append(done, transport.Completion{Request: req, Err: closedError(c.cause)})
			taken++
			continue
		}
		if err := c.limits.Refuse(req); err != nil {
			done = append(done, transport.Completion{Request: req, Err: pkgerr.Errorf("tcp", "%w", err)})
			taken++
			continue
		}
		if len(c.free) == 0 {
			break
		}
		c.enqueue(req)
		taken++
	}
	c.flush(c.waiting)
	return taken, done
}

// enqueue takes a request; there is a place. mu is held.
func (c *conn) enqueue(req *transport.Request) {
	i := c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	p := &c.places[i]
	p.req, p.state, p.turn = req, placeQueued, p.turn+1
	c.queue.push(i)
	c.waiting += frameBytes(req)
	c.inFlight.Add(1)
}

// frameBytes is about what a request takes in the stream to the peer.
func frameBytes(req *transport.Request) int64 {
	n := int64(headBytes + descBytes*len(req.Spans))
	if req.Op == transport.Write {
		n += req.Bytes
	}
	return n
}

func (c *conn) queued() bool { return c.queue.len() > 0 }

// next is the next request to be sent.
func (c *conn) next() (i uint16, req *transport.Request, id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queue.len() == 0 || c.closed {
		return 0, nil, 0
	}
	i = c.queue.pop()
	p := &c.places[i]
	p.state = placeSending
	c.waiting -= frameBytes(p.req)
	return i, p.req, uint32(p.turn)<<16 | uint32(i)
}

func (c *conn) fill(o *outbox) {
	if o.open {
		o.more()
	}
	for o.fits(headBytes + c.limits.MaxSpans*descBytes) {
		i, req, id := c.next()
		if req == nil {
			return
		}
		h := header{kind: frameRead, count: uint16(len(req.Spans)), id: id, bytes: uint64(req.Bytes)}
		if req.Op == transport.Write {
			h.kind = frameWrite
		}
		sum := req.Check && c.sums && req.Bytes > 0
		if sum {
			h.flags = flagSum
		}
		b := o.header(headBytes + descBytes*len(req.Spans))
		h.put(b)
		for k := range req.Spans {
			s := &req.Spans[k]
			desc{region: s.Remote.ID, offset: uint64(s.RemoteOffset), length: uint32(s.Bytes)}.put(b[headBytes+k*descBytes:])
		}
		o.guard.seal(b)
		if req.Op == transport.Read || req.Bytes == 0 {
			o.end(uint32(i))
			continue
		}
		o.payload(req.Spans, sum, uint32(i))
	}
}

func (c *conn) sent(token uint32) { c.places[token].state = placeSent }

func (c *conn) busy() bool { return c.inFlight.Load() > 0 }

func (c *conn) headerSize(h *header) (int, error) {
	if h.kind != frameAck && h.kind != frameData {
		return 0, violation("frame", "frame of type %d in an answer", h.kind)
	}
	return headBytes, nil
}

func (c *conn) begin(h *header, _ []byte) error {
	i, req, err := c.answered(h.id)
	if err != nil {
		return err
	}
	if h.kind == frameAck {
		reason, known := statusError(h.count, h.detail)
		if !known || h.bytes != 0 || h.flags != 0 || reason == nil && req.Op == transport.Read {
			return violation("answer", "answer of status %d, flags %#x to op %d", h.count, h.flags, req.Op)
		}
		c.finish(i, reason)
		return nil
	}
	sum := h.flags&flagSum != 0
	if req.Op != transport.Read || h.bytes != uint64(req.Bytes) || h.flags&^flagSum != 0 ||
		sum != (req.Check && c.sums && req.Bytes > 0) || h.count != 0 {
		return violation("answer", "answer of %d bytes, flags %#x to op %d of %d bytes", h.bytes, h.flags, req.Op, req.Bytes)
	}
	c.reading = i
	trail := 0
	if sum {
		trail = sumBytes
	}
	if c.in.tagged {
		for i := range req.Spans {
			trail += tagBytes * pieces(req.Spans[i].Bytes)
		}
	}
	c.in.expect(req.Bytes, req.Spans, false, trail)
	return nil
}

// answered finds the request that an answer is for. It must have left completely:
// whoever answers earlier makes us free memory that is still being sent.
func (c *conn) answered(id uint32) (uint16, *transport.Request, error) {
	i, turn := uint16(id), uint16(id>>16)
	if int(i) >= len(c.places) {
		return 0, nil, violation("answer", "answer to request %#x, which was never made", id)
	}
	c.mu.Lock()
	p := c.places[i]
	c.mu.Unlock()
	if p.state == placeSending {
		// The peer can be faster than the return of the system call.
		c.io.Lock()
		c.mu.Lock()
		p = c.places[i]
		c.mu.Unlock()
		c.io.Unlock()
	}
	if p.state != placeSent || p.turn != turn {
		return 0, nil, violation("answer", "answer to request %#x, which is not waiting for one", id)
	}
	return i, p.req, nil
}

func (c *conn) complete(sumOK bool) {
	c.checked(c.t, sumOK)
	var err error
	if !sumOK {
		err = pkgerr.Errorf("tcp", "%w", transport.ErrChecksum)
	}
	c.finish(c.reading, err)
}

// finish ends a request.
func (c *conn) finish(i uint16, err error) {
	c.mu.Lock()
	p := &c.places[i]
	req := p.req
	p.req, p.state = nil, placeFree
	c.free = append(c.free, i)
	c.mu.Unlock()
	c.inFlight.Add(-1)
	c.done = append(c.done, transport.Completion{Request: req, Err: err})
}

func (c *conn) settle() {
	if len(c.done) == 0 {
		return
	}
	c.poller.gaveUp()
	c.events.Done(c, c.done)
	clear(c.done)
	c.done = c.done[:0]
}

// Close ends the connection.
func (c *conn) Close(cause error) {
	c.mu.Lock()
	c.byUs = c.byUs || !c.closed
	c.mu.Unlock()
	c.fail(cause)
}

// live is the connection's life, in a goroutine of its own.
func (c *conn) live() {
	defer close(c.finished)
	c.run()
	cause := c.abandon()
	c.settle()
	c.t.forget(c, cause)
	c.events.Lost(c, cause)
}

// abandon ends all that is still posted, and says what Lost tells.
func (c *conn) abandon() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.places {
		p := &c.places[i]
		if p.state == placeFree {
			continue
		}
		c.done = append(c.done, transport.Completion{
			Request: p.req,
			Err:     closedError(c.cause),
			MayLand: p.req.Op == transport.Write && p.state != placeQueued,
		})
		p.req, p.state = nil, placeFree
	}
	if c.byUs {
		return nil
	}
	return pkgerr.Errorf("tcp", "%s: %w", c.describe, c.cause)
}

// closedError is what ends requests on a connection that ended.
func closedError(cause error) error {
	if cause == nil {
		return pkgerr.Errorf("tcp", "%w", transport.ErrClosed)
	}
	return pkgerr.Errorf("tcp", "%w: %w", transport.ErrClosed, cause)
}
