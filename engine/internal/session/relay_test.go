package session

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/faulty"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// between listens for one dialler after the other and treats each as an attacker does.
func between(t *testing.T, attack func(net.Conn)) netip.AddrPort {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				attack(c)
			})
		}
	})
	t.Cleanup(func() { _ = ln.Close(); wg.Wait() })
	return ln.Addr().(*net.TCPAddr).AddrPort()
}

func dialAt(t *testing.T, addr netip.AddrPort, id Identity) (*Session, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return Dial(ctx, DialOptions{Identity: id, Routes: func() []Route { return []Route{{Remote: addr}} }})
}

// relay has a TLS connection with either side, and passes on their packets.
func relay(c net.Conn, addr net.Addr, lie bool) {
	from, err := secureAccepted(c, nil, endpoint, nil)
	if err != nil {
		return
	}
	up, err := net.Dial("tcp", addr.String())
	if err != nil {
		return
	}
	defer up.Close()
	to, err := secureDialled(context.Background(), up, endpoint, nil, "")
	if err != nil {
		return
	}
	pass := func(dst, src net.Conn, head int) []byte {
		b, err := readPacket(src, head)
		if err == nil {
			_, _ = dst.Write(b)
		}
		return b
	}
	pass(to, from, helloHead)
	pass(from, to, helloHead)
	proof := pass(to, from, 2)
	if lie && len(proof) > 2 {
		w := welcome{messageBytes: 1 << 20, calls: 1, name: "the host", proof: [proofSize]byte(proof[2:])}
		_, _ = from.Write(w.encode())
	}
	pass(from, to, 2)
}

// TestRelay: a relay that a holder of the token dials has a TLS connection with either side, and
// passes on what they say. Both refuse, and nothing passes; also where the relay says that the
// server let the dialler in.
func TestRelay(t *testing.T) {
	for name, lie := range map[string]bool{"forwards": false, "forges the welcome": true} {
		t.Run(name, func(t *testing.T) {
			s, addr, reached := target(t, Limits{})
			relayed := make(chan struct{})
			at := between(t, func(c net.Conn) {
				defer close(relayed)
				relay(c, addr, lie)
			})
			if _, err := dialAt(t, at, Identity{Credentials: trust.Secret(secret)}); !errors.Is(err, ErrToken) {
				t.Errorf("the dialler: %v", err)
			}
			<-relayed // a lied-to dialler is gone before the server has said what it thinks of its proof
			works(t, addr)
			_ = s.Close()
			if n := s.Counts(); n.Refused[RefusedToken] != 1 || reached.Load() != 1 {
				t.Errorf("the server: %+v, %d reached", n, reached.Load())
			}
		})
	}
}

