//go:build cgo && linux && (amd64 || arm64)

package verbs

// #include <stdlib.h>
// #include "calls.h"
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// CQ is a completion queue with a completion channel of its own.
type CQ struct {
	dev    *Device
	events *channel
	// take and sleep give an event of ch, sleep waits for one in the kernel.
	take, sleep func() C.int

	end  sync.RWMutex // held for writing to end cq and channel, for reading by slow users
	ch   *C.struct_tv_channel
	uses atomic.Int32 // queue pairs that complete here

	mu sync.Mutex // the hot calls: cq and wc
	cq *C.struct_tv_cq
	wc *[MaxBatch]C.struct_tv_wc // C memory
}

// NewCQ makes a completion queue for at least that many completions. More than are ever
// outstanding at a time: a queue that overflows is dead.
func (d *Device) NewCQ(entries int) (*CQ, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.ctx == nil {
		return nil, ErrClosed
	}
	what := fmt.Sprintf("%d entries", entries)
	if entries < 1 || entries > d.limits.MaxCQE {
		return nil, &Error{Verb: "ibv_create_cq", Device: d.name, What: what, Errno: syscall.EINVAL,
			Advice: fmt.Sprintf("this device takes 1 to %d", d.limits.MaxCQE)}
	}
	var ch *C.struct_tv_channel
	if rc := C.tv_create_channel(d.lib.c, d.ctx, &ch); rc != 0 {
		return nil, d.failed(rc, "ibv_create_comp_channel", "")
	}
	if ch.context != d.ctx {
		return nil, d.wrong("ibv_comp_channel.context is another one")
	}
	events, err := newChannel(int(ch.fd), d.name+" completions")
	if err != nil {
		C.tv_destroy_channel(d.lib.c, ch)
		return nil, err
	}
	vector := (d.vector.Add(1) - 1) % uint32(d.limits.CompVectors)
	var cq *C.struct_tv_cq
	if rc := C.tv_create_cq(d.lib.c, d.ctx, C.int(entries), ch, C.int(vector), &cq); rc != 0 {
		events.close()
		C.tv_destroy_channel(d.lib.c, ch)
		return nil, d.failed(rc, "ibv_create_cq", what)
	}
	if cq.context != d.ctx || cq.channel != ch || int(cq.cqe) < entries {
		events.close()
		return nil, d.wrong("ibv_cq.context, .channel or .cqe is not what was asked for")
	}
	d.uses.Add(1)
	q := &CQ{dev: d, events: events, ch: ch, cq: cq,
		wc: (*[MaxBatch]C.struct_tv_wc)(C.calloc(MaxBatch, C.sizeof_struct_tv_wc))}
	get := func() C.int { return C.tv_take_cq_event(d.lib.c, ch) }
	q.take = func() C.int { return events.take(get) }
	q.sleep = func() C.int { return C.tv_wait_cq_event(d.lib.c, ch, C.int(events.wake)) }
	return q, nil
}

// Poll takes up to MaxBatch completions, with one call into C, and says how many.
func (q *CQ) Poll(out []WC) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.cq == nil {
		return 0, ErrClosed
	}
	if len(out) == 0 {
		return 0, nil
	}
	n := int(C.tv_poll_cq(q.cq, C.int(min(len(out), MaxBatch)), &q.wc[0]))
	if n < 0 {
		return 0, q.dev.failed(C.int(-n), "ibv_poll_cq", "")
	}
	for i := range n {
		w := &q.wc[i]
		out[i] = WC{ID: uint64(w.wr_id), Status: WCStatus(w.status), VendorErr: uint32(w.vendor_err), QPNum: uint32(w.qp_num)}
	}
	return n, nil
}

// Arm asks for one event at the next completion. Those that came before it give none:
// poll once more after Arm and before Wait.
func (q *CQ) Arm() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.cq == nil {
		return ErrClosed
	}
	if rc := C.tv_req_notify_cq(q.cq); rc != 0 {
		return q.dev.failed(rc, "ibv_req_notify_cq", "")
	}
	return nil
}

// Wait sleeps in Go's net poller until an event has come or Wake was called; the event is
// acknowledged. ErrClosed after Close. Several that wait take turns. It is for the queue's
// owner, who is told of no event while somebody leads.
func (q *CQ) Wait() error {
	rc, err := q.events.owner.wait(q.take)
	if errors.Is(err, errWoken) {
		return nil
	}
	return q.event(rc, err)
}

// event is how waiting for an event ended.
func (q *CQ) event(rc C.int, err error) error {
	if err == nil && rc != 0 {
		return q.dev.failed(rc, "ibv_get_cq_event", "")
	}
	return err
}

// Wake ends a Wait, the one in progress or the next.
func (q *CQ) Wake() { q.events.owner.wake() }

// Lead has events wake LeaderWait, and not Wait, until Unlead. One leads at a time.
func (q *CQ) Lead() error { return q.events.setLed(true) }

// Unlead ends Lead. An event that nobody has taken wakes Wait then.
func (q *CQ) Unlead() error { return q.events.setLed(false) }

// LeaderWait is Wait for the leader. It sleeps in the kernel, with its thread: that wakes
// sooner, and is for one at a time. It may come back without an event.
func (q *CQ) LeaderWait() error {
	rc, err := q.events.lead(q.sleep)
	if err == nil && again(rc) {
		return nil
	}
	return q.event(rc, err)
}

// LeaderWake ends a LeaderWait, the one in progress or the next.
func (q *CQ) LeaderWake() { q.events.wakeLeader() }

// Close wakes Wait and LeaderWait for good and ends the queue. EBUSY: its queue pairs must be destroyed
// before; then all but these still works.
func (q *CQ) Close() error {
	q.events.close()
	q.end.Lock()
	defer q.end.Unlock()
	if q.ch == nil {
		return nil
	}
	if n := q.uses.Load(); n != 0 {
		return q.dev.busy("ibv_destroy_cq", fmt.Sprintf("%d queue pairs complete there", n))
	}
	if err := q.destroy(); err != nil {
		return err
	}
	rc := C.tv_destroy_channel(q.dev.lib.c, q.ch)
	switch {
	case rc == C.int(syscall.EBUSY) && q.dev.gone.Load():
		C.tv_drop_channel(q.ch) // the library does not know that the queue is gone
	case rc != 0:
		return q.dev.failed(rc, "ibv_destroy_comp_channel", "")
	}
	q.ch = nil
	q.dev.uses.Add(-1)
	return nil
}

// destroy ends the queue itself; the caller holds end.
func (q *CQ) destroy() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.cq == nil {
		return nil // the channel alone is left
	}
	if rc := C.tv_destroy_cq(q.dev.lib.c, q.cq); !q.dev.ended(rc) {
		return q.dev.failed(rc, "ibv_destroy_cq", "")
	}
	q.cq = nil
	C.free(unsafe.Pointer(q.wc))
	q.wc = nil
	return nil
}
