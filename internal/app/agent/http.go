package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/base/pkgerr"
)

// SchemaEngine is the name and major version of what /v1/engine answers.
const SchemaEngine = "topoctl.engine/v1"

// EngineDocument is what /v1/engine answers.
type EngineDocument struct {
	Schema string `json:"schema"`
	engine.Stats
	// Recent are those that run, then those that are over, the latest first; see
	// Engine.Recent.
	Recent []*engine.Explanation `json:"recent_batches"`
}

// Source is what HTTP tells about; an engine.
type Source interface {
	Stats() engine.Stats
	Recent() []*engine.Explanation
	Topology() *topo.Topology
}

// handler answers HTTP requests. It only reads.
type handler struct {
	source   Source
	started  time.Time
	stopping atomic.Bool
}

// Pages answers HTTP requests about an engine until it is stopped.
type Pages struct {
	handler   *handler
	server    *http.Server
	listeners []net.Listener
	failed    chan error
	running   sync.WaitGroup
}

// ServePages answers at all addresses (host:port), or fails.
func ServePages(ctx context.Context, addresses []string, s Source) (*Pages, error) {
	p := &Pages{handler: &handler{source: s, started: time.Now()}, failed: make(chan error, len(addresses))}
	var err error
	if p.listeners, err = listenHTTP(ctx, addresses); err != nil {
		return nil, err
	}
	p.server = newServer(p.handler)
	p.server.ConnState = func(c net.Conn, state http.ConnState) { c.(*client).now(state) }
	for _, ln := range p.listeners {
		p.running.Go(func() {
			if err := p.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
				p.failed <- pkgerr.Errorf("agent", "HTTP at %s: %w", ln.Addr(), err)
			}
		})
	}
	return p, nil
}

// Addresses are those that it answers at, with their real ports.
func (p *Pages) Addresses() []string {
	out := []string{}
	for _, ln := range p.listeners {
		out = append(out, ln.Addr().String())
	}
	return out
}

// Failed says when an address is answered at no more, and why.
func (p *Pages) Failed() <-chan error { return p.failed }

// Stop lets requests that are being answered end, for a short time, and waits.
func (p *Pages) Stop(ctx context.Context) error {
	p.handler.stopping.Store(true)
	limited, stop := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer stop()
	var err error
	if p.server.Shutdown(limited) != nil {
		err = p.server.Close()
	}
	p.running.Wait()
	return err
}

// What clients may take: they are few and on this host, unless the user said
// otherwise.
const (
	headerTimeout  = 5 * time.Second
	requestTimeout = 10 * time.Second
	answerTimeout  = 30 * time.Second
	idleTimeout    = time.Minute
	maxHeaderBytes = 16 << 10
	maxClients     = 64
)

func newServer(h *handler) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", index)
	mux.HandleFunc("GET /healthz", h.health)
	mux.HandleFunc("GET /v1/topology", h.topology)
	mux.HandleFunc("GET /v1/engine", h.engine)
	mux.HandleFunc("GET /metrics", h.metrics)
	return &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: answerTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes}
}

// index names the pages that there are.
func index(w http.ResponseWriter, _ *http.Request) {
	answer(w, "text/plain; charset=utf-8", []byte("topoctl agent\n\n/healthz      ok while it serves\n/v1/topology  this host, as JSON\n/v1/engine    regions, peers and lanes, as JSON\n/metrics      counters for Prometheus\n"))
}

func (h *handler) health(w http.ResponseWriter, _ *http.Request) {
	if h.stopping.Load() {
		http.Error(w, "stopping", http.StatusServiceUnavailable)
		return
	}
	answer(w, "text/plain; charset=utf-8", []byte("ok\n"))
}

func (h *handler) topology(w http.ResponseWriter, _ *http.Request) {
	t := h.source.Topology()
	if t == nil {
		http.Error(w, "this agent knows no topology", http.StatusNotFound)
		return
	}
	data, err := t.Encode()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, "application/json", data)
}

func (h *handler) engine(w http.ResponseWriter, _ *http.Request) {
	data, err := json.Marshal(EngineDocument{SchemaEngine, h.source.Stats(), h.source.Recent()})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, "application/json", append(data, '\n'))
}

func (h *handler) metrics(w http.ResponseWriter, _ *http.Request) {
	answer(w, "text/plain; version=0.0.4; charset=utf-8", metricsText(h.source.Stats(), h.started))
}

func answer(w http.ResponseWriter, kind string, data []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.Write(data) //nolint:errcheck // a client that has gone needs no answer
}

// listenHTTP listens at all addresses or at none.
func listenHTTP(ctx context.Context, addresses []string) ([]net.Listener, error) {
	var out []net.Listener
	for _, a := range addresses {
		ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", a)
		if err != nil {
			errs := []error{pkgerr.Errorf("agent", "HTTP at %s: %w", a, err)}
			for _, o := range out {
				errs = append(errs, o.Close())
			}
			return nil, errors.Join(errs...)
		}
		out = append(out, &bounded{Listener: ln, free: make(chan struct{}, maxClients), closed: make(chan struct{})})
	}
	return out, nil
}

// bounded lets maxClients in at a time; the others wait in the kernel. While all places are
// taken, clients that ask nothing lose theirs: a monitor that keeps its connections open
// must not keep others out.
type bounded struct {
	net.Listener
	free   chan struct{} // holds a token for each client
	closed chan struct{}
	once   sync.Once

	mu   sync.Mutex
	full bool
	idle []*client // the one that has been so the longest first
}

func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.free <- struct{}{}:
	default:
		b.crowded(true)
		select {
		case b.free <- struct{}{}:
			b.crowded(false)
		case <-b.closed:
			return nil, net.ErrClosed
		}
	}
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.free
		return nil, err
	}
	return &client{Conn: c, from: b, release: sync.OnceFunc(func() { <-b.free })}, nil
}

// crowded says that a place is wanted and none is free, or that this is over.
func (b *bounded) crowded(full bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.full = full
	if full && len(b.idle) > 0 {
		c := b.idle[0]
		b.idle = b.idle[1:]
		_ = c.Close()
	}
}

func (b *bounded) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Listener.Close()
}

type client struct {
	net.Conn
	from    *bounded
	release func()
}

// now follows what the server does with the connection.
func (c *client) now(state http.ConnState) {
	b := c.from
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle = slices.DeleteFunc(b.idle, func(x *client) bool { return x == c })
	switch {
	case state != http.StateIdle:
	case b.full:
		_ = c.Close()
	default:
		b.idle = append(b.idle, c)
	}
}

func (c *client) Close() error {
	defer c.release()
	return c.Conn.Close()
}
