package session

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/trust"
)

// bodiesInFlight times the message limit is how many bytes of unanswered calls a
// peer may have with us.
const bodiesInFlight = 4

// Session is the channel between two engines. It may be used by many goroutines.
type Session struct {
	id        transport.SessionID
	key       sessionKey
	peerID    trust.PeerID
	peerName  string
	peerEpoch uint64
	account   transport.Account
	budget    Budget
	onRefuse  func(Refusal) // the server's
	limits    Limits
	peer      bounds // what the peer takes
	handle    Handler
	onEnd     func(s *Session, err error)
	onForget  func(s *Session) // the server's, when the session ends

	ctx        context.Context // of handlers
	cancel     context.CancelFunc
	wg         sync.WaitGroup // all goroutines but the one that ends it
	done       chan struct{}  // closed when the session ends
	finished   chan struct{}  // closed when all is done, Ended too
	keeperWake chan struct{}  // nil on the answering side

	start      time.Time
	lastHeard  atomic.Int64 // when the last byte came, since start
	roundTrips roundTrips

	credits credits

	mu              sync.Mutex
	link            *link         // nil: not connected
	attached        chan struct{} // closed when there is a link; nil where no one waits for one
	last            [2]netip.AddrPort
	generation      uint64
	over            bool
	closing         bool // we said goodbye: how it ends is our doing
	err             error
	nextNumber      uint64               // of our next call
	sentCalls       map[uint64]*sentCall // without an answer
	pendingAcks     []uint64             // of answers that came
	answersReceived uint64               // ever

	receivedCalls  map[uint64]*receivedCall // until the peer acknowledges the answer
	runningCalls   int
	runningBytes   int       // bodies of the calls that run
	answerBytes    int       // of answers that are not acknowledged
	answersDrained sync.Cond // answerBytes became less
}

type sentCall struct {
	method uint16
	body   []byte
	done   chan struct{}
	answer []byte
	err    error
}

type receivedCall struct {
	number   uint64
	held     int64 // of the budget
	answered bool
	outcome  uint8
	answer   []byte
}

func newSession(id transport.SessionID, peer trust.PeerID, w welcome, l Limits, h Handler, key sessionKey) *Session {
	s := &Session{
		id: id, key: key, peerID: peer, peerName: w.name, peerEpoch: w.epoch, limits: l, handle: h,
		peer:          bounds{body: int(min(w.messageBytes, 1<<30)), calls: int(min(w.calls, 1<<16))},
		done:          make(chan struct{}),
		finished:      make(chan struct{}),
		start:         time.Now(),
		nextNumber:    1,
		sentCalls:     map[uint64]*sentCall{},
		receivedCalls: map[uint64]*receivedCall{},
	}
	s.answersDrained.L = &s.mu
	s.credits = credits{turn: make(chan struct{}, 1), given: make(chan struct{}, 1), calls: s.peer.calls, bytes: bodiesInFlight * s.peer.body}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// now is the session's clock.
func (s *Session) now() int64 { return int64(time.Since(s.start)) }

// ID names the session on both sides.
func (s *Session) ID() transport.SessionID { return s.id }

// Peer is the other engine. Its name is what it says.
func (s *Session) Peer() (name string, epoch uint64) { return s.peerName, s.peerEpoch }

// Account is whom the peer's quotas count for. It is the same for all sessions of a peer.
func (s *Session) Account() transport.Account { return s.account }

// accountOf is the first name of the peer's certificate. Without one it is the peer's address,
// with the token's name: many peers can have a token, and what a peer calls itself proves nothing.
func accountOf(id trust.PeerID, c net.Conn) transport.Account {
	if len(id.Certificate) > 0 {
		return transport.Account("certificate " + id.Certificate[0])
	}
	if id.Token != "" {
		return transport.Account("token " + id.Token + " from " + addrOf(c.RemoteAddr()).Addr().WithZone("").String())
	}
	return addressOf(c)
}

// PeerID is who the other engine has proven to be when the session began. A connection that
// proves something else does not resume it.
func (s *Session) PeerID() trust.PeerID { return s.peerID }

// LeaveProof shows that a connection of this session may be left: only the two ends of the
// session can make it.
func (s *Session) LeaveProof(transportName string, conn transport.ConnID) [proofSize]byte {
	return mac(s.key[:], labelLeave, []byte(transportName), binary.BigEndian.AppendUint64(nil, uint64(conn)))
}

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

// Over says whether the session has ended. Ended is told a moment later.
func (s *Session) Over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// Ready waits until there is a connection. Otherwise it gives why the session is over, or why
// ctx is.
func (s *Session) Ready(ctx context.Context) error {
	for {
		s.mu.Lock()
		if s.link != nil {
			s.mu.Unlock()
			return nil
		}
		if s.attached == nil {
			s.attached = make(chan struct{})
		}
		attached := s.attached
		s.mu.Unlock()
		select {
		case <-attached:
		case <-s.done:
			return s.endError()
		case <-ctx.Done():
			return fmt.Errorf("not connected yet: %w", context.Cause(ctx))
		}
	}
}

// RoundTrip is the smallest recent round trip, 0 not known.
func (s *Session) RoundTrip() time.Duration { return s.roundTrips.min() }

// Call asks the peer and waits for the answer, over as many connections as it
// takes. A *RemoteError is the peer's answer; ErrRestarted, ErrUnreachable and
// ErrEnded end the session; ctx ends the waiting only: the call may still run, and
// keeps its credits until the peer has answered, because it takes the peer's room as
// long. That bounds what is kept here of calls for which nobody waits, and there of
// their answers.
func (s *Session) Call(ctx context.Context, method uint16, body []byte) ([]byte, error) {
	if len(body) > s.peer.body {
		return nil, fmt.Errorf("call of %d bytes: %w (%d)", len(body), ErrTooLarge, s.peer.body)
	}
	body = slices.Clone(body)
	pause, busy := firstBusyPause, false
	for {
		answer, err := s.callOnce(ctx, method, body)
		switch {
		case err == nil || !errors.Is(err, ErrBusy) && !busy:
			return answer, err
		case !errors.Is(err, ErrBusy):
			return nil, fmt.Errorf("%w (%w)", err, ErrBusy)
		}
		t := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-t.C:
		case <-s.done:
		case <-ctx.Done():
			t.Stop()
			return nil, fmt.Errorf("%w: %w", ErrBusy, context.Cause(ctx))
		}
		t.Stop()
		pause, busy = min(2*pause, maxBusyPause), true
	}
}

