package engine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/internal/base/engine/peerdoc"
	"github.com/topoctl/topoctl/internal/base/engine/sched"
	"github.com/topoctl/topoctl/internal/base/engine/session"
	"github.com/topoctl/topoctl/internal/base/pkgerr"
)

// Peer is another engine that this one has opened. Its methods may be used by many
// goroutines. A peer that was lost or has restarted does not come back: open it again.
type Peer struct {
	engine  *Engine
	name    string // that it was opened by
	epoch   uint64
	self    string // what it calls itself
	id      sched.PeerID
	session *session.Session
	gone    chan struct{} // closed when it is lost
	ended   atomic.Pointer[error]
	offered atomic.Int64 // regions

	// descriptorLock has a token while the descriptor is fetched, so that deltas wait for it.
	descriptorLock chan struct{}
	// callSlots has a token for each call of the application.
	callSlots chan struct{}

	mu     sync.RWMutex
	record registry.Record
	desc   *peerdoc.Descriptor
	described
	regions map[string]*RemoteRegion
	byID    map[memory.ID]*RemoteRegion
	routes  map[routeKey]*route

	// routing is held while routes are made.
	routing sync.Mutex

	// Under the engine's mutex:
	scheduled bool // the scheduler has it, by id
	// removed: what is left are lanes with connections that are not over.
	removed bool
	lanes   map[laneKey]*lane
	sides   map[string]sched.SideID // of its ports
}

// Open finds an engine by name in the registry (with P2P, host:port), connects to it
// and asks what it offers. ctx bounds that; without a deadline, Options.DefaultTimeout
// does. An engine may be opened several times; each Peer is independent.
func (e *Engine) Open(ctx context.Context, name string) (*Peer, error) {
	p, err := e.open(ctx, name)
	if err != nil {
		return nil, pkgerr.Errorf("engine", "peer %q: %w", name, err)
	}
	return p, nil
}

func (e *Engine) open(ctx context.Context, name string) (*Peer, error) {
	e.life.Lock()
	late := e.closed
	if !late {
		e.tasks.Add(1) // Close ends it, and waits
	}
	e.life.Unlock()
	if late {
		return nil, fmt.Errorf("engine is %w", ErrClosed)
	}
	defer e.tasks.Done()
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	record, err := e.registry.Lookup(ctx, name)
	if err != nil {
		return nil, err
	}
	p := &Peer{
		engine: e, name: name, record: record, gone: make(chan struct{}),
		descriptorLock: make(chan struct{}, 1), callSlots: make(chan struct{}, maxPeerCalls), regions: map[string]*RemoteRegion{}, byID: map[memory.ID]*RemoteRegion{}, routes: map[routeKey]*route{}, lanes: map[laneKey]*lane{}, sides: map[string]sched.SideID{},
	}
	e.mu.Lock()
	closing := e.closing
	e.mu.Unlock()
	if closing {
		return nil, fmt.Errorf("engine is %w", ErrClosed)
	}
	// Calls of the peer may come before Dial returns: they wait for the descriptor.
	p.descriptorLock <- struct{}{}
	s, err := session.Dial(ctx, session.DialOptions{
		Identity: e.identity, Limits: e.sessionLimits(), Handle: p.handle, Routes: p.sessionRoutes,
		Silence: e.silence(), GiveUp: e.o.GiveUp, Ended: p.sessionEnded,
	})
	if err != nil {
		<-p.descriptorLock
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w (%w)", cause, err)
		}
		return nil, err
	}
	p.session = s
	p.self, p.epoch = s.Peer()
	err = p.describe(ctx)
	<-p.descriptorLock
	if err == nil {
		err = e.addPeer(p)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	e.adoptFences(p)
	return p, nil
}

