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
	"github.com/topoctl/topoctl/internal/base/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
	"github.com/topoctl/topoctl/internal/base/verbs"
)

// Dial makes the active end of a connection: queue pairs of the lane's local port,
// joined with those that the peer's Accept makes, and tried out.
func (t *Transport) Dial(ctx context.Context, d transport.Dial) (transport.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("rdma: dial: %w", err)
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
		return nil, fmt.Errorf("rdma: dial the peer's %s from %s: %w", remote, local, err)
	}
	if err := c.start(); err != nil {
		c.giveUp()
		return nil, err
	}
	if err := c.awaitAnswer(ctx); err != nil {
		c.lose(err)
		return nil, fmt.Errorf("rdma: dial the peer's %s from %s: %w", remote, local, err)
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
			return nil, nil, way{}, fmt.Errorf("rdma: no port %q is open here", id)
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
		errs = append(errs, errors.New("rdma: no port is active here"))
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

// raw is the address as it is in packets.
func (g gid) raw() (b [16]byte) {
	if g.addr.IsValid() {
		b = g.addr.As16()
	}
	return b
}

// make makes the queue pair and its ring.
func (s *slot) make() (qpEnd, error) {
	d := s.c.dev
	depth := s.c.depth()
	sge := min(maxSGE, d.limits.MaxSGE)
	if s.wrs == nil {
		s.makeRing(depth, sge)
	}
	qp, err := d.newQP(depth+1, sge, s.c.t.o.Inline)
	if err != nil {
		return qpEnd{}, err
	}
	s.qp, s.number = qp, qp.Num()
	// Nobody may touch memory here by this queue pair: the peer only answers.
	if err := qp.Init(s.c.local.number, uint16(s.c.way.pkeyIndex), 0); err != nil {
		s.destroy()
		return qpEnd{}, connectError(err, s.c.local.String(), s.c.remote.String(), &s.c.way)
	}
	psn, err := newPSN()
	if err != nil {
		s.destroy()
		return qpEnd{}, err
	}
	return qpEnd{s.number, psn}, nil
}

// newPSN draws the sequence number of a queue pair's first packet, so that packets of
// an earlier one with its number are not taken for its own.
func newPSN() (uint32, error) {
	var b [4]byte
	_, err := rand.Read(b[:])
	return binary.BigEndian.Uint32(b[:]) & (1<<24 - 1), err
}

// connect joins the queue pair with the peer's.
func (s *slot) connect(ours, theirs qpEnd) error {
	c := s.c
	err := s.qp.Connect(verbs.Connect{
		Path:   c.t.o.path(c.local, &c.way, c.remote.lid, ours.psn),
		PeerQP: theirs.number, SendPSN: ours.psn, ReceivePSN: theirs.psn,
		ReadsOut: c.readsOut, ReadsIn: 1,
		TimeoutLog2: c.t.o.Timeout, RetryCount: c.t.o.RetryCount, RNRRetry: c.t.o.RNRRetry, MinRNRTimer: minRNRTimer,
	})
	if err != nil {
		return connectError(err, c.local.String(), c.remote.String(), &c.way)
	}
	return nil
}

const (
	hopLimit    = 64
	minRNRTimer = 12 // 0.64 ms
)

// path is the way to the peer as verbs want it.
func (o *Options) path(local *port, w *way, lid uint16, entropy uint32) verbs.Path {
	return verbs.Path{
		Port: local.number, GIDIndex: w.local.index, Global: w.global, GID: w.remote.raw(), LID: lid,
		HopLimit: hopLimit, TClass: o.TrafficClass, ServiceLevel: o.ServiceLevel, MTU: w.mtu,
		// Routers and bonds spread flows by it; RoCE v2 makes the UDP source port of it.
		FlowLabel: entropy & (1<<20 - 1),
	}
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
		return fmt.Errorf("rdma: dial: the transport is %w", net.ErrClosed)
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

// enter gives the queue pair's completions a way to it.
func (d *device) enter(s *slot) {
	d.qmu.Lock()
	defer d.qmu.Unlock()
	for d.serial++; d.slots[d.serial] != nil; {
		d.serial++
	}
	s.serial = d.serial
	d.slots[s.serial] = s
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

// giveUp ends a connection that live does not look after.
func (c *conn) giveUp() {
	c.cancel()
	for _, s := range c.slots {
		s.destroy()
	}
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

// replace makes another queue pair for one that a refused request has broken, in a
// goroutine of its own. mu is held, and nothing is on the old one any more.
func (s *slot) replace() {
	s.state = slotReplacing
	for ; s.posted != s.tail; s.posted++ { // built, and never given to the device
		f := &s.flights[s.place(s.posted)]
		if s.bytes -= f.bytes; f.op != nil {
			f.op.again = true
			s.endWork(f.op)
		}
		*f = flight{}
	}
	s.head, s.probing = s.tail, false
	s.c.repairs.Go(func() {
		if err := s.renew(); err != nil {
			s.c.lose(err)
		}
	})
}

// doubtTime is how long the peer may take to say whether its end is broken. It keeps
// the loss of the connection from being known.
const doubtTime = time.Second

// renew destroys the old queue pair and joins a new one.
func (s *slot) renew() error {
	c := s.c
	s.destroy()
	ours, err := s.make()
	if err != nil {
		return err
	}
	ask, limit := &request{kind: askReplace, slot: uint8(s.index), qps: []qpEnd{ours}}, c.t.o.ArriveTime
	if s.doubt != nil {
		ask.kind, limit = askRenew, doubtTime
	}
	ctx, cancel := context.WithTimeout(c.ctx, limit)
	defer cancel()
	got, err := c.ask(ctx, ask)
	if err != nil && s.doubt != nil {
		return s.doubt
	}
	if err != nil {
		return &PortError{Local: c.local.String(), Remote: c.remote.String(), What: "a queue pair that a refused request had broken was not replaced", Err: err}
	}
	if err := s.connect(ours, got.qps[0]); err != nil {
		return err
	}
	c.dev.enter(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	s.head, s.posted, s.tail = 0, 0, 0
	s.state, s.doubt = slotReady, nil
	s.postHeld()
	s.flush()
	c.deliver()
	return nil
}
