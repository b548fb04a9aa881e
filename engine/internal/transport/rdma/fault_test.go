//go:build cgo && linux && (amd64 || arm64)

package rdma

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"

	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/verbs"
	"github.com/topoctl/topoctl/internal/verbs/verbsfake"
)

// says is what an error must tell.
func says(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one with %q", words)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error %q does not say %q", err, w)
		}
	}
}

func TestEveryStatusHasCauseAndAdvice(t *testing.T) {
	for status, s := range statusSayings {
		if status == verbs.WCFlushed || s.what == "" || s.advice == "" {
			continue
		}
		t.Run(s.what, func(t *testing.T) {
			w := newWorld(t, verbsfake.Options{}, Options{QueuePairs: 1, KeepAlive: time.Hour})
			here, there := w.a.region(1<<16, memory.None), w.b.region(1<<16, both)
			remote := w.b.remote(there)
			e := w.dial()
			w.f.Stall("a0", true)
			bad, behind := requestOf(transport.Write, span(here, 0, remote, 0, 100)), requestOf(transport.Write, span(here, 200, remote, 200, 100))
			w.f.Inject("a0", 1, status, 0x77)
			e.Post(bad, behind)
			w.f.Stall("a0", false)
			c := e.Ended(bad)
			if status == verbs.WCRemoteAccess {
				if !errors.Is(c.Err, transport.ErrRefused) || !errors.Is(c.Err, memory.ErrNoRegion) || c.MayLand {
					t.Errorf("access that was refused ended with %+v", c)
				}
				says(t, c.Err, "a0/1", "peer's b0/1", s.what, s.advice)
				// The region counts as gone, so the one behind is refused too.
				if err := e.Ended(behind).Err; !errors.Is(err, memory.ErrNoRegion) {
					t.Errorf("the request behind it: %v", err)
				}
				w.works(e)
				e.Conn.Close(nil)
				if err := e.WaitLost(); err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(c.Err, transport.ErrClosed) || errors.Is(c.Err, transport.ErrRefused) || !c.MayLand {
				t.Errorf("it ended with %+v", c)
			}
			says(t, c.Err, "a0/1", "peer's b0/1", s.what, s.advice, "vendor error 0x77")
			says(t, e.Ended(behind).Err, s.what)
			says(t, e.WaitLost(), "a0/1", "peer's b0/1", s.what, s.advice)
		})
	}
}

func TestVerbErrorsSayWhatToDo(t *testing.T) {
	for _, c := range []struct {
		dev, verb string
		nth       int
		errno     syscall.Errno
		says      []string
	}{
		{"a0", "ibv_create_qp", 1, syscall.ENOMEM, []string{"a0", "no queue pair", "ibv_create_qp"}},
		{"a0", "ibv_create_qp", 2, syscall.EINVAL, []string{"a0", "no queue pair"}},
		{"b0", "ibv_create_qp", 1, syscall.ENOMEM, []string{"b0", "no queue pair", "accept from"}},
		{"a0", "ibv_modify_qp", 1, syscall.EINVAL, []string{"a0/1 to the peer's b0/1", "GID index 3"}},
		{"b0", "ibv_modify_qp", 2, syscall.ENETUNREACH, []string{"b0/1", "no route from GID 10.0.0.2 to 10.0.0.1"}},
		{"a0", "ibv_modify_qp", 3, syscall.ETIMEDOUT, []string{"a0/1 to the peer's b0/1", "no answer for the address 10.0.0.2"}},
		{"a0", "ibv_modify_qp", 4, syscall.EHOSTUNREACH, []string{"no route"}},
		{"a0", "ibv_modify_qp", 5, syscall.ENODEV, []string{"the device is gone"}},
		{"a0", "ibv_modify_qp", 3, syscall.ENOMEM, []string{"no room"}},
		{"a0", "ibv_post_send", 1, syscall.EINVAL, []string{"a0/1 to the peer's b0/1", "the device takes no requests"}},
	} {
		t.Run(c.dev+" "+c.verb+" "+c.errno.Error(), func(t *testing.T) {
			w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour})
			w.f.Fail(c.dev, c.verb, c.nth, c.errno)
			_, err := w.try()
			says(t, err, c.says...)
			if !errors.Is(err, c.errno) {
				t.Errorf("%v: want it to be %v", err, c.errno)
			}
			w.works(w.dial()) // and nothing is left behind, which the fabric checks
		})
	}
}

