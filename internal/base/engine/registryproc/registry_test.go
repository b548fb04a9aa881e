package registryproc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/engine/registry/plugin"
	"github.com/topoctl/topoctl/internal/base/engine/registrytest"
)

const patience = 30 * time.Second

// relayVariable makes this program a relay: what a child says goes to a socket of the test, where
// package plugin serves a registry in memory that all children of the test share.
const relayVariable = "TOPOCTL_TEST_RELAY"

func TestMain(m *testing.M) {
	if at := os.Getenv(relayVariable); at != "" {
		os.Exit(relay(at))
	}
	os.Exit(m.Run())
}

func relay(at string) int {
	if text, ok := strings.CutPrefix(at, "say:"); ok {
		fmt.Print(text)
		io.Copy(io.Discard, os.Stdin)
		return 0
	}
	c, err := net.Dial("unix", at)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Fprintln(os.Stderr, "a word to the log")
	go func() {
		io.Copy(c, os.Stdin)
		c.(*net.UnixConn).CloseWrite()
	}()
	io.Copy(os.Stdout, c)
	return 0
}

// host serves children.
type host struct {
	socket string
	memory *registrytest.Memory
	mu     sync.Mutex
	open   []*registrytest.MemoryClient
	alive  []func() bool
}

func newHost(t *testing.T, ttl time.Duration, now func() time.Time) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "reg") //nolint:usetesting // names of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	h := &host{socket: filepath.Join(dir, "s"), memory: registrytest.NewMemory(ttl, now)}
	l, err := net.Listen("unix", h.socket)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				plugin.Serve(context.Background(), c, c, "relay 1", func(_ context.Context, url string, alive func() bool) (registry.Registry, error) {
					if url != "relay://here" {
						return nil, fmt.Errorf("no registry at %q", url)
					}
					m := h.memory.Client()
					h.mu.Lock()
					h.open, h.alive = append(h.open, m), append(h.alive, alive)
					h.mu.Unlock()
					return m, nil
				})
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
		os.RemoveAll(dir)
	})
	return h
}

