//go:build cgo && linux && (amd64 || arm64)

package rdma

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport"
)

const (
	// briefTime is how long a waiter polls before it sleeps.
	briefTime = 20 * time.Microsecond
	// yieldTime is how long a leader may go on without Go's scheduler. Go takes the
	// processor from a goroutine after 10 ms, also where its thread sleeps in the kernel,
	// and then the thread that watches for that is woken each time, too.
	yieldTime = 4 * time.Millisecond
)

// Who reads a device's completion channel.
const (
	byPoller uint32 = iota // its own goroutine
	byLeader               // a goroutine that waits for a request
	byNobody               // nothing is posted, or the poster is about to lead
)

// reading says who takes a device's completions when they come. The poller does, unless
// somebody waits for one: then that one leads, and sleeps in its place. So a completion
// wakes one thread, and the waiter goes on at once. After that nobody reads, until
// something is posted: a goroutine that waits for one request after the other always leads.
type reading struct {
	leading sync.Mutex   // of the leader
	wake    func()       // wakes the leader
	yielded time.Time    // the leader has let others run
	flying  atomic.Int64 // work requests that the device has

	change sync.Mutex // of by, and of the poller's place at the channel
	by     atomic.Uint32
}

// sent counts work requests that are about to be posted, and has somebody read what
// comes of them.
func (d *device) sent(n int, awaited bool) {
	d.flying.Add(int64(n))
	if !awaited {
		d.attend()
	}
}

// attend has the poller read where nobody does.
func (d *device) attend() {
	if d.by.Load() != byNobody {
		return
	}
	d.change.Lock()
	defer d.change.Unlock()
	if d.by.Load() != byNobody {
		return
	}
	d.by.Store(byPoller)
	err := d.cq.Arm()
	if err == nil {
		err = d.cq.Unlead()
	}
	if err != nil {
		d.cq.Wake() // it sees the error too
	}
}

// leadFor takes completions for a waiter, unless another goroutine does, which takes its
// completions, too.
func (d *device) leadFor(w transport.Waiter) {
	if w.Over() && d.by.Load() != byNobody || !d.leading.TryLock() {
		return
	}
	defer d.leading.Unlock()
	if !d.takeOver() {
		return // it is being closed
	}
	d.lead(w)
	d.by.Store(byNobody)
	if d.flying.Load() == 0 {
		return
	}
	d.attend()
	if n, err := d.take(false); n > 0 || err != nil {
		d.cq.Wake() // what came before the queue was armed gives no event
	}
}

// takeOver puts the leader in the poller's place.
func (d *device) takeOver() bool {
	d.change.Lock()
	defer d.change.Unlock()
	if d.by.Load() == byPoller && d.cq.Lead() != nil {
		return false
	}
	d.by.Store(byLeader)
	return true
}

// lead returns when the wait is over, or where something is wrong, which the poller
// sees too.
func (d *device) lead(w transport.Waiter) {
	began, polls := time.Now(), w.Brief()
	for !d.stop.Load() && !w.Over() {
		n, err := d.take(false)
		if err != nil {
			return
		}
		if polls = polls && time.Since(began) < briefTime; n > 0 || polls {
			continue
		}
		if time.Since(d.yielded) > yieldTime {
			runtime.Gosched()
			d.yielded = time.Now()
		}
		n, err = d.take(true)
		if n > 0 {
			continue
		}
		if err != nil || !w.Asleep(d.wake) {
			return
		}
		err = d.cq.LeaderWait()
		w.Asleep(nil)
		if err != nil {
			return
		}
	}
}

// idlePolls is how often the poller looks at an empty queue before it sleeps: some
// 10 µs, less than waking up costs.
const idlePolls = 20

// poll takes the device's completions and sleeps on the completion channel while there
// are none.
func (d *device) poll() {
	left := 0
	for !d.stop.Load() {
		n, err := d.take(false)
		switch {
		case err != nil:
			d.lose(&PortError{Local: d.name, What: "completions cannot be taken", Advice: "see the kernel log; the device is opened again", Err: err})
			d.sleepUntilStopped()
			return
		case n > 0:
			left = idlePolls
		case left > 0:
			left--
			runtime.Gosched()
		default:
			n, err := d.take(true) // what came before it was armed gives no event
			if err == nil && n == 0 {
				err = d.cq.Wait()
			}
			if err != nil && !d.stop.Load() {
				d.lose(&PortError{Local: d.name, What: "completions cannot be waited for", Advice: "see the kernel log; the device is opened again", Err: err})
				d.sleepUntilStopped()
				return
			}
		}
	}
}

// sleepUntilStopped keeps the poller for the device's close, which wakes it.
func (d *device) sleepUntilStopped() {
	for !d.stop.Load() {
		if err := d.cq.Wait(); err != nil {
			return
		}
	}
}

// take takes some completions and reports them, after it has armed the queue where that
// is wanted.
func (d *device) take(arm bool) (int, error) {
	d.turn.Lock()
	defer d.turn.Unlock()
	if arm {
		if err := d.cq.Arm(); err != nil {
			return 0, err
		}
	}
	return d.takeLocked()
}

// takeLocked is for whoever has the turn.
func (d *device) takeLocked() (int, error) {
	stale := d.stale.Swap(0)
	n, err := d.cq.Poll(d.wcs[:])
	if n == len(d.wcs) || err != nil {
		d.stale.Add(stale) // there may be more
	} else if stale > 0 {
		d.emptied(stale)
	}
	if n == 0 || err != nil {
		return 0, err
	}
	d.qmu.RLock()
	var locked *conn // is locked
	for i := range d.wcs[:n] {
		s := d.slots[uint32(d.wcs[i].ID>>32)]
		if s == nil {
			continue // its queue pair was destroyed
		}
		if s.c != locked {
			if locked != nil {
				locked.mu.Unlock()
			}
			locked = s.c
			locked.mu.Lock()
			d.touched = append(d.touched, locked)
		}
		s.ended(&d.wcs[i])
	}
	if locked != nil {
		locked.mu.Unlock()
	}
	d.qmu.RUnlock()
	for i, c := range d.touched {
		c.mu.Lock()
		c.deliver()
		c.mu.Unlock()
		d.touched[i] = nil
	}
	d.touched = d.touched[:0]
	return n, nil
}
