package memory

import (
	"errors"
	"net"
	"sync"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// PieceBytes is the size of a buffer: what is copied at once between a device and the
// host, and what a request may ask of a peer's device memory (docs/wire.md): at 25 GB/s
// 20 µs, so that beginning a copy and waiting for it are little beside it.
const PieceBytes = 512 << 10

// Use says what buffers are for. Each use has its own, so that requests which wait for a peer
// never hold what the peer's requests need here.
type Use uint8

// The uses.
const (
	ForRequests Use = iota // our own requests
	ForAnswers             // what peers ask for
)

// Pin allocates pinned memory of the host near a device. release has the device forget
// it, after the last copy and before the block is freed.
type Pin func(size int64, backing Backing) (b *Block, release func() error, err error)

// Pinned is all the host memory through which the memory of one device is copied: pools
// of buffers that are used again, and windows, which a peer maps and which belong to
// nobody else afterwards. Its methods may be used by many goroutines.
type Pinned struct {
	pin     Pin
	buffers int // of each pool

	mu      sync.Mutex
	closed  bool
	pools   [2]*Pool // by use; made when they are first wanted
	windows int
}

// NewPinned has as many buffers for each use as bytes has room for, at least two.
func NewPinned(bytes int64, pin Pin) *Pinned {
	return &Pinned{pin: pin, buffers: max(int(bytes/2/PieceBytes), 2)}
}

// Buffers is how many there are for each use. All windows together have no more.
func (p *Pinned) Buffers() int { return p.buffers }

// PoolOf is the pool that a device's memory is copied through.
func PoolOf(d DeviceMemory, use Use) (*Pool, error) {
	p := d.Pinned()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, pkgerr.Errorf("memory", "pinned memory: %s is %w", d.Device(), net.ErrClosed)
	}
	if pool := p.pools[use]; pool != nil {
		return pool, nil
	}
	run, err := p.newRun(p.buffers, Private, "staging", None)
	if err != nil {
		return nil, err
	}
	pool := &Pool{run: run, free: make(chan *Buffer, p.buffers)}
	for i := range p.buffers {
		pool.free <- &Buffer{pool: pool, Region: run.region, Offset: int64(i) * PieceBytes}
	}
	p.pools[use] = pool
	return pool, nil
}

// run is a block of several buffers, as a region of its own.
type run struct {
	table   *Table
	region  *Region
	release func() error
}

// newRun allocates and pins.
func (p *Pinned) newRun(count int, backing Backing, name string, grant Grant) (run, error) {
	size := int64(count) * PieceBytes
	b, release, err := p.pin(size, backing)
	if err != nil {
		return run{}, pkgerr.Errorf("memory", "pinned memory of %d bytes: %w", size, err)
	}
	r := run{table: NewTable(1), release: release}
	if r.region, err = r.table.Add(b, name, "", grant); err != nil {
		return run{}, errors.Join(err, release(), b.Free())
	}
	return r, nil
}

// giveBack frees the memory. With an error it stays: something still knows it.
func (r *run) giveBack() error {
	if err := r.release(); err != nil {
		return pkgerr.Errorf("memory", "pinned memory of %d bytes: %w", r.region.Size(), err)
	}
	return r.table.Close()
}

// Window is memory of some buffers that a peer maps. Free gives it back; the peer may keep
// its mapping, whose pages are not used again.
type Window struct {
	run
	of *Pinned
}

// Window makes one.
func (p *Pinned) Window(buffers int) (*Window, error) {
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.windows++
	}
	p.mu.Unlock()
	if closed {
		return nil, pkgerr.Errorf("memory", "a window of %d buffers: the device is %w", buffers, net.ErrClosed)
	}
	r, err := p.newRun(buffers, Shared, "window", PeerRead|PeerWrite)
	if err != nil {
		p.countDown()
		return nil, err
	}
	return &Window{r, p}, nil
}

// Block is the window's memory.
func (w *Window) Block() *Block { return w.region.Block() }

// Buffer is the window's buffer at a place. It is the caller's to use again.
func (w *Window) Buffer(i int) Buffer {
	return Buffer{Region: w.region, Offset: int64(i) * PieceBytes}
}

// Free gives the memory back.
func (w *Window) Free() error {
	if err := w.giveBack(); err != nil {
		return err
	}
	w.of.countDown()
	return nil
}

func (p *Pinned) countDown() {
	p.mu.Lock()
	p.windows--
	p.mu.Unlock()
}

// Close frees the memory, of which nothing may be in use.
func (p *Pinned) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.windows > 0 {
		return pkgerr.Errorf("memory", "%d windows of pinned memory are in use: close the engines first", p.windows)
	}
	for i, pool := range p.pools {
		if pool == nil {
			continue
		}
		if err := pool.close(); err != nil {
			return err
		}
		p.pools[i] = nil
	}
	p.closed = true
	return nil
}

// Pool is a bounded set of buffers. A caller that finds none waits for one: nothing fails for want of
// buffers.
type Pool struct {
	run
	free chan *Buffer
}

// Buffer is a piece of pinned memory: PieceBytes of the region from Offset on.
type Buffer struct {
	pool   *Pool // nil: of a window
	Region *Region
	Offset int64
}

// Bytes are the first n bytes of the buffer.
func (b *Buffer) Bytes(n int64) []byte { return b.Region.Bytes(b.Offset, n) }

// Release returns the buffer to its pool, if it is of one. It never waits.
func (b *Buffer) Release() {
	if b.pool != nil {
		b.pool.free <- b
	}
}

// Region is what all buffers are pieces of.
func (p *Pool) Region() *Region { return p.region }

// Get gives a buffer, nil where none is free.
func (p *Pool) Get() *Buffer {
	select {
	case b := <-p.free:
		return b
	default:
		return nil
	}
}

// Await waits for a buffer, but not longer than until stop is closed: nil then. Those that wait
// get theirs in the order in which they came.
func (p *Pool) Await(stop <-chan struct{}) *Buffer {
	select {
	case b := <-p.free:
		return b
	case <-stop:
		return nil
	}
}

// close ends the pool. All buffers must be back.
func (p *Pool) close() error {
	if missing := cap(p.free) - len(p.free); missing > 0 {
		return pkgerr.Errorf("memory", "%d of %d buffers of pinned memory are in use: close the engines first", missing, cap(p.free))
	}
	return p.giveBack()
}
