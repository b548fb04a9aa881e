//go:build cgo && linux

package shm

import (
	"errors"
	"slices"
	"testing"

	blocks "github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/memory/cuda"
	"github.com/topoctl/topoctl/internal/base/cuda/cudafake"
	"github.com/topoctl/topoctl/internal/base/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/stage"
	"github.com/topoctl/topoctl/internal/base/engine/transport/transporttest"
)

// device is a GPU of the fake libcuda, whose memory no processor can touch.
type device struct {
	*cuda.GPU
	driver *cuda.Driver
}

// gpu gives one with so many staging buffers.
func gpu(t testing.TB, o cudafake.Options, buffers int64) *device {
	t.Helper()
	lib, err := cudafake.Load(o)
	if err != nil {
		t.Fatal(err)
	}
	d, err := cuda.Open(cuda.Options{Lib: lib, StagingBytes: buffers * memory.PieceBytes})
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
	g, err := d.GPU("cuda:0")
	if err != nil {
		t.Fatal(err)
	}
	b, err := g.Alloc(1)
	if err != nil {
		t.Fatal(err)
	}
	// The pools are there before the suite counts goroutines.
	_, err = memory.PoolOf((*memory.Block)(b).Device(), memory.ForRequests)
	_, err2 := memory.PoolOf((*memory.Block)(b).Device(), memory.ForAnswers)
	if err := errors.Join(err, err2, b.Free()); err != nil {
		t.Fatal(err)
	}
	return &device{g, d}
}

// alloc allocates memory of a GPU.
func (d *device) alloc(size int64) (*memory.Block, error) {
	b, err := d.GPU.Alloc(size)
	return (*memory.Block)(b), err
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

// stagedEnd is an end whose requests are staged.
func stagedEnd(t testing.TB, dir string) transporttest.End {
	e := suiteEnd(t, dir)
	e.Transport = stage.Wrap(e.Transport, e.Regions)
	return e
}

// All rules hold for memory of a GPU on either side and on both. The pools are small.
func TestTransportOfDeviceMemory(t *testing.T) {
	first := suiteEnd(t, shortDir(t)) // see TestTransport
	if err := errors.Join(first.Transport.Close(), first.Regions.Close()); err != nil {
		t.Fatal(err)
	}
	for name, on := range map[string][]transporttest.Side{
		"active": {transporttest.ActiveSide}, "passive": {transporttest.PassiveSide}, "both": {transporttest.ActiveSide, transporttest.PassiveSide},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "both" {
				t.Skip("one of three with -short")
			}
			g := gpu(t, cudafake.Options{}, 8)
			h := transporttest.Harness{
				Uncounted: true, Read: peek, Write: poke,
				RegionBytes: 2 << 20, Requests: 500, Cycles: 50,
				Alloc: func(t testing.TB, s transporttest.Side, size int64) *memory.Block {
					alloc := func(size int64) (*memory.Block, error) { return memory.Alloc(size, memory.Options{}) }
					if slices.Contains(on, s) {
						alloc = g.alloc
					}
					b, err := alloc(size)
					if err != nil {
						t.Fatal(err)
					}
					return b
				},
			}
			h.New = func(t testing.TB) *transporttest.Ends {
				dir := shortDir(t)
				e := &transporttest.Ends{
					Active:  stagedEnd(t, dir),
					Passive: suiteEnd(t, dir),
					Restart: func(t testing.TB) transporttest.End { return suiteEnd(t, dir) },
				}
				if name == "passive" {
					e.Stall = cudafake.Hold
				}
				return e
			}
			transporttest.Run(t, h)
		})
	}
}
