package stage

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Conn is the active end of a connection with staging. As long as nothing was staged
// on it, requests and completions pass through.
type Conn struct {
	t      *Transport
	inner  transport.Conn
	limits transport.Caps

	direct atomic.Bool // completions pass through to the owner at this moment
	staged atomic.Bool // they do not any more

	mu      sync.Mutex
	pending []*transport.Request // to be posted: parts, and others behind them
	posting bool                 // somebody does it
	freed   uint64               // counts what may have freed places
	queue   []*parent            // that are not cut up
	open    int                  // parents without a completion
	waiting *part                // for a buffer
	copying int                  // parts that are being copied
	free    []*part

	reports transport.Reports

	gone    chan struct{} // closed when the inner connection is lost
	dead    bool          // it is
	lostErr error
	told    bool
	cause   error // of Close
}

// parent is a request that is cut up.
type parent struct {
	req     *transport.Request
	span    int // where the next part begins
	offset  int64
	cut     bool // no part is left
	parts   int  // under way
	err     error
	mayLand bool
}

// part is a piece of a parent.
type part struct {
	c      *Conn
	parent *parent
	spans  []transport.Span // as the parent has them
	req    transport.Request
	bounce Bounce
	copied func(error) // part.landed, bound once
}

// ID is the connection's.
func (c *Conn) ID() transport.ConnID { return c.inner.ID() }

// Limits are the inner connection's.
func (c *Conn) Limits() transport.Caps { return c.limits }

// Unwrap gives the inner connection.
func (c *Conn) Unwrap() transport.Conn { return c.inner }

// Describe says what the connection is made of.
func (c *Conn) Describe() string {
	s := c.inner.Describe()
	if c.staged.Load() {
		s += ", device memory staged"
	}
	return s
}

// Post takes requests in order until one does not fit.
func (c *Conn) Post(requests []*transport.Request, done []transport.Completion) (int, []transport.Completion) {
	if !c.staged.Load() && !c.concerned(requests) {
		return c.inner.Post(requests, done)
	}
	c.staged.Store(true)
	devices := c.t.regions.HasDevices()
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := 0
	for _, r := range requests {
		if c.dead || c.cause != nil || c.open+len(c.pending) >= c.limits.MaxPosted {
			break
		}
		taken++
		switch {
		case !c.t.concerns(r, devices):
			c.pending = append(c.pending, r)
		default:
			if err := c.limits.Refuse(r); err != nil { // it would be copied from beside a region
				c.reports.Add(transport.Completion{Request: r, Err: pkgerr.Errorf("stage", "%w", err)})
				continue
			}
			c.open++
			c.queue = append(c.queue, &parent{req: r})
		}
	}
	c.cutUp()
	c.flush()
	if !c.direct.Load() {
		done = c.reports.MoveTo(done)
	}
	if c.dead && !c.told && !c.reports.Delivering() {
		go c.bury() // the connection was lost while we posted; Lost is not for Post to call
	}
	return taken, done
}

// concerned says whether any request must be cut.
func (c *Conn) concerned(requests []*transport.Request) bool {
	devices := c.t.regions.HasDevices()
	for _, r := range requests {
		if (devices || r.Bytes > memory.PieceBytes) && c.t.concerns(r, devices) {
			return true
		}
	}
	return false
}

// cutUp cuts parts off the parents in their order, as long as there are buffers. mu
// is held.
func (c *Conn) cutUp() {
	for len(c.queue) > 0 && c.waiting == nil {
		p := c.queue[0]
		if c.dead && p.err == nil {
			p.err = c.closedError()
		}
		if p.err != nil {
			p.cut = true // what is left of it would be in vain
		}
		if p.cut {
			c.queue[0] = nil
			c.queue = c.queue[1:]
			if p.parts == 0 {
				c.finish(p)
			}
			continue
		}
		x := c.next(p)
		p.parts++
		_, device := Needs(x.spans)
		if device == nil {
			x.begin(nil)
			continue
		}
		pool, err := c.t.pool(device)
		if err != nil {
			c.end(x, err, false)
			continue
		}
		b := pool.Get()
		if b == nil {
			c.waiting = x
			go func() { c.ready(pool.Await(c.gone)) }()
			return
		}
		x.begin(b)
	}
}

// next cuts a part off a parent. mu is held.
func (c *Conn) next(p *parent) *part {
	var x *part
	if n := len(c.free); n > 0 {
		x, c.free = c.free[n-1], c.free[:n-1]
	} else {
		x = &part{c: c}
		x.copied = x.landed
	}
	x.parent = p
	left := int64(memory.PieceBytes)
	bytes := int64(0)
	for p.span < len(p.req.Spans) {
		s := p.req.Spans[p.span]
		n := min(s.Bytes-p.offset, left-bytes)
		if n == 0 && s.Bytes > p.offset {
			break
		}
		s.LocalOffset += p.offset
		s.RemoteOffset += p.offset
		s.Bytes = n
		x.spans = append(x.spans, s)
		bytes += n
		if p.offset += n; p.offset == p.req.Spans[p.span].Bytes {
			p.span, p.offset = p.span+1, 0
		}
	}
	p.cut = p.span == len(p.req.Spans)
	x.req = transport.Request{Op: p.req.Op, Bytes: bytes, Check: p.req.Check, Tag: x}
	return x
}

// begin starts a part with its buffer, nil where it needs none. mu is held.
func (x *part) begin(b *memory.Buffer) {
	c := x.c
	if b == nil {
		x.req.Spans = x.spans
	} else {
		x.bounce.Lay(x.spans, b)
		x.req.Spans = x.bounce.Spans
	}
	if x.req.Op == transport.Write && x.bounce.Staged() {
		c.copying++
		x.bounce.Copy(true, x.copied)
		return
	}
	c.pending = append(c.pending, &x.req)
}

