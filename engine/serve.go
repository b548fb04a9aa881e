package engine

import (
	"context"
	"crypto/hmac"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	mem "github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/trust"

	"github.com/topoctl/topoctl/engine/internal/session"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// The calls between engines, over a session. docs/wire.md specifies them.
const (
	methodDescribe uint16 = 1 // asked by whoever dialled; the answer is a descriptor, deltas follow
	methodDelta    uint16 = 2 // the other way
	methodAccept   uint16 = 3
	methodLeave    uint16 = 4
	methodNotify   uint16 = 5
	methodAsk      uint16 = 6 // of the application; the body is its own
	methodDigest   uint16 = 7
)

var errMalformed = errors.New("malformed call")

// acceptBody: length of the transport's name, the name, the connection, the
// transport's own request.
func acceptBody(name string, conn transport.ConnID, request []byte) []byte {
	b := make([]byte, 0, 1+len(name)+8+len(request))
	b = append(append(b, byte(len(name))), name...)
	b = binary.BigEndian.AppendUint64(b, uint64(conn))
	return append(b, request...)
}

func parseAccept(b []byte) (name string, conn transport.ConnID, request []byte, err error) {
	name, b, err = parseName(b)
	if err != nil || len(b) < 8 {
		return "", 0, nil, fmt.Errorf("accept: %w", errMalformed)
	}
	return name, transport.ConnID(binary.BigEndian.Uint64(b)), b[8:], nil
}

// leaving is a call to leave a connection, which may be of an earlier session of the same two
// engines: one that opens a peer again can fence what it had before. The proof shows that it was
// there.
type leaving struct {
	transport string
	session   transport.SessionID
	conn      transport.ConnID
	proof     [32]byte
}

func newLeaving(s *session.Session, transportName string, conn transport.ConnID) leaving {
	return leaving{transportName, s.ID(), conn, s.LeaveProof(transportName, conn)}
}

// body: length of the transport's name, the name, the session of the connection, the
// connection, the proof.
func (l *leaving) body() []byte {
	b := make([]byte, 0, 1+len(l.transport)+len(l.session)+8+len(l.proof))
	b = append(append(b, byte(len(l.transport))), l.transport...)
	b = append(b, l.session[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(l.conn))
	return append(b, l.proof[:]...)
}

func parseLeave(b []byte) (l leaving, err error) {
	l.transport, b, err = parseName(b)
	if err != nil || len(b) != len(l.session)+8+len(l.proof) {
		return l, fmt.Errorf("leave: %w", errMalformed)
	}
	b = b[copy(l.session[:], b):]
	l.conn = transport.ConnID(binary.BigEndian.Uint64(b))
	copy(l.proof[:], b[8:])
	return l, nil
}

func parseName(b []byte) (string, []byte, error) {
	if len(b) == 0 || len(b) < 1+int(b[0]) {
		return "", nil, errMalformed
	}
	n := 1 + int(b[0])
	return string(b[1:n]), b[n:], nil
}

// notifyBody: how long the peer's application may take to make room, in nanoseconds, then the payload. Of the time that
// is left the peer gives up first, so that there is an answer.
func notifyBody(left time.Duration, payload []byte) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(payload)), uint64(max(left-left/10, 0)))
	return append(b, payload...)
}

func parseNotify(b []byte) (wait time.Duration, payload []byte, err error) {
	if len(b) < 8 || len(b) > 8+maxNotify {
		return 0, nil, fmt.Errorf("notify: %w", errMalformed)
	}
	ns := binary.BigEndian.Uint64(b)
	return time.Duration(min(ns, uint64(maxNotifyWait))), b[8:], nil
}

// maxNotifyWait is how long a notification waits for room at most.
const maxNotifyWait = time.Minute

// handle answers the calls of engines that have opened this one. All of it may be
// hostile.
func (e *Engine) handle(ctx context.Context, s *session.Session, method uint16, body []byte) ([]byte, error) {
	p := e.permitOf(s)
	if err := p.refuse(s, method); err != nil {
		return nil, err
	}
	switch method {
	case methodDescribe:
		e.served.add(s)
		return e.describe(s)
	case methodAccept:
		name, conn, request, err := parseAccept(body)
		if err != nil {
			return nil, err
		}
		c := e.carrierOf(name)
		if c == nil {
			return nil, fmt.Errorf("transport %.32q: this engine has %s", name, e.carrierNames())
		}
		e.served.add(s)
		who, _ := s.Peer()
		from := transport.Origin{Session: s.ID(), Conn: conn, Name: who, Account: s.Account()}
		if p != nil {
			from.Rights = p.rights
		}
		return c.t.Accept(ctx, from, request)
	case methodLeave:
		return nil, e.leave(ctx, s, body)
	case methodNotify:
		return nil, e.notified(ctx, s, body)
	case methodAsk:
		return e.answer(ctx, s, body)
	case methodDigest:
		var rights *mem.Rights
		if p != nil {
			rights = p.rights
		}
		// A short call takes a processor for milliseconds. No peer has them all.
		if err := e.digests.Take(s.Account(), 1); err != nil {
			return nil, errors.Join(session.ErrBusy, err)
		}
		defer e.digests.Give(s.Account(), 1)
		return e.digest(ctx, rights, body)
	}
	return nil, fmt.Errorf("unknown call %d", method)
}

