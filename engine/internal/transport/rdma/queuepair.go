//go:build cgo && linux && (amd64 || arm64)

package rdma

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/verbs"
)

type slotState uint8

const (
	slotReady     slotState = iota
	slotDraining            // a request was refused: what is behind it comes back
	slotReplacing           // nothing is left on it, and another queue pair is made
	slotWaiting             // it failed, and what it failed of is being found out
)

// flight is a work request of the ring.
type flight struct {
	op    *op                     // nil: a probe
	rmt   *transport.RemoteRegion // that it touches
	local *memory.Region
	bytes int64
	shift uint64 // from the device's addresses of the local bytes to the process's; 0: it has no addresses for them
}

// slot is a place for a queue pair of a connection. All is under the connection's mu.
type slot struct {
	c      *conn
	index  int
	serial uint32 // in the work requests' IDs: completions of earlier ones are not taken for ours
	qp     *verbs.QP
	number uint32
	state  slotState
	heard  bool // something has come since the last keepAlive

	probing bool // a probe is on the ring, one at most

	// A ring of work requests, as they were built: head is the oldest that has not ended,
	// posted the first that the device has not got, tail the next that is built.
	head, posted, tail uint32
	wrs                []verbs.SendWR
	sges               []verbs.SGE
	flights            []flight
	sgeMax             int
	bytes              int64 // on their way

	suspected error // why it is replaced, if that is not sure
	parked    ops   // to be posted when the queue pair has been replaced

	unproven ops // READs that the device calls done: see proveRead
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

// makeRing has room for the depth, and for a probe.
func (s *slot) makeRing(depth, sge int) {
	s.wrs = make([]verbs.SendWR, depth+1)
	s.flights = make([]flight, depth+1)
	s.sges = make([]verbs.SGE, (depth+1)*sge)
	s.sgeMax = sge
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

// raw is the address as it is in packets.
func (g gid) raw() (b [16]byte) {
	if g.addr.IsValid() {
		b = g.addr.As16()
	}
	return b
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

func (s *slot) place(seq uint32) int { return int(seq % uint32(len(s.wrs))) }

// fits says whether there is room for that many work requests, beside the probe's place.
func (s *slot) fits(need int) bool {
	used := int(s.tail - s.head)
	if s.probing {
		used--
	}
	return used+need < len(s.wrs)
}

// add puts a request on the ring, or behind those that wait for the replacement. With
// an error nothing was.
func (s *slot) add(o *op) error {
	if s.state != slotReady {
		s.parked.push(o)
		return nil
	}
	before := s.tail
	if err := s.build(o); err != nil {
		for s.tail != before {
			s.tail--
			f := &s.flights[s.place(s.tail)]
			s.bytes -= f.bytes
			*f = flight{}
		}
		return err
	}
	o.left = int(s.tail - before)
	if s.c.t.o.Inline > 0 && o.req.Op == transport.Write {
		s.inline(before)
	}
	return nil
}

// build makes the work requests of a request.
func (s *slot) build(o *op) error {
	r := o.req
	first := s.tail
	for i := range r.Spans {
		span := &r.Spans[i]
		rmt := s.c.remoteOf(span.Remote)
		if err := rmt.refuse(r.Op, span); err != nil {
			return err
		}
		m := s.c.dev.mrOf(span.Local)
		if m == nil {
			return pkgerr.Errorf("rdma", "%w: local region %q is not registered with %s: %w", transport.ErrRefused, span.Local.Name(), s.c.dev.name, memory.ErrClosed)
		}
		s.cut(o, first, span, rmt, m)
	}
	return nil
}

// cut makes work requests of a span, or adds it to the last one where it goes on there.
func (s *slot) cut(o *op, first uint32, span *transport.Span, rmt *remoteRegion, m *mr) {
	local, remote := m.iova+uint64(span.LocalOffset), rmt.iova+uint64(span.RemoteOffset)
	for left := span.Bytes; left > 0; {
		n := int64(0)
		if s.tail != first {
			n = s.extend(local, remote, left, rmt, m, span)
		}
		if n == 0 {
			n = min(left, s.c.maxMsg)
			s.begin(o, local, remote, n, rmt, m, span)
		}
		local, remote, left = local+uint64(n), remote+uint64(n), left-n
	}
}

// extend adds bytes to the last work request, as many as go there.
func (s *slot) extend(local, remote uint64, left int64, rmt *remoteRegion, m *mr, span *transport.Span) int64 {
	at := s.place(s.tail - 1)
	w, f := &s.wrs[at], &s.flights[at]
	n := min(left, s.c.maxMsg-f.bytes)
	if n <= 0 || f.rmt != span.Remote || w.RKey != rmt.rkey || w.RemoteAddr+uint64(f.bytes) != remote {
		return 0
	}
	last := &w.SGE[len(w.SGE)-1]
	switch {
	case last.LKey == m.lkey && last.Addr+uint64(last.Length) == local && f.local == span.Local:
		last.Length += uint32(n)
	case len(w.SGE) < s.sgeMax && f.local == span.Local:
		w.SGE = append(w.SGE, verbs.SGE{Addr: local, Length: uint32(n), LKey: m.lkey})
	default:
		return 0
	}
	f.bytes += n
	s.bytes += n
	return n
}

// begin makes a new work request.
func (s *slot) begin(o *op, local, remote uint64, n int64, rmt *remoteRegion, m *mr, span *transport.Span) {
	at := s.place(s.tail)
	sge := s.sges[at*s.sgeMax : at*s.sgeMax : (at+1)*s.sgeMax]
	code := verbs.OpRDMAWrite
	if o.req.Op == transport.Read {
		code = verbs.OpRDMARead
	}
	s.wrs[at] = verbs.SendWR{
		ID: uint64(s.serial)<<32 | uint64(s.tail), Opcode: code, RemoteAddr: remote, RKey: rmt.rkey,
		SGE: append(sge, verbs.SGE{Addr: local, Length: uint32(n), LKey: m.lkey}),
	}
	s.flights[at] = flight{op: o, rmt: span.Remote, local: span.Local, bytes: n, shift: m.shift}
	s.tail++
	s.bytes += n
}

// inline has the bytes of short WRITEs copied when they are posted.
func (s *slot) inline(first uint32) {
	for seq := first; seq != s.tail; seq++ {
		w, f := &s.wrs[s.place(seq)], &s.flights[s.place(seq)]
		if f.bytes > int64(s.c.t.o.Inline) || f.shift == 0 {
			continue
		}
		w.Inline = true
		for i := range w.SGE {
			w.SGE[i].Addr += f.shift
		}
	}
}

// probe posts a WRITE of no bytes, which needs no memory and tells whether the peer's
// end answers (InfiniBand Architecture Specification C9-88).
func (s *slot) probe() {
	s.addProbe()
	s.flush()
}

// addProbe puts it on the ring.
func (s *slot) addProbe() {
	at := s.place(s.tail)
	s.wrs[at] = verbs.SendWR{ID: uint64(s.serial)<<32 | uint64(s.tail), Opcode: verbs.OpRDMAWrite}
	s.flights[at] = flight{}
	s.tail++
	s.probing = true
}

// flush gives the device what was built.
func (s *slot) flush() {
	if s.state == slotReady && !s.c.closed {
		s.proveRead()
	}
	for s.posted != s.tail && s.state == slotReady && !s.c.closed {
		from := s.place(s.posted)
		n := min(int(s.tail-s.posted), len(s.wrs)-from, verbs.MaxBatch)
		s.c.dev.sent(n, s.c.awaited)
		taken, err := s.qp.Post(s.wrs[from : from+n])
		s.c.dev.flying.Add(int64(taken - n))
		for i := range taken {
			if o := s.flights[from+i].op; o != nil {
				o.tried = true
			}
		}
		s.posted += uint32(taken)
		switch {
		case err != nil:
			s.c.shutLocked(&PortError{Local: s.c.local.String(), Remote: s.c.remote.String(), What: "the device takes no requests",
				Advice: resourceAdvice(err), Err: err}, false)
			return
		case taken < n && s.head == s.posted:
			s.c.shutLocked(&PortError{Local: s.c.local.String(), Remote: s.c.remote.String(),
				What: "the device takes no request, and has none", Advice: "see the kernel log"}, false)
			return
		case taken < n:
			return // completions make room
		}
	}
}

// ended takes the completion of the oldest work request.
func (s *slot) ended(wc *verbs.WC) {
	c := s.c
	if uint32(wc.ID>>32) != s.serial {
		return // of a queue pair that was here before
	}
	s.heard = true
	if uint32(wc.ID) != s.head || s.head == s.posted {
		c.shutLocked(&PortError{Local: c.local.String(), Remote: c.remote.String(),
			What: fmt.Sprintf("the device completed work request %d, and %d to %d were its", uint32(wc.ID), s.head, s.posted), Advice: "its driver does not work"}, false)
		return
	}
	f := s.flights[s.place(s.head)]
	s.flights[s.place(s.head)] = flight{}
	s.head++
	c.dev.flying.Add(-1)
	s.bytes -= f.bytes
	s.probing = s.probing && f.op != nil
	s.settleUnproven(wc.Status != verbs.WCFlushed)
	if wc.Status != verbs.WCSuccess {
		s.failed(&f, wc)
	} else if f.op == nil {
		s.answered()
	}
	if f.op != nil {
		s.endWork(f.op)
	}
	switch {
	case c.closed:
	case s.state == slotDraining && s.head == s.posted:
		s.replace()
	default:
		s.postParked()
		s.flush()
	}
}

// answered notes that the first probe of a new connection came back.
func (s *slot) answered() {
	c := s.c
	if c.waking > 0 {
		if c.waking--; c.waking == 0 {
			close(c.alive)
		}
	}
}

// failed takes a completion that is not good.
func (s *slot) failed(f *flight, wc *verbs.WC) {
	c := s.c
	switch {
	case c.closed || s.state != slotReady:
	case f.op != nil && wc.Status == verbs.WCRemoteAccess:
		c.forget(f.rmt)
		f.op.err = pkgerr.Errorf("rdma", "%w: region %#x: %w: %w", transport.ErrRefused, uint64(f.rmt.ID), memory.ErrNoRegion,
			statusError(*wc, c.local.String(), c.remote.String()))
		s.state = slotDraining
	case f.op != nil && (wc.Status == verbs.WCLocalProt || wc.Status == verbs.WCLocalAccess) && c.dev.mrOf(f.local) == nil:
		f.op.err = pkgerr.Errorf("rdma", "%w: local region %q: %w: %w", transport.ErrRefused, f.local.Name(), memory.ErrClosed,
			statusError(*wc, c.local.String(), c.remote.String()))
		s.state = slotDraining
	case f.op != nil && wc.Status == verbs.WCRetryExceeded && f.op.req.Op == transport.Read && f.op.timeouts == 0:
		// rxe's answer to a READ whose region is taken away in the midst of it is dropped by
		// the requester as old (seen on Linux 6.1): the peer knows whether it was that.
		f.op.timeouts++
		s.suspected = statusError(*wc, c.local.String(), c.remote.String())
		s.state = slotDraining
	case wc.Status == verbs.WCFlushed || wc.Status == verbs.WCLocalQPOp:
		s.state = slotWaiting
		s.findReason(statusError(*wc, c.local.String(), c.remote.String()))
	default:
		c.shutLocked(statusError(*wc, c.local.String(), c.remote.String()), false)
	}
	if f.op != nil {
		f.op.again = true
	}
}

// reasonTime is how long an event is waited for that says why a queue pair failed.
const reasonTime = 100 * time.Millisecond

// findReason ends the connection, with a better reason than a device that only says that
// the queue pair does not work: its port or address may be gone, or an event on its
// way. mu is held.
func (s *slot) findReason(otherwise error) {
	c := s.c
	c.repairs.Go(func() {
		wait := time.NewTimer(reasonTime)
		defer wait.Stop()
		c.dev.reread()
		select {
		case <-c.closing:
		case <-wait.C:
			c.dev.reread()
			c.lose(otherwise)
		}
	})
}

// endWork counts one work request of a request off.
func (s *slot) endWork(o *op) {
	if o.left--; o.left == 0 {
		s.settle(o)
	}
}

// settle ends a request that nothing is left of on the ring, or has it wait.
func (s *slot) settle(o *op) {
	switch {
	case o.err != nil:
		// What the peer's device refused has not landed and will not. Of a request whose own
		// memory was taken away some packets may be on their way.
		s.c.finish(o, o.err, isLocal(o.err))
	case !o.again && s.c.dev.unprovenReads && o.req.Op == transport.Read:
		s.unproven.push(o)
	case !o.again:
		s.c.finish(o, nil, false)
	case s.c.closed:
		s.c.finish(o, s.c.closedError(), o.tried)
	default:
		o.again = false
		s.parked.push(o)
	}
}

// isLocal says whether a request failed for its own memory.
func isLocal(err error) bool { return errors.Is(err, memory.ErrClosed) }

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

// confirmTime is how long the peer may take to say whether its end is broken. It keeps
// the loss of the connection from being known.
const confirmTime = time.Second

// renew destroys the old queue pair and joins a new one.
func (s *slot) renew() error {
	c := s.c
	s.destroy()
	ours, err := s.make()
	if err != nil {
		return err
	}
	ask, limit := &request{kind: askReplace, slot: uint8(s.index), qps: []qpEnd{ours}}, c.t.o.ArriveTime
	if s.suspected != nil {
		ask.kind, limit = askRenew, confirmTime
	}
	ctx, cancel := context.WithTimeout(c.ctx, limit)
	defer cancel()
	got, err := c.ask(ctx, ask)
	if err != nil && s.suspected != nil {
		return s.suspected
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
	s.state, s.suspected = slotReady, nil
	s.postParked()
	s.flush()
	c.deliver()
	return nil
}

// postParked builds the requests that have waited, as room comes.
func (s *slot) postParked() {
	for s.state == slotReady && s.parked.first != nil && s.fits(s.c.need(s.parked.first.req)) {
		o := s.parked.pop()
		err := s.add(o)
		if err != nil || o.left == 0 {
			s.c.finish(o, err, o.tried && isLocal(err))
		}
	}
}

// setError has the device give back what is posted.
func (s *slot) setError() {
	if s.qp != nil {
		_ = s.qp.SetError() // Destroy comes in any case
	}
}

// destroy ends the queue pair, and waits for that.
func (s *slot) destroy() {
	if s.qp == nil {
		return
	}
	depth := len(s.wrs)
	err := s.c.dev.freeQP(s.qp, depth)
	for i := 0; err != nil && s.c.t.retry(i); i++ {
		err = s.c.dev.freeQP(s.qp, depth)
	}
	if err != nil { // closing the device says so
		s.c.dev.uncount(depth)
	}
	s.c.dev.qmu.Lock()
	delete(s.c.dev.slots, s.serial)
	s.c.dev.qmu.Unlock()
	s.qp = nil
}

// abandon completes all that is left; the queue pair is gone.
func (s *slot) abandon() {
	s.c.dev.flying.Add(-int64(s.posted - s.head))
	for ; s.head != s.tail; s.head++ {
		f := &s.flights[s.place(s.head)]
		if f.op != nil {
			f.op.again = true
			s.endWork(f.op)
		}
		*f = flight{}
	}
	s.posted, s.bytes = s.tail, 0
	s.settleUnproven(false)
	for o := s.parked.pop(); o != nil; o = s.parked.pop() {
		s.c.finish(o, s.c.closedError(), o.tried)
	}
}
