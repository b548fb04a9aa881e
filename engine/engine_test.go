package engine

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/fake"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/pathsel"
)

// within bounds what a test waits for; it is for liveness only.
const within = time.Minute

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	t.Cleanup(cancel)
	return ctx
}

func newEngine(t testing.TB, o Options) *Engine {
	t.Helper()
	e, err := New(context.Background(), o)
	must(t, err)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e
}

// networkLanes makes fake transports for several engines, and keeps them for tests.
type network struct {
	*fake.Network
	mu sync.Mutex
	by map[string]*faked // by engine and transport
}

func newNetwork() *network { return &network{Network: fake.NewNetwork(), by: map[string]*faked{}} }

// faked is a fake transport that offers itself to peers, and whose Leave can be
// held up.
type faked struct {
	*fake.Transport
	mu    sync.Mutex
	leave chan struct{} // not nil: Leave waits for it
	left  int
}

func (f *faked) Offers() []transport.Endpoint {
	return []transport.Endpoint{f.Transport.Endpoint("")}
}

func (f *faked) Leave(ctx context.Context, from transport.Origin, conn transport.ConnID) error {
	if err := f.held(ctx); err != nil {
		return err
	}
	return f.Transport.Leave(ctx, from, conn)
}

func (f *faked) LeaveAll(ctx context.Context, session transport.SessionID) error {
	if err := f.held(ctx); err != nil {
		return err
	}
	return f.Transport.LeaveAll(ctx, session)
}

