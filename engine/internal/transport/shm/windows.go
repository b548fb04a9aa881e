package shm

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/stage"
	"github.com/topoctl/topoctl/engine/internal/transport"
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

// windowPool is where windows into the memory of one device come from: pinned memory that a
// peer maps, so it is one connection's and never another's afterwards. All windows
// together have no more slots than the device's own pool for peers. Whoever finds
// none waits, and the one that was lent longest ago is taken back.
//
// Its goroutine alone makes windows and ends them, for the driver takes its time.
type windowPool struct {
	pinned *memory.Pinned // of the device
	poke   chan struct{}

	mu      sync.Mutex
	slots   int       // that there are
	waiting []*lease  // connections without a window that want one
	lent    []*window // windows, in the order in which they were lent
	over    []*window // through which nothing is copied any more
	closed  bool
	errs    []error // of ending windows
}

// window is the memory of one, and what is copied through it.
type window struct {
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

// windowsOf is the pool of a device.
func (t *Transport) windowsOf(d memory.DeviceMemory) *windowPool {
	pinned := d.Pinned()
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.windows[pinned]
	if r == nil {
		r = &windowPool{pinned: pinned, poke: make(chan struct{}, 1), closed: t.closed}
		t.windows[pinned] = r
		t.wg.Go(r.run)
	}
	return r
}

func (r *windowPool) wake() {
	select {
	case r.poke <- struct{}{}:
	default: // it is awake
	}
}

// want queues a connection for a window.
func (r *windowPool) want(l *lease) {
	r.mu.Lock()
	r.waiting = append(r.waiting, l)
	r.mu.Unlock()
	r.wake()
}

// takeIn takes a window back through which nothing is copied.
func (r *windowPool) takeIn(w *window) {
	r.mu.Lock()
	r.over = append(r.over, w)
	r.lent = slices.DeleteFunc(r.lent, func(x *window) bool { return x == w })
	r.mu.Unlock()
	r.wake()
}

// forget ends the wait of a connection.
func (r *windowPool) forget(l *lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = slices.DeleteFunc(r.waiting, func(x *lease) bool { return x == l })
}

// close ends the pool when the last window has come back: transports' wait group tells.
func (r *windowPool) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.wake()
}

// run is the pool's goroutine.
func (r *windowPool) run() {
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
func (r *windowPool) step() (wait time.Duration, over bool) {
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
		case len(r.lent) == 0: // those that were taken back still have copies running
			return idle, false
		default:
			s, rest := r.next(time.Now())
			if rest > 0 {
				return min(rest, keepIdle), false
			}
			r.lent = slices.DeleteFunc(r.lent, func(x *window) bool { return x == s })
			r.mu.Unlock()
			s.lease.takeBack(s)
			r.mu.Lock()
		}
	}
}

// next is the window that can be taken back first, and how long it is kept. mu is held.
func (r *windowPool) next(now time.Time) (first *window, rest time.Duration) {
	for _, s := range r.lent {
		if keep := s.until().Sub(now); first == nil || keep < rest {
			first, rest = s, keep
		}
	}
	return first, rest
}

