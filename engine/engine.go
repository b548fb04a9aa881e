package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	mem "github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/peerdoc"
	"github.com/topoctl/topoctl/engine/internal/peertls"

	"github.com/topoctl/topoctl/engine/internal/session"
	"github.com/topoctl/topoctl/engine/internal/stage"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/sched"
	"github.com/topoctl/topoctl/pathsel"
)

// Engine owns regions, serves them to peers, and moves memory to and from peers
// that it has opened. Its methods may be used by many goroutines.
type Engine struct {
	o     Options
	log   *slog.Logger
	began time.Time
	presence
	lifetime
	scheduler

	table       *mem.Table
	carriers    []*carrier // in the order of preference
	unavailable []error    // why others are not there

	registry      registry.Registry
	recordChanged chan struct{} // has a token: what the registry is told may have changed
	published     atomic.Pointer[RegistryStats]
	publishError  error // the last one, of whoever publishes
	server        *session.Server
	served        served
	offering      offering
	permits       permits
	answering     answering
	digests       *transport.Shares // that peers have made
	held          *transport.Shares // memory, of peers
	notifications *inbox
	bounce        bounce

	pools  pools
	count  counters
	recent recent // batches
}

// presence is who and where an engine is.
type presence struct {
	name          string
	epoch         uint64
	machine, boot string
	identity      session.Identity
	listen        []netip.AddrPort

	ports          atomic.Pointer[ports]
	topologyChange sync.Mutex           // of SetTopology, and of followPorts
	own            []transport.Endpoint // that are no transport's offers; topologyChange guards it
	ownReason      string               // for the first of them
	portsChanged   chan struct{}        // has a token: a transport's ports are not what they were
}

// lifetime is what an engine's goroutines end with.
type lifetime struct {
	ctx       context.Context // ends with the engine
	cancel    context.CancelFunc
	stop      chan struct{} // closed when the scheduler is not needed any more
	life      sync.Mutex    // of closed and tasks.Add
	closed    bool
	tasks     sync.WaitGroup
	closeTime time.Duration // that Peer.Close waits for batches
	leaveTime time.Duration // that transports have to leave the connections of a session that is over
}

// scheduler is the core and what the engine keeps for it. Whoever holds mu steps the
// core, and carries out what it says afterwards.
type scheduler struct {
	wake          chan struct{} // of the time keeper
	anyQuarantine atomic.Bool

	mu          mutex // of all that follows
	core        *sched.Core
	closing     bool
	wakeAt      int64 // when the time keeper steps the core
	peers       map[*Peer]bool
	conns       map[sched.ConnID]*conn
	sides       map[*pathsel.Host]sched.SideID
	unfenced    map[sched.ConnID]fenceKey
	quarantines map[uint64][]quarantined // by the peer's epoch
	fenced      chan struct{}            // closed when those of an epoch have ended, and another one is here then
	first       *Batch                   // running ones
}

// pools are of what is used again, so that nothing is allocated per slice.
type pools struct {
	works, postings, buffers, overlaps sync.Pool // *work, *posting, *opBuffers, *overlapSearch
}

// counters of an engine since it began.
type counters struct {
	batches, failed, unsafe, slices, retries, fallbacks, notifications atomic.Int64

	failures failures
}

