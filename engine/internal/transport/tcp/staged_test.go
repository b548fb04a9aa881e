//go:build cgo && linux

package tcp

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/gputest"
	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/stage"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/transporttest"
	"github.com/topoctl/topoctl/engine/memory/cuda"
	"github.com/topoctl/topoctl/internal/cuda/cudafake"
)

// gpus are two GPUs of the fake libcuda, whose memory no processor can touch.
func gpus(t testing.TB, f cudafake.Options) *cuda.Driver {
	return gputest.Open(t, f, cuda.Options{})
}

// All rules hold for memory of GPUs, which the active end stages.
func TestConformanceOfDeviceMemory(t *testing.T) {
	gputest.Run(t, func(string) transporttest.Harness {
		return transporttest.Harness{New: func(t testing.TB) *transporttest.Ends {
			e := protectedEnds(t, transport.Open)
			e.Active.Transport = stage.Wrap(e.Active.Transport, e.Active.Regions)
			return e
		}}
	})
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
	return newGPUPairOver(t, d, here, there, size, transport.Open)
}

func newGPUPairOver(t *testing.T, d *cuda.Driver, here, there string, size int64, level transport.Protection) *gpuPair {
	t.Helper()
	p := &gpuPair{a: newSide(t, Options{Protection: level}), b: newSide(t, Options{})}
	var err error
	add := func(s *side, name string, grant memory.Grant) *memory.Region {
		if name == "" {
			return s.region(t, size, grant, memory.Options{})
		}
		r, err := s.regions.Add(gputest.Alloc(t, d, name, size), "", "", grant)
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
	gputest.Poke(p.local.Block(), p.contents, 0)
	return p
}

func (p *gpuPair) dial(t *testing.T) *client {
	t.Helper()
	p.a.dial = plainDial
	return dialOver(t, p.wrapped, p.b, p.b.listen(t))
}

func (p *gpuPair) landed(t *testing.T) {
	t.Helper()
	got := make([]byte, len(p.contents))
	gputest.Peek(p.remote.Block(), got, 0)
	if !bytes.Equal(got, p.contents) {
		t.Error("the peer's memory holds something else")
	}
}

// A WRITE is complete when its bytes are in the device's memory, not before; and
// while copies stand still, several are under way.
func TestWriteCompletesInDeviceMemory(t *testing.T) {
	d := gpus(t, cudafake.Options{})
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

// A copy to a device that does not end keeps its region from being given up, and nobody
// waiting for that for ever.
func TestRegionOfACopyThatDoesNotEnd(t *testing.T) {
	d := gpus(t, cudafake.Options{})
	p := newGPUPair(t, d, "", "cuda:1", 1<<20)
	p.b.o.CloseTime, p.b.o.ReleaseTime = time.Millisecond, 20*time.Millisecond
	cudafake.Hold(true)
	defer cudafake.Hold(false)
	p.c.post(t, request(transport.Write, p.local, 0, p.theirs, 0, 1<<20))
	eventually(t, "that the copies wait for the device", func() bool { return cudafake.Count().MostQueued >= 1 })
	now, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.remote.Close(now); err == nil {
		t.Fatal("the region is closed though it is held")
	}
	if err := p.b.Deregister(p.remote); err == nil || !strings.Contains(err.Error(), "close the region again") {
		t.Errorf("while the copy stands still: %v", err)
	}
	if p.remote.Pins() == 0 {
		t.Error("the memory is free while a copy uses it")
	}
	cudafake.Hold(false)
	eventually(t, "that the copy is over", func() bool { return p.b.Deregister(p.remote) == nil })
	if err := p.remote.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// One request keeps several buffers busy: pieces are copied while others are sent.
func TestPipeline(t *testing.T) {
	d := gpus(t, cudafake.Options{Delay: time.Millisecond})
	p := newGPUPair(t, d, "cuda:0", "cuda:1", 8<<20)
	if x := p.c.do(t, request(transport.Write, p.local, 0, p.theirs, 0, 8<<20)); x.Err != nil {
		t.Fatal(x.Err)
	}
	p.landed(t)
	if s := cudafake.Count(); s.MostQueued < 4 || s.Copies != 32 {
		t.Errorf("at most %d copies queued at a time, %d in all; want 4 and 32", s.MostQueued, s.Copies)
	}
	gputest.Poke(p.local.Block(), make([]byte, 8<<20), 0)
	if x := p.c.do(t, request(transport.Read, p.local, 0, p.theirs, 0, 8<<20)); x.Err != nil {
		t.Fatal(x.Err)
	}
	got := make([]byte, 8<<20)
	gputest.Peek(p.local.Block(), got, 0)
	if !bytes.Equal(got, p.contents) {
		t.Error("what was read is something else")
	}
}

// A device that fails costs the requests on its memory, with its name, and nothing
// else: neither the connection nor the other device.
func TestLostDevice(t *testing.T) {
	for _, where := range []string{"cuda:0", "cuda:1"} {
		d := gpus(t, cudafake.Options{})
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

// A checksum is over the bytes, on their way through a device's buffers, too; and so are tags.
func TestChecksumOfDeviceMemory(t *testing.T) {
	for _, level := range []transport.Protection{transport.Open, transport.Payload} {
		t.Run(level.String(), func(t *testing.T) { checkedDeviceMemory(t, level) })
	}
}

func checkedDeviceMemory(t *testing.T, level transport.Protection) {
	d := gpus(t, cudafake.Options{})
	p := newGPUPairOver(t, d, "cuda:0", "cuda:1", 2<<20, level)
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
	d := gpus(t, cudafake.Options{})
	for _, op := range []transport.Op{transport.Read, transport.Write} {
		p := newGPUPair(t, d, "", "cuda:0", 2<<20)
		plain := dial(t, p.a, p.b, p.b.listen(t))
		if x := plain.do(t, request(op, p.local, 0, p.theirs, 0, memory.PieceBytes+1)); !errors.Is(x.Err, transport.ErrClosed) {
			t.Errorf("op %d: %v", op, x.Err)
		}
		eventually(t, "the breach to be counted", func() bool { return p.b.Served().Dropped["bytes"] == 1 })
		closeAll(t, p)
	}
}

// Where no staging buffers can be had, the region is not offered, and the error says
// why.
func TestNoStaging(t *testing.T) {
	d := gpus(t, cudafake.Options{PinnableBytes: 1 << 20})
	s := newSide(t, Options{})
	for grant, want := range map[memory.Grant]bool{memory.None: true, memory.PeerRead: false} {
		r, err := s.regions.Add(gputest.Alloc(t, d, "cuda:0", 4096), "", "", grant)
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
