package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

const (
	// inlineBytes is the largest request that Post copies by itself, and
	// inlineBudget what one call of Post copies at most.
	inlineBytes  = 256 << 10
	inlineBudget = 512 << 10
	// streamFrom is how many bytes on their way are too many for a cache.
	streamFrom = 1 << 20
	// maxAsking bounds the regions that the peer is asked for at a time, so that
	// neither side waits for the other to read.
	maxAsking = 16
)

// conn is the active end of a connection.
type conn struct {
	t     *Transport
	id    transport.ConnID
	c     *net.UnixConn
	path  string
	board *board // the peer's

	mu      sync.Mutex
	regions map[memory.ID]*mapping
	wanted  []*mapping // to be asked for
	asking  int        // and asked for
	ask     *sync.Cond // wanted, asking, outgoing or dead changed
	waiting []*job     // for mappings
	devices map[uint8]*farDevice
	// outgoing is what asker tells the peer besides.
	outgoing []toSend
	free     []*job
	posted   int   // requests that are not completed
	flying   int64 // and their bytes
	inside   int   // calls of Post that copy

	reports transport.Reports

	dead  bool
	cause error // of completions
	lost  error // for Lost; nil when we closed it
	quiet *sync.Cond
}

// toSend is a move that the peer is told of, or a device that needs a window.
type toSend struct {
	move   *move
	device *farDevice
}

// Dial makes the active end of a connection.
func (t *Transport) Dial(ctx context.Context, d transport.Dial) (transport.Conn, error) {
	c, err := t.dial(ctx, d)
	if err != nil {
		return nil, pkgerr.Errorf("shm", "connection to %q: %w", d.Remote.Address, err)
	}
	return c, nil
}

func (t *Transport) dial(ctx context.Context, d transport.Dial) (*conn, error) {
	answer, err := d.Exchange(ctx, []byte{version})
	if err != nil {
		return nil, err
	}
	h := hello{key: transport.ConnKey{Session: d.Session, Conn: d.Conn}}
	if h.ticket, err = parseAnswer(answer); err != nil {
		return nil, err
	}
	u, err := dial(ctx, d.Remote.Address)
	if err != nil {
		return nil, err
	}
	board, err := greet(ctx, u, h)
	if err != nil {
		_ = u.Close()
		return nil, err
	}
	c := &conn{t: t, id: d.Conn, c: u, path: d.Remote.Address, board: board, regions: map[memory.ID]*mapping{}, devices: map[uint8]*farDevice{}}
	c.ask, c.quiet = sync.NewCond(&c.mu), sync.NewCond(&c.mu)
	c.reports = transport.Reports{Mu: &c.mu, Conn: c, Events: d.Events}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, errors.Join(net.ErrClosed, u.Close(), board.block.Free())
	}
	t.active[c] = true
	t.wg.Go(c.run)
	t.wg.Go(c.asker)
	return c, nil
}

// greet presents the ticket and waits for the welcome, which brings the board.
func greet(ctx context.Context, u *net.UnixConn, h hello) (*board, error) {
	stop := context.AfterFunc(ctx, func() { _ = u.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var buf [frameSize + 1]byte
	n, fd := 0, -1
	err := send(u, h.encode(), -1)
	if err == nil {
		n, fd, err = receive(u, buf[:], make([]byte, oneFD))
	}
	defer closeFD(fd)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("the peer did not let it in: %w", err)
	}
	f, err := parseFrame(buf[:n])
	if err != nil || f.kind != welcome {
		return nil, errors.Join(errors.New("the peer answered something else"), err)
	}
	return mapBoard(fd)
}

// ID is the connection's.
func (c *conn) ID() transport.ConnID { return c.id }

// Limits are the transport's.
func (c *conn) Limits() transport.Caps { return c.t.Caps() }

// Describe names the socket and how many regions are mapped.
func (c *conn) Describe() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, windows := 0, ""
	for _, m := range c.regions {
		switch {
		case m.state != ready:
		case m.device != nil:
			windows = ", the peer's device memory through pinned windows"
		default:
			n++
		}
	}
	return fmt.Sprintf("shared memory over %s, %d regions mapped, %d workers%s", c.path, n, c.t.copier.workers, windows)
}

// Post copies small requests, or a part of the first large one, and queues the
// others.
func (c *conn) Post(requests []*transport.Request, done []transport.Completion) (int, []transport.Completion) {
	var queued, inline *job
	lastQueued, lastInline := &queued, &inline
	budget := int64(inlineBudget)
	taken := 0
	c.mu.Lock()
	for _, r := range requests {
		if c.dead || c.posted >= maxPosted {
			break
		}
		taken++
		j, wait, err := c.prepare(r)
		if err != nil {
			done = append(done, transport.Completion{Request: r, Err: err})
			continue
		}
		c.posted++
		c.flying += r.Bytes
		j.stream = c.flying >= streamFrom
		switch {
		case wait:
			c.waiting = append(c.waiting, j)
		case r.Bytes > 0 && j.isStaged():
			c.advance(j)
		case r.Bytes <= inlineBytes && r.Bytes <= budget:
			budget -= r.Bytes
			*lastInline, lastInline = j, &j.next
		default:
			*lastQueued, lastQueued = j, &j.next
		}
	}
	if inline != nil || queued != nil {
		c.inside++
	}
	c.mu.Unlock()
	switch {
	case inline != nil:
		if queued != nil {
			c.t.copier.add(queued)
		}
		done = c.copyInline(inline, done)
	case queued != nil:
		// The first piece is ours before anybody else sees the job.
		first := queued
		p := first.cut(minPiece)
		first.running++
		c.t.copier.add(queued)
		if !c.t.copier.help(first, p, inlineBudget) {
			first = nil // a worker ends it
		}
		done = c.leavePost(first, done)
	}
	return taken, done
}

