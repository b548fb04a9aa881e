package engine

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	mem "github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/peerdoc"
	"github.com/topoctl/topoctl/engine/internal/peertls"
	"github.com/topoctl/topoctl/engine/internal/session"
	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/sched"
)

// Peer is another engine that this one has opened. Its methods may be used by many
// goroutines. A peer that was lost or has restarted does not come back: open it again, or use a Target, which does.
type Peer struct {
	engine  *Engine
	name    string // that it was opened by
	epoch   uint64
	boot    string // of its host's kernel, "" if unknown
	self    string // what it calls itself
	id      sched.PeerID
	session *session.Session
	gone    chan struct{} // closed when it is lost
	ended   atomic.Pointer[error]
	offered atomic.Int64 // regions
	seed    maphash.Seed // of answered

	// descriptorLock has a token while the descriptor is fetched, so that deltas wait for it.
	descriptorLock chan struct{}
	// callSlots has a token for each call of the application.
	callSlots chan struct{}

	mu     sync.RWMutex
	record registry.Record
	desc   *peerdoc.Descriptor
	change chan struct{} // closed when desc is another
	// answered is the hash of the answer that desc was read from, 0 where deltas came since.
	answered uint64
	described
	regions map[string]*RemoteRegion
	byID    map[mem.ID]*RemoteRegion
	ordered []*RemoteRegion // in the order of IDs; replaced, never changed
	routes  map[routeKey]*route

	// routing is held while routes are made.
	routing sync.Mutex

	// Under the engine's mutex:
	scheduled bool // the scheduler has it, by id
	removed   bool // the scheduler has it no more, but for connections that are not over
	lanes     map[laneKey]*lane
	sides     map[string]sched.SideID // of its ports
}

// Open finds an engine by name in the registry (with P2P, host:port), connects to it
// and asks what it offers. ctx bounds that; without a deadline, Options.DefaultTimeout
// does. An engine may be opened several times; each Peer is independent.
func (e *Engine) Open(ctx context.Context, name string) (*Peer, error) {
	p, err := e.open(ctx, name)
	if err != nil {
		e.count.failures.add(failedOpen, err)
		return nil, pkgerr.Errorf("engine", "peer %q: %w", name, pkgerr.Plain(err))
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
		return nil, errEngineClosed
	}
	defer e.tasks.Done()
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	record, err := e.registry.Lookup(ctx, name)
	if err != nil {
		return nil, err
	}
	for {
		p, next, err := e.openUnlessMoved(ctx, name, record)
		if next == nil {
			return p, err
		}
		record = *next
	}
}