// New makes an engine, which listens and serves until Close. ctx bounds the making only.
func New(ctx context.Context, o Options) (*Engine, error) {
	if err := o.complete(); err != nil {
		return nil, pkgerr.Errorf("engine", "%w", invalid("%w", err))
	}
	e := &Engine{
		o: o, log: o.Logger, began: time.Now(), table: mem.NewTable(o.Limits.Regions), registry: o.Registry, recordChanged: make(chan struct{}, 1),
		held:      transport.NewShares("memory", o.Limits.PeerBytes),
		answering: answering{shares: transport.NewShares("calls", int64(o.Limits.Calls)), by: map[*session.Session]int{}},
		digests:   transport.NewShares("digests", int64(max(runtime.GOMAXPROCS(0), 2))),
		presence:  presence{name: o.Name, portsChanged: make(chan struct{}, 1)},
		lifetime:  lifetime{stop: make(chan struct{}), closeTime: closeTimeout, leaveTime: leaveTimeout},
		scheduler: scheduler{
			wake: make(chan struct{}, 1), core: sched.New(sched.DefaultConfig()), wakeAt: sched.Never,
			peers: map[*Peer]bool{}, conns: map[sched.ConnID]*conn{},
			sides: map[*pathsel.Host]sched.SideID{}, unfenced: map[sched.ConnID]fenceKey{}, quarantines: map[uint64][]quarantined{},
			fenced: make(chan struct{}),
		},
	}
	e.notifications = newInbox(max(0, o.Limits.Notifications), e.held, e.start)
	e.pools.works.New = func() any { return &work{} }
	e.pools.postings.New = func() any { return &posting{} }
	e.pools.buffers.New = func() any { return &opBuffers{} }
	e.pools.overlaps.New = func() any { return &overlapSearch{} }
	e.offering.regions, e.offering.subscribers = map[mem.ID]*Region{}, map[*session.Session]*subscriber{}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.machine, e.boot = machineAndBoot()
	e.epoch = registry.NewEpoch(e.began)
	e.identity = session.Identity{Name: e.name, Epoch: e.epoch, Credentials: o.Security.credentials(), TLS: peertls.NewEndpoint(nil), Network: o.network()}
	if err := e.bringUp(ctx); err != nil {
		return nil, pkgerr.Errorf("engine", "%w", errors.Join(err, e.Close()))
	}
	return e, nil
}

// machineAndBoot tell whether two engines are on one machine since one boot. They
// are hashes: the machine's ID is not for everybody. "" is not known, as on systems
// other than Linux.
func machineAndBoot() (machine, boot string) {
	boot = hashOf("/proc/sys/kernel/random/boot_id")
	machine = hashOf("/etc/machine-id")
	if machine == "" {
		machine = boot // one boot is of one machine
	}
	return machine, boot
}

func hashOf(file string) string {
	data, err := os.ReadFile(file)
	text := strings.TrimSpace(string(data))
	if err != nil || text == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("topoctl engine " + text))
	return hex.EncodeToString(sum[:16])
}

// bringUp brings everything up, from the inside to the outside.
func (e *Engine) bringUp(ctx context.Context) error {
	now, err := e.newPorts(e.o.Ports.Topology)
	if err != nil {
		return err
	}
	e.ports.Store(now)
	listeners, err := e.listenAll(ctx)
	if err != nil {
		return err
	}
	if err := e.makeCarriers(); err != nil {
		closeAll(listeners)
		return err
	}
	if err := e.advertise(ctx); err != nil {
		closeAll(listeners)
		return err
	}
	e.tasks.Add(1)
	go e.keepTime()
	if e.o.Serve.Prepare != nil {
		if err := e.o.Serve.Prepare(e); err != nil {
			closeAll(listeners)
			return err
		}
	}
	e.server = session.Serve(listeners, session.ServerOptions{
		Identity: e.identity, Limits: e.sessionLimits(), Budget: e.budget(), Logger: e.log, Handle: e.handle,
		Data: e.data, DataKey: e.dataKey, Other: e.o.Serve.OtherProtocol, Ended: e.sessionEnded,
	})
	if err := e.publish(ctx); err != nil {
		return err
	}
	e.start(e.followPorts)
	return nil
}

func (e *Engine) sessionLimits() session.Limits {
	return session.Limits{Sessions: e.o.Limits.Peers, MessageBytes: peerdoc.MaxBytes + 1<<10}
}

// budget is that of all sessions.
func (e *Engine) budget() session.Budget {
	return session.Budget{Memory: e.held, AnswerBytes: answerBytes}
}

func (e *Engine) listenAll(ctx context.Context) ([]net.Listener, error) {
	var out []net.Listener
	listen := session.Listen
	if n := e.identity.Network; n != nil {
		listen = func(_ context.Context, address string) (net.Listener, error) { return n.Listen(e.name, address) }
	}
	for _, address := range e.o.Listen {
		l, err := listen(ctx, address)
		if err != nil {
			closeAll(out)
			return nil, err
		}
		out = append(out, l)
		e.listen = append(e.listen, l.Addr().(*net.TCPAddr).AddrPort())
	}
	return out, nil
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		_ = l.Close()
	}
}

