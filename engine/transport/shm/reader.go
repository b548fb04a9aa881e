package shm

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/transport"
)

// errLeft is why a connection ended that the peer left.
var errLeft = errors.New("the peer left the connection")

// Close ends the connection with an error for what is posted. It does not wait.
func (c *conn) Close(cause error) {
	if cause == nil {
		cause = transport.ErrClosed
	} else {
		cause = fmt.Errorf("%w: %w", transport.ErrClosed, cause)
	}
	c.die(cause, nil)
}

// die stops taking requests, and has run end the connection.
func (c *conn) die(cause, lost error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return
	}
	c.dead, c.cause, c.lost = true, cause, lost
	c.ask.Broadcast()
	_ = c.c.SetReadDeadline(time.Unix(1, 0))
}

// run reads what the peer sends, and ends the connection: by then no copy runs
// and nothing is mapped. Only then the socket is closed, because the peer takes
// its end for the end of our copies.
func (c *conn) run() {
	err := c.read()
	left := errors.Is(err, errLeft)
	lost := fmt.Errorf("shm: %s: %w", c.path, err)
	c.die(fmt.Errorf("%w: %w", transport.ErrClosed, lost), lost)
	c.settle()
	if left {
		_ = c.c.SetWriteDeadline(time.Now().Add(writeTime))
		_ = send(c.c, frame{kind: stopped}.append(nil), -1)
	}
	_ = c.c.Close()
	c.t.mu.Lock()
	delete(c.t.active, c)
	c.t.mu.Unlock()
	c.events.Lost(c, c.lost)
}

// read handles the peer's frames until one is wrong, or it says stop.
func (c *conn) read() error {
	var buf [frameSize + 1]byte
	oob := make([]byte, unix.CmsgSpace(4))
	for {
		n, fd, err := receive(c.c, buf[:], oob)
		if err != nil {
			return err
		}
		f, err := parseFrame(buf[:n])
		if err == nil {
			err = c.handle(f, fd)
		}
		closeFD(fd)
		if err != nil {
			return err
		}
	}
}

func (c *conn) handle(f frame, fd int) error {
	switch f.kind {
	case stop:
		return errLeft
	case mapped:
		return c.mapped(f, fd)
	case revoke:
		c.mu.Lock()
		defer c.mu.Unlock()
		if m := c.regions[f.region]; m != nil && m.state != asking {
			m.revoke(memory.ErrNoRegion)
			if m.refs == 0 { // asked for again, it is refused by the peer
				delete(c.regions, f.region)
			}
		}
		return nil
	default:
		return fmt.Errorf("the peer sent a frame of kind %d", f.kind)
	}
}

// mapped takes the answer for a region, and goes on with what waited for it.
func (c *conn) mapped(f frame, fd int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.regions[f.region]
	if m == nil || m.state != asking {
		return fmt.Errorf("the peer sent region %#x, which was not asked for", uint64(f.region))
	}
	c.asking--
	c.ask.Signal()
	m.answer(f, fd)
	if c.dead {
		return nil
	}
	var queued *job
	last := &queued
	still := c.waiting[:0]
	for _, j := range c.waiting {
		wait, err := j.resolve()
		switch {
		case err != nil:
			c.completeLocked(j, err)
		case wait:
			still = append(still, j)
		default:
			*last, last = j, &j.next
		}
	}
	clear(c.waiting[len(still):])
	c.waiting = still
	if queued != nil {
		c.t.copier.add(queued)
	}
	c.deliver()
	return nil
}

// resolve looks at a job's mappings again.
func (j *job) resolve() (wait bool, err error) {
	for i, m := range j.maps {
		if err := m.check(j.request.Op, &j.request.Spans[i]); err != nil {
			return false, err
		}
		wait = wait || m.state == asking
	}
	return wait, nil
}

// asker asks the peer for regions, a few at a time.
func (c *conn) asker() {
	var buf [frameSize]byte
	for {
		c.mu.Lock()
		for !c.dead && (len(c.wanted) == 0 || c.asking >= maxAsking) {
			c.ask.Wait()
		}
		if c.dead {
			c.mu.Unlock()
			return
		}
		m := c.wanted[0]
		c.wanted = c.wanted[1:]
		c.asking++
		c.mu.Unlock()
		f := frame{kind: mapIt, region: m.id}
		if err := send(c.c, f.append(buf[:0]), -1); err != nil {
			return // the reader sees it too
		}
	}
}

// settle ends what is posted, waits for what is being copied, and unmaps.
func (c *conn) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range c.waiting {
		c.completeLocked(j, c.cause)
	}
	clear(c.waiting)
	c.waiting = nil
	c.mu.Unlock()
	dropped := c.t.copier.drop(c, c.cause)
	c.mu.Lock()
	for j := dropped; j != nil; {
		next := j.next
		c.completeLocked(j, c.cause)
		j = next
	}
	c.deliver()
	for c.posted > 0 || c.inside > 0 || c.delivering {
		c.quiet.Wait()
	}
	for _, m := range c.regions {
		m.revoke(net.ErrClosed)
	}
	_ = c.board.block.Free() // it is mapped, so it can be unmapped
}
