//go:build cgo && linux

package gputest

import (
	"errors"
	"os"
	"testing"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport/transporttest"
	blocks "github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/memory/cuda"
	"github.com/topoctl/topoctl/internal/cuda/cudafake"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// OfMachine says whether tests of Run use the GPUs of this machine instead of the fake ones:
// TOPOCTL_GPU is "machine".
func OfMachine() bool { return os.Getenv("TOPOCTL_GPU") == "machine" }

// openMachine opens the machine's driver.
func openMachine(t testing.TB, o cuda.Options) *cuda.Driver {
	t.Helper()
	d, err := cuda.Open(o)
	if errors.Is(err, cuda.ErrUnavailable) {
		t.Skipf("TOPOCTL_GPU is \"machine\", which has no GPU: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// Open opens a driver of two fake GPUs. When the test ends it closes the driver, and fails the
// test where something is left behind.
func Open(t testing.TB, f cudafake.Options, o cuda.Options) *cuda.Driver {
	t.Helper()
	lib, err := cudafake.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	o.Lib = lib
	d, err := cuda.Open(o)
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

// Alloc allocates memory of a GPU, which has any name that the driver knows.
func Alloc(t testing.TB, d *cuda.Driver, gpu string, size int64) *memory.Block {
	t.Helper()
	if gpu == "cuda:1" && len(d.GPUs()) == 1 {
		gpu = "cuda:0"
	}
	g, err := d.GPU(gpu)
	if err != nil {
		t.Fatal(err)
	}
	b, err := g.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	return (*memory.Block)(b)
}

// MakePools makes a GPU's pools of pinned buffers. They stay until the driver is closed, so
// a test that looks for leaks makes them first.
func MakePools(t testing.TB, d *cuda.Driver, gpu string) {
	t.Helper()
	b := Alloc(t, d, gpu, 1)
	for _, use := range []memory.Use{memory.ForRequests, memory.ForAnswers} {
		if _, err := memory.PoolOf(b.Device(), use); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Free(); err != nil {
		t.Fatal(err)
	}
}

// Peek reads memory of a GPU or of the host.
func Peek(b *memory.Block, p []byte, off int64) {
	if at, ok := cuda.Pointer((*blocks.Block)(b)); ok {
		cudafake.Peek(uint64(at)+uint64(off), p)
		return
	}
	copy(p, b.Bytes()[off:])
}

// Poke writes memory of a GPU or of the host.
func Poke(b *memory.Block, p []byte, off int64) {
	if at, ok := cuda.Pointer((*blocks.Block)(b)); ok {
		cudafake.Poke(uint64(at)+uint64(off), p)
		return
	}
	copy(b.Bytes()[off:], p)
}

// Run runs the suite of transports with memory of GPUs on both sides, and with longtest also on
// the active or the passive side alone. The harness is given for each of the three by its name; its memory is
// filled in here. The pools are small, so that there are not buffers for everybody.
func Run(t *testing.T, harness func(name string) transporttest.Harness) {
	type sides struct {
		name            string
		active, passive string // GPUs, "" for memory of the host
	}
	for _, c := range longtest.Sample([]sides{
		{"both", "cuda:0", "cuda:0"},
		{"active", "cuda:0", ""},
		{"passive", "", "cuda:1"},
	}, 1) {
		t.Run(c.name, func(t *testing.T) {
			// The driver outlives the checks, which look for leaks of their own.
			o := cuda.Options{StagingBytes: 8 * memory.PieceBytes}
			var d *cuda.Driver
			if OfMachine() {
				d = openMachine(t, o)
			} else {
				d = Open(t, cudafake.Options{}, o)
			}
			MakePools(t, d, "cuda:0")
			MakePools(t, d, "cuda:1")
			h := harness(c.name)
			h.Read, h.Write = Peek, Poke
			if OfMachine() {
				h.Read = func(b *memory.Block, p []byte, off int64) { readAt(t, b, p, off) }
				h.Write = func(b *memory.Block, p []byte, off int64) { writeAt(t, b, p, off) }
			}
			h.RegionBytes, h.Requests, h.Cycles = 2<<20, 200, 30
			if longtest.On() {
				h.Requests, h.Cycles = 500, 50
			}
			h.Alloc = func(t testing.TB, s transporttest.Side, size int64) *memory.Block {
				gpu := c.active
				if s == transporttest.PassiveSide {
					gpu = c.passive
				}
				if gpu != "" {
					return Alloc(t, d, gpu, size)
				}
				b, err := memory.Alloc(size, memory.Options{})
				if err != nil {
					t.Fatal(err)
				}
				return b
			}
			transporttest.Run(t, h)
		})
	}
}

// readAt and writeAt reach memory of real GPUs, or of the host, as users do.
func readAt(t testing.TB, b *memory.Block, p []byte, off int64) {
	if b.Device() == nil {
		copy(p, b.Bytes()[off:])
	} else if _, err := b.ReadAt(p, off); err != nil {
		t.Error(err)
	}
}

func writeAt(t testing.TB, b *memory.Block, p []byte, off int64) {
	if b.Device() == nil {
		copy(b.Bytes()[off:], p)
	} else if _, err := b.WriteAt(p, off); err != nil {
		t.Error(err)
	}
}
