package shm

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/internal/base/engine/memory"
)

const (
	// A window has as many slots as keep copies of the device and of the requester's
	// processors going at the same time.
	windowSlots = 8
	// How long a window is its connection's at least, although others wait for one, since
	// making another costs milliseconds: in use, when nothing is copied through it any
	// more, and before the first use.
	keepFor    = 50 * time.Millisecond
	keepIdle   = 2 * time.Millisecond
	keepUnused = 500 * time.Millisecond
)

// room is where windows into the memory of one device come from: pinned memory that a
// peer maps, so it is one connection's and never another's afterwards. All windows
// together have no more slots than the device's own pool for peers. Who finds none
// waits, and the one that was given longest ago is taken back.
//
// Its goroutine alone makes windows and ends them, for the driver takes its time.
type room struct {
	pinned *memory.Pinned // of the device
	poke   chan struct{}

	mu      sync.Mutex
	slots   int      // that there are
	waiting []*lease // connections without a window that want one
	given   []*slots // windows, in the order in which they were given
	over    []*slots // through which nothing is copied any more
	closed  bool
	errs    []error // of ending windows
}

// slots are the memory of a window.
type slots struct {
	number uint64 // of the connection's windows
	lease  *lease
	memory *memory.Window
	since  time.Time
	// idle is when the last copy was over, in Unix nanoseconds; 0: one runs, -1: there was
	// none yet.
	idle atomic.Int64

	// Under the connection's mutex.
	moves   []*passiveMove // by slot
	running int            // that are being copied
	back    bool           // no others begin
}

// roomOf is the room of a device.
func (t *Transport) roomOf(d memory.DeviceMemory) *room {
	pinned := d.Pinned()
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rooms[pinned]
	if r == nil {
		r = &room{pinned: pinned, poke: make(chan struct{}, 1), closed: t.closed}
		t.rooms[pinned] = r
		t.wg.Go(r.run)
	}
	return r
}

func (r *room) wake() {
	select {
	case r.poke <- struct{}{}:
	default: // it is awake
	}
}

// want queues a connection for a window.
func (r *room) want(l *lease) {
	r.mu.Lock()
	r.waiting = append(r.waiting, l)
	r.mu.Unlock()
	r.wake()
}

// end takes a window back through which nothing is copied.
func (r *room) end(s *slots) {
	r.mu.Lock()
	r.over = append(r.over, s)
	r.given = slices.DeleteFunc(r.given, func(x *slots) bool { return x == s })
	r.mu.Unlock()
	r.wake()
}

// forget ends the wait of a connection.
func (r *room) forget(l *lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = slices.DeleteFunc(r.waiting, func(x *lease) bool { return x == l })
}

// close ends the room when the last window has come back: transports' wait group tells.
func (r *room) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.wake()
}

// run is the room's goroutine.
func (r *room) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait, over := r.step()
		if over {
			return
		}
		timer.Reset(wait)
		select {
		case <-r.poke:
		case <-timer.C:
		}
	}
}

// step does all that is possible at the moment, and says when to look again, or that
// there will be nothing more to do.
func (r *room) step() (wait time.Duration, over bool) {
	const idle = time.Hour
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		switch {
		case len(r.over) > 0:
			s := r.over[0]
			r.over = r.over[1:]
			r.mu.Unlock()
			err := s.memory.Free()
			r.mu.Lock()
			r.slots -= s.memory.Buffers()
			if err != nil {
				r.errs = append(r.errs, err)
			}
		case r.closed && r.slots == 0:
			return 0, true
		case len(r.waiting) == 0 || r.closed:
			return idle, false
		case r.slots+r.share() <= r.pinned.Buffers():
			r.give()
		case len(r.given) == 0: // those that were taken back still have copies running
			return idle, false
		default:
			s, rest := r.next(time.Now())
			if rest > 0 {
				return min(rest, keepIdle), false
			}
			r.given = slices.DeleteFunc(r.given, func(x *slots) bool { return x == s })
			r.mu.Unlock()
			s.lease.takeBack(s)
			r.mu.Lock()
		}
	}
}

// next is the window that can be taken back first, and how long it is kept. mu is held.
func (r *room) next(now time.Time) (first *slots, rest time.Duration) {
	for _, s := range r.given {
		if keep := s.until().Sub(now); first == nil || keep < rest {
			first, rest = s, keep
		}
	}
	return first, rest
}

// until is how long a window is kept although others wait.
func (s *slots) until() time.Time {
	most := s.since.Add(keepFor)
	switch idle := s.idle.Load(); {
	case idle < 0:
		return s.since.Add(keepUnused)
	case idle == 0:
		return most
	default:
		if soon := time.Unix(0, idle).Add(keepIdle); soon.Before(most) {
			return soon
		}
		return most
	}
}

// share is how many slots a window has: a quarter of all where these are few, at least
// two. A pool has two buffers or more.
func (r *room) share() int { return min(windowSlots, max(r.pinned.Buffers()/4, 2)) }

// give makes a window for the first that waits. mu is held, but not meanwhile.
func (r *room) give() {
	l := r.waiting[0]
	r.waiting = r.waiting[1:]
	count := r.share()
	r.slots += count
	r.mu.Unlock()
	s, err := newSlots(l, count)
	r.mu.Lock()
	if err != nil {
		r.slots -= count
	} else {
		r.given = append(r.given, s)
	}
	r.mu.Unlock()
	if !l.got(s, err) && s != nil {
		r.end(s)
	}
	r.mu.Lock()
}

// newSlots makes a window.
func newSlots(l *lease, count int) (*slots, error) {
	window, err := l.room.pinned.Window(count)
	if err != nil {
		return nil, err
	}
	s := &slots{lease: l, memory: window, moves: make([]*passiveMove, count), since: time.Now()}
	s.idle.Store(-1)
	return s, nil
}