func (f *faked) held(ctx context.Context) error {
	f.mu.Lock()
	wait := f.leave
	f.left++
	f.mu.Unlock()
	if wait == nil {
		return nil
	}
	select {
	case <-wait:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// transport is for Options.Transports.
func (n *network) transport(o fake.Options) TransportFactory {
	return &transport.Factory{Make: func(env transport.Env) (transport.Transport, error) {
		o.Changed = env.Changed
		f := &faked{Transport: n.Network.Transport(fmt.Sprintf("%s/%s/%d", env.Name, o.Name, env.Epoch), env.Regions, o)}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.by[env.Name+"/"+f.Name()] = f
		if o.Ports != nil {
			return fake.Ported{Transport: f.Transport}, nil
		}
		return f, nil
	}}
}

func (n *network) of(engine, name string) *faked {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.by[engine+"/"+name]
}

// pair is a client that has opened a server, with a region on each side.
type pair struct {
	client, server *Engine
	at             string // where the server is opened, "" at its own address
	peer           *Peer
	mine           *Region // of the client
	theirs         *Region // of the server
	to             *RemoteRegion
}

func newPair(t testing.TB, size int64, client, server Options) *pair {
	t.Helper()
	if server.Name == "" {
		server.Name = "server"
	}
	if client.Name == "" {
		client.Name = "client"
	}
	p := &pair{server: newEngine(t, server)}
	p.client = newEngine(t, client)
	p.join(t, size)
	return p
}

// join makes the regions, and opens the server.
func (p *pair) join(t testing.TB, size int64) {
	t.Helper()
	var err error
	p.theirs, err = p.server.Alloc(size, RegionOptions{Name: "kv", Grant: memory.PeerRead | memory.PeerWrite})
	must(t, err)
	p.mine, err = p.client.Alloc(size, RegionOptions{Name: "mine"})
	must(t, err)
	p.open(t, testContext(t))
}

func (p *pair) open(t testing.TB, ctx context.Context) {
	t.Helper()
	var err error
	p.peer, err = p.client.Open(ctx, cmp.Or(p.at, p.server.Addrs()[0].String()))
	must(t, err)
	p.to, err = p.peer.Region(ctx, "kv")
	must(t, err)
}

// submit starts a batch, which is not refused.
func (p *pair) submit(t testing.TB, ctx context.Context, ops []Op, o SubmitOptions) *Batch {
	t.Helper()
	b, err := p.peer.Submit(ctx, ops, o)
	must(t, err)
	return b
}

// run is submit, and waits until all bytes are in place.
func (p *pair) run(t testing.TB, ctx context.Context, ops []Op, o SubmitOptions) *Batch {
	t.Helper()
	b := p.submit(t, ctx, ops, o)
	if err := b.Wait(ctx); err != nil {
		t.Fatalf("%v\n%s", err, b.Explain().Text())
	}
	return b
}

// fakePair is a pair over fake transports.
func fakePair(t testing.TB, size int64, o fake.Options) (*pair, *network) {
	t.Helper()
	if o.Name == "" {
		o.Name = "fake"
	}
	n := newNetwork()
	list := []TransportFactory{n.transport(o)}
	return newPair(t, size, Options{Transports: list}, Options{Transports: list}), n
}

// randomize fills both regions.
func (p *pair) randomize(seed uint64) {
	src := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = src.Read(p.mine.Bytes())
	_, _ = src.Read(p.theirs.Bytes())
}

// checkLeaks fails a test after which goroutines are left; it is called first.
func checkLeaks(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		deadline := time.Now().Add(within)
		for runtime.NumGoroutine() > before {
			if time.Now().After(deadline) {
				stacks := make([]byte, 1<<20)
				t.Errorf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

// eventually waits until something holds.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// model moves the bytes of an op as simply as possible.
func model(ops []Op, local, remote []byte) {
	for _, o := range ops {
		l := Layout{Bytes: o.Local.Length, Count: 1}
		if o.Layout != nil {
			l = *o.Layout
		}
		for k := range l.Count {
			at := func(stride int64, pages []uint32) int64 {
				if stride == 0 {
					stride = l.Bytes
				}
				if pages != nil {
					return int64(pages[k]) * stride
				}
				return int64(k) * stride
			}
			here := local[o.Local.Offset+at(l.LocalStride, l.LocalPages):][:l.Bytes]
			there := remote[o.Remote.Offset+at(l.RemoteStride, l.RemotePages):][:l.Bytes]
			if o.Kind == Read {
				copy(here, there)
			} else {
				copy(there, here)
			}
		}
	}
}

func equal(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: byte %d is %#x, want %#x", what, i, got[i], want[i])
		}
	}
}

func shuffled(n int, seed uint64) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(i)
	}
	rand.New(rand.NewPCG(seed, 1)).Shuffle(n, func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func TestBatches(t *testing.T) {
	const size = 1 << 20
	layout := func(read bool, l Layout, here, there int64) func(*pair) []Op {
		return func(p *pair) []Op {
			return []Op{{Kind: kindOf(read), Local: p.mine.Span(here, 0), Remote: p.to.At(there), Layout: &l}}
		}
	}
	one := func(read bool, n, here, there int64) func(*pair) []Op {
		return func(p *pair) []Op {
			return []Op{{Kind: kindOf(read), Local: p.mine.Span(here, n), Remote: p.to.At(there)}}
		}
	}
	scatter := func(read bool, n int, bytes int64) func(*pair) []Op {
		return func(p *pair) []Op {
			ops := make([]Op, n)
			for i, page := range shuffled(n, 7) {
				ops[i] = Op{Kind: kindOf(read), Local: p.mine.Span(int64(i)*bytes, bytes), Remote: p.to.At(int64(page) * bytes)}
			}
			return ops
		}
	}
	type test struct {
		name string
		ops  func(*pair) []Op
	}
	var tests []test
	for _, read := range []bool{false, true} {
		for _, n := range []int64{0, 1, 4095, 4096, 100_001, size} {
			tests = append(tests, test{fmt.Sprintf("%s %d", kindOf(read).String(), n), one(read, n, (size-n)/2, (size-n)/3)})
		}
		tests = append(tests,
			test{kindOf(read).String() + " nothing", layout(read, Layout{Bytes: 100, Count: 0}, 0, 0)},
			test{kindOf(read).String() + " strides", layout(read, Layout{Bytes: 1000, Count: 200, LocalStride: 3001, RemoteStride: 1000}, 17, 5)},
			test{kindOf(read).String() + " many strides", layout(read, Layout{Bytes: 7, Count: 20_000, LocalStride: 9, RemoteStride: 50}, 1, 2)},
			test{kindOf(read).String() + " pages", layout(read, Layout{Bytes: 4096, Count: 200, LocalPages: shuffled(200, 1), RemotePages: shuffled(200, 2)}, 0, 0)},
			test{kindOf(read).String() + " pages and strides", layout(read, Layout{Bytes: 100, Count: 2000, LocalStride: 200, RemoteStride: 500, RemotePages: shuffled(2000, 3)}, 3, 4)},
			test{kindOf(read).String() + " 10,000 ops", scatter(read, 10_000, 104)},
		)
	}
	tests = append(tests, test{"reads and writes", func(p *pair) []Op {
		var ops []Op
		for i := range int64(100) {
			ops = append(ops, Op{Kind: kindOf(i%2 == 0), Local: p.mine.Span(i*5000, 5000), Remote: p.to.At((99 - i) * 5000)})
		}
		return ops
	}})
	for _, name := range []string{"fake", "tcp", "shm"} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			p := transportPair(t, name, size)
			ctx := testContext(t)
			for i, test := range tests {
				p.randomize(uint64(i))
				ops := test.ops(p)
				local, remote := bytes.Clone(p.mine.Bytes()), bytes.Clone(p.theirs.Bytes())
				model(ops, local, remote)
				b, err := p.peer.Submit(ctx, ops, SubmitOptions{Transport: pathsel.Transport(name), Check: CheckAlways, HighPriority: i%2 == 0})
				if err != nil {
					t.Fatalf("%s: %v", test.name, err)
				}
				if err := b.Wait(ctx); err != nil {
					t.Fatalf("%s: %v", test.name, err)
				}
				equal(t, test.name+": local", p.mine.Bytes(), local)
				equal(t, test.name+": remote", p.theirs.Bytes(), remote)
				if x := b.Progress(); !x.Done || x.Bytes != x.Total {
					t.Errorf("%s: progress %+v after the end", test.name, x)
				}
			}
		})
	}
}

