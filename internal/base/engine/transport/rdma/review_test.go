//go:build cgo && linux && (amd64 || arm64)

package rdma

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/topoctl/topoctl/internal/base/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
	"github.com/topoctl/topoctl/internal/base/verbs"
	"github.com/topoctl/topoctl/internal/base/verbs/verbsfake"
)

// always and never are for Fail.
const (
	always = -1
	never  = 0
)

// A device that was removed gives EIO to whoever ends something on it, for ever: the kernel
// has ended it already. Leave must say so, but not before; and everything must come to its
// end.
func TestReviewRemovedDeviceIsLeftAndClosed(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour, Watch: 10 * time.Millisecond})
	here, there := w.a.region(4096, memory.None), w.b.region(4096, both)
	e := w.dial()
	w.lossy.Store(true)
	w.f.Hold("a0", true)
	r := requestOf(transport.Write, span(here, 0, w.b.remote(there), 0, 4096))
	e.post(r)
	eventually(t, "the WRITE has not left", func() bool { return w.f.Held("a0") == 1 })
	w.f.Remove("b0", false)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := w.b.Leave(ctx, w.origin(e.conn.ID()), e.conn.ID()); err == nil {
		t.Error("the peer has left a connection whose queue pairs still take WRITEs")
	}
	w.f.Remove("b0", true)
	eventually(t, "the connection is never left", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return w.b.Leave(ctx, w.origin(e.conn.ID()), e.conn.ID()) == nil
	})
	eventually(t, "the device is not closed", func() bool { return w.f.Objects("b0") == verbsfake.Objects{} })
	if err := w.b.Deregister(there); err != nil {
		t.Errorf("deregister: %v", err)
	}
	before := bytes.Clone(there.Bytes(0, 4096))
	w.f.Hold("a0", false)
	w.f.Release("a0")
	if c := e.ended(r); c.Err == nil {
		t.Error("a WRITE to a removed device succeeded")
	}
	if !bytes.Equal(before, there.Bytes(0, 4096)) {
		t.Error("a WRITE landed after Leave")
	}
}

// The same for the end that dials: its READs come back, and nothing is left.
func TestReviewRemovedDeviceEndsConnections(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour, Watch: 10 * time.Millisecond})
	here, there := w.a.region(4096, memory.None), w.b.region(4096, both)
	e := w.dial()
	w.f.Stall("a0", true)
	r := requestOf(transport.Read, span(here, 0, w.b.remote(there), 0, 4096))
	e.post(r)
	w.f.Remove("a0", true)
	if c := e.ended(r); !errors.Is(c.Err, transport.ErrClosed) {
		t.Errorf("the READ ended with %+v", c)
	}
	_ = e.waitLost()
	eventually(t, "the device is not closed", func() bool { return w.f.Objects("a0") == verbsfake.Objects{} })
}

// A READ's memory is not given back while its queue pair may write there.
func TestReviewReadWaitsForItsQueuePair(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour, QueuePairs: 1, FlushTime: time.Millisecond})
	here, there := w.a.region(4096, memory.None), w.b.region(4096, both)
	e := w.dial()
	w.lossy.Store(true)
	w.f.Stall("a0", true)
	r := requestOf(transport.Read, span(here, 0, w.b.remote(there), 0, 4096))
	e.post(r)
	w.f.Fail("a0", "ibv_modify_qp", always, syscall.EBUSY)
	w.f.Fail("a0", "ibv_destroy_qp", always, syscall.EBUSY)
	e.conn.Close(nil)
	time.Sleep(time.Second) // longer than 10 tries
	e.mu.Lock()
	_, over := e.done[r]
	e.mu.Unlock()
	before := bytes.Clone(here.Bytes(0, 4096))
	w.f.Stall("a0", false)
	time.Sleep(5 * time.Millisecond)
	if over && !bytes.Equal(before, here.Bytes(0, 4096)) {
		t.Error("the READ was reported as failed, and its bytes came afterwards")
	}
	if over {
		t.Error("the READ was reported as over while its queue pair was there")
	}
	w.f.Fail("a0", "ibv_modify_qp", never, 0)
	w.f.Fail("a0", "ibv_destroy_qp", never, 0)
	_ = e.waitLost()
}