func TestRegistrationErrorsSayWhatToDo(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOMEM, syscall.EFAULT, syscall.EINVAL} {
		w := newWorld(t, verbsfake.Options{Devices: []verbsfake.Device{
			verbsfake.RoCE("a0", 1, "10.0.0.1"), verbsfake.RoCE("a1", 2, "10.0.1.1"), verbsfake.RoCE("b0", 3, "10.0.0.2")}}, Options{})
		b, err := memory.Alloc(1<<16, memory.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := w.a.regions.Add(b, "weights", "", both)
		if err != nil {
			t.Fatal(err)
		}
		w.f.Fail("a1", "ibv_reg_mr", 1, errno)
		_, err = w.a.Register(r)
		says(t, err, "a1", `region "weights" of 65536 bytes cannot be registered`, "ibv_reg_mr")
		if !errors.Is(err, errno) {
			t.Errorf("%v: want %v", err, errno)
		}
		if n := w.f.Objects("a0").MRs; n != 0 || w.a.Key(r) != "" {
			t.Errorf("%d registrations are left on the other device, the key is %q", n, w.a.Key(r))
		}
	}
}

func TestOpeningErrors(t *testing.T) {
	if _, err := New(Options{}, verbsfake.New(verbsfake.Options{}).Lib(), nil); !errors.Is(err, ErrUnavailable) || !errors.Is(err, transport.ErrUnavailable) {
		t.Errorf("no device: %v", err)
	} else if want := "rdma: RDMA verbs are not available: no RDMA device on this host"; err.Error() != want {
		t.Errorf("no device: %q, want %q", err, want)
	}
	// verbs' own words come once.
	for _, err := range []error{
		unavailable{fmt.Errorf("%w: load the module", verbs.ErrUnavailable)}, unavailable{errors.New("load the module")},
	} {
		if err.Error() != "RDMA verbs are not available: load the module" {
			t.Errorf("%q", err)
		}
	}
	f := newFabric(t, verbsfake.Options{Devices: ethernetDevices()})
	_, err := New(Options{Devices: []string{"mlx5_9"}}, f.Lib(), nil)
	says(t, err, "no RDMA device named mlx5_9: this host has a0, b0")
	if strings.Contains(err.Error(), "not available") {
		t.Errorf("RDMA is available, and it says %q", err)
	}
	for _, verb := range []string{"ibv_open_device", "ibv_alloc_pd", "ibv_create_cq", "ibv_query_port"} {
		f.Fail("a0", verb, 1, syscall.EACCES)
		_, err := New(Options{}, f.Lib("a0"), nil)
		if !errors.Is(err, ErrUnavailable) || !errors.Is(err, syscall.EACCES) {
			t.Errorf("%s: %v", verb, err)
		}
		says(t, err, "a0", verb)
	}
	// One that cannot be opened costs the others nothing, and is tried again.
	f.Fail("a0", "ibv_open_device", 1, syscall.EACCES)
	h := newHost(t, f, Options{})
	says(t, h.Problems()["a0"], "ibv_open_device")
	eventually(t, "the device is not used", func() bool { return len(h.Offers()) == 2 && h.changed.Load() > 0 })
	if len(h.Problems()) != 0 {
		t.Errorf("problems %v", h.Problems())
	}
}

// lossOf has something happen to a connection with requests on it that do not move.
func lossOf(t *testing.T, w *world, e *end, happen func(), words ...string) {
	t.Helper()
	here, there := w.a.region(1<<16, memory.None), w.b.region(1<<16, both)
	remote := w.b.remote(there)
	w.f.Stall("a0", true)
	r := requestOf(transport.Read, span(here, 0, remote, 0, 4096))
	e.Post(r)
	happen()
	c := e.Ended(r)
	if !errors.Is(c.Err, transport.ErrClosed) || c.MayLand {
		t.Errorf("the READ ended with %+v", c)
	}
	says(t, e.WaitLost(), words...)
	w.f.Stall("a0", false)
}