// transportPair is a pair over one transport, by its name.
func transportPair(t testing.TB, name string, size int64) *pair {
	t.Helper()
	if name == "fake" {
		p, _ := fakePair(t, size, fake.Options{MaxSpans: 5, MaxBytes: 10_000})
		return p
	}
	list := []TransportFactory{TCP()}
	if name == "shm" {
		if runtime.GOOS != "linux" {
			t.Skip("shared memory is for Linux")
		}
		list = []TransportFactory{SHM()}
	}
	return newPair(t, size, Options{Transports: list}, Options{Transports: list})
}

func TestConcurrentBatches(t *testing.T) {
	checkLeaks(t)
	const each, n = 10_000, 100
	for _, name := range []string{"tcp", "shm"} {
		t.Run(name, func(t *testing.T) {
			p := transportPair(t, name, each*n)
			p.randomize(1)
			ctx := testContext(t)
			want := bytes.Clone(p.mine.Bytes())
			var wg sync.WaitGroup
			for i := range int64(n) {
				wg.Go(func() {
					ok(t, p.peer.Write(ctx, p.mine.Span(i*each, each), p.to.At(i*each)))
				})
			}
			wg.Wait()
			equal(t, "remote", p.theirs.Bytes(), want)
			clear(p.mine.Bytes())
			for i := range int64(n) {
				wg.Go(func() {
					ok(t, p.peer.Read(ctx, p.mine.Span(i*each, each), p.to.At(i*each)))
				})
			}
			wg.Wait()
			equal(t, "local", p.mine.Bytes(), want)
			if s := p.client.Stats(); s.Batches != 2*n || s.Failed != 0 {
				t.Errorf("%d batches, %d failed, want %d and none", s.Batches, s.Failed, 2*n)
			}
		})
	}
}

// One process may open itself, and move memory from one of its regions to another.
func TestOpenSelf(t *testing.T) {
	checkLeaks(t)
	e := newEngine(t, Options{})
	ctx := testContext(t)
	a, err := e.Alloc(100_000, RegionOptions{Name: "a"})
	must(t, err)
	b, err := e.Alloc(100_000, RegionOptions{Name: "b", Grant: memory.PeerWrite})
	must(t, err)
	p, err := e.Open(ctx, e.Addrs()[0].String())
	must(t, err)
	to, err := p.Region(ctx, "b")
	must(t, err)
	rand.NewChaCha8([32]byte{1}).Read(a.Bytes())
	must(t, p.Write(ctx, a.All(), to.At(0)))
	equal(t, "b", b.Bytes(), a.Bytes())
}

func TestReadAtWriteAt(t *testing.T) {
	checkLeaks(t)
	p, _ := fakePair(t, 3<<20, fake.Options{})
	p.randomize(1)
	data := bytes.Repeat([]byte("topoctl "), 200_000) // more than one buffer
	if n, err := p.to.WriteAt(data, 11); n != len(data) || err != nil {
		t.Fatal(n, err)
	}
	equal(t, "remote", p.theirs.Bytes()[11:][:len(data)], data)
	got := make([]byte, len(data))
	if n, err := p.to.ReadAt(got, 11); n != len(data) || err != nil {
		t.Fatal(n, err)
	}
	equal(t, "local", got, data)
	if n, err := p.to.ReadAt(got[:100], 3<<20-10); n != 10 || err == nil || err.Error() != "EOF" {
		t.Errorf("at the end: %d, %v", n, err)
	}
	if n, err := p.to.ReadAt(got[:100], 3<<20); n != 0 || err == nil || err.Error() != "EOF" {
		t.Errorf("after the end: %d, %v", n, err)
	}
	if _, err := p.to.WriteAt(got[:100], 3<<20-10); err == nil || !strings.Contains(err.Error(), "outside the region") {
		t.Errorf("write over the end: %v", err)
	}
	for _, r := range p.client.Regions() {
		if r.Name() != "mine" {
			t.Errorf("region %q is listed", r.Name())
		}
	}
}
