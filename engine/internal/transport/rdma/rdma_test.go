//go:build cgo && linux && (amd64 || arm64)

package rdma

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/transporttest"
	"github.com/topoctl/topoctl/internal/verbs"
	"github.com/topoctl/topoctl/internal/verbs/verbsfake"
)

// The options' budgets are those of both sides, and what ends gives back.
func TestBudgets(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{MaxQueuePairs: 4, KeepAlive: time.Hour})
	first, second := w.dial(), w.dial()
	_, err := w.try()
	if !errors.Is(err, ErrBudget) {
		t.Errorf("the third connection: %v", err)
	}
	says(t, err, "a0", "all 4 queue pairs are in use", "raise the limit")
	second.Conn.Close(nil)
	_ = second.WaitLost()
	eventually(t, "the peer has not ended it", func() bool { return w.b.Served().Conns == 1 })
	w.works(w.dial())
	w.works(first)

	// The peer has less than we have.
	w = newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour})
	tight := newHost(t, w.f, Options{MaxQueuePairs: 3}, "b0")
	w.b = tight
	_ = w.dial()
	_, err = w.try()
	says(t, err, "all 3 queue pairs are in use", `accept from "a"`)
	w.works(w.dial2Last(t))

	// The completion queue is what is used up.
	devices := ethernetDevices()
	devices[0].Limits = verbs.DeviceLimits{MaxCQE: 300}
	w = newWorld(t, verbsfake.Options{Devices: devices}, Options{KeepAlive: time.Hour})
	_ = w.dial()
	_, err = w.try()
	says(t, err, "the completion queue of 300 entries has no room for a queue pair of 129")
}

// dial2Last finds the connection that is there.
func (w *world) dial2Last(t *testing.T) *end {
	t.Helper()
	for _, c := range w.a.conns(nil) {
		e := transporttest.NewClient(t)
		e.Conn = c
		c.mu.Lock()
		c.reports.Events = e.Events()
		c.mu.Unlock()
		return e
	}
	t.Fatal("there is no connection")
	return nil
}

// What the hardware may do with a region is what was granted, whatever a peer says.
func TestGrantsBindTheHardware(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour})
	here := w.a.region(4096, memory.None)
	for _, c := range []struct {
		grant memory.Grant
		op    transport.Op
		ok    bool
	}{
		{memory.PeerRead, transport.Read, true}, {memory.PeerRead, transport.Write, false},
		{memory.PeerWrite, transport.Write, true}, {memory.PeerWrite, transport.Read, false},
	} {
		there := w.b.region(4096, c.grant)
		remote := w.b.remote(there)
		// A lie about the grant, which only the device can find out.
		remote.Key["rdma"] = strings.Replace(remote.Key["rdma"], " "+grantNames[c.grant]+" ", " rw ", 1)
		e := w.dial()
		before := bytes.Clone(there.Bytes(0, 4096))
		err := e.Do(requestOf(c.op, span(here, 0, remote, 0, 4096)))
		if c.ok != (err == nil) || err != nil && !errors.Is(err, transport.ErrRefused) {
			t.Errorf("op %d on a region that grants %s: %v", c.op, c.grant, err)
		}
		if !c.ok && !bytes.Equal(before, there.Bytes(0, 4096)) {
			t.Errorf("a region that grants %s was written", c.grant)
		}
		w.works(e)
	}
}