// answerBytes is what an answer to a peer's call may take.
func answerBytes(method uint16) int {
	switch method {
	case methodDescribe, methodAsk:
		return MaxAnswerBytes
	}
	return 0
}

// leave ends the passive end of a connection.
func (e *Engine) leave(ctx context.Context, s *session.Session, body []byte) error {
	l, err := parseLeave(body)
	if err != nil {
		return err
	}
	c := e.carrierOf(l.transport)
	of := e.served.find(l.session)
	if l.session == s.ID() {
		of = s
	}
	if c == nil || of == nil {
		return nil // then nothing can land by it
	}
	if want := of.LeaveProof(l.transport, l.conn); !hmac.Equal(l.proof[:], want[:]) {
		return errors.New("leave: the proof is not that of the connection's session")
	}
	// Calls of a peer run side by side, so this may overtake the connection's accept.
	// Transports remember what was left, and refuse the accept then (transport.Ends).
	who, _ := s.Peer()
	return c.t.Leave(ctx, transport.Origin{Session: l.session, Conn: l.conn, Name: who, Account: s.Account()}, l.conn)
}

// served are the sessions by which peers may have connections here. Each is there until its
// connections are left, which may be after its end.
type served struct {
	mu sync.Mutex
	by map[transport.SessionID]*session.Session
}

func (v *served) add(s *session.Session) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.by == nil {
		v.by = map[transport.SessionID]*session.Session{}
	}
	v.by[s.ID()] = s
}

func (v *served) find(id transport.SessionID) *session.Session {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.by[id]
}

func (v *served) remove(id transport.SessionID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.by, id)
}

// dataServer is the transport that wants data connections, nil without.
func (e *Engine) dataServer() transport.DataServer {
	for _, c := range e.carriers {
		if c.data != nil {
			return c.data
		}
	}
	return nil
}

// dataKey is the secret of a data connection that is expected.
func (e *Engine) dataKey(id transport.SessionID, conn transport.ConnID) (key transport.DataKey, ok bool) {
	if d := e.dataServer(); d != nil {
		return d.Key(id, conn)
	}
	return key, false
}

// data hands a data connection to the transport that wants such.
func (e *Engine) data(id transport.SessionID, conn transport.ConnID, name string, c net.Conn) error {
	if d := e.dataServer(); d != nil {
		return d.Serve(id, conn, name, c)
	}
	return pkgerr.New("engine", "no transport takes data connections")
}

// sessionEnded forgets an engine that had opened this one.
func (e *Engine) sessionEnded(s *session.Session, _ error) {
	e.unsubscribe(s)
	defer e.forgetPermit(s)
	if e.leaveAll(s) {
		return
	}
	e.start(func() {
		for rest(e.ctx, fenceRetry) && !e.leaveAll(s) {
		}
	})
}

// leaveAll leaves the connections of a session that is over, and says whether all are left. They
// do not come back. A peer of this host may never say that it has stopped.
func (e *Engine) leaveAll(s *session.Session) bool {
	errs := transport.Concurrently(e.carriers, func(c *carrier) error {
		ctx, cancel := context.WithTimeout(context.Background(), e.leaveTime)
		defer cancel()
		err := c.t.LeaveAll(ctx, s.ID())
		if err != nil {
			name, _ := s.Peer()
			e.log.Warn("connections of a peer that is gone are not left", "peer", name, "transport", c.name, "error", err)
		}
		return err
	})
	if errors.Join(errs...) != nil {
		return false
	}
	e.served.remove(s.ID())
	return true
}

// The sizes of calls between applications. They are well below what sessions carry, so
// that the engines' own calls always have room.
const (
	MaxCallBytes   = 1 << 20 // of a request
	MaxAnswerBytes = 4 << 20 // of an answer
	maxCallError   = 4 << 10 // bytes of an error's text
	maxPeerCalls   = 32      // of one peer at a time: the caller waits, the other side refuses more
)

// RemoteError is an error that a peer's application, or its engine, returned, as text.
type RemoteError struct{ Text string }

func (e *RemoteError) Error() string { return "peer: " + e.Text }

