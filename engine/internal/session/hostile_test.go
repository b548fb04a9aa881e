package session

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topoctl/topoctl/engine/internal/peertls"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/trust"
)

var (
	secret   = []byte("0123456789abcdef")
	held     = &trust.Token{Secret: secret}
	endpoint = peertls.NewEndpoint(nil)
)

// begun is the client's end of a TLS connection, up to the hello.
func begun(t testing.TB, c net.Conn) net.Conn {
	t.Helper()
	s, err := secureDialled(t.Context(), c, endpoint, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pipes is a listener whose connections are pipes in this process.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }
func (p *pipes) dial() net.Conn {
	a, b := net.Pipe()
	p.conns <- b
	return a
}

// target is a server that must not be reached by whoever has no token.
func target(t testing.TB, l Limits) (*Server, *net.TCPAddr, *atomic.Int32) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	reached := new(atomic.Int32)
	s := Serve([]net.Listener{ln}, ServerOptions{
		Identity: Identity{Name: "the host", Epoch: 0x5ec2e7, Credentials: trust.Secret(secret)}, Limits: l,
		Handle: func(_ context.Context, _ *Session, _ uint16, b []byte) ([]byte, error) {
			reached.Add(1)
			return b, nil
		},
		Data: func(_ transport.SessionID, _ transport.ConnID, _ string, c net.Conn) error {
			reached.Add(1)
			return c.Close()
		},
	})
	t.Cleanup(func() { _ = s.Close() })
	return s, ln.Addr().(*net.TCPAddr), reached
}

func knock(t testing.TB, addr net.Addr) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// gone waits until the server has closed a connection, and gives what it said.
func gone(t testing.TB, c net.Conn) []byte {
	t.Helper()
	b, err := io.ReadAll(c)
	if errors.Is(err, errDeadline) {
		t.Fatal("the server holds the connection")
	}
	return b
}

var errDeadline = os.ErrDeadlineExceeded

func works(t testing.TB, addr *net.TCPAddr) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := Dial(ctx, DialOptions{
		Identity: Identity{Credentials: trust.Secret(secret)}, Silence: 5 * time.Second,
		Routes: func() []Route { return []Route{{Remote: addr.AddrPort()}} },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, err := s.Call(ctx, 1, []byte("x")); err != nil || string(got) != "x" {
		t.Fatal(err)
	}
}

// TestSlowAndGarbage: clients that say nothing, too little, nonsense or too much
// are dropped, and nobody else notices.
func TestSlowAndGarbage(t *testing.T) {
	// On a machine that stands still, those who talk count as slow: then with more time.
	for _, authTime := range []time.Duration{400 * time.Millisecond, 4 * time.Second, 20 * time.Second} {
		wrong := slowAndGarbage(t, authTime)
		if wrong == "" {
			return
		}
		if t.Log(authTime, wrong); authTime == 20*time.Second {
			t.Fail()
		}
	}
}

// slowAndGarbage says what is wrong with what the server counts.
func slowAndGarbage(t *testing.T, authTime time.Duration) string {
	s, addr, reached := target(t, Limits{AuthTime: authTime})
	h := controlHello(Identity{Name: "x"}, Limits{}.withDefaults(), transport.SessionID{1}, held)
	h.min, h.max = minVersion, maxVersion
	good := h.encode()
	huge := bytes.Clone(good)
	binary.BigEndian.PutUint16(huge[helloHead-2:], 0xffff)
	tls := []byte{22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3} // a ClientHello to come
	var all []net.Conn
	for _, say := range [][]byte{nil, good[:3], good[:50], good, []byte("GET / HTTP/1.1\r\n\r\n"), huge, bytes.Repeat([]byte{0xff}, 100_000), append(bytes.Clone(good), make([]byte, 50_000)...), tls, append(bytes.Clone(tls), make([]byte, 0x200)...)} {
		c := knock(t, addr)
		all = append(all, c)
		_, _ = c.Write(say)
	}
	slow := knock(t, addr)
	all = append(all, slow)
	stop := make(chan struct{})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for _, b := range good {
			select {
			case <-stop:
				return
			case <-time.After(authTime / 20):
				if _, err := slow.Write([]byte{b}); err != nil {
					return
				}
			}
		}
	}()
	half := knock(t, addr)
	_ = half.(*net.TCPConn).CloseWrite()
	all = append(all, half)
	works(t, addr)
	for i, c := range all {
		if said := gone(t, c); bytes.Contains(said, []byte("the host")) || len(said) > 200 {
			t.Errorf("client %d was told %q", i, said)
		}
	}
	close(stop)
	<-finished
	if n := reached.Load(); n != 1 { // by works
		t.Errorf("handlers ran %d times", n)
	}
	works(t, addr)
	_ = s.Close() // counting comes after closing
	n := int64(0)
	for _, count := range s.Counts().Refused {
		n += count
	}
	if n != int64(len(all)) {
		return fmt.Sprintf("%d refused, want %d: %+v", n, len(all), s.Counts())
	}
	// The silent, those that stop, and the slow one; one that is half closed; garbage; a good
	// hello without TLS.
	for why, want := range map[Refusal]int64{RefusedSlow: 5, RefusedGone: 1, RefusedMalformed: 4, RefusedToken: 2} {
		if got := s.Counts().Refused[why]; got != want {
			return fmt.Sprintf("%s: %d, want %d", why, got, want)
		}
	}
	return ""
}

