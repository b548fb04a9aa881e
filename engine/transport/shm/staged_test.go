//go:build cgo && linux

package shm

import (
	"errors"
	"testing"

	"github.com/topoctl/topoctl/engine/internal/stage"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/memory/cuda"
	"github.com/topoctl/topoctl/engine/transport"
	"github.com/topoctl/topoctl/engine/transport/transporttest"
	"github.com/topoctl/topoctl/internal/cuda/cudafake"
)

// gpu is one of the fake libcuda, whose memory no processor can touch.
func gpu(t testing.TB, o cudafake.Options) *cuda.GPU {
	t.Helper()
	lib, err := cudafake.Load(o)
	if err != nil {
		t.Fatal(err)
	}
	d, err := cuda.FromLib(lib, cuda.Options{StagingBytes: 8 * memory.PieceBytes})
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
	// The pool is there before the suite counts goroutines.
	_, err = b.Device().Staging(memory.ForRequests)
	if err := errors.Join(err, b.Free()); err != nil {
		t.Fatal(err)
	}
	return g
}

func peek(b *memory.Block, p []byte, off int64) {
	if at, ok := cuda.Pointer(b); ok {
		cudafake.Peek(uint64(at)+uint64(off), p)
		return
	}
	copy(p, b.Bytes()[off:])
}

func poke(b *memory.Block, p []byte, off int64) {
	if at, ok := cuda.Pointer(b); ok {
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

// All rules hold for memory of a GPU on the requester's side.
func TestTransportOfDeviceMemory(t *testing.T) {
	first := suiteEnd(t, shortDir(t)) // see TestTransport
	if err := errors.Join(first.Transport.Close(), first.Regions.Close()); err != nil {
		t.Fatal(err)
	}
	g := gpu(t, cudafake.Options{})
	transporttest.Run(t, transporttest.Harness{
		Uncounted: true, Read: peek, Write: poke,
		RegionBytes: 2 << 20, Requests: 2000, Cycles: 100,
		Alloc: func(t testing.TB, s transporttest.Side, size int64) *memory.Block {
			alloc := g.Alloc
			if s == transporttest.PassiveSide {
				alloc = func(size int64) (*memory.Block, error) { return memory.Alloc(size, memory.Options{}) }
			}
			b, err := alloc(size)
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
		New: func(t testing.TB) *transporttest.Ends {
			dir := shortDir(t)
			return &transporttest.Ends{
				Active:  stagedEnd(t, dir),
				Passive: suiteEnd(t, dir),
				Restart: func(t testing.TB) transporttest.End { return suiteEnd(t, dir) },
			}
		},
	})
}

// A region of a GPU cannot be mapped: peers are told, and use another transport.
func TestDeviceMemoryIsNotOffered(t *testing.T) {
	g := gpu(t, cudafake.Options{})
	e := suiteEnd(t, shortDir(t))
	b, err := g.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	r, err := e.Regions.Add(b, "", "", memory.PeerRead)
	if err != nil {
		t.Fatal(err)
	}
	key, err := e.Transport.Register(r)
	if err != nil || key != "" {
		t.Errorf("key %q, %v", key, err)
	}
	if e.Transport.(*Transport).Reaches(&transport.RemoteRegion{Key: map[string]string{"shm": key}}) {
		t.Error("it can be reached")
	}
	if err := errors.Join(e.Transport.Close(), e.Regions.Close()); err != nil {
		t.Error(err)
	}
}