// callEngine makes a call of the peer's engine; what that returned as an error is a RemoteError.
func (p *Peer) callEngine(ctx context.Context, method uint16, body []byte) ([]byte, error) {
	return callEngine(ctx, p.session, method, body)
}

func callEngine(ctx context.Context, s *session.Session, method uint16, body []byte) ([]byte, error) {
	answer, err := s.Call(ctx, method, body)
	if remote, ok := errors.AsType[*session.RemoteError](err); ok {
		err = &knownError{err, []error{&RemoteError{remote.Text}}}
	}
	return answer, err
}

// Call sends a request of up to MaxCallBytes to the peer's application (its
// Serve.Answer) and waits for the answer. Beyond 32 calls at a time, further ones wait.
// A call runs at most once, even if connections are lost meanwhile. ctx bounds the
// waiting; without a deadline, Options.DefaultTimeout does. The call may still run after
// that. An error that the application returned is a *RemoteError.
func (p *Peer) Call(ctx context.Context, request []byte) ([]byte, error) {
	answer, err := p.call(ctx, request)
	if err != nil {
		return nil, pkgerr.Errorf("engine", "peer %q: call: %w", p.name, p.because(err))
	}
	return answer, nil
}

func (p *Peer) call(ctx context.Context, request []byte) ([]byte, error) {
	if len(request) > MaxCallBytes {
		return nil, fmt.Errorf("request of %d bytes: %w: %d", len(request), ErrLimit, MaxCallBytes)
	}
	ctx, cancel := p.engine.bounded(ctx)
	defer cancel()
	select {
	case p.callSlots <- struct{}{}:
	case <-p.gone:
		return nil, p.lost()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-p.callSlots }()
	answer, err := p.callEngine(ctx, methodAsk, request)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	return answer, err
}

// answer has the application answer a peer's call.
func (e *Engine) answer(ctx context.Context, s *session.Session, request []byte) ([]byte, error) {
	switch {
	case e.o.Serve.Answer == nil:
		return nil, errors.New("this engine's application answers no calls")
	case len(request) > MaxCallBytes:
		return nil, fmt.Errorf("request of %d bytes: %w: %d", len(request), ErrLimit, MaxCallBytes)
	}
	if err := e.answering.enter(s); err != nil {
		return nil, err
	}
	defer e.answering.leave(s)
	answer, err := e.o.Serve.Answer(ctx, s.PeerID(), request)
	if err != nil {
		text := err.Error()
		return nil, errors.New(text[:min(len(text), maxCallError)])
	}
	if len(answer) > MaxAnswerBytes {
		return nil, fmt.Errorf("answer of %d bytes: %w: %d", len(answer), ErrLimit, MaxAnswerBytes)
	}
	return answer, nil
}

// answering counts the calls that the application answers now.
type answering struct {
	shares *transport.Shares
	mu     sync.Mutex
	by     map[*session.Session]int
}

func (a *answering) enter(s *session.Session) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by[s] >= maxPeerCalls {
		return fmt.Errorf("%w: %d calls of one peer at a time", ErrLimit, maxPeerCalls)
	}
	if err := a.shares.Take(s.Account(), 1); err != nil {
		return fmt.Errorf("%w: %w: try again", ErrLimit, err)
	}
	a.by[s]++
	return nil
}

func (a *answering) leave(s *session.Session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shares.Give(s.Account(), 1)
	if a.by[s]--; a.by[s] == 0 {
		delete(a.by, s)
	}
}

// Notification is what a peer sent with Peer.Notify, SubmitOptions.Notify or Reply.
type Notification struct {
	From    trust.PeerID // who has sent it: what it has proven to be, and what it calls itself
	Payload []byte

	engine  *Engine
	session *session.Session
}

// Reply sends a notification of up to 1 MiB back to the engine that has sent this one, over its connection: nothing
// needs to be opened. It returns when that engine has it in its queue (Engine.Notifications). ctx bounds that; without
// a deadline, Options.DefaultTimeout does. A sender that is gone is ErrPeerLost; one whose queue is full is ErrLimit.
func (n *Notification) Reply(ctx context.Context, payload []byte) error {
	if n.engine == nil {
		return pkgerr.Errorf("engine", "reply: %w", invalid("no peer has sent this notification"))
	}
	if len(payload) > maxNotify {
		return pkgerr.Errorf("engine", "reply of %d bytes: %w is %d", len(payload), ErrLimit, maxNotify)
	}
	ctx, cancel := n.engine.bounded(ctx)
	defer cancel()
	deadline, _ := ctx.Deadline()
	_, err := callEngine(ctx, n.session, methodNotify, notifyBody(time.Until(deadline), payload))
	if errors.Is(err, session.ErrEnded) || errors.Is(err, session.ErrUnreachable) {
		err = &knownError{err, []error{ErrPeerLost}}
	}
	if err != nil {
		return pkgerr.Errorf("engine", "reply to %q: %w", n.From.Claimed, err)
	}
	return nil
}

