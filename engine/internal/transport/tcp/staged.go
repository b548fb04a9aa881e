package tcp

import (
	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/stage"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

// What peers do with device memory goes through staging buffers. A WRITE is received
// into one, copied to the device from there, and acknowledged when it is in place;
// meanwhile the next frame comes in. A READ is copied to one first, and its answer is
// queued then. Each frame takes one buffer, so it has at most memory.PieceBytes; who
// finds no buffer waits. Requesters' ends are staged by stage.Wrap.

// landing is a WRITE into device memory.
type landing struct {
	p      *passive
	bounce stage.Bounce
	reply  reply
	pins   []*memory.Region
	bytes  int64
}

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
	l := &landing{p: p, reply: rep, bytes: bytes}
	l.bounce.Lay(p.spans, b)
	p.mu.Lock()
	l.pins, p.pins = p.pins, nil
	p.landings[l] = true
	p.mu.Unlock()
	p.landing = l
	p.in.expect(bytes, l.bounce.Spans, false, trail)
	return nil
}

// refuseDevice makes an ack of a request whose device cannot be used.
func (p *passive) refuseDevice(rep *reply) {
	rep.status = statusDevice
	p.t.refused.Add(1)
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

// landed is the end of a landing's payload.
func (p *passive) landed(sumOK bool) {
	l := p.landing
	p.landing = nil
	if !sumOK {
		l.reply.status = statusSum
		l.over(nil)
		return
	}
	l.bounce.Copy(false, l.over)
}

// over is the end of a landing.
func (l *landing) over(err error) {
	p := l.p
	l.bounce.Release()
	if err != nil {
		l.reply.status = statusDevice
		p.t.refused.Add(1)
	}
	if l.reply.status == statusOK {
		p.bytesWritten.Add(l.bytes)
	}
	p.mu.Lock()
	p.unpin(&l.pins)
	delete(p.landings, l)
	p.push(l.reply, 0)
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
func (p *passive) fetch(k int32, rep reply) {
	a := p.answers[k]
	a.reply, a.place = rep, k
	if a.copied == nil {
		a.copied = func(err error) { p.fetched(a, err) }
	}
	if a.pool = pool(a.spans); a.pool == nil {
		p.unfetched(a)
		return
	}
	p.fetching++
	if b := a.pool.Get(); b != nil {
		a.bounce.Lay(a.spans, b)
		a.bounce.Copy(true, a.copied)
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
			p.fetching--
			p.idleDevice.Broadcast()
			continue
		}
		a.bounce.Lay(a.spans, b)
		a.bounce.Copy(true, a.copied)
	}
}

// fetched is the end of an answer's copy.
func (p *passive) fetched(a *answer, err error) {
	p.mu.Lock()
	p.fetching--
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
	p.t.refused.Add(1)
	p.unpin(&a.pins)
	p.idle = append(p.idle, a.place)
	a.reply.status, a.reply.answer = statusDevice, -1
	p.push(a.reply, 0)
}

// awaitDevice waits until no copy runs any more, at the end of the connection. mu is
// held.
func (p *passive) awaitDevice() {
	if l := p.landing; l != nil { // whose payload will not come
		p.landing = nil
		l.bounce.Release()
		p.unpin(&l.pins)
		delete(p.landings, l)
	}
	for p.fetching > 0 || len(p.landings) > 0 {
		p.idleDevice.Wait()
	}
	for _, a := range p.answers {
		a.bounce.Release()
	}
}
