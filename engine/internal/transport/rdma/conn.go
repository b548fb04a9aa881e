//go:build cgo && linux && (amd64 || arm64)

package rdma

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/verbs"
)

// op is a request from Post to its completion.
type op struct {
	req      *transport.Request
	left     int   // work requests that have not ended
	tried    bool  // a work request of it was given to the device
	again    bool  // one was flushed behind a request that was refused
	err      error // that is refused
	timeouts int   // how often it got no answer
	next     *op
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
	awaited bool // the poster reads the completions
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

// Dial makes the active end of a connection: queue pairs of the lane's local port,
// joined with those that the peer's Accept makes, and tried out.
func (t *Transport) Dial(ctx context.Context, d transport.Dial) (transport.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, pkgerr.Errorf("rdma", "dial: %w", err)
	}
	remote, err := parsePort(d.Remote.Address)
	if err != nil {
		return nil, err
	}
	dev, local, w, err := t.choose(d.LocalPort, remote)
	if err != nil {
		return nil, err
	}
	c := newConn(t, d, dev, local, remote, w)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(dev.ctx, func() { cancel(context.Cause(dev.ctx)) })()
	if err := c.join(ctx, d.Remote.Port); err != nil {
		c.giveUp()
		if dev.ctx.Err() != nil {
			err = context.Cause(dev.ctx)
		}
		return nil, pkgerr.Errorf("rdma", "dial the peer's %s from %s: %w", remote, local, err)
	}
	if err := c.start(); err != nil {
		c.giveUp()
		return nil, err
	}
	if err := c.awaitAnswer(ctx); err != nil {
		c.lose(err)
		return nil, pkgerr.Errorf("rdma", "dial the peer's %s from %s: %w", remote, local, err)
	}
	t.mu.Lock()
	if !t.closed {
		t.wg.Go(c.sayArrived)
	}
	t.mu.Unlock()
	return c, nil
}

// choose finds the local port: the one that was asked for, else the first that
// certainly reaches the peer's, else the first that may.
func (t *Transport) choose(id topo.ID, remote *port) (*device, *port, way, error) {
	if id != "" {
		dev, local := t.portOf(id)
		if local == nil {
			return nil, nil, way{}, pkgerr.Errorf("rdma", "no port %q is open here", id)
		}
		w, err := reach(local, remote, &t.o, routeFrom)
		return dev, local, w, err
	}
	var dev *device
	var local *port
	var found way
	var errs []error
	for _, d := range t.openDevices() {
		for _, p := range d.usablePorts() {
			w, err := reach(p, remote, &t.o, routeFrom)
			switch {
			case err != nil:
				errs = append(errs, err)
			case local == nil || found.maybe && !w.maybe:
				dev, local, found = d, p, w
			}
		}
	}
	if local != nil {
		return dev, local, found, nil
	}
	if len(errs) == 0 {
		errs = append(errs, pkgerr.New("rdma", "no port is active here"))
	}
	return nil, nil, way{}, errors.Join(errs...)
}

func newConn(t *Transport, d transport.Dial, dev *device, local, remote *port, w way) *conn {
	c := &conn{
		t: t, dev: dev, id: d.Conn, exchange: d.Exchange,
		local: local, remote: remote, way: w,
		closing: make(chan struct{}), alive: make(chan struct{}), over: make(chan struct{}),
		remotes: map[*transport.RemoteRegion]*remoteRegion{}, gone: map[memory.ID]string{},
	}
	c.idle = sync.NewCond(&c.mu)
	c.reports = transport.Reports{Mu: &c.mu, Conn: c, Events: d.Events}
	c.ctx, c.cancel = context.WithCancel(t.ctx)
	c.maxMsg = maxWork
	for _, p := range []*port{local, remote} {
		if p.maxMsg > 0 {
			c.maxMsg = min(c.maxMsg, p.maxMsg)
		}
	}
	depth := c.depth()
	c.limits = transport.Caps{
		MaxSpans: min(maxSpans, depth/2), MaxBytes: min(maxBytes, int64(depth/2)*c.maxMsg), MaxPosted: depth * t.o.QueuePairs,
		Parallel: t.o.QueuePairs,
	}
	return c
}

// depth is that of its queue pairs, without the probe's place.
func (c *conn) depth() int { return min(c.t.o.Depth, c.dev.limits.MaxQPWR-1) }

