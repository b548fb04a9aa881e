//go:build cgo && linux

package tcp

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	blocks "github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/memory/cuda"
	"github.com/topoctl/topoctl/internal/base/cuda/cudafake"
	"github.com/topoctl/topoctl/internal/base/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/stage"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
	"github.com/topoctl/topoctl/internal/base/engine/transport/transporttest"
)

// gpus are two GPUs of the fake libcuda, whose memory no processor can touch.
func gpus(t testing.TB, f cudafake.Options, staging int64) *cuda.Driver {
	t.Helper()
	lib, err := cudafake.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	d, err := cuda.Open(cuda.Options{Lib: lib, StagingBytes: staging})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if s := cudafake.Count(); s.Allocations+s.Pinned+s.Streams+s.Events+s.Contexts != 0 || s.UnpinnedCopies != 0 {
			t.Errorf("left behind, or copied through memory that is not pinned: %+v", s)
		}
	})
	return d
}

func onGPU(t testing.TB, d *cuda.Driver, name string, size int64) *memory.Block {
	t.Helper()
	g, err := d.GPU(name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := g.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	return (*memory.Block)(b)
}

// pointer is where a block is on its GPU.
func pointer(b *memory.Block) (uintptr, bool) { return cuda.Pointer((*blocks.Block)(b)) }

func peek(b *memory.Block, p []byte, off int64) {
	if at, ok := pointer(b); ok {
		cudafake.Peek(uint64(at)+uint64(off), p)
		return
	}
	copy(p, b.Bytes()[off:])
}

func poke(b *memory.Block, p []byte, off int64) {
	if at, ok := pointer(b); ok {
		cudafake.Poke(uint64(at)+uint64(off), p)
		return
	}
	copy(b.Bytes()[off:], p)
}

// deviceEnds are ends that stage, and let the driver go when the suite is done.
func deviceEnds(t testing.TB) *transporttest.Ends {
	a, regions := bare(t)
	b, theirs := bare(t)
	a.dial = plainDial
	m := newMiddle(t, (&side{Transport: b}).listen(t))
	return &transporttest.Ends{
		Active:  transporttest.End{Transport: stage.Wrap(a, regions), Regions: regions},
		Passive: transporttest.End{Transport: b, Regions: theirs, Endpoint: transport.Endpoint{Transport: "tcp", Address: m.l.Addr().String()}},
		Stall:   func(on bool) { m.set(func() { m.stalled = on }) },
		Hold: func(c transport.Conn) func() {
			name := c.(interface{ Unwrap() transport.Conn }).Unwrap().(*conn).link.conn.LocalAddr().String()
			m.set(func() { m.held[name] = true })
			return func() { m.set(func() { m.held[name] = false }) }
		},
		Restart: func(t testing.TB) transporttest.End {
			b, theirs := bare(t)
			address := (&side{Transport: b}).listen(t)
			return transporttest.End{Transport: b, Regions: theirs, Endpoint: transport.Endpoint{Transport: "tcp", Address: address}}
		},
	}
}

// All rules hold for memory of GPUs, on either side and on both. The pools are
// small, so that there are not buffers for everybody.
func TestConformanceOfDeviceMemory(t *testing.T) {
	for _, c := range []struct {
		name            string
		active, passive string // CUDA devices, "" for memory of the host
	}{
		{"active", "cuda:0", ""},
		{"passive", "", "cuda:1"},
		{"both", "cuda:0", "cuda:0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() && c.name != "both" {
				t.Skip("one of three with -short")
			}
			// The driver outlives the checks, which look for leaks of their own.
			d := gpus(t, cudafake.Options{}, 8*memory.PieceBytes)
			for _, name := range []string{"cuda:0", "cuda:1"} {
				b := onGPU(t, d, name, 1)
				for _, use := range []memory.Use{memory.ForRequests, memory.ForAnswers} {
					if _, err := memory.PoolOf(b.Device(), use); err != nil {
						t.Fatal(err)
					}
				}
				if err := b.Free(); err != nil {
					t.Fatal(err)
				}
			}
			transporttest.Run(t, transporttest.Harness{
				New: deviceEnds, Read: peek, Write: poke,
				RegionBytes: 2 << 20, Requests: 500, Cycles: 50,
				Alloc: func(t testing.TB, s transporttest.Side, size int64) *memory.Block {
					name := c.active
					if s == transporttest.PassiveSide {
						name = c.passive
					}
					if name != "" {
						return onGPU(t, d, name, size)
					}
					b, err := memory.Alloc(size, memory.Options{})
					if err != nil {
						t.Fatal(err)
					}
					return b
				},
			})
		})
	}
}

