package session

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/internal/base/engine/transport"
	"github.com/topoctl/topoctl/internal/base/pkgerr"
)

// bodiesInFlight times the message limit is how many bytes of unanswered calls a
// peer may have with us.
const bodiesInFlight = 4

// Session is the channel between two engines. It may be used by many goroutines.
type Session struct {
	id        transport.SessionID
	peerName  string
	peerEpoch uint64
	limits    Limits
	peer      bounds // what the peer takes
	handle    Handler
	ended     func(s *Session, err error)
	forget    func(s *Session) // the server's, when the session ends

	ctx    context.Context // of handlers
	cancel context.CancelFunc
	wg     sync.WaitGroup // all goroutines but the one that ends it
	over   chan struct{}  // closed when the session ends
	gone   chan struct{}  // closed when all is done, Ended too
	poke   chan struct{}  // wakes the keeper; nil on the answering side

	start time.Time
	heard atomic.Int64 // when the last byte came, since start
	trips trips

	room room // for our calls
	key  sessionKey

	mu         sync.Mutex
	link       *link // nil: not connected
	last       [2]netip.AddrPort
	generation uint64
	isOver     bool
	closing    bool // we said goodbye: how it ends is our doing
	err        error
	next       uint64           // number of the next call
	calls      map[uint64]*call // ours without an answer
	acks       []uint64         // answers that came, to be acknowledged
	answers    uint64           // that came, ever

	taken   map[uint64]*taken // the peer's calls until it acknowledges the answer
	running int
	bodies  int       // bytes of those that run
	kept    int       // bytes of answers
	drained sync.Cond // kept became less
}

// call is one of ours.
type call struct {
	method uint16
	body   []byte
	done   chan struct{}
	answer []byte
	err    error
}

// taken is one of the peer's.
type taken struct {
	number   uint64
	answered bool
	outcome  uint8
	answer   []byte
}

func newSession(id transport.SessionID, w welcome, l Limits, h Handler, key sessionKey) *Session {
	s := &Session{
		id: id, peerName: w.name, peerEpoch: w.epoch, limits: l, handle: h, key: key,
		peer:  bounds{body: int(min(w.messageBytes, 1<<30)), calls: int(min(w.calls, 1<<16))},
		over:  make(chan struct{}),
		gone:  make(chan struct{}),
		start: time.Now(),
		next:  1,
		calls: map[uint64]*call{},
		taken: map[uint64]*taken{},
	}
	s.drained.L = &s.mu
	s.room = room{slots: s.peer.calls, bytes: bodiesInFlight * s.peer.body}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// now is the session's clock.
func (s *Session) now() int64 { return int64(time.Since(s.start)) }

// ID names the session on both sides.
func (s *Session) ID() transport.SessionID { return s.id }

// Peer is the other engine. Its name is what it says.
func (s *Session) Peer() (name string, epoch uint64) { return s.peerName, s.peerEpoch }

// Remote is the peer's address of the present connection, or of the last one.
func (s *Session) Remote() netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[1]
}

// Local is our address of the present connection, or of the last one.
func (s *Session) Local() netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[0]
}

// RoundTrip is the smallest recent round trip, 0 not known.
func (s *Session) RoundTrip() time.Duration { return s.trips.min() }

// Call asks the peer and waits for the answer, over as many connections as it
// takes. A *RemoteError is the peer's answer; ErrRestarted, ErrUnreachable and
// ErrEnded end the session; ctx ends the waiting only: the call may still run.
func (s *Session) Call(ctx context.Context, method uint16, body []byte) ([]byte, error) {
	if len(body) > s.peer.body {
		return nil, pkgerr.Errorf("session", "peer %q: call of %d bytes: %w (%d)", s.peerName, len(body), ErrTooLarge, s.peer.body)
	}
	if err := s.room.take(ctx, s.over, len(body)); err != nil {
		if errors.Is(err, errOver) {
			err = s.overErr()
		}
		return nil, pkgerr.Errorf("session", "peer %q: %w", s.peerName, err)
	}
	c := &call{method: method, body: slices.Clone(body), done: make(chan struct{})}
	s.mu.Lock()
	if s.isOver || s.closing {
		s.mu.Unlock()
		s.room.release(len(body))
		return nil, pkgerr.Errorf("session", "peer %q: %w", s.peerName, s.overErr())
	}
	number := s.next
	s.next++
	s.calls[number] = c
	first := len(s.calls) == 1
	if s.link != nil {
		s.link.send(message{kind: msgCall, number: number, method: method, body: c.body})
	}
	s.mu.Unlock()
	if first {
		s.nudge()
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		select {
		case <-c.done:
		default:
			return nil, pkgerr.Errorf("session", "peer %q: no answer yet: %w", s.peerName, ctx.Err())
		}
	}
	return c.answer, c.err
}

