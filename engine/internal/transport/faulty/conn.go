package faulty

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport"
)

// Conn is the active end of a connection with faults. A goroutine of its own makes
// all reports and all posts inside.
type Conn struct {
	transport *Transport
	inner     transport.Conn
	events    transport.Events
	wake      chan struct{} // holds one token

	mu          sync.Mutex
	rng         *rand.Rand
	outstanding int
	waiting     []*entry // to be posted inside when their time has come
	stuck       []*entry // dropped or held
	done        []transport.Completion
	inside      int // requests that are posted inside, copies counted
	hold        bool
	stalled     bool
	closed      bool
	killed      bool
	cause       error
	release     bool // what is held may land
	innerOver   bool
	innerErr    error
}

// entry is a request with what fate has for it.
type entry struct {
	request *transport.Request
	due     time.Time
	copies  int // that are still to be posted inside or have not ended there
	post    int // of these, still to be posted
	err     error
	mayLand bool
	late    *transport.Request // a WRITE that is held, with memory of its own
}

var _ transport.Conn = (*Conn)(nil)

// graceTime is how long a connection that ends with held WRITEs waits for what
// else is on it: its memory is the poster's again afterwards, so nothing else may
// be on the connection when it stays open behind the poster's back.
const graceTime = time.Second

// ID is the connection's.
func (c *Conn) ID() transport.ConnID { return c.inner.ID() }

// Limits are those inside.
func (c *Conn) Limits() transport.Caps { return c.inner.Limits() }

// Describe tells of the faults.
func (c *Conn) Describe() string { return c.inner.Describe() + ", with injected faults" }

// Post decides each request's fate.
func (c *Conn) Post(requests []*transport.Request, done []transport.Completion) (int, []transport.Completion) {
	limit := c.inner.Limits().MaxPosted
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := 0
	var n Counts
	for _, r := range requests {
		if c.closed || c.innerOver || c.outstanding >= limit {
			break
		}
		taken++
		if failed := c.fate(r, now, &n); failed != nil {
			done = append(done, transport.Completion{Request: r, Err: failed})
		}
	}
	if n != (Counts{}) {
		c.transport.count(func(all *Counts) { all.add(n) })
	}
	c.signal()
	return taken, done
}

// fate queues a request, or gives the error that it fails with at once.
func (c *Conn) fate(r *transport.Request, now time.Time, n *Counts) error {
	p := &c.transport.plan
	// One draw each, whatever comes of it: the same seed gives the same fates.
	hit := func(probability float64) bool { return c.rng.Float64() < probability }
	kill, fail, corrupt := hit(p.Kill), hit(p.Fail), hit(p.Corrupt)
	drop, hold, twice, delay := hit(p.Drop), hit(p.Hold), hit(p.Duplicate), hit(p.Delay)
	part := c.rng.Float64()
	switch {
	case kill:
		n.Killed++
		c.end(errKilled, true)
	case fail:
		n.Failed++
		return fmt.Errorf("%w: not sent", ErrInjected)
	case corrupt && r.Check:
		n.Corrupted++
		return fmt.Errorf("%w: %w", ErrInjected, transport.ErrChecksum)
	}
	e := &entry{request: r, due: now, copies: 1, post: 1}
	c.outstanding++
	if (hold || c.hold) && r.Op == transport.Write {
		if e.late = c.transport.keep(r); e.late != nil {
			n.Held++
			c.stuck = append(c.stuck, e)
			return nil
		}
	}
	if drop || kill {
		if drop && !kill {
			n.Dropped++
		}
		c.stuck = append(c.stuck, e)
		return nil
	}
	if twice {
		n.Duplicated++
		e.copies, e.post = 2, 2
	}
	if delay {
		n.Delayed++
		e.due = now.Add(time.Duration(part * float64(p.DelayMax)))
	}
	c.waiting = append(c.waiting, e)
	return nil
}