// A region for local use alone has no key that any device knows.
func TestLocalRegionsHaveNoKeys(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{})
	r := w.b.region(4096, memory.None)
	remote := w.b.remote(r)
	if got, want := remote.Key["rdma"], "1 4096 -"; got != want {
		t.Errorf("its key is %q, want %q", got, want)
	}
	if w.a.Reaches(remote) {
		t.Error("it can be reached")
	}
	shared := w.b.region(4096, both)
	open := w.b.remote(shared)
	if !w.a.Reaches(open) {
		t.Errorf("a region with the key %q cannot be reached", open.Key["rdma"])
	}
	// Addresses are not given away: what is above the place within a page is drawn.
	k, err := parseKey(open.Key["rdma"])
	at := uint64(shared.Block().Address())
	if err != nil || k.devices[0].iova&iovaMask != at&iovaMask || k.devices[0].iova&(iovaApart-1)&^iovaMask != 0 ||
		k.devices[0].iova/iovaApart == at/iovaApart {
		t.Errorf("key %+v, %v: an address of the process", k, err)
	}
	if w.a.Reaches(&transport.RemoteRegion{Key: map[string]string{"rdma": "nonsense"}}) || w.a.Reaches(&transport.RemoteRegion{}) {
		t.Error("a region without a key can be reached")
	}
}

func TestRegionsThatAreClosed(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour})
	here, mine, there := w.a.region(4096, memory.None), w.a.region(4096, memory.None), w.b.region(4096, both)
	remote := w.b.remote(there)
	e := w.dial()
	if err := w.a.Deregister(mine); err != nil {
		t.Fatal(err)
	}
	err := e.Do(requestOf(transport.Write, span(mine, 0, remote, 0, 10)))
	if !errors.Is(err, transport.ErrRefused) || !errors.Is(err, memory.ErrClosed) {
		t.Errorf("a region of ours that is closed: %v", err)
	}
	// One that is closed while it is in use.
	other := w.a.region(4096, memory.None)
	w.f.Stall("a0", true)
	r := requestOf(transport.Write, span(other, 0, remote, 0, 10))
	behind := requestOf(transport.Write, span(here, 100, remote, 100, 50))
	e.Post(r, behind)
	if err := w.a.Deregister(other); err != nil {
		t.Fatal(err)
	}
	w.f.Stall("a0", false)
	if c := e.Ended(r); !errors.Is(c.Err, memory.ErrClosed) || !errors.Is(c.Err, transport.ErrRefused) {
		t.Errorf("a region that was closed in use: %+v", c)
	}
	if c := e.Ended(behind); c.Err != nil {
		t.Errorf("the request behind it: %+v", c)
	}
	if err := w.b.Deregister(there); err != nil {
		t.Fatal(err)
	}
	err = e.Do(requestOf(transport.Read, span(here, 0, remote, 0, 10)))
	if !errors.Is(err, transport.ErrRefused) || !errors.Is(err, memory.ErrNoRegion) {
		t.Errorf("a region of the peer that is closed: %v", err)
	}
	w.works(e)
	if w.b.Key(there) != "" {
		t.Errorf("a closed region has the key %q", w.b.Key(there))
	}
}

// A READ that gets no answer is asked about: if the peer's end is broken it is
// replaced, else the connection is lost.
func TestReadWithoutAnswer(t *testing.T) {
	for _, broken := range []bool{false, true} {
		w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour})
		here, there := w.a.region(4096, memory.None), w.b.region(4096, both)
		e := w.dial()
		if broken {
			for _, p := range w.b.ends.Select(nil) {
				for _, qp := range p.qps {
					if err := qp.SetError(); err != nil {
						t.Fatal(err)
					}
				}
			}
		} else {
			w.f.Drop("a0", 1)
		}
		r := requestOf(transport.Read, span(here, 0, w.b.remote(there), 0, 4096))
		err := e.Do(r)
		if !broken {
			says(t, err, "no answer from the peer's port")
			says(t, e.WaitLost(), "no answer from the peer's port")
			continue
		}
		if err != nil || !bytes.Equal(here.Bytes(0, 4096), there.Bytes(0, 4096)) {
			t.Errorf("over the queue pair that was replaced: %v", err)
		}
	}
}

func TestForgottenDial(t *testing.T) {
	for arrive := 150 * time.Millisecond; !forgottenDial(t, arrive); arrive *= 4 {
		t.Logf("the machine took longer than %v", arrive)
	}
}