// TestManySlowClients: more silent connections than are allowed keep nobody out.
func TestManySlowClients(t *testing.T) {
	s, addr, _ := target(t, Limits{UnauthenticatedConns: 8, AuthTime: 2 * time.Second})
	for range 40 {
		knock(t, addr)
	}
	works(t, addr)
	s.mu.Lock()
	n := len(s.pending.by)
	s.mu.Unlock()
	if n > 8 {
		t.Errorf("%d in their handshake", n)
	}
}

// greeting is what a dialler sends in a good handshake, and the connection.
func greeting(t *testing.T, addr net.Addr, h hello) (net.Conn, []byte) {
	t.Helper()
	rec := &recorder{Conn: knock(t, addr)}
	c := begun(t, rec)
	if _, err := dialHandshake(c, h, tokenSecret(held), sessionKey{}); err != nil {
		t.Fatal(err)
	}
	first := message{kind: msgSync, number: 1}
	_, _ = c.Write(encode(first))
	return c, rec.sent
}

type recorder struct {
	net.Conn
	sent []byte
}

// binding is that of the connection which is recorded.
func (r *recorder) binding() exporter { return exporterOf(r.Conn) }

func (r *recorder) Write(b []byte) (int, error) {
	r.sent = append(r.sent, b...)
	return r.Conn.Write(b)
}

// TestReplay: what another client said does not let anybody in, neither as it was on the wire nor
// as it was inside of TLS.
func TestReplay(t *testing.T) {
	s, addr, reached := target(t, Limits{})
	h := controlHello(Identity{Name: "x", Epoch: 3}, Limits{}.withDefaults(), transport.SessionID{1}, held)
	wire := &recorder{Conn: knock(t, addr)}
	inside := &recorder{Conn: begun(t, wire)}
	if _, err := dialHandshake(inside, h, tokenSecret(held), sessionKey{}); err != nil {
		t.Fatal(err)
	}
	_, _ = inside.Write(encode(message{kind: msgSync, number: 1}))
	if _, err := readMessage(inside, bounds{calls: 1}); err != nil {
		t.Fatal(err)
	}
	_, _ = inside.Write(encode(message{kind: msgCall, number: 1, body: []byte("x")}))
	for _, again := range []struct {
		c    net.Conn
		sent []byte
	}{{knock(t, addr), wire.sent}, {begun(t, knock(t, addr)), inside.sent}} {
		_, _ = again.c.Write(again.sent)
		gone(t, again.c)
	}
	if _, err := readMessage(inside, bounds{body: 10, calls: 1}); err != nil {
		t.Error("the one that was replayed:", err)
	}
	_ = wire.Close()
	_ = s.Close()
	if n := s.Counts(); n.Refused[RefusedToken] != 1 || n.Refused[RefusedMalformed] != 1 || reached.Load() != 1 {
		t.Errorf("%+v, %d reached", n, reached.Load())
	}
}

