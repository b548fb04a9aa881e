package session

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/trust"
)

// located is a connection whose other end is at an address.
type located struct {
	net.Conn
	at string
}

func (l located) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(l.at), Port: 7} }

// dialFrom is dial by a client at an address.
func (p *pipes) dialFrom(at string) net.Conn {
	a, b := net.Pipe()
	p.conns <- located{b, at}
	_ = a.SetDeadline(time.Now().Add(30 * time.Second))
	return a
}

// attacker begins a session whose end is in the test's hands, and reads what it is told.
func attacker(t *testing.T, ln *pipes, at string, id int) (net.Conn, error) {
	t.Helper()
	c := ln.dialFrom(at)
	t.Cleanup(func() { _ = c.Close() })
	h := controlHello(Identity{Name: "x"}, Limits{}.withDefaults(), transport.SessionID{byte(id), byte(id >> 8), 7}, nil)
	if _, err := dialHandshake(c, h, tokenSecret(nil), sessionKey{}); err != nil {
		return nil, err
	}
	if _, err := c.Write(encode(message{kind: msgSync, number: 1})); err != nil {
		return nil, err
	}
	go func() {
		for {
			if _, err := readMessage(c, bounds{body: 8 << 20, calls: 1 << 10}); err != nil {
				return
			}
		}
	}()
	return c, nil
}

// partial sends a call of that size but for its last byte.
func partial(c net.Conn, number uint64, body int) error {
	b := encode(message{kind: msgCall, number: number, body: make([]byte, body)})
	_, err := c.Write(b[:len(b)-1])
	return err
}

// honest opens a session from an address.
func honest(t *testing.T, ln *pipes, at string, id int) *Session {
	t.Helper()
	c := ln.dialFrom(at)
	_ = c.SetDeadline(time.Time{})
	h := controlHello(Identity{Name: "x"}, Limits{}.withDefaults(), transport.SessionID{byte(id), byte(id >> 8), 9}, nil)
	got, err := dialHandshake(c, h, tokenSecret(nil), sessionKey{})
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(h.session, got.peer, got.welcome, Limits{}.withDefaults(), nil, got.key)
	if !s.attach(c, 1, nil) {
		t.Fatal("not attached")
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for until := time.Now().Add(30 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("never: " + what)
		}
	}
}

// Sessions that each send most of a long call take memory only within the budget, and leave
// some for other peers; what does not arrive in time is given back.
func TestPartialCalls(t *testing.T) {
	const limit = 16 << 20
	memory := transport.NewShares("memory", limit)
	ln := newPipes()
	s := Serve([]net.Listener{ln}, ServerOptions{
		Limits: Limits{MessageTime: time.Second}, Budget: Budget{Memory: memory},
		Handle: func(_ context.Context, _ *Session, _ uint16, b []byte) ([]byte, error) { return b, nil },
	})
	t.Cleanup(func() { _ = s.Close() })
	var conns []net.Conn
	for i := range 47 {
		c, err := attacker(t, ln, "10.0.0.66", i)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	var sending sync.WaitGroup
	for _, c := range conns {
		sending.Go(func() { _ = partial(c, 1, 1<<20) })
	}
	waitFor(t, "one is refused", func() bool { return s.Counts().RefusedCalls[RefusedMemory] > 0 })
	if taken, _ := memory.Taken(); taken > limit/2+2<<20 {
		t.Errorf("one peer has taken %d of %d bytes", taken, limit)
	}
	good := honest(t, ln, "10.0.0.1", 1)
	body := bytes.Repeat([]byte("x"), 256<<10)
	if got, err := good.Call(t.Context(), 1, body); err != nil || !bytes.Equal(got, body) {
		t.Errorf("a good peer's call beside them: %v", err)
	}
	sending.Wait()
	for _, c := range conns {
		_ = c.Close()
	}
	waitFor(t, "what they had is given back", func() bool {
		return memory.By()["10.0.0.66"] <= 47*sessionBytes
	})
}

// A message that has begun has to end, in a time that grows with its length. A peer that is
// silent between messages is left alone.
func TestSlowMessage(t *testing.T) {
	memory := transport.NewShares("memory", 32<<20)
	ln := newPipes()
	s := Serve([]net.Listener{ln}, ServerOptions{
		Limits: Limits{MessageTime: 20 * time.Millisecond}, Budget: Budget{Memory: memory},
		Handle: func(_ context.Context, _ *Session, _ uint16, b []byte) ([]byte, error) { return b, nil },
	})
	t.Cleanup(func() { _ = s.Close() })
	quiet := honest(t, ln, "10.0.0.1", 1)
	for i, say := range [][]byte{{0}, {0, 0, 0}, encode(message{kind: msgPing})[:6], encode(message{kind: msgCall, number: 1, body: make([]byte, 5000)})[:4000]} {
		c, err := attacker(t, ln, "10.0.0.66", i)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(say); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the connection is closed", func() bool { return s.Counts().RefusedCalls[RefusedSlow] == int64(i+1) })
	}
	if got, err := quiet.Call(t.Context(), 1, []byte("x")); err != nil || string(got) != "x" {
		t.Errorf("the peer that was silent: %v", err)
	}
	waitFor(t, "only the sessions have memory", func() bool {
		taken, _ := memory.Taken()
		return taken <= 5*sessionBytes+callBytes+1
	})
}

// More demand than there is memory makes progress: each call runs once, and the memory that is
// taken is never more than there is.
func TestMoreDemandThanMemory(t *testing.T) {
	const limit, peers, calls, size = 2 << 20, 12, 4, 256 << 10
	memory := transport.NewShares("memory", limit)
	ln := newPipes()
	var ran, most atomic.Int64
	s := Serve([]net.Listener{ln}, ServerOptions{
		Budget: Budget{Memory: memory, AnswerBytes: func(uint16) int { return size }},
		Handle: func(_ context.Context, _ *Session, _ uint16, b []byte) ([]byte, error) {
			ran.Add(1)
			taken, _ := memory.Taken()
			most.Store(max(most.Load(), taken))
			return b, nil
		},
	})
	t.Cleanup(func() { _ = s.Close() })
	var sessions []*Session
	for p := range peers {
		sessions = append(sessions, honest(t, ln, "10.0.0."+string(rune('1'+p%9)), p))
	}
	var all sync.WaitGroup
	for _, v := range sessions {
		for range calls {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				if got, err := v.Call(ctx, 1, make([]byte, size)); err != nil || len(got) != size {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			})
		}
	}
	all.Wait()
	if ran.Load() != peers*calls || most.Load() > limit {
		t.Errorf("%d calls ran of %d, %d bytes were taken of %d", ran.Load(), peers*calls, most.Load(), limit)
	}
	if s.Counts().RefusedCalls[RefusedMemory] == 0 {
		t.Error("there was room for all: nothing was tested")
	}
}

