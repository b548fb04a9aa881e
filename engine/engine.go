package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/registry"
	mem "github.com/topoctl/topoctl/internal/base/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/peerdoc"
	"github.com/topoctl/topoctl/internal/base/engine/sched"
	"github.com/topoctl/topoctl/internal/base/engine/session"
	"github.com/topoctl/topoctl/internal/base/engine/stage"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
	"github.com/topoctl/topoctl/pathsel"
)

// Engine owns regions, serves them to peers, and moves memory to and from peers
// that it has opened. Its methods may be used by many goroutines.
type Engine struct {
	o             Options
	name          string
	epoch         uint64
	machine, boot string
	identity      session.Identity
	log           *slog.Logger
	began         time.Time

	table         *mem.Table
	carriers      []*carrier // in the order of preference
	unavailable   []error    // why others are not there
	registry      registry.Registry
	listen        []netip.AddrPort
	server        *session.Server
	notifications chan Notification
	offering      offering
	ports         atomic.Pointer[ports]
	retopology    sync.Mutex           // of SetTopology, and of followPorts
	own           []transport.Endpoint // that are no transport's offers; retopology guards it
	ownReason     string               // for the first of them
	portsMoved    chan struct{}        // has a token: a transport's ports are not what they were
	bounce        bounce
	answering     answering

	// ctx ends with the engine, stop when the scheduler is not needed any more.
	ctx    context.Context
	cancel context.CancelFunc
	stop   chan struct{}
	wake   chan struct{} // of the time keeper
	life   sync.Mutex    // of closed and running.Add
	closed bool
	tasks  sync.WaitGroup

	works    sync.Pool // *work
	postings sync.Pool // *posting
	buffers  sync.Pool // *opBuffers
	count    counters
	recent   recent // batches

	sidesPool sync.Pool // *[]side

	anyQuarantine atomic.Bool
	closeTime     time.Duration // that Peer.Close waits for batches

	// mu is the scheduler's: whoever holds it steps the core, and carries out what
	// it says afterwards.
	mu          sync.Mutex
	core        *sched.Core
	closing     bool
	wakeAt      int64 // when the time keeper steps the core
	peers       map[*Peer]bool
	lanes       map[sched.LaneID]*lane
	retired     []*lane // of closed peers, whose connections are over
	conns       map[sched.ConnID]*conn
	sides       map[*pathsel.Host]sched.SideID
	unfenced    map[sched.ConnID]fenceKey
	quarantines map[uint64][]quarantined // by the peer's epoch
	first       *Batch                   // running ones
}

// counters of an engine since it began.
type counters struct {
	batches, failed, unsafe, slices, retries, fallbacks, notifications atomic.Int64
}

// New makes an engine that listens and serves. ctx bounds the making only: Close
// ends the engine.
func New(ctx context.Context, o Options) (*Engine, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	e := &Engine{
		o: o, name: o.Name, log: o.Logger, began: time.Now(),
		table: mem.NewTable(o.Limits.Regions), registry: o.Registry,
		notifications: make(chan Notification, o.Limits.Notifications),
		stop:          make(chan struct{}), wake: make(chan struct{}, 1), portsMoved: make(chan struct{}, 1),
		closeTime: closeTimeout,
		core:      sched.New(sched.DefaultConfig()), wakeAt: sched.Never,
		peers: map[*Peer]bool{}, lanes: map[sched.LaneID]*lane{}, conns: map[sched.ConnID]*conn{},
		sides: map[*pathsel.Host]sched.SideID{}, unfenced: map[sched.ConnID]fenceKey{}, quarantines: map[uint64][]quarantined{},
	}
	e.works.New = func() any { return &work{} }
	e.postings.New = func() any { return &posting{} }
	e.buffers.New = func() any { return &opBuffers{} }
	e.sidesPool.New = func() any { return &[]side{} }
	e.offering.regions, e.offering.subscribers = map[memory.ID]*Region{}, map[*session.Session]*subscriber{}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.machine, e.boot = machineAndBoot()
	e.epoch = registry.NewEpoch(e.began)
	e.identity = session.Identity{Name: e.name, Epoch: e.epoch, Token: o.Token}
	if err := e.bringUp(ctx); err != nil {
		return nil, fmt.Errorf("engine: %w", errors.Join(err, e.Close()))
	}
	return e, nil
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
	e.server = session.Serve(listeners, session.ServerOptions{
		Identity: e.identity, Limits: e.sessionLimits(), Handle: e.handle, Data: e.data, Ended: e.sessionEnded,
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

func (e *Engine) listenAll(ctx context.Context) ([]net.Listener, error) {
	var out []net.Listener
	for _, address := range e.o.Listen {
		l, err := session.Listen(ctx, address)
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
	env := transport.Env{
		Name: e.name, Epoch: e.epoch, Token: e.o.Token, Regions: e.table, Topology: topology, Addrs: e.listen, Logger: e.log,
		Changed: func() {
			select {
			case e.portsMoved <- struct{}{}:
			default: // somebody has said so already
			}
		},
	}
	for _, build := range e.o.Transports {
		t, err := build(env)
		if errors.Is(err, ErrUnavailable) {
			e.log.Info("a transport is not available", "error", err)
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

// publish tells the registry where we are.
func (e *Engine) publish(ctx context.Context) error {
	r := registry.Record{Name: e.name, Epoch: e.epoch}
	for _, a := range e.Advertised() {
		if at, err := netip.ParseAddrPort(a.Address); err == nil && a.Transport == "tcp" {
			r.Addresses = append(r.Addresses, at)
		}
	}
	if now := e.ports.Load(); now != nil {
		r.Fingerprint = now.topology.Fingerprint()
	}
	lease, err := e.registry.Publish(ctx, r)
	if err != nil {
		return err
	}
	e.start(func() { e.keepPublished(r, lease) })
	return nil
}

// keepPublished publishes the record again when the registry has lost it.
func (e *Engine) keepPublished(r registry.Record, lease registry.Lease) {
	const pause = 5 * time.Second
	for {
		select {
		case <-lease.Lost():
			e.log.Warn("the registry has lost this engine's record: publishing it again")
		case <-e.ctx.Done():
			if err := lease.Close(); err != nil {
				e.log.Warn("closing the lease of the registry", "error", err)
			}
			return
		}
		for {
			again, err := e.registry.Publish(e.ctx, r)
			if err == nil {
				lease = again
				break
			}
			if errors.Is(err, registry.ErrOldEpoch) {
				e.log.Error("another engine has taken this one's name", "error", err)
				return
			}
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-e.ctx.Done():
				timer.Stop()
				return
			}
		}
	}
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

// Unavailable says which of Options.Transports this host cannot have, and why: each
// error wraps ErrUnavailable.
func (e *Engine) Unavailable() []error { return slices.Clone(e.unavailable) }

func texts(list []error) []string {
	var out []string
	for _, err := range list {
		out = append(out, err.Error())
	}
	return out
}

// Name is how the engine presents itself.
func (e *Engine) Name() string { return e.name }

// Epoch tells the engine's lives apart: it is drawn at random by New.
func (e *Engine) Epoch() uint64 { return e.epoch }

// Addrs are the addresses that the engine listens at, with their real ports.
func (e *Engine) Addrs() []netip.AddrPort { return append([]netip.AddrPort(nil), e.listen...) }

// Notifications are what peers' batches left behind. The channel holds
// Limits.Notifications of them: a program that has peers notify it must read it.
// Close closes it.
func (e *Engine) Notifications() <-chan Notification { return e.notifications }
