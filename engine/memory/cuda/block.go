package cuda

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	driver "github.com/topoctl/topoctl/internal/base/cuda"
	"github.com/topoctl/topoctl/internal/base/engine/memory"
)

// check asks the driver what a range is.
func (g *GPU) check(address uint64, size int64) error {
	if address == 0 || size <= 0 {
		return errors.New("not a range of memory")
	}
	p, err := g.lib.Pointer(address)
	if err != nil {
		return fmt.Errorf("CUDA does not know it: %w", err)
	}
	switch {
	case p.Managed:
		return errors.New("it is managed memory, which moves between GPU and host: use cuMemAlloc (cudaMalloc)")
	case p.Type != driver.MemoryDevice:
		return errors.New("it is memory of the host: use memory.Foreign")
	case p.Ordinal != g.info.Ordinal:
		return fmt.Errorf("it belongs to CUDA device %d, this is %d", p.Ordinal, g.info.Ordinal)
	case address < p.Start || uint64(size) > uint64(p.Bytes)-min(address-p.Start, uint64(p.Bytes)):
		return fmt.Errorf("its allocation has %d bytes at %#x: %w", p.Bytes, p.Start, memory.ErrRange)
	}
	return nil
}

func (g *GPU) block(u *used, address uint64, size int64, ours bool) (*memory.Block, error) {
	b, err := memory.OnDevice(&allocation{gpu: g, used: u, address: address, size: size, ours: ours}, size)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	g.blocks++
	g.mu.Unlock()
	return b, nil
}

// allocation is memory.DeviceMemory.
type allocation struct {
	gpu     *GPU
	used    *used
	address uint64
	size    int64
	ours    bool
	freed   atomic.Bool
}

var _ memory.DeviceMemory = (*allocation)(nil)

// Device names the GPU.
func (a *allocation) Device() string { return a.gpu.String() }

// Location is the GPU's.
func (a *allocation) Location() string { return a.gpu.info.Location }

// Pinned is the GPU's.
func (a *allocation) Pinned() *memory.Pinned { return a.used.pinned }

// Copy queues copies on the stream of their direction.
func (a *allocation) Copy(pieces []memory.DevicePiece, toHost bool, done func(error)) {
	l := a.used.toDevice
	if toHost {
		l = a.used.toHost
	}
	for i := range pieces {
		p := &pieces[i]
		if p.Offset < 0 || p.Offset > a.size || int64(len(p.Host)) > a.size-p.Offset || a.freed.Load() {
			l.fail(fmt.Errorf("cuda: %s: copy of %d bytes at %d of %d: %w", a.gpu, len(p.Host), p.Offset, a.size, memory.ErrRange), done)
			return
		}
	}
	l.copy(a.address, pieces, done)
}

// fail reports a copy that is none, in its turn.
func (l *lane) fail(err error, done func(error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, copying{err: err, done: done})
	l.wake.Signal()
}

// DMABuf exports the pages that the memory is in.
func (a *allocation) DMABuf() (fd int, offset int64, err error) {
	fail := func(err error) (int, int64, error) {
		return -1, 0, fmt.Errorf("cuda: %s: %w as dma-buf: %w", a.gpu, memory.ErrNoExport, err)
	}
	if !a.gpu.info.DMABuf {
		return fail(errors.New("the driver offers none for it (a data-centre GPU, the open kernel modules and CUDA 11.7 have it)"))
	}
	if a.freed.Load() {
		return fail(errors.New("it was freed"))
	}
	page := uint64(os.Getpagesize())
	start := a.address &^ (page - 1)
	end := (a.address + uint64(a.size) + page - 1) &^ (page - 1)
	// Hardware reads it beside CUDA: synchronous copies must be over when they return.
	if err := a.used.ctx.SyncMemops(a.address); err != nil {
		return fail(err)
	}
	if fd, err = a.used.ctx.Export(start, int64(end-start)); err != nil {
		return fail(err)
	}
	return fd, int64(a.address - start), nil
}

// Free frees what Alloc gave.
func (a *allocation) Free() error {
	if a.freed.Swap(true) {
		return nil
	}
	a.gpu.mu.Lock()
	a.gpu.blocks--
	a.gpu.mu.Unlock()
	if !a.ours {
		return nil
	}
	// What a broken GPU does not free is not asked for again.
	return a.used.ctx.Free(a.address)
}
