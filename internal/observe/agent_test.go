package observe

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topoctl/topoctl/internal/record"
)

// wires connects a client with servers in memory, by host name.
type wires struct {
	mu    sync.Mutex
	hosts map[string]*pipes
}

// pipes is a listener of connections in memory.
type pipes struct {
	next   chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.next:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// serve starts a server for a host; stop kills it.
func (w *wires) serve(host string, h http.HandlerFunc) (stop func()) {
	p := &pipes{next: make(chan net.Conn), closed: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hosts[host+":80"] = p
	server := &http.Server{Handler: h}
	go server.Serve(p)
	return func() { server.Close() }
}

func (w *wires) dial(ctx context.Context, _, address string) (net.Conn, error) {
	w.mu.Lock()
	p := w.hosts[address]
	w.mu.Unlock()
	if p == nil {
		return nil, errors.New("no such host")
	}
	here, there := net.Pipe()
	select {
	case p.next <- there:
		return here, nil
	case <-p.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// client is the one that agents are asked with, over these wires.
func (w *wires) client() *http.Client {
	c := AgentClient(nil)
	c.Transport.(*http.Transport).DialContext = w.dial
	return c
}

const engineDocument = `{"schema":"topoctl.engine/v1","name":"n1","epoch":"7","peers":[],"lanes":[],"served":[],"batches":1}`

func well(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/v1/engine" {
		http.NotFound(w, r)
		return
	}
	fmt.Fprint(w, engineDocument)
}

// One agent is well beside each that lies, and nobody notices.
func TestAgentsThatLie(t *testing.T) {
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		want   []string // its states
	}{
		"endless": {func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := fmt.Fprint(w, strings.Repeat(" ", 64<<10)); err != nil {
					return
				}
			}
		}, []string{"0s failed: its answer is longer than 8 MiB"}},
		"slow drip": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := fmt.Fprint(w, " "); err != nil {
					return
				}
				w.(http.Flusher).Flush()
				time.Sleep(time.Second)
			}
		}, []string{"2s waiting: no answer for 2s", "5s failed: no answer within 5s"}},
		"silent": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			[]string{"2s waiting: no answer for 2s", "5s failed: no answer within 5s"}},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://other/v1/engine", http.StatusFound)
		},
			[]string{"0s failed: it redirects (302 Found): redirects are not followed"}},
		"not found": {http.NotFound, []string{"0s failed: it answers 404 Not Found: is this the HTTP address of an agent?"}},
		"garbage":   {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "\x1b[2J\x00{") }, []string{"0s failed: "}},
		"another schema": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"schema":"topoctl.engine/v9","name":"x"}`)
		},
			[]string{"0s failed: "}},
		"packed": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			fmt.Fprint(z, engineDocument)
			z.Close()
		}, []string{"0s failed: "}},
		"long header": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Long", strings.Repeat("x", 1<<20))
			well(w, r)
		}, []string{"0s failed: "}},
		"cut off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, engineDocument)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, []string{"0s failed: unexpected EOF"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &wires{hosts: map[string]*pipes{}}
				other := 0
				defer w.serve("bad", tt.answer)()
				defer w.serve("good", well)()
				defer w.serve("other", func(w http.ResponseWriter, r *http.Request) { other++; well(w, r) })()
				f := New(Options{Agents: []string{"http://bad", "http://good"}, Client: w.client()})
				h := play(t, f, func(*heard) { time.Sleep(20*time.Second + time.Millisecond) })
				got := h.states("agent http://bad")
				ok := len(got) == len(tt.want)
				for i := range tt.want {
					ok = ok && (got[i] == tt.want[i] || strings.HasSuffix(tt.want[i], ": ") && strings.HasPrefix(got[i], tt.want[i]))
				}
				if !ok || strings.ContainsAny(strings.Join(got, ""), "\x00\x1b\n") {
					t.Errorf("\n got %q\nwant %q", got, tt.want)
				}
				t.Logf("%q", got)
				h.wantStates("agent http://good", "0s ok")
				if n := len(h.news("agent http://good")); n != 21 {
					t.Errorf("the agent that is well was heard %d times in 20 s", n)
				}
				if n := len(h.news("agent http://bad")); n > 0 || other > 0 {
					t.Errorf("%d answers of the bad one were believed; another address was asked %d times", n, other)
				}
			})
		})
	}
}

// An agent that is killed and started again.
func TestAgentKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wires{hosts: map[string]*pipes{}}
		kill := w.serve("n1", well)
		f := New(Options{Agents: []string{"http://n1", "http://n1", "http://user:secret@n2"}, Client: w.client()})
		h := play(t, f, func(*heard) {
			time.Sleep(3500 * time.Millisecond)
			kill()
			time.Sleep(4 * time.Second)
			kill = w.serve("n1", well)
			time.Sleep(5 * time.Second)
		})
		kill()
		h.wantStates("agent http://n1", "0s ok", "4s failed: connection refused", "11s ok")
		h.wantStates("agent http://user:xxxxx@n2", "0s failed: no such host")
		for _, r := range h.records {
			if data, err := r.Encode(); err != nil || strings.Contains(string(data), "secret") {
				t.Errorf("%s: %v", data, err)
			}
		}
	})
}

// Over TCP, with the client that the program uses.
func TestAgentOverTCP(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(well))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	f := New(Options{Agents: []string{server.URL}, Interval: time.Millisecond})
	n := 0
	if err := f.Run(ctx, func(r *record.Record) {
		if r.Engine == nil {
			return
		}
		if r.Engine.Name != "n1" || r.Source != record.AgentPrefix+server.URL {
			t.Errorf("%+v", r)
		}
		if n++; n == 5 {
			cancel()
		}
	}); err != nil {
		t.Error(err)
	}
	if n < 5 {
		t.Errorf("%d answers", n)
	}
}

func TestAgentURL(t *testing.T) {
	for text, want := range map[string]string{
		"http://n1:9411": "http://n1:9411", "n1:9411": "http://n1:9411", "https://n1/": "https://n1", "[::1]:9411": "http://[::1]:9411",
		"": "", "ftp://n1": "", "file:///etc/passwd": "", "http://": "", "n1:9411/v1": "", "http://n1?x": "", "http://n1#x": "", "http://n 1": "", "http://n1:port": "", "unix:/x": "",
	} {
		got, err := AgentURL(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}
