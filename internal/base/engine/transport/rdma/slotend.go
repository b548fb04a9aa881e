package rdma

import (
	"errors"
	"fmt"
	"time"

	"github.com/topoctl/topoctl/internal/base/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
	"github.com/topoctl/topoctl/internal/base/verbs"
)

// failed takes a completion that is not good.
func (s *slot) failed(f *flight, wc *verbs.WC) {
	c := s.c
	switch {
	case c.closed || s.state != slotReady:
	case f.op != nil && wc.Status == verbs.WCRemoteAccess:
		c.forget(f.rmt)
		f.op.err = fmt.Errorf("rdma: %w: region %#x: %w: %w", transport.ErrRefused, uint64(f.rmt.ID), memory.ErrNoRegion,
			statusError(*wc, c.local.String(), c.remote.String()))
		s.state = slotDraining
	case f.op != nil && (wc.Status == verbs.WCLocalProt || wc.Status == verbs.WCLocalAccess) && c.dev.mrOf(f.local) == nil:
		f.op.err = fmt.Errorf("rdma: %w: local region %q: %w: %w", transport.ErrRefused, f.local.Name(), memory.ErrClosed,
			statusError(*wc, c.local.String(), c.remote.String()))
		s.state = slotDraining
	case f.op != nil && wc.Status == verbs.WCRetryExceeded && f.op.req.Op == transport.Read && f.op.doubt == 0:
		// rxe's answer to a READ whose region is taken away in the midst of it is dropped by
		// the requester as old (seen on Linux 6.1): the peer knows whether it was that.
		f.op.doubt++
		s.doubt = statusError(*wc, c.local.String(), c.remote.String())
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
	case !o.again && s.c.dev.doubtsReads && o.req.Op == transport.Read:
		s.unsure.push(o)
	case !o.again:
		s.c.finish(o, nil, false)
	case s.c.closed:
		s.c.finish(o, s.c.closedError(), o.tried)
	default:
		o.again = false
		s.held.push(o)
	}
}

// isLocal says whether a request failed for its own memory.
func isLocal(err error) bool { return errors.Is(err, memory.ErrClosed) }

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
	s.believe(false)
	for o := s.held.pop(); o != nil; o = s.held.pop() {
		s.c.finish(o, s.c.closedError(), o.tried)
	}
}
