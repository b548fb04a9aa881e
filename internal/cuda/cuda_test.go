//go:build cgo && linux

package cuda_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/internal/cuda"
	"github.com/topoctl/topoctl/internal/cuda/cudafake"
)

// build makes a library of the fake, as the driver's is one.
func build(t *testing.T, source string, flags ...string) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("gcc is not installed: the stand-in for libcuda.so.1 cannot be built")
	}
	dir := t.TempDir()
	so := filepath.Join(dir, "libfake.so")
	for name, text := range map[string]string{"fake.c": source, "fake.h": cudafake.Header} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := append([]string{"-shared", "-fPIC", "-w", "-o", so}, flags...)
	if out, err := exec.Command(gcc, append(args, filepath.Join(dir, "fake.c"), "-lpthread")...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return so
}

// The library is found by its symbols, with the suffixes of its ABI, and works.
func TestLoad(t *testing.T) {
	lib, err := cuda.Load(build(t, cudafake.Source, "-DFAKE_SHARED"))
	if err != nil {
		t.Fatal(err)
	}
	want := cuda.DeviceInfo{
		Ordinal: 1, Name: "Fake GPU 1", PCIBusID: "0000:9b:00.0", UUID: "GPU-11111111-1111-1111-1111-111111111111",
		TotalBytes: 8 << 30, DMABuf: true, GPUDirect: true, FlushWrites: 1,
	}
	if list := lib.Devices(); len(list) != 2 || list[1] != want {
		t.Errorf("devices %+v", list)
	}
	roundTrip(t, lib)
}

func TestLoadFailures(t *testing.T) {
	notELF := filepath.Join(t.TempDir(), "libcuda.so.1")
	if err := os.WriteFile(notELF, []byte("not a library"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, text string }{
		{"/nowhere/libcuda.so.1", "is not installed (it comes with NVIDIA's driver)"},
		{notELF, "cuda: "},
		{build(t, "int other(void) { return 1; }\n"), "has no cuInit"},
		{build(t, cudafake.Source, "-DFAKE_SHARED", "-DcuMemcpyDtoHAsync_v2=cuMemcpyDtoHAsync"), "has no cuMemcpyDtoHAsync_v2"},
	} {
		if _, err := cuda.Load(c.path); !errors.Is(err, cuda.ErrUnavailable) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %q", c.path, err, c.text)
		}
	}
}

func TestNoGPU(t *testing.T) {
	if _, err := cudafake.Load(cudafake.Options{Devices: -1}); !errors.Is(err, cuda.ErrUnavailable) || !errors.Is(err, cuda.NoDevice) ||
		!strings.Contains(err.Error(), "CUDA_VISIBLE_DEVICES") {
		t.Error(err)
	}
}

// What fails while the driver starts makes it unavailable; a GPU that fails is left
// out.
func TestStartFailures(t *testing.T) {
	lib, err := cudafake.Load(cudafake.Options{Devices: 3})
	if err != nil || len(lib.Devices()) != 3 {
		t.Fatal(err)
	}
	cudafake.Reset(cudafake.Options{Devices: 3})
	cudafake.Fail("cuDeviceGetPCIBusId", 101, 1, 1)
	if lib, err = cudafake.Again(); err != nil || len(lib.Devices()) != 2 || lib.Devices()[1].Ordinal != 2 {
		t.Errorf("with a broken GPU: %v", err)
	}
	for _, function := range []string{"cuInit", "cuDeviceGetCount", "cuDeviceGet"} {
		cudafake.Reset(cudafake.Options{})
		cudafake.Fail(function, 803, 0, -1)
		if _, err := cudafake.Again(); !errors.Is(err, cuda.ErrUnavailable) || !strings.Contains(err.Error(), function+": CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)") ||
			!strings.Contains(err.Error(), "do not fit") {
			t.Errorf("%s fails: %v", function, err)
		}
	}
}

