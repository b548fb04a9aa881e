package engine

import (
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/topoctl/topoctl/internal/base/engine/sched"
)

// addPeer counts a peer in.
func (e *Engine) addPeer(p *Peer) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return fmt.Errorf("engine is %w", ErrClosed)
	}
	if err := p.lost(); err != nil {
		return err // it is known for as long as it was opened
	}
	p.id, p.known = e.core.AddPeer(p.name), true
	e.peers[p] = true
	return nil
}

// removePeer forgets a peer that is gone.
func (e *Engine) removePeer(p *Peer) {
	w := e.getWork()
	e.mu.Lock()
	for _, l := range p.lanes {
		if !l.gone {
			l.gone = true
			w.events = append(w.events, sched.Event{Kind: sched.LaneGone, Lane: l.id})
		}
	}
	e.mu.Unlock()
	e.run(w)
	e.putWork(w)
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.peers, p)
	for id, key := range e.unfenced {
		if key.session == p.session.ID() && !e.holdsQuarantine(p.epoch, key) {
			delete(e.unfenced, id)
		}
	}
	clear(p.lanes)
	p.removed = true
	// With those that an earlier change of routes has taken out.
	maps.DeleteFunc(e.lanes, func(_ sched.LaneID, l *lane) bool { return l.peer == p && !e.connected(l) })
	for what, side := range p.sides {
		delete(p.sides, what)
		e.core.RemoveSide(side)
	}
	if p.known {
		e.core.RemovePeer(p.id)
	}
}

// link and unlink keep the list of running batches; the mutex is held.
func (e *Engine) link(b *Batch) {
	b.next = e.first
	if b.next != nil {
		b.next.prev = b
	}
	e.first = b
}

func (e *Engine) unlink(b *Batch) {
	if b.prev != nil {
		b.prev.next = b.next
	} else if e.first == b {
		e.first = b.next
	}
	if b.next != nil {
		b.next.prev = b.prev
	}
	b.prev, b.next = nil, nil
}

// running lists the batches that are not over.
func (e *Engine) running() []*Batch {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []*Batch
	for b := e.first; b != nil; b = b.next {
		out = append(out, b)
	}
	return out
}

// Close cancels what runs, waits a little for it, says goodbye to all peers, ends
// all connections of both sides, and unmaps the memory. It can be called again.
func (e *Engine) Close() error {
	e.mu.Lock()
	first := !e.closing
	e.closing = true
	e.mu.Unlock()
	if !first {
		e.tasks.Wait()
		return nil
	}
	var errs []error
	e.closePeers()
	if e.server != nil {
		errs = append(errs, e.server.Close())
	}
	for _, c := range e.carriers {
		errs = append(errs, c.t.Close())
	}
	e.life.Lock()
	e.closed = true
	e.life.Unlock()
	e.cancel()
	close(e.stop)
	e.tasks.Wait()
	close(e.notifications)
	errs = append(errs, e.table.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("engine: close: %w", err)
	}
	return nil
}

// closePeers closes all peers at once: each may take a while.
func (e *Engine) closePeers() {
	e.mu.Lock()
	peers := make([]*Peer, 0, len(e.peers))
	for p := range e.peers {
		peers = append(peers, p)
	}
	e.mu.Unlock()
	var wg sync.WaitGroup
	for _, p := range peers {
		wg.Go(func() { _ = p.Close() })
	}
	wg.Wait()
}
