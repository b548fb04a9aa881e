package session

import (
	"bufio"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/engine/internal/peertls"
)

// link is a session's connection: a reader and a writer.
type link struct {
	s          *Session
	c          net.Conn
	wake       chan struct{} // 1: the writer has something to do
	closing    sync.Once
	dead       chan struct{}
	ready      chan struct{} // closed when the peer's first message has come
	readDone   chan struct{}
	lastActive atomic.Int64 // when the last byte came or went, on the session's clock

	// Guarded by the session's mutex.
	queue        []message
	synced       bool   // the peer's sync has come
	lastCall     uint64 // numbers of calls only grow
	pongValue    uint64
	pongDue      bool
	pingValue    uint64 // 0: there was none
	pingQueuedAt int64
	pingSentAt   int64 // 0: not yet
	awaitingPong bool
}

func newLink(s *Session, c net.Conn) *link {
	l := &link{s: s, c: c, wake: make(chan struct{}, 1), dead: make(chan struct{}), ready: make(chan struct{}), readDone: make(chan struct{})}
	l.lastActive.Store(s.now())
	return l
}

// send queues a message. The queue is bounded by the calls in flight of both
// sides.
func (l *link) send(m message) {
	l.queue = append(l.queue, m)
	l.wakeWriter()
}

func (l *link) wakeWriter() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// close closes the connection: reader and writer end.
func (l *link) close() {
	l.closing.Do(func() {
		close(l.dead)
		_ = l.c.Close()
	})
}

// Read counts what the reader reads.
func (l *link) Read(b []byte) (int, error) {
	n, err := l.c.Read(b)
	if n > 0 {
		now := l.s.now()
		l.lastActive.Store(now)
		l.s.lastHeard.Store(now)
	}
	return n, err
}

func (l *link) read() {
	defer l.s.wg.Done()
	defer close(l.readDone)
	r := bufio.NewReaderSize(l, 4<<10)
	limits := bounds{body: l.s.limits.MessageBytes, calls: l.s.limits.CallsInFlight}
	for {
		var held int64 // for the message that is being read
		limits.admit = func(m *message, body int) (err error) {
			held, err = l.s.admit(m, body)
			return err
		}
		m, err := l.readInTime(r, limits)
		if err == nil {
			held, err = l.s.receive(l, &m, held)
		}
		l.s.budget.Memory.Give(l.s.account, held)
		if err != nil {
			if peertls.IsAltered(err) {
				l.s.refuse(RefusedAltered)
			}
			l.close()
			l.s.detach(l)
			var oversize *oversizeError
			switch {
			case errors.Is(err, errBye):
				l.s.end(ErrEnded)
			case errors.Is(err, ErrWithdrawn):
				l.s.end(ErrWithdrawn)
			case errors.As(err, &oversize):
				l.s.end(oversize)
			}
			return
		}
	}
}

// readInTime reads a message. Between messages the peer may be silent; one that has begun has
// to end, in a time that grows with its length: it takes memory meanwhile.
func (l *link) readInTime(r *bufio.Reader, limits bounds) (message, error) {
	if _, err := r.Peek(1); err != nil {
		return message{}, err
	}
	timed := false
	expect := func(n int) error {
		if r.Buffered() >= n {
			return nil
		}
		timed = true
		allowed := l.s.limits.MessageTime + time.Duration(n)*time.Second/messageBytesPerSec
		return l.c.SetReadDeadline(time.Now().Add(allowed))
	}
	if err := expect(frameHead); err != nil {
		return message{}, err
	}
	head, err := r.Peek(frameHead)
	if err == nil {
		err = expect(4 + int(binary.BigEndian.Uint32(head)))
	}
	var m message
	if err == nil {
		m, err = readMessage(r, limits)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		l.s.refuse(RefusedSlow)
	}
	if err == nil && timed {
		err = l.c.SetReadDeadline(time.Time{})
	}
	return m, err
}

// messageBytesPerSec is the least rate at which a message has to arrive, beside Limits.MessageTime.
const messageBytesPerSec = 128 << 10

const (
	maxWriteBytes = 256 << 10 // at a time, so that the progress of a long body is seen
	maxInlineBody = 2 << 10   // longer bodies are written by themselves
)

func (l *link) write() {
	defer l.s.wg.Done()
	defer l.s.detach(l)
	defer l.close()
	buf := make([]byte, 0, 4<<10)
	var batch []message
	for {
		select {
		case <-l.wake:
		case <-l.dead:
			return
		}
		batch = l.nextBatch(batch[:0])
		for i := range batch {
			m := &batch[i]
			buf = m.appendHead(buf)
			if len(m.body) <= maxInlineBody {
				buf = append(buf, m.body...)
			}
			if len(m.body) <= maxInlineBody && len(buf) < 32<<10 {
				continue
			}
			if l.flush(&buf) != nil || (len(m.body) > maxInlineBody && l.writeAll(m.body) != nil) {
				return
			}
		}
		if l.flush(&buf) != nil {
			return
		}
		clear(batch) // bodies are not held longer than needed
	}
}

// nextBatch gives what there is to write: acknowledgements first, so that the peer
// never sees more calls in flight than it takes.
func (l *link) nextBatch(batch []message) []message {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != l {
		return batch
	}
	rest := l.queue
	if len(rest) > 0 && rest[0].kind == msgSync {
		batch = append(batch, rest[0])
		rest = rest[1:]
	}
	for len(s.pendingAcks) > 0 {
		n := min(len(s.pendingAcks), s.peer.calls)
		batch = append(batch, message{kind: msgAck, numbers: append([]uint64(nil), s.pendingAcks[:n]...)})
		s.pendingAcks = s.pendingAcks[:copy(s.pendingAcks, s.pendingAcks[n:])]
	}
	if l.pongDue {
		batch = append(batch, message{kind: msgPong, number: l.pongValue})
		l.pongDue = false
	}
	if l.awaitingPong && l.pingSentAt == 0 {
		batch = append(batch, message{kind: msgPing, number: l.pingValue})
		l.pingSentAt = s.now()
	}
	batch = append(batch, rest...)
	clear(l.queue)
	l.queue = l.queue[:0]
	return batch
}

func (l *link) flush(buf *[]byte) error {
	err := l.writeAll(*buf)
	*buf = (*buf)[:0]
	return err
}

func (l *link) writeAll(b []byte) error {
	for len(b) > 0 {
		n, err := l.c.Write(b[:min(len(b), maxWriteBytes)])
		b = b[n:]
		if n > 0 {
			l.lastActive.Store(l.s.now())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// askPing queues a ping unless one is on its way.
func (l *link) askPing(now int64) {
	if l.awaitingPong {
		return
	}
	l.pingValue++
	l.pingQueuedAt, l.pingSentAt, l.awaitingPong = now, 0, true
	l.wakeWriter()
}

// ponged takes the answer to a ping.
func (l *link) ponged(value uint64) {
	if !l.awaitingPong || value != l.pingValue || l.pingSentAt == 0 {
		return
	}
	l.awaitingPong = false
	l.s.roundTrips.add(time.Duration(l.s.now() - l.pingSentAt))
}

// roundTrips are the last round trips.
type roundTrips struct {
	mu   sync.Mutex
	ring [16]time.Duration
	n    int
}

func (t *roundTrips) add(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ring[t.n%len(t.ring)] = max(d, 1)
	t.n++
}

func (t *roundTrips) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n = 0
}

func (t *roundTrips) min() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	var least time.Duration
	for _, d := range t.ring[:min(t.n, len(t.ring))] {
		if least == 0 || d < least {
			least = d
		}
	}
	return least
}
