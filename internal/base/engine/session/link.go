package session

import (
	"bufio"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// link is a session's connection: a reader and a writer.
type link struct {
	s        *Session
	c        net.Conn
	wake     chan struct{} // 1: the writer has something to do
	closing  sync.Once
	dead     chan struct{}
	ready    chan struct{} // closed when the peer's first message has come
	readDone chan struct{}
	moved    atomic.Int64 // when the last byte came or went, on the session's clock

	// Guarded by the session's mutex.
	out      []message
	synced   bool   // the peer's sync has come
	lastCall uint64 // numbers of calls only grow
	pong     uint64
	hasPong  bool
	ping     uint64 // value of the last one, 0 none
	pinged   int64  // when it was asked for
	pingOut  int64  // when it was written, 0 not yet
	unponged bool
}

func newLink(s *Session, c net.Conn) *link {
	l := &link{s: s, c: c, wake: make(chan struct{}, 1), dead: make(chan struct{}), ready: make(chan struct{}), readDone: make(chan struct{})}
	l.moved.Store(s.now())
	return l
}

// send queues a message. The queue is bounded by the calls in flight of both
// sides.
func (l *link) send(m message) {
	l.out = append(l.out, m)
	l.wakeUp()
}

func (l *link) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// shut closes the connection: reader and writer end.
func (l *link) shut() {
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
		l.moved.Store(now)
		l.s.heard.Store(now)
	}
	return n, err
}

func (l *link) read() {
	defer l.s.wg.Done()
	defer close(l.readDone)
	r := bufio.NewReaderSize(l, 4<<10)
	limits := bounds{body: l.s.limits.MessageBytes, calls: l.s.limits.CallsInFlight}
	for {
		m, err := readMessage(r, limits)
		if err == nil {
			err = l.s.receive(l, &m)
		}
		if err != nil {
			l.shut()
			l.s.detach(l)
			if errors.Is(err, errBye) {
				l.s.end(ErrEnded)
			}
			return
		}
	}
}

const (
	writeStep = 256 << 10 // between two of these a writer's progress is seen
	inlined   = 2 << 10   // bodies up to this are copied to their head
)

func (l *link) write() {
	defer l.s.wg.Done()
	defer l.s.detach(l)
	defer l.shut()
	buf := make([]byte, 0, 4<<10)
	var batch []message
	for {
		select {
		case <-l.wake:
		case <-l.dead:
			return
		}
		batch = l.take(batch[:0])
		for i := range batch {
			m := &batch[i]
			buf = m.appendHead(buf)
			if len(m.body) <= inlined {
				buf = append(buf, m.body...)
			}
			if len(m.body) <= inlined && len(buf) < 32<<10 {
				continue
			}
			if l.flush(&buf) != nil || (len(m.body) > inlined && l.put(m.body) != nil) {
				return
			}
		}
		if l.flush(&buf) != nil {
			return
		}
		clear(batch) // bodies are not held longer than needed
	}
}

// take gives what there is to write: acknowledgements first, so that the peer
// never sees more calls in flight than it takes.
func (l *link) take(batch []message) []message {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != l {
		return batch
	}
	rest := l.out
	if len(rest) > 0 && rest[0].kind == msgSync {
		batch = append(batch, rest[0])
		rest = rest[1:]
	}
	for len(s.acks) > 0 {
		n := min(len(s.acks), s.peer.calls)
		batch = append(batch, message{kind: msgAck, numbers: append([]uint64(nil), s.acks[:n]...)})
		s.acks = s.acks[:copy(s.acks, s.acks[n:])]
	}
	if l.hasPong {
		batch = append(batch, message{kind: msgPong, number: l.pong})
		l.hasPong = false
	}
	if l.unponged && l.pingOut == 0 {
		batch = append(batch, message{kind: msgPing, number: l.ping})
		l.pingOut = s.now()
	}
	batch = append(batch, rest...)
	clear(l.out)
	l.out = l.out[:0]
	return batch
}

func (l *link) flush(buf *[]byte) error {
	err := l.put(*buf)
	*buf = (*buf)[:0]
	return err
}

func (l *link) put(b []byte) error {
	for len(b) > 0 {
		n, err := l.c.Write(b[:min(len(b), writeStep)])
		b = b[n:]
		if n > 0 {
			l.moved.Store(l.s.now())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// askPing queues a ping unless one is on its way.
func (l *link) askPing(now int64) {
	if l.unponged {
		return
	}
	l.ping++
	l.pinged, l.pingOut, l.unponged = now, 0, true
	l.wakeUp()
}

// ponged takes the answer to a ping.
func (l *link) ponged(value uint64) {
	if !l.unponged || value != l.ping || l.pingOut == 0 {
		return
	}
	l.unponged = false
	l.s.trips.add(time.Duration(l.s.now() - l.pingOut))
}

// trips are the last round trips.
type trips struct {
	mu   sync.Mutex
	ring [16]time.Duration
	n    int
}

func (t *trips) add(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ring[t.n%len(t.ring)] = max(d, 1)
	t.n++
}

func (t *trips) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n = 0
}

func (t *trips) min() time.Duration {
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
