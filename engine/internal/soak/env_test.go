package soak

import (
	"bytes"
	"context"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/fake"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/trust"
)

// length chooses how much a test does.
func length(short, normal, long int) int {
	switch {
	case os.Getenv("TOPOCTL_SOAK") == "long":
		return long
	case testing.Short():
		return short
	}
	return normal
}

var token = []byte("the token of the soak tests")

// world is two engines: a opens b.
type world struct {
	t    *testing.T
	a, b *engine.Engine
	peer *engine.Peer
}

// newWorld starts two engines, and looks for what they leave behind when the test
// ends.
func newWorld(t *testing.T, a, b engine.TransportFactory, check engine.Check) *world {
	t.Helper()
	watch(t)
	w := &world{t: t}
	// Closed engines do not count, though testing keeps functions that it has called.
	t.Cleanup(func() { w.a, w.b, w.peer = nil, nil, nil })
	start := func(name string, o engine.TransportFactory) *engine.Engine {
		e, err := engine.New(context.Background(), engine.Options{
			Name: name, Security: engine.Security{Credentials: trust.Secret(token)}, Transports: []engine.TransportFactory{o}, Check: check, ConnsPerLane: 16,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Errorf("closing engine %q: %v", name, err)
			}
			e = nil
		})
		return e
	}
	w.b = start("b", b)
	w.a = start("a", a)
	return w
}

// open opens b at its own address, or another one that leads there.
func (w *world) open(address string) {
	w.t.Helper()
	if address == "" {
		address = w.b.Addrs()[0].String()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	if w.peer, err = w.a.Open(ctx, address); err != nil {
		w.t.Fatal(err)
	}
}

// regions makes one region at each side.
func (w *world) regions(size int64) (local *engine.Region, there *engine.Region, remote *engine.RemoteRegion) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	if local, err = w.a.Alloc(size, engine.RegionOptions{Name: "local"}); err != nil {
		w.t.Fatal(err)
	}
	if there, err = w.b.Alloc(size, engine.RegionOptions{Name: "remote", Grant: memory.PeerRead | memory.PeerWrite}); err != nil {
		w.t.Fatal(err)
	}
	if remote, err = w.peer.Region(ctx, "remote"); err != nil {
		w.t.Fatal(err)
	}
	return local, there, remote
}

// watch makes sure that a test gives back goroutines, descriptors and memory. It is
// the first thing that a test does, so that it looks last.
func watch(t *testing.T) {
	t.Helper()
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		l.Close() // the runtime keeps the descriptors of its poller from the first listener on
	}
	goroutines, descriptors, heap := held()
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		var g, d int
		var h uint64
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if g, d, h = held(); g <= goroutines && d <= descriptors && h < heap+8<<20 {
				return
			}
		}
		stacks := make([]byte, 64<<10)
		t.Errorf("left behind: %d goroutines (before: %d), %d descriptors (%d), %d bytes of heap (%d)\n%s",
			g, goroutines, d, descriptors, h, heap, stacks[:runtime.Stack(stacks, true)])
	})
}

func held() (goroutines, descriptors int, heap uint64) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if names, err := os.ReadDir("/proc/self/fd"); err == nil {
		descriptors = len(names)
	}
	return runtime.NumGoroutine(), descriptors, m.HeapAlloc
}

// onFake are both ends of a network without wires; around goes around each.
func onFake(o fake.Options, around func(name string, t transport.Transport) transport.Transport) (a, b engine.TransportFactory) {
	n := fake.NewNetwork()
	end := &transport.Factory{Make: func(env transport.Env) (transport.Transport, error) {
		return around(env.Name, n.Transport(env.Name, env.Regions, o)), nil
	}}
	return end, end
}

// differ says where two ranges differ first, -1 nowhere.
func differ(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}
