//go:build cgo && linux && (amd64 || arm64)

package rdma

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/verbs"
)

// passiveDepth is that of queue pairs which post nothing.
const passiveDepth = 1

// peerShare is which part of the queue pairs that other peers leave one peer may have at most,
// over all of its sessions, but always those of one lane. It is also the part that all peers
// together leave for our own lanes.
const peerShare = 4

// passive is the passive end of a connection: queue pairs that a peer's requests come
// to. The device moves the bytes.
type passive struct {
	t     *Transport
	key   transport.ConnKey
	from  transport.Origin
	pairs int // queue pairs that it asked for
	until time.Time

	mu     sync.Mutex // held while queue pairs are made or destroyed
	dev    *device
	local  *port
	way    way
	lid    uint16 // the peer's
	reads  int
	qps    []*verbs.QP
	ending bool
	stuck  error // why queue pairs were left behind

	state   sync.Mutex
	arrived bool
	lastEnd *ending // the end that is on its way, or over
}

// ending is one try to end a passive end.
type ending struct {
	done chan struct{}
	err  error
}

// Accept does what the peer's connection asks for: makes its passive end, replaces a
// queue pair of it, or ends it.
func (t *Transport) Accept(_ context.Context, from transport.Origin, ask []byte) ([]byte, error) {
	got, err := t.accept(from, ask)
	if err != nil {
		return nil, pkgerr.Errorf("rdma", "accept from %q: %w", from.Name, err)
	}
	return got.encode(), nil
}

func (t *Transport) accept(from transport.Origin, ask []byte) (*answer, error) {
	q, err := parseRequest(ask)
	if err != nil {
		return nil, err
	}
	k := transport.ConnKey{Session: from.Session, Conn: from.Conn}
	if q.kind == askConnect {
		return t.acceptNew(k, from, q)
	}
	t.mu.Lock()
	p, _ := t.ends.Find(k)
	t.mu.Unlock()
	switch {
	case p == nil && q.kind == askEnd:
	case p == nil:
		return nil, fmt.Errorf("there is no connection %d", from.Conn)
	case q.kind == askReplace, q.kind == askRenew:
		return p.replace(q)
	case q.kind == askArrived:
		p.state.Lock()
		p.arrived = true
		p.state.Unlock()
	default:
		p.end()
	}
	return &answer{nonce: q.nonce}, nil
}

// acceptNew makes a passive end.
func (t *Transport) acceptNew(k transport.ConnKey, from transport.Origin, q *request) (*answer, error) {
	p := &passive{t: t, key: k, from: from, pairs: len(q.qps), until: time.Now().Add(t.o.ArriveTime)}
	if err := p.address(q); err != nil {
		return nil, err
	}
	p.mu.Lock() // whoever ends it from here on waits
	defer p.mu.Unlock()
	t.mu.Lock()
	err := t.ends.CheckNew(k)
	switch {
	case t.closed:
		err = net.ErrClosed
	case err != nil:
	case p.dev.gone != nil:
		err = p.dev.gone
	default:
		err = t.mayHave(p)
	}
	if err == nil {
		t.ends.Open(k, p)
	}
	t.mu.Unlock()
	if err != nil {
		return nil, err
	}
	a := &answer{nonce: q.nonce, generation: p.dev.generation, lid: p.local.lid, mtu: uint16(p.way.mtu), readsIn: uint8(p.reads)}
	for _, theirs := range q.qps {
		qp, ours, err := p.makeQP(theirs)
		if err != nil {
			p.end() // in the background: it waits for us
			return nil, err
		}
		p.qps = append(p.qps, qp)
		a.qps = append(a.qps, ours)
	}
	return a, nil
}

