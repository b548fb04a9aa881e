//go:build linux

package shm

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/transporttest"
)

const patience = time.Minute

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// host is an engine's part of the tests.
type host struct {
	rights *memory.Rights // of raw clients
	*Transport
	t       testing.TB
	regions *memory.Table
}

// shortDir is a private directory with a short path: sockets' addresses are short.
func shortDir(t testing.TB) string {
	d, err := os.MkdirTemp("", "shm") //nolint:usetesting // a socket's address is short, t.TempDir is not
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(d) })
	return d
}

func newHost(t testing.TB, workers int) *host {
	t.Helper()
	h := &host{t: t, regions: memory.NewTable(64)}
	var err error
	if h.Transport, err = New(Options{Dir: shortDir(t), Regions: h.regions, Workers: workers}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(h.Close(), h.regions.Close()); err != nil {
			t.Error(err)
		}
	})
	return h
}

// region allocates and registers memory with random bytes.
func (h *host) region(size int64, grant memory.Grant, o memory.Options) *memory.Region {
	h.t.Helper()
	b, err := memory.Alloc(size, o)
	if err != nil {
		h.t.Fatal(err)
	}
	fill(b.Bytes(), uint64(size)+uint64(grant))
	r, err := h.regions.Add(b, "", "", grant)
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.Register(r); err != nil {
		h.t.Fatal(err)
	}
	return r
}

func fill(b []byte, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 5))
	i := 0
	for ; i+8 <= len(b); i += 8 {
		v := r.Uint64()
		b[i], b[i+1], b[i+2], b[i+3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
		b[i+4], b[i+5], b[i+6], b[i+7] = byte(v>>32), byte(v>>40), byte(v>>48), byte(v>>56)
	}
	for ; i < len(b); i++ {
		b[i] = byte(i)
	}
}

func remote(r *memory.Region) *transport.RemoteRegion {
	return &transport.RemoteRegion{ID: r.ID(), Bytes: r.Size(), Grant: r.Grant()}
}

// dialTo dials where a test answers by hand.
func (h *host) dialTo(d transport.Dial) *end {
	h.t.Helper()
	e := transporttest.NewClient(h.t)
	d.Events = e.Events()
	conn, err := h.Dial(within(h.t), d)
	if err != nil {
		h.t.Fatal(err)
	}
	e.Conn = conn
	return e
}

// end is the active end of a connection.
type end = transporttest.Client

var (
	session = transport.SessionID{1, 2, 3}
	origin  = transport.Origin{Session: session, Name: "active"}
)

// dialTo connects a to p.
func dialTo(t testing.TB, a, p *host, id transport.ConnID) *end {
	t.Helper()
	e := transporttest.NewClient(t)
	c, err := a.Dial(within(t), dialOf(p, id, e))
	if err != nil {
		t.Fatal(err)
	}
	e.Conn = c
	return e
}

func dialOf(p *host, id transport.ConnID, e *end) transport.Dial {
	return transport.Dial{
		Session: session, Conn: id, Remote: p.Endpoint(), Events: e.Events(),
		Exchange: func(ctx context.Context, request []byte) ([]byte, error) {
			o := origin
			o.Conn = id
			return p.Accept(ctx, o, request)
		},
	}
}

// one is a request of one span.
func one(op transport.Op, local *memory.Region, at int64, r *transport.RemoteRegion, remoteAt, n int64) *transport.Request {
	return &transport.Request{Op: op, Bytes: n, Spans: []transport.Span{
		{Local: local, LocalOffset: at, Remote: r, RemoteOffset: remoteAt, Bytes: n},
	}}
}