// openAt opens a peer by its record.
func (e *Engine) openAt(ctx context.Context, name string, record registry.Record) (*Peer, error) {
	if record.Stale > 0 {
		e.log.Warn("the registry cannot be reached: opening a peer by what it said before", "peer", name, "age", record.Stale.Round(time.Millisecond))
	}
	p := &Peer{
		engine: e, name: name, record: record, gone: make(chan struct{}), change: make(chan struct{}), seed: maphash.MakeSeed(),
		descriptorLock: make(chan struct{}, 1), callSlots: make(chan struct{}, maxPeerCalls),
		regions: map[string]*RemoteRegion{}, byID: map[mem.ID]*RemoteRegion{},
		routes: map[routeKey]*route{}, lanes: map[laneKey]*lane{}, sides: map[string]sched.SideID{},
	}
	if err := e.alive(); err != nil {
		return nil, err
	}
	if len(p.sessionRoutes()) == 0 && len(record.Addresses) > 0 {
		return nil, fmt.Errorf("%w: its only addresses, %v, are for engines on its own host: it should listen at an address of a network port as well", ErrUnreachable, record.Addresses)
	}
	// Calls of the peer may come before Dial returns: they wait for the descriptor.
	p.descriptorLock <- struct{}{}
	s, err := session.Dial(ctx, session.DialOptions{
		Identity: e.identity, PeerName: peertls.HostOf(name), Expect: e.expect(&record),
		Limits: e.sessionLimits(), Budget: e.budget(), Handle: p.handle, Routes: p.sessionRoutes,
		Silence: e.silence(), GiveUp: e.o.GiveUp, Ended: p.sessionEnded,
	})
	if err != nil {
		<-p.descriptorLock
		switch cause := context.Cause(ctx); {
		case cause == nil, errors.Is(err, cause):
		case errors.Is(err, ErrUnreachable) && errors.Is(cause, ErrUnreachable): // it says so for each address
			err = &knownError{err, []error{cause}}
		default:
			err = fmt.Errorf("%w (%w)", cause, err)
		}
		return nil, err
	}
	p.session = s
	p.self, p.epoch = s.Peer()
	if err = p.describe(ctx); err == nil {
		p.boot = p.desc.Boot
	}
	<-p.descriptorLock
	if err == nil {
		err = e.addPeer(p)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	e.adoptFences(p)
	e.liftFormer(p)
	if record.Epoch != 0 {
		e.start(p.follow)
	}
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
	stop := context.AfterFunc(e.ctx, func() { end(errEngineClosed) })
	return ctx, func() { stop(); end(nil); cancel() }
}

// silence is how long the session's connection may be quiet before another way is
// tried: batches wait for fences, which are asked for over it, and often just when
// a port has died.
func (e *Engine) silence() time.Duration { return min(50*time.Millisecond, e.o.GiveUp/4) }

// sessionRoutes are the routes to dial the session over: the registry's addresses, then
// those of the peer's endpoints, from each of our ports that has a lane there. Of those that the peer
// has told, they are the ones that transports connect to.
func (p *Peer) sessionRoutes() []session.Route {
	out, told := p.knownRoutes()
	return append(out[:told:told], slices.DeleteFunc(out[told:], func(r session.Route) bool {
		return slices.ContainsFunc(p.engine.carriers, func(c *carrier) bool {
			return c.only != nil && c.only.Connects(p.engine.ctx, r.Remote) != nil
		})
	})...)
}

// knownRoutes are all routes; from told on they are by what the peer says.
func (p *Peer) knownRoutes() (out []session.Route, told int) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	add := func(r session.Route) {
		if r.Remote.IsValid() && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	for _, a := range addressesFor(&p.record, p.engine.boot) {
		add(session.Route{Remote: a})
	}
	told = len(out)
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
	return out, told
}

// handle answers the peer's calls: it may tell us what changed, and reply to our notifications.
func (p *Peer) handle(ctx context.Context, s *session.Session, method uint16, body []byte) ([]byte, error) {
	switch method {
	case methodDelta:
	case methodNotify:
		return nil, p.engine.notified(ctx, s, body)
	default:
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
	p.setDescriptor(next, 0)
	return nil, nil
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
	if err != nil {
		return pkgerr.Errorf("engine", "peer %q: %w", p.name, p.because(err))
	}
	return nil
}

// because is why a call of the session failed: if the session is over, what the peer is gone by,
// which is told a moment later.
func (p *Peer) because(err error) error {
	if p.session.Over() {
		<-p.gone
	}
	if lost := p.lost(); lost != nil {
		return lost
	}
	return err
}

// describe fetches the descriptor; descriptorLock is held.
func (p *Peer) describe(ctx context.Context) error {
	answer, err := p.callEngine(ctx, methodDescribe, nil)
	if err != nil {
		return fmt.Errorf("asking what it offers: %w", err)
	}
	hash := maphash.Bytes(p.seed, answer)
	p.mu.RLock()
	same := p.desc != nil && p.answered == hash
	p.mu.RUnlock()
	if same { // what is offered is often asked for and seldom changes
		return nil
	}
	d, err := peerdoc.ParseDescriptor(answer)
	if err != nil {
		return err
	}
	if d.Epoch != p.epoch {
		return fmt.Errorf("descriptor of epoch %d, the session is with %d", d.Epoch, p.epoch)
	}
	p.setDescriptor(d, hash)
	return nil
}

// setDescriptor replaces what is known of the peer; descriptorLock is held. hash is that of the
// answer that d was read from, 0 if it was made from a delta.
func (p *Peer) setDescriptor(d *peerdoc.Descriptor, hash uint64) {
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
	p.desc, p.answered, p.described = d, hash, as
	p.setRegions(d)
	close(p.change)
	p.change = make(chan struct{})
	p.mu.Unlock()
	if lanesChanged {
		p.reroute()
	}
}

// sessionEnded is the end of the peer: nothing can be asked any more.
func (p *Peer) sessionEnded(_ *session.Session, err error) {
	restarted := errors.Is(err, session.ErrRestarted)
	switch {
	case err == nil:
		err = fmt.Errorf("peer is %w", ErrClosed)
	case restarted:
		err = fmt.Errorf("%w: open it again", ErrPeerRestarted)
	case errors.Is(err, ErrWithdrawn):
		err = fmt.Errorf("%w: %w: open it again with what it accepts", ErrPeerLost, err)
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
	if !known {
		e.mu.Unlock()
	} else {
		w := e.getWork()
		if restarted { // no batch ends with a fence
			e.quarantineAll(p)
		}
		w.events = append(w.events, sched.Event{Kind: sched.PeerGone, Peer: p.id, Err: err, Restarted: restarted})
		e.step(w)
		e.mu.Unlock()
		e.perform(w)
		e.run(w)
		e.putWork(w)
	}
	close(p.gone)
	if restarted && known {
		if same := e.peerOf(p.epoch); same != nil { // it was opened twice, and still runs
			e.adoptFences(same)
		}
	}
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

// Ready waits until the peer is connected, which it mostly is, and gives why the peer is gone, or
// why ctx is over, where it is not. A peer whose connection was lost may be gone or have been
// started again: batches wait to find out, too, so a program that rather opens the peer again
// calls Ready before it submits. With a ctx that is over Ready does not wait.
func (p *Peer) Ready(ctx context.Context) error {
	err := p.lost()
	if err == nil {
		if err = p.session.Ready(ctx); err == nil {
			return nil
		}
		err = p.because(err)
	}
	return pkgerr.Errorf("engine", "peer %q: %w", p.name, err)
}

// Name is the name that Open was called with.
func (p *Peer) Name() string { return p.name }

// EngineName is what the peer's engine calls itself: its Options.Name.
func (p *Peer) EngineName() string { return p.self }

// Address is where the peer answers: that of its addresses which leads to it now.
func (p *Peer) Address() netip.AddrPort { return p.session.Remote() }

// Epoch is the peer's Engine.Epoch.
func (p *Peer) Epoch() uint64 { return p.epoch }

// notify asks the peer to hand a payload to its application.
func (p *Peer) notify(ctx context.Context, deadline int64, payload []byte) error {
	left := time.Duration(deadline - p.engine.now())
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	_, err := p.callEngine(ctx, methodNotify, notifyBody(left, payload))
	if err != nil {
		return p.because(err)
	}
	return nil
}

const closeTimeout = 5 * time.Second

// Close cancels the batches with the peer, waits up to 5 seconds for them, and closes
// the session.
func (p *Peer) Close() error {
	e := p.engine
	cause := p.lost() // its batches may not have ended of that yet
	if cause == nil {
		cause = fmt.Errorf("peer was %w", ErrClosed)
	}
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