// ready brings the buffer that a part waited for, nil where the connection was lost before.
func (c *Conn) ready(b *memory.Buffer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.waiting
	c.waiting = nil
	if b == nil || c.dead || x.parent.err != nil {
		if b != nil {
			b.Release()
		}
		c.end(x, c.closedError(), false)
	} else {
		x.begin(b)
	}
	c.goOn()
}

// flush posts what waits, as far as the inner connection takes it. One goroutine at a
// time does it; mu is held, but not while it posts.
func (c *Conn) flush() {
	if c.posting {
		return
	}
	c.posting = true
	for len(c.pending) > 0 {
		batch, freed := c.pending, c.freed
		if c.dead {
			c.pending = nil
			c.refuse(batch)
			c.cutUp()
			continue
		}
		c.pending = nil
		c.mu.Unlock()
		n, done := c.inner.Post(batch, nil)
		c.mu.Lock()
		c.pending = append(batch[n:len(batch):len(batch)], c.pending...)
		c.take(done)
		c.cutUp() // what was done at once gave its buffers back
		if n < len(batch) && len(done) == 0 && freed == c.freed && !c.dead {
			break
		}
	}
	c.posting = false
}

// refuse ends requests that the connection did not live to take. mu is held.
func (c *Conn) refuse(list []*transport.Request) {
	for _, r := range list {
		if x, ok := r.Tag.(*part); ok {
			c.end(x, c.closedError(), false)
		} else {
			c.reports.Add(transport.Completion{Request: r, Err: c.closedError()})
		}
	}
}

// ended takes the inner connection's completions.
func (c *Conn) ended(_ transport.Conn, list []transport.Completion) {
	if !c.staged.Load() {
		// Whoever delivers sees this, and leaves it to us; or we see that there is
		// staging.
		c.direct.Store(true)
		if !c.staged.Load() {
			c.reports.Events.Done(c.reports.Conn, list)
			list = nil
		}
		c.direct.Store(false)
		if !c.staged.Load() {
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.freed++
	c.take(list)
	c.goOn()
}

// take sorts completions: of parts, and of requests that were passed on. mu is held.
func (c *Conn) take(list []transport.Completion) {
	for i := range list {
		x := &list[i]
		p, ok := x.Request.Tag.(*part)
		if !ok {
			c.reports.Add(*x)
			continue
		}
		if x.Err == nil && x.Request.Op == transport.Read && p.bounce.Staged() {
			c.copying++
			p.bounce.Copy(false, p.copied)
			continue
		}
		c.end(p, x.Err, x.MayLand)
	}
}

// goOn does what has become possible. mu is held.
func (c *Conn) goOn() {
	c.cutUp()
	c.flush()
	c.deliver()
}

// landed is the end of a part's copy.
func (x *part) landed(err error) {
	c := x.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.copying--
	switch {
	case err != nil:
		c.end(x, err, false)
	case x.req.Op == transport.Read:
		c.end(x, nil, false)
	case c.dead:
		c.end(x, c.closedError(), false)
	default:
		c.pending = append(c.pending, &x.req)
	}
	c.goOn()
}

// end is the end of a part. mu is held.
func (c *Conn) end(x *part, err error, mayLand bool) {
	p := x.parent
	p.parts--
	if err != nil && p.err == nil {
		p.err = err
	}
	p.mayLand = p.mayLand || mayLand
	x.bounce.Release()
	clear(x.spans)
	x.spans, x.parent, x.req = x.spans[:0], nil, transport.Request{}
	c.free = append(c.free, x)
	if p.parts > 0 || !p.cut && p.err == nil {
		return
	}
	if len(c.queue) == 0 || c.queue[0] != p { // else cutUp ends it
		c.finish(p)
	}
}

// finish is the end of a parent. mu is held.
func (c *Conn) finish(p *parent) {
	c.open--
	c.reports.Add(transport.Completion{
		Request: p.req, Err: p.err,
		MayLand: p.err != nil && p.mayLand && p.req.Op == transport.Write,
	})
}

// deliver reports what is done, and at last that the connection is lost. mu is held,
// but not while the owner is told.
func (c *Conn) deliver() {
	if c.direct.Load() || !c.reports.Deliver() ||
		!c.dead || c.told || c.posting || c.copying > 0 || c.waiting != nil || len(c.queue) > 0 || len(c.pending) > 0 {
		return
	}
	c.told = true
	c.mu.Unlock()
	c.reports.Events.Lost(c.reports.Conn, c.lostErr)
	c.t.conns.Done()
	c.mu.Lock()
}

// Close ends the connection.
func (c *Conn) Close(cause error) {
	c.mu.Lock()
	if c.cause == nil {
		if c.cause = cause; cause == nil {
			c.cause = transport.ErrClosed
		}
	}
	c.mu.Unlock()
	c.inner.Close(cause)
}

// lost is the end of the inner connection: all its completions came before.
func (c *Conn) lost(_ transport.Conn, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.staged.Store(true)
	c.dead, c.lostErr = true, err
	close(c.gone)
	c.goOn()
}

// closedError ends what never got to the connection. mu is held.
func (c *Conn) closedError() error {
	cause := c.lostErr
	if cause == nil {
		cause = c.cause
	}
	if cause == nil || errors.Is(cause, transport.ErrClosed) {
		return pkgerr.Errorf("stage", "%w", transport.ErrClosed)
	}
	return pkgerr.Errorf("stage", "%w: %w", transport.ErrClosed, cause)
}

// bury tells the owner of the end, unless somebody else does or will. The transport's
// Close waits for that.
func (c *Conn) bury() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deliver()
}