// TestTakeover: a peer with the token that was not there when a session began
// cannot resume it, begin it again, or end it.
func TestTakeover(t *testing.T) {
	s, addr, _ := target(t, Limits{})
	id := transport.SessionID{1}
	h := controlHello(Identity{Name: "x", Epoch: 3}, Limits{}.withDefaults(), id, held)
	c, _ := greeting(t, addr, h)
	if _, err := readMessage(c, bounds{calls: 1}); err != nil {
		t.Fatal(err)
	}
	for _, resume := range []bool{true, false} {
		h.resume, h.peerEpoch = resume, 0x5ec2e7
		if _, err := dialHandshake(begun(t, knock(t, addr)), h, tokenSecret(held), sessionKey{1}); !errors.Is(err, ErrEnded) {
			t.Errorf("resume %v: %v", resume, err)
		}
	}
	h.resume, h.peerEpoch = true, 77
	if _, err := dialHandshake(begun(t, knock(t, addr)), h, tokenSecret(held), sessionKey{1}); !errors.Is(err, ErrRestarted) {
		t.Error(err)
	}
	// The session's own connection still works.
	ping := message{kind: msgPing, number: 5}
	_, _ = c.Write(encode(ping))
	if m, err := readMessage(c, bounds{}); err != nil || m.kind != msgPong || m.number != 5 {
		t.Error(m, err)
	}
	until := time.Now().Add(30 * time.Second) // counting comes after closing
	for n := s.Counts(); n.Sessions != 1 || n.Refused[RefusedEnded] != 3; n = s.Counts() {
		if time.Now().After(until) {
			t.Fatalf("%+v", n)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestLyingServer: who has not the token cannot play the host.
func TestLyingServer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			// It takes any proof, and echoes the dialler's as its own.
			if c, err = secureAccepted(c, nil, endpoint, nil); err != nil {
				return
			}
			b, _ := readPacket(c, helloHead)
			h, _ := parseHello(b)
			a := answer{min: minVersion, max: maxVersion, version: maxVersion, token: true, nonce: h.nonce}
			_, _ = c.Write(a.encode())
			b, _ = readPacket(c, 2)
			p, _ := parseProof(b, false)
			w := welcome{proof: p.client, messageBytes: 1, calls: 1}
			_, _ = c.Write(w.encode())
			_ = c.Close()
		}
	}()
	_, err = Dial(context.Background(), DialOptions{
		Identity: Identity{Credentials: trust.Secret(secret)},
		Routes:   func() []Route { return []Route{{Remote: ln.Addr().(*net.TCPAddr).AddrPort()}} },
	})
	if !errors.Is(err, ErrToken) {
		t.Fatal(err)
	}
}

// TestBadMessages: a peer with the token that breaks the rules of a session loses
// its connection, not the server.
func TestBadMessages(t *testing.T) {
	limits := Limits{MessageBytes: 100, CallsInFlight: 4}
	_, addr, _ := target(t, limits)
	sync := message{kind: msgSync, number: 9}
	calls := func(numbers ...uint64) (b []byte) {
		for _, n := range numbers {
			b = append(b, encode(message{kind: msgCall, number: n})...)
		}
		return b
	}
	large := encode(message{kind: msgCall, number: 1, body: make([]byte, 101)})
	for i, say := range [][]byte{
		encode(sync), large, calls(2, 1), calls(1, 1), calls(0),
		{0, 0, 0, 0, 1}, {0xff, 0xff, 0xff, 0xff, msgCall}, {0, 0, 0, 1, 77},
		encode(message{kind: msgAck, numbers: make([]uint64, 5)}),
	} {
		h := controlHello(Identity{Name: "x"}, Limits{}.withDefaults(), transport.SessionID{1, byte(i)}, held)
		c, _ := greeting(t, addr, h)
		_, _ = c.Write(say)
		gone(t, c)
	}
	works(t, addr)
}

// TestCallsInFlight: a peer that neither acknowledges nor waits gets no more than
// its share.
func TestCallsInFlight(t *testing.T) {
	ln := newPipes()
	hold := make(chan struct{})
	var running, most atomic.Int32
	s := Serve([]net.Listener{ln}, ServerOptions{
		Limits: Limits{CallsInFlight: 4},
		Handle: func(ctx context.Context, _ *Session, _ uint16, _ []byte) ([]byte, error) {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer running.Add(-1)
			<-hold
			return nil, nil
		},
	})
	defer func() { close(hold); _ = s.Close() }()
	// Each new connection pretends to know of no earlier call.
	var key sessionKey
	for i := range 5 {
		c := ln.dial()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		h := controlHello(Identity{Name: "x"}, Limits{}.withDefaults(), transport.SessionID{1}, nil)
		h.resume = i > 0
		e, err := dialHandshake(c, h, tokenSecret(nil), key)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			key = e.key
		}
		_, _ = c.Write(encode(message{kind: msgSync, number: uint64(i + 1)}))
		if _, err := readMessage(c, someBounds); err != nil {
			t.Fatal(err)
		}
		for n := range uint64(6) {
			_, _ = c.Write(encode(message{kind: msgCall, number: 10*uint64(i) + n + 1}))
		}
		_, err = io.ReadAll(c) // until it is dropped
		if errors.Is(err, errDeadline) {
			t.Fatal("still connected")
		}
		_ = c.Close()
	}
	if n := most.Load(); n > 4 {
		t.Errorf("%d calls at a time", n)
	}
}