// A call for which there is never room ends with its context, and a typed error.
func TestNoRoomForACall(t *testing.T) {
	ln := newPipes()
	var refused atomic.Int64
	s := Serve([]net.Listener{ln}, ServerOptions{
		Budget: Budget{Memory: transport.NewShares("memory", 256<<10)},
		Handle: func(_ context.Context, _ *Session, method uint16, b []byte) ([]byte, error) {
			if method == 2 {
				refused.Add(1)
				return nil, ErrBusy
			}
			return b, nil
		},
	})
	t.Cleanup(func() { _ = s.Close() })
	v := honest(t, ln, "10.0.0.1", 1)
	for _, c := range []struct {
		method  uint16
		bytes   int
		refused func() int64
	}{
		{1, 256 << 10, func() int64 { return s.Counts().RefusedCalls[RefusedMemory] }},
		{2, 1, refused.Load},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer cancel()
			for c.refused() < 2 && t.Context().Err() == nil { // it was called again
				time.Sleep(time.Millisecond)
			}
		}()
		if _, err := v.Call(ctx, c.method, make([]byte, c.bytes)); !errors.Is(err, ErrBusy) || !errors.Is(err, context.Canceled) {
			t.Errorf("method %d: %v", c.method, err)
		}
	}
	if got, err := v.Call(t.Context(), 1, []byte("x")); err != nil || string(got) != "x" {
		t.Errorf("a small one: %v", err)
	}
}

