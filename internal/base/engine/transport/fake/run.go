package fake

import (
	"errors"
	"time"

	"github.com/topoctl/topoctl/internal/base/engine/transport"
)

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