// bounded ends a context with the engine, and after DefaultTimeout if nobody has
// said when.
func (e *Engine) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	cancel := func() {}
	if _, ok := ctx.Deadline(); !ok {
		ctx, cancel = context.WithTimeoutCause(ctx, e.o.DefaultTimeout,
			fmt.Errorf("%w: no answer in %v", ErrUnreachable, e.o.DefaultTimeout))
	}
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.ctx, func() { end(fmt.Errorf("engine is %w", ErrClosed)) })
	return ctx, func() { stop(); end(nil); cancel() }
}

// silence is how long the session's connection may be quiet before another way is
// tried: batches wait for fences, which are asked for over it, and often just when
// a port has died.
func (e *Engine) silence() time.Duration { return min(50*time.Millisecond, e.o.GiveUp/4) }

// sessionRoutes are the routes to dial the session over: the registry's addresses, then
// those of the peer's endpoints, from each of our ports that has a lane there.
func (p *Peer) sessionRoutes() []session.Route {
	p.mu.RLock()
	defer p.mu.RUnlock()
	var out []session.Route
	add := func(r session.Route) {
		if r.Remote.IsValid() && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	for _, a := range p.record.Addresses {
		add(session.Route{Remote: a})
	}
	p.engine.mu.Lock()
	defer p.engine.mu.Unlock()
	for _, l := range p.lanes {
		if remote, err := netip.ParseAddrPort(l.remote.Address); err == nil && !l.gone && l.carrier.data != nil {
			add(session.Route{Local: l.local, Interface: l.iface, Remote: remote})
		}
	}
	if p.desc != nil {
		for _, endpoint := range p.desc.Endpoints {
			if remote, err := netip.ParseAddrPort(endpoint.Address); err == nil && !remote.Addr().IsLoopback() && endpoint.Transport == "tcp" {
				add(session.Route{Remote: remote})
			}
		}
	}
	return out
}

// handle answers the peer's calls: it may tell us what changed, and nothing else.
func (p *Peer) handle(ctx context.Context, _ *session.Session, method uint16, body []byte) ([]byte, error) {
	if method != methodDelta {
		return nil, fmt.Errorf("call %d is for an engine that was opened, not for the one that opens", method)
	}
	// One at a time, from here on: a small delta may have very many packed regions.
	if err := p.lockDescriptor(ctx); err != nil {
		return nil, err
	}
	defer func() { <-p.descriptorLock }()
	delta, err := peerdoc.ParseDelta(body)
	if err != nil {
		return nil, err
	}
	p.mu.RLock()
	have := p.desc
	p.mu.RUnlock()
	if have == nil || delta.To <= have.Sequence {
		return nil, nil
	}
	next, err := have.Apply(delta)
	if err != nil {
		return nil, p.describe(ctx)
	}
	return nil, p.setDescriptor(next)
}

// lockDescriptor waits for its turn to change the descriptor.
func (p *Peer) lockDescriptor(ctx context.Context) error {
	select {
	case p.descriptorLock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ask fetches the descriptor for a user.
func (p *Peer) ask(ctx context.Context) error {
	err := p.lockDescriptor(ctx)
	if err == nil {
		err = p.describe(ctx)
		<-p.descriptorLock
	}
	if lost := p.lost(); err != nil && lost != nil {
		err = lost
	}
	if err != nil {
		return pkgerr.Errorf("engine", "peer %q: %w", p.name, err)
	}
	return nil
}

// describe fetches the descriptor; descriptorLock is held.
func (p *Peer) describe(ctx context.Context) error {
	answer, err := p.session.Call(ctx, methodDescribe, nil)
	if err != nil {
		return fmt.Errorf("asking what it offers: %w", err)
	}
	d, err := peerdoc.ParseDescriptor(answer)
	if err != nil {
		return err
	}
	if d.Epoch != p.epoch {
		return fmt.Errorf("descriptor of epoch %d, the session is with %d", d.Epoch, p.epoch)
	}
	return p.setDescriptor(d)
}

// setDescriptor replaces what is known of the peer.
func (p *Peer) setDescriptor(d *peerdoc.Descriptor) error {
	p.mu.RLock()
	have := p.desc
	topologyChanged := have == nil || string(have.Topology) != string(d.Topology)
	lanesChanged := have != nil && (topologyChanged || !slices.Equal(have.Endpoints, d.Endpoints))
	as := p.described
	p.mu.RUnlock()
	if topologyChanged {
		as = readTopology(d.Topology)
	}
	p.mu.Lock()
	p.desc, p.described = d, as
	p.setRegions(d)
	p.mu.Unlock()
	if lanesChanged {
		p.reroute()
	}
	return nil
}

// sessionEnded is the end of the peer: nothing can be asked any more.
func (p *Peer) sessionEnded(_ *session.Session, err error) {
	restarted := errors.Is(err, session.ErrRestarted)
	switch {
	case err == nil:
		err = fmt.Errorf("peer is %w", ErrClosed)
	case restarted:
		err = fmt.Errorf("%w: open it again", ErrPeerRestarted)
	default:
		err = fmt.Errorf("%w: %w: open it again when it is back", ErrPeerLost, err)
	}
	p.end(err, restarted)
}

// end tells everybody that the peer is gone, once.
func (p *Peer) end(err error, restarted bool) {
	e := p.engine
	if !p.ended.CompareAndSwap(nil, &err) {
		return
	}
	e.mu.Lock()
	known := p.scheduled
	e.mu.Unlock()
	if known {
		e.tell(sched.Event{Kind: sched.PeerGone, Peer: p.id, Err: err, Restarted: restarted})
	}
	if restarted { // from here on no batch ends with a fence
		e.liftAll(p.epoch)
	}
	close(p.gone)
	if !errors.Is(err, ErrClosed) {
		e.log.Warn("peer is gone", "peer", p.name, "error", err)
	}
}

// lost is why the peer cannot be used, nil where it can.
func (p *Peer) lost() error {
	if err := p.ended.Load(); err != nil {
		return *err
	}
	return nil
}

// Done is closed when the peer is gone; Err says why.
func (p *Peer) Done() <-chan struct{} { return p.gone }

// Err is why the peer is gone, nil as long as it is not. It wraps ErrPeerLost,
// ErrPeerRestarted or ErrClosed.
func (p *Peer) Err() error {
	if err := p.lost(); err != nil {
		return pkgerr.Errorf("engine", "peer %q: %w", p.name, err)
	}
	return nil
}

// Connected says whether the peer's engine can be asked now. While it cannot, it may be gone or
// have been started again: what is submitted waits to find out, and calls of the peer, such as
// Regions, return when that is known.
func (p *Peer) Connected() bool { return p.session.Connected() }

// Name is the name that Open was called with.
func (p *Peer) Name() string { return p.name }

// EngineName is what the peer's engine calls itself: its Options.Name.
func (p *Peer) EngineName() string { return p.self }

// Epoch is the peer's Engine.Epoch.
func (p *Peer) Epoch() uint64 { return p.epoch }

// notify asks the peer to hand a payload to its application.
func (p *Peer) notify(ctx context.Context, deadline int64, payload []byte) error {
	left := time.Duration(deadline - p.engine.now())
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	// The peer gives up first, so that there is an answer.
	_, err := p.session.Call(ctx, methodNotify, notifyBody(left-left/10, payload))
	if lost := p.lost(); err != nil && lost != nil {
		return lost
	}
	return err
}

const closeTimeout = 5 * time.Second

// Close cancels the batches with the peer, waits up to 5 seconds for them, and closes
// the session.
func (p *Peer) Close() error {
	e := p.engine
	cause := fmt.Errorf("peer was %w", ErrClosed)
	var mine []*Batch
	for _, b := range e.running() {
		if b.peer == p {
			mine = append(mine, b)
			b.cancel(cause)
		}
	}
	timer := time.NewTimer(e.closeTime)
	defer timer.Stop()
wait:
	for _, b := range mine {
		select {
		case <-b.done:
		case <-timer.C:
			break wait
		}
	}
	p.end(fmt.Errorf("peer is %w", ErrClosed), false)
	e.removePeer(p)
	return p.session.Close()
}
