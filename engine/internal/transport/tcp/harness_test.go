package tcp

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/peertls"
	"github.com/topoctl/topoctl/engine/internal/session"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

// soft sets the congestion control: the machine's default may pace loopback.
func soft(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) { session.Tune(fd, true) })
}

// side is one engine's transport with its memory.
type side struct {
	*Transport
	regions *memory.Table
}

func newSide(t testing.TB, o Options) *side {
	t.Helper()
	s := &side{regions: memory.NewTable(64)}
	o.Regions = s.regions
	var err error
	if s.Transport, err = New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Transport.Close(); err != nil {
			t.Error(err)
		}
		if err := s.regions.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *side) region(t testing.TB, size int64, grant memory.Grant, o memory.Options) *memory.Region {
	t.Helper()
	b, err := memory.Alloc(size, o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.regions.Add(b, "", "", grant)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// listen lets data connections in, which begin with a session and a connection
// as 24 bytes in place of the session's handshake.
func (s *side) listen(t testing.TB) string {
	t.Helper()
	l, err := (&net.ListenConfig{Control: soft}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-over })
	go func() {
		defer close(over)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			var hello [24]byte
			if _, err := c.Read(hello[:]); err != nil {
				c.Close()
				continue
			}
			id, conn := transport.SessionID(hello[:16]), transport.ConnID(binary.BigEndian.Uint64(hello[16:]))
			if s.agreed(id, conn) == transport.Sealed {
				tc, err := tlsEnds.Server(context.Background(), c, nil)
				if err != nil {
					c.Close()
					continue
				}
				c = tc
			}
			_ = s.Serve(id, conn, "peer", c)
		}
	}()
	return l.Addr().String()
}

var tlsEnds = peertls.NewEndpoint(nil)

// agreed is the level of a connection that is expected.
func (s *side) agreed(id transport.SessionID, conn transport.ConnID) transport.Protection {
	s.Transport.mu.Lock()
	defer s.Transport.mu.Unlock()
	g, _ := s.ends.Expected(transport.ConnKey{Session: id, Conn: conn}, time.Now())
	return g.level
}

func helloOf(id transport.SessionID, conn transport.ConnID) []byte {
	return binary.BigEndian.AppendUint64(id[:], uint64(conn))
}

// plainDial makes data connections for listen.
func plainDial(ctx context.Context, d session.DataDial) (net.Conn, error) {
	c, err := (&net.Dialer{Control: soft}).DialContext(ctx, "tcp", d.Route.Remote.String())
	if err != nil {
		return nil, err
	}
	if _, err = c.Write(helloOf(d.Session, d.Conn)); err != nil || !d.Sealed {
		return c, err
	}
	tc, err := tlsEnds.Dial(ctx, c, nil, "")
	if err != nil {
		c.Close()
		return nil, err
	}
	return tc, nil
}

var lastConn atomic.Uint64

var mySession = transport.SessionID{1, 2, 3}

// client is an active end with its completions.
type client struct {
	transport.Conn
	done chan transport.Completion
	lost chan error
}

// dial connects a to b, which listens at address.
func dial(t testing.TB, a, b *side, address string) *client {
	t.Helper()
	a.dial = plainDial
	return dialOver(t, a, b, address)
}

// dialOver is dial over a transport that wraps that of one side.
func dialOver(t testing.TB, a transport.Transport, b *side, address string) *client {
	t.Helper()
	c := newClient()
	id := transport.ConnID(lastConn.Add(1))
	conn, err := a.Dial(context.Background(), transport.Dial{
		Session: mySession, Conn: id,
		Remote: transport.Endpoint{Transport: "tcp", Address: address},
		Exchange: func(ctx context.Context, request []byte) ([]byte, error) {
			return b.Accept(ctx, transport.Origin{Session: mySession, Conn: id, Name: "a"}, request)
		},
		Events: c.events(),
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Conn = conn
	return c
}

func newClient() *client {
	return &client{done: make(chan transport.Completion, 4096), lost: make(chan error, 1)}
}

func (c *client) events() transport.Events {
	return transport.Events{
		Done: func(_ transport.Conn, list []transport.Completion) {
			for _, x := range list {
				c.done <- x
			}
		},
		Lost: func(_ transport.Conn, err error) { c.lost <- err },
	}
}

// do posts one request and waits for its end.
func (c *client) do(t testing.TB, req *transport.Request) transport.Completion {
	t.Helper()
	c.post(t, req)
	return c.next(t)
}

func (c *client) post(t testing.TB, reqs ...*transport.Request) {
	t.Helper()
	n, done := c.Post(reqs, nil)
	if n != len(reqs) {
		t.Fatalf("%d of %d requests were taken", n, len(reqs))
	}
	for _, x := range done {
		c.done <- x
	}
}

func (c *client) next(t testing.TB) transport.Completion {
	t.Helper()
	select {
	case x := <-c.done:
		return x
	case <-time.After(patience):
		t.Fatalf("no completion\n%s", stacks())
		return transport.Completion{}
	}
}

func (c *client) gone(t testing.TB) error {
	t.Helper()
	select {
	case err := <-c.lost:
		return err
	case <-time.After(patience):
		t.Fatalf("the connection is not lost\n%s", stacks())
		return nil
	}
}

func stacks() string {
	b := make([]byte, 1<<20)
	return string(b[:runtime.Stack(b, true)])
}

func remote(r *memory.Region) *transport.RemoteRegion {
	return &transport.RemoteRegion{ID: r.ID(), Bytes: r.Block().Size(), Grant: r.Grant()}
}

// request is one contiguous piece.
func request(op transport.Op, local *memory.Region, lo int64, rem *transport.RemoteRegion, ro, n int64) *transport.Request {
	return &transport.Request{Op: op, Bytes: n, Spans: []transport.Span{
		{Local: local, LocalOffset: lo, Remote: rem, RemoteOffset: ro, Bytes: n},
	}}
}

// noLeaks fails the test when it leaves goroutines or descriptors behind. Call it
// first.
func noLeaks(t testing.TB) {
	t.Helper()
	goroutines, files := runtime.NumGoroutine(), openFiles()
	t.Cleanup(func() {
		var g, f int
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if g, f = runtime.NumGoroutine(), openFiles(); g <= goroutines && f <= files {
				return
			}
		}
		t.Errorf("goroutines %d, were %d; descriptors %d, were %d\n%s", g, goroutines, f, files, stacks())
	})
}

func openFiles() int {
	list, err := os.ReadDir("/proc/self/fd")
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	return len(list)
}

// eventually waits for what other goroutines do.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not happen\n%s", what, stacks())
		}
	}
}

// adopt makes an active end of a socket on which the peer has nothing but the
// frames.
func (s *side) adopt(t testing.TB, nc net.Conn, c *client) transport.Conn {
	t.Helper()
	s.dial = func(context.Context, session.DataDial) (net.Conn, error) { return nc, nil }
	theirs := offer{features: featureSum, spans: spansLimit, posted: postedLimit, bytes: bytesLimit}
	conn, err := s.Dial(context.Background(), transport.Dial{
		Session: mySession, Conn: transport.ConnID(lastConn.Add(1)),
		Remote:   transport.Endpoint{Transport: "tcp", Address: "127.0.0.1:1"},
		Exchange: func(context.Context, []byte) ([]byte, error) { return grant{offer: theirs}.put(), nil },
		Events:   c.events(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return conn
}