func (c *Conn) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run is the connection's goroutine.
func (c *Conn) run() {
	defer c.transport.forget(c)
	for c.step() {
	}
	late := c.finish()
	if len(late) > 0 {
		c.landLate(late)
	}
}

// step makes the reports that are due, posts what is due, and waits for more;
// false when the connection is over.
func (c *Conn) step() bool {
	c.mu.Lock()
	if c.closed || c.innerOver {
		c.mu.Unlock()
		return false
	}
	if c.release {
		c.letGo()
	}
	done := c.done
	c.done = nil
	c.outstanding -= len(done)
	due, wait := c.due(time.Now())
	c.mu.Unlock()
	if len(done) > 0 {
		c.events.Done(c, done)
	}
	if len(due) > 0 {
		c.postInside(due)
	}
	if len(done)+len(due) == 0 {
		c.sleep(wait)
	}
	return true
}

// letGo turns what is held into requests like others, in the lock.
func (c *Conn) letGo() {
	var rest []*entry
	for _, e := range c.stuck {
		if e.late == nil {
			rest = append(rest, e)
			continue
		}
		c.transport.drop(e.late)
		e.late = nil
		c.waiting = append(c.waiting, e)
	}
	c.stuck, c.release = rest, false
}

// due takes what can be posted inside now, in the lock, and says how long to wait
// for the next.
func (c *Conn) due(now time.Time) (out []*transport.Request, wait time.Duration) {
	wait = time.Hour
	if c.stalled {
		return nil, wait
	}
	room := c.inner.Limits().MaxPosted - c.inside
	var rest []*entry
	for _, e := range c.waiting {
		if e.due.After(now) {
			wait = min(wait, e.due.Sub(now))
			rest = append(rest, e)
			continue
		}
		for ; e.post > 0 && len(out) < room; e.post-- {
			r := *e.request
			r.Tag = e
			out = append(out, &r)
		}
		if e.post > 0 {
			rest = append(rest, e) // when something inside has ended
		}
	}
	c.waiting = rest
	c.inside += len(out)
	return out, wait
}

// postInside posts; what is not taken waits for the next end.
func (c *Conn) postInside(requests []*transport.Request) {
	n, done := c.inner.Post(requests, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range requests[n:] {
		c.inside--
		e := r.Tag.(*entry)
		if e.post++; e.post == 1 {
			e.due = time.Now().Add(time.Millisecond)
			c.waiting = append(c.waiting, e)
		}
	}
	c.ended(done)
	if len(done) > 0 {
		c.signal()
	}
}

// sleep waits for a signal, at most so long.
func (c *Conn) sleep(wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-c.wake:
	case <-timer.C:
	}
}

// await sleeps until something is so, in the lock, or the time is over.
func (c *Conn) await(limit time.Duration, so func() bool) bool {
	deadline := time.Now().Add(limit)
	for {
		c.mu.Lock()
		is := so()
		c.mu.Unlock()
		if is {
			return true
		}
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		c.sleep(left)
	}
}

// innerDone takes the ends of what was posted inside.
func (c *Conn) innerDone(_ transport.Conn, completions []transport.Completion) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended(completions)
	c.signal()
}

func (c *Conn) ended(completions []transport.Completion) {
	for _, d := range completions {
		e := d.Request.Tag.(*entry)
		c.inside--
		e.copies--
		if d.Err != nil && e.err == nil {
			e.err = d.Err
		}
		e.mayLand = e.mayLand || d.MayLand
		if e.copies == 0 && e.late == nil {
			c.complete(e)
		}
	}
}

// complete queues the end of an entry for the report.
func (c *Conn) complete(e *entry) {
	c.done = append(c.done, transport.Completion{Request: e.request, Err: e.err, MayLand: e.mayLand && e.err != nil})
}

// HoldWrites holds back each WRITE that is posted from now on. When the connection
// has ended, they land on ReleaseWrites.
func (c *Conn) HoldWrites() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hold = true
}

