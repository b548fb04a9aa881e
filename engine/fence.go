package engine

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	mem "github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/direction"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/sched"
)

// fenceKey names a connection that a peer has to leave.
type fenceKey struct {
	epoch uint64 // of the peer
	leaving
}

// quarantined is a range of a peer's memory, or all of it, in which bytes may still land.
type quarantined struct {
	all    bool
	region mem.ID
	name   string
	byteRange
	conns []fenceKey
	home
}

// home is where an engine answers.
type home struct {
	boot string // of its host's kernel, "" if unknown
	at   netip.AddrPort
}

func (p *Peer) home() home { return home{p.boot, p.session.Remote()} }

func (l *lane) fenceKey(conn sched.ConnID) fenceKey {
	return fenceKey{l.peer.epoch, newLeaving(l.peer.session, l.carrier.name, transport.ConnID(conn))}
}

const fenceRetry = 250 * time.Millisecond

// fence has the peer leave a connection, in a goroutine of its own.
func (e *Engine) fence(f fencing) {
	e.start(func() {
		if e.haveLeft(f.peer, f.key) {
			e.tell(sched.Event{Kind: sched.Fenced, Peer: f.peer.id, Conn: sched.ConnID(f.key.conn)})
		}
	})
}

// haveLeft asks until there is an answer, or no one to ask.
func (e *Engine) haveLeft(p *Peer, key fenceKey) bool {
	body := key.body()
	for {
		_, err := p.session.Call(e.ctx, methodLeave, body)
		if err == nil {
			e.lift(key)
			return true
		}
		timer := time.NewTimer(fenceRetry)
		select {
		case <-timer.C:
		case <-p.gone:
			timer.Stop()
			if p = e.peerOf(p.epoch); p == nil {
				return false // who opens it again asks
			}
		case <-e.ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// peerOf is an engine's life as it is open now, nil without.
func (e *Engine) peerOf(epoch uint64) *Peer {
	e.mu.Lock()
	defer e.mu.Unlock()
	for p := range e.peers {
		if p.epoch == epoch && p.lost() == nil {
			return p
		}
	}
	return nil
}

// quarantine keeps the places that a part has written from being used. It belongs to
// the step that ends the part; the mutex is held. Once it was free between the two, the
// peer could be closed, its fences be forgotten, and nothing be left to wait for.
func (e *Engine) quarantine(p *part) {
	var conns []fenceKey
	for _, id := range p.job.Result.Unsafe {
		if key, ok := e.unfenced[id]; ok {
			conns = append(conns, key)
		}
	}
	if len(conns) == 0 {
		return // all were left meanwhile
	}
	list, at := e.quarantines[p.batch.peer.epoch], p.batch.peer.home()
	for i := range p.ops {
		if o := &p.ops[i]; o.Kind == direction.Write {
			r := p.batch.remotes[o.Remote]
			list = append(list, quarantined{region: r.t.ID, name: r.name, byteRange: p.places[i].remote, conns: conns, home: at})
		}
	}
	e.setQuarantines(p.batch.peer.epoch, list)
}

// quarantineAll is for an engine in whose place another one answered. Most likely it has ended, so no batch waits
// for it. Behind a load balancer it may still run: it has to leave its connections before it is used again.
// The mutex is held.
func (e *Engine) quarantineAll(p *Peer) {
	for id, c := range e.conns {
		if c.lane.peer == p {
			e.unfenced[id] = c.lane.fenceKey(id)
		}
	}
	e.mergeQuarantines(p.epoch, p.home())
}

// mergeQuarantines keeps one entry for all memory of an engine that may have ended. The mutex is held.
func (e *Engine) mergeQuarantines(epoch uint64, at home) {
	var conns []fenceKey
	for _, key := range e.unfenced {
		if key.epoch == epoch {
			conns = append(conns, key)
		}
	}
	if len(conns) > 0 {
		e.setQuarantines(epoch, []quarantined{{all: true, conns: conns, home: at}})
	}
}

// lift ends what hung on a connection, which the peer has left.
func (e *Engine) lift(key fenceKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.unfenced, sched.ConnID(key.conn))
	list := e.quarantines[key.epoch]
	for i := range list {
		list[i].conns = slices.DeleteFunc(slices.Clone(list[i].conns), func(k fenceKey) bool { return k == key })
	}
	e.setQuarantines(key.epoch, slices.DeleteFunc(list, func(q quarantined) bool { return len(q.conns) == 0 }))
}

// forgetFences forgets what a closed peer has not left, where that keeps no range from
// being used. It waits for the peer's last batch: a connection that is not in unfenced
// counts as left, and that batch may yet end with one.
func (e *Engine) forgetFences(p *Peer) {
	for b := e.first; b != nil; b = b.next {
		if b.peer == p {
			return
		}
	}
	maps.DeleteFunc(e.unfenced, func(_ sched.ConnID, key fenceKey) bool {
		return key.session == p.session.ID() &&
			!slices.ContainsFunc(e.quarantines[key.epoch], func(q quarantined) bool { return slices.Contains(q.conns, key) })
	})
}

// liftFormer looks at engines that were where p is now. They have ended if p listens at that address on the host
// that they ran on: its kernel gives an address to one process at a time. Otherwise a load balancer may have
// chosen p, or the address may have moved, and only they can say that nothing lands in their memory.
func (e *Engine) liftFormer(p *Peer) {
	if !e.anyQuarantine.Load() {
		return
	}
	here := p.home()
	p.mu.RLock()
	listens := p.boot != "" && slices.ContainsFunc(p.desc.Endpoints, func(x transport.Endpoint) bool {
		return x.Transport == "tcp" && x.Address == here.at.String()
	})
	p.mu.RUnlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	for epoch, list := range e.quarantines {
		was := list[0].home
		switch {
		case epoch == p.epoch || was.at != here.at:
		case listens && was.boot == here.boot:
			e.setQuarantines(epoch, nil)
			maps.DeleteFunc(e.unfenced, func(_ sched.ConnID, key fenceKey) bool { return key.epoch == epoch })
		default:
			e.mergeQuarantines(epoch, was)
		}
	}
}

func (e *Engine) setQuarantines(epoch uint64, list []quarantined) {
	if len(list) == 0 {
		delete(e.quarantines, epoch)
		close(e.fenced)
		e.fenced = make(chan struct{})
	} else {
		e.quarantines[epoch] = list
	}
	e.anyQuarantine.Store(len(e.quarantines) > 0)
}

// Fenced waits until no byte of the writes that were given up with ErrUnsafeBuffer can land in the peer's memory any
// more, and its ranges can be used again: the peer has said so, or was restarted. It returns nil at once where there
// are none. ctx bounds the waiting; without a deadline, Options.DefaultTimeout does.
func (p *Peer) Fenced(ctx context.Context) error {
	e := p.engine
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	for {
		e.mu.Lock()
		waits, fenced := len(e.quarantines[p.epoch]) > 0, e.fenced
		e.mu.Unlock()
		if !waits {
			return nil
		}
		select {
		case <-fenced:
		case <-ctx.Done():
			return pkgerr.Errorf("engine", "peer %q: memory is still %w: %w", p.name, ErrQuarantined, context.Cause(ctx))
		}
	}
}

// adoptFences goes on asking a peer that was opened again to leave what it had
// not left when it was lost.
func (e *Engine) adoptFences(p *Peer) {
	e.mu.Lock()
	var keys []fenceKey
	for _, key := range e.unfenced {
		if key.epoch == p.epoch && key.session != p.session.ID() {
			keys = append(keys, key)
		}
	}
	e.mu.Unlock()
	for _, key := range keys {
		e.start(func() { e.haveLeft(p, key) })
	}
}

// checkQuarantine refuses ops at places where bytes may still land.
func (p *Peer) checkQuarantine(b *Batch) error {
	e := p.engine
	if !e.anyQuarantine.Load() {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	list := e.quarantines[p.epoch]
	if len(list) == 0 {
		return nil
	}
	for _, part := range b.parts {
		for i := range part.ops {
			all := part.places[i].remote
			for k := range list {
				q := &list[k]
				r := b.remotes[part.ops[i].Remote]
				if q.all || q.region == r.t.ID && q.lo < all.hi && all.lo < q.hi && meets(&part.ops[i], q.byteRange) {
					if lost := p.lost(); lost != nil {
						return lost // which is why, and the answer to it is another
					}
					where := "its memory is"
					if !q.all {
						where = fmt.Sprintf("region %q of the peer: bytes %d to %d are", q.name, q.lo, q.hi)
					}
					return &OpError{Op: int(part.places[i].op), Err: fmt.Errorf(
						"%s %w: a write that was given up may still land there; use another place until the peer has answered or was restarted",
						where, ErrQuarantined)}
				}
			}
		}
	}
	return nil
}

// meets says whether a piece of the op is in a range of the peer's region.
func meets(o *sched.Op, r byteRange) bool {
	s := sideOf(o, 0, byteRange{}, true)
	if o.Count == 1 || s.pages == nil && s.stride == s.bytes {
		return true // the outlines meet, and there are no gaps
	}
	for k := range s.count {
		if at := s.piece(k); at.lo < r.hi && r.lo < at.hi {
			return true
		}
	}
	return false
}
