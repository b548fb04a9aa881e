package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/topoctl/topoctl/internal/base/engine/session"
)

// What calls between applications may take. All of it is well below what sessions
// take, so that the engines' own calls always have room.
const (
	MaxCallBytes   = 1 << 20 // of a request
	MaxAnswerBytes = 4 << 20 // of an answer
	maxCallError   = 4 << 10 // bytes of an error's text
	maxPeerCalls   = 32      // of one peer at a time: the caller waits, the other side refuses more
)

// RemoteError is the error of a peer's application, or of its engine, as text.
type RemoteError = session.RemoteError

// Call asks the peer's application (its Options.Answer) and waits for the answer. A
// request has at most MaxCallBytes; more than 32 at a time wait for each other. It runs
// at most once there, also where connections die meanwhile. ctx bounds the waiting,
// without a deadline Options.DefaultTimeout does: the call may still run after that.
// An error of the application is a *RemoteError.
func (p *Peer) Call(ctx context.Context, request []byte) ([]byte, error) {
	answer, err := p.call(ctx, request)
	if err != nil {
		if lost := p.lost(); lost != nil {
			err = lost
		}
		return nil, fmt.Errorf("engine: peer %q: call: %w", p.name, err)
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
	case p.asking <- struct{}{}:
	case <-p.gone:
		return nil, p.lost()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-p.asking }()
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