// Answers that a peer does not acknowledge stay within its part of the budget.
func TestAnswersAreKeptWithinTheBudget(t *testing.T) {
	const limit = 8 << 20
	memory := transport.NewShares("memory", limit)
	ln := newPipes()
	s := Serve([]net.Listener{ln}, ServerOptions{
		Budget: Budget{Memory: memory, AnswerBytes: func(uint16) int { return 1 << 20 }},
		Handle: func(context.Context, *Session, uint16, []byte) ([]byte, error) { return make([]byte, 1<<20), nil },
	})
	t.Cleanup(func() { _ = s.Close() })
	var conns []net.Conn
	for i := range 4 { // that acknowledge nothing
		c, err := attacker(t, ln, "10.0.0.66", i)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	for _, c := range conns {
		for n := range uint64(4) {
			if _, err := c.Write(encode(message{kind: msgCall, number: n + 1})); err != nil {
				t.Fatal(err)
			}
		}
	}
	waitFor(t, "calls are refused", func() bool { return s.Counts().RefusedCalls[RefusedMemory] >= 4*4-8 })
	if taken, _ := memory.Taken(); taken > limit/2+2<<20 {
		t.Errorf("one peer has %d of %d bytes", taken, limit)
	}
	if got, err := honest(t, ln, "10.0.0.1", 1).Call(t.Context(), 1, nil); err != nil || len(got) != 1<<20 {
		t.Errorf("a good peer: %d bytes, %v", len(got), err)
	}
}

// One peer cannot have all sessions, however fast it opens them.
func TestSessionsAreShared(t *testing.T) {
	ln := newPipes()
	s := Serve([]net.Listener{ln}, ServerOptions{Limits: Limits{Sessions: 8}})
	t.Cleanup(func() { _ = s.Close() })
	got := 0
	for i := range 10 {
		_, err := attacker(t, ln, "10.0.0.66", i)
		if err == nil {
			got++
		} else if !errors.Is(err, ErrLimit) {
			t.Error(err)
		}
	}
	if got != 4 {
		t.Errorf("one peer has %d of 8 sessions", got)
	}
	if _, err := attacker(t, ln, "10.0.0.1", 100); err != nil {
		t.Errorf("another peer: %v", err)
	}
	waitFor(t, "they are counted", func() bool { return s.Counts().Refused[RefusedLimit] == 6 })
}

// Connections in their handshake from one address make room for those from others at once.
func TestManySilentConnectionsOfOneAddress(t *testing.T) {
	ln := newPipes()
	s := Serve([]net.Listener{ln}, ServerOptions{Limits: Limits{UnauthenticatedConns: 8, AuthTime: time.Hour}})
	t.Cleanup(func() { _ = s.Close() })
	for range 30 {
		c := ln.dialFrom("10.0.0.66")
		defer c.Close()
		go func() { _, _ = c.Read(make([]byte, 100)) }()
	}
	for i := range 4 {
		if _, err := attacker(t, ln, "10.0.0.1", i); err != nil {
			t.Errorf("another peer: %v", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending.by) > 8 {
		t.Errorf("%d in their handshake", len(s.pending.by))
	}
}

// full is a listener of a process that has no descriptors left.
type full struct {
	*pipes
	files atomic.Int32 // that are left
}

func (f *full) Accept() (net.Conn, error) {
	if f.files.Add(-1) < 0 {
		f.files.Add(1)
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return f.pipes.Accept()
}

// Where descriptors run out, a connection in its handshake gives its own up, and the
// log says so once.
func TestNoDescriptorsLeft(t *testing.T) { synctest.Test(t, testNoDescriptorsLeft) }

func testNoDescriptorsLeft(t *testing.T) {
	ln := &full{pipes: newPipes()}
	ln.files.Store(3)
	var log bytes.Buffer
	s := Serve([]net.Listener{ln}, ServerOptions{Limits: Limits{AuthTime: time.Hour}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	first, second, third := ln.dialFrom("10.0.0.1"), ln.dialFrom("10.0.0.1"), ln.dialFrom("10.0.0.1")
	defer second.Close()
	defer third.Close()
	gone(t, first)
	gone(t, second)
	gone(t, third)
	ln.files.Store(1 << 20)
	if _, err := attacker(t, ln.pipes, "10.0.0.1", 1); err != nil {
		t.Error(err)
	}
	_ = s.Close()
	n := s.Counts()
	if n.Refused[RefusedSockets] < 3 || n.Refused[RefusedBusy] != 3 {
		t.Errorf("%+v", n)
	}
	if lines := bytes.Count(log.Bytes(), []byte("too many files are open")); lines != 1 {
		t.Errorf("%d lines:\n%s", lines, log.String())
	}
}

// What peers are counted by is what they have proven, or where they are: never what they say.
func TestAccount(t *testing.T) {
	c := located{at: "10.0.0.7"}
	for _, x := range []struct {
		id   trust.PeerID
		want transport.Account
	}{
		{trust.PeerID{Claimed: "x"}, "10.0.0.7"},
		{trust.PeerID{Token: "blue", Claimed: "10.0.0.8"}, "token blue from 10.0.0.7"},
		{trust.PeerID{Certificate: []string{"spiffe://a/b", "c"}, Token: "blue"}, "certificate spiffe://a/b"},
	} {
		if got := accountOf(x.id, c); got != x.want {
			t.Errorf("%+v: %q, want %q", x.id, got, x.want)
		}
	}
}