// enter makes a session with a server by hand.
func enter(t *testing.T, ln *pipes, l Limits) net.Conn {
	t.Helper()
	c := ln.dial()
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := dialHandshake(c, controlHello(Identity{Name: "x"}, l.withDefaults(), transport.SessionID{1}, nil), tokenSecret(nil), sessionKey{}); err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write(encode(message{kind: msgSync, number: 1}))
	if m, err := readMessage(c, someBounds); err != nil || m.kind != msgSync {
		t.Fatal(m, err)
	}
	return c
}

// TestBytesInFlight: the bodies of unanswered calls are bounded together.
func TestBytesInFlight(t *testing.T) {
	ln := newPipes()
	var running atomic.Int32
	s := Serve([]net.Listener{ln}, ServerOptions{
		Limits: Limits{MessageBytes: 100, CallsInFlight: 16},
		Handle: func(ctx context.Context, _ *Session, _ uint16, _ []byte) ([]byte, error) {
			running.Add(1)
			<-ctx.Done()
			return nil, nil
		},
	})
	c := enter(t, ln, Limits{})
	for n := range uint64(bodiesInFlight + 1) {
		_, _ = c.Write(encode(message{kind: msgCall, number: n + 1, body: make([]byte, 100)}))
	}
	if _, err := io.ReadAll(c); errors.Is(err, errDeadline) {
		t.Error("still connected")
	}
	_ = s.Close()
	if n := running.Load(); n > bodiesInFlight {
		t.Errorf("%d calls ran", n)
	}
}

// TestKeptAnswers: who does not acknowledge answers gets no more of them, however much
// it says that it takes.
func TestKeptAnswers(t *testing.T) {
	for name, o := range map[string]struct{ ours, theirs Limits }{
		"by the peer's limit": {Limits{CallsInFlight: 16}, Limits{MessageBytes: 100}},
		"by our own":          {Limits{CallsInFlight: 16, MessageBytes: 100}, Limits{MessageBytes: 1 << 30}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testKeptAnswers(t, o.ours, o.theirs) })
		})
	}
}

func testKeptAnswers(t *testing.T, ours, theirs Limits) {
	ln := newPipes()
	var ran atomic.Int32
	together := make(chan struct{}, 16)
	s := Serve([]net.Listener{ln}, ServerOptions{
		Limits: ours,
		Handle: func(_ context.Context, _ *Session, method uint16, _ []byte) ([]byte, error) {
			ran.Add(1)
			if method == 1 {
				<-together
			}
			return make([]byte, 100), nil
		},
	})
	defer s.Close()
	c := enter(t, ln, theirs)
	answered := func(n uint64) {
		t.Helper()
		if m, err := readMessage(c, someBounds); err != nil || m.kind != msgAnswer || n > 0 && m.number != n {
			t.Fatal(m, err)
		}
	}
	// ponged says that nothing was sent before the answer to a ping.
	ponged := func() {
		t.Helper()
		_, _ = c.Write(encode(message{kind: msgPing, number: 1}))
		if m, err := readMessage(c, someBounds); err != nil || m.kind != msgPong {
			t.Fatal(m, err)
		}
	}
	for n := range uint64(5) { // one after the other
		_, _ = c.Write(encode(message{kind: msgCall, number: n + 1}))
		answered(n + 1)
	}
	_, _ = c.Write(encode(message{kind: msgCall, number: 6}))
	ponged()
	time.Sleep(10 * time.Millisecond)
	if n := ran.Load(); n != 5 {
		t.Errorf("%d calls ran", n)
	}
	_, _ = c.Write(encode(message{kind: msgAck, numbers: []uint64{1, 2}}))
	answered(6)
	// Four are kept. Of those that run at the same time no more than one is added.
	for n := range uint64(4) {
		_, _ = c.Write(encode(message{kind: msgCall, number: n + 7, method: 1}))
	}
	for until := time.Now().Add(time.Minute); ran.Load() < 10 && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	if n := ran.Load(); n != 10 {
		t.Fatalf("%d calls ran", n)
	}
	for range 4 {
		together <- struct{}{}
	}
	answered(0)
	time.Sleep(10 * time.Millisecond)
	ponged()
	_, _ = c.Write(encode(message{kind: msgAck, numbers: []uint64{3, 4, 5}}))
	for range 3 {
		answered(0)
	}
}

