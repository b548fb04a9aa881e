package engine

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/sched"
)

// fenceKey names a connection that a peer has to leave.
type fenceKey struct {
	epoch uint64 // of the peer
	leaving
}

// quarantined is a range of a peer's memory in which bytes may still land.
type quarantined struct {
	region memory.ID
	name   string
	byteRange
	conns []fenceKey
	at    netip.AddrPort // where the peer was
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
	epoch, at := p.batch.peer.epoch, p.batch.peer.session.Remote()
	for i := range p.ops {
		if o := &p.ops[i]; !o.Read {
			r := p.batch.remotes[o.Remote]
			e.quarantines[epoch] = append(e.quarantines[epoch], quarantined{r.t.ID, r.name, p.places[i].remote, conns, at})
			e.anyQuarantine.Store(true)
		}
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

// liftAll forgets the memory of a peer's former life.
func (e *Engine) liftAll(epoch uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.setQuarantines(epoch, nil)
	maps.DeleteFunc(e.unfenced, func(_ sched.ConnID, key fenceKey) bool { return key.epoch == epoch })
}

// liftFormer forgets the memory of engines that were where p is now: it was started in their place.
func (e *Engine) liftFormer(p *Peer) {
	if !e.anyQuarantine.Load() {
		return
	}
	at := p.session.Remote()
	var former []uint64
	e.mu.Lock()
	for epoch, list := range e.quarantines {
		if epoch != p.epoch && slices.ContainsFunc(list, func(q quarantined) bool { return q.at == at }) {
			former = append(former, epoch)
		}
	}
	e.mu.Unlock()
	for _, epoch := range former {
		e.liftAll(epoch)
	}
}

func (e *Engine) setQuarantines(epoch uint64, list []quarantined) {
	if len(list) == 0 {
		delete(e.quarantines, epoch)
	} else {
		e.quarantines[epoch] = list
	}
	e.anyQuarantine.Store(len(e.quarantines) > 0)
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
				if q.region == r.t.ID && q.lo < all.hi && all.lo < q.hi && meets(&part.ops[i], q.byteRange) {
					if lost := p.lost(); lost != nil {
						return lost // which is why, and the answer to it is another
					}
					return &OpError{Op: int(part.places[i].op), Err: fmt.Errorf(
						"region %q of the peer: bytes %d to %d are %w: a write that was given up may still land there; use another place until the peer has answered or was restarted",
						q.name, q.lo, q.hi, ErrQuarantined)}
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
