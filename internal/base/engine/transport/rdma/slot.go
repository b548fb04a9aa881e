package rdma

import (
	"fmt"

	"github.com/topoctl/topoctl/internal/base/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
	"github.com/topoctl/topoctl/internal/base/verbs"
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
	shift uint64 // from the device's addresses of the local bytes to those of the process; 0: there are none
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

	doubt error // why it is replaced, if that is not sure
	held  ops   // to be posted when the queue pair has been replaced

	unsure ops // READs that the device calls done: see followRead
}

// makeRing has room for the depth, and for a probe.
func (s *slot) makeRing(depth, sge int) {
	s.wrs = make([]verbs.SendWR, depth+1)
	s.flights = make([]flight, depth+1)
	s.sges = make([]verbs.SGE, (depth+1)*sge)
	s.sgeMax = sge
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
		s.held.push(o)
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

// build makes the work requests of a request.
func (s *slot) build(o *op) error {
	r := o.req
	first, sum := s.tail, int64(0)
	for i := range r.Spans {
		span := &r.Spans[i]
		rmt := s.c.remoteOf(span.Remote)
		if err := rmt.refuse(r.Op, span); err != nil {
			return err
		}
		m := s.c.dev.mrOf(span.Local)
		if m == nil {
			return fmt.Errorf("rdma: %w: local region %q is not registered with %s: %w", transport.ErrRefused, span.Local.Name(), s.c.dev.name, memory.ErrClosed)
		}
		if span.LocalOffset < 0 || span.LocalOffset > span.Local.Size() || span.Bytes > span.Local.Size()-span.LocalOffset {
			return fmt.Errorf("rdma: %w: local region %q: %d bytes at %d: %w", transport.ErrRefused, span.Local.Name(), span.Bytes, span.LocalOffset, memory.ErrRange)
		}
		if sum += span.Bytes; sum > r.Bytes {
			break // the work requests that there is room for are those of r.Bytes
		}
		s.cut(o, first, span, rmt, m)
	}
	if sum != r.Bytes {
		return fmt.Errorf("rdma: %w: spans of %d bytes or more in a request of %d", transport.ErrRefused, sum, r.Bytes)
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
		s.followRead()
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
	s.believe(wc.Status != verbs.WCFlushed)
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
		s.postHeld()
		s.flush()
	}
}

// postHeld builds the requests that have waited, as room comes.
func (s *slot) postHeld() {
	for s.state == slotReady && s.held.first != nil && s.fits(s.c.need(s.held.first.req)) {
		o := s.held.pop()
		err := s.add(o)
		if err != nil || o.left == 0 {
			s.c.finish(o, err, o.tried && isLocal(err))
		}
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