func TestEventsEndConnections(t *testing.T) {
	gids := []verbs.GID{{Index: 3, Raw: g(0, 0, "10.0.0.9", 0).raw(), Type: verbs.GIDRoCEv2}}
	for _, c := range []struct {
		name   string
		happen func(w *world)
		back   func(w *world) // nil: it is still there
		says   []string
	}{
		{"port down", func(w *world) { w.f.SetPort("a0", 1, verbs.PortDown) }, func(w *world) { w.f.SetPort("a0", 1, verbs.PortActive) }, []string{"a0/1 to the peer's b0/1", "our port went down"}},
		{"GID gone", func(w *world) { w.f.SetGIDs("a0", 1, gids) }, nil, []string{"a0/1 to the peer's b0/1", "our GID is gone"}},
		{"queue pair fatal", func(w *world) {
			for _, c := range w.a.conns(nil) {
				w.f.QPEvent("a0", c.slots[0].number, verbs.EventQPFatal)
			}
		}, nil, []string{"a0/1 to the peer's b0/1", "fatal error of a queue pair"}},
		{"completion queue", func(w *world) { w.a.openDevices()[0].event(verbs.Event{Type: verbs.EventCQErr}) }, nil, []string{"a0", "completion queue error"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour, Watch: 10 * time.Millisecond})
			e := w.dial()
			lossOf(t, w, e, func() { c.happen(w) }, c.says...)
			if c.back != nil {
				eventually(t, "the port is still offered", func() bool { return len(w.a.LocalPorts()) == 0 })
				_, err := w.try()
				says(t, err, "no port is active here")
				c.back(w)
			}
			eventually(t, "the port is not offered again", func() bool { return len(w.a.Offers()) == 1 })
			eventually(t, "the port does not work again", func() bool {
				e, err := w.try()
				if err == nil {
					w.works(e)
				}
				return err == nil
			})
		})
	}
}

func TestEventsOfInfiniBandPorts(t *testing.T) {
	devices := []verbsfake.Device{verbsfake.InfiniBand("a0", 1, 7), verbsfake.InfiniBand("b0", 2, 9)}
	w := newWorld(t, verbsfake.Options{Devices: devices}, Options{KeepAlive: time.Hour})
	e := w.dial()
	w.works(e)
	lossOf(t, w, e, func() { w.f.SetLID("a0", 1, 8, 1) }, "a0/1 to the peer's b0/1", "our LID changed")
	w.works(w.dial())
	// An event that changes nothing for a connection leaves it alone.
	e = w.dial()
	w.f.Event("a0", verbs.EventSMChange, 1)
	w.f.Event("a0", verbs.EventPKeyChange, 1)
	w.works(e)
}

func TestDeviceThatFailsTakesItsConnectionsAlong(t *testing.T) {
	w := newWorld(t, verbsfake.Options{Devices: []verbsfake.Device{
		verbsfake.RoCE("a0", 1, "10.0.0.1"), verbsfake.RoCE("a1", 2, "10.0.0.3"), verbsfake.RoCE("b0", 3, "10.0.0.2")}}, Options{Watch: time.Hour})
	e := w.dial()
	lossOf(t, w, e, func() { w.f.Fatal("a0") }, "a0", "the device", "failed", "see the kernel log")
	if n := len(w.a.LocalPorts()); n != 1 {
		t.Errorf("%d local ports are left", n)
	}
	w.works(w.dial()) // over the other one
}

func TestDeviceThatComesBack(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{Watch: 5 * time.Millisecond})
	here, there := w.a.region(1<<16, memory.None), w.b.region(1<<16, both)
	old, oldPort := w.b.remote(there), w.b.Offers()[0]
	e := w.dial()
	w.b.hide("b0")
	if err := e.WaitLost(); err == nil {
		t.Error("the peer's device was removed, and Lost has no error")
	}
	eventually(t, "the device is still held", func() bool { return w.f.Objects("b0") == verbsfake.Objects{} })
	eventually(t, "nobody was told", func() bool { return w.b.changed.Load() > 0 })
	if len(w.b.Offers()) != 0 {
		t.Errorf("b offers %v", w.b.Offers())
	}
	w.b.hide()
	eventually(t, "the device is not used again", func() bool { return len(w.b.Offers()) == 1 })
	_, d := w.request()
	d.Remote = oldPort
	if _, err := w.a.Dial(t.Context(), d); err == nil {
		t.Error("the endpoint of an earlier life was dialled")
	} else {
		says(t, err, "device b0 was opened again")
	}
	e = w.dial()
	// The old key is of another life of the device: not refused for ever, but not now.
	err := e.Do(requestOf(transport.Write, span(here, 0, old, 0, 10)))
	if !errors.Is(err, transport.ErrClosed) || errors.Is(err, transport.ErrRefused) {
		t.Errorf("with the old key: %v", err)
	}
	says(t, err, "no key for the peer's device")
	if err := e.Do(requestOf(transport.Write, span(here, 0, w.b.remote(there), 0, 10))); err != nil {
		t.Errorf("with the new key: %v", err)
	}
	if !bytes.Equal(here.Bytes(0, 10), there.Bytes(0, 10)) {
		t.Error("what was written is not there")
	}
}

