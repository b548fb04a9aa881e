package shm

import (
	"errors"
	"time"

	"github.com/topoctl/topoctl/internal/base/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/stage"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
)

// maxPlaces is how many devices one connection can reach.
const maxPlaces = 64

// lease is what a connection has of a device's windows: one at a time. All but the
// first two is under the connection's mutex.
type lease struct {
	p    *passive
	room *room

	place  uint8
	last   uint64 // the number of the last window
	now    *slots
	wanted bool
}

// passiveMove is what is copied between a slot and our regions.
type passiveMove struct {
	s      *slots
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
	room := p.t.roomOf(r.Device())
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.leases {
		if l.room == room {
			return l, nil
		}
	}
	if len(p.leases) == maxPlaces {
		return nil, errors.New("too many devices")
	}
	l := &lease{p: p, room: room, place: uint8(len(p.leases))}
	p.leases = append(p.leases, l)
	return l, nil
}

// reach says at which place a region is reached, or why it is not.
func (p *passive) reach(r *memory.Region) (status, uint8) {
	switch {
	case r.Grant() == memory.None:
		return denied, 0
	case !p.t.board.open(r.ID()): // not registered
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
		l.room.want(l)
	}
	return true
}

// got brings a window; false: it is not wanted any more.
func (l *lease) got(s *slots, err error) bool {
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
func (l *lease) takeBack(s *slots) {
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
		l.room.end(s)
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
		r, err := t.regions.PinAny(s.region, s.offset, uint64(s.bytes), want)
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
	return r.Device() != nil && l.p.t.board.open(r.ID()) && r.Device().Pinned() == l.room.pinned
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
			l.room.end(s)
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
		l.room.forget(l)
		if s := l.now; s != nil {
			l.now, s.back = nil, true
			l.room.end(s)
		}
	}
}
