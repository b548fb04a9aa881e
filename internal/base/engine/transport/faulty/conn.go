package faulty

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/topoctl/topoctl/internal/base/engine/transport"
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

// ID is the connection's.
func (c *Conn) ID() transport.ConnID { return c.inner.ID() }

// Limits are those inside.
func (c *Conn) Limits() transport.Caps { return c.inner.Limits() }

// Describe tells of the faults.
func (c *Conn) Describe() string { return c.inner.Describe() + ", with injected faults" }

func (c *Conn) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Post decides each request's fate.
func (c *Conn) Post(requests []*transport.Request, done []transport.Completion) (int, []transport.Completion) {
	plan := c.transport.currentPlan()
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
		if failed := c.fate(r, plan, now, &n); failed != nil {
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
func (c *Conn) fate(r *transport.Request, p Plan, now time.Time, n *Counts) error {
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

// Close ends the connection.
func (c *Conn) Close(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(cause, false)
}

// Kill ends the connection as a network that failed would.
func (c *Conn) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(errKilled, true)
}

func (c *Conn) end(cause error, killed bool) {
	if !c.closed {
		c.closed, c.killed, c.cause = true, killed, cause
	}
	c.signal()
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

func (c *Conn) innerLost(_ transport.Conn, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.innerOver, c.innerErr = true, err
	c.signal()
}