// forgottenDial is false where the machine was too slow for that ArriveTime.
func forgottenDial(t *testing.T, arrive time.Duration) bool {
	began := time.Now()
	w := newWorld(t, verbsfake.Options{}, Options{ArriveTime: arrive})
	_, d := w.request()
	q := connectRequest()
	q.target, q.generation = w.b.Offers()[0].Port, w.b.openDevices()[0].generation
	q.toGID, q.from.gid = g(0, v2, "10.0.0.2", 0).raw(), g(0, v2, "10.0.0.1", 0).raw()
	if _, err := d.Exchange(t.Context(), q.encode()); err != nil {
		t.Fatal(err)
	}
	n := w.b.Served().Conns
	_, err := d.Exchange(t.Context(), q.encode())
	if time.Since(began) > arrive/2 {
		return false
	}
	if n != 1 {
		t.Errorf("%d connections", n)
	}
	if err == nil {
		t.Error("a connection was accepted twice")
	}
	eventually(t, "a connection that did not arrive is still there", func() bool { return w.b.Served().Conns == 0 })
	// One that works stays.
	began = time.Now()
	e := w.dial()
	if time.Since(began) > arrive/2 {
		return false
	}
	time.Sleep(arrive + 50*time.Millisecond)
	w.works(e)
	return true
}

func TestHostileAccepts(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour})
	port, generation := w.b.Offers()[0].Port, w.b.openDevices()[0].generation
	good := func() *request {
		q := connectRequest()
		q.target, q.generation = port, generation
		q.toGID, q.from.gid = g(0, v2, "10.0.0.2", 0).raw(), g(0, v2, "10.0.0.1", 0).raw()
		return q
	}
	for _, c := range []struct {
		change func(q *request)
		says   string
	}{
		{func(q *request) { q.target = "port:b7/1" }, `port "port:b7/1" is not open here`},
		{func(q *request) { q.target = topo.ID(strings.Repeat("x", 255)) }, "is not open here"},
		{func(q *request) { q.generation++ }, "device b0 was opened again"},
		{func(q *request) { q.toGID = q.from.gid }, "port b0/1 has no GID 10.0.0.1"},
		{func(q *request) { q.from.kind = v1; q.toGID[0] = 9 }, "has no GID"},
		{func(q *request) { q.from.link, q.from.global, q.from.lid = verbs.LinkInfiniBand, false, 3 }, "port b0/1 is Ethernet, the peer's InfiniBand"},
		{func(q *request) { q.kind, q.slot, q.qps = askReplace, 0, q.qps[:1] }, "there is no connection"},
		{func(q *request) { q.kind = askArrived }, "there is no connection"},
	} {
		_, d := w.request()
		q := good()
		c.change(q)
		_, err := d.Exchange(t.Context(), q.encode())
		says(t, err, `accept from "a"`, c.says)
	}
	if n := w.b.Served().Conns; n != 0 {
		t.Errorf("%d connections were made", n)
	}
	_, d := w.request()
	if _, err := d.Exchange(t.Context(), good().encode()); err != nil {
		t.Fatal(err)
	}
	for _, q := range []*request{
		{kind: askReplace, slot: 2, qps: []qpEnd{{1, 1}}}, {kind: askReplace, slot: 255, qps: []qpEnd{{1, 1}}},
		{kind: askRenew, slot: 1, qps: []qpEnd{{1, 1}}},
	} {
		if _, err := d.Exchange(t.Context(), q.encode()); err == nil {
			t.Errorf("%+v was taken", q)
		}
	}
	if _, err := d.Exchange(t.Context(), (&request{kind: askEnd}).encode()); err != nil {
		t.Error(err)
	}
	eventually(t, "it is not ended", func() bool { return w.b.Served().Conns == 0 })
}