func (e *Engine) makeCarriers() error {
	var topology *topo.Topology
	if now := e.ports.Load(); now != nil {
		topology = now.topology
	}
	protection, err := e.o.Security.protection()
	if err != nil {
		return err
	}
	env := transport.Env{
		Name: e.name, Epoch: e.epoch, Credentials: e.identity.Credentials, TLS: e.identity.TLS, Protection: protection,
		Regions: e.table, Memory: e.held, Topology: topology, Addrs: e.listen, Logger: e.log,
		Changed: func() {
			select {
			case e.portsChanged <- struct{}{}:
			default: // somebody has said so already
			}
		},
	}
	for _, f := range e.o.Transports {
		build, err := factoryOf(f)
		if err != nil {
			return invalid("%w", err)
		}
		t, err := build.Make(env)
		if errors.Is(err, ErrUnavailable) {
			e.log.Debug("a transport is not available", "error", err) // Unavailable has it
			e.unavailable = append(e.unavailable, err)
			continue
		}
		if err != nil {
			return err
		}
		// Device memory that the transport cannot touch goes through staging buffers.
		t = stage.Wrap(t, e.table)
		c := &carrier{t: t, name: t.Name(), caps: t.Caps()}
		c.data, _ = transport.As[transport.DataServer](t)
		c.some, _ = transport.As[transport.Selective](t)
		c.only, _ = transport.As[transport.Bounded](t)
		c.ports, _ = transport.As[transport.Ported](t)
		e.carriers = append(e.carriers, c)
		if e.carrierOf(c.name) != c {
			return fmt.Errorf("two transports are called %q", c.name)
		}
	}
	if len(e.carriers) == 0 {
		return fmt.Errorf("no transport: %s", strings.Join(texts(e.unavailable), "; "))
	}
	return nil
}

// carrierOf finds a transport by name, nil without.
func (e *Engine) carrierOf(name string) *carrier {
	for _, c := range e.carriers {
		if c.name == name {
			return c
		}
	}
	return nil
}

// start runs f in a goroutine that Close waits for; false when it is too late.
func (e *Engine) start(f func()) bool {
	e.life.Lock()
	defer e.life.Unlock()
	if e.closed {
		return false
	}
	e.tasks.Add(1)
	go func() {
		defer e.tasks.Done()
		f()
	}()
	return true
}

// Unavailable says which of Options.Transports this host does not support, and why. Each
// error wraps ErrUnavailable.
func (e *Engine) Unavailable() []error { return slices.Clone(e.unavailable) }

func texts(list []error) []string {
	var out []string
	for _, err := range list {
		out = append(out, err.Error())
	}
	return out
}

// Name is what the engine calls itself.
func (e *Engine) Name() string { return e.name }

// Epoch differs each time an engine is made, so that peers notice a restart.
func (e *Engine) Epoch() uint64 { return e.epoch }

// Addrs are the addresses that the engine listens at, with the ports that were chosen.
func (e *Engine) Addrs() []netip.AddrPort { return append([]netip.AddrPort(nil), e.listen...) }

// Notifications are those that peers sent. A program that expects any must read the
// channel: the engine holds Limits.Notifications of them, and then peers wait. Close closes it.
func (e *Engine) Notifications() <-chan Notification { return e.notifications.c }

// alive is why the engine takes no more work, nil as long as it does.
func (e *Engine) alive() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return errEngineClosed
	}
	return nil
}

// addPeer counts a peer in.
func (e *Engine) addPeer(p *Peer) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return errEngineClosed
	}
	if err := p.lost(); err != nil {
		return err // it is known for as long as it was opened
	}
	p.id, p.scheduled = e.core.AddPeer(p.name), true
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
	e.forgetFences(p)
	clear(p.lanes)
	p.removed = true
	for what, side := range p.sides {
		delete(p.sides, what)
		e.core.RemoveSide(side)
	}
	if p.scheduled {
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

// Close cancels all batches, waits up to 5 seconds for them, closes all sessions and
// connections, those that peers opened included, and unmaps the memory. It can be
// called again.
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
	close(e.notifications.c)
	errs = append(errs, e.table.Close())
	if err := errors.Join(errs...); err != nil {
		return pkgerr.Errorf("engine", "close: %w", err)
	}
	return nil
}

// opened are the peers that are open now.
func (e *Engine) opened() []*Peer {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Keys(e.peers))
}

// closePeers closes all peers at once: each may take a while.
func (e *Engine) closePeers() {
	var wg sync.WaitGroup
	for _, p := range e.opened() {
		wg.Go(func() { _ = p.Close() })
	}
	wg.Wait()
}
