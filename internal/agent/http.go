package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/pkgerr"
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
	// HTTP are the addresses of these pages, with their real ports, in what topoctl_stats gives: who
	// has asked for port 0 learns it there.
	HTTP []string `json:"http,omitempty"`
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
	look     func(context.Context) ([]byte, error) // nil: there is no page of the host
	names    []string                              // that requests may have this server by

	mu     sync.Mutex // held while the host is looked at, so that clients share one look
	looked time.Time
	host   []byte
}

// Pages answers HTTP requests about an engine until it is stopped.
type Pages struct {
	handler   *handler
	server    *http.Server
	listeners []net.Listener
	failed    chan error
	running   sync.WaitGroup
}

// ServePages answers at all addresses (host:port), or fails. look looks at the host and gives its
// metrics; without it there are none.
func ServePages(ctx context.Context, addresses []string, s Source, look func(context.Context) ([]byte, error)) (*Pages, error) {
	p := &Pages{handler: &handler{source: s, started: time.Now(), look: look, names: ownNames(addresses)}, failed: make(chan error, len(addresses))}
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
	hostTimeout    = 20 * time.Second
	hostEvery      = 10 * time.Second // looks at the host, at most
)

func newServer(h *handler) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", h.index)
	mux.HandleFunc("GET /healthz", h.health)
	mux.HandleFunc("GET /v1/topology", h.topology)
	mux.HandleFunc("GET /v1/engine", h.engine)
	mux.HandleFunc("GET /metrics", h.metrics)
	if h.look != nil {
		mux.HandleFunc("GET /metrics/host", h.hostMetrics)
	}
	return &http.Server{Handler: h.addressed(mux), ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: answerTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes}
}

// addressed refuses requests for a server of another name. A page of the web can have its own name
// resolve to an address of ours (DNS rebinding), and what a browser of this network would then
// read here would be the page's. An address is no such name, and one without a dot is in no
// public DNS.
func (h *handler) addressed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := hostName(r.Host)
		_, err := netip.ParseAddr(name)
		if err != nil && strings.Contains(name, ".") && !strings.HasSuffix(name, ".localhost") && !slices.Contains(h.names, name) {
			http.Error(w, "this agent is not "+strconv.Quote(name)+": use its address, or the name of its host", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ownNames are the names of this host, and those that addresses to serve at have.
func ownNames(addresses []string) []string {
	var out []string
	if name, err := os.Hostname(); err == nil {
		out = append(out, strings.ToLower(name))
	}
	for _, a := range addresses {
		out = append(out, hostName(a))
	}
	return out
}

// hostName is the host of an address as it is compared.
func hostName(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// index names the pages that there are.
func (h *handler) index(w http.ResponseWriter, _ *http.Request) {
	pages := "topoctl agent\n\n/healthz      ok while it serves\n/v1/topology  this host, as JSON\n/v1/engine    regions, peers and lanes, as JSON\n/metrics      counters for Prometheus\n"
	if h.look != nil {
		pages += "/metrics/host links, ports, paths and findings of this host for Prometheus\n"
	}
	answer(w, "text/plain; charset=utf-8", []byte(pages))
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
	answerJSON(w, data, err)
}

func (h *handler) engine(w http.ResponseWriter, _ *http.Request) {
	data, err := json.Marshal(EngineDocument{Schema: SchemaEngine, Stats: h.source.Stats(), Recent: h.source.Recent()})
	answerJSON(w, append(data, '\n'), err)
}

// answerJSON answers with a document that may be read with curl on a terminal.
func answerJSON(w http.ResponseWriter, data []byte, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, "application/json", document.Printable(data))
}

func (h *handler) metrics(w http.ResponseWriter, _ *http.Request) {
	answer(w, document.ContentType, metricsText(h.source.Stats(), h.started))
}

func (h *handler) hostMetrics(w http.ResponseWriter, r *http.Request) {
	text, err := h.lookAtHost(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	answer(w, document.ContentType, text)
}

// lookAtHost gives what was last seen while that is young.
func (h *handler) lookAtHost(ctx context.Context) ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.host != nil && time.Since(h.looked) < hostEvery {
		return h.host, nil
	}
	limited, stop := context.WithTimeout(ctx, hostTimeout)
	defer stop()
	text, err := h.look(limited)
	if err != nil {
		return nil, err
	}
	h.host, h.looked = text, time.Now()
	return text, nil
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
// taken, clients lose theirs: those that ask nothing, the one that has been silent the longest
// first, else the one whose answer takes the longest. A monitor that keeps its connections open
// must not keep others out, nor must a client that does not read.
type bounded struct {
	net.Listener
	free   chan struct{} // holds a token for each client
	closed chan struct{}
	once   sync.Once

	mu      sync.Mutex
	full    bool
	silent  []*client // that ask nothing, the one that has been so the longest first
	waiting []*client // for their answers, in the same order
}

// What a client keeps its place for while others want one: one that asks nothing, so that a new
// one's request can be read, and one that waits for its answer.
const (
	silentTime = 100 * time.Millisecond
	fairTime   = 500 * time.Millisecond
)

func (b *bounded) Accept() (net.Conn, error) {
	for taken := false; !taken; {
		select {
		case b.free <- struct{}{}:
			taken = true
		default:
			b.crowded(true)
			select {
			case b.free <- struct{}{}:
				taken = true
				b.crowded(false)
			case <-time.After(silentTime / 4):
			case <-b.closed:
				return nil, net.ErrClosed
			}
		}
	}
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.free
		return nil, err
	}
	return &client{Conn: c, from: b, release: sync.OnceFunc(func() { <-b.free })}, nil
}

// crowded says whether a place is wanted and none is free.
func (b *bounded) crowded(full bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.full = full
	switch {
	case !full:
	case len(b.silent) > 0 && time.Since(b.silent[0].since) > silentTime:
		_ = b.silent[0].Close()
		b.silent = b.silent[1:]
	case len(b.waiting) > 0 && time.Since(b.waiting[0].since) > fairTime:
		_ = b.waiting[0].Close()
		b.waiting = b.waiting[1:]
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
	since   time.Time // of what it does now
}

// now follows what the server does with the connection.
func (c *client) now(state http.ConnState) {
	b := c.from
	b.mu.Lock()
	defer b.mu.Unlock()
	isC := func(x *client) bool { return x == c }
	b.silent, b.waiting = slices.DeleteFunc(b.silent, isC), slices.DeleteFunc(b.waiting, isC)
	c.since = time.Now()
	switch {
	case state == http.StateIdle && b.full:
		_ = c.Close()
	case state == http.StateIdle, state == http.StateNew:
		b.silent = append(b.silent, c)
	case state == http.StateActive:
		b.waiting = append(b.waiting, c)
	}
}

func (c *client) Close() error {
	defer c.release()
	return c.Conn.Close()
}