// A device of which nothing comes any more: only Close ends the connection, and does.
func TestSilentDevice(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour})
	here, there := w.a.region(1<<16, memory.None), w.b.region(1<<16, both)
	remote := w.b.remote(there)
	e := w.dial()
	w.f.Silence("a0", true)
	write, read := requestOf(transport.Write, span(here, 0, remote, 0, 4096)), requestOf(transport.Read, span(here, 8192, remote, 8192, 4096))
	e.Post(write, read)
	if time.Sleep(20 * time.Millisecond); e.LostNow() {
		t.Fatalf("lost by itself: %v", e.WaitLost())
	}
	stalled := errors.New("nothing moves")
	e.Conn.Close(stalled)
	if err := e.WaitLost(); err != nil {
		t.Errorf("after Close, Lost says %v", err)
	}
	if c := e.Ended(write); !errors.Is(c.Err, stalled) || !errors.Is(c.Err, transport.ErrClosed) || !c.MayLand {
		t.Errorf("the WRITE ended with %+v", c)
	}
	if c := e.Ended(read); !errors.Is(c.Err, stalled) || c.MayLand {
		t.Errorf("the READ ended with %+v", c)
	}
	before := bytes.Clone(here.Bytes(0, 1<<16))
	w.leave(e)
	w.f.Silence("a0", false)
	time.Sleep(5 * time.Millisecond)
	if !bytes.Equal(before, here.Bytes(0, 1<<16)) {
		t.Error("our memory changed after Lost")
	}
	w.works(w.dial())
}

// A WRITE that is in the network when its connection ends lands later, unless the peer
// has left: the peer is not told here that the connection is over.
func TestLateWriteIsFenced(t *testing.T) {
	for _, leave := range []bool{false, true} {
		w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour})
		here, there := w.a.region(4096, memory.None), w.b.region(4096, both)
		e := w.dial()
		w.lossy.Store(true)
		w.f.Hold("a0", true)
		r := requestOf(transport.Write, span(here, 0, w.b.remote(there), 0, 4096))
		e.Post(r)
		eventually(t, "the WRITE has not left", func() bool { return w.f.Held("a0") == 1 })
		before := bytes.Clone(there.Bytes(0, 4096))
		e.Conn.Close(nil)
		_ = e.WaitLost()
		if c := e.Ended(r); c.Err == nil || !c.MayLand {
			t.Errorf("the WRITE ended with %+v", c)
		}
		if leave {
			w.leave(e)
		}
		w.f.Hold("a0", false)
		w.f.Release("a0")
		if !leave {
			eventually(t, "the late WRITE did not land: the test shows nothing", func() bool {
				return bytes.Equal(here.Bytes(0, 4096), there.Bytes(0, 4096))
			})
			continue
		}
		time.Sleep(5 * time.Millisecond)
		if !bytes.Equal(before, there.Bytes(0, 4096)) {
			t.Error("a WRITE landed after the peer had left")
		}
	}
}

func TestLeaveIsHonestWhereDestroyingTakesLong(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour})
	e := w.dial()
	w.f.DestroyDelay("b0", 200*time.Millisecond)
	ctx, cancel := context.WithDeadline(t.Context(), time.Now()) // it has no time at all
	defer cancel()
	err := w.b.Leave(ctx, w.origin(e.Conn.ID()), e.Conn.ID())
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("leave: %v", err)
	}
	says(t, err, `peer "a"`, "b0 has not confirmed")
	w.leave(e)
	w.f.DestroyDelay("b0", 0)
}

