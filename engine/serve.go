package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/topoctl/topoctl/internal/base/engine/session"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
	"github.com/topoctl/topoctl/internal/base/pkgerr"
)

// The calls between engines, over a session. docs/wire.md specifies them.
const (
	methodDescribe uint16 = 1 // asked by whoever dialled; the answer is a descriptor, deltas follow
	methodDelta    uint16 = 2 // the other way
	methodAccept   uint16 = 3
	methodLeave    uint16 = 4
	methodNotify   uint16 = 5
	methodAsk      uint16 = 6 // of the application; the body is its own
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

// leaveBody: length of the transport's name, the name, the session of the
// connection, the connection. Knowing the session is what entitles to this, so
// that an engine that opens a peer again can fence what it had before.
func leaveBody(name string, session transport.SessionID, conn transport.ConnID) []byte {
	b := make([]byte, 0, 1+len(name)+len(session)+8)
	b = append(append(b, byte(len(name))), name...)
	b = append(b, session[:]...)
	return binary.BigEndian.AppendUint64(b, uint64(conn))
}

func parseLeave(b []byte) (name string, session transport.SessionID, conn transport.ConnID, err error) {
	name, b, err = parseName(b)
	if err != nil || len(b) != len(session)+8 {
		return "", session, 0, fmt.Errorf("leave: %w", errMalformed)
	}
	copy(session[:], b)
	return name, session, transport.ConnID(binary.BigEndian.Uint64(b[len(session):])), nil
}

func parseName(b []byte) (string, []byte, error) {
	if len(b) == 0 || len(b) < 1+int(b[0]) {
		return "", nil, errMalformed
	}
	n := 1 + int(b[0])
	return string(b[1:n]), b[n:], nil
}

// notifyBody: how long the peer's application may take to make room, in
// nanoseconds, then the payload.
func notifyBody(wait time.Duration, payload []byte) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(payload)), uint64(max(wait, 0)))
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
	switch method {
	case methodDescribe:
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
		who, _ := s.Peer()
		return c.t.Accept(ctx, transport.Origin{Session: s.ID(), Conn: conn, Name: who}, request)
	case methodLeave:
		// Calls of a peer run side by side, so this may overtake the connection's accept.
		// Transports remember what was left, and refuse the accept then (transport.Ends).
		name, id, conn, err := parseLeave(body)
		if err != nil {
			return nil, err
		}
		c := e.carrierOf(name)
		if c == nil {
			return nil, nil // then nothing can land by it
		}
		who, _ := s.Peer()
		return nil, c.t.Leave(ctx, transport.Origin{Session: id, Conn: conn, Name: who}, conn)
	case methodNotify:
		wait, payload, err := parseNotify(body)
		if err != nil {
			return nil, err
		}
		who, _ := s.Peer()
		return nil, e.notified(ctx, Notification{Peer: who, Payload: payload}, wait)
	case methodAsk:
		return e.answer(ctx, s, body)
	}
	return nil, fmt.Errorf("unknown call %d", method)
}

// notified waits for room, so that a slow application slows its peers down.
func (e *Engine) notified(ctx context.Context, n Notification, wait time.Duration) error {
	select {
	case e.notifications <- n:
		e.count.notifications.Add(1)
		return nil
	default:
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case e.notifications <- n:
		e.count.notifications.Add(1)
		return nil
	case <-timer.C:
		return errors.New("peer does not take notifications")
	case <-ctx.Done():
		return ctx.Err()
	case <-e.ctx.Done():
		return ErrClosed
	}
}

// data hands a data connection to the transport that wants such.
func (e *Engine) data(id transport.SessionID, conn transport.ConnID, name string, c net.Conn) error {
	for _, carrier := range e.carriers {
		if carrier.data != nil {
			return carrier.data.Serve(id, conn, name, c)
		}
	}
	return pkgerr.New("engine", "no transport takes data connections")
}

// sessionEnded forgets an engine that had opened this one.
func (e *Engine) sessionEnded(s *session.Session, _ error) {
	e.unsubscribe(s)
	for _, c := range e.carriers {
		// The session's connections do not come back. A peer of this host may never
		// say that it has stopped.
		ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
		err := c.t.LeaveAll(ctx, s.ID())
		cancel()
		if err != nil {
			name, _ := s.Peer()
			e.log.Warn("connections of a peer that is gone are not left", "peer", name, "transport", c.name, "error", err)
		}
	}
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
type RemoteError = session.RemoteError

// Call sends a request of up to MaxCallBytes to the peer's application (its
// Options.Answer) and waits for the answer. Beyond 32 calls at a time, further ones wait.
// A call runs at most once, even if connections are lost meanwhile. ctx bounds the
// waiting; without a deadline, Options.DefaultTimeout does. The call may still run after
// that. An error that the application returned is a *RemoteError.
func (p *Peer) Call(ctx context.Context, request []byte) ([]byte, error) {
	answer, err := p.call(ctx, request)
	if err != nil {
		if lost := p.lost(); lost != nil {
			err = lost
		}
		return nil, pkgerr.Errorf("engine", "peer %q: call: %w", p.name, err)
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
	answer, err := p.session.Call(ctx, methodAsk, request)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	return answer, err
}

// answer has the application answer a peer's call.
func (e *Engine) answer(ctx context.Context, s *session.Session, request []byte) ([]byte, error) {
	switch {
	case e.o.Answer == nil:
		return nil, errors.New("this engine's application answers no calls")
	case len(request) > MaxCallBytes:
		return nil, fmt.Errorf("request of %d bytes: %w: %d", len(request), ErrLimit, MaxCallBytes)
	}
	if err := e.answering.enter(s, e.o.Limits.Calls); err != nil {
		return nil, err
	}
	defer e.answering.leave(s)
	who, _ := s.Peer()
	answer, err := e.o.Answer(ctx, who, request)
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
	mu  sync.Mutex
	all int
	by  map[*session.Session]int
}

func (a *answering) enter(s *session.Session, most int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.by[s] >= maxPeerCalls:
		return fmt.Errorf("%w: %d calls of one peer at a time", ErrLimit, maxPeerCalls)
	case a.all >= most:
		return fmt.Errorf("%w: %d calls at a time, and all of them run: try again", ErrLimit, most)
	}
	if a.by == nil {
		a.by = map[*session.Session]int{}
	}
	a.all++
	a.by[s]++
	return nil
}

func (a *answering) leave(s *session.Session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all--
	if a.by[s]--; a.by[s] == 0 {
		delete(a.by, s)
	}
}
