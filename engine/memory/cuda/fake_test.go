//go:build cgo && linux

package cuda

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/internal/memory"
	blocks "github.com/topoctl/topoctl/engine/memory"
	driver "github.com/topoctl/topoctl/internal/cuda"
	"github.com/topoctl/topoctl/internal/cuda/cudafake"
)

// open gives a driver on the fake, and sees at the end that nothing is left.
func open(t *testing.T, f cudafake.Options, o Options) *Driver {
	t.Helper()
	lib, err := cudafake.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	o.Lib = lib
	d, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		s := cudafake.Count()
		if s.Allocations+s.Pinned+s.Streams+s.Events+s.Contexts != 0 {
			t.Errorf("left behind: %+v", s)
		}
	})
	return d
}

func gpu(t *testing.T, d *Driver, name string) *GPU {
	t.Helper()
	g, err := d.GPU(name)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func pattern(n int, seed uint64) []byte {
	p := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return p
}

func TestGPUs(t *testing.T) {
	one, node := topo.BDF{Bus: 0x9b}, 1
	d := open(t, cudafake.Options{}, Options{Topology: &topo.Topology{GPUs: []topo.GPU{{Index: 7, BDF: &one, NUMA: &node}}}})
	list := d.GPUs()
	if len(list) != 2 || list[0].Info().Location != "" || list[0].String() != "GPU 0000:1b:00.0" ||
		list[1].Info().Location != "gpu:7" || list[1].Info().Node != 1 || list[1].String() != "gpu:7 (0000:9b:00.0)" {
		t.Errorf("GPUs %v %+v, %+v", list, list[0].Info(), list[1].Info())
	}
	for _, name := range []string{"gpu:7", "0000:9b:00.0", "cuda:1", list[1].Info().UUID} {
		if g, err := d.GPU(name); err != nil || g != list[1] {
			t.Errorf("%q: %v, %v", name, g, err)
		}
	}
	for _, name := range []string{"", "gpu:0", "cuda:2"} {
		if _, err := d.GPU(name); err == nil || !strings.Contains(err.Error(), "cuda:1 (0000:9b:00.0 gpu:7)") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestReadWrite(t *testing.T) {
	for _, delay := range []time.Duration{0, 200 * time.Microsecond} {
		d := open(t, cudafake.Options{Delay: delay}, Options{StagingBytes: 4 * memory.PieceBytes})
		b, err := gpu(t, d, "cuda:0").Alloc(3<<20 + 17)
		if err != nil {
			t.Fatal(err)
		}
		want := pattern(3<<20+5, 1)
		if n, err := b.WriteAt(want, 3); n != len(want) || err != nil {
			t.Fatal(n, err)
		}
		address, _ := Pointer(b)
		behind := make([]byte, len(want))
		if !cudafake.Peek(uint64(address)+3, behind) || !bytes.Equal(behind, want) {
			t.Error("what was written is not in the GPU's memory")
		}
		cudafake.Poke(uint64(address)+100, []byte("hello"))
		copy(want[97:], "hello")
		got := make([]byte, len(want))
		if n, err := b.ReadAt(got, 3); n != len(got) || err != nil || !bytes.Equal(got, want) {
			t.Errorf("read %d, %v, equal: %v", n, err, bytes.Equal(got, want))
		}
		if n, err := b.ReadAt(make([]byte, 10), b.Size()-4); n != 4 || !errors.Is(err, io.EOF) {
			t.Errorf("read across the end: %d, %v", n, err)
		}
		if n, err := b.WriteAt(make([]byte, 10), b.Size()-4); n != 4 || !errors.Is(err, memory.ErrRange) {
			t.Errorf("write across the end: %d, %v", n, err)
		}
		if b.Bytes() != nil || b.Size() != 3<<20+17 {
			t.Errorf("%d bytes to touch, size %d", len(b.Bytes()), b.Size())
		}
		if s := cudafake.Count(); s.UnpinnedCopies != 0 || s.Copies == 0 {
			t.Errorf("copies not through pinned memory: %+v", s)
		}
		if err := errors.Join(b.Free(), b.Free()); err != nil {
			t.Error(err)
		}
		if _, err := b.ReadAt(got, 0); !errors.Is(err, memory.ErrRange) {
			t.Errorf("read of memory that was freed: %v", err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A region of device memory is refused to those who would touch it.
func TestRegion(t *testing.T) {
	d := open(t, cudafake.Options{}, Options{})
	b, err := gpu(t, d, "cuda:1").Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	table := memory.NewTable(4)
	r, err := table.Add((*memory.Block)(b), "kv", b.Location(), memory.PeerRead)
	if err != nil {
		t.Fatal(err)
	}
	if r.Device() == nil || r.Size() != 1<<20 || r.Bytes(5, 10) != nil || !table.HasDevices() {
		t.Errorf("device %v, size %d, bytes %v", r.Device(), r.Size(), r.Bytes(5, 10))
	}
	if _, err := table.Pin(r.ID(), 0, 10, memory.PeerRead); !errors.Is(err, memory.ErrNotHost) || r.Pins() != 0 {
		t.Errorf("pinned as host memory: %v, %d pins", err, r.Pins())
	}
	if _, err := table.PinAny(r.ID(), 0, 1<<20+1, memory.PeerRead); !errors.Is(err, memory.ErrRange) {
		t.Error(err)
	}
	if _, err := table.PinAny(r.ID(), 0, 10, memory.PeerRead); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err == nil || !strings.Contains(err.Error(), "1 blocks are not freed") {
		t.Errorf("closed with a block in use: %v", err)
	}
	r.Unpin()
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	if n := cudafake.Count().Allocations; n != 0 {
		t.Errorf("%d allocations after the table was closed", n)
	}
}

// Pinned memory can be mapped by another process, and keeps the GPU in use.
func TestPinned(t *testing.T) {
	d := open(t, cudafake.Options{PinnableBytes: 1 << 20}, Options{})
	b, err := gpu(t, d, "cuda:0").Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	device := (*memory.Block)(b).Device()
	if _, err := device.Pinned().Window(4); err == nil || !strings.Contains(err.Error(), "pinned memory of 2097152 bytes") {
		t.Errorf("more than can be pinned: %v", err)
	}
	window, err := device.Pinned().Window(2)
	if err != nil {
		t.Fatal(err)
	}
	if window.Block().Info().Backing != memory.Shared || cudafake.Count().PinnedBytes != 1<<20 {
		t.Errorf("%+v, %d bytes are pinned", window.Block().Info(), cudafake.Count().PinnedBytes)
	}
	if err := b.Free(); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err == nil {
		t.Error("closed while memory is pinned")
	}
	if err := errors.Join(window.Free(), d.Close()); err != nil {
		t.Error(err)
	}
	if _, err := device.Pinned().Window(1); err == nil {
		t.Error("pinned for a GPU that is closed")
	}
}

func TestForeign(t *testing.T) {
	d := open(t, cudafake.Options{}, Options{})
	g := gpu(t, d, "cuda:0")
	b, err := g.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	p, _ := Pointer(b)
	f, err := g.Foreign(p+512, 1<<20-512)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("tensor"), 0); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 6)
	if _, err := b.ReadAt(got, 512); err != nil || string(got) != "tensor" {
		t.Errorf("%q, %v", got, err)
	}
	if err := f.Free(); err != nil || cudafake.Count().Allocations != 1 {
		t.Errorf("somebody else's memory was freed (%v)", err)
	}
	for _, c := range []struct {
		on      string
		at      uintptr
		size    int64
		problem string
	}{
		{"cuda:0", p, 1<<20 + 1, "outside the region"},
		{"cuda:0", p + 512, 1 << 20, "outside the region"},
		{"cuda:0", p + 1<<21, 1, "CUDA does not know it"},
		{"cuda:0", 0, 1, "not a range"},
		{"cuda:0", p, 0, "not a range"},
		{"cuda:1", p, 1, "belongs to CUDA device 0, this is 1"},
		{"", p + 1<<21, 1, "CUDA does not know it"},
		{"", p, 1<<20 + 1, "outside the region"},
	} {
		foreign := func() (*blocks.Block, error) { return d.Foreign(blocks.Range{Address: c.at, Bytes: c.size}) }
		if c.on != "" {
			foreign = func() (*blocks.Block, error) { return gpu(t, d, c.on).Foreign(c.at, c.size) }
		}
		if _, err := foreign(); err == nil || !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: %d bytes at %#x: %v, want %q", c.on, c.size, c.at, err, c.problem)
		}
	}
	if a, ok := d.Allocation(p + 77); !ok || a != (blocks.Range{Address: p, Bytes: 1 << 20}) {
		t.Errorf("its allocation is %+v, %v", a, ok)
	}
	if a, ok := d.Allocation(p + 1<<21); ok || a != (blocks.Range{}) {
		t.Errorf("the allocation of an address of nothing is %+v", a)
	}
}

func TestDMABuf(t *testing.T) {
	d := open(t, cudafake.Options{}, Options{})
	g := gpu(t, d, "cuda:0")
	b, err := g.Alloc(100_000)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	p, _ := Pointer(b)
	part, err := g.Foreign(p+768, 5000)
	if err != nil {
		t.Fatal(err)
	}
	defer part.Free()
	fd, offset, err := (*memory.Block)(part).Device().DMABuf()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if offset != 768 {
		t.Errorf("offset %d, want 768", offset)
	}
	want := pattern(5000, 2)
	if _, err := part.WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5000)
	if _, err := unix.Pread(fd, got, offset); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the export shows something else (%v)", err)
	}
}

func TestNoDMABuf(t *testing.T) {
	for _, o := range []cudafake.Options{{NoDMABuf: true}, {Old: true}} {
		d := open(t, o, Options{})
		b, err := gpu(t, d, "cuda:0").Alloc(4096)
		if err != nil {
			t.Fatal(err)
		}
		if fd, _, err := (*memory.Block)(b).Device().DMABuf(); !errors.Is(err, memory.ErrNoExport) || fd != -1 {
			t.Errorf("exported: %d, %v", fd, err)
		}
		if err := gpu(t, d, "cuda:0").FlushRDMAWrites(); err != nil || o.Old && cudafake.Count().Flushes != 0 {
			t.Errorf("flush: %v", err)
		}
		if err := errors.Join(b.Free(), d.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever fails in the driver is an error with its name, and leaves nothing behind.
func TestFailures(t *testing.T) {
	for _, c := range []struct {
		function string
		code     driver.Result
		text     string
	}{
		{"cuDevicePrimaryCtxRetain", 101, "cuDevicePrimaryCtxRetain: CUDA_ERROR_INVALID_DEVICE (101)"},
		{"cuStreamCreate", 2, "cuStreamCreate"},
		{"cuMemAlloc_v2", 2, "CUDA device 0 (0000:1b:00.0): cuMemAlloc (65536 bytes): CUDA_ERROR_OUT_OF_MEMORY (2): out of memory; the GPU has not so much"},
		{"cuMemHostRegister_v2", 2, "RLIMIT_MEMLOCK"},
		{"cuEventCreate", 3, "cuEventCreate"},
		{"cuMemcpyHtoDAsync_v2", 1, "cuMemcpyHtoDAsync (100 bytes in 1 pieces): CUDA_ERROR_INVALID_VALUE"},
		{"cuEventRecord", 1, "CUDA_ERROR_INVALID_VALUE"},
		{"cuEventSynchronize", 214, "uncorrectable ECC error"},
	} {
		d := open(t, cudafake.Options{}, Options{})
		cudafake.Fail(c.function, c.code, 0, 1)
		b, err := gpu(t, d, "cuda:0").Alloc(64 << 10)
		if err == nil {
			_, err = b.WriteAt(make([]byte, 100), 0)
			if _, again := b.WriteAt(make([]byte, 100), 0); again != nil {
				t.Errorf("%s failed once, and then: %v", c.function, again)
			}
			if err := b.Free(); err != nil {
				t.Error(err)
			}
		}
		if err == nil || !strings.Contains(err.Error(), c.text) || !errors.Is(err, c.code) {
			t.Errorf("%s: %v, want %q", c.function, err, c.text)
		}
		if err := d.Close(); err != nil {
			t.Errorf("%s: %v", c.function, err)
		}
	}
}

// A GPU that is lost fails its copies with ErrDevice; the other goes on.
func TestLost(t *testing.T) {
	d := open(t, cudafake.Options{}, Options{})
	var both [2]*blocks.Block
	for i, name := range []string{"cuda:0", "cuda:1"} {
		var err error
		if both[i], err = gpu(t, d, name).Alloc(1 << 20); err != nil {
			t.Fatal(err)
		}
		if _, err := both[i].WriteAt([]byte("x"), 0); err != nil {
			t.Fatal(err)
		}
	}
	cudafake.Fail("copy", 700, 0, 1)
	if _, err := both[0].WriteAt([]byte("x"), 0); !errors.Is(err, memory.ErrDevice) || !strings.Contains(err.Error(), "until the process is started again") {
		t.Errorf("the copy that broke the GPU: %v", err)
	}
	if _, err := both[0].ReadAt(make([]byte, 1), 0); !errors.Is(err, memory.ErrDevice) {
		t.Errorf("a copy on a broken GPU: %v", err)
	}
	if _, err := both[1].WriteAt([]byte("x"), 0); err != nil {
		t.Errorf("the other GPU: %v", err)
	}
	cudafake.Lose(0, 0) // so that the fake can be tidied up
	for _, b := range both {
		if err := b.Free(); err != nil {
			t.Error(err)
		}
	}
}

// The pool is bounded: whoever finds no buffer waits, in order, and can give up.
func TestStaging(t *testing.T) {
	d := open(t, cudafake.Options{}, Options{StagingBytes: 6 * memory.PieceBytes})
	b, err := gpu(t, d, "cuda:0").Alloc(1)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	device := (*memory.Block)(b).Device()
	pool, err := memory.PoolOf(device, memory.ForAnswers)
	if err != nil || device.Pinned().Buffers() != 3 {
		t.Fatal(pool, err)
	}
	other, _ := memory.PoolOf(device, memory.ForRequests)
	if other == pool {
		t.Error("both uses have one pool")
	}
	have := []*memory.Buffer{pool.Get(), pool.Get(), pool.Get()}
	if have[2] == nil || pool.Get() != nil {
		t.Fatal("there are not three buffers")
	}
	type turn struct {
		i int
		b *memory.Buffer
	}
	got := make(chan turn, 4)
	stop := make(chan struct{})
	for i := range 3 {
		until := make(chan struct{})
		if i == 1 {
			until = stop
		}
		go func() { got <- turn{i, pool.Await(until)} }()
		time.Sleep(20 * time.Millisecond) // so that it waits before the next one comes
	}
	close(stop)
	if x := <-got; x.i != 1 || x.b != nil {
		t.Errorf("%d had its turn with %v where 1 gave up", x.i, x.b)
	}
	if err := d.Close(); err == nil {
		t.Error("closed with a block and buffers in use")
	}
	for i, want := range []int{0, 2} {
		have[i].Release()
		if pool.Get() != nil {
			t.Error("who came last was served first")
		}
		x := <-got
		if x.i != want {
			t.Errorf("%d has its turn, want %d", x.i, want)
		}
		defer x.b.Release()
	}
	have[2].Release()
	pool = other
	// Many at once.
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				b := pool.Await(nil)
				b.Bytes(8)[0]++
				b.Release()
			}
		})
	}
	all.Wait()
}

// Copies from many goroutines end once each, with the bytes in place.
func TestConcurrentCopies(t *testing.T) {
	d := open(t, cudafake.Options{Delay: 20 * time.Microsecond}, Options{StagingBytes: 8 * memory.PieceBytes})
	b, err := gpu(t, d, "cuda:0").Alloc(8 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			want, got := pattern(1<<20, uint64(i)), make([]byte, 1<<20)
			for range 3 {
				_, err1 := b.WriteAt(want, int64(i)<<20)
				_, err2 := b.ReadAt(got, int64(i)<<20)
				if err1 != nil || err2 != nil || !bytes.Equal(got, want) {
					t.Errorf("%d: %v, %v, equal: %v", i, err1, err2, bytes.Equal(got, want))
				}
			}
		})
	}
	all.Wait()
}

func TestOptions(t *testing.T) {
	lib, err := cudafake.Load(cudafake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Lib: lib, StagingBytes: 1}); err == nil {
		t.Error("staging of 1 byte was taken")
	}
	if _, err := Open(Options{Library: "/does/not/exist.so"}); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
}
