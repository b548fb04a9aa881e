package cuda

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/topoctl/topoctl/engine/internal/memory"
	driver "github.com/topoctl/topoctl/internal/cuda"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// used is what is held of a GPU from its first use on.
type used struct {
	ctx      *driver.Context
	toHost   *lane
	toDevice *lane
	pinned   *memory.Pinned
}

// use takes hold of the GPU.
func (g *GPU) use() (*used, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.used != nil {
		return g.used, nil
	}
	ctx, err := g.lib.Retain(g.info.Ordinal)
	if err != nil {
		return nil, err
	}
	u := &used{ctx: ctx, pinned: memory.NewPinned(g.stagingBytes, func(size int64, backing memory.Backing) (*memory.Block, func() error, error) {
		return g.pin(ctx, backing, size)
	})}
	if u.toHost, err = newLane(g, ctx, true); err != nil {
		return nil, errors.Join(err, ctx.Release())
	}
	if u.toDevice, err = newLane(g, ctx, false); err != nil {
		return nil, errors.Join(err, u.toHost.close(), ctx.Release())
	}
	g.used = u
	return u, nil
}

// close gives the GPU back.
func (g *GPU) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	u := g.used
	if u == nil {
		return nil
	}
	if g.blocks > 0 {
		return pkgerr.Errorf("cuda", "%s: %d blocks are not freed: close the engines first", g, g.blocks)
	}
	if err := u.pinned.Close(); err != nil {
		return pkgerr.Errorf("cuda", "%s: %w", g, err)
	}
	g.used = nil
	return errors.Join(u.toHost.close(), u.toDevice.close(), u.ctx.Release())
}

// pin allocates memory of the host on the GPU's NUMA node, and pins it.
func (g *GPU) pin(ctx *driver.Context, backing memory.Backing, size int64) (b *memory.Block, release func() error, err error) {
	o := memory.Options{Backing: backing}
	if g.info.Node >= 0 {
		o.Nodes = []int{g.info.Node}
	}
	b, err = memory.Alloc(size, o)
	if err != nil && o.Nodes != nil {
		// A container may not bind. The kernel's choice is slower, not wrong.
		b, err = memory.Alloc(size, memory.Options{Backing: backing})
	}
	if err != nil {
		return nil, nil, pkgerr.Errorf("cuda", "%s: %w", g, err)
	}
	address, err := ctx.PinBytes(b.Bytes())
	if err != nil {
		return nil, nil, errors.Join(pkgerr.Errorf("cuda", "%s: %w", g, err), b.Free())
	}
	return b, func() error { return ctx.Unpin(address) }, nil
}

// lane copies one way: copies are queued on a stream, and a goroutine waits for the
// events behind them, in order.
type lane struct {
	gpu    *GPU
	ctx    *driver.Context
	stream *driver.Stream
	toHost bool
	over   chan struct{}

	mu     sync.Mutex
	wake   *sync.Cond
	queue  []copying
	events []*driver.Event // that are free
	pieces []driver.Piece
	closed bool
}

// copying is a copy that was queued.
type copying struct {
	event *driver.Event // nil: it never began
	err   error
	done  func(error)
}

func newLane(g *GPU, ctx *driver.Context, toHost bool) (*lane, error) {
	s, err := ctx.NewStream()
	if err != nil {
		return nil, err
	}
	l := &lane{gpu: g, ctx: ctx, stream: s, toHost: toHost, over: make(chan struct{})}
	l.wake = sync.NewCond(&l.mu)
	go l.wait()
	return l, nil
}

// copy queues the pieces of one allocation.
func (l *lane) copy(base uint64, pieces []memory.DevicePiece, done func(error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := copying{done: done}
	if c.event, c.err = l.begin(base, pieces); c.err != nil {
		c.err = fmt.Errorf("%w: %s: %w", memory.ErrDevice, l.gpu, c.err)
	}
	l.queue = append(l.queue, c)
	l.wake.Signal()
}

// begin gives the event to wait for, although the copy failed: pieces of it may be
// on their way. mu is held.
func (l *lane) begin(base uint64, pieces []memory.DevicePiece) (*driver.Event, error) {
	if l.closed {
		return nil, errors.New("it was closed")
	}
	l.pieces = l.pieces[:0]
	for i := range pieces {
		p := &pieces[i]
		if len(p.Host) == 0 {
			continue
		}
		l.pieces = append(l.pieces, driver.Piece{
			Device: base + uint64(p.Offset),
			Host:   uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p.Host)))),
			Bytes:  uint64(len(p.Host)),
		})
	}
	if len(l.pieces) == 0 {
		return nil, nil
	}
	var e *driver.Event
	if n := len(l.events); n > 0 {
		e, l.events = l.events[n-1], l.events[:n-1]
	} else {
		var err error
		if e, err = l.ctx.NewEvent(); err != nil {
			return nil, err
		}
	}
	recorded, err := l.stream.Copy(l.toHost, l.pieces, e)
	if !recorded {
		// Where not even that works, the context is broken and nothing runs in it.
		l.events = append(l.events, e)
		e = nil
	}
	return e, err
}

// wait reports copies when they are over.
func (l *lane) wait() {
	defer close(l.over)
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		for len(l.queue) == 0 && !l.closed {
			l.wake.Wait()
		}
		if len(l.queue) == 0 {
			return
		}
		c := l.queue[0]
		l.queue[0] = copying{}
		l.queue = l.queue[1:]
		l.mu.Unlock()
		if c.event != nil {
			if err := c.event.Wait(); err != nil && c.err == nil {
				c.err = fmt.Errorf("%w: %s: %w", memory.ErrDevice, l.gpu, err)
			}
		}
		c.done(c.err)
		l.mu.Lock()
		if c.event != nil {
			l.events = append(l.events, c.event)
		}
	}
}

// close ends the lane after what is queued.
func (l *lane) close() error {
	l.mu.Lock()
	l.closed = true
	l.wake.Signal()
	l.mu.Unlock()
	<-l.over
	var errs []error
	for _, e := range l.events {
		errs = append(errs, e.Close())
	}
	return errors.Join(append(errs, l.stream.Close())...)
}

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

// Address is CUDA's.
func (a *allocation) Address() uintptr { return uintptr(a.address) }

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
			l.fail(pkgerr.Errorf("cuda", "%s: copy of %d bytes at %d of %d: %w", a.gpu, len(p.Host), p.Offset, a.size, memory.ErrRange), done)
			return
		}
	}
	l.copy(a.address, pieces, done)
}

// fail reports the error of a copy that was never queued, in its turn.
func (l *lane) fail(err error, done func(error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, copying{err: err, done: done})
	l.wake.Signal()
}

// DMABuf exports the pages that the memory is in.
func (a *allocation) DMABuf() (fd int, offset int64, err error) {
	fail := func(err error) (int, int64, error) {
		return -1, 0, pkgerr.Errorf("cuda", "%s: %w as dma-buf: %w", a.gpu, memory.ErrNoExport, err)
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