// until is how long a window is kept although others wait.
func (w *window) until() time.Time {
	most := w.since.Add(keepFor)
	switch idle := w.idle.Load(); {
	case idle < 0:
		return w.since.Add(keepUnused)
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
func (r *windowPool) share() int { return min(windowSlots, max(r.pinned.Buffers()/4, 2)) }

// give makes a window for the first that waits. mu is held, but not meanwhile.
func (r *windowPool) give() {
	l := r.waiting[0]
	r.waiting = r.waiting[1:]
	count := r.share()
	r.slots += count
	r.mu.Unlock()
	s, err := newWindow(l, count)
	r.mu.Lock()
	if err != nil {
		r.slots -= count
	} else {
		r.lent = append(r.lent, s)
	}
	r.mu.Unlock()
	if !l.got(s, err) && s != nil {
		r.takeIn(s)
	}
	r.mu.Lock()
}

// newWindow makes a window.
func newWindow(l *lease, count int) (*window, error) {
	pinned, err := l.pool.pinned.Window(count)
	if err != nil {
		return nil, err
	}
	s := &window{lease: l, memory: pinned, moves: make([]*passiveMove, count), since: time.Now()}
	s.idle.Store(-1)
	return s, nil
}

// maxPlaces is how many devices one connection can reach.
const maxPlaces = 64

// lease is what a connection has of a device's windows: one at a time. All but the
// first two is under the connection's mutex.
type lease struct {
	p    *passive
	pool *windowPool

	place  uint8
	last   uint64 // the number of the last window
	now    *window
	wanted bool
}

// passiveMove is what is copied between a slot and our regions.
type passiveMove struct {
	s      *window
	slot   int
	spans  []transport.Span
	pins   []*memory.Region
	buffer memory.Buffer
	bounce stage.Bounce
	copied func(error) // over, bound once
	busy   bool
}

// leaseOf finds the connection's lease of a region's device.
func (p *passive) leaseOf(r *memory.Region) (*lease, error) {
	pool := p.t.windowsOf(r.Device())
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.leases {
		if l.pool == pool {
			return l, nil
		}
	}
	if len(p.leases) == maxPlaces {
		return nil, errors.New("too many devices")
	}
	l := &lease{p: p, pool: pool, place: uint8(len(p.leases))}
	p.leases = append(p.leases, l)
	return l, nil
}

// reach says at which place a region is reached, or why it is not.
func (p *passive) reach(r *memory.Region) (status, uint8) {
	if !p.t.board.open(r.ID()) { // not registered
		return noRegion, 0
	}
	l, err := p.leaseOf(r)
	if err != nil {
		return deviceBad, 0
	}
	return windowed, l.place
}

// wants has a window made for the peer; false: it broke the rules.
func (p *passive) wants(f frame) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if int(f.place) >= len(p.leases) {
		return false
	}
	l := p.leases[f.place]
	if l.wanted || l.now != nil {
		return false
	}
	if !p.ended {
		l.wanted = true
		l.pool.want(l)
	}
	return true
}

// got brings a window; false: it is not wanted any more.
func (l *lease) got(s *window, err error) bool {
	p := l.p
	fd := -1
	if err == nil {
		fd, _, err = s.memory.Block().File(true)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l.wanted = false
	f := frame{kind: giveWindow, place: l.place, status: deviceBad}
	if err != nil || p.over {
		closeFD(fd)
		p.pushLocked(outgoing{f, -1})
		return false
	}
	l.last++
	s.number, l.now = l.last, s
	f.status, f.region, f.bytes = ok, memory.ID(s.number), uint64(s.memory.Block().Size())
	p.pushLocked(outgoing{f, fd})
	return true
}

// takeBack lets no more copies begin. The window's end is that of its last copy.
func (l *lease) takeBack(s *window) {
	p := l.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.back {
		return // the connection's end has done so
	}
	s.back = true
	l.now = nil
	p.pushLocked(outgoing{frame{kind: takeBack, place: l.place, region: memory.ID(s.number)}, -1})
	if s.running == 0 {
		l.pool.takeIn(s)
	}
}

// move begins what the peer asks for, or says why not. It is false where the peer broke
// the rules.
func (p *passive) move(f frame, spots []spot) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if int(f.place) >= len(p.leases) || f.grant != memory.PeerRead && f.grant != memory.PeerWrite || f.status != ok {
		return false
	}
	l := p.leases[f.place]
	if uint64(f.region) == 0 || uint64(f.region) > l.last || f.bytes >= windowSlots {
		return false
	}
	answer := f
	answer.kind = moved
	s := l.now
	if s == nil || s.number != uint64(f.region) {
		answer.status = again
		p.pushLocked(outgoing{answer, -1})
		return true
	}
	if f.bytes >= uint64(len(s.moves)) {
		return false
	}
	m := s.moves[f.bytes]
	if m == nil {
		m = &passiveMove{s: s, slot: int(f.bytes)}
		m.buffer = s.memory.Buffer(m.slot)
		m.copied = m.over
		s.moves[f.bytes] = m
	}
	switch {
	case m.busy:
		return false
	case p.ended:
		return true // nobody would hear of it
	}
	if answer.status = m.pin(spots, f.grant); answer.status != ok {
		m.clear()
		p.t.refused.Add(1)
		p.pushLocked(outgoing{answer, -1})
		return true
	}
	m.busy = true
	s.running++
	s.idle.Store(0)
	p.copying++
	m.bounce.Lay(m.spans, &m.buffer)
	m.bounce.Copy(f.grant == memory.PeerRead, m.copied)
	return true
}

// pin checks all pieces of a move, and pins their regions. The connection's mutex is
// held.
func (m *passiveMove) pin(spots []spot, want memory.Grant) status {
	l := m.s.lease
	t := l.p.t
	var last *memory.Region
	for _, s := range spots {
		r, err := t.regions.PinFor(l.p.rights, s.region, s.offset, uint64(s.bytes), want)
		switch {
		case errors.Is(err, memory.ErrDenied):
			return denied
		case errors.Is(err, memory.ErrRange):
			return outside
		case err != nil:
			return noRegion
		}
		m.pins = append(m.pins, r)
		if r != last && !l.reaches(r) {
			return noRegion
		}
		last = r
		m.spans = append(m.spans, transport.Span{Local: r, LocalOffset: int64(s.offset), Bytes: int64(s.bytes)})
	}
	return ok
}

// reaches says whether a region is registered, and on the lease's device.
func (l *lease) reaches(r *memory.Region) bool {
	return r.Device() != nil && l.p.t.board.open(r.ID()) && r.Device().Pinned() == l.pool.pinned
}

// clear makes the slot ready for the next move.
func (m *passiveMove) clear() {
	m.bounce.Release()
	for i, r := range m.pins {
		r.Unpin()
		m.pins[i] = nil
	}
	clear(m.spans)
	m.pins, m.spans, m.busy = m.pins[:0], m.spans[:0], false
}

// over is the end of a move's copies.
func (m *passiveMove) over(err error) {
	s := m.s
	l := s.lease
	p := l.p
	answer := frame{kind: moved, place: l.place, region: memory.ID(s.number), bytes: uint64(m.slot)}
	if err != nil {
		answer.status = deviceBad
		p.t.refused.Add(1)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m.clear()
	if s.running--; s.running == 0 {
		s.idle.Store(time.Now().UnixNano())
		if s.back {
			l.pool.takeIn(s)
		}
	}
	p.copying--
	p.pushLocked(outgoing{answer, -1})
	p.wake.Broadcast() // endMoves may wait
}

// endMoves ends the connection's windows: it waits for what is being copied.
func (p *passive) endMoves() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	for p.copying > 0 {
		p.wake.Wait()
	}
	for _, l := range p.leases {
		l.pool.forget(l)
		if s := l.now; s != nil {
			l.now, s.back = nil, true
			l.pool.takeIn(s)
		}
	}
}
