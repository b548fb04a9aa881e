package rdma

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/topoctl/topoctl/internal/base/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
)

// op is a request from Post to its completion.
type op struct {
	req   *transport.Request
	left  int   // work requests that have not ended
	tried bool  // a work request of it was given to the device
	again bool  // one was flushed behind a request that was refused
	err   error // that is refused
	doubt int   // how often it got no answer
	next  *op
}

// ops is a queue of them.
type ops struct{ first, last *op }

func (q *ops) push(o *op) {
	o.next = nil
	if q.last == nil {
		q.first = o
	} else {
		q.last.next = o
	}
	q.last = o
}

func (q *ops) pop() *op {
	o := q.first
	if o != nil {
		if q.first = o.next; q.first == nil {
			q.last = nil
		}
		o.next = nil
	}
	return o
}

// conn is the active end of a connection: queue pairs of one port to one port.
type conn struct {
	t             *Transport
	dev           *device
	id            transport.ConnID
	exchange      func(context.Context, []byte) ([]byte, error)
	local, remote *port // as they were when it was dialled
	way           way
	limits        transport.Caps
	maxMsg        int64  // bytes of one work request
	generation    uint32 // of the peer's device
	readsOut      int
	ctx           context.Context // ends when the connection does
	cancel        context.CancelFunc
	closing       chan struct{} // closed when it is to end
	alive         chan struct{} // closed when the peer's end has answered
	over          chan struct{} // closed when the queue pairs are gone

	mu      sync.Mutex
	slots   []*slot
	turn    int  // slot that is looked at first
	waking  int  // slots that have not answered yet
	posted  int  // requests that are not completed
	awaited bool // who posts reads the completions
	free    *op
	remotes map[*transport.RemoteRegion]*remoteRegion
	gone    map[memory.ID]string // keys of regions that the peer's device refused
	reports transport.Reports
	idle    *sync.Cond     // delivering has ended
	repairs sync.WaitGroup // of queue pairs

	closed      bool
	byUs        bool // by Close
	established bool // Dial has returned it
	cause       error
}

// ID is the connection's.
func (c *conn) ID() transport.ConnID { return c.id }

// Limits are what the queue pairs take.
func (c *conn) Limits() transport.Caps { return c.limits }

// Describe names ports, addresses and sizes.
func (c *conn) Describe() string {
	where := fmt.Sprintf("LID %d > %d", c.local.lid, c.remote.lid)
	if c.way.global {
		where = fmt.Sprintf("GID %d %s > %s", c.way.local.index, c.way.local.addr.Unmap(), c.way.remote.addr.Unmap())
	}
	return fmt.Sprintf("rdma %s > %s, %s (%s), MTU %d, %d queue pairs of %d, %d READs at a time, no checksum but the wire's",
		c.local, c.remote, where, c.way.reason, c.way.mtu, len(c.slots), c.limits.MaxPosted/len(c.slots), c.readsOut)
}

// Post puts requests on the queue pairs, each on the one with the fewest bytes.
func (c *conn) Post(requests []*transport.Request, done []transport.Completion) (int, []transport.Completion) {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken, awaited := 0, true
	for _, r := range requests {
		if c.closed || c.posted >= c.limits.MaxPosted {
			break
		}
		if err := c.check(r); err != nil {
			done = append(done, transport.Completion{Request: r, Err: err})
			taken++
			continue
		}
		s := c.pick(c.need(r))
		if s == nil {
			break
		}
		o := c.newOp(r)
		err := s.add(o)
		switch {
		case err != nil:
			c.recycle(o)
			done = append(done, transport.Completion{Request: r, Err: err})
		case o.left == 0 && s.state == slotReady: // there are no bytes
			c.recycle(o)
			done = append(done, transport.Completion{Request: r})
		}
		taken++
		awaited = awaited && r.Awaited
	}
	c.awaited = awaited
	for _, s := range c.slots {
		s.flush()
	}
	c.awaited = false
	return taken, done
}

// check refuses a request that no connection of these limits carries.
func (c *conn) check(r *transport.Request) error {
	if len(r.Spans) > c.limits.MaxSpans || r.Bytes > c.limits.MaxBytes || r.Op != transport.Read && r.Op != transport.Write {
		return fmt.Errorf("rdma: %w: op %d of %d spans and %d bytes: at most %d and %d are taken",
			transport.ErrRefused, r.Op, len(r.Spans), r.Bytes, c.limits.MaxSpans, c.limits.MaxBytes)
	}
	return nil
}

// need is how many work requests a request takes at most: one for each span, and one
// more for each that is full.
func (c *conn) need(r *transport.Request) int {
	return len(r.Spans) + int(r.Bytes/c.maxMsg)
}