func TestLeaveIsTriedAgain(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour, QueuePairs: 1})
	e := w.dial()
	w.f.Fail("b0", "ibv_destroy_qp", 1, syscall.EBUSY)
	err := w.b.Leave(t.Context(), w.origin(e.Conn.ID()), e.Conn.ID())
	if !errors.Is(err, syscall.EBUSY) {
		t.Errorf("leave: %v", err)
	}
	says(t, err, "its queue pairs are not gone", "ibv_destroy_qp")
	if n := w.b.Served().Conns; n != 1 {
		t.Errorf("%d connections are counted", n)
	}
	w.leave(e)
	if n := w.b.Served().Conns; n != 0 {
		t.Errorf("%d connections are counted after leave", n)
	}
}

func TestOwnQueuePairThatIsNotDestroyedAtOnce(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour, QueuePairs: 1})
	e := w.dial()
	w.f.Fail("a0", "ibv_destroy_qp", 1, syscall.EBUSY)
	e.Conn.Close(nil)
	if err := e.WaitLost(); err != nil {
		t.Error(err)
	}
}

// always and never are for Fail.
const (
	always = -1
	never  = 0
)

// On a device that was removed, ending anything fails with EIO for ever, because the kernel has ended it already. Leave
// succeeds once that is so and not before, and everything comes to its end.
func TestRemovedDeviceIsLeftAndClosed(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour, Watch: 10 * time.Millisecond})
	here, there := w.a.region(4096, memory.None), w.b.region(4096, both)
	e := w.dial()
	w.lossy.Store(true)
	w.f.Hold("a0", true)
	r := requestOf(transport.Write, span(here, 0, w.b.remote(there), 0, 4096))
	e.Post(r)
	eventually(t, "the WRITE has not left", func() bool { return w.f.Held("a0") == 1 })
	w.f.Remove("b0", false)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := w.b.Leave(ctx, w.origin(e.Conn.ID()), e.Conn.ID()); err == nil {
		t.Error("the peer has left a connection whose queue pairs still take WRITEs")
	}
	w.f.Remove("b0", true)
	eventually(t, "the connection is never left", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return w.b.Leave(ctx, w.origin(e.Conn.ID()), e.Conn.ID()) == nil
	})
	eventually(t, "the device is not closed", func() bool { return w.f.Objects("b0") == verbsfake.Objects{} })
	if err := w.b.Deregister(there); err != nil {
		t.Errorf("deregister: %v", err)
	}
	before := bytes.Clone(there.Bytes(0, 4096))
	w.f.Hold("a0", false)
	w.f.Release("a0")
	if c := e.Ended(r); c.Err == nil {
		t.Error("a WRITE to a removed device succeeded")
	}
	if !bytes.Equal(before, there.Bytes(0, 4096)) {
		t.Error("a WRITE landed after Leave")
	}
}

// The same for the end that dials: its READs come back, and nothing is left.
func TestRemovedDeviceEndsConnections(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour, Watch: 10 * time.Millisecond})
	here, there := w.a.region(4096, memory.None), w.b.region(4096, both)
	e := w.dial()
	w.f.Stall("a0", true)
	r := requestOf(transport.Read, span(here, 0, w.b.remote(there), 0, 4096))
	e.Post(r)
	w.f.Remove("a0", true)
	if c := e.Ended(r); !errors.Is(c.Err, transport.ErrClosed) {
		t.Errorf("the READ ended with %+v", c)
	}
	_ = e.WaitLost()
	eventually(t, "the device is not closed", func() bool { return w.f.Objects("a0") == verbsfake.Objects{} })
}

// A READ's memory is not given back while its queue pair may write there.
func TestReadWaitsForItsQueuePair(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour, QueuePairs: 1, FlushTime: time.Millisecond})
	here, there := w.a.region(4096, memory.None), w.b.region(4096, both)
	e := w.dial()
	w.lossy.Store(true)
	w.f.Stall("a0", true)
	r := requestOf(transport.Read, span(here, 0, w.b.remote(there), 0, 4096))
	e.Post(r)
	w.f.Fail("a0", "ibv_modify_qp", always, syscall.EBUSY)
	w.f.Fail("a0", "ibv_destroy_qp", always, syscall.EBUSY)
	e.Conn.Close(nil)
	time.Sleep(time.Second) // longer than 10 tries
	over := e.HasEnded(r)
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
	_ = e.WaitLost()
}