// An old driver lacks what came later, and says so when it is wanted.
func TestOldDriver(t *testing.T) {
	lib, err := cudafake.Load(cudafake.Options{Old: true})
	if err != nil {
		t.Fatal(err)
	}
	if i := lib.Devices()[0]; i.DMABuf {
		t.Errorf("%+v", i)
	}
	ctx, err := lib.Retain(0)
	if err != nil {
		t.Fatal(err)
	}
	defer ctx.Release()
	if _, err := ctx.Export(0, 4096); !errors.Is(err, cuda.NotSupported) {
		t.Error(err)
	}
	if err := ctx.FlushWrites(); ctx.CanFlush() || !errors.Is(err, cuda.NotSupported) {
		t.Error(err)
	}
	if _, err := lib.Retain(2); err == nil || !strings.Contains(err.Error(), "no CUDA device 2") {
		t.Error(err)
	}
}

// roundTrip copies to a GPU and back.
func roundTrip(t *testing.T, lib *cuda.Lib) {
	t.Helper()
	ctx, err := lib.Retain(1)
	if err != nil {
		t.Fatal(err)
	}
	host, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	at := uintptr(unsafe.Pointer(&host[0]))
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(ctx.Pin(at, 1<<20))
	p, err := ctx.Alloc(1 << 19)
	check(err)
	stream, err := ctx.NewStream()
	check(err)
	event, err := ctx.NewEvent()
	check(err)
	for i := range host[:1<<19] {
		host[i] = byte(i * 13)
	}
	half := uint64(1 << 18)
	there := []cuda.Piece{{p + half, uint64(at), half}, {p, uint64(at) + half, half}} // crosswise
	_, err = stream.Copy(false, there, event)
	check(err)
	check(event.Wait())
	_, err = stream.Copy(true, []cuda.Piece{{p, uint64(at) + 1<<19, 1 << 19}}, event)
	check(err)
	check(event.Wait())
	if !bytes.Equal(host[1<<19:1<<19+half], host[half:2*half]) || !bytes.Equal(host[1<<19+half:], host[:half]) {
		t.Error("the bytes that came back are others")
	}
	q, err := lib.Pointer(p + 5)
	if err != nil || q != (cuda.Pointer{Type: cuda.MemoryDevice, Ordinal: 1, Start: p, Bytes: 1 << 19}) {
		t.Errorf("pointer %+v, %v", q, err)
	}
	if _, err := lib.Pointer(p + 1<<19); err == nil {
		t.Error("an address behind the allocation is known")
	}
	check(errors.Join(event.Close(), stream.Close(), ctx.Free(p), ctx.Unpin(at), ctx.Release(), unix.Munmap(host)))
}

// Calls come from whatever thread a goroutine is on, and leave its current context
// as it was.
func TestThreads(t *testing.T) {
	lib, err := cudafake.Load(cudafake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := lib.Retain(0)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			runtime.LockOSThread() // and never unlocked: a thread of its own
			for range 20 {
				p, err := ctx.Alloc(100)
				if err != nil {
					t.Error(err)
					return
				}
				if err := ctx.Free(p); err != nil {
					t.Error(err)
				}
				if n := cudafake.Depth(); n != 0 {
					t.Errorf("%d contexts are left on the thread", n)
				}
			}
		})
	}
	all.Wait()
	cudafake.Fail("cuMemAlloc_v2", 2, 0, 1)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, err := ctx.Alloc(1); !errors.Is(err, cuda.OutOfMemory) || cudafake.Depth() != 0 {
		t.Errorf("%v, %d contexts are left", err, cudafake.Depth())
	}
	if err := ctx.Release(); err != nil {
		t.Error(err)
	}
}

// Device memory of the fake is out of reach: what touches it directly crashes.
func TestFakeIsOutOfReach(t *testing.T) {
	lib, err := cudafake.Load(cudafake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := lib.Retain(0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := ctx.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for line := range strings.Lines(string(maps)) {
		from, to, ok := parse(line)
		if ok && from <= p && p < to {
			found = true
			if !strings.Contains(line, " ---p ") {
				t.Errorf("device memory can be touched: %s", line)
			}
		}
	}
	if !found {
		t.Error("device memory has no address of this process")
	}
	if err := errors.Join(ctx.Free(p), ctx.Release()); err != nil {
		t.Error(err)
	}
}

func parse(line string) (from, to uint64, ok bool) {
	a, rest, ok1 := strings.Cut(line, "-")
	b, _, ok2 := strings.Cut(rest, " ")
	return hex(a), hex(b), ok1 && ok2
}

func hex(s string) (n uint64) {
	for _, c := range s {
		n = n<<4 | uint64(strings.IndexRune("0123456789abcdef", c))
	}
	return n
}
