package fake

import (
	"fmt"
	"sync"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
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
		if len(r.Spans) > limits.MaxSpans || r.Bytes > limits.MaxBytes {
			done = append(done, transport.Completion{Request: r, Err: c.transport.errorf(
				"request of %d spans and %d bytes: over the limits (%d, %d)", len(r.Spans), r.Bytes, limits.MaxSpans, limits.MaxBytes)})
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

// HoldWrites keeps WRITEs on the wire from now on: they neither land nor complete
// before ReleaseWrites. Where the connection ends first, they complete with an
// error and MayLand, and may land all the same, until the peer has left.
func (c *Conn) HoldWrites() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hold = true
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