// nudge wakes the keeper, which watches the connection more closely while a call
// is unanswered.
func (s *Session) nudge() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// overErr is why the session is over, for callers: never nil.
func (s *Session) overErr() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.err, ErrEnded)
}

// end ends the session, once. Its goroutines end soon after, then Ended is told.
func (s *Session) end(err error) {
	s.mu.Lock()
	if s.isOver {
		s.mu.Unlock()
		return
	}
	if s.closing {
		err = nil
	}
	s.isOver, s.err = true, err
	for _, c := range s.calls {
		c.err = pkgerr.Errorf("session", "peer %q: %w", s.peerName, cmp.Or(err, ErrEnded))
		close(c.done)
	}
	clear(s.calls)
	clear(s.taken)
	link, ended := s.link, s.ended
	s.link = nil
	s.drained.Broadcast()
	close(s.over)
	s.mu.Unlock()
	s.cancel()
	if link != nil {
		link.shut()
	}
	if s.forget != nil {
		s.forget(s)
	}
	go func() {
		s.wg.Wait()
		if ended != nil {
			ended(s, err)
		}
		close(s.gone)
	}()
}

// byeTime bounds how long Close waits for the peer to have read our goodbye.
const byeTime = time.Second

// Close says goodbye, ends the session and waits for its goroutines and Ended. It
// must not be called from Handle or Ended, which it waits for.
func (s *Session) Close() error {
	s.mu.Lock()
	link := s.link
	if link != nil && !s.closing {
		link.send(message{kind: msgBye})
	}
	s.closing = true
	s.mu.Unlock()
	if link != nil {
		// The peer answers by closing. Closing first could destroy what we said.
		t := time.NewTimer(byeTime)
		select {
		case <-link.readDone:
		case <-t.C:
		}
		t.Stop()
	}
	s.end(nil)
	<-s.gone
	return nil
}

// attach makes a connection the session's. sync is the peer's where that has been
// read already. It reports false where the session is over, or a later connection
// was there before.
func (s *Session) attach(c net.Conn, generation uint64, sync *message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isOver || generation <= s.generation {
		return false
	}
	s.generation = generation
	if s.link != nil {
		s.link.shut()
	}
	l := newLink(s, c)
	s.link = l
	s.last = [2]netip.AddrPort{addrOf(c.LocalAddr()), addrOf(c.RemoteAddr())}
	s.heard.Store(s.now())
	waiting := slices.Sorted(maps.Keys(s.calls))
	s.acks = s.acks[:0] // the list says it
	l.send(message{kind: msgSync, number: generation, numbers: waiting})
	for _, n := range waiting {
		l.send(message{kind: msgCall, number: n, method: s.calls[n].method, body: s.calls[n].body})
	}
	if sync != nil {
		s.synced(l, sync)
	}
	s.wg.Add(2)
	go l.write()
	go l.read()
	return true
}

// detach is told by a link that it is dead.
func (s *Session) detach(l *link) {
	s.mu.Lock()
	mine := s.link == l
	if mine {
		s.link = nil
	}
	s.mu.Unlock()
	if mine {
		s.nudge()
	}
}

// synced takes the peer's list of calls that still wait for an answer: those that
// are not on it have been answered, the answers of the others are sent again.
func (s *Session) synced(l *link, m *message) {
	l.synced = true
	close(l.ready)
	waiting := make(map[uint64]bool, len(m.numbers))
	for _, n := range m.numbers {
		waiting[n] = true
	}
	for n, t := range s.taken {
		switch {
		case !waiting[n]:
			s.drop(n, t)
		case t.answered:
			l.send(t.message())
		}
	}
}

// drop forgets one of the peer's calls.
func (s *Session) drop(number uint64, t *taken) {
	delete(s.taken, number)
	if t.answered {
		s.kept -= len(t.answer)
		s.drained.Broadcast()
	}
}

func (t *taken) message() message {
	return message{kind: msgAnswer, number: t.number, outcome: t.outcome, body: t.answer}
}
