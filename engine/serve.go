package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/topoctl/topoctl/internal/base/engine/session"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
)

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
	return errors.New("engine: no transport takes data connections")
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