// mayHave says why a passive end cannot have its queue pairs. The mutex is held.
func (t *Transport) mayHave(p *passive) error {
	own, others := 0, 0
	for _, q := range t.ends.All() {
		if q.from.Account == p.from.Account {
			own += q.pairs
		} else {
			others += q.pairs
		}
	}
	all := t.o.MaxQueuePairs
	if own+p.pairs <= max(maxLanePairs, (all-others)/peerShare) && own+others+p.pairs <= max(maxLanePairs, all-all/peerShare) {
		return nil
	}
	return &PortError{Local: p.local.String(), What: fmt.Sprintf("the peer has %d queue pairs here and wants %d more, other peers have %d, of %d for all peers and our own lanes",
		own, p.pairs, others, all), Err: ErrBudget, Advice: "raise the limit here, or use fewer lanes there"}
}

// address finds out which port of ours is asked for, and how it reaches the peer's.
func (p *passive) address(q *request) error {
	t := p.t
	p.dev, p.local = t.portOf(q.target)
	switch {
	case p.local == nil:
		return fmt.Errorf("port %.80q is not open here", q.target)
	case p.local.state != verbs.PortActive:
		return fmt.Errorf("port %s is %s", p.local, stateNames[p.local.state])
	case p.dev.generation != q.generation:
		return fmt.Errorf("device %s was opened again: the peer's information about it is out of date", p.dev.name)
	case p.local.link != q.from.link:
		return fmt.Errorf("port %s is %s, the peer's %s", p.local, linkWord(p.local.link), linkWord(q.from.link))
	}
	p.reads = min(int(q.readsOut), p.dev.limits.MaxQPReadAtomic, 255)
	p.lid = q.from.lid
	p.way = way{global: q.from.global, mtu: min(int(q.mtu), p.local.mtu, t.o.MTU)}
	if q.from.global {
		i := slices.IndexFunc(p.local.gids, func(g gid) bool {
			return g.kind == q.from.kind && g.addr.As16() == q.toGID
		})
		if i < 0 {
			return fmt.Errorf("port %s has no GID %s of kind %s any more", p.local, netip.AddrFrom16(q.toGID).Unmap(), gidNames[q.from.kind])
		}
		p.way.local = p.local.gids[i]
		p.way.remote = gid{kind: q.from.kind, addr: netip.AddrFrom16(q.from.gid)}
	}
	if p.local.link != verbs.LinkInfiniBand {
		return nil
	}
	peer := &port{pkeys: []uint16{q.from.pkey}}
	return p.way.partition(p.local, peer, &t.o)
}

// makeQP makes one queue pair that the peer's can use. mu is held.
func (p *passive) makeQP(theirs qpEnd) (*verbs.QP, qpEnd, error) {
	remote := "queue pair"
	qp, err := p.dev.newQP(passiveDepth, 1, 0)
	if err != nil {
		return nil, qpEnd{}, err
	}
	psn, err := newPSN()
	if err == nil {
		err = qp.Init(p.local.number, uint16(p.way.pkeyIndex), verbs.RemoteRead|verbs.RemoteWrite)
	}
	if err == nil {
		err = qp.Connect(verbs.Connect{
			Path:   p.t.o.path(p.local, &p.way, p.lid, psn),
			PeerQP: theirs.number, SendPSN: psn, ReceivePSN: theirs.psn, ReadsOut: 1, ReadsIn: p.reads,
			TimeoutLog2: p.t.o.Timeout, RetryCount: p.t.o.RetryCount, RNRRetry: p.t.o.RNRRetry, MinRNRTimer: minRNRTimer,
		})
	}
	if err != nil {
		err = connectError(err, p.local.String(), remote, &p.way)
		if bad := p.dev.freeQP(qp, passiveDepth); bad != nil {
			p.qps = append(p.qps, qp) // the end tries again
			err = errors.Join(err, bad)
		}
		return nil, qpEnd{}, err
	}
	return qp, qpEnd{qp.Num(), psn}, nil
}

