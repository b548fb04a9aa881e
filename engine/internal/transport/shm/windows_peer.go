package shm

import (
	"fmt"
	"os"
	"sync/atomic"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

// farDevice is how a connection reaches the memory of one of the peer's devices: through
// slots of a window, which the peer copies to the device or from it. All is under the
// connection's mutex.
type farDevice struct {
	place   uint8
	asked   bool                   // the peer was asked for a window
	now     *peerWindow            // nil: the peer gave none, or took it back
	windows map[uint64]*peerWindow // by number, of which moves are under way
	last    uint64
	jobs    []*job  // whose next move needs a slot
	renewed []*move // that need another slot
}

// peerWindow is a window as we see it.
type peerWindow struct {
	number uint64
	m      *mapping
	free   []uint16
	moves  []*move // by slot
	used   int     // slots that are not free
}

// move is a part of a request whose bytes are together in a slot, or that needs none.
type move struct {
	job    *job
	bytes  int64
	device *farDevice // nil: the peer's memory is mapped
	window *peerWindow
	slot   uint16
	state  moveState
	// remote are the places in the peer's regions.
	remote []transport.Span
	// copy is what workers do of it, between our memory and the slot.
	copy    job
	request transport.Request
}

type moveState uint8

const (
	copying moveState = iota // by a worker, or queued for it
	queued                   // to be told to the peer
	told
)

// farDeviceAt is the device at a place.
func (c *conn) farDeviceAt(place uint8) *farDevice {
	g := c.devices[place]
	if g == nil {
		g = &farDevice{place: place, windows: map[uint64]*peerWindow{}}
		c.devices[place] = g
	}
	return g
}

// isStaged says whether the job touches memory that is not mapped but reached through windows.
func (j *job) isStaged() bool {
	for _, m := range j.maps {
		if m.device != nil {
			return true
		}
	}
	return false
}

// advance begins a job's moves, as far as there are slots. mu is held.
func (c *conn) advance(j *job) {
	for j.skip(); !j.drained; {
		if g := j.maps[j.span].device; g != nil {
			g.jobs = append(g.jobs, j)
			c.pump(g)
			return
		}
		c.begin(c.cutMove(j))
	}
}

// skip goes on to the next span with bytes.
func (j *job) skip() {
	spans := j.request.Spans
	for j.span < len(spans) && spans[j.span].Bytes == j.offset {
		j.span, j.offset = j.span+1, 0
	}
	j.drained = j.span == len(spans)
}

// cutMove takes the next move off a job: spans of one device, as much as a slot holds and
// a packet can tell.
func (c *conn) cutMove(j *job) *move {
	spans := j.request.Spans
	m := &move{job: j, device: j.maps[j.span].device}
	m.copy = job{c: c, move: m, stream: j.stream, node: j.node}
	j.running++
	for j.skip(); !j.drained && j.maps[j.span].device == m.device && m.bytes < memory.PieceBytes && len(m.remote) < maxSpots; j.skip() {
		s := spans[j.span]
		s.Bytes = min(s.Bytes-j.offset, memory.PieceBytes-m.bytes)
		s.LocalOffset += j.offset
		s.RemoteOffset += j.offset
		m.remote = append(m.remote, s)
		m.copy.maps = append(m.copy.maps, j.maps[j.span])
		m.bytes += s.Bytes
		j.offset += s.Bytes
	}
	m.request = transport.Request{Op: j.request.Op, Bytes: m.bytes}
	return m
}

// pump gives slots to the moves that wait for one. mu is held.
func (c *conn) pump(g *farDevice) {
	for !c.dead && len(g.renewed)+len(g.jobs) > 0 {
		v := g.now
		if v == nil {
			if !g.asked {
				g.asked = true
				c.outgoing = append(c.outgoing, toSend{device: g})
				c.ask.Signal()
			}
			return
		}
		if len(v.free) == 0 {
			return
		}
		var behind *job // whose next move is for another device
		var m *move
		if len(g.renewed) > 0 {
			m, g.renewed = g.renewed[0], g.renewed[1:]
		} else {
			j := g.jobs[0]
			m = c.cutMove(j)
			if j.drained || j.maps[j.span].device != g {
				g.jobs[0], behind = nil, j
				g.jobs = g.jobs[1:]
			}
		}
		m.window, m.slot = v, v.free[len(v.free)-1]
		v.free = v.free[:len(v.free)-1]
		v.moves[m.slot] = m
		v.used++
		c.begin(m)
		if behind != nil {
			c.advance(behind)
		}
	}
}

// begin starts a move: a WRITE's bytes go to the slot first, a READ's come there. mu is
// held.
func (c *conn) begin(m *move) {
	m.request.Spans = append(m.request.Spans[:0], m.remote...)
	if m.window != nil {
		at := int64(m.slot) * memory.PieceBytes
		for i := range m.request.Spans {
			m.request.Spans[i].RemoteOffset = at
			at += m.request.Spans[i].Bytes
			m.copy.maps[i] = m.window.m
		}
	}
	if m.window != nil && m.request.Op == transport.Read {
		c.tell(m)
		return
	}
	c.copyMove(m)
}

// copyMove has the workers copy. mu is held.
func (c *conn) copyMove(m *move) {
	m.state = copying
	m.copy = job{c: c, move: m, request: &m.request, maps: m.copy.maps, stream: m.copy.stream, node: m.copy.node}
	c.t.copier.add(&m.copy)
}

// tell has the peer told of a move. mu is held.
func (c *conn) tell(m *move) {
	m.state = queued
	c.outgoing = append(c.outgoing, toSend{move: m})
	c.ask.Signal()
}

// copied is the end of the workers' part of a move. mu is held.
func (c *conn) copied(m *move, err error) {
	switch {
	case err != nil || m.window == nil || m.request.Op == transport.Read:
		c.endMove(m, err, false)
	case c.dead:
		c.endMove(m, c.cause, false)
	case m.job.err != nil:
		c.endMove(m, nil, false)
	case m.window != m.device.now:
		c.retry(m)
	default:
		c.tell(m)
	}
}

// retry gives a move another slot. mu is held.
func (c *conn) retry(m *move) {
	c.freeSlot(m)
	if m.job.err != nil {
		c.endMove(m, nil, false)
		return
	}
	m.device.renewed = append(m.device.renewed, m)
	c.pump(m.device)
}

// freeSlot takes the slot from a move. mu is held.
func (c *conn) freeSlot(m *move) {
	v := m.window
	if v == nil {
		return
	}
	v.moves[m.slot] = nil
	v.free = append(v.free, m.slot)
	v.used--
	m.window = nil
	c.dropWindow(m.device, v)
}

// dropWindow unmaps a window that was taken back, after its last move. mu is held.
func (c *conn) dropWindow(g *farDevice, v *peerWindow) {
	if v != g.now && v.used == 0 {
		delete(g.windows, v.number)
		v.m.revoke(memory.ErrNoRegion)
	}
}

// endMove is the end of a move. mu is held.
func (c *conn) endMove(m *move, err error, mayLand bool) {
	j, g := m.job, m.device
	c.freeSlot(m)
	j.running--
	j.mayLand = j.mayLand || mayLand
	if err != nil {
		c.giveUp(j, err)
	}
	if j.drained && j.running == 0 {
		c.completeLocked(j, j.err)
	}
	if g != nil {
		c.pump(g)
	}
}

// giveUp begins no more of a job. mu is held.
func (c *conn) giveUp(j *job, err error) {
	if j.err == nil {
		j.err = err
	}
	if j.drained {
		return
	}
	j.drained = true
	if g := j.maps[j.span].device; g != nil {
		for i := range g.jobs {
			if g.jobs[i] == j {
				g.jobs = append(g.jobs[:i], g.jobs[i+1:]...)
				break
			}
		}
	}
}

// takeWindow is the peer's answer to what asker has asked. mu is held.
func (c *conn) takeWindow(f frame, fd int) error {
	g := c.devices[f.place]
	if g == nil || !g.asked || g.now != nil {
		return fmt.Errorf("the peer gave a window at %d, which was not asked for", f.place)
	}
	g.asked = false
	if f.status != ok {
		c.fail(g, func(s *transport.Span) error { return refusal(s, f.status.err()) })
		return nil
	}
	count := f.bytes / memory.PieceBytes
	if fd < 0 || count == 0 || count > windowSlots || f.bytes%memory.PieceBytes != 0 || uint64(f.region) <= g.last {
		return fmt.Errorf("a window of %d bytes and number %d, descriptor %t", f.bytes, uint64(f.region), fd >= 0)
	}
	block, err := memory.Map(fd, int64(f.bytes), true)
	if err != nil {
		return err
	}
	g.last = uint64(f.region)
	v := &peerWindow{number: g.last, moves: make([]*move, count), m: &mapping{
		state: ready, block: block, bytes: int64(f.bytes), grant: memory.PeerRead | memory.PeerWrite,
		touched: make([]atomic.Uint64, f.bytes/prefaultStep/64+1),
	}}
	if block.Info().PageBytes != int64(os.Getpagesize()) {
		v.m.revoke(nil)
		return fmt.Errorf("a window of pages of %d bytes", block.Info().PageBytes)
	}
	for i := range count {
		v.free = append(v.free, uint16(count-1-i))
	}
	g.now, g.windows[v.number] = v, v
	c.pump(g)
	return nil
}

// fail ends what waits for a slot. mu is held.
func (c *conn) fail(g *farDevice, why func(*transport.Span) error) {
	jobs, renewed := g.jobs, g.renewed
	g.jobs, g.renewed = nil, nil
	for _, j := range jobs {
		c.giveUp(j, why(&j.request.Spans[j.span]))
		if j.running == 0 {
			c.completeLocked(j, j.err)
		}
	}
	for _, m := range renewed {
		c.endMove(m, why(&m.remote[0]), false)
	}
}

// loseWindow stops using a window. mu is held.
func (c *conn) loseWindow(f frame) error {
	g := c.devices[f.place]
	if g == nil || g.now == nil || g.now.number != uint64(f.region) {
		return fmt.Errorf("the peer took back window %d at %d, which we have not", uint64(f.region), f.place)
	}
	v := g.now
	g.now = nil
	c.dropWindow(g, v)
	c.pump(g)
	return nil
}

// moved is the peer's answer to a move. mu is held.
func (c *conn) moved(f frame) error {
	var m *move
	if g := c.devices[f.place]; g != nil {
		if v := g.windows[uint64(f.region)]; v != nil && f.bytes < uint64(len(v.moves)) {
			m = v.moves[f.bytes]
		}
	}
	if m == nil || m.state != told {
		return fmt.Errorf("the peer answered slot %d of window %d at %d, which it was not asked about", f.bytes, uint64(f.region), f.place)
	}
	switch {
	case f.status == again:
		c.retry(m)
	case f.status != ok:
		c.endMove(m, refusal(&m.remote[0], f.status.err()), false)
	case m.request.Op == transport.Read && m.job.err == nil:
		c.copyMove(m)
	default:
		c.endMove(m, nil, false)
	}
	return nil
}

// encode makes the packet that tells the peer of a move. mu is held.
func (m *move) encode(b []byte) []byte {
	f := frame{kind: moveIt, grant: memory.PeerRead, place: m.device.place, region: memory.ID(m.window.number), bytes: uint64(m.slot)}
	if m.request.Op == transport.Write {
		f.grant = memory.PeerWrite
	}
	b = f.append(b)
	for i := range m.remote {
		s := &m.remote[i]
		b = spot{s.Remote.ID, uint64(s.RemoteOffset), uint32(s.Bytes)}.append(b)
	}
	return b
}

// endMoves ends all moves but those that workers copy. The connection is dead; mu is
// held.
func (c *conn) endMoves() {
	for _, g := range c.devices {
		c.fail(g, func(*transport.Span) error { return c.cause })
		for _, v := range g.windows {
			for _, m := range v.moves {
				if m != nil && m.state != copying {
					c.endMove(m, c.cause, m.state == told && m.request.Op == transport.Write)
				}
			}
		}
	}
}
