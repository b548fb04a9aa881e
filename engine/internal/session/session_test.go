package session_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/session"
	"github.com/topoctl/topoctl/engine/internal/session/sessiontest"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/trust"
)

var token = []byte("0123456789abcdef")

// leaks fails a test that leaves goroutines behind.
func leaks(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		until := time.Now().Add(time.Minute)
		for runtime.NumGoroutine() > before {
			if time.Now().After(until) {
				buf := make([]byte, 1<<20)
				t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

func echo(_ context.Context, _ *session.Session, method uint16, body []byte) ([]byte, error) {
	if method == 9 {
		return nil, errors.New("method nine fails")
	}
	return body, nil
}

type ends struct {
	mu  sync.Mutex
	got []error
}

func (e *ends) add(_ *session.Session, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.got = append(e.got, err)
}

func (e *ends) wait(t *testing.T, n int) []error {
	t.Helper()
	until := time.Now().Add(30 * time.Second)
	for {
		e.mu.Lock()
		got := append([]error(nil), e.got...)
		e.mu.Unlock()
		if len(got) >= n {
			return got
		}
		if time.Now().After(until) {
			t.Fatalf("%d sessions ended, want %d", len(got), n)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func serve(t *testing.T, o session.ServerOptions, address string) (*session.Server, netip.AddrPort) {
	t.Helper()
	l, err := session.Listen(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	s := session.Serve([]net.Listener{l}, o)
	t.Cleanup(func() { _ = s.Close() })
	return s, l.Addr().(*net.TCPAddr).AddrPort()
}

func to(addrs ...netip.AddrPort) func() []session.Route {
	var out []session.Route
	for _, a := range addrs {
		out = append(out, session.Route{Remote: a})
	}
	return func() []session.Route { return out }
}

// mustDial gives a session that was dialled, within the time of a test.
func mustDial(t *testing.T, o session.DialOptions) *session.Session {
	t.Helper()
	s, err := session.Dial(limited(t), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestCallsBothWays(t *testing.T) {
	leaks(t)
	for _, tok := range [][]byte{nil, token} {
		p := sessiontest.Connect(t, sessiontest.Options{Token: tok, Dialled: echo, Served: echo})
		if p.Dialled.ID() != p.Served.ID() {
			t.Fatal("IDs differ")
		}
		if name, epoch := p.Dialled.Peer(); name != "host" || epoch != 2 {
			t.Fatal(name, epoch)
		}
		if name, epoch := p.Served.Peer(); name != "client" || epoch != 1 {
			t.Fatal(name, epoch)
		}
		if p.Dialled.Remote() != p.Addr || p.Served.Local() != p.Addr || p.Served.Remote() != p.Dialled.Local() {
			t.Fatal(p.Dialled.Remote(), p.Served.Local(), p.Addr)
		}
		if p.Dialled.RoundTrip() <= 0 {
			t.Fatal("no round trip")
		}
		var wg sync.WaitGroup
		for i := range 200 {
			for k, s := range []*session.Session{p.Dialled, p.Served} {
				wg.Go(func() {
					body := bytes.Repeat([]byte(fmt.Sprint(i, k)), 1+i*i%5000)
					got, err := s.Call(limited(t), 1, body)
					if err != nil || !bytes.Equal(got, body) {
						t.Errorf("call %d: %v, %d bytes", i, err, len(got))
					}
				})
			}
		}
		wg.Wait()
		var remote *session.RemoteError
		if _, err := p.Served.Call(limited(t), 9, nil); !errors.As(err, &remote) || remote.Text != "method nine fails" {
			t.Fatal(err)
		}
	}
}

func TestLargeMessages(t *testing.T) {
	leaks(t)
	p := sessiontest.Connect(t, sessiontest.Options{Served: echo, Server: session.ServerOptions{Limits: session.Limits{MessageBytes: 1 << 20, CallsInFlight: 3}}})
	local := p.Dialled.Local()
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			body := bytes.Repeat([]byte{7}, 1<<20)
			got, err := p.Dialled.Call(limited(t), 1, body)
			if err != nil || !bytes.Equal(got, body) {
				t.Error(err, len(got))
			}
		})
	}
	wg.Wait()
	if p.Dialled.Local() != local {
		t.Error("the peer was sent more than it takes: it closed the connection")
	}
	if _, err := p.Dialled.Call(t.Context(), 1, make([]byte, 1<<20+1)); !errors.Is(err, session.ErrTooLarge) {
		t.Fatal(err)
	}
}

func TestEndedOnce(t *testing.T) {
	leaks(t)
	for _, who := range []string{"dialled", "server"} {
		var served, dialled ends
		srv, addr := serve(t, session.ServerOptions{Identity: session.Identity{Name: "h", Epoch: 5, Credentials: trust.Secret(token)}, Ended: served.add}, "127.0.0.1:0")
		s := mustDial(t, session.DialOptions{Identity: session.Identity{Credentials: trust.Secret(token)}, Routes: to(addr), Ended: dialled.add})
		if who == "server" {
			_ = srv.Close()
		}
		if who == "dialled" {
			_ = s.Close()
		}
		d, sv := dialled.wait(t, 1)[0], served.wait(t, 1)[0]
		if who == "dialled" && (d != nil || !errors.Is(sv, session.ErrEnded)) || who == "server" && (sv != nil || !errors.Is(d, session.ErrEnded)) {
			t.Fatal(who, d, sv)
		}
		if _, err := s.Call(t.Context(), 1, nil); !errors.Is(err, session.ErrEnded) {
			t.Fatal(err)
		}
		_ = s.Close()
		_ = srv.Close()
		time.Sleep(10 * time.Millisecond)
		if len(dialled.wait(t, 1)) != 1 || len(served.wait(t, 1)) != 1 {
			t.Fatal("ended more than once")
		}
	}
}

func TestData(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		t.Run(fmt.Sprintf("sealed=%t", sealed), func(t *testing.T) { testData(t, sealed) })
	}
}

func testData(t *testing.T, sealed bool) {
	leaks(t)
	key := transport.DataKey{1}
	type arrived struct {
		s    transport.SessionID
		c    transport.ConnID
		name string
		conn net.Conn
	}
	got := make(chan arrived, 8)
	p := sessiontest.Connect(t, sessiontest.Options{Token: token, Server: session.ServerOptions{
		Limits: session.Limits{DataConnsPerSession: 2},
		DataKey: func(_ transport.SessionID, c transport.ConnID) (transport.DataKey, bool) {
			return key, c != 12
		},
		Data: func(s transport.SessionID, c transport.ConnID, name string, conn net.Conn) error {
			if c == 13 {
				return errors.New("not expected")
			}
			got <- arrived{s, c, name, conn}
			return nil
		},
	}})
	var controlled atomic.Int32
	dialWith := func(s transport.SessionID, c transport.ConnID, k transport.DataKey) (net.Conn, error) {
		return session.DialData(limited(t), session.DataDial{
			Session: s, Conn: c, Key: k, Sealed: sealed, Route: session.Route{Remote: p.Addr, Local: netip.MustParseAddr("127.0.0.2")},
			Control: func(uintptr) error { controlled.Add(1); return nil },
		})
	}
	dial := func(s transport.SessionID, c transport.ConnID) (net.Conn, error) { return dialWith(s, c, key) }
	var held []net.Conn
	for n := range transport.ConnID(2) {
		c, err := dial(p.Dialled.ID(), n+1)
		if err != nil {
			t.Fatal(err)
		}
		// What is written at once must not be lost in the handshake's reads.
		_, _ = c.Write([]byte("first"))
		a := <-got
		if a.s != p.Dialled.ID() || a.c != n+1 || a.name != "client" {
			t.Fatalf("%+v", a)
		}
		b := make([]byte, 5)
		if _, err := a.conn.Read(b); err != nil || string(b) != "first" {
			t.Fatal(err, string(b))
		}
		if host := c.LocalAddr().(*net.TCPAddr).IP.String(); host != "127.0.0.2" {
			t.Fatal("not bound:", host)
		}
		held = append(held, a.conn)
		defer c.Close()
	}
	// A peer that knows the session and the connection, and not the key, is not let in.
	if _, err := dialWith(p.Dialled.ID(), 3, transport.DataKey{2}); !errors.Is(err, session.ErrDataKey) {
		t.Fatal(err)
	}
	if _, err := dial(p.Dialled.ID(), 12); !errors.Is(err, session.ErrEnded) {
		t.Fatal("one that is not expected:", err)
	}
	if _, err := dial(p.Dialled.ID(), 3); !errors.Is(err, session.ErrLimit) {
		t.Fatal(err)
	}
	_ = held[0].Close()
	c, err := dial(p.Dialled.ID(), 4)
	if err != nil {
		t.Fatal("after one was closed:", err)
	}
	_ = c.Close()
	_ = (<-got).conn.Close()
	if _, err := dial(transport.SessionID{1}, 1); !errors.Is(err, session.ErrEnded) {
		t.Fatal(err)
	}
	_ = held[1].Close()
	c, err = dial(p.Dialled.ID(), 13)
	if err == nil {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Fatal("a refused data connection lives")
		}
		_ = c.Close()
	}
	if controlled.Load() < 3 {
		t.Fatal("Control was not called")
	}
}
