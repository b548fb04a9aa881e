package mooncake

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"
)

// arena is memory at made-up addresses.
type arena struct {
	mu       sync.Mutex
	base     uint64
	bytes    []byte
	readOnly bool
	writes   int // calls of WriteAt
	after    func(writes int)
}

var errOutside = errors.New("outside the arena")

func newArena(base uint64, size int) *arena { return &arena{base: base, bytes: make([]byte, size)} }

func (a *arena) all() Range { return Range{a.base, uint64(len(a.bytes))} }

func (a *arena) Check(r Range, write bool) error {
	if size := uint64(len(a.bytes)); r.Address < a.base || r.Address-a.base > size || r.Length > size-(r.Address-a.base) || write && a.readOnly {
		return errOutside
	}
	return nil
}

func (a *arena) ReadAt(p []byte, address uint64) error {
	if err := a.Check(Range{address, uint64(len(p))}, false); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	copy(p, a.bytes[address-a.base:])
	return nil
}

func (a *arena) WriteAt(p []byte, address uint64) error {
	if err := a.Check(Range{address, uint64(len(p))}, true); err != nil {
		return err
	}
	a.mu.Lock()
	a.writes++
	n := a.writes
	copy(a.bytes[address-a.base:], p)
	a.mu.Unlock()
	if a.after != nil {
		a.after(n)
	}
	return nil
}

func (a *arena) fill(r *rand.Rand) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := 0; i < len(a.bytes); i += 8 {
		binary.LittleEndian.PutUint64(a.bytes[i:], r.Uint64())
	}
}

func (a *arena) copy() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return bytes.Clone(a.bytes)
}

// host is a node with its port.
type host struct {
	*Node
	port   net.Listener
	served chan struct{}
}

// start runs a node at an address ("" takes a free one) until the test ends, or stop.
func start(t testing.TB, address string, o Options) *host {
	t.Helper()
	if address == "" {
		address = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	o.Address = l.Addr().String()
	o.Listen = "127.0.0.1:0"
	if a := o.Offered.(*arena); o.Ranges == nil {
		o.Ranges = func() []Range { return []Range{a.all()} }
	}
	n, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{n, l, make(chan struct{})}
	go func() {
		defer close(h.served)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n.Serve(c)
		}
	}()
	t.Cleanup(h.stop)
	return h
}

func (h *host) stop() {
	_ = h.port.Close()
	<-h.served
	_ = h.Close()
}

// noLeak checks at the end of the test that all of its goroutines have ended.
func noLeak(t testing.TB) {
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				stacks := make([]byte, 1<<20)
				t.Errorf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
				return
			}
		}
	})
}

// randomOps are ranges of two arenas that do not overlap on either side.
func randomOps(r *rand.Rand, local, remote *arena) []Op {
	n := 1 + r.IntN(40)
	step := uint64(len(local.bytes) / n)
	var ops []Op
	for i := range uint64(n) {
		at, length := i*step, 1+r.Uint64N(step)
		shift := r.Uint64N(step - length + 1)
		ops = append(ops, Op{local.base + at + shift, remote.base + at, length})
	}
	r.Shuffle(len(ops), func(i, j int) { ops[i], ops[j] = ops[j], ops[i] })
	return ops
}

// apply is what a transfer must have done.
func apply(write bool, ops []Op, local, remote []byte, localBase, remoteBase uint64) {
	for _, op := range ops {
		l, r := local[op.Local-localBase:][:op.Length], remote[op.Remote-remoteBase:][:op.Length]
		if write {
			copy(r, l)
		} else {
			copy(l, r)
		}
	}
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