// replace makes another queue pair in place of one that is broken.
func (p *passive) replace(q *request) (*answer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending || int(q.slot) >= len(p.qps) {
		return nil, fmt.Errorf("connection %d has no queue pair %d, or is being ended", p.key.Conn, q.slot)
	}
	old := p.qps[q.slot]
	if q.kind == askRenew {
		if state, err := old.State(); err != nil || state != verbs.QPError {
			return nil, errors.Join(fmt.Errorf("queue pair %d of connection %d is %v here", q.slot, p.key.Conn, state), err)
		}
	}
	if err := p.dev.freeQP(old, passiveDepth); err != nil {
		return nil, err
	}
	p.qps = slices.Delete(p.qps, int(q.slot), int(q.slot)+1)
	qp, ours, err := p.makeQP(q.qps[0])
	if err != nil {
		p.end()
		return nil, err
	}
	p.qps = slices.Insert(p.qps, int(q.slot), qp)
	return &answer{nonce: q.nonce, generation: p.dev.generation, qps: []qpEnd{ours}}, nil
}

// late says whether nobody has come for too long.
func (p *passive) late(now time.Time) bool {
	p.state.Lock()
	defer p.state.Unlock()
	return !p.arrived && now.After(p.until)
}

// end destroys the queue pairs, which may take long, in the background. One that
// failed is tried again by the next call.
func (p *passive) end() *ending {
	p.state.Lock()
	defer p.state.Unlock()
	if e := p.lastEnd; e != nil {
		select {
		case <-e.done:
			if e.err == nil {
				return e
			}
		default:
			return e
		}
	}
	e := &ending{done: make(chan struct{})}
	p.lastEnd = e
	p.t.wg.Go(func() {
		e.err = p.destroy()
		close(e.done)
	})
	return e
}

// endForGood ends it for a device that is being closed, and waits.
func (p *passive) endForGood() {
	for i := 0; ; i++ {
		e := p.end()
		<-e.done
		if e.err == nil {
			return
		}
		if !p.t.retry(i) {
			p.giveUp(e.err)
			return
		}
	}
}

// giveUp leaves queue pairs that cannot be destroyed behind. They still count as there.
func (p *passive) giveUp(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stuck == nil {
		p.stuck = why
		for range p.qps {
			p.dev.uncount(passiveDepth)
		}
	}
}

// destroy ends all queue pairs: nothing that was posted to them lands afterwards.
func (p *passive) destroy() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stuck != nil {
		return p.stuck
	}
	p.ending = true
	errs := transport.Concurrently(p.qps, func(qp *verbs.QP) error {
		_ = qp.SetError() // refuses what comes while destroying takes its time
		return p.dev.freeQP(qp, passiveDepth)
	})
	var left []*verbs.QP
	for i, qp := range p.qps {
		if errs[i] != nil {
			left = append(left, qp)
		}
	}
	if p.qps = left; len(left) > 0 {
		return errors.Join(errs...)
	}
	p.t.mu.Lock()
	p.t.ends.Close(p.key)
	p.t.mu.Unlock()
	return nil
}

// Leave destroys the queue pairs that the peer's requests come to. It fails where the
// device does not confirm that in time.
func (t *Transport) Leave(ctx context.Context, from transport.Origin, conn transport.ConnID) error {
	return t.ends.Leave(ctx, transport.ConnKey{Session: from.Session, Conn: conn})
}

// Leave waits for the device to confirm that the queue pairs are gone.
func (p *passive) Leave(ctx context.Context) error {
	e := p.end()
	select {
	case <-e.done:
		if e.err != nil {
			return pkgerr.Errorf("rdma", "peer %q: connection %d: its queue pairs are not gone: %w", p.from.Name, p.key.Conn, e.err)
		}
		return nil
	case <-ctx.Done():
		return pkgerr.Errorf("rdma", "peer %q: connection %d: the device %s has not confirmed that its queue pairs are gone: %w",
			p.from.Name, p.key.Conn, p.dev.name, context.Cause(ctx))
	}
}

// LeaveAll leaves all connections of a session, which is over: it asks for nothing more.
func (t *Transport) LeaveAll(ctx context.Context, session transport.SessionID) error {
	return t.ends.LeaveAll(ctx, session)
}