// prepare makes a job of a request, with a hold on the mappings. wait says that
// the peer was asked for one of them.
func (c *conn) prepare(r *transport.Request) (j *job, wait bool, err error) {
	if err := limits.Refuse(r); err != nil {
		return nil, false, pkgerr.Errorf("shm", "%w", err)
	}
	if n := len(c.free); n > 0 {
		j, c.free = c.free[n-1], c.free[:n-1]
	} else {
		j = &job{c: c}
	}
	j.request = r
	var m *mapping
	for i := range r.Spans {
		s := &r.Spans[i]
		if m == nil || m.id != s.Remote.ID {
			m = c.mappingOf(s.Remote)
		}
		if err := m.check(r.Op, s); err != nil {
			c.release(j)
			return nil, false, err
		}
		m.refs++
		j.maps = append(j.maps, m)
		wait = wait || m.state == asking
	}
	if len(r.Spans) > 0 {
		j.node = c.t.copier.queueOf(r.Spans[0].Local.Location())
	}
	return j, wait, nil
}

// mappingOf is the mapping of a peer's region; the first time the peer is asked.
func (c *conn) mappingOf(r *transport.RemoteRegion) *mapping {
	m := c.regions[r.ID]
	switch {
	case m == nil:
		m = &mapping{id: r.ID}
		c.regions[r.ID] = m
		c.wanted = append(c.wanted, m)
		c.ask.Signal()
	case m.state == ready && !c.board.open(m.id):
		m.revoke(memory.ErrNoRegion)
	}
	return m
}

// copyInline copies jobs in Post.
func (c *conn) copyInline(first *job, done []transport.Completion) []transport.Completion {
	for j := first; j != nil; j = j.next {
		j.err = j.copy(j.all())
	}
	return c.leavePost(first, done)
}

// leavePost ends a call of Post that copied, with the jobs that are over.
func (c *conn) leavePost(first *job, done []transport.Completion) []transport.Completion {
	c.mu.Lock()
	defer c.mu.Unlock()
	for j := first; j != nil; {
		next := j.next
		done = append(done, transport.Completion{Request: j.request, Err: j.err})
		c.recycle(j)
		j = next
	}
	c.inside--
	if c.dead {
		c.quiet.Broadcast()
	}
	return done
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
	if next.device != nil {
		return frame{kind: wantWindow, place: next.device.place}.append(b)
	}
	next.move.state = told
	return next.move.encode(b)
}

// read handles the peer's frames until one is wrong, or it says stop.
func (c *conn) read() error {
	var buf [frameSize + 1]byte
	oob := make([]byte, oneFD)
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
	m.answer(f, fd, c.farDeviceAt)
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

// complete ends a job that a worker has copied, or that nobody will.
func (c *conn) complete(j *job, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.completeLocked(j, err)
	c.deliver()
}

func (c *conn) completeLocked(j *job, err error) {
	if j.move != nil {
		c.copied(j.move, err)
		return
	}
	c.reports.Add(transport.Completion{Request: j.request, Err: err, MayLand: err != nil && j.mayLand})
	c.recycle(j)
}

// recycle ends a job.
func (c *conn) recycle(j *job) {
	c.posted--
	c.flying -= j.request.Bytes
	c.release(j)
}

// release gives back a job's hold on mappings, and the job.
func (c *conn) release(j *job) {
	for _, m := range j.maps {
		if m.refs--; m.refs == 0 && m.state == refused {
			m.unmapUnused()
		}
	}
	clear(j.maps)
	*j = job{c: c, maps: j.maps[:0]}
	c.free = append(c.free, j)
}

// deliver reports what is done. mu is held, and given up meanwhile.
func (c *conn) deliver() {
	if c.reports.Deliver() && c.dead {
		c.quiet.Broadcast()
	}
}

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
	lost := pkgerr.Errorf("shm", "%s: %w", c.path, err)
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

// settle ends what is posted, waits for what is being copied, and unmaps.
func (c *conn) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range c.waiting {
		c.completeLocked(j, c.cause)
	}
	clear(c.waiting)
	c.waiting = nil
	c.endMoves()
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
	for _, g := range c.devices {
		if g.now != nil {
			g.now.m.revoke(net.ErrClosed)
		}
	}
	_ = c.board.block.Free() // it is mapped, so it can be unmapped
}