// A passive queue pair that cannot be destroyed at once keeps its device from being closed
// only until it can.
func TestReviewDeviceClosesAfterDestroyFailed(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour, QueuePairs: 1, Watch: 5 * time.Millisecond})
	_ = w.dial()
	w.lossy.Store(true)
	w.f.Fail("b0", "ibv_destroy_qp", 1, syscall.EBUSY)
	w.b.hide("b0")
	eventually(t, "the device is not closed", func() bool { return w.f.Objects("b0") == verbsfake.Objects{} })
}

// A transport whose queue pairs cannot be destroyed closes all the same, and says so.
func TestReviewCloseGivesUp(t *testing.T) {
	f := verbsfake.New(verbsfake.Options{Devices: ethernetDevices()})
	defer f.Close()
	w := &world{t: t, f: f, session: transport.SessionID{1}}
	open := func(device string) *host {
		h := &host{t: t, regions: memory.NewTable(4)}
		var err error
		if h.Transport, err = New(quick(Options{KeepAlive: time.Hour}), f.Lib(device), nil); err != nil {
			t.Fatal(err)
		}
		return h
	}
	w.a, w.b = open("a0"), open("b0")
	_ = w.dial()
	for _, h := range []*host{w.b, w.a} {
		f.Fail("a0", "ibv_destroy_qp", always, syscall.EBUSY)
		f.Fail("b0", "ibv_destroy_qp", always, syscall.EBUSY)
		over := make(chan error, 1)
		go func() { over <- h.Close() }()
		select {
		case err := <-over:
			if !errors.Is(err, syscall.EBUSY) {
				t.Errorf("close: %v", err)
			}
		case <-time.After(patience):
			t.Fatal("Close hangs")
		}
	}
}

// A registration that could not be undone can be undone later; until then nobody hears that
// it was.
func TestReviewDeregisterIsTriedAgain(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{})
	r := w.b.region(4096, both)
	w.f.Fail("b0", "ibv_dereg_mr", 1, syscall.EBUSY)
	if err := w.b.Deregister(r); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("deregister: %v", err)
	}
	if err := w.b.Deregister(r); err != nil {
		t.Errorf("deregister again: %v", err)
	}
	if n := w.f.Objects("b0").MRs; n != 0 {
		t.Errorf("%d registrations are left after Deregister has returned nil", n)
	}
}

// A device that is on its way out still has the registrations: they end with Deregister,
// too.
func TestReviewDeregisterWhileTheDeviceIsClosed(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour, Watch: 5 * time.Millisecond})
	here, there := w.a.region(4096, memory.None), w.b.region(4096, both)
	e := w.dial()
	w.lossy.Store(true)
	w.f.Hold("a0", true)
	e.post(requestOf(transport.Write, span(here, 0, w.b.remote(there), 0, 4096)))
	eventually(t, "the WRITE has not left", func() bool { return w.f.Held("a0") == 1 })
	w.f.Fail("b0", "ibv_destroy_qp", always, syscall.EBUSY)
	w.f.Fail("b0", "ibv_modify_qp", always, syscall.EBUSY)
	w.b.hide("b0")
	eventually(t, "the device is still used", func() bool { return len(w.b.Offers()) == 0 })
	if err := w.b.Deregister(there); err != nil {
		t.Error(err)
	}
	before := bytes.Clone(there.Bytes(0, 4096))
	w.f.Hold("a0", false)
	w.f.Release("a0")
	time.Sleep(5 * time.Millisecond)
	if !bytes.Equal(before, there.Bytes(0, 4096)) {
		t.Error("a WRITE landed after Deregister")
	}
	w.f.Fail("b0", "ibv_modify_qp", never, 0)
	w.f.Fail("b0", "ibv_destroy_qp", never, 0)
	eventually(t, "the device is not closed", func() bool { return w.f.Objects("b0") == verbsfake.Objects{} })
}