// The pauses before a call is made again that the peer had no room for.
const (
	firstBusyPause = 5 * time.Millisecond
	maxBusyPause   = 500 * time.Millisecond
)

func (s *Session) callOnce(ctx context.Context, method uint16, body []byte) ([]byte, error) {
	if err := s.credits.acquire(ctx, s.done, len(body)); err != nil {
		if errors.Is(err, errSessionOver) {
			err = s.endError()
		}
		return nil, err
	}
	c := &sentCall{method: method, body: body, done: make(chan struct{})}
	s.mu.Lock()
	if s.over || s.closing {
		s.mu.Unlock()
		s.credits.release(len(body))
		return nil, s.endError()
	}
	number := s.nextNumber
	s.nextNumber++
	s.sentCalls[number] = c
	first := len(s.sentCalls) == 1
	if s.link != nil {
		s.link.send(message{kind: msgCall, number: number, method: method, body: c.body})
	}
	s.mu.Unlock()
	if first {
		s.wakeKeeper()
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		select {
		case <-c.done:
		default:
			return nil, fmt.Errorf("no answer yet: %w", ctx.Err())
		}
	}
	return c.answer, c.err
}

// admit says whether the body of a message is to be read, and what of the budget was taken
// for it. An answer is what we have asked for, and small beside the call's own room.
func (s *Session) admit(m *message, body int) (held int64, err error) {
	s.mu.Lock()
	unwanted := m.kind == msgAnswer && s.sentCalls[m.number] == nil || m.kind == msgCall && s.receivedCalls[m.number] != nil
	s.mu.Unlock()
	switch {
	case unwanted: // it came over an earlier connection too
		return 0, errStale
	case m.kind == msgAnswer:
		return 0, nil
	}
	n := s.budget.ofCall(m.method, body)
	if err := s.budget.Memory.Take(s.account, n); err != nil {
		s.refuse(RefusedMemory)
		return 0, err
	}
	return n, nil
}

// hold changes what a call has of the budget to less. The mutex is held.
func (s *Session) hold(t *receivedCall, n int64) {
	n = min(n, t.held)
	s.budget.Memory.Give(s.account, t.held-n)
	t.held = n
}

// refuse counts what was refused to the peer.
func (s *Session) refuse(why Refusal) {
	if s.onRefuse != nil {
		s.onRefuse(why)
	}
}

// wakeKeeper wakes the keeper, which watches the connection more closely while a call
// is unanswered.
func (s *Session) wakeKeeper() {
	select {
	case s.keeperWake <- struct{}{}:
	default:
	}
}

