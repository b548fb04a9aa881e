package stage

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/topoctl/topoctl/internal/base/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
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
	rooms   uint64               // counts what may have made room
	queue   []*parent            // that are not cut up
	open    int                  // parents without a completion
	want    memory.Wait
	held    *part // waits for a buffer
	copying int   // parts that are being copied
	free    []*part

	reports transport.Reports

	dead    bool // the inner connection is lost
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
	window Window
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
			if err := check(r, &c.limits); err != nil {
				c.reports.Add(transport.Completion{Request: r, Err: err})
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

// bury tells the owner of the end, unless somebody else does or will. The transport's
// Close waits for that.
func (c *Conn) bury() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deliver()
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

// check refuses what no connection takes, and ranges that would be copied from
// beside a region.
func check(r *transport.Request, limits *transport.Caps) error {
	if len(r.Spans) > limits.MaxSpans || r.Bytes > limits.MaxBytes || r.Op != transport.Read && r.Op != transport.Write {
		return fmt.Errorf("stage: %w: op %d of %d spans and %d bytes: at most %d and %d are taken",
			transport.ErrRefused, r.Op, len(r.Spans), r.Bytes, limits.MaxSpans, limits.MaxBytes)
	}
	sum := int64(0)
	for i := range r.Spans {
		s := &r.Spans[i]
		if size := s.Local.Size(); s.Bytes < 0 || s.LocalOffset < 0 || s.LocalOffset > size || s.Bytes > size-s.LocalOffset {
			return fmt.Errorf("stage: %w: local region %q: %d bytes at %d: %w", transport.ErrRefused, s.Local.Name(), s.Bytes, s.LocalOffset, memory.ErrRange)
		}
		sum += s.Bytes
	}
	if sum != r.Bytes {
		return fmt.Errorf("stage: %w: spans of %d bytes in a request of %d", transport.ErrRefused, sum, r.Bytes)
	}
	return nil
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
	c.rooms++
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
		if x.Err == nil && x.Request.Op == transport.Read && p.window.Staged() {
			c.copying++
			p.window.Copy(false, p.copied)
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

// lost is the end of the inner connection: all its completions came before.
func (c *Conn) lost(_ transport.Conn, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.staged.Store(true)
	c.dead, c.lostErr = true, err
	if c.held != nil {
		if _, d := Needs(c.held.spans); d != nil {
			if pool, err := memory.PoolOf(d, memory.ForRequests); err == nil && pool.Cancel(&c.want) {
				p := c.held
				c.held = nil
				c.end(p, c.closedError(), false)
			}
		}
	}
	c.goOn()
}

// closedError ends what never got to the connection. mu is held.
func (c *Conn) closedError() error {
	cause := c.lostErr
	if cause == nil {
		cause = c.cause
	}
	if cause == nil || errors.Is(cause, transport.ErrClosed) {
		return fmt.Errorf("stage: %w", transport.ErrClosed)
	}
	return fmt.Errorf("stage: %w: %w", transport.ErrClosed, cause)
}

// deliver reports what is done, and at last that the connection is lost. mu is held,
// but not while the owner is told.
func (c *Conn) deliver() {
	if c.direct.Load() || !c.reports.Deliver() ||
		!c.dead || c.told || c.posting || c.copying > 0 || c.held != nil || len(c.queue) > 0 || len(c.pending) > 0 {
		return
	}
	c.told = true
	c.mu.Unlock()
	c.reports.Events.Lost(c.reports.Conn, c.lostErr)
	c.t.conns.Done()
	c.mu.Lock()
}
