package tcp

import (
	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/stage"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

// What peers do with device memory goes through staging buffers. A WRITE is received
// into one, copied to the device from there, and acknowledged when it is in place;
// meanwhile the next frame comes in. A READ is copied to one first, and its answer is
// queued then. Each frame takes one buffer, so it has at most memory.PieceBytes; a frame that
// finds no buffer waits. Requesters' ends are staged by stage.Wrap.

// isStaged says whether device memory is among the spans.
func (t *Transport) isStaged(spans []transport.Span) bool {
	if !t.regions.HasDevices() {
		return false
	}
	n, _ := stage.Needs(spans)
	return n > 0
}

// pool is where the buffer for spans comes from, nil where the device gives none any
// more: Register has asked for it.
func pool(spans []transport.Span) *memory.Pool {
	_, device := stage.Needs(spans)
	if s, err := memory.PoolOf(device, memory.ForAnswers); err == nil {
		return s
	}
	return nil
}

// checkPiece refuses what no buffer holds.
func checkPiece(bytes int64) error {
	if bytes > memory.PieceBytes {
		return violation("bytes", "request of %d bytes for device memory, which takes %d at once", bytes, int64(memory.PieceBytes))
	}
	return nil
}

// land has the payload of a WRITE come into a staging buffer. It waits for one: the
// peer has to, too.
func (p *passive) land(rep reply, bytes int64, trail int) error {
	if err := checkPiece(bytes); err != nil {
		return err
	}
	pool := pool(p.spans)
	if pool == nil {
		p.refuseDevice(&rep)
		p.reply = rep
		p.in.expect(bytes, nil, true, trail)
		return nil
	}
	b := p.awaitBuffer(pool)
	if b == nil {
		return errDead
	}
	p.mu.Lock()
	a := p.answers[p.takeAnswer()]
	a.reply, a.bytes = rep, bytes
	a.pins, p.pins = p.pins, a.pins
	p.mu.Unlock()
	a.bounce.Lay(p.spans, b)
	p.landing = a
	p.in.expect(bytes, a.bounce.Spans, false, trail)
	return nil
}

// refuseDevice makes an ack of a request whose device cannot be used.
func (p *passive) refuseDevice(rep *reply) {
	rep.status = statusDevice
	p.t.refused.Add(memory.ErrDevice)
	p.mu.Lock()
	p.unpin(&p.pins)
	p.mu.Unlock()
}

// awaitBuffer waits for a buffer; nil when the connection ends.
func (p *passive) awaitBuffer(pool *memory.Pool) *memory.Buffer {
	p.starved.Store(true)
	defer p.starved.Store(false)
	return pool.Await(p.gone)
}

// store copies a WRITE to its device, whose payload is complete.
func (p *passive) store(sumOK bool) {
	a := p.landing
	p.landing = nil
	p.mu.Lock()
	p.copying++
	p.mu.Unlock()
	if !sumOK {
		a.reply.status = statusSum
		a.landed(nil)
		return
	}
	a.bounce.Copy(false, a.landed)
}

// landed is the end of a WRITE.
func (p *passive) landed(a *answer, err error) {
	a.bounce.Release()
	if err != nil {
		a.reply.status = statusDevice
		p.t.refused.Add(memory.ErrDevice)
	}
	if a.reply.status == statusOK {
		p.bytesWritten.Add(a.bytes)
	}
	p.mu.Lock()
	p.copying--
	p.unpin(&a.pins)
	p.idle = append(p.idle, a.place)
	p.push(a.reply, 0)
	p.sendFrom()
}

// sendFrom has the sender goroutine send what is queued: the caller is a device's.
// mu is held, and released.
func (p *passive) sendFrom() {
	ours := p.claim()
	p.idleDevice.Broadcast()
	p.mu.Unlock()
	if ours {
		p.handOver()
	}
}

// fetch copies what a READ asks for to a buffer, and then queues the answer. mu is
// held.
func (p *passive) fetch(a *answer, rep reply) {
	a.reply = rep
	if a.pool = pool(a.spans); a.pool == nil {
		p.unfetched(a)
		return
	}
	p.copying++
	if b := a.pool.Get(); b != nil {
		a.bounce.Lay(a.spans, b)
		a.bounce.Copy(true, a.fetched)
		return
	}
	if p.unfed = append(p.unfed, a); len(p.unfed) == 1 {
		go p.feed()
	}
}

// feed waits for buffers until no answer does, one after the other. awaitDevice waits for it.
func (p *passive) feed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.unfed) > 0 {
		a := p.unfed[0]
		p.mu.Unlock()
		b := a.pool.Await(p.gone)
		p.mu.Lock()
		p.unfed[0] = nil
		p.unfed = p.unfed[1:]
		if b == nil {
			p.copying--
			p.idleDevice.Broadcast()
			continue
		}
		a.bounce.Lay(a.spans, b)
		a.bounce.Copy(true, a.fetched)
	}
}

// fetched is the end of an answer's copy.
func (p *passive) fetched(a *answer, err error) {
	p.mu.Lock()
	p.copying--
	if err != nil {
		a.bounce.Release()
		p.unfetched(a)
	} else {
		a.spans = append(a.spans[:0], a.bounce.Spans...)
		a.reply.answer = a.place
		p.push(a.reply, a.bytes)
	}
	p.sendFrom()
}

// unfetched refuses a READ whose device failed. mu is held.
func (p *passive) unfetched(a *answer) {
	p.t.refused.Add(memory.ErrDevice)
	p.unpin(&a.pins)
	p.idle = append(p.idle, a.place)
	a.reply.status, a.reply.answer = statusDevice, -1
	p.push(a.reply, 0)
}

// awaitDevice waits until no copy runs any more, at the end of the connection. mu is
// held.
func (p *passive) awaitDevice() {
	for p.copying > 0 {
		p.idleDevice.Wait()
	}
	for _, a := range p.answers {
		a.bounce.Release()
	}
}