// attach makes a connection the session's. sync is the peer's where that has been
// read already. It reports false where the session is over, or a later connection
// was there before.
func (s *Session) attach(c net.Conn, generation uint64, sync *message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || generation <= s.generation {
		return false
	}
	s.generation = generation
	if s.link != nil {
		s.link.close()
	}
	l := newLink(s, c)
	s.link = l
	if s.attached != nil {
		close(s.attached)
		s.attached = nil
	}
	s.last = [2]netip.AddrPort{addrOf(c.LocalAddr()), addrOf(c.RemoteAddr())}
	s.lastHeard.Store(s.now())
	waiting := slices.Sorted(maps.Keys(s.sentCalls))
	s.pendingAcks = s.pendingAcks[:0] // the list says it
	l.send(message{kind: msgSync, number: generation, numbers: waiting})
	for _, n := range waiting {
		l.send(message{kind: msgCall, number: n, method: s.sentCalls[n].method, body: s.sentCalls[n].body})
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
		s.wakeKeeper()
	}
}

// receive handles one message of the present connection. What comes over another
// one is dropped: a call that waits in a dead connection's buffers has been sent
// again over the present one, and would run twice. held is what was taken of the budget
// for the message; what is left of that is the caller's to give back.
func (s *Session) receive(l *link, m *message, held int64) (left int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != l {
		return held, errStale
	}
	if l.synced == (m.kind == msgSync) {
		return held, fmt.Errorf("%w: type %d is out of place", errMalformed, m.kind)
	}
	switch m.kind {
	case msgSync:
		s.synced(l, m)
	case msgCall:
		return s.receiveCall(l, m, held)
	case msgAnswer:
		s.receiveAnswer(l, m)
	case msgAck:
		for _, n := range m.numbers {
			if t := s.receivedCalls[n]; t != nil && t.answered {
				s.forgetCall(n, t)
			}
		}
	case msgPing:
		l.pongValue, l.pongDue = m.number, true
		l.wakeWriter()
	case msgPong:
		l.ponged(m.number)
	case msgBye:
		if m.number == byeWithdrawn {
			return held, ErrWithdrawn
		}
		return held, errBye
	}
	return held, nil
}

var (
	errStale = errors.New("another connection has taken over")
	errBye   = errors.New("goodbye")
)

// receiveCall begins a call of the peer's, if it is not running or answered already.
func (s *Session) receiveCall(l *link, m *message, held int64) (left int64, err error) {
	if m.number <= l.lastCall {
		return held, fmt.Errorf("%w: call %d after %d", errMalformed, m.number, l.lastCall)
	}
	l.lastCall = m.number
	if s.receivedCalls[m.number] != nil {
		return held, nil
	}
	if max(len(s.receivedCalls), s.runningCalls) >= s.limits.CallsInFlight || s.runningBytes+len(m.body) > bodiesInFlight*s.limits.MessageBytes {
		return held, fmt.Errorf("%w: more calls in flight than are taken", errMalformed)
	}
	t := &receivedCall{number: m.number, held: held}
	s.receivedCalls[m.number] = t
	if m.refused != nil {
		t.answered, t.outcome = true, outcomeBusy
		l.send(t.message())
		return 0, nil //nolint:nilerr // the peer is told
	}
	s.runningCalls++
	s.runningBytes += len(m.body)
	s.wg.Add(1)
	go s.runCall(t, m.method, m.body)
	return 0, nil
}

