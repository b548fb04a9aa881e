package session_test

import (
	"context"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/session"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/testkit/longtest"
)

func files(t *testing.T) int {
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(d)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// TestManySessions opens and closes sessions, 64 at a time, and finds nothing
// left of them.
func TestManySessions(t *testing.T) {
	leaks(t)
	n := 300
	if longtest.On() {
		n = 10_000
	}
	srv, addr := serve(t, session.ServerOptions{Identity: session.Identity{Name: "h", Epoch: 1, Credentials: trust.Secret(token)}, Handle: echo,
		Limits: session.Limits{Orphaned: 10 * time.Second}, // of one that could not say goodbye
	}, "127.0.0.1:0")
	work := make(chan int)
	round := func(n int) {
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for range work {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
					s, err := session.Dial(ctx, session.DialOptions{
						Identity: session.Identity{Name: "c", Credentials: trust.Secret(token)}, Routes: to(addr), Silence: 5 * time.Second,
					})
					if err != nil {
						cancel()
						t.Error(err)
						continue
					}
					if got, err := s.Call(ctx, 1, []byte("hello")); err != nil || string(got) != "hello" {
						t.Error(err)
					}
					_ = s.Close()
					cancel()
				}
			})
		}
		for i := range n {
			work <- i
		}
		close(work)
		wg.Wait()
		work = make(chan int)
	}
	round(128)
	fds, before := files(t), heap()
	begin := time.Now()
	round(n)
	took := time.Since(begin)
	until := time.Now().Add(2 * time.Minute)
	for srv.Counts().Sessions > 0 || files(t) > fds+4 {
		if time.Now().After(until) {
			t.Fatalf("%d sessions, %d files (%d before)", srv.Counts().Sessions, files(t), fds)
		}
		time.Sleep(5 * time.Millisecond)
	}
	after := heap()
	t.Logf("%d sessions in %v, heap %d KiB before, %d KiB after", n, took, before>>10, after>>10)
	if after > before+16<<20 {
		t.Errorf("%d bytes before, %d after", before, after)
	}
}

// TestOpenSessions: what an open session costs.
func TestOpenSessions(t *testing.T) {
	leaks(t)
	const n = 200
	_, addr := serve(t, session.ServerOptions{Handle: echo}, "127.0.0.1:0")
	before := heap()
	var all []*session.Session
	for range n {
		s := mustDial(t, session.DialOptions{Routes: to(addr), Silence: 5 * time.Second})
		all = append(all, s)
	}
	each := (int64(heap()) - int64(before)) / n
	t.Logf("%d bytes for both ends of a session", each)
	if each > 200<<10 {
		t.Errorf("%d bytes for both ends of a session", each)
	}
	for _, s := range all {
		_ = s.Close()
	}
}

// BenchmarkDial is a session from the first packet to the end.
func BenchmarkDial(b *testing.B) {
	for name, secret := range map[string][]byte{"plain": nil, "token": token} {
		b.Run(name, func(b *testing.B) {
			dial := benchmarked(b, secret)
			b.ReportAllocs()
			for b.Loop() {
				_ = dial().Close()
			}
		})
	}
}

// BenchmarkCall is a small call and its answer.
func BenchmarkCall(b *testing.B) {
	for name, secret := range map[string][]byte{"plain": nil, "token": token} {
		b.Run(name, func(b *testing.B) {
			s := benchmarked(b, secret)()
			defer s.Close()
			body := make([]byte, 256)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Call(b.Context(), 1, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// benchmarked makes a server, and gives what dials it.
func benchmarked(b *testing.B, secret []byte) func() *session.Session {
	l, err := session.Listen(b.Context(), "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	id := session.Identity{Credentials: trust.Secret(secret)}
	srv := session.Serve([]net.Listener{l}, session.ServerOptions{Identity: id, Handle: echo})
	b.Cleanup(func() { _ = srv.Close() })
	return func() *session.Session {
		s, err := session.Dial(b.Context(), session.DialOptions{Identity: id, Routes: to(l.Addr().(*net.TCPAddr).AddrPort())})
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
}