// TestRelayedData: a sealed data connection goes through no relay either, whatever certificate the relay shows.
func TestRelayedData(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := Serve([]net.Listener{ln}, ServerOptions{
		Identity: Identity{Credentials: trust.Secret(secret)},
		DataKey: func(transport.SessionID, transport.ConnID) (transport.DataKey, bool) {
			return transport.DataKey{1}, true
		},
		Data: func(transport.SessionID, transport.ConnID, string, net.Conn) error {
			t.Error("a data connection was let in")
			return nil
		},
	})
	at := between(t, func(c net.Conn) { relay(c, ln.Addr(), false) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := DialData(ctx, DataDial{Key: transport.DataKey{1}, Sealed: true, Route: Route{Remote: at}}); !errors.Is(err, ErrDataKey) {
		t.Error(err)
	}
	_ = s.Close()
	if n := s.Counts(); n.Refused[RefusedToken] != 1 {
		t.Errorf("%+v", n)
	}
}

// TestStrippedTLS: what looks like a good server without TLS gets no proof of a dialler that has a
// token, nor its name, and is not believed; nor is another protocol over TLS.
func TestStrippedTLS(t *testing.T) {
	heard := make(chan []byte, 1)
	at := between(t, func(c net.Conn) {
		a := answer{min: minVersion, max: maxVersion, version: maxVersion, token: true}
		w := welcome{messageBytes: 1 << 20, calls: 1}
		_, _ = c.Write(append(a.encode(), w.encode()...))
		_ = c.SetReadDeadline(time.Now().Add(time.Minute)) // the dialler closes before that
		b, _ := io.ReadAll(c)
		heard <- b
	})
	// Once: a busy peer's answer may lack TLS, too, and Dial would try again.
	o := DialOptions{Identity: Identity{Name: "a name", Credentials: trust.Secret(secret)}, Routes: func() []Route { return []Route{{Remote: at}} }}
	if _, err := dialOnce(t.Context(), o.withDefaults()); !errors.Is(err, errPlain) {
		t.Error(err)
	}
	said := <-heard
	for at := 0; at+5 <= len(said); {
		if said[at] != 22 && said[at] != 21 { // a handshake's record, or an alert
			t.Fatalf("it said %x", said[at:])
		}
		at += 5 + int(binary.BigEndian.Uint16(said[at+3:]))
	}
}

// TestPlainHello: a server with a token does not take a proof without TLS, even a good one.
func TestPlainHello(t *testing.T) {
	s, addr, reached := target(t, Limits{})
	h := controlHello(Identity{Name: "x"}, Limits{}.withDefaults(), transport.SessionID{1}, held)
	c := knock(t, addr)
	if _, err := dialHandshake(c, h, tokenSecret(held), sessionKey{}); !errors.Is(err, ErrToken) {
		t.Error(err)
	}
	if _, err := dialAt(t, addr.AddrPort(), Identity{}); !errors.Is(err, ErrToken) {
		t.Error(err)
	}
	_ = s.Close()
	if n := s.Counts(); n.Refused[RefusedToken] != 2 || reached.Load() != 0 {
		t.Errorf("%+v, %d reached", n, reached.Load())
	}
}

// TestClaimedToken: the name of a token that the server does not demand proves nothing.
func TestClaimedToken(t *testing.T) {
	ln := newPipes()
	peers := make(chan trust.PeerID, 1)
	s := Serve([]net.Listener{ln}, ServerOptions{Handle: func(_ context.Context, s *Session, _ uint16, _ []byte) ([]byte, error) {
		peers <- s.PeerID()
		return nil, nil
	}})
	defer s.Close()
	c := ln.dial()
	defer c.Close()
	h := controlHello(Identity{Name: "x"}, Limits{}.withDefaults(), transport.SessionID{1}, nil)
	h.tokenName = "admin"
	if _, err := dialHandshake(c, h, tokenSecret(nil), sessionKey{}); err != nil {
		t.Fatal(err)
	}
	for _, m := range []message{{kind: msgSync, number: 1}, {kind: msgCall, number: 1}} {
		_, _ = c.Write(encode(m))
	}
	go func() { _, _ = io.Copy(io.Discard, c) }()
	if id := <-peers; id.Token != "" || id.Claimed != "x" {
		t.Errorf("%+v", id)
	}
}

// TestNamesOfTokensAreNotTold: to one without a token, a name that some token has looks like one that none has.
func TestNamesOfTokensAreNotTold(t *testing.T) {
	ln := newPipes()
	named := &trust.Credentials{Tokens: []trust.Token{{Name: "prefill", Secret: secret}}}
	s := Serve([]net.Listener{ln}, ServerOptions{Identity: Identity{Name: "the host", Epoch: 7, Credentials: func() *trust.Credentials { return named }}})
	defer s.Close()
	var told [][]byte
	for _, name := range []string{"prefill", "nobody", ""} {
		c := begun(t, ln.dial())
		h := controlHello(Identity{}, Limits{}.withDefaults(), transport.SessionID{1}, &trust.Token{Name: name})
		h.min, h.max = minVersion, maxVersion
		_, _ = c.Write(h.encode())
		answer, err := readPacket(c, helloHead)
		if err != nil {
			t.Fatal(err)
		}
		clear(answer[len(answer)-nonceSize:])
		wrong := proof{}
		_, _ = c.Write(wrong.encode())
		told = append(told, append(answer, gone(t, c)...))
	}
	for _, other := range told[1:] {
		if !bytes.Equal(other, told[0]) || len(told[0]) == 0 {
			t.Errorf("told %x and %x", told[0], other)
		}
	}
	wrong := &trust.Token{Name: "prefill", Secret: []byte("another secret of 16 bytes")}
	h := controlHello(Identity{}, Limits{}.withDefaults(), transport.SessionID{1}, wrong)
	if _, err := dialHandshake(begun(t, ln.dial()), h, tokenSecret(wrong), sessionKey{}); !errors.Is(err, ErrToken) || !strings.Contains(err.Error(), `no token "prefill" with this secret`) {
		t.Error(err)
	}
}

// TestDialsPlain: the dialler's rule.
func TestDialsPlain(t *testing.T) {
	with := trust.Secret(secret)()
	for address, want := range map[string]bool{"127.0.0.1": true, "127.8.9.1": true, "::1": true, "::ffff:127.0.0.1": true, "10.0.0.1": false, "fe80::1%eth0": false} {
		a := netip.MustParseAddr(address)
		if dialsPlain(nil, a) != want || dialsPlain(&trust.Credentials{}, a) != want || dialsPlain(with, a) {
			t.Error(address)
		}
	}
}

// TestSocketUnderTLS: what the kernel knows of a connection is known of one with TLS too, and
// closing it closes the socket.
func TestSocketUnderTLS(t *testing.T) {
	_, addr, _ := target(t, Limits{})
	raw := knock(t, addr)
	c := begun(t, raw)
	if _, err := c.Write([]byte(magic)); err != nil {
		t.Fatal(err)
	}
	_, _, ofSocket := delivered(raw)
	before, _, ok := delivered(c)
	if ok != ofSocket || ok && before == 0 {
		t.Errorf("delivered: %d, %t; of the socket: %t", before, ok, ofSocket)
	}
	if CongestionControl(c) != CongestionControl(raw) || closed(c) {
		t.Error("the socket is not seen")
	}
	if err := c.Close(); err != nil || !closed(c) || !closed(raw) {
		t.Error("the socket is not closed:", err)
	}
}

// TestTLSWithoutCredentials: two engines of different hosts without credentials speak TLS, and who
// listens on the way cannot know the session's key.
func TestTLSWithoutCredentials(t *testing.T) {
	ln := newPipes()
	s := Serve([]net.Listener{ln}, ServerOptions{})
	defer s.Close()
	wire := &recorder{Conn: ln.dial()}
	defer wire.Close()
	o := DialOptions{Identity: Identity{Name: "a name"}}.withDefaults()
	elsewhere := Route{Remote: netip.MustParseAddrPort("192.0.2.1:7411")}
	got, err := o.greet(t.Context(), wire, elsewhere, transport.SessionID{1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if exporterOf(got.conn) == (exporter{}) || !isClientHello(wire.sent) || bytes.Contains(wire.sent, []byte("a name")) {
		t.Errorf("there is no TLS: %x", wire.sent)
	}
}

// TestResumeProvesTheKey: a server that has the token and not the session's key is not taken for
// the one that the session is with.
func TestResumeProvesTheKey(t *testing.T) {
	resumed := make(chan error, 1)
	at := between(t, func(c net.Conn) {
		to, err := secureAccepted(c, nil, endpoint, nil)
		if err != nil {
			return
		}
		head := make([]byte, helloHead)
		_, _ = io.ReadFull(to, head)
		a, err := acceptHandshake(to, head, lock{credentials: trust.Secret(secret)()})
		if err == nil {
			err = a.reply(&Identity{Name: "another"}, Limits{}.withDefaults(), statusOK, nil)
		}
		resumed <- err
	})
	o := DialOptions{Identity: Identity{Credentials: trust.Secret(secret)}}.withDefaults()
	c := knock(t, net.TCPAddrFromAddrPort(at))
	_, err := o.greet(t.Context(), c, Route{Remote: at}, transport.SessionID{1}, &Session{key: sessionKey{1}})
	if served := <-resumed; served != nil || !errors.Is(err, ErrToken) {
		t.Errorf("served: %v, dialled: %v", served, err)
	}
}

// flipper changes one bit of those that pass, once.
type flipper struct {
	*faulty.Proxy
	at      int64 // of the byte in its connection
	back    bool
	flipped atomic.Bool
	passed  [2]atomic.Int64 // there and back
}

func newFlipper(t *testing.T, at int64, back bool, to net.Addr) *flipper {
	t.Helper()
	p, err := faulty.Listen("127.0.0.1:0", to.String(), 1)
	if err != nil {
		t.Fatal(err)
	}
	f := &flipper{Proxy: p, at: at, back: back}
	pass := func(direction int) func(int64, []byte) []byte {
		return func(place int64, b []byte) []byte {
			f.passed[direction].Add(int64(len(b)))
			if i := at - place; i >= 0 && i < int64(len(b)) && back == (direction == 1) && !f.flipped.Swap(true) {
				b[i] ^= 1 << (at % 8)
			}
			return b
		}
	}
	p.Update(func(up, down *faulty.Line) { up.Change, down.Change = pass(0), pass(1) })
	return f
}

// TestFlippedBits: one bit changed anywhere in what a short session sends ends the connection. The
// session goes on over the next one, and no call is lost, runs twice or is changed.
func TestFlippedBits(t *testing.T) {
	var mu sync.Mutex
	runs := map[string]int{}
	var servers []net.Addr
	var counts []func() Counts
	// A bit may leave the server waiting for bytes that do not come, up to AuthTime: little is enough,
	// but on a machine that does not manage a handshake in that time.
	authTimes := []time.Duration{200 * time.Millisecond, 2 * time.Second, 20 * time.Second}
	for _, authTime := range authTimes {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := Serve([]net.Listener{ln}, ServerOptions{
			Identity: Identity{Name: "h", Epoch: 5, Credentials: trust.Secret(secret), TLS: endpoint},
			Limits:   Limits{AuthTime: authTime},
			Handle: func(_ context.Context, _ *Session, _ uint16, body []byte) ([]byte, error) {
				mu.Lock()
				defer mu.Unlock()
				runs[string(body)]++
				return body, nil
			},
		})
		defer s.Close()
		servers, counts = append(servers, ln.Addr()), append(counts, s.Counts)
	}
	var number atomic.Uint32
	try := func(f *flipper, server int) error {
		defer f.Close()
		at := netip.MustParseAddrPort(f.Address())
		dial := func() (*Session, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return Dial(ctx, DialOptions{
				Identity: Identity{Credentials: trust.Secret(secret), TLS: endpoint}, Silence: 20 * time.Millisecond, GiveUp: 10 * authTimes[server],
				Routes: func() []Route { return []Route{{Remote: at}} },
			})
		}
		v, err := dial()
		if err != nil && f.flipped.Load() {
			v, err = dial() // the attacker spoiled the handshake, that is all
		}
		if err != nil {
			return err
		}
		defer v.Close()
		for range 2 {
			body := binary.BigEndian.AppendUint32([]byte("call "), number.Add(1))
			got, err := v.Call(t.Context(), 1, body)
			if err != nil {
				return err
			}
			if string(got) != string(body) {
				t.Errorf("byte %d (%t): %q", f.at, f.back, got)
			}
			mu.Lock()
			if runs[string(body)] != 1 {
				t.Errorf("byte %d (%t): a call ran %d times", f.at, f.back, runs[string(body)])
			}
			mu.Unlock()
		}
		// The version of a connection's first record means nothing in TLS 1.3.
		if f.flipped.Load() && f.at > 2 {
			until := time.Now().Add(time.Minute)
			for f.Accepted() < 2 && time.Now().Before(until) {
				time.Sleep(time.Millisecond)
			}
			if f.Accepted() < 2 {
				t.Errorf("byte %d (%t): the connection goes on", f.at, f.back)
			}
		}
		return nil
	}
	short := func(at int64, back bool) *flipper {
		for server := 0; ; server++ {
			f := newFlipper(t, at, back, servers[server])
			err := try(f, server)
			if err == nil {
				return f
			}
			if server == len(servers)-1 {
				t.Errorf("byte %d (%t): %v", at, back, err)
				return f
			}
			t.Logf("byte %d (%t): %v; with more time", at, back, err)
		}
	}
	type place struct {
		at   int64
		back bool
	}
	clean := short(-1, false)
	var all []place
	for direction := range clean.passed {
		for at := range clean.passed[direction].Load() {
			all = append(all, place{at, direction == 1})
		}
	}
	all = longtest.Sample(all, 60)
	t.Logf("%d bytes there, %d back, %d flips", clean.passed[0].Load(), clean.passed[1].Load(), len(all))
	work := make(chan place)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for p := range work {
				short(p.at, p.back)
			}
		})
	}
	for _, p := range all {
		work <- p
	}
	close(work)
	wg.Wait()
	seen := int64(0)
	for _, of := range counts {
		seen += of().Altered
	}
	if seen == 0 {
		t.Error("none of it was counted as altered")
	}
}
