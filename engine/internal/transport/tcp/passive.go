package tcp

import (
	"context"
	"crypto/rand"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"

	"github.com/topoctl/topoctl/engine/internal/stage"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// passive is the end of a connection that a peer dialled.
type passive struct {
	link
	t        *Transport
	key      transport.ConnKey
	name     string // of the peer's engine
	rights   *memory.Rights
	account  transport.Account
	limits   offer
	finished chan struct{}

	bytesRead, bytesWritten atomic.Int64

	// The WRITE whose payload is coming. pins is guarded by mu.
	spans []transport.Span
	pins  []*memory.Region
	reply reply

	// Guarded by mu.
	replies ring[reply]
	waiting int64 // bytes of replies that are queued
	open    int   // requests whose reply is not with the kernel
	answers []*answer
	idle    []int32 // answers that are free
	held    int64   // memory of answers

	// Of device memory, guarded by mu but for landing and starved.
	landing    *answer   // of the WRITE whose payload is coming
	copying    int       // answers that wait for a buffer or are being copied
	unfed      []*answer // of those the ones that wait; feed looks after them
	idleDevice sync.Cond
	starved    atomic.Bool // the reader waits for a buffer

	// Of the watchdog.
	received, handed uint64
	still            int // rounds without progress
}

// answer is the answer to a READ, from the check of its descriptors until the
// kernel has its last byte. Of device memory it is also that to a WRITE, until the bytes are
// in place.
type answer struct {
	place int32 // in passive.answers
	spans []transport.Span
	pins  []*memory.Region
	bytes int64

	// Of device memory. The functions are passive.fetched and landed, bound once.
	bounce          stage.Bounce
	pool            *memory.Pool
	reply           reply
	fetched, landed func(error)
}

// reply is what is to be sent for a request.
type reply struct {
	id     uint32
	status uint16
	sum    bool
	detail uint32
	answer int32 // -1: an ack
}

// connBytes is what a passive end takes beside its answers: buffers, and goroutines with their
// stacks. spanBytes is what each span of an answer takes, with its pin.
const (
	connBytes = 128 << 10
	spanBytes = 48
)

// ackToken marks acks in the outbox; answers to READs have their number.
const ackToken = 1 << 31

var (
	errStuck  = &violated{reason: "stuck", text: "a frame made no progress"}
	errRegion = &violated{reason: "region", text: "a frame held a region that was closed"}
	errLeft   = pkgerr.New("tcp", "the connection was left")
)

// Accept expects the connection that a peer announces.
func (t *Transport) Accept(_ context.Context, from transport.Origin, request []byte) ([]byte, error) {
	theirs, err := getOffer(request)
	if err != nil {
		return nil, err
	}
	agreed := grant{rights: from.Rights}
	if agreed.offer, err = t.offer.common(theirs); err != nil {
		return nil, err
	}
	_, _ = rand.Read(agreed.key[:]) // does not fail
	key := transport.ConnKey{Session: from.Session, Conn: from.Conn}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, pkgerr.Errorf("tcp", "the transport is %w", net.ErrClosed)
	}
	t.ends.Expire(now)
	if theirs := t.ends.OfSession(from.Session); theirs >= t.o.ConnsPerSession {
		return nil, pkgerr.Errorf("tcp", "peer %q: too many connections: %d of %d", from.Name, theirs, t.o.ConnsPerSession)
	}
	if err := t.ends.Expect(key, from.Account, agreed, now.Add(t.o.ArriveTime)); err != nil {
		return nil, pkgerr.Errorf("tcp", "peer %q: %w", from.Name, err)
	}
	return agreed.put(), nil
}

// Key is the secret of a connection that is expected.
func (t *Transport) Key(session transport.SessionID, id transport.ConnID) (transport.DataKey, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	agreed, ok := t.ends.Expected(transport.ConnKey{Session: session, Conn: id}, time.Now())
	return agreed.key, ok && !t.closed
}

// Serve takes over a data connection that belongs to a session, if it was agreed
// on.
func (t *Transport) Serve(session transport.SessionID, id transport.ConnID, name string, nc net.Conn) error {
	key := transport.ConnKey{Session: session, Conn: id}
	t.mu.Lock()
	defer t.mu.Unlock()
	agreed, ok := t.ends.Expected(key, time.Now())
	if !ok || t.closed {
		_ = nc.Close()
		return pkgerr.Errorf("tcp", "peer %q: connection %d was not agreed on, or was left", name, id)
	}
	p := newPassive(t, key, name, agreed)
	p.rights, p.account = agreed.rights, t.ends.Account(key)
	err := checkSealed(nc, agreed.level)
	if err == nil {
		err = p.init(p, nc, t.polls())
	}
	if err != nil {
		_ = nc.Close()
		return pkgerr.Errorf("tcp", "peer %q: connection %d: %w", name, id, err)
	}
	t.ends.Open(key, p)
	t.wg.Go(p.live)
	return nil
}