// gpuPair is a connection between GPU memory of two engines.
type gpuPair struct {
	a, b     *side
	c        *client
	local    *memory.Region
	remote   *memory.Region
	theirs   *transport.RemoteRegion
	wrapped  *stage.Transport
	contents []byte
}

func newGPUPair(t *testing.T, d *cuda.Driver, here, there string, size int64) *gpuPair {
	t.Helper()
	p := &gpuPair{a: newSide(t, Options{}), b: newSide(t, Options{})}
	var err error
	add := func(s *side, name string, grant memory.Grant) *memory.Region {
		if name == "" {
			return s.region(t, size, grant, memory.Options{})
		}
		r, err := s.regions.Add(onGPU(t, d, name, size), "", "", grant)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	p.local = add(p.a, here, memory.None)
	p.remote = add(p.b, there, memory.PeerRead|memory.PeerWrite)
	p.theirs = remote(p.remote)
	key, err := p.b.Register(p.remote)
	if err != nil {
		t.Fatal(err)
	}
	p.theirs.Key = map[string]string{"tcp": key}
	p.wrapped = stage.Wrap(p.a.Transport, p.a.regions)
	p.c = p.dial(t)
	p.contents = make([]byte, size)
	for i := range p.contents {
		p.contents[i] = byte(i>>10 ^ i*7)
	}
	poke(p.local.Block(), p.contents, 0)
	return p
}

func (p *gpuPair) dial(t *testing.T) *client {
	t.Helper()
	c := &client{done: make(chan transport.Completion, 4096), lost: make(chan error, 1)}
	p.a.dial = plainDial
	id := transport.ConnID(lastConn.Add(1))
	conn, err := p.wrapped.Dial(context.Background(), transport.Dial{
		Session: mySession, Conn: id,
		Remote: transport.Endpoint{Transport: "tcp", Address: p.b.listen(t)},
		Exchange: func(ctx context.Context, request []byte) ([]byte, error) {
			return p.b.Accept(ctx, transport.Origin{Session: mySession, Conn: id, Name: "a"}, request)
		},
		Events: transport.Events{
			Done: func(_ transport.Conn, list []transport.Completion) {
				for _, x := range list {
					c.done <- x
				}
			},
			Lost: func(_ transport.Conn, err error) { c.lost <- err },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Conn = conn
	return c
}

func (p *gpuPair) landed(t *testing.T) {
	t.Helper()
	got := make([]byte, len(p.contents))
	peek(p.remote.Block(), got, 0)
	if !bytes.Equal(got, p.contents) {
		t.Error("the peer's memory holds something else")
	}
}

// A WRITE is complete when its bytes are in the device's memory, not before; and
// while copies stand still, several are under way.
func TestWriteCompletesInDeviceMemory(t *testing.T) {
	d := gpus(t, cudafake.Options{}, 0)
	p := newGPUPair(t, d, "", "cuda:1", 4<<20)
	cudafake.Hold(true)
	p.c.post(t, request(transport.Write, p.local, 0, p.theirs, 0, 4<<20))
	eventually(t, "that several pieces wait for the device", func() bool { return cudafake.Count().MostQueued >= 4 })
	select {
	case x := <-p.c.done:
		t.Fatalf("complete while the copy to the device stands still: %v", x.Err)
	case <-time.After(50 * time.Millisecond):
	}
	cudafake.Hold(false)
	if x := p.c.next(t); x.Err != nil {
		t.Fatal(x.Err)
	}
	p.landed(t)
}

// One request keeps several buffers busy: pieces are copied while others are sent.
func TestPipeline(t *testing.T) {
	d := gpus(t, cudafake.Options{Delay: time.Millisecond}, 0)
	p := newGPUPair(t, d, "cuda:0", "cuda:1", 8<<20)
	if x := p.c.do(t, request(transport.Write, p.local, 0, p.theirs, 0, 8<<20)); x.Err != nil {
		t.Fatal(x.Err)
	}
	p.landed(t)
	if s := cudafake.Count(); s.MostQueued < 4 || s.Copies != 32 {
		t.Errorf("at most %d copies queued at a time, %d in all; want 4 and 32", s.MostQueued, s.Copies)
	}
	poke(p.local.Block(), make([]byte, 8<<20), 0)
	if x := p.c.do(t, request(transport.Read, p.local, 0, p.theirs, 0, 8<<20)); x.Err != nil {
		t.Fatal(x.Err)
	}
	got := make([]byte, 8<<20)
	peek(p.local.Block(), got, 0)
	if !bytes.Equal(got, p.contents) {
		t.Error("what was read is something else")
	}
}

// A device that fails costs the requests on its memory, with its name, and nothing
// else: neither the connection nor the other device.
func TestLostDevice(t *testing.T) {
	for _, where := range []string{"cuda:0", "cuda:1"} {
		d := gpus(t, cudafake.Options{}, 0)
		p := newGPUPair(t, d, "cuda:0", "cuda:1", 1<<20)
		host := p.a.region(t, 4096, memory.None, memory.Options{})
		there := p.b.region(t, 4096, memory.PeerRead|memory.PeerWrite, memory.Options{})
		if x := p.c.do(t, request(transport.Write, p.local, 0, p.theirs, 0, 1<<20)); x.Err != nil {
			t.Fatal(x.Err)
		}
		broken := 0
		if where == "cuda:1" {
			broken = 1
		}
		cudafake.Lose(broken, 214)
		for _, op := range []transport.Op{transport.Write, transport.Read} {
			for _, size := range []int64{100, 1 << 20} {
				x := p.c.do(t, request(op, p.local, 0, p.theirs, 0, size))
				if !errors.Is(x.Err, memory.ErrDevice) || x.MayLand || errors.Is(x.Err, transport.ErrRefused) != (broken == 1) {
					t.Errorf("%s lost, op %d of %d bytes: %v (may land: %v)", where, op, size, x.Err, x.MayLand)
				}
				if broken == 0 && !strings.Contains(x.Err.Error(), "GPU 0000:1b:00.0: cuda: CUDA device 0") {
					t.Errorf("the error does not name the device: %v", x.Err)
				}
			}
		}
		if x := p.c.do(t, request(transport.Write, host, 0, remote(there), 0, 4096)); x.Err != nil {
			t.Errorf("%s lost, and memory of the host: %v", where, x.Err)
		}
		cudafake.Lose(broken, 0)
		if x := p.c.do(t, request(transport.Read, p.local, 0, p.theirs, 0, 1<<20)); x.Err != nil {
			t.Errorf("after it came back: %v", x.Err)
		}
		closeAll(t, p)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

func closeAll(t *testing.T, p *gpuPair) {
	t.Helper()
	if err := p.wrapped.Close(); err != nil {
		t.Error(err)
	}
	closeSide(t, p.a)
	closeSide(t, p.b)
}

// A checksum is over the bytes, on their way through a device's buffers, too.
func TestChecksumOfDeviceMemory(t *testing.T) {
	d := gpus(t, cudafake.Options{}, 0)
	p := newGPUPair(t, d, "cuda:0", "cuda:1", 2<<20)
	r := request(transport.Write, p.local, 0, p.theirs, 0, 2<<20)
	r.Check = true
	if x := p.c.do(t, r); x.Err != nil {
		t.Fatal(x.Err)
	}
	p.landed(t)
	r = request(transport.Read, p.local, 0, p.theirs, 0, 2<<20)
	r.Check = true
	if x := p.c.do(t, r); x.Err != nil {
		t.Fatal(x.Err)
	}
}

// A peer that asks for more of device memory than a buffer holds breaks the rules.
func TestTooMuchOfDeviceMemory(t *testing.T) {
	d := gpus(t, cudafake.Options{}, 0)
	for _, op := range []transport.Op{transport.Read, transport.Write} {
		p := newGPUPair(t, d, "", "cuda:0", 2<<20)
		plain := dial(t, p.a, p.b, p.b.listen(t))
		if x := plain.do(t, request(op, p.local, 0, p.theirs, 0, memory.PieceBytes+1)); !errors.Is(x.Err, transport.ErrClosed) {
			t.Errorf("op %d: %v", op, x.Err)
		}
		eventually(t, "the breach to be counted", func() bool { return p.b.Dropped()["bytes"] == 1 })
		closeAll(t, p)
	}
}

// Where no staging buffers can be had, the region is not offered, and the error says
// why.
func TestNoStaging(t *testing.T) {
	d := gpus(t, cudafake.Options{PinnableBytes: 1 << 20}, 0)
	s := newSide(t, Options{})
	for grant, want := range map[memory.Grant]bool{memory.None: true, memory.PeerRead: false} {
		r, err := s.regions.Add(onGPU(t, d, "cuda:0", 4096), "", "", grant)
		if err != nil {
			t.Fatal(err)
		}
		key, err := s.Register(r)
		if (err == nil) != want || key != "" || !want && !strings.Contains(err.Error(), "cuMemHostRegister (33554432 bytes): CUDA_ERROR_OUT_OF_MEMORY") {
			t.Errorf("grant %v: key %q, %v", grant, key, err)
		}
	}
	closeSide(t, s)
}

func closeSide(t *testing.T, s *side) {
	t.Helper()
	if err := errors.Join(s.Close(), s.regions.Close()); err != nil {
		t.Error(err)
	}
}
