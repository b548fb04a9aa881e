//go:build cgo && linux && (amd64 || arm64)

package rdma

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/transporttest"
	"github.com/topoctl/topoctl/internal/verbs"
	"github.com/topoctl/topoctl/internal/verbs/verbsfake"
)

// patience is for what must happen; it decides nothing when the code is right.
const patience = time.Minute

// host is one engine's part of a test.
type host struct {
	*Transport
	t       testing.TB
	regions *memory.Table
	changed atomic.Int32
}

// world is two hosts on one fabric.
type world struct {
	t       testing.TB
	f       *verbsfake.Fabric
	a, b    *host
	session transport.SessionID
	last    transport.ConnID
	// lossy sessions lose every exchange after the first.
	lossy atomic.Bool
}

func newHost(t testing.TB, f *verbsfake.Fabric, o Options, devices ...string) *host {
	t.Helper()
	h := &host{t: t, regions: memory.NewTable(64)}
	var err error
	if h.Transport, err = New(quick(o), f.Lib(devices...), func() { h.changed.Add(1) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(h.Close(), h.regions.Close()); err != nil {
			t.Error(err)
		}
	})
	return h
}

// newWorld has host a with the devices whose names begin with an a, and host b.
func newWorld(t testing.TB, fo verbsfake.Options, o Options) *world {
	t.Helper()
	if fo.Devices == nil {
		fo.Devices = ethernetDevices()
	}
	if fo.RetryAfter == 0 {
		fo.RetryAfter = 3 * time.Millisecond
	}
	f := newFabric(t, fo)
	var as, bs []string
	for _, d := range fo.Devices {
		if d.Name[0] == 'a' {
			as = append(as, d.Name)
		} else {
			bs = append(bs, d.Name)
		}
	}
	w := &world{t: t, f: f, session: transport.SessionID{1, 2, 3}}
	w.a, w.b = newHost(t, f, o, as...), newHost(t, f, o, bs...)
	return w
}

// region allocates and registers memory with random bytes.
func (h *host) region(size int64, grant memory.Grant) *memory.Region {
	h.t.Helper()
	b, err := memory.Alloc(size, memory.Options{})
	if err != nil {
		h.t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(uint64(size), uint64(grant)))
	for i := range b.Bytes() {
		b.Bytes()[i] = byte(rng.Uint32())
	}
	r, err := h.regions.Add(b, "", "", grant)
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.Register(r); err != nil {
		h.t.Fatal(err)
	}
	return r
}

// remote is the region as peers know it.
func (h *host) remote(r *memory.Region) *transport.RemoteRegion {
	return &transport.RemoteRegion{ID: r.ID(), Bytes: r.Size(), Grant: r.Grant(), Key: map[string]string{"rdma": h.Key(r)}}
}

// both is what peers may do in most tests.
const both = memory.PeerRead | memory.PeerWrite

// end is the active end of a connection.
type end = transporttest.Client

func (w *world) request() (*end, transport.Dial) {
	e := transporttest.NewClient(w.t)
	w.last++
	id := w.last
	asked := 0
	var mu sync.Mutex
	return e, transport.Dial{
		Session: w.session, Conn: id, Events: e.Events(),
		Exchange: func(ctx context.Context, ask []byte) ([]byte, error) {
			mu.Lock()
			asked++
			n := asked
			mu.Unlock()
			if n > 1 && w.lossy.Load() {
				return nil, errors.New("the session is down")
			}
			return w.b.Accept(ctx, w.origin(id), bytes.Clone(ask))
		},
	}
}

func (w *world) origin(id transport.ConnID) transport.Origin {
	return transport.Origin{Session: w.session, Conn: id, Name: "a"}
}

// try dials the first port of b, or fails.
func (w *world) try() (*end, error) {
	e, d := w.request()
	offers := w.b.Offers()
	if len(offers) == 0 {
		w.t.Fatal("b offers nothing")
	}
	d.Remote = offers[0]
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
	e.Conn, err = w.a.Dial(ctx, d)
	return e, err
}

func (w *world) dial() *end {
	w.t.Helper()
	e, err := w.try()
	if err != nil {
		w.t.Fatal(err)
	}
	return e
}

func (w *world) leave(e *end) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := w.b.Leave(ctx, w.origin(e.Conn.ID()), e.Conn.ID()); err != nil {
		w.t.Error(err)
	}
}

func span(local *memory.Region, at int64, remote *transport.RemoteRegion, rat, n int64) transport.Span {
	return transport.Span{Local: local, LocalOffset: at, Remote: remote, RemoteOffset: rat, Bytes: n}
}

func requestOf(op transport.Op, spans ...transport.Span) *transport.Request {
	r := &transport.Request{Op: op, Spans: spans}
	for _, s := range spans {
		r.Bytes += s.Bytes
	}
	return r
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %v: %s", patience, what)
		}
	}
}

// works writes and reads over the connection, and compares.
func (w *world) works(e *end) {
	w.t.Helper()
	here, there := w.a.region(4096, memory.None), w.b.region(4096, both)
	remote := w.b.remote(there)
	if err := e.Do(requestOf(transport.Write, span(here, 0, remote, 0, 4096))); err != nil {
		w.t.Fatal(err)
	}
	if !bytes.Equal(here.Bytes(0, 4096), there.Bytes(0, 4096)) {
		w.t.Fatal("what was written is not what was sent")
	}
	there.Bytes(0, 4096)[77]++
	if err := e.Do(requestOf(transport.Read, span(here, 0, remote, 0, 4096))); err != nil {
		w.t.Fatal(err)
	}
	if !bytes.Equal(here.Bytes(0, 4096), there.Bytes(0, 4096)) {
		w.t.Fatal("what was read is not what is there")
	}
}

// hide takes devices from the list that a host sees.
func (h *host) hide(names ...string) {
	h.scanning.Lock()
	defer h.scanning.Unlock()
	h.list = func() ([]verbs.DeviceInfo, error) {
		list, err := h.lib.Devices()
		return slices.DeleteFunc(list, func(i verbs.DeviceInfo) bool { return slices.Contains(names, i.Name) }), err
	}
}