func newPassive(t *Transport, key transport.ConnKey, name string, o grant) *passive {
	p := &passive{
		t: t, key: key, name: name, limits: o.offer,
		finished: make(chan struct{}),
		replies:  makeRing[reply](int(o.posted)),
	}
	p.in.guard, p.out.guard = o.guards()
	p.in.tagged, p.out.tagged = o.level == transport.Payload, o.level == transport.Payload
	p.idleDevice.L = &p.mu
	return p
}

// live is the connection's life, in a goroutine of its own.
func (p *passive) live() {
	defer close(p.finished)
	if _, err := p.conn.Write(readyFrame(&p.out.guard)); err != nil {
		p.fail(err)
	}
	p.run()
	p.mu.Lock()
	p.awaitDevice()
	p.unpin(&p.pins)
	for _, a := range p.answers {
		p.unpin(&a.pins)
	}
	cause := p.cause
	p.mu.Unlock()
	p.t.gone(p, cause)
}

// busy is true because a reader that waits has just handled something: the next
// request is often near.
func (p *passive) busy() bool { return true }

func (p *passive) headerSize(h *header) (int, error) {
	if h.kind != frameWrite && h.kind != frameRead {
		return 0, violation("frame", "frame of type %d in a request", h.kind)
	}
	if uint32(h.count) > p.limits.spans {
		return 0, violation("spans", "request of %d spans, agreed on %d", h.count, p.limits.spans)
	}
	return headBytes + descBytes*int(h.count), nil
}

func (p *passive) begin(h *header, descs []byte) error {
	if h.bytes > p.limits.bytes {
		return violation("bytes", "request of %d bytes, agreed on %d", h.bytes, p.limits.bytes)
	}
	if h.detail != 0 || h.flags&^flagSum != 0 || h.flags != 0 && (p.limits.features&featureSum == 0 || h.bytes == 0) {
		return violation("flags", "request with flags %#x, detail %d", h.flags, h.detail)
	}
	sum, trail := uint64(0), 0
	for b := descs; len(b) > 0; b = b[descBytes:] {
		length := getDesc(b).length
		sum += uint64(length)
		if p.in.tagged {
			trail += tagBytes * pieces(int64(length))
		}
	}
	if h.flags != 0 {
		trail = sumBytes
	}
	if sum != h.bytes {
		return violation("sum", "request of %d bytes with spans of %d", h.bytes, sum)
	}
	if err := p.admit(); err != nil {
		return err
	}
	p.t.requests.Add(1)
	rep := reply{id: h.id, sum: h.flags&flagSum != 0, answer: -1}
	if h.kind == frameRead {
		return p.beginRead(rep, descs, int64(h.bytes))
	}
	p.mu.Lock()
	spans, status, detail := p.pin(descs, memory.PeerWrite, p.spans[:0], &p.pins)
	p.mu.Unlock()
	p.spans, rep.status, rep.detail = spans, status, detail
	if status == statusOK && p.t.isStaged(spans) {
		return p.land(rep, int64(h.bytes), trail)
	}
	p.reply = rep
	p.in.expect(int64(h.bytes), spans, status != statusOK, trail)
	return nil
}

// admit counts a request: the peer may have as many open as was agreed.
func (p *passive) admit() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == int(p.limits.posted) {
		// The peer can be faster than the return of the system call.
		p.mu.Unlock()
		p.io.Lock()
		p.mu.Lock()
		p.io.Unlock()
	}
	if p.open == int(p.limits.posted) {
		return violation("posted", "more than %d requests without their answers taken", p.limits.posted)
	}
	p.open++
	return nil
}