// ReleaseWrites lets what is held land: at once, or when the connection ends.
func (c *Conn) ReleaseWrites() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hold, c.release = false, true
	c.signal()
}

// Stall keeps requests from going on, or lets them. Those that went are not
// touched.
func (c *Conn) Stall(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stalled = on
	c.signal()
}

// Close ends the connection.
func (c *Conn) Close(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(cause, false)
}

func (c *Conn) end(cause error, killed bool) {
	if !c.closed {
		c.closed, c.killed, c.cause = true, killed, cause
	}
	c.signal()
}

func (c *Conn) innerLost(_ transport.Conn, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.innerOver, c.innerErr = true, err
	c.signal()
}

// finish ends the connection for the poster. It gives the WRITEs that are to land
// yet; the connection inside is open then.
func (c *Conn) finish() (late []*entry) {
	const forever = 1 << 62
	c.mu.Lock()
	for _, e := range c.stuck {
		if e.late != nil {
			late = append(late, e)
		}
	}
	c.mu.Unlock()
	open := len(late) > 0 && c.await(graceTime, func() bool { return c.inside == 0 || c.innerOver })
	c.mu.Lock()
	open = open && !c.innerOver
	reason := c.cause
	c.mu.Unlock()
	if !open {
		c.inner.Close(reason)
		c.await(forever, func() bool { return c.innerOver })
	}
	c.mu.Lock()
	cause, lost := c.lostBy()
	for _, e := range c.waiting {
		e.err = cause
		c.complete(e)
	}
	for _, e := range c.stuck {
		// Only the network knows where it is.
		e.err, e.mayLand = cause, e.request.Op == transport.Write
		c.complete(e)
	}
	done := c.done
	c.done, c.waiting, c.stuck = nil, nil, nil
	c.outstanding -= len(done)
	c.closed = true
	c.mu.Unlock()
	if len(done) > 0 {
		c.events.Done(c, done)
	}
	c.events.Lost(c, lost)
	if open {
		return late
	}
	for _, e := range late {
		c.transport.drop(e.late)
	}
	return nil
}

// lostBy is what requests fail with and what Lost says, in the lock.
func (c *Conn) lostBy() (cause, lost error) {
	switch {
	case c.killed:
		lost = c.cause
	case !c.closed:
		lost = c.innerErr
	}
	reason := c.cause
	if reason == nil {
		reason = lost
	}
	if reason == nil {
		return transport.ErrClosed, lost
	}
	return fmt.Errorf("%w: %w", transport.ErrClosed, reason), lost
}

// landLate lets WRITEs land whose poster was told that the connection is gone.
func (c *Conn) landLate(late []*entry) {
	const forever = 1 << 62
	wait := time.Duration(forever) // by hand only
	if latest := c.transport.plan.LateMax; latest > 0 {
		c.mu.Lock()
		wait = time.Duration(c.rng.Float64() * float64(latest))
		c.mu.Unlock()
	}
	c.await(wait, func() bool { return c.release || c.innerOver })
	for next := 0; next < len(late); {
		e := late[next]
		e.late.Tag = e
		c.mu.Lock()
		e.err = nil
		c.inside++
		c.mu.Unlock()
		n, done := c.inner.Post([]*transport.Request{e.late}, nil)
		c.mu.Lock()
		c.inside -= 1 - n
		c.ended(done)
		over, before := c.innerOver, c.inside
		c.mu.Unlock()
		if over {
			break
		}
		if next += n; n == 0 {
			c.await(graceTime, func() bool { return c.inside < before || c.innerOver })
		}
	}
	c.await(graceTime, func() bool { return c.inside == 0 || c.innerOver })
	c.inner.Close(nil)
	c.await(forever, func() bool { return c.innerOver })
	landed := int64(0)
	for _, e := range late {
		if e.copies == 0 && e.err == nil {
			landed++
		}
		c.transport.drop(e.late)
	}
	c.transport.count(func(n *Counts) { n.Landed += landed })
}