// TestAbandonedCalls: calls for which nobody waits any more are kept, up to what the peer
// takes, until they are answered.
func TestAbandonedCalls(t *testing.T) {
	const most = 3
	ln := newPipes()
	hang := make(chan struct{})
	var ran atomic.Int32
	srv := Serve([]net.Listener{ln}, ServerOptions{Limits: Limits{CallsInFlight: most}, Handle: func(_ context.Context, _ *Session, _ uint16, b []byte) ([]byte, error) {
		ran.Add(1)
		<-hang
		return b, nil
	}})
	defer srv.Close()
	c := ln.dial()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	got, err := dialHandshake(c, controlHello(Identity{Name: "x"}, Limits{}.withDefaults(), transport.SessionID{1}, nil), tokenSecret(nil), sessionKey{})
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(transport.SessionID{1}, got.peer, got.welcome, Limits{}.withDefaults(), nil, got.key)
	defer s.Close()
	if !s.attach(c, 1, nil) {
		t.Fatal("not attached")
	}
	for i := range 3 * most {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for until := time.Now().Add(30 * time.Second); i < most && ran.Load() <= int32(i) && time.Now().Before(until); {
				time.Sleep(time.Millisecond)
			}
			cancel()
		}()
		if _, err := s.Call(ctx, 1, []byte("x")); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	kept := func() (int, int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.credits.mu.Lock()
		defer s.credits.mu.Unlock()
		return len(s.sentCalls), s.credits.calls
	}
	if calls, free := kept(); calls != most || free != 0 || ran.Load() != most {
		t.Errorf("%d calls are kept, %d are free, %d ran", calls, free, ran.Load())
	}
	close(hang)
	if _, err := s.Call(t.Context(), 1, []byte("x")); err != nil {
		t.Error(err)
	}
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		calls, free := kept()
		if calls == 0 && free == most {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("%d calls are kept, %d are free", calls, free)
		}
	}
}

// TestStaleConnection: a call that comes over a connection that has been replaced
// is not run, its caller has sent it again.
func TestStaleConnection(t *testing.T) {
	s := newSession(transport.SessionID{1}, trust.PeerID{}, welcome{messageBytes: 100, calls: 4}, Limits{}.withDefaults(),
		func(context.Context, *Session, uint16, []byte) ([]byte, error) {
			t.Error("it ran")
			return nil, nil
		}, sessionKey{})
	defer func() { s.end(nil); <-s.finished }()
	var ours []net.Conn
	for range 2 {
		a, b := net.Pipe()
		defer b.Close()
		ours = append(ours, a)
	}
	sync := &message{kind: msgSync, number: 1}
	if !s.attach(ours[0], 1, sync) {
		t.Fatal("not attached")
	}
	old := s.link
	if !s.attach(ours[1], 2, sync) {
		t.Fatal("not attached")
	}
	if left, err := s.receive(old, &message{kind: msgCall, number: 1}, 7); !errors.Is(err, errStale) || left != 7 {
		t.Error(err)
	}
	if c, _ := net.Pipe(); s.attach(c, 2, sync) {
		t.Error("an older generation took over")
	}
}

// FuzzServer throws bytes at a server: it must not fall, and nothing may run.
func FuzzServer(f *testing.F) {
	h := controlHello(Identity{Name: "x"}, Limits{}.withDefaults(), transport.SessionID{1}, held)
	h.min, h.max = minVersion, maxVersion
	good := h.encode()
	f.Add(good, []byte{0, 32}, true)
	f.Add(append(good, make([]byte, 200)...), []byte{}, false)
	f.Fuzz(func(t *testing.T, first, second []byte, open bool) {
		ln := newPipes()
		id := Identity{Name: "n", Epoch: 1, TLS: endpoint}
		if !open {
			id.Credentials = trust.Secret(secret)
		}
		s := Serve([]net.Listener{ln}, ServerOptions{
			Identity: id, Limits: Limits{AuthTime: time.Second, MessageBytes: 4096, CallsInFlight: 4},
			Handle: func(context.Context, *Session, uint16, []byte) ([]byte, error) {
				t.Error("a handler ran")
				return nil, nil
			},
			Data: func(transport.SessionID, transport.ConnID, string, net.Conn) error {
				t.Error("a data connection was let in")
				return nil
			},
		})
		for _, tls := range []bool{false, true} {
			c := ln.dial()
			if tls {
				c = begun(t, c)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = io.Copy(io.Discard, c)
			}()
			_ = c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
			_, _ = c.Write(first)
			_, _ = c.Write(second)
			_ = c.Close()
			<-done
		}
		_ = s.Close()
	})
}