// notified takes a notification.
func (e *Engine) notified(ctx context.Context, s *session.Session, body []byte) error {
	wait, payload, err := parseNotify(body)
	if err != nil {
		return err
	}
	if e.o.Limits.Notifications < 0 {
		return errors.New("this engine's application takes no notifications")
	}
	if err := e.notifications.put(ctx, e.ctx, Notification{s.PeerID(), payload, e, s}, s.Account(), wait); err != nil {
		return err
	}
	e.count.notifications.Add(1)
	return nil
}

// maxWaiting is how many notifications wait for room at a time, which peers share.
const maxWaiting = 1 << 10

// inbox are the notifications that the application has not read. Those that find it full wait
// in the order in which they came, and one peer's do not keep others from waiting.
type inbox struct {
	c       chan Notification
	most    int // of those in queue
	memory  *transport.Shares
	waiting *transport.Shares
	start   func(func()) bool

	mu      sync.Mutex
	queue   []Notification // that the channel has no room for, in the order in which they came
	feeding bool           // feed moves them there
	unread  []unread       // in the channel and the queue, in their order
}

const (
	inChannel         = 1 << 10 // notifications that are in the channel at most
	notificationBytes = 256     // that one takes beside its payload
)

// unread is the memory that a notification has.
type unread struct {
	account transport.Account
	bytes   int64
}

func newInbox(most int, memory *transport.Shares, start func(func()) bool) *inbox {
	b := &inbox{
		c: make(chan Notification, min(most, inChannel)), most: max(0, most-inChannel), memory: memory, start: start,
		waiting: transport.NewShares("notifications", maxWaiting),
	}
	memory.OnFull(b.settle)
	return b
}

// settle gives back what those had that were read: the channel does not tell when.
func (b *inbox) settle() {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := max(len(b.unread)-len(b.c)-len(b.queue), 0)
	for _, u := range b.unread[:n] {
		b.memory.Give(u.account, u.bytes)
	}
	b.unread = b.unread[n:]
}

// put waits for room, so that a slow application slows its peers down. A peer that has its share
// is to come again. closed ends with the engine.
func (b *inbox) put(ctx, closed context.Context, n Notification, a transport.Account, wait time.Duration) error {
	b.settle()
	u := unread{a, notificationBytes + int64(len(n.Payload))}
	if err := b.memory.Take(a, u.bytes); err != nil {
		return errors.Join(session.ErrBusy, err)
	}
	err := b.send(ctx, closed, n, u, wait)
	if err != nil {
		b.memory.Give(a, u.bytes)
	}
	return err
}

// take says whether there was room.
func (b *inbox) take(closed context.Context, n Notification, u unread) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		select {
		case b.c <- n:
			b.unread = append(b.unread, u)
			return true
		default:
		}
	}
	if len(b.queue) >= b.most {
		return false
	}
	b.queue, b.unread = append(b.queue, n), append(b.unread, u)
	b.feeding = b.feeding || b.start(func() { b.feed(closed) })
	return true
}

// feed moves the queue to the channel, as the application reads that.
func (b *inbox) feed(closed context.Context) {
	for {
		b.mu.Lock()
		if len(b.queue) == 0 {
			b.queue, b.feeding = nil, false
			b.mu.Unlock()
			return
		}
		n := b.queue[0]
		b.mu.Unlock()
		select {
		case b.c <- n:
		case <-closed.Done():
			return
		}
		b.mu.Lock()
		b.queue[0] = Notification{}
		b.queue = b.queue[1:]
		b.mu.Unlock()
	}
}

func (b *inbox) send(ctx, closed context.Context, n Notification, u unread, wait time.Duration) error {
	if b.take(closed, n, u) {
		return nil
	}
	if b.most > 0 {
		return errors.Join(session.ErrBusy, fmt.Errorf("%w: its program has not read the %d notifications before it", ErrLimit, b.most+cap(b.c)))
	}
	if err := b.waiting.Take(u.account, 1); err != nil {
		return errors.Join(session.ErrBusy, err)
	}
	defer b.waiting.Give(u.account, 1)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case b.c <- n:
		b.mu.Lock()
		b.unread = append(b.unread, u)
		b.mu.Unlock()
		return nil
	case <-timer.C:
		return fmt.Errorf("%w: its program has not read the %d notifications before it", ErrLimit, cap(b.c))
	case <-ctx.Done():
		return ctx.Err()
	case <-closed.Done():
		return ErrClosed
	}
}
