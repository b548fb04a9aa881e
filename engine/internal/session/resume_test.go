package session_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/session"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/testkit/childtest"
)

// once counts how often each call ran. A body is its number and filling.
type once struct {
	mu   sync.Mutex
	runs map[uint64]int
}

func (o *once) handle(_ context.Context, _ *session.Session, _ uint16, body []byte) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.runs == nil {
		o.runs = map[uint64]int{}
	}
	o.runs[binary.BigEndian.Uint64(body)]++
	return body, nil
}

func (o *once) check(t *testing.T, calls int) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.runs) != calls {
		t.Errorf("%d calls ran, want %d", len(o.runs), calls)
	}
	for n, runs := range o.runs {
		if runs != 1 {
			t.Errorf("call %d ran %d times", n, runs)
		}
	}
}

func numbered(n, size int) []byte {
	b := bytes.Repeat([]byte{byte(n)}, 8+size)
	binary.BigEndian.PutUint64(b, uint64(n))
	return b
}

// TestEachCallRunsOnce cuts every connection after a few thousand bytes, in the
// middle of messages, while both sides call.
func TestEachCallRunsOnce(t *testing.T) {
	leaks(t)
	var atHost, atClient once
	var served atomic.Pointer[session.Session]
	var hostEnds, clientEnds ends
	id := session.Identity{Name: "h", Epoch: 5, Credentials: trust.Secret(token)}
	_, addr := serve(t, session.ServerOptions{Identity: id, Ended: hostEnds.add,
		Handle: func(ctx context.Context, s *session.Session, m uint16, body []byte) ([]byte, error) {
			served.Store(s)
			return atHost.handle(ctx, s, m, body)
		}}, "127.0.0.1:0")
	p, q := newProxy(t, addr), newProxy(t, addr)
	s := mustDial(t, session.DialOptions{
		Identity: session.Identity{Name: "c", Epoch: 4, Credentials: trust.Secret(token)}, Routes: to(p.addr, q.addr),
		Handle: atClient.handle, Ended: clientEnds.add, Silence: 2 * time.Second, GiveUp: time.Minute,
	})
	if _, err := s.Call(limited(t), 1, numbered(0, 0)); err != nil {
		t.Fatal(err)
	}
	p.budget(60_000)
	q.budget(50_000)
	p.Cut()
	q.Cut()
	const workers, each = 8, 40
	var wg sync.WaitGroup
	var cutting atomic.Bool
	cutting.Store(true)
	wg.Go(func() {
		for cutting.Load() {
			time.Sleep(20 * time.Millisecond)
			p.Cut()
			q.Cut()
		}
	})
	var callers sync.WaitGroup
	for w := range workers {
		callers.Go(func() {
			for i := range each {
				n := 1 + w*each + i
				for k, from := range []*session.Session{s, served.Load()} {
					body := numbered(n, n*37%3000)
					got, err := from.Call(limited(t), 1, body)
					if err != nil || !bytes.Equal(got, body) {
						t.Errorf("call %d from side %d: %v", n, k, err)
						return
					}
				}
			}
		})
	}
	callers.Wait()
	cutting.Store(false)
	wg.Wait()
	atHost.check(t, 1+workers*each)
	atClient.check(t, workers*each)
	t.Logf("%d connections", p.Accepted()+q.Accepted())
	if p.Accepted()+q.Accepted() < 5 {
		t.Error("almost nothing was cut")
	}
	p.budget(0)
	q.budget(0)
	if _, err := s.Call(limited(t), 1, numbered(1<<20, 0)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := clientEnds.wait(t, 1); len(got) != 1 || got[0] != nil {
		t.Fatal(got)
	}
	if got := hostEnds.wait(t, 1); len(got) != 1 || !errors.Is(got[0], session.ErrEnded) {
		t.Fatal(got)
	}
}

// TestSilentConnectionMoves: a connection that swallows everything is left while
// the call is answered over another route.
func TestSilentConnectionMoves(t *testing.T) {
	for name, secret := range map[string][]byte{"plain": nil, "TLS": token} {
		t.Run(name, func(t *testing.T) { testSilentConnectionMoves(t, secret) })
	}
}

func testSilentConnectionMoves(t *testing.T, secret []byte) {
	leaks(t)
	var ran once
	id := session.Identity{Name: "h", Epoch: 5, Credentials: trust.Secret(secret)}
	_, addr := serve(t, session.ServerOptions{Identity: id, Handle: ran.handle}, "127.0.0.1:0")
	p := newProxy(t, addr)
	routes := []session.Route{{Remote: p.addr}}
	var mu sync.Mutex
	s, err := session.Dial(limited(t), session.DialOptions{Identity: id, Routes: func() []session.Route {
		mu.Lock()
		defer mu.Unlock()
		return routes
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	mu.Lock()
	routes = append(routes, session.Route{Remote: addr})
	mu.Unlock()
	if _, err := s.Call(limited(t), 1, numbered(1, 0)); err != nil {
		t.Fatal(err)
	}
	p.swallow(true)
	begin := time.Now()
	if _, err := s.Call(limited(t), 1, numbered(2, 0)); err != nil {
		t.Fatal(err)
	}
	t.Logf("moved and answered after %v", time.Since(begin))
	if s.Remote() != addr {
		t.Fatal("still at", s.Remote())
	}
	ran.check(t, 2)
}

// TestIdleSilenceIsFound: a session without calls leaves a silent connection too.
func TestIdleSilenceIsFound(t *testing.T) {
	leaks(t)
	_, addr := serve(t, session.ServerOptions{Identity: session.Identity{Name: "h", Epoch: 5}, Handle: echo}, "127.0.0.1:0")
	p := newProxy(t, addr)
	asked := false
	s, err := session.Dial(limited(t), session.DialOptions{Silence: 10 * time.Millisecond, Routes: func() []session.Route {
		if asked {
			return to(addr)()
		}
		asked = true
		return to(p.addr)()
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p.swallow(true)
	until := time.Now().Add(30 * time.Second)
	for s.Remote() != addr {
		if time.Now().After(until) {
			t.Fatal("did not move")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestSlowHandlerKeepsItsConnection: silence is the connection's, not the call's.
func TestSlowHandlerKeepsItsConnection(t *testing.T) {
	leaks(t)
	_, addr := serve(t, session.ServerOptions{Handle: func(ctx context.Context, _ *session.Session, _ uint16, b []byte) ([]byte, error) {
		select {
		case <-ctx.Done():
		case <-time.After(600 * time.Millisecond):
		}
		return b, nil
	}}, "127.0.0.1:0")
	p := newProxy(t, addr)
	s := mustDial(t, session.DialOptions{Routes: to(p.addr), Silence: 200 * time.Millisecond})
	defer s.Close()
	if _, err := s.Call(limited(t), 1, nil); err != nil {
		t.Fatal(err)
	}
	if n := p.Accepted(); n != 1 {
		t.Logf("%d connections: this machine was very busy", n)
	}
}

func TestRestartedPeer(t *testing.T) {
	leaks(t)
	srv, addr := serve(t, session.ServerOptions{Identity: session.Identity{Name: "h", Epoch: 5, Credentials: trust.Secret(token)}, Handle: echo}, childtest.Address(t))
	p := newProxy(t, addr)
	var got ends
	s := mustDial(t, session.DialOptions{Identity: session.Identity{Credentials: trust.Secret(token)}, Routes: to(p.addr), Ended: got.add})
	// It dies without a word, and comes back at the same address with another name.
	p.swallow(true)
	_ = srv.Close()
	_, again := serve(t, session.ServerOptions{Identity: session.Identity{Name: "h2", Epoch: 6, Credentials: trust.Secret(token)}, Handle: echo}, addr.String())
	if again != addr {
		t.Fatal(again)
	}
	p.Cut()
	p.swallow(false)
	if _, err := s.Call(limited(t), 1, nil); !errors.Is(err, session.ErrRestarted) {
		t.Fatal(err)
	}
	if err := got.wait(t, 1)[0]; !errors.Is(err, session.ErrRestarted) {
		t.Fatal(err)
	}
	_ = s.Close()
}

// TestAnotherEngineIsNotARestart: a route that leads to somebody else says nothing
// about the peer.
func TestAnotherEngineIsNotARestart(t *testing.T) {
	leaks(t)
	_, addr := serve(t, session.ServerOptions{Identity: session.Identity{Name: "h", Epoch: 5}, Handle: echo}, "127.0.0.1:0")
	_, other := serve(t, session.ServerOptions{Identity: session.Identity{Name: "other", Epoch: 6}, Handle: echo}, "127.0.0.1:0")
	p := newProxy(t, addr)
	var mu sync.Mutex
	routes := to(p.addr)
	s, err := session.Dial(limited(t), session.DialOptions{Silence: time.Second, GiveUp: time.Minute, Routes: func() []session.Route {
		mu.Lock()
		defer mu.Unlock()
		return routes()
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	mu.Lock()
	routes = to(other)
	mu.Unlock()
	p.budget(1) // no one is reached at the old address for a while
	p.Cut()
	time.Sleep(100 * time.Millisecond)
	mu.Lock()
	routes = to(other, addr)
	mu.Unlock()
	if _, err := s.Call(limited(t), 1, nil); err != nil {
		t.Fatal(err)
	}
	if name, _ := s.Peer(); s.Remote() != addr || name != "h" {
		t.Fatal(s.Remote(), name)
	}
}

func TestUnreachable(t *testing.T) {
	leaks(t)
	var client, host ends
	_, addr := serve(t, session.ServerOptions{Ended: host.add, Handle: echo, Limits: session.Limits{Orphaned: 300 * time.Millisecond}}, "127.0.0.1:0")
	p := newProxy(t, addr)
	s := mustDial(t, session.DialOptions{Routes: to(p.addr), GiveUp: time.Second, Ended: client.add})
	if _, err := s.Call(limited(t), 1, nil); err != nil { // the host has it, too
		t.Fatal(err)
	}
	_ = p.Close()
	if _, err := s.Call(limited(t), 1, nil); !errors.Is(err, session.ErrUnreachable) {
		t.Fatal(err)
	}
	if err := client.wait(t, 1)[0]; !errors.Is(err, session.ErrUnreachable) {
		t.Fatal(err)
	}
	if err := host.wait(t, 1)[0]; !errors.Is(err, session.ErrUnreachable) {
		t.Fatal(err)
	}
	_ = s.Close()
}

// TestForgottenSession: the peer lives and has given the session up.
func TestForgottenSession(t *testing.T) {
	leaks(t)
	var client, host ends
	_, addr := serve(t, session.ServerOptions{Identity: session.Identity{Epoch: 7}, Ended: host.add, Handle: echo, Limits: session.Limits{Orphaned: 200 * time.Millisecond}}, "127.0.0.1:0")
	p := newProxy(t, addr)
	var open atomic.Bool
	open.Store(true)
	s, err := session.Dial(limited(t), session.DialOptions{GiveUp: time.Minute, Ended: client.add, Routes: func() []session.Route {
		if open.Load() {
			return to(p.addr)()
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Call(limited(t), 1, nil); err != nil { // the host has it, too
		t.Fatal(err)
	}
	p.swallow(true)
	host.wait(t, 1)
	p.Cut()
	p.swallow(false)
	if err := client.wait(t, 1)[0]; !errors.Is(err, session.ErrEnded) {
		t.Fatal(err)
	}
	_ = s.Close()
}

// TestRefusedPeerIsGone: where nothing listens any more at the peer's address, the session is over
// as soon as no other address has the peer, however long it may be unreachable.
func TestRefusedPeerIsGone(t *testing.T) {
	leaks(t)
	arrived := make(chan struct{})
	_, addr := serve(t, session.ServerOptions{Handle: func(ctx context.Context, _ *session.Session, method uint16, _ []byte) ([]byte, error) {
		if method == 2 {
			close(arrived)
			<-ctx.Done()
		}
		return nil, nil
	}}, "127.0.0.1:0")
	p, q := newProxy(t, addr), newProxy(t, addr)
	var client ends
	s := mustDial(t, session.DialOptions{Routes: to(p.addr, q.addr), GiveUp: time.Hour, Ended: client.add})
	first, last := p, q
	if s.Remote() == q.addr {
		first, last = q, p
	}
	_ = first.Close()
	if _, err := s.Call(limited(t), 1, nil); err != nil || s.Remote() != last.addr {
		t.Fatalf("one of two addresses refuses: %v", err)
	}
	if err := s.Ready(limited(t)); err != nil {
		t.Error(err)
	}
	waiting := make(chan error)
	go func() {
		_, err := s.Call(limited(t), 2, nil)
		waiting <- err
	}()
	<-arrived
	_ = last.Close()
	want := "peer is unreachable: " + last.addr.String() + ": connection refused" // each thing once
	gone := func(err error) bool {
		return errors.Is(err, session.ErrUnreachable) && errors.Is(err, syscall.ECONNREFUSED)
	}
	for what, err := range map[string]error{"the call": <-waiting, "the end": client.wait(t, 1)[0], "ready": s.Ready(limited(t))} {
		if !gone(err) || err.Error() != want {
			t.Errorf("%s: %v", what, err)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Ready(over); !gone(err) && !errors.Is(err, context.Canceled) {
		t.Errorf("ready: %v", err)
	}
	if _, err := session.Dial(limited(t), session.DialOptions{Routes: to(p.addr, q.addr)}); !gone(err) {
		t.Errorf("dialled again: %v", err)
	}
	_ = s.Close()
}

// TestContextEndsTheWaitingOnly: a call that nobody waits for still runs.
func TestContextEndsTheWaitingOnly(t *testing.T) {
	leaks(t)
	running, release, ran := make(chan struct{}), make(chan struct{}), make(chan struct{})
	_, addr := serve(t, session.ServerOptions{Handle: func(ctx context.Context, _ *session.Session, method uint16, _ []byte) ([]byte, error) {
		if method == 2 {
			return nil, nil
		}
		close(running)
		select {
		case <-release:
			close(ran)
		case <-ctx.Done():
		}
		return nil, nil
	}}, "127.0.0.1:0")
	s := mustDial(t, session.DialOptions{Routes: to(addr)})
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-running
		cancel()
	}()
	if _, err := s.Call(ctx, 1, nil); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := s.Call(limited(t), 2, nil); err != nil { // the peer has seen by then what there is to see
		t.Fatal(err)
	}
	close(release)
	select {
	case <-ran:
	case <-time.After(30 * time.Second):
		t.Fatal("did not run")
	}
}

func TestNoPeer(t *testing.T) {
	addr := netip.MustParseAddrPort(childtest.Address(t))
	if _, err := session.Dial(limited(t), session.DialOptions{Routes: to(addr, netip.MustParseAddrPort("127.0.0.1:1"))}); !errors.Is(err, session.ErrUnreachable) {
		t.Fatal(err)
	}
	if _, err := session.Dial(limited(t), session.DialOptions{Routes: to()}); !errors.Is(err, session.ErrUnreachable) {
		t.Fatal(err)
	}
}