// A passive queue pair that cannot be destroyed at once keeps its device from being closed
// only until it can.
func TestDeviceClosesAfterDestroyFailed(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour, QueuePairs: 1, Watch: 5 * time.Millisecond})
	_ = w.dial()
	w.lossy.Store(true)
	w.f.Fail("b0", "ibv_destroy_qp", 1, syscall.EBUSY)
	w.b.hide("b0")
	eventually(t, "the device is not closed", func() bool { return w.f.Objects("b0") == verbsfake.Objects{} })
}

// A transport whose queue pairs cannot be destroyed closes all the same, and says so.
func TestCloseGivesUp(t *testing.T) {
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
func TestDeregisterIsTriedAgain(t *testing.T) {
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
func TestDeregisterWhileTheDeviceIsClosed(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour, Watch: 5 * time.Millisecond})
	here, there := w.a.region(4096, memory.None), w.b.region(4096, both)
	e := w.dial()
	w.lossy.Store(true)
	w.f.Hold("a0", true)
	e.Post(requestOf(transport.Write, span(here, 0, w.b.remote(there), 0, 4096)))
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

// A device that is being closed takes no more regions: they would keep it from being closed.
func TestNothingIsRegisteredWithADeviceThatIsClosed(t *testing.T) {
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
func TestKeysThatAreUsedAgain(t *testing.T) {
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
	err := w.dial().Do(requestOf(transport.Write, span(here, 0, stale, size/2, 4096)))
	if !errors.Is(err, transport.ErrRefused) || !bytes.Equal(before, there.Bytes(0, size)) {
		t.Errorf("a WRITE with the key of a closed region: %v", err)
	}
}

// A device that fails while it takes requests: those that it may have are told apart from
// those that it never got, and each ends once.
func TestPostThatFails(t *testing.T) {
	for verb, mayLand := range map[string]bool{"ibv_post_send": false, verbsfake.Unnamed: true} {
		w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour, QueuePairs: 1})
		here, there := w.a.region(1<<16, memory.None), w.b.region(1<<16, both)
		e := w.dial()
		w.f.Stall("a0", true)
		var list []*transport.Request
		for i := range int64(5) {
			list = append(list, requestOf(transport.Write, span(here, i*4096, w.b.remote(there), i*8192, 4096)))
		}
		e.Post(list[:2]...)
		w.f.Fail("a0", verb, 1, syscall.EINVAL)
		e.Post(list[2:]...)
		says(t, e.WaitLost(), "the device takes no requests")
		for i, r := range list {
			if c := e.Ended(r); !errors.Is(c.Err, transport.ErrClosed) || c.MayLand != (mayLand || i < 2) {
				t.Errorf("%s: request %d ended with %+v", verb, i, c)
			}
		}
		if n, done := e.Conn.Post(list[:1], nil); n != 0 || len(done) != 0 {
			t.Errorf("%s: %d requests were taken after Lost", verb, n)
		}
	}
}

// Everything that can end a connection, at any moment: each request that was taken ends
// once, none after Lost, and no byte of a READ comes after its end.
func TestEachRequestEndsOnce(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	w := newWorld(t, verbsfake.Options{KeepCompletions: true}, Options{KeepAlive: 2 * time.Millisecond, Depth: 8, FlushTime: 2 * time.Millisecond})
	here, there := w.a.region(1<<18, memory.None), w.b.region(1<<18, both)
	remote := w.b.remote(there)
	for round := range rounds {
		e := w.dial()
		c := e.Conn
		var wg sync.WaitGroup
		for k := range 3 {
			wg.Go(func() {
				for i := range 200 {
					op := transport.Op((i + k + 1) % 2)
					r := requestOf(op, span(here, int64(k)<<16, remote, int64(k)<<16, int64(i%5)*1000))
					if e.TryPost([]*transport.Request{r}) == 0 && e.LostNow() {
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
		_ = e.WaitLost()
		w.f.Inject("a0", 0, 0, 0) // what was not used
		after := bytes.Clone(here.Bytes(0, 1<<18))
		time.Sleep(time.Millisecond)
		if !bytes.Equal(after, here.Bytes(0, 1<<18)) {
			t.Fatalf("round %d: our memory changed after Lost", round)
		}
	}
}