// runCall runs a call of the peer's and keeps the answer until it is acknowledged.
func (s *Session) runCall(t *receivedCall, method uint16, body []byte) {
	defer s.wg.Done()
	s.mu.Lock()
	// A peer that does not take its answers gets no new ones.
	for s.answerBytes > bodiesInFlight*s.maxAnswerBytes() && !s.over {
		s.answersDrained.Wait()
	}
	if s.over {
		s.hold(t, 0)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	answer, err := s.answer(method, body)
	if full := (*transport.FullError)(nil); errors.As(err, &full) {
		s.refuse(RefusedQuota)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Others that ran at the same time may have left answers meanwhile.
	for s.answerBytes > 0 && s.answerBytes+len(answer) > (bodiesInFlight+1)*s.maxAnswerBytes() && !s.over {
		s.answersDrained.Wait()
	}
	s.runningCalls--
	s.runningBytes -= len(body)
	if s.over || s.receivedCalls[t.number] != t {
		s.hold(t, 0)
		return
	}
	t.answered, t.answer, t.outcome = true, answer, outcomeOK
	switch {
	case errors.Is(err, ErrBusy):
		t.answer, t.outcome = nil, outcomeBusy
	case err != nil:
		text := err.Error()
		t.answer, t.outcome = []byte(text[:min(len(text), s.peer.body)]), outcomeError
		if errors.Is(err, ErrCallLimit) {
			t.outcome = outcomeLimit
		}
	}
	s.hold(t, callBytes+int64(len(t.answer)))
	s.answerBytes += len(t.answer)
	if s.link != nil && s.link.synced {
		s.link.send(t.message())
	}
}

// maxAnswerBytes is the largest answer that is kept for the peer, which may take more than that.
func (s *Session) maxAnswerBytes() int { return min(s.peer.body, s.limits.MessageBytes) }

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

// Acknowledgements wait for the next message that goes out, unless there are so many, or an
// answer was larger than that.
const (
	maxDelayedAcks     = 32
	maxDelayedAckBytes = 4 << 10
)

// receiveAnswer ends a call of ours.
func (s *Session) receiveAnswer(l *link, m *message) {
	c := s.sentCalls[m.number]
	if c == nil {
		return // it came over an earlier connection too
	}
	delete(s.sentCalls, m.number)
	s.answersReceived++
	s.credits.release(len(c.body))
	s.pendingAcks = append(s.pendingAcks, m.number)
	if len(s.pendingAcks) >= maxDelayedAcks || len(m.body) > maxDelayedAckBytes {
		l.wakeWriter()
	}
	switch m.outcome {
	case outcomeOK:
		c.answer = m.body
	case outcomeBusy:
		c.err = ErrBusy
	default:
		c.err = &RemoteError{Text: string(m.body), limit: m.outcome == outcomeLimit}
	}
	close(c.done)
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
	for n, t := range s.receivedCalls {
		switch {
		case !waiting[n]:
			s.forgetCall(n, t)
		case t.answered:
			l.send(t.message())
		}
	}
}

func (s *Session) forgetCall(number uint64, t *receivedCall) {
	delete(s.receivedCalls, number)
	if t.answered {
		s.hold(t, 0)
		s.answerBytes -= len(t.answer)
		s.answersDrained.Broadcast()
	}
}

func (t *receivedCall) message() message {
	return message{kind: msgAnswer, number: t.number, outcome: t.outcome, body: t.answer}
}

// endError is why the session is over, for callers: never nil.
func (s *Session) endError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.err, ErrEnded)
}

// end ends the session, once. Its goroutines end soon after, then Ended is told.
func (s *Session) end(err error) {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return
	}
	if s.closing {
		err = nil
	}
	s.over, s.err = true, err
	for _, c := range s.sentCalls {
		c.err = cmp.Or(err, ErrEnded)
		close(c.done)
	}
	clear(s.sentCalls)
	for _, t := range s.receivedCalls {
		if t.answered {
			s.hold(t, 0) // the others do it when they have run
		}
	}
	clear(s.receivedCalls)
	link, onEnd := s.link, s.onEnd
	s.link = nil
	s.answersDrained.Broadcast()
	close(s.done)
	s.mu.Unlock()
	s.cancel()
	if link != nil {
		link.close()
	}
	if s.onForget != nil {
		s.onForget(s)
	}
	go func() {
		s.wg.Wait()
		if onEnd != nil {
			onEnd(s, err)
		}
		close(s.finished)
	}()
}

// byeTime bounds how long Close waits for the peer to have read our goodbye.
const byeTime = time.Second

// Close says goodbye, ends the session and waits for its goroutines and Ended. It
// must not be called from Handle or Ended, which it waits for.
func (s *Session) Close() error {
	s.leave(0)
	return nil
}

// leave is Close with a reason for the peer, 0 none.
func (s *Session) leave(why uint64) {
	s.mu.Lock()
	link := s.link
	if link != nil && !s.closing {
		link.send(message{kind: msgBye, number: why})
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
	<-s.finished
}

// credits are how many more calls of ours the peer takes, and bytes of them.
type credits struct {
	turn  chan struct{} // has a token while a call takes its credits; others stand in line for it
	given chan struct{} // has a token if some were given back since somebody looked

	mu    sync.Mutex
	calls int
	bytes int
}

var errSessionOver = errors.New("over")

// acquire waits for a call's credits: first come, first served. over ends the wait with errSessionOver.
func (c *credits) acquire(ctx context.Context, over <-chan struct{}, bytes int) error {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-over:
		return errSessionOver
	}
	defer func() { <-c.turn }()
	for !c.take(bytes) {
		select {
		case <-c.given:
		case <-ctx.Done():
			return ctx.Err()
		case <-over:
			return errSessionOver
		}
	}
	return nil
}

func (c *credits) take(bytes int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == 0 || c.bytes < bytes {
		return false
	}
	c.calls--
	c.bytes -= bytes
	return true
}

func (c *credits) release(bytes int) {
	c.mu.Lock()
	c.calls++
	c.bytes += bytes
	c.mu.Unlock()
	select {
	case c.given <- struct{}{}:
	default:
	}
}
