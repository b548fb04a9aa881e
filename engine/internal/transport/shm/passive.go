package shm

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

const (
	// maxOutbox is how many answers wait for a peer that does not read them, before
	// no more is read from it.
	maxOutbox = 64
	writeTime = 10 * time.Second
)

// accept lets connections in until the listener is closed.
func (t *Transport) accept() {
	unknown := make(chan struct{}, maxUnknown)
	for {
		c, err := t.socket.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptors left, most likely: they come back
			time.Sleep(20 * time.Millisecond)
			continue
		}
		select {
		case unknown <- struct{}{}:
			t.wg.Go(func() {
				p := t.meet(c)
				<-unknown
				if p != nil {
					p.serve()
				}
			})
		default:
			t.refused.Add(nil) // too many say nothing
			_ = c.Close()
		}
	}
}

// meet reads the hello and matches it with what Accept prepared; nil refuses.
func (t *Transport) meet(c *net.UnixConn) *passive {
	p, err := t.match(c)
	if err != nil {
		if !errors.Is(err, io.EOF) { // only looked whether the socket is a dead process's: see removeStale
			t.refused.Add(err)
		}
		_ = c.Close()
		return nil
	}
	return p
}

func (t *Transport) match(c *net.UnixConn) (*passive, error) {
	if err := checkPeer(c); err != nil {
		return nil, err
	}
	// Close does not wait longer than this for a connection that says nothing.
	stop := context.AfterFunc(t.ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := c.SetReadDeadline(time.Now().Add(helloTime)); err != nil {
		return nil, err
	}
	var buf [helloSize + 1]byte
	n, _, err := receive(c, buf[:], nil)
	if err != nil {
		return nil, err
	}
	h, err := parseHello(buf[:n])
	if err != nil {
		return nil, err
	}
	fd, _, err := t.board.block.File(false)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e, expected := t.ends.Expected(h.key, time.Now())
	if t.closed || !expected || !e.ticket.equal(&h.ticket) {
		closeFD(fd)
		return nil, errors.New("no such connection is expected")
	}
	_ = c.SetReadDeadline(time.Time{})
	p := &passive{t: t, key: h.key, name: e.name, rights: e.rights, c: c, mapped: map[memory.ID]bool{}, ending: make(chan struct{}), done: make(chan struct{})}
	p.wake = sync.NewCond(&p.mu)
	p.outbox = append(p.outbox, outgoing{frame{kind: welcome}, fd})
	t.ends.Open(p.key, p)
	t.wg.Go(p.write)
	return p, nil
}

// passive is the passive end of a connection: it hands out descriptors.
type passive struct {
	t    *Transport
	key  transport.ConnKey
	name string // of the peer's engine
	// rights are what the peer may do with regions. Those that it may not do all with that they
	// grant are not mapped: its user could open the descriptor again for more.
	rights *memory.Rights
	c      *net.UnixConn

	mu     sync.Mutex
	wake   *sync.Cond // outbox or state changed
	outbox []outgoing
	mapped map[memory.ID]bool // that the peer was given
	asked  bool               // to stop
	ended  bool               // nothing is sent any more

	// Of device memory.
	leases  []*lease      // by place
	copying int           // moves
	over    bool          // none begins any more
	ending  chan struct{} // closed when over is about to be set

	// done is closed when the peer has stopped or is gone: it touches nothing of
	// ours any more.
	done chan struct{}
}

// outgoing is a frame with a descriptor, -1 without.
type outgoing struct {
	frame frame
	fd    int
}

// serve reads the peer's requests until it has stopped or is gone. Where we end
// the connection, because the peer broke the rules or does not read, our half is
// shut and reading goes on: only the peer's end says that it has stopped.
func (p *passive) serve() {
	var buf [maxPacket + 1]byte
	var spots []spot
	for {
		n, _, err := receive(p.c, buf[:], nil)
		if err != nil {
			break
		}
		var f frame
		f, spots, err = parsePacket(buf[:n], spots)
		if err == nil && f.kind == stopped {
			break
		}
		if err != nil || !p.handle(f, spots) {
			p.t.refused.Add(err)
			p.shut()
		}
	}
	p.shut()
	p.endMoves()
	_ = p.c.Close()
	p.t.mu.Lock()
	p.t.ends.Close(p.key)
	p.t.mu.Unlock()
	close(p.done)
}

// handle does what the peer asks for; false: it broke the rules. It waits while too many
// answers do.
func (p *passive) handle(f frame, spots []spot) bool {
	p.mu.Lock()
	for len(p.outbox) >= maxOutbox && !p.ended {
		p.wake.Wait()
	}
	p.mu.Unlock()
	switch f.kind {
	case mapIt:
		p.t.requests.Add(1)
		p.answer(f)
		return true
	case wantWindow:
		return p.wants(f)
	case moveIt:
		p.t.requests.Add(1)
		return p.move(f, spots)
	}
	return false
}

// answer hands out a region's descriptor, says that it is reached through windows, or
// why not.
func (p *passive) answer(f frame) {
	out := outgoing{frame{kind: mapped, region: f.region, status: noRegion}, -1}
	// The pin keeps Close, and with it Deregister, behind the note that the peer
	// has it.
	r, err := p.t.regions.PinFor(p.rights, f.region, 0, 0, memory.None)
	if err == nil {
		if r.Device() != nil {
			out.frame.status, out.frame.place = p.reach(r)
		} else {
			out.frame.status, out.fd = p.handOut(r)
		}
		out.frame.grant, out.frame.bytes = p.rights.Grant(r), uint64(r.Size())
	}
	if out.frame.status != ok && out.frame.status != windowed {
		p.t.refused.Add(out.frame.status.err())
	}
	p.mu.Lock()
	if out.frame.status == ok || out.frame.status == windowed {
		p.mapped[f.region] = true
	}
	p.pushLocked(out)
	p.mu.Unlock()
	if r != nil {
		r.Unpin()
	}
}

// handOut makes the descriptor that a region's grant allows.
func (p *passive) handOut(r *memory.Region) (status, int) {
	if !p.rights.All(r) {
		return denied, -1
	}
	fd, has, err := r.Block().File(r.Grant()&memory.PeerWrite != 0)
	switch {
	case err != nil:
		return noHandles, -1
	case !has:
		return noFile, -1
	case !p.t.board.open(r.ID()): // not registered
		closeFD(fd)
		return noRegion, -1
	}
	return ok, fd
}

// pushLocked has a frame sent.
func (p *passive) pushLocked(o outgoing) {
	if p.ended {
		closeFD(o.fd)
		return
	}
	p.outbox = append(p.outbox, o)
	p.wake.Broadcast()
}

// revoke tells the peer that a region is closed, if it has mapped it.
func (p *passive) revoke(id memory.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mapped[id] {
		delete(p.mapped, id)
		p.pushLocked(outgoing{frame{kind: revoke, region: id}, -1})
	}
}

// Leave has the peer stop, and waits for that.
func (p *passive) Leave(ctx context.Context) error {
	p.mu.Lock()
	if !p.asked {
		p.asked = true
		p.pushLocked(outgoing{frame{kind: stop}, -1})
	}
	p.mu.Unlock()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return pkgerr.Errorf("shm", "peer %q: connection %d: the peer does not confirm that it has stopped copying: %w", p.name, p.key.Conn, context.Cause(ctx))
	}
}

// write sends what is in the outbox. A peer that does not read is cut off.
func (p *passive) write() {
	var buf [frameSize]byte
	for {
		p.mu.Lock()
		for len(p.outbox) == 0 && !p.ended {
			p.wake.Wait()
		}
		if p.ended {
			p.mu.Unlock()
			return
		}
		o := p.outbox[0]
		p.outbox = p.outbox[1:]
		p.wake.Broadcast()
		p.mu.Unlock()
		_ = p.c.SetWriteDeadline(time.Now().Add(writeTime))
		err := send(p.c, o.frame.append(buf[:0]), o.fd)
		closeFD(o.fd)
		if err != nil {
			p.shut()
			return
		}
	}
}

// shut ends our half of the connection. The peer reads the end, stops and ends
// its own.
func (p *passive) shut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	p.ended = true
	for _, o := range p.outbox {
		closeFD(o.fd)
	}
	p.outbox = nil
	p.wake.Broadcast()
	_ = p.c.CloseWrite()
}

// cut ends the connection without waiting for the peer to stop.
func (p *passive) cut() {
	p.shut()
	_ = p.c.SetReadDeadline(time.Unix(1, 0))
}
