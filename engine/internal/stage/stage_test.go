package stage

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

// instant is a connection that completes what is posted at once, through Done.
type instant struct {
	transport.Conn
	events transport.Events
	list   []transport.Completion
	onPost func() // in place of taking requests
}

func (c *instant) Limits() transport.Caps {
	return transport.Caps{MaxSpans: 256, MaxBytes: 1 << 30, MaxPosted: 8}
}

func (c *instant) Post(requests []*transport.Request, done []transport.Completion) (int, []transport.Completion) {
	if c.onPost != nil {
		c.onPost()
		return 0, done
	}
	for _, r := range requests {
		c.list = append(c.list, transport.Completion{Request: r})
	}
	return len(requests), done
}

// end completes what was posted.
func (c *instant) end() {
	c.events.Done(c, c.list)
	c.list = c.list[:0]
}

type instantTransport struct {
	transport.Transport
	c *instant
}

func (t *instantTransport) Name() string { return "instant" }

func (t *instantTransport) Dial(_ context.Context, d transport.Dial) (transport.Conn, error) {
	t.c.events = d.Events
	return t.c, nil
}

func dialInstant(t testing.TB, done func(transport.Conn, []transport.Completion)) (*instant, transport.Conn) {
	t.Helper()
	inner := &instant{}
	w := Wrap(&instantTransport{c: inner}, memory.NewTable(1))
	c, err := w.Dial(context.Background(), transport.Dial{Events: transport.Events{Done: done}})
	if err != nil {
		t.Fatal(err)
	}
	return inner, c
}

func hostRequest(t testing.TB) *transport.Request {
	t.Helper()
	b, err := memory.Alloc(4096, memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	table := memory.NewTable(1)
	r, err := table.Add(b, "", "", memory.None)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = table.Close() })
	return &transport.Request{Op: transport.Write, Bytes: 4096, Spans: []transport.Span{{
		Local: r, Remote: &transport.RemoteRegion{}, Bytes: 4096,
	}}}
}

// Memory of the host passes through: the owner sees its own requests, and nothing is
// allocated for them.
func TestPassThrough(t *testing.T) {
	var got int
	var from transport.Conn
	inner, c := dialInstant(t, func(x transport.Conn, list []transport.Completion) { from, got = x, got+len(list) })
	batch := []*transport.Request{hostRequest(t)}
	if n := testing.AllocsPerRun(100, func() {
		if taken, done := c.Post(batch, nil); taken != 1 || len(done) != 0 {
			t.Fatal(taken, done)
		}
		inner.end()
	}); n != 0 {
		t.Errorf("%v allocations for a request that passes through", n)
	}
	if got != 101 || from != c {
		t.Errorf("%d completions, of %v", got, from)
	}
}

// A connection that is lost while somebody posts what is cut up: the parts end, and Lost
// comes.
func TestLostWhilePosting(t *testing.T) {
	inner := &instant{}
	w := Wrap(&instantTransport{c: inner}, memory.NewTable(1))
	lost := make(chan error, 1)
	c, err := w.Dial(context.Background(), transport.Dial{Events: transport.Events{
		Done: func(transport.Conn, []transport.Completion) {}, Lost: func(_ transport.Conn, err error) { lost <- err },
	}})
	if err != nil {
		t.Fatal(err)
	}
	inner.onPost = func() {
		over := make(chan bool)
		go func() {
			inner.events.Lost(inner, errors.New("gone"))
			close(over)
		}()
		<-over
	}
	r := hostRequest(t)
	r.Bytes = 0
	for range 1 + memory.PieceBytes/4096 {
		s := r.Spans[0]
		s.Remote = &transport.RemoteRegion{Key: map[string]string{"instant": Key}}
		r.Spans, r.Bytes = append(r.Spans, s), r.Bytes+s.Bytes
	}
	r.Spans = r.Spans[1:]
	if n, done := c.Post([]*transport.Request{r}, nil); n != 1 || len(done) != 1 || !errors.Is(done[0].Err, transport.ErrClosed) {
		t.Errorf("%d taken, %+v", n, done)
	}
	select {
	case <-lost:
	case <-time.After(30 * time.Second):
		t.Error("Lost was not called")
	}
}

// BenchmarkPassThrough is what memory of the host pays for the wrapping.
func BenchmarkPassThrough(b *testing.B) {
	inner, wrapped := dialInstant(b, func(transport.Conn, []transport.Completion) {})
	plain := &instant{events: transport.Events{Done: func(transport.Conn, []transport.Completion) {}}}
	batch := []*transport.Request{hostRequest(b)}
	for _, x := range []struct {
		name  string
		conn  transport.Conn
		inner *instant
	}{{"plain", plain, plain}, {"wrapped", wrapped, inner}} {
		b.Run(x.name, func(b *testing.B) {
			for b.Loop() {
				x.conn.Post(batch, nil)
				x.inner.end()
			}
		})
	}
}
