package bind

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory/cuda"
	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/internal/agent"
	"github.com/topoctl/topoctl/internal/registries"
)

// Engine is an engine with its memory by address and its peers by name. Its methods may be used
// by many goroutines.
type Engine struct {
	e       *engine.Engine
	log     *slog.Logger
	o       Options
	pages   *agent.Pages
	names   registry.Registry // that of Options.Registry, nil without
	release time.Duration     // that Release and Unregister wait at most
	settle  time.Duration     // that a call waits to learn what became of a peer
	batches Handles[*batch]
	lists   Handles[*list]

	// Batches that did not begin because a range is not registered, or not offered, and because
	// the peer is not the one that was added.
	noRegion, restarted atomic.Int64

	ctx    context.Context // ends with the engine
	cancel context.CancelCauseFunc
	tasks  sync.WaitGroup // begun under mu while the engine is open

	// registering is held while memory is registered and given back; local is what there is.
	registering sync.Mutex
	local       atomic.Pointer[space[*region]]

	mu     sync.Mutex // of all that follows
	closed bool
	added  map[string]registry.Record // peers by their metadata
	peers  map[string]*peer
	gpus   *cuda.Driver

	inbox  inbox
	calls  calls
	events events
	compat atomic.Pointer[compat] // nil where it was not asked for
}

// releaseTime is how long a call waits for memory to be free.
const releaseTime = 5 * time.Second

// Open makes an engine from the JSON object of its options.
func Open(ctx context.Context, options string) (*Engine, error) {
	o, err := ParseOptions(options)
	if err != nil {
		return nil, err
	}
	e := &Engine{o: o, release: releaseTime, settle: settleTime, added: map[string]registry.Record{}, peers: map[string]*peer{}}
	e.local.Store(&space[*region]{})
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	eo, err := o.engine(ctx)
	if err != nil {
		e.cancel(errClosed)
		return nil, err
	}
	names := registry.P2P()
	if o.Registry != "" {
		r, err := registries.Open(ctx, o.Registry, eo.Logger, os.Getenv)
		if err != nil {
			e.cancel(errClosed)
			return nil, fail(Invalid, "options: registry: %w", err)
		}
		e.names, names = r, registry.WithAddresses(r)
	}
	eo.Registry = &directory{Registry: names, engine: e}
	eo.Serve.Answer = e.answer
	if o.Compat {
		eo.Serve.OtherProtocol = e.other
	}
	eo.Serve.Prepare = e.allocNamed
	e.log = eo.Logger
	if e.e, err = engine.New(ctx, eo); err != nil {
		e.cancel(errClosed)
		e.closeNames()
		if StatusOf(err) != NoMemory {
			err = &Error{Invalid, err}
		}
		return nil, err
	}
	if o.Compat {
		if err := e.openCompat(ctx); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	if o.HTTP != "" {
		e.pages, err = agent.ServePages(ctx, []string{o.HTTP}, e, nil)
		if errors.Is(err, syscall.EADDRINUSE) { // by another engine with the same options, mostly: metrics stop nobody
			host, _, _ := net.SplitHostPort(o.HTTP)
			e.pages, err = agent.ServePages(ctx, []string{net.JoinHostPort(host, "0")}, e, nil)
		}
		if err != nil {
			return nil, errors.Join(&Error{Invalid, err}, e.Close())
		}
	}
	return e, nil
}

// Close ends all batches and gives the memory back; batches that it ends are cancelled.
func (e *Engine) Close() error {
	e.mu.Lock()
	first := !e.closed
	e.closed = true
	gpus := e.gpus
	e.mu.Unlock()
	if !first {
		return nil
	}
	e.cancel(errClosed)
	var errs []error
	if e.pages != nil {
		errs = append(errs, e.pages.Stop(context.Background()))
	}
	if m := e.compat.Load(); m != nil {
		errs = append(errs, m.Close())
	}
	errs = append(errs, e.e.Close())
	e.tasks.Wait()
	e.events.close()
	e.closeNames()
	if gpus != nil {
		errs = append(errs, gpus.Close())
	}
	return errors.Join(errs...)
}

// closeNames closes the registry, which removes the record. Where that fails, the record ends by itself.
func (e *Engine) closeNames() {
	if e.names == nil {
		return
	}
	if err := e.names.Close(); err != nil {
		e.log.Warn("closing the registry", "error", err)
	}
}

var errClosed = fail(Canceled, "the engine is closed")

// Port is the port of the first address that the engine listens at.
func (e *Engine) Port() int { return int(e.e.Addrs()[0].Port()) }

// Address is host:port by which peers open the engine.
func (e *Engine) Address() string {
	for _, a := range e.e.Advertised() {
		if a.Transport == "tcp" {
			return a.Address
		}
	}
	return e.e.Addrs()[0].String()
}

// Name is what the engine calls itself.
func (e *Engine) Name() string { return e.e.Name() }

// Stats are the engine's counters, with the batches that were refused here.
func (e *Engine) Stats() engine.Stats {
	s := e.e.Stats()
	for why, n := range map[string]int64{"no_region": e.noRegion.Load(), "restarted": e.restarted.Load()} {
		if n > 0 && s.Failures.Submits == nil {
			s.Failures.Submits = map[string]int64{}
		}
		if n > 0 {
			s.Failures.Submits[why] += n
		}
	}
	return s
}

// Recent implements agent.Source.
func (e *Engine) Recent() []*engine.Explanation { return e.e.Recent() }

// Topology implements agent.Source.
func (e *Engine) Topology() *topo.Topology { return e.e.Topology() }

// Document is what topoctl agent's /v1/engine has.
func (e *Engine) Document() ([]byte, error) {
	d := agent.EngineDocument{Schema: agent.SchemaEngine, Stats: e.Stats(), Recent: e.Recent(), Advertised: e.e.Advertised()}
	if e.pages != nil {
		d.HTTP = e.pages.Addresses()
	}
	data, err := json.Marshal(d)
	if err != nil {
		return nil, fail(Internal, "statistics: %w", err)
	}
	return data, nil
}

// bounded is a context that ends after a time, 0: after the engine's default.
func (e *Engine) bounded(timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout <= 0 {
		timeout = e.o.DefaultTimeout
	}
	return context.WithTimeout(e.ctx, timeout)
}

// Warn writes a warning to the engine's log.
func (e *Engine) Warn(text string) { e.log.Warn(text) }