// FuzzSession throws messages at a session of a peer that is let in.
func FuzzSession(f *testing.F) {
	var all []byte
	for _, m := range someMessages() {
		f.Add(encode(m))
		all = append(all, encode(m)...)
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, b []byte) {
		ln := newPipes()
		s := Serve([]net.Listener{ln}, ServerOptions{
			Limits: Limits{MessageBytes: 4096, CallsInFlight: 4},
			Handle: func(_ context.Context, _ *Session, _ uint16, b []byte) ([]byte, error) { return b, nil },
		})
		c := ln.dial()
		h := controlHello(Identity{Name: "x"}, Limits{}.withDefaults(), transport.SessionID{1}, nil)
		if _, err := dialHandshake(c, h, tokenSecret(nil), sessionKey{}); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.Copy(io.Discard, c)
		}()
		_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		_, _ = c.Write(encode(message{kind: msgSync, number: 1}))
		_, _ = c.Write(b)
		_ = c.Close()
		<-done
		_ = s.Close()
	})
}

// TestOther: a connection of another protocol is given away whole, and is neither counted as
// refused nor closed by the server; those of engines are served beside it.
func TestOther(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := Serve([]net.Listener{ln}, ServerOptions{
		Identity: Identity{Credentials: trust.Secret(secret)}, Limits: Limits{AuthTime: 5 * time.Second},
		Handle: func(_ context.Context, _ *Session, _ uint16, b []byte) ([]byte, error) { return b, nil },
		Other: func(c net.Conn) {
			go func() {
				defer c.Close()
				all := make([]byte, 26)
				if _, err := io.ReadFull(c, all); err == nil {
					_, _ = c.Write(all)
				}
			}()
		},
	})
	defer s.Close()
	// The second begins as TLS does, for five bytes.
	for _, said := range []string{"abcdefghijklmnopqrstuvwxyz", "\x16\x03\x01\x02\x00\x00\x00\x00ijklmnopqrstuvwxyz"} {
		c := knock(t, ln.Addr())
		for _, b := range []byte(said) {
			if _, err := c.Write([]byte{b}); err != nil {
				t.Fatal(err)
			}
		}
		if got := gone(t, c); string(got) != said {
			t.Errorf("%q came back", got)
		}
	}
	works(t, ln.Addr().(*net.TCPAddr))
	if n := s.Counts(); n.Accepted != 3 || n.Refused[RefusedMalformed] != 0 || n.Refused[RefusedGone] != 0 {
		t.Errorf("%+v", n)
	}
}

// An answer that is larger than we take ends the session: it would come again over every
// connection that we make.
func TestOversizeAnswer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := Serve([]net.Listener{ln}, ServerOptions{
		Identity: Identity{Name: "the host", Epoch: 5},
		Handle: func(_ context.Context, s *Session, _ uint16, _ []byte) ([]byte, error) {
			s.mu.Lock()
			s.peer.body = 1 << 20 // it does not care what we take
			s.mu.Unlock()
			return make([]byte, 5000), nil
		},
	})
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	s, err := Dial(ctx, DialOptions{
		Limits: Limits{MessageBytes: 4096}, Ended: func(_ *Session, err error) { ended <- err },
		Routes: func() []Route { return []Route{{Remote: ln.Addr().(*net.TCPAddr).AddrPort()}} },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = s.Call(ctx, 1, nil)
	var oversize *oversizeError
	if !errors.Is(err, ErrEnded) || !errors.As(err, &oversize) || oversize.bytes != 5010 {
		t.Errorf("%v", err)
	}
	if err := <-ended; !errors.Is(err, ErrEnded) {
		t.Errorf("the session's end: %v", err)
	}
}