// join makes the queue pairs and joins them with the peer's.
func (c *conn) join(ctx context.Context, target topo.ID) error {
	ask := request{
		kind: askConnect, target: target, generation: c.remote.generation,
		from:  qpAddr{link: c.local.link, global: c.way.global, lid: c.local.lid, pkey: c.way.pkey},
		toGID: c.way.remote.raw(), mtu: uint16(c.way.mtu),
		readsOut: uint8(min(c.t.o.Reads, c.dev.limits.MaxInitReadDepth, 255)),
	}
	ask.from.gid, ask.from.kind = c.way.local.raw(), c.way.local.kind
	for i := range c.t.o.QueuePairs {
		s := &slot{c: c, index: i}
		end, err := s.make()
		if err != nil {
			return err
		}
		c.slots = append(c.slots, s)
		ask.qps = append(ask.qps, end)
	}
	got, err := c.ask(ctx, &ask)
	if err != nil {
		return err
	}
	c.generation, c.readsOut = got.generation, int(min(got.readsIn, ask.readsOut))
	c.way.mtu, c.remote.lid = int(got.mtu), got.lid
	for i, s := range c.slots {
		if err := s.connect(ask.qps[i], got.qps[i]); err != nil {
			return err
		}
	}
	return nil
}

// ask has an exchange with the peer's Accept.
func (c *conn) ask(ctx context.Context, q *request) (*answer, error) {
	var nonce [8]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return nil, err
	}
	q.nonce = binary.BigEndian.Uint64(nonce[:])
	reply, err := c.exchange(ctx, q.encode())
	if err != nil {
		return nil, err
	}
	return parseAnswer(reply, q)
}

// start makes the connection known to the device and posts the first probes.
func (c *conn) start() error {
	for _, s := range c.slots {
		c.dev.enter(s)
	}
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	switch {
	case c.t.closed:
		return pkgerr.Errorf("rdma", "dial: the transport is %w", net.ErrClosed)
	case c.dev.gone != nil:
		return c.dev.gone
	}
	c.t.active[c] = true
	c.t.wg.Go(c.live)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waking = len(c.slots)
	for _, s := range c.slots {
		s.probe()
	}
	return nil
}

// awaitAnswer waits until the peer's queue pairs have answered.
func (c *conn) awaitAnswer(ctx context.Context) error {
	select {
	case <-c.alive:
	case <-c.closing:
	case <-ctx.Done():
		advice := ""
		if c.local.link == verbs.LinkEthernet && c.way.local.kind == verbs.GIDRoCEv2 {
			advice = ": does UDP port 4791 get through?"
		}
		return fmt.Errorf("the peer's queue pairs do not answer: %w%s", context.Cause(ctx), advice)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("the connection did not come up: %w", c.closedError())
	}
	c.established = true
	return nil
}

// arriveTries is how often the peer is told that a connection works.
const arriveTries = 3

// sayArrived has the peer keep its end.
func (c *conn) sayArrived() {
	for i := range arriveTries {
		ctx, cancel := context.WithTimeout(c.ctx, goodbyeTime)
		_, err := c.exchange(ctx, (&request{kind: askArrived}).encode())
		cancel()
		if err == nil {
			return
		}
		select {
		case <-c.ctx.Done():
			return
		case <-time.After(time.Duration(i+1) * time.Second):
		}
	}
	c.lose(&PortError{Local: c.local.String(), Remote: c.remote.String(), What: "the peer cannot be told that the connection works", Advice: "it forgets it after a while"})
}

// giveUp ends a connection that live does not look after.
func (c *conn) giveUp() {
	c.cancel()
	for _, s := range c.slots {
		s.destroy()
	}
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
		if err := c.limits.Refuse(r); err != nil {
			done = append(done, transport.Completion{Request: r, Err: pkgerr.Errorf("rdma", "%w", err)})
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
		if s.state == slotReady && s.parked.first == nil && s.fits(need) && (best == nil || s.bytes < best.bytes) {
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

var _ transport.Poller = (*conn)(nil)

// Poll lets a goroutine that waits for a completion take completions itself.
func (c *conn) Poll(w transport.Waiter) { c.dev.leadFor(w) }

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
		return pkgerr.Errorf("rdma", "%w", transport.ErrClosed)
	}
	return pkgerr.Errorf("rdma", "%w: %w", transport.ErrClosed, c.cause)
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
			lost = pkgerr.Errorf("rdma", "%w", transport.ErrClosed)
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
