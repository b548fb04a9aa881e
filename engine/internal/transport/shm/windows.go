package shm

import (
	"errors"
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

// windowPool bounds the windows into the memory of one device: pinned memory that a peer maps,
// so it is one connection's and never another's afterwards. All windows together have no more
// slots than the device's own pool for peers.
type windowPool struct {
	pinned *memory.Pinned // of the device
	slots  int            // of each window
	free   chan struct{}  // holds one for each window that there may be now
	turn   chan struct{}  // holds one while a connection waits for free; others wait for their turn
	// claim is sent by the connection whose turn it is. The one that has had its window for
	// longest is the first to receive it, and gives the window up.
	claim chan struct{}
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
	over chan struct{} // closed when it was taken back and nothing is copied through it

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
		// A window has a quarter of all slots where these are few, at least two. There are two or more.
		slots := min(windowSlots, max(pinned.Buffers()/4, 2))
		r = &windowPool{
			pinned: pinned, slots: slots, free: make(chan struct{}, pinned.Buffers()/slots),
			turn: make(chan struct{}, 1), claim: make(chan struct{}),
		}
		for range cap(r.free) {
			r.free <- struct{}{}
		}
		t.windows[pinned] = r
	}
	return r
}

// lend makes a window for the connection, and ends it when another connection waits for one, or
// when this one is over. The driver takes its time for both.
func (l *lease) lend() {
	p := l.p
	if !l.pool.await(p.ending) {
		return
	}
	defer func() { l.pool.free <- struct{}{} }()
	pinned, err := l.pool.pinned.Window(l.pool.slots)
	w := &window{lease: l, memory: pinned, moves: make([]*passiveMove, l.pool.slots), since: time.Now(), over: make(chan struct{})}
	w.idle.Store(-1)
	if l.got(w, err) {
		select {
		case <-l.pool.claim:
			w.keep(p.ending)
		case <-p.ending:
		}
		l.takeBack(w)
		<-w.over
	}
	if err == nil {
		err = pinned.Free()
		p.t.mu.Lock()
		p.t.windowErrs = errors.Join(p.t.windowErrs, err)
		p.t.mu.Unlock()
	}
}

// await waits until there may be another window; false: stop was closed. One connection at a
// time claims a window, so that the next one that is free is its own.
func (r *windowPool) await(stop <-chan struct{}) bool {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-stop:
		return false
	}
	select {
	case <-r.free:
		return true
	default:
	}
	select {
	case <-r.free:
		return true
	case r.claim <- struct{}{}:
	case <-stop:
		return false
	}
	select {
	case <-r.free:
		return true
	case <-stop:
		return false
	}
}

// keep waits until the window may be taken from its connection, or stop is closed.
func (w *window) keep(stop <-chan struct{}) {
	for rest := time.Until(w.until()); rest > 0; rest = time.Until(w.until()) {
		select {
		case <-time.After(min(rest, keepIdle)):
		case <-stop:
			return
		}
	}
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
		p.t.wg.Go(l.lend)
	}
	return true
}

// got gives the peer a window, or says that none could be made. It is false where the window is not
// wanted any more.
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
	s.back = true
	l.now = nil
	p.pushLocked(outgoing{frame{kind: takeBack, place: l.place, region: memory.ID(s.number)}, -1})
	if s.running == 0 {
		close(s.over)
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
		p.t.refused.Add(answer.status.err())
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
		p.t.refused.Add(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m.clear()
	if s.running--; s.running == 0 {
		s.idle.Store(time.Now().UnixNano())
		if s.back {
			close(s.over)
		}
	}
	p.copying--
	p.pushLocked(outgoing{answer, -1})
	p.wake.Broadcast() // endMoves may wait
}

// endMoves ends the connection's windows: it waits for what is being copied.
func (p *passive) endMoves() {
	close(p.ending)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	for p.copying > 0 {
		p.wake.Wait()
	}
}