func TestMemlock(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{})
	w.f.Memlock("a0", 1<<16)
	b, err := memory.Alloc(1<<20, memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.a.regions.Add(b, "cache", "", both)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.a.Register(r)
	says(t, err, "a0", `region "cache"`, "ibv_reg_mr", "lock")
	// A device that cannot take a region of this size at all.
	devices := ethernetDevices()
	devices[0].Limits.MaxMRBytes = 4096
	w = newWorld(t, verbsfake.Options{Devices: devices}, Options{})
	b, err = memory.Alloc(1<<20, memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err = w.a.regions.Add(b, "cache", "", both); err != nil {
		t.Fatal(err)
	}
	_, err = w.a.Register(r)
	says(t, err, "registers at most 4096 bytes at once: make several regions")
}

// exported is device memory that a memfd stands for.
type exported struct {
	memory.DeviceMemory
	file *os.File
	err  error
}

func (e *exported) Device() string   { return "gpu:0" }
func (e *exported) Location() string { return "gpu:0" }
func (e *exported) Free() error      { return nil }
func (e *exported) DMABuf() (int, int64, error) {
	if e.err != nil {
		return -1, 0, e.err
	}
	fd, err := unix.FcntlInt(e.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	return fd, 4096, err
}

func TestDeviceMemory(t *testing.T) {
	devices := ethernetDevices()
	devices[1].DMABuf = true
	w := newWorld(t, verbsfake.Options{Devices: devices}, Options{KeepAlive: time.Hour})
	fd, err := unix.MemfdCreate("gpu", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "gpu")
	defer func() { _ = file.Close() }()
	if err := file.Truncate(1 << 20); err != nil {
		t.Fatal(err)
	}
	add := func(h *host, m memory.DeviceMemory) *memory.Region {
		b, err := memory.OnDevice(m, 1<<16)
		if err != nil {
			t.Fatal(err)
		}
		r, err := h.regions.Add(b, "", "gpu:0", both)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Register(r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	there := add(w.b, &exported{file: file})
	if !w.b.Direct(there) || !w.a.Reaches(w.b.remote(there)) {
		t.Errorf("exported memory has the key %q", w.b.Key(there))
	}
	here := w.a.region(4096, memory.None)
	e := w.dial()
	if err := e.Do(requestOf(transport.Write, span(here, 0, w.b.remote(there), 100, 4096))); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4096)
	if _, err := file.ReadAt(got, 4096+100); err != nil || !bytes.Equal(got, here.Bytes(0, 4096)) {
		t.Errorf("what was written is not in the device's memory (%v)", err)
	}
	// What cannot be exported, or not to this device, is left to others without an error.
	for h, m := range map[*host]*exported{w.a: {file: file}, w.b: {err: fmt.Errorf("an old driver: %w", memory.ErrNoExport)}} {
		r := add(h, m)
		if h.Key(r) != "" || h.Direct(r) {
			t.Errorf("memory that is not exported has the key %q", h.Key(r))
		}
	}
}

func TestSpansAreGathered(t *testing.T) {
	devices := ethernetDevices()
	for i := range devices {
		devices[i].Ports[0].MaxMsgBytes = 8192
	}
	w := newWorld(t, verbsfake.Options{Devices: devices}, Options{QueuePairs: 1, KeepAlive: time.Hour})
	here, there := w.a.region(1<<20, memory.None), w.b.region(1<<20, both)
	remote := w.b.remote(there)
	e := w.dial()
	s := e.Conn.(*conn).slots[0]
	for _, c := range []struct {
		name  string
		works int
		spans []transport.Span
	}{
		{"one", 1, []transport.Span{span(here, 0, remote, 0, 4096)}},
		{"gathered for one range of the peer", 1, []transport.Span{span(here, 0, remote, 0, 100), span(here, 500, remote, 100, 100), span(here, 50, remote, 200, 7)}},
		{"one piece on both sides", 1, []transport.Span{span(here, 0, remote, 0, 100), span(here, 100, remote, 100, 100)}},
		{"apart at the peer", 2, []transport.Span{span(here, 0, remote, 0, 100), span(here, 100, remote, 200, 100)}},
		{"above the largest message", 3, []transport.Span{span(here, 0, remote, 0, 8192*2+1)}},
		{"more pieces than a work request has", 2, func() (list []transport.Span) {
			for i := range int64(maxSGE + 1) {
				list = append(list, span(here, i*200, remote, i*100, 100))
			}
			return list
		}()},
		{"filled up and gone on", 2, []transport.Span{span(here, 0, remote, 0, 8000), span(here, 9000, remote, 8000, 400)}},
		{"empty", 0, []transport.Span{span(here, 0, remote, 0, 0)}},
	} {
		for _, op := range []transport.Op{transport.Write, transport.Read} {
			s.c.mu.Lock()
			before := s.tail
			s.c.mu.Unlock()
			if err := e.Do(requestOf(op, c.spans...)); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			s.c.mu.Lock()
			if n := int(s.tail - before); n != c.works {
				t.Errorf("%s: %d work requests, want %d", c.name, n, c.works)
			}
			s.c.mu.Unlock()
			for _, x := range c.spans {
				if !bytes.Equal(here.Bytes(x.LocalOffset, x.Bytes), there.Bytes(x.RemoteOffset, x.Bytes)) {
					t.Errorf("%s: bytes are wrong", c.name)
				}
			}
		}
	}
}

// Short WRITEs are copied when they are posted: their place may be changed at once, but
// for the contract, and their key does not count.
func TestInline(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{Inline: 128, KeepAlive: time.Hour})
	here, there := w.a.region(4096, memory.None), w.b.region(4096, both)
	remote := w.b.remote(there)
	e := w.dial()
	w.f.Stall("a0", true)
	before := bytes.Clone(here.Bytes(0, 4096))
	short := requestOf(transport.Write, span(here, 0, remote, 0, 60), span(here, 300, remote, 60, 68))
	long := requestOf(transport.Write, span(here, 1000, remote, 1000, 129))
	e.Post(short, long)
	clear(here.Bytes(0, 4096))
	w.f.Stall("a0", false)
	if err := errors.Join(e.Ended(short).Err, e.Ended(long).Err); err != nil {
		t.Fatal(err)
	}
	want := append(bytes.Clone(before[:60]), before[300:368]...)
	if !bytes.Equal(there.Bytes(0, 128), want) || !bytes.Equal(there.Bytes(1000, 129), make([]byte, 129)) {
		t.Error("the short WRITE was not copied when it was posted, or the long one was")
	}
	w.works(e)
}

func TestDescribeAndPorts(t *testing.T) {
	devices := []verbsfake.Device{verbsfake.RoCE("a0", 1, "10.0.0.1"), verbsfake.RoCE("a1", 2, "10.0.0.3"), verbsfake.RoCE("b0", 3, "10.0.0.2")}
	w := newWorld(t, verbsfake.Options{Devices: devices}, Options{KeepAlive: time.Hour})
	ports := w.a.LocalPorts()
	if len(ports) != 2 || ports[0].ID != "port:a0/1" || ports[1].Name != "a1/1" || ports[0].BytesPerSec != 12_500_000_000 {
		t.Errorf("local ports %+v", ports)
	}
	offer := w.b.Offers()[0]
	if offer.Port != "port:b0/1" || offer.Transport != "rdma" {
		t.Errorf("offer %+v", offer)
	}
	for _, p := range ports {
		if err := w.a.PortReaches(p.ID, offer); err != nil {
			t.Error(err)
		}
		e, d := w.request()
		d.LocalPort, d.Remote = p.ID, offer
		c, err := w.a.Dial(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		e.Conn = c
		w.works(e)
		says(t, errors.New(c.Describe()), "rdma "+p.Name+" > b0/1", "RoCE v2", "> 10.0.0.2", "MTU 4096, 2 queue pairs of 128, 16 READs", "no checksum")
	}
	says(t, w.a.PortReaches("port:a9/1", offer), `no port "port:a9/1" is open here`)
	offer.Address = "nonsense"
	says(t, w.a.PortReaches("port:a0/1", offer), "endpoint")
	e, d := w.request()
	_ = e
	d.LocalPort, d.Remote = "port:a9/1", w.b.Offers()[0]
	_, err := w.a.Dial(t.Context(), d)
	says(t, err, "is open here")
}

// waiter is over when a request is.
type waiter struct {
	over  atomic.Bool
	brief bool
	mu    sync.Mutex
	wake  func()
}

func (w *waiter) Over() bool { return w.over.Load() }

func (w *waiter) Brief() bool { return w.brief }

func (w *waiter) Asleep(wake func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wake = wake
	return wake == nil || !w.over.Load()
}

// end ends the wait as somebody else does.
func (w *waiter) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over.Store(true)
	if w.wake != nil {
		w.wake()
	}
}

func TestPoll(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour})
	here, there := w.a.region(4096, memory.None), w.b.region(4096, both)
	remote := w.b.remote(there)
	e, d := w.request()
	d.Remote = w.b.Offers()[0]
	var wait waiter
	d.Events.Done = func(_ transport.Conn, list []transport.Completion) { wait.end() }
	c, err := w.a.Dial(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	e.Conn = c
	for range 200 {
		wait.over.Store(false)
		if n, _ := c.Post([]*transport.Request{requestOf(transport.Write, span(here, 0, remote, 0, 64))}, nil); n != 1 {
			t.Fatal("the request was not taken")
		}
		for start := time.Now(); !wait.Over(); {
			c.(transport.Poller).Poll(&wait)
			if time.Since(start) > patience {
				t.Fatal("the request has not ended")
			}
		}
	}
}

// Connections of several hosts, devices that go away and come back, and regions that
// come and go, all at the same time: nothing is lost, and nothing is left.
func TestEverythingAtOnce(t *testing.T) {
	w := newWorld(t, verbsfake.Options{Devices: []verbsfake.Device{
		verbsfake.RoCE("a0", 1, "10.0.0.1"), verbsfake.RoCE("a1", 2, "10.0.0.3"),
		verbsfake.RoCE("b0", 3, "10.0.0.2"), verbsfake.RoCE("b1", 4, "10.0.0.4")}}, Options{Watch: 2 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex // of the world
	moved := atomic.Int64{}
	all.Go(func() { // a while, and longer where nothing has moved by then
		for time.Sleep(300 * time.Millisecond); moved.Load() == 0 && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		}
		cancel()
	})
	for range 4 {
		here, there := w.a.region(1<<14, memory.None), w.b.region(1<<14, both)
		all.Go(func() {
			for ctx.Err() == nil {
				mu.Lock()
				e, d := w.request()
				mu.Unlock()
				offers := w.b.Offers()
				if len(offers) == 0 {
					continue
				}
				d.Remote = offers[int(d.Conn)%len(offers)]
				c, err := w.a.Dial(ctx, d)
				if err != nil {
					continue
				}
				e.Conn = c
				for range 20 {
					r := requestOf(transport.Write, span(here, 0, w.b.remote(there), 0, 1<<14))
					if e.TryPost([]*transport.Request{r}) == 0 {
						break
					}
					// It fails where its key is of another life of the device.
					if e.Ended(r).Err == nil {
						moved.Add(1)
						if !bytes.Equal(here.Bytes(0, 1<<14), there.Bytes(0, 1<<14)) {
							t.Error("bytes are wrong")
						}
					}
				}
				c.Close(nil)
				_ = e.WaitLost()
				err = errors.Join(w.a.Deregister(here), w.b.Deregister(there))
				for _, h := range []*host{w.a, w.b} {
					_, again := h.Register(map[*host]*memory.Region{w.a: here, w.b: there}[h])
					err = errors.Join(err, again)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			w.b.hide(fmt.Sprintf("b%d", i%2))
			time.Sleep(10 * time.Millisecond)
			w.b.hide()
			w.f.SetPort("a1", 1, verbs.PortDown)
			time.Sleep(10 * time.Millisecond)
			w.f.SetPort("a1", 1, verbs.PortActive)
		}
	})
	all.Wait()
	if moved.Load() == 0 {
		t.Error("nothing was moved")
	}
	t.Logf("%d requests moved", moved.Load())
}