// pick finds the queue pair that has room and the fewest bytes on their way. One that
// is being replaced takes requests only where there is no other: they wait there.
func (c *conn) pick(need int) *slot {
	var best *slot
	for i := range c.slots {
		s := c.slots[(c.turn+i)%len(c.slots)]
		if s.state == slotReady && s.held.first == nil && s.fits(need) && (best == nil || s.bytes < best.bytes) {
			best = s
		}
	}
	c.turn++
	if best != nil {
		return best
	}
	for _, s := range c.slots {
		if s.state == slotReady {
			return nil // its completions make room
		}
	}
	return c.slots[c.turn%len(c.slots)]
}

func (c *conn) newOp(r *transport.Request) *op {
	o := c.free
	if o != nil {
		c.free = o.next
		*o = op{req: r}
	} else {
		o = &op{req: r}
	}
	c.posted++
	return o
}

func (c *conn) recycle(o *op) {
	c.posted--
	*o = op{next: c.free}
	c.free = o
}

// finish ends a request; deliver reports it.
func (c *conn) finish(o *op, err error, mayLand bool) {
	c.reports.Add(transport.Completion{Request: o.req, Err: err, MayLand: mayLand && o.req.Op == transport.Write})
	c.recycle(o)
}

// deliver reports what is done. mu is held, and given up meanwhile.
func (c *conn) deliver() {
	if c.reports.Deliver() {
		c.idle.Broadcast()
	}
}

// Close ends the connection.
func (c *conn) Close(cause error) { c.shut(cause, true) }

// lose ends a connection that does not work any more.
func (c *conn) lose(cause error) { c.shut(cause, false) }

func (c *conn) shut(cause error, byUs bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shutLocked(cause, byUs)
}

func (c *conn) shutLocked(cause error, byUs bool) {
	if c.closed {
		return
	}
	c.closed, c.cause, c.byUs = true, cause, byUs
	c.cancel()
	close(c.closing)
}

// closedError is what ends requests on a connection that ended.
func (c *conn) closedError() error {
	if c.cause == nil {
		return fmt.Errorf("rdma: %w", transport.ErrClosed)
	}
	return fmt.Errorf("rdma: %w: %w", transport.ErrClosed, c.cause)
}

// live is the end of the connection's life, in a goroutine of its own.
func (c *conn) live() {
	<-c.closing
	c.end()
	c.mu.Lock()
	established, lost := c.established, error(nil)
	if !c.byUs {
		lost = c.cause
		if lost == nil {
			lost = fmt.Errorf("rdma: %w", transport.ErrClosed)
		}
	}
	c.mu.Unlock()
	c.t.mu.Lock()
	delete(c.t.active, c)
	c.t.mu.Unlock()
	close(c.over)
	if established {
		c.reports.Events.Lost(c, lost)
	}
	c.sayGoodbye()
}

// end takes the queue pairs down: flushed if the device does that in time, destroyed in
// any case. Only then nothing of them touches our memory any more, and what is left is
// completed.
func (c *conn) end() {
	c.repairs.Wait()
	for _, s := range c.slots {
		s.setError()
	}
	flushed := time.NewTimer(c.t.o.FlushTime)
	defer flushed.Stop()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for waiting := true; waiting && c.flying(); {
		select {
		case <-flushed.C:
			waiting = false
		case <-poll.C:
		}
	}
	var wg sync.WaitGroup
	for _, s := range c.slots {
		wg.Go(s.destroy)
	}
	wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.slots {
		s.abandon()
	}
	c.deliver()
	for c.reports.Delivering() { // by somebody else
		c.idle.Wait()
	}
}

// flying says whether the device has something that it has not given back.
func (c *conn) flying() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.slots {
		if s.head != s.posted {
			return true
		}
	}
	return false
}

// goodbyeTime bounds how long the peer is told that a connection is over.
const goodbyeTime = 2 * time.Second

// sayGoodbye has the peer forget its end, which hardware would not tell it. Where that
// does not work the peer forgets it with the session.
func (c *conn) sayGoodbye() {
	ctx, cancel := context.WithTimeout(c.t.ctx, goodbyeTime)
	defer cancel()
	_, _ = c.exchange(ctx, (&request{kind: askEnd}).encode())
}

// keepAlive tries out the queue pairs that nothing has come from since the last time.
func (c *conn) keepAlive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || !c.established {
		return
	}
	for _, s := range c.slots {
		if !s.heard && s.state == slotReady && s.head == s.tail {
			s.probe()
		}
		s.heard = false
	}
}

var _ transport.Poller = (*conn)(nil)

// Poll has somebody who waits for a completion take them.
func (c *conn) Poll(w transport.Waiter) { c.dev.leadFor(w) }