// pin checks all descriptors, and pins their regions or none. mu is held, so that
// Deregister sees every pin.
func (p *passive) pin(descs []byte, want memory.Grant, spans []transport.Span, pins *[]*memory.Region) (_ []transport.Span, status uint16, detail uint32) {
	spans = slices.Grow(spans, len(descs)/descBytes)
	var last *memory.Region
	for i := uint32(0); len(descs) > 0; i++ {
		d := getDesc(descs)
		descs = descs[descBytes:]
		r := last
		if r == nil || r.ID() != d.region || !inside(r, d) {
			var err error
			if r, err = p.t.regions.PinFor(p.rights, d.region, d.offset, uint64(d.length), want); err != nil {
				p.unpin(pins)
				p.t.refused.Add(err)
				return spans[:0], statusOf(err), i
			}
			*pins = append(*pins, r)
			last = r
		}
		spans = append(spans, transport.Span{Local: r, LocalOffset: int64(d.offset), Bytes: int64(d.length)})
	}
	return spans, statusOK, 0
}

// inside says whether a piece is inside a region that is pinned already with the
// right that is wanted.
func inside(r *memory.Region, d desc) bool {
	size := uint64(r.Block().Size())
	return d.offset <= size && uint64(d.length) <= size-d.offset
}

func (p *passive) unpin(pins *[]*memory.Region) {
	for i, r := range *pins {
		r.Unpin()
		(*pins)[i] = nil
	}
	*pins = (*pins)[:0]
}

func (p *passive) beginRead(rep reply, descs []byte, bytes int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.takeAnswer()
	a := p.answers[k]
	before := cap(a.spans)
	a.spans, rep.status, rep.detail = p.pin(descs, memory.PeerRead, a.spans[:0], &a.pins)
	a.bytes = bytes
	if err := p.hold(int64(cap(a.spans)-before) * spanBytes); err != nil {
		return err
	}
	if rep.status != statusOK {
		p.idle = append(p.idle, k)
		p.push(rep, 0)
		return nil
	}
	if p.t.isStaged(a.spans) {
		if err := checkPiece(bytes); err != nil {
			return err
		}
		p.fetch(a, rep)
		return nil
	}
	rep.answer = k
	p.push(rep, bytes)
	return nil
}

// hold takes more memory until the end of the connection. If the peer may have no more, its error
// ends the connection. mu is held.
func (p *passive) hold(n int64) error {
	if err := p.t.o.Memory.Take(p.account, n); err != nil {
		return violation("memory", "requests whose answers wait: %v", err)
	}
	p.held += n
	return nil
}

// takeAnswer finds an answer that is free. There are as many as requests may be
// open. mu is held.
func (p *passive) takeAnswer() int32 {
	if n := len(p.idle); n > 0 {
		k := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return k
	}
	a := &answer{place: int32(len(p.answers))}
	a.fetched = func(err error) { p.fetched(a, err) }
	a.landed = func(err error) { p.landed(a, err) }
	p.answers = append(p.answers, a)
	return a.place
}

// push queues a reply; admit has made sure that there is room. mu is held.
func (p *passive) push(rep reply, bytes int64) {
	p.replies.push(rep)
	p.waiting += headBytes + bytes
}

func (p *passive) complete(sumOK bool) {
	p.checked(p.t, sumOK)
	if p.landing != nil {
		p.store(sumOK)
		return
	}
	rep := p.reply
	if !sumOK {
		rep.status = statusSum
	}
	if rep.status == statusOK {
		p.bytesWritten.Add(int64(p.in.h.bytes)) // before the peer knows
	}
	p.mu.Lock()
	p.unpin(&p.pins)
	p.push(rep, 0)
	p.mu.Unlock()
}

// settle sends the replies, by itself where nobody else is sending and they are
// small.
func (p *passive) settle() {
	p.mu.Lock()
	p.flush(p.waiting)
}

func (p *passive) queued() bool { return p.replies.len() > 0 }

// next is the next reply to be sent.
func (p *passive) next() (rep reply, a *answer, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.replies.len() == 0 || p.closed {
		return reply{}, nil, false
	}
	rep = p.replies.pop()
	p.waiting -= headBytes
	if rep.answer >= 0 {
		a = p.answers[rep.answer]
		p.waiting -= a.bytes
	}
	return rep, a, true
}

func (p *passive) fill(o *outbox) {
	if o.open {
		o.more()
	}
	for o.fits(headBytes) {
		rep, a, ok := p.next()
		if !ok {
			return
		}
		h := header{kind: frameAck, id: rep.id, count: rep.status, detail: rep.detail}
		token := uint32(ackToken)
		if a != nil {
			h.kind, h.bytes = frameData, uint64(a.bytes)
			if rep.sum {
				h.flags = flagSum
			}
			token = uint32(rep.answer)
		}
		b := o.header(headBytes)
		h.put(b)
		o.guard.seal(b)
		if a == nil || a.bytes == 0 {
			o.end(token)
			continue
		}
		o.payload(a.spans, rep.sum, token)
	}
}