func (h *host) registry(t *testing.T, log *slog.Logger) *proc {
	t.Helper()
	t.Setenv(relayVariable, h.socket)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // a second for each child
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open(t.Context(), Options{URL: "relay://here", Program: self, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	return r.(*proc)
}

// The suite of registries, each in a process of its own.
func TestSuite(t *testing.T) {
	before := runtime.NumGoroutine()
	hosts := map[string]*host{}
	var now struct {
		sync.Mutex
		time.Time
	}
	const ttl = time.Minute
	t.Run("all", func(t *testing.T) {
		of := func(t *testing.T) *host {
			if hosts[t.Name()] == nil {
				hosts[t.Name()] = newHost(t, ttl, func() time.Time { now.Lock(); defer now.Unlock(); return now.Time })
			}
			return hosts[t.Name()]
		}
		registrytest.Run(t, registrytest.Suite{
			Open: func(t *testing.T) registry.Registry {
				h := of(t)
				h.mu.Lock()
				n := len(h.open)
				h.mu.Unlock()
				r := h.registry(t, nil)
				h.mu.Lock()
				defer h.mu.Unlock()
				if len(h.open) != n+1 {
					t.Fatal("which one it is is not known")
				}
				return &counted{r, n}
			},
			Name:     func(i int) string { return fmt.Sprintf("engine %d", i) },
			BadNames: []string{"no such", "a\nb"},
			Lose: func(t *testing.T, r registry.Registry) {
				h := of(t)
				h.open[r.(*counted).n].Cut(true)
				for range 4 {
					now.Lock()
					now.Time = now.Add(ttl / 3)
					now.Unlock()
					h.memory.Tick()
				}
			},
		})
	})
	for range 3000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

type counted struct {
	*proc
	n int
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in %v: %s", patience, what)
		}
	}
}

func rec(name string, epoch uint64) registry.Record {
	return registry.Record{Name: name, Epoch: epoch, Addresses: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:7411")}}
}

// A program that is killed is started again; what was published is there again, watches go on, and nothing is
// lost.
func TestKilled(t *testing.T) {
	h := newHost(t, 0, nil)
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	r, other := h.registry(t, log), h.memory.Client()
	closed := false
	defer func() {
		if !closed {
			r.Close()
		}
	}()
	l, err := r.Publish(t.Context(), rec("a", 5))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Publish(t.Context(), rec("b", 1)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen, all, ended := make(chan uint64, 64), make(chan int, 64), make(chan error, 2)
	go func() {
		ended <- r.Watch(ctx, "b", func(r registry.Record, gone bool) {
			if !gone {
				seen <- r.Epoch
			}
		})
	}()
	go func() { ended <- r.WatchAll(ctx, func(l registry.Listing) { all <- len(l.Records) }) }()
	if e := <-seen; e != 1 {
		t.Errorf("epoch %d", e)
	}
	for i := range 3 {
		r.mu.Lock()
		c := r.child
		r.mu.Unlock()
		c.kill()
		<-c.gone
		if got, err := r.Lookup(t.Context(), "b"); err != nil || got.Epoch != uint64(i+1) {
			t.Fatalf("a look-up meanwhile: %+v, %v", got, err)
		}
		until(t, "published again", func() bool { _, err := other.Lookup(t.Context(), "a"); return err == nil })
		if _, err := other.Publish(t.Context(), rec("b", uint64(i+2))); err != nil {
			t.Fatal(err)
		}
		for e := uint64(0); e != uint64(i+2); {
			select {
			case e = <-seen:
			case err := <-ended:
				t.Fatal(err)
			case <-time.After(patience):
				t.Fatal("the watch is over")
			}
		}
	}
	select {
	case <-l.Lost():
		t.Error("lost")
	default:
	}
	if _, err := other.Publish(t.Context(), rec("c", 1)); err != nil {
		t.Fatal(err)
	}
	for n := 0; n != 3; {
		select {
		case n = <-all:
		case <-time.After(patience):
			t.Fatal("the listing does not go on")
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if got, err := other.Lookup(t.Context(), "a"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("%+v, %v", got, err)
	}
	cancel()
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	closed = true
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if s := said.String(); !strings.Contains(s, "registry: a word to the log") || !strings.Contains(s, "starting it again") {
		t.Errorf("the log: %s", s)
	}
}

// A later engine takes the name while the program is away: the lease is lost then.
func TestTakenMeanwhile(t *testing.T) {
	h := newHost(t, 0, nil)
	r, other := h.registry(t, nil), h.memory.Client()
	defer r.Close()
	l, err := r.Publish(t.Context(), rec("a", 5))
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	c := r.child
	r.mu.Unlock()
	c.kill()
	until(t, "free", func() bool { _, err := other.Publish(t.Context(), rec("a", 6)); return err == nil })
	select {
	case <-l.Lost():
	case <-time.After(patience):
		t.Error("not lost")
	}
}

// Signs of life come as long as this process runs, and a program whose process stands still for long is
// another's to kill; here: it is stopped, and calls end at their deadline.
func TestStopped(t *testing.T) {
	h := newHost(t, 0, nil)
	r := h.registry(t, nil)
	defer r.Close()
	until(t, "alive", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.alive[0]() })
	if err := r.child.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// No line comes through any more: whoever serves takes this process for stopped.
	until(t, "not alive", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return !h.alive[0]() })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.Lookup(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if err := r.child.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	until(t, "alive again", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.alive[0]() })
	if _, err := r.Lookup(t.Context(), "a"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

// Programs that are none, or say what they should not, and URLs that are refused.
func TestOpenErrors(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := newHost(t, 0, nil)
	for _, tt := range []struct{ url, program, relay, want string }{
		{"here", self, h.socket, "want SCHEME://"},
		{"ETCD://here", self, h.socket, "want SCHEME://"},
		{"../x://here", "", "", "want SCHEME://"},
		{"nosuch://here", "", "", "no program topoctl-registry-nosuch in "},
		{"relay://there", self, h.socket, `no registry at "relay://there"`},
		{"relay://here", "/nonexistent/program", "", "no such file"},
		{"relay://here", "/bin/true", "", "program has ended"},
		{"relay://here", self, "say:{\"protocol\":\"other/v1\"}\n", `it speaks "other/v1", not topoctl.registry/v1`},
		{"relay://here", self, "say:hello\n", "what the registry's program says"},
		{"relay://here", self, "say:" + strings.Repeat("x", 100<<10), "deadline"},
	} {
		t.Setenv(relayVariable, tt.relay)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if tt.want == "deadline" {
			ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
		}
		r, err := Open(ctx, Options{URL: tt.url, Program: tt.program})
		cancel()
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %s %.40s: %v, %v: want %q", tt.url, tt.program, tt.relay, r, err, tt.want)
		}
	}
	t.Setenv(PluginsVariable, filepath.Dir(self))
	var missing *MissingError
	if _, err := Find("nosuch", os.Getenv); !errors.As(err, &missing) || len(missing.Dirs) != 3 {
		t.Errorf("%+v", missing)
	}
	link := filepath.Join(t.TempDir(), ProgramPrefix+"some")
	if err := os.Symlink("/bin/true", link); err != nil {
		t.Fatal(err)
	}
	if at, err := Find("some", func(string) string { return "relative:" + filepath.Dir(link) }); err != nil || at != link {
		t.Errorf("%s, %v", at, err)
	}
}
