package engine

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/session"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/internal/sched"
)

func TestCallBodies(t *testing.T) {
	name, conn, request, err := parseAccept(acceptBody("tcp", 7, []byte("hello")))
	if name != "tcp" || conn != 7 || string(request) != "hello" || err != nil {
		t.Error(name, conn, request, err)
	}
	l := leaving{"shm", transport.SessionID{1, 2, 3, 15: 9}, 1 << 63, [32]byte{4}}
	if got, err := parseLeave(l.body()); got != l || err != nil {
		t.Error(got, err)
	}
	wait, payload, err := parseNotify(notifyBody(10*time.Second, []byte("x")))
	if wait != 9*time.Second || string(payload) != "x" || err != nil {
		t.Error(wait, payload, err)
	}
	if wait, _, err := parseNotify(bytes.Repeat([]byte{0xff}, 8)); wait != maxNotifyWait || err != nil {
		t.Errorf("an endless wait: %v, %v", wait, err)
	}
	for _, bad := range [][]byte{nil, {3}, {3, 't', 'c', 'p'}, {0, 1, 2, 3}, make([]byte, 9+maxNotify)} {
		if _, _, _, err := parseAccept(bad[:min(len(bad), 5)]); !errors.Is(err, errMalformed) {
			t.Errorf("accept %v: %v", bad, err)
		}
		if _, err := parseLeave(bad); !errors.Is(err, errMalformed) {
			t.Errorf("leave %v: %v", bad, err)
		}
		if _, _, err := parseNotify(bad); !errors.Is(err, errMalformed) {
			t.Errorf("notify %v: %v", bad, err)
		}
	}
}

func FuzzCalls(f *testing.F) {
	f.Add(acceptBody("tcp", 1, []byte("x")))
	f.Add((&leaving{transport: "tcp", conn: 1}).body())
	f.Add(notifyBody(1, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if name, conn, request, err := parseAccept(b); err == nil && !bytes.Equal(acceptBody(name, conn, request), b) {
			t.Errorf("accept %x", b)
		}
		if l, err := parseLeave(b); err == nil && !bytes.Equal(l.body(), b) {
			t.Errorf("leave %x", b)
		}
		if wait, payload, err := parseNotify(b); err == nil && (wait < 0 || wait > maxNotifyWait || len(payload) > maxNotify) {
			t.Errorf("notify %x: %v, %d bytes", b, wait, len(payload))
		}
	})
}

// A peer that knows a session and a connection of it, and has the token too, can neither leave the
// connection nor make one of its own in its place. The session's own proof leaves it, over
// another session too.
func TestOthersConnections(t *testing.T) {
	checkLeaks(t)
	token := []byte("0123456789abcdef")
	tcp := []TransportFactory{TCP()}
	p := newPair(t, 1<<20, Options{Security: Security{Credentials: trust.Secret(token)}, Transports: tcp}, Options{Security: Security{Credentials: trust.Secret(token)}, Transports: tcp})
	p.warm(t)
	ctx := testContext(t)
	peer, err := newEngine(t, Options{Security: Security{Credentials: trust.Secret(token)}, Transports: tcp}).Open(ctx, p.server.Addrs()[0].String())
	must(t, err)
	conns := func() int { return p.server.Stats().ServedConns }
	before := conns()
	var id sched.ConnID
	p.client.mu.Lock()
	for id = range p.client.conns {
	}
	p.client.mu.Unlock()
	if before != 1 || id == 0 {
		t.Fatalf("%d connections, the last is %d", before, id)
	}
	good := newLeaving(p.peer.session, "tcp", transport.ConnID(id))
	forged := newLeaving(peer.session, "tcp", good.conn)
	forged.session = good.session
	moved := good
	moved.conn++
	for _, l := range []leaving{forged, moved, {transport: "tcp", session: good.session, conn: good.conn}} {
		var refused *RemoteError
		if _, err := peer.callEngine(ctx, methodLeave, l.body()); !errors.As(err, &refused) || conns() != before {
			t.Errorf("%+v: %v, %d connections", l, err, conns())
		}
	}
	for _, conn := range []transport.ConnID{good.conn, good.conn + 1} {
		_, err := session.DialData(ctx, session.DataDial{
			Session: good.session, Conn: conn, Key: transport.DataKey{1}, Route: session.Route{Remote: p.peer.session.Remote()},
		})
		if !errors.Is(err, session.ErrEnded) {
			t.Errorf("a data connection: %v", err)
		}
	}
	if _, err := peer.session.Call(ctx, methodLeave, good.body()); err != nil || conns() != 0 {
		t.Errorf("the session's own proof: %v, %d connections", err, conns())
	}
}