// Whoever deregisters at the same time as somebody else hears that it is done when it is.
func TestReviewNothingIsRegisteredWithADeviceThatIsClosed(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{})
	r := w.b.region(4096, both)
	d := w.b.openDevices()[0]
	if err := d.deregisterAll(); err != nil {
		t.Fatal(err)
	}
	if err := d.register(r); err == nil {
		t.Error("a region was registered with a device that is being closed")
	}
	if n := w.f.Objects("b0").MRs; n != 0 {
		t.Errorf("%d registrations keep the device from being closed", n)
	}
}

// Devices use keys of registrations again, the fake after 128 of them. A peer that does not
// know yet that a region is closed must not hit the one that has its key now.
func TestReviewKeysThatAreUsedAgain(t *testing.T) {
	const size = 4 << 20 // regions begin within 2 MiB, so that all of them have the middle
	w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour})
	here, old := w.a.region(4096, memory.None), w.b.region(size, both)
	stale := w.b.remote(old)
	if err := w.b.Deregister(old); err != nil {
		t.Fatal(err)
	}
	for range 127 {
		r := w.b.region(4096, both)
		if err := errors.Join(w.b.Deregister(r), r.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	there := w.b.region(size, both)
	was, err1 := parseKey(stale.Key["rdma"])
	is, err2 := parseKey(w.b.Key(there))
	if err1 != nil || err2 != nil || is.devices[0].rkey != was.devices[0].rkey {
		t.Fatalf("no key was used again, the test shows nothing: %+v, %+v", was, is)
	}
	before := bytes.Clone(there.Bytes(0, size))
	copy(here.Bytes(0, 4096), bytes.Repeat([]byte("bad!"), 1024))
	err := w.dial().do(requestOf(transport.Write, span(here, 0, stale, size/2, 4096)))
	if !errors.Is(err, transport.ErrRefused) || !bytes.Equal(before, there.Bytes(0, size)) {
		t.Errorf("a WRITE with the key of a closed region: %v", err)
	}
}

// One session does not use up what all peers and our own lanes need.
func TestReviewOneSessionCannotTakeAll(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour, MaxQueuePairs: 100})
	port, generation := w.b.Offers()[0].Port, w.b.openDevices()[0].generation
	flood := func(session byte) (n int, err error) {
		for id := range transport.ConnID(100) {
			q := connectRequest()
			q.target, q.generation = port, generation
			q.toGID, q.from.gid = g(0, v2, "10.0.0.2", 0).raw(), g(0, v2, "10.0.0.1", 0).raw()
			from := transport.Origin{Session: transport.SessionID{session}, Conn: id, Name: fmt.Sprint("peer ", session)}
			if _, err := w.b.Accept(t.Context(), from, q.encode()); err != nil {
				return n, err
			}
			n += len(q.qps)
			if _, err := w.b.Accept(t.Context(), from, (&request{kind: askArrived}).encode()); err != nil {
				return n, err
			}
		}
		return n, nil
	}
	for session := range byte(3) {
		n, err := flood(session + 10)
		if n == 0 || n > 25 || !errors.Is(err, ErrBudget) {
			t.Errorf("session %d got %d of 100 queue pairs, and then: %v", session, n, err)
		}
	}
	w.works(w.dial())
	for session := range byte(3) {
		if err := w.b.LeaveAll(t.Context(), transport.SessionID{session + 10}); err != nil {
			t.Error(err)
		}
	}
}

