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
	// HTTP are the addresses of these pages, with their real ports, in what topoctl_stats returns: a
	// caller that asked for port 0 learns it there.
	HTTP []string `json:"http,omitempty"`
	// Advertised are the addresses that peers are told, and the ports that they are of, in what
	// topoctl_stats returns.
	Advertised []engine.Advertised `json:"advertised,omitempty"`
}

// Source is what HTTP reports on: an engine.
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
// metrics, which are missing without it.
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

// Failed reports that an address is no longer served, and why.
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

func (h *handler) index(w http.ResponseWriter, _ *http.Request) {
	data, err := h.page()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, "text/html; charset=utf-8", data)
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
		out = append(out, &bounded{Listener: ln, closed: make(chan struct{})})
	}
	return out, nil
}

// bounded lets maxClients in at a time; the others wait in the kernel. Where one waits, a client loses its place: one
// that asks nothing, else one that waits for its answer, of each the one that has done so for the longest. A monitor
// that keeps its connections open must not keep others out, nor must a client that does not read.
type bounded struct {
	net.Listener
	closed chan struct{}
	once   sync.Once

	mu      sync.Mutex
	clients []*client // the one that has done the same for the longest first
}

// What a client keeps its place for while others want one: one that asks nothing, so that a new
// one's request can be read, and one that waits for its answer.
const (
	silentTime = 100 * time.Millisecond
	fairTime   = 500 * time.Millisecond
)

func (b *bounded) Accept() (net.Conn, error) {
	for !b.makeRoom() {
		select {
		case <-time.After(silentTime / 4):
		case <-b.closed:
			return nil, net.ErrClosed
		}
	}
	c, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	x := &client{Conn: c, from: b}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clients = append(b.clients, x)
	return x, nil
}

// makeRoom says whether there is room for another client, after dropping one if it can.
func (b *bounded) makeRoom() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.clients) < maxClients {
		return true
	}
	longer := func(waits bool, than time.Duration) int {
		return slices.IndexFunc(b.clients, func(c *client) bool { return !c.since.IsZero() && c.waits == waits && time.Since(c.since) > than })
	}
	at := longer(false, silentTime)
	if at < 0 {
		at = longer(true, fairTime)
	}
	if at < 0 {
		return false
	}
	_ = b.clients[at].Conn.Close()
	b.clients = slices.Delete(b.clients, at, at+1)
	return true
}

func (b *bounded) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Listener.Close()
}

type client struct {
	net.Conn
	from  *bounded
	waits bool      // for its answer; else it asks nothing
	since time.Time // zero until the server has it
}

// now follows what the server does with the connection.
func (c *client) now(state http.ConnState) {
	if state != http.StateNew && state != http.StateActive && state != http.StateIdle {
		return
	}
	b := c.from
	b.mu.Lock()
	defer b.mu.Unlock()
	c.waits, c.since = state == http.StateActive, time.Now()
	if at := slices.Index(b.clients, c); at >= 0 {
		b.clients = append(slices.Delete(b.clients, at, at+1), c)
	}
}

func (c *client) Close() error {
	b := c.from
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clients = slices.DeleteFunc(b.clients, func(x *client) bool { return x == c })
	return c.Conn.Close()
}
