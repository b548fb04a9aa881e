package rdma

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/internal/base/engine/transport"
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
	byLeader               // somebody who waits for a request
	byNobody               // nothing is posted, or who has posted it is about to lead
)

// reading says who takes a device's completions when they come. The poller does, unless
// somebody waits for one: then that one leads, and sleeps in its place. So a completion
// wakes one thread, and who waits for it goes on at once. After that nobody reads, until
// something is posted: who waits for one request after the other always leads.
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

// leadFor takes completions for somebody who waits, unless others do: they take his, too.
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