// A device that fails while it takes requests: those that it may have are told apart from
// those that it never got, and each ends once.
func TestReviewPostThatFails(t *testing.T) {
	for verb, mayLand := range map[string]bool{"ibv_post_send": false, verbsfake.Unnamed: true} {
		w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour, QueuePairs: 1})
		here, there := w.a.region(1<<16, memory.None), w.b.region(1<<16, both)
		e := w.dial()
		w.f.Stall("a0", true)
		var list []*transport.Request
		for i := range int64(5) {
			list = append(list, requestOf(transport.Write, span(here, i*4096, w.b.remote(there), i*8192, 4096)))
		}
		e.post(list[:2]...)
		w.f.Fail("a0", verb, 1, syscall.EINVAL)
		e.post(list[2:]...)
		says(t, e.waitLost(), "the device takes no requests")
		for i, r := range list {
			if c := e.ended(r); !errors.Is(c.Err, transport.ErrClosed) || c.MayLand != (mayLand || i < 2) {
				t.Errorf("%s: request %d ended with %+v", verb, i, c)
			}
		}
		if n, done := e.conn.Post(list[:1], nil); n != 0 || len(done) != 0 {
			t.Errorf("%s: %d requests were taken after Lost", verb, n)
		}
	}
}

// Everything that can end a connection, at any moment: each request that was taken ends
// once, none after Lost, and no byte of a READ comes after its end.
func TestReviewEachRequestEndsOnce(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	w := newWorld(t, verbsfake.Options{KeepCompletions: true}, Options{KeepAlive: 2 * time.Millisecond, Depth: 8, FlushTime: 2 * time.Millisecond})
	here, there := w.a.region(1<<18, memory.None), w.b.region(1<<18, both)
	remote := w.b.remote(there)
	for round := range rounds {
		e, d := w.request()
		var lost atomic.Bool
		events := d.Events
		d.Events.Done = func(c transport.Conn, list []transport.Completion) {
			if lost.Load() {
				t.Error("a completion came after Lost")
			}
			events.Done(c, list)
		}
		d.Events.Lost = func(c transport.Conn, err error) {
			lost.Store(true)
			events.Lost(c, err)
		}
		d.Remote = w.b.Offers()[0]
		c, err := w.a.Dial(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		e.conn = c
		var wg sync.WaitGroup
		var taken atomic.Int64
		for k := range 3 {
			wg.Go(func() {
				for i := range 200 {
					op := transport.Op(1 + (i+k)%2)
					r := requestOf(op, span(here, int64(k)<<16, remote, int64(k)<<16, int64(i%5)*1000))
					n, done := c.Post([]*transport.Request{r}, nil)
					taken.Add(int64(n))
					e.events().Done(c, done)
					if n == 0 && lost.Load() {
						return
					}
				}
			})
		}
		wg.Go(func() {
			time.Sleep(time.Duration(round%7) * 100 * time.Microsecond)
			switch round % 5 {
			case 0:
				c.Close(nil)
			case 1:
				w.f.Inject("a0", 1, verbs.WCRetryExceeded, 0)
			case 2:
				w.f.Inject("a0", 1, verbs.WCRemoteAccess, 0)
				time.Sleep(time.Millisecond)
				c.Close(nil)
			case 3:
				w.f.Fail("a0", "ibv_post_send", 1, syscall.EINVAL)
				time.Sleep(2 * time.Millisecond)
				w.f.Fail("a0", "ibv_post_send", never, 0)
				c.Close(nil)
			case 4:
				for _, p := range w.b.ends.Select(nil) {
					_ = p.end()
				}
			}
		})
		wg.Wait()
		c.Close(nil)
		_ = e.waitLost()
		w.f.Inject("a0", 0, 0, 0) // what was not used
		after := bytes.Clone(here.Bytes(0, 1<<18))
		e.mu.Lock()
		if n := len(e.done); int64(n) != taken.Load() {
			t.Fatalf("round %d: %d of %d requests that were taken have ended", round, n, taken.Load())
		}
		e.mu.Unlock()
		time.Sleep(time.Millisecond)
		if !bytes.Equal(after, here.Bytes(0, 1<<18)) {
			t.Fatalf("round %d: our memory changed after Lost", round)
		}
	}
}
