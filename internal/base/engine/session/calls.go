package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// receive handles one message of the present connection. What comes over another
// one is dropped: a call that waits in a dead connection's buffers has been sent
// again over the present one, and would run twice.
func (s *Session) receive(l *link, m *message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != l {
		return errStale
	}
	if l.synced == (m.kind == msgSync) {
		return fmt.Errorf("%w: type %d is out of place", errMalformed, m.kind)
	}
	switch m.kind {
	case msgSync:
		s.synced(l, m)
	case msgCall:
		return s.takeCall(l, m)
	case msgAnswer:
		s.takeAnswer(l, m)
	case msgAck:
		for _, n := range m.numbers {
			if t := s.taken[n]; t != nil && t.answered {
				s.drop(n, t)
			}
		}
	case msgPing:
		l.pong, l.hasPong = m.number, true
		l.wakeUp()
	case msgPong:
		l.ponged(m.number)
	case msgBye:
		return errBye
	}
	return nil
}

var (
	errStale = errors.New("another connection has taken over")
	errBye   = errors.New("goodbye")
)

// takeCall begins a call of the peer's, if it is not running or answered already.
func (s *Session) takeCall(l *link, m *message) error {
	if m.number <= l.lastCall {
		return fmt.Errorf("%w: call %d after %d", errMalformed, m.number, l.lastCall)
	}
	l.lastCall = m.number
	if s.taken[m.number] != nil {
		return nil
	}
	if max(len(s.taken), s.running) >= s.limits.CallsInFlight || s.bodies+len(m.body) > bodiesInFlight*s.limits.MessageBytes {
		return fmt.Errorf("%w: more calls in flight than are taken", errMalformed)
	}
	t := &taken{number: m.number}
	s.taken[m.number] = t
	s.running++
	s.bodies += len(m.body)
	s.wg.Add(1)
	go s.run(t, m.method, m.body)
	return nil
}

// run runs a call of the peer's and keeps the answer until it is acknowledged.
func (s *Session) run(t *taken, method uint16, body []byte) {
	defer s.wg.Done()
	s.mu.Lock()
	// A peer that does not take its answers gets no new ones.
	for s.kept > bodiesInFlight*s.largest() && !s.isOver {
		s.drained.Wait()
	}
	over := s.isOver
	s.mu.Unlock()
	if over {
		return
	}
	answer, err := s.answer(method, body)
	s.mu.Lock()
	defer s.mu.Unlock()
	// Others that ran at the same time may have filled the room.
	for s.kept > 0 && s.kept+len(answer) > (bodiesInFlight+1)*s.largest() && !s.isOver {
		s.drained.Wait()
	}
	s.running--
	s.bodies -= len(body)
	if s.isOver || s.taken[t.number] != t {
		return
	}
	t.answered, t.answer, t.outcome = true, answer, outcomeOK
	if err != nil {
		text := err.Error()
		t.answer, t.outcome = []byte(text[:min(len(text), s.peer.body)]), outcomeError
	}
	s.kept += len(t.answer)
	if s.link != nil && s.link.synced {
		s.link.send(t.message())
	}
}

// largest is the body that answers are counted in: what the peer takes may be more
// than what we would keep for anybody.
func (s *Session) largest() int { return min(s.peer.body, s.limits.MessageBytes) }

func (s *Session) answer(method uint16, body []byte) ([]byte, error) {
	if s.handle == nil {
		return nil, fmt.Errorf("no calls are answered here (method %d)", method)
	}
	out, err := s.handle(s.ctx, s, method, body)
	if err == nil && len(out) > s.peer.body {
		err = fmt.Errorf("answer of %d bytes: %w (%d)", len(out), ErrTooLarge, s.peer.body)
	}
	return out, err
}

// ackSoon is how many answers, and bytes of one, are acknowledged at once. Others
// wait for the next message that goes out.
const (
	ackSoon      = 32
	ackSoonBytes = 4 << 10
)

func (s *Session) takeAnswer(l *link, m *message) {
	c := s.calls[m.number]
	if c == nil {
		return // it came over an earlier connection too
	}
	delete(s.calls, m.number)
	s.answers++
	s.room.release(len(c.body))
	s.acks = append(s.acks, m.number)
	if len(s.acks) >= ackSoon || len(m.body) > ackSoonBytes {
		l.wakeUp()
	}
	if m.outcome == outcomeOK {
		c.answer = m.body
	} else {
		c.err = &RemoteError{Text: string(m.body)}
	}
	close(c.done)
}

// room is what the peer takes of our calls: first come, first served.
type room struct {
	mu      sync.Mutex
	slots   int
	bytes   int
	waiting []*place
}

type place struct {
	bytes int
	ready chan struct{}
}

var errOver = errors.New("over")

func (r *room) take(ctx context.Context, over <-chan struct{}, bytes int) error {
	r.mu.Lock()
	if len(r.waiting) == 0 && r.slots > 0 && r.bytes >= bytes {
		r.slots--
		r.bytes -= bytes
		r.mu.Unlock()
		return nil
	}
	p := &place{bytes: bytes, ready: make(chan struct{})}
	r.waiting = append(r.waiting, p)
	r.mu.Unlock()
	var err error
	select {
	case <-p.ready:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-over:
		err = errOver
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, w := range r.waiting {
		if w == p {
			r.waiting = append(r.waiting[:i], r.waiting[i+1:]...)
			r.admit()
			return err
		}
	}
	// It was let in meanwhile.
	r.slots++
	r.bytes += bytes
	r.admit()
	return err
}

func (r *room) release(bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slots++
	r.bytes += bytes
	r.admit()
}

func (r *room) admit() {
	for len(r.waiting) > 0 && r.slots > 0 && r.bytes >= r.waiting[0].bytes {
		p := r.waiting[0]
		r.waiting = r.waiting[1:]
		r.slots--
		r.bytes -= p.bytes
		close(p.ready)
	}
}
