package shm

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/internal/base/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
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
	c.reports.Events.Lost(c, c.lost)
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
	case giveWindow, takeBack, moved:
		c.mu.Lock()
		defer c.mu.Unlock()
		defer c.deliver()
		switch f.kind {
		case giveWindow:
			return c.takeWindow(f, fd)
		case takeBack:
			return c.loseWindow(f)
		}
		return c.moved(f)
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
	m.answer(f, fd, c.gateAt)
	if c.dead {
		return nil
	}
	var queued *job
	var staged []*job
	last := &queued
	still := c.waiting[:0]
	for _, j := range c.waiting {
		wait, err := j.resolve()
		switch {
		case err != nil:
			c.completeLocked(j, err)
		case wait:
			still = append(still, j)
		case j.request.Bytes > 0 && j.isStaged():
			staged = append(staged, j)
		default:
			*last, last = j, &j.next
		}
	}
	clear(c.waiting[len(still):])
	c.waiting = still
	for _, j := range staged {
		c.advance(j)
	}
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

// toSend is a move that the peer is told of, or a gate that needs a window.
type toSend struct {
	move *move
	gate *gate
}

// asker asks the peer for regions, a few at a time, and for windows and moves, of which
// there are never many.
func (c *conn) asker() {
	var buf [maxPacket]byte
	for {
		packet := c.nextPacket(buf[:0])
		if packet == nil {
			return
		}
		if err := send(c.c, packet, -1); err != nil {
			return // the reader sees it too
		}
	}
}

// nextPacket waits for what is to be sent; nil is the end.
func (c *conn) nextPacket(b []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.dead && len(c.outgoing) == 0 && (len(c.wanted) == 0 || c.asking >= maxAsking) {
		c.ask.Wait()
	}
	switch {
	case c.dead:
		return nil
	case len(c.outgoing) == 0:
		m := c.wanted[0]
		c.wanted = c.wanted[1:]
		c.asking++
		return frame{kind: mapIt, region: m.id}.append(b)
	}
	next := c.outgoing[0]
	c.outgoing[0] = toSend{}
	c.outgoing = c.outgoing[1:]
	if next.gate != nil {
		return frame{kind: wantWindow, place: next.gate.place}.append(b)
	}
	next.move.state = told
	return next.move.encode(b)
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
	c.endGates()
	c.mu.Unlock()
	dropped := c.t.copier.drop(c, c.cause)
	c.mu.Lock()
	for j := dropped; j != nil; {
		next := j.next
		c.completeLocked(j, c.cause)
		j = next
	}
	c.deliver()
	for c.posted > 0 || c.inside > 0 || c.reports.Delivering() {
		c.quiet.Wait()
	}
	for _, m := range c.regions {
		m.revoke(net.ErrClosed)
	}
	for _, g := range c.gates {
		if g.now != nil {
			g.now.m.revoke(net.ErrClosed)
		}
	}
	_ = c.board.block.Free() // it is mapped, so it can be unmapped
}