func (p *passive) sent(token uint32) {
	p.open--
	if token == ackToken {
		return
	}
	a := p.answers[token]
	p.unpin(&a.pins)
	if a.bounce.Staged() {
		a.bounce.Release()
	}
	p.idle = append(p.idle, int32(token))
	p.bytesRead.Add(a.bytes)
}

// watchRounds is in how many looks of the watchdog a frame must make progress.
const watchRounds = 4

// watch ends connections whose frames make no progress, and expectations that do
// not come true.
func (t *Transport) watch() {
	tick := time.NewTicker(max(t.o.FrameTime/watchRounds, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-t.quit:
			return
		case now := <-tick.C:
			t.mu.Lock()
			t.altered.Tell(now)
			t.ends.Expire(now)
			for _, p := range t.ends.All() {
				if p.stuck(watchRounds) {
					p.fail(errStuck)
				}
			}
			t.mu.Unlock()
		}
	}
}

// stuck says whether the connection has made no progress in rounds calls, though
// a frame is under way.
func (p *passive) stuck(rounds int) bool {
	received, handed := p.in.received.Load(), p.link.handed.Load()
	p.mu.Lock()
	sending := p.sending
	p.mu.Unlock()
	if p.in.amid.Load() && received == p.received && !p.starved.Load() || sending && handed == p.handed {
		p.still++
	} else {
		p.still = 0
	}
	p.received, p.handed = received, handed
	return p.still >= rounds
}

// Deregister waits until no frame of a peer holds the region, and ends the
// connections whose frames do for longer than CloseTime: a peer that sends slowly
// could keep it from being closed for ever. The region must refuse new pins
// already, so its Close must have been called. A copy to or from a device that does not
// end is not waited for longer than ReleaseTime: the region is not free then.
func (t *Transport) Deregister(r *memory.Region) error {
	holders := t.holders(r)
	if len(holders) == 0 {
		return nil
	}
	timer := time.NewTimer(t.o.CloseTime)
	defer timer.Stop()
	tick := time.NewTicker(t.o.CloseTime/50 + time.Millisecond)
	defer tick.Stop()
	for len(holders) > 0 {
		select {
		case <-tick.C:
		case <-timer.C:
			return t.endHolders(r)
		}
		holders = t.holders(r)
	}
	return nil
}

// endHolders ends the connections whose frames hold a region, and waits until they do not.
func (t *Transport) endHolders(r *memory.Region) error {
	ended := t.holders(r)
	for _, p := range ended {
		p.fail(errRegion)
	}
	timer := time.NewTimer(t.o.ReleaseTime)
	defer timer.Stop()
	for _, p := range ended {
		select {
		case <-p.finished:
		case <-timer.C:
			return pkgerr.Errorf("tcp", "a copy for peer %q still uses the memory %v after its connection was ended: close the region again", p.name, t.o.ReleaseTime)
		}
	}
	return nil
}

func (t *Transport) holders(r *memory.Region) []*passive {
	return t.ends.Select(func(p *passive) bool { return p.touches(r) })
}

// touches says whether a frame holds the region now.
func (p *passive) touches(r *memory.Region) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.pins, r) {
		return true
	}
	for _, a := range p.answers {
		if slices.Contains(a.pins, r) {
			return true
		}
	}
	return false
}

// Leave ends a passive end.
func (t *Transport) Leave(ctx context.Context, from transport.Origin, id transport.ConnID) error {
	return t.ends.Leave(ctx, transport.ConnKey{Session: from.Session, Conn: id})
}

// LeaveAll ends all passive ends of a session.
func (t *Transport) LeaveAll(ctx context.Context, session transport.SessionID) error {
	return t.ends.LeaveAll(ctx, session)
}

// Leave ends the connection, and waits until it touches no memory any more.
func (p *passive) Leave(ctx context.Context) error {
	p.fail(errLeft)
	select {
	case <-p.finished:
		return nil
	case <-ctx.Done():
		return pkgerr.Errorf("tcp", "leave connection %d: %w", p.key.Conn, ctx.Err())
	}
}

// gone takes a passive end out that touches nothing any more.
func (t *Transport) gone(p *passive, cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ends.Close(p.key)
	t.o.Memory.Give(p.account, p.held)
	t.bytesRead += p.bytesRead.Load()
	t.bytesWritten += p.bytesWritten.Load()
	t.drop(cause, p.conn)
}
