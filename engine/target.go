package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Target is an engine that is opened when it is first needed, and again after it was lost or
// restarted. Its methods may be used by many goroutines, which then have one Peer together.
type Target struct {
	engine *Engine
	name   string
	peer   atomic.Pointer[Peer]
	closed context.Context // ends with Close
	end    context.CancelFunc
	turn   chan struct{} // has a token while somebody opens the peer
}

// Target names an engine as Open does. It opens nothing yet.
func (e *Engine) Target(name string) *Target {
	t := &Target{engine: e, name: name, turn: make(chan struct{}, 1)}
	t.closed, t.end = context.WithCancel(e.ctx)
	return t
}

// The pauses between attempts to open a peer that is not there.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

// Peer is the engine as it is open now. Where it is not, or its connection is gone and it is not known whether it is
// coming back, Peer waits: it opens the engine, and tries again while nothing answers, until ctx ends; without a
// deadline, for Options.DefaultTimeout. The error wraps what the last attempt met, such as ErrUnreachable. What waiting
// cannot mend (ErrToken, ErrCertificate, ErrNotEngine) it says at once.
//
// A batch with a peer that is lost fails with ErrPeerLost or ErrPeerRestarted, and so does all else that belongs to it;
// the next call of Peer gives the one that is there then, whose regions Peer.Region finds by their names.
func (t *Target) Peer(ctx context.Context) (*Peer, error) {
	if p := t.peer.Load(); p != nil && p.connected() {
		return p, nil
	}
	p, err := t.find(ctx)
	if err != nil {
		return nil, pkgerr.Errorf("engine", "target %q: %w", t.name, pkgerr.Plain(err))
	}
	return p, nil
}

// connected says whether batches with the peer need not wait to learn what became of it.
func (p *Peer) connected() bool {
	return p.lost() == nil && !p.session.Over() && p.session.Ready(ended) == nil
}

// ended is a context that is over.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (t *Target) find(ctx context.Context) (*Peer, error) {
	ctx, cancel := t.engine.bounded(ctx)
	defer cancel()
	ctx, closed := context.WithCancelCause(ctx)
	defer context.AfterFunc(t.closed, func() { closed(fmt.Errorf("target is %w", ErrClosed)) })()
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if p := t.peer.Load(); p != nil {
		if p.Ready(ctx) == nil {
			return p, nil
		}
		if p.lost() == nil {
			return nil, context.Cause(ctx)
		}
		t.peer.Store(nil)
		t.engine.start(func() { _ = p.Close() }) // its batches are ending
	}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		p, err := t.engine.open(ctx, t.name)
		if err == nil {
			t.peer.Store(p)
			if t.closed.Err() != nil { // Close may have missed it
				return nil, errors.Join(fmt.Errorf("target is %w", ErrClosed), p.Close())
			}
			return p, nil
		}
		comesBack := errors.Is(err, ErrUnreachable) || errors.Is(err, ErrNoPeer) || errors.Is(err, ErrPeerEnded) || errors.Is(err, ErrPeerLost)
		if !comesBack || ctx.Err() != nil {
			return nil, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, &knownError{err, []error{context.Cause(ctx)}}
		}
	}
}

// Close closes the peer, as Peer.Close does. Peer gives none any more.
func (t *Target) Close() error {
	t.end()
	if p := t.peer.Swap(nil); p != nil {
		return p.Close()
	}
	return nil
}
