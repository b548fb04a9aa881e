//go:build cgo && linux

package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/internal/gputest"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/memory/cuda"
	"github.com/topoctl/topoctl/internal/cuda/cudafake"
)

// fakeGPUs are gpu:0 and gpu:1 of a fake libcuda.
func fakeGPUs(t testing.TB) *cuda.Driver {
	t.Helper()
	one, two := topo.BDF{Bus: 0x1b}, topo.BDF{Bus: 0x9b}
	return gputest.Open(t, cudafake.Options{}, cuda.Options{Topology: &topo.Topology{GPUs: []topo.GPU{{BDF: &one}, {Index: 1, BDF: &two}}}})
}

func onGPU(t testing.TB, e *engine.Engine, d *cuda.Driver, gpu, name string, size int64, grant memory.Grant) *engine.Region {
	t.Helper()
	b := (*memory.Block)(gputest.Alloc(t, d, gpu, size))
	r, err := e.Register(b, engine.RegionOptions{Name: name, Grant: grant})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newEngine(t testing.TB, name string) *engine.Engine {
	t.Helper()
	e, err := engine.New(context.Background(), engine.Options{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Memory of GPUs is a region like any other: here it goes from one engine's GPU to
// that of another, and back into memory of the host.
func TestGPUMemory(t *testing.T) {
	d := fakeGPUs(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, client := newEngine(t, "server"), newEngine(t, "client")
	const size = 6<<20 + 100
	theirs := onGPU(t, server, d, "gpu:1", "kv", size, memory.PeerRead|memory.PeerWrite)
	mine := onGPU(t, client, d, "gpu:0", "", size, memory.None)
	host, err := client.Alloc(size, engine.RegionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	peer, err := client.Open(ctx, server.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	kv, err := peer.Region(ctx, "kv")
	if err != nil {
		t.Fatal(err)
	}
	if mine.Location() != "gpu:0" || kv.Location() != "gpu:1" || mine.Bytes() != nil || kv.Size() != size {
		t.Errorf("locations %q and %q, %d bytes to touch, size %d", mine.Location(), kv.Location(), len(mine.Bytes()), kv.Size())
	}
	want := make([]byte, size)
	for i := range want {
		want[i] = byte(i ^ i>>9)
	}
	if _, err := mine.WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	if err := peer.Write(ctx, mine.All(), kv.At(0)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, size)
	if _, err := theirs.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the peer's GPU has something else (%v)", err)
	}
	if err := peer.Read(ctx, host.All(), kv.At(0)); err != nil || !bytes.Equal(host.Bytes(), want) {
		t.Errorf("what came back to the host is something else (%v)", err)
	}
	if _, err := kv.ReadAt(got[:1000], 5000); err != nil || !bytes.Equal(got[:1000], want[5000:6000]) {
		t.Errorf("ReadAt of the peer's GPU: %v", err)
	}

	// A GPU that is lost costs what is on it, at once and with its name.
	cudafake.Lose(1, 214)
	begin := time.Now()
	if err := peer.Read(ctx, host.All(), kv.At(0)); !errors.Is(err, memory.ErrDevice) || time.Since(begin) > 20*time.Second {
		t.Errorf("read from a lost GPU, after %v: %v", time.Since(begin), err)
	}
	cudafake.Lose(1, 0)
	cudafake.Lose(0, 700)
	if err := peer.Write(ctx, mine.All(), kv.At(0)); !errors.Is(err, memory.ErrDevice) || !strings.Contains(err.Error(), "gpu:0 (0000:1b:00.0)") {
		t.Errorf("write from a lost GPU: %v", err)
	}
	cudafake.Lose(0, 0)
	if err := peer.Write(ctx, mine.All(), kv.At(0)); err != nil {
		t.Errorf("after the GPU came back: %v", err)
	}
	if err := errors.Join(client.Close(), server.Close()); err != nil {
		t.Error(err)
	}
}

// Ranges tell by their address whether a GPU has them: those of one allocation that touch become
// a region, and the host's beside them are regions of the host.
func TestRangesOfGPUs(t *testing.T) {
	d := fakeGPUs(t)
	e := newEngine(t, "server")
	tensors := gputest.Alloc(t, d, "gpu:1", 1<<20)
	other := gputest.Alloc(t, d, "gpu:0", 1<<20)
	host, err := memory.Alloc(4096, memory.Options{Backing: memory.Private})
	if err != nil {
		t.Fatal(err)
	}
	at, o := tensors.Address(), other.Address()
	ranges := []memory.Range{
		{Address: at + 4096, Bytes: 4096}, {Address: at, Bytes: 4096}, {Address: at + 10000, Bytes: 1},
		{Address: uintptr(unsafe.Pointer(&host.Bytes()[8])), Bytes: 100}, {Address: o, Bytes: 1 << 20},
	}
	options := engine.RegionOptions{Grant: memory.PeerWrite, Devices: d}
	regions, err := e.RegisterRanges(ranges, options)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range regions {
		off := int64(r.Address()) - int64(at)
		if r.Location() != "gpu:1" {
			off = 0
		}
		got = append(got, fmt.Sprintf("%s+%d %d", r.Location(), off, r.Size()))
	}
	slices.Sort(got)
	if want := []string{"+0 100", "gpu:0+0 1048576", "gpu:1+0 8192", "gpu:1+10000 1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if _, err := e.RegisterRanges(append(ranges, memory.Range{Address: o + 1<<20 - 4, Bytes: 8}), options); err == nil {
		t.Error("a range that overlaps, and leaves its allocation")
	}
	// What one fails at leaves nothing of the others behind: the driver counts.
	if _, err := e.RegisterRanges([]memory.Range{{Address: at, Bytes: 4096}, {Address: o + 1<<20 - 4, Bytes: 8}}, options); !errors.Is(err, memory.ErrRange) {
		t.Errorf("a range that leaves its allocation: %v", err)
	}
	if err := errors.Join(e.Close(), tensors.Free(), other.Free(), host.Free()); err != nil {
		t.Error(err)
	}
}

// Memory of a GPU becomes a region by Register. Without a GPU, Open says why.
func ExampleEngine_Register_gpu() {
	driver, err := cuda.Open(cuda.Options{})
	if errors.Is(err, cuda.ErrUnavailable) {
		fmt.Println("registered")
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	defer driver.Close()
	block, err := driver.GPUs()[0].Alloc(1 << 20)
	if err != nil {
		log.Fatal(err)
	}
	e, err := engine.New(context.Background(), engine.Options{Name: "gpu"})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	if _, err := e.Register(block, engine.RegionOptions{Name: "kv", Location: "gpu:0", Grant: memory.PeerWrite}); err != nil {
		log.Fatal(err)
	}
	fmt.Println("registered")
	// Output: registered
}
