// Package memory allocates the memory that an engine's transfers read and write:
// blocks outside Go's heap, on chosen NUMA nodes and in chosen pages, which other
// processes of the host may be able to map; or memory that somebody else allocated.
// Blocks of a GPU's memory come from package engine/memory/cuda.
//
//	block, err := memory.Alloc(1<<30, memory.Options{Pages: memory.Huge, Nodes: []int{0}})
//	region, err := e.Register(block, engine.RegionOptions{Name: "kv", Grant: memory.PeerWrite})
//
// The race detector does not see this memory: tests compare bytes.
package memory

import (
	"github.com/topoctl/topoctl/engine/internal/memory"
)

// Backing is what a block's pages belong to.
type Backing uint8

// The backings.
const (
	// Shared is a sealed memfd: engines of the same host map it and copy directly.
	// Where the system has none (not Linux), it is Private.
	Shared Backing = Backing(memory.Shared)
	// Private is anonymous memory: no other process can map it.
	Private Backing = Backing(memory.Private)
)

// Pages is the size of the pages that are wanted.
type Pages uint8

// The sizes. Huge is by advice (transparent huge pages; whatever the system has
// at that moment); the last two come from the hugetlb pool or Alloc fails.
const (
	BasePages Pages = Pages(memory.BasePages)
	Huge      Pages = Pages(memory.Huge)
	Huge2MiB  Pages = Pages(memory.Huge2MiB)
	Huge1GiB  Pages = Pages(memory.Huge1GiB)
)

// Options say how a block is allocated. The zero value is shared memory of base
// pages, faulted in, on whatever node the kernel chooses.
type Options struct {
	Backing Backing
	Pages   Pages
	// Nodes are the NUMA nodes that the pages must be on: one binds, several
	// interleave, none leaves it to the kernel.
	Nodes []int
	// Lazy leaves the pages to the first touch. Otherwise Alloc faults them in, so
	// that no transfer pays for that.
	Lazy bool
	// Lock keeps the pages from being swapped (mlock).
	Lock bool
}

// Info says what an allocation got, which may be less than was asked for.
type Info struct {
	Backing   Backing
	PageBytes int64 // of the mapping: 2 MiB where huge pages were given, else the base page
	Nodes     []int // bound to, nil: not bound
	Locked    bool
	Notes     []string // what was asked for and not given, and why
}

// Grant is what peers may do with a region: a set of rights.
type Grant uint8

// The grants. None keeps a region for the engine's own ops.
const (
	None      Grant = Grant(memory.None)
	PeerRead  Grant = Grant(memory.PeerRead)
	PeerWrite Grant = Grant(memory.PeerWrite)
)

// String names what the grant allows: "read", "write", "read and write", "none".
func (g Grant) String() string { return memory.Grant(g).String() }

// Why memory cannot be touched. Errors that wrap them name the region and the range.
var (
	ErrRange   = memory.ErrRange   // offset or length is outside the region or block
	ErrNotHost = memory.ErrNotHost // device memory, which processors cannot touch
	ErrDevice  = memory.ErrDevice  // the device failed: trying again does not help
)

// Block is a range of memory outside Go's heap, or of a GPU's memory. Its methods may
// be used by many goroutines; Free must come after everything else. A block that is
// registered with an engine belongs to the engine.
type Block memory.Block

// Alloc maps size bytes of zeroed memory, size above 0; the mapping is rounded up
// to whole pages, Bytes is not. What the system does not have is an error, except
// for what is by advice (Huge, and Shared where there is no memfd): Info notes that.
func Alloc(size int64, o Options) (*Block, error) {
	b, err := memory.Alloc(size, memory.Options{
		Backing: memory.Backing(o.Backing), Pages: memory.Pages(o.Pages), Nodes: o.Nodes, Lazy: o.Lazy, Lock: o.Lock,
	})
	return (*Block)(b), err
}

// Foreign wraps memory that somebody else mapped and keeps mapped: a C library's
// buffer, a tensor. It must be outside Go's heap and stacks; where the system
// tells (Linux: /proc/self/maps), memory that is not mapped readable and
// writable, or that the Go runtime manages, is refused. Kernels that do not name
// mappings leave the second to a guess: what lies in one piece with the heap.
func Foreign(address uintptr, size int64) (*Block, error) {
	b, err := memory.Foreign(address, size)
	return (*Block)(b), err
}

// Range is memory of this process by its address, or memory of a device by what the device's
// users call its first byte.
type Range struct {
	Address uintptr
	Bytes   int64
}

// Devices finds memory of devices by address: a *cuda.Driver does. Its methods may be used by
// many goroutines.
type Devices interface {
	// Allocation is the device's allocation that an address lies in; false where the address
	// is not a device's.
	Allocation(address uintptr) (Range, bool)
	// Foreign wraps memory of an allocation that somebody else owns, like the function of that
	// name.
	Foreign(r Range) (*Block, error)
}

// Size is the block's length in bytes.
func (b *Block) Size() int64 { return (*memory.Block)(b).Size() }

// Bytes are the block's bytes; nil for device memory, which ReadAt and WriteAt reach.
func (b *Block) Bytes() []byte { return (*memory.Block)(b).Bytes() }

// Info says what the block is made of.
func (b *Block) Info() Info {
	i := (*memory.Block)(b).Info()
	return Info{Backing: Backing(i.Backing), PageBytes: i.PageBytes, Nodes: i.Nodes, Locked: i.Locked, Notes: i.Notes}
}

// Location is where the block is known to be as the topology counts ("gpu:0"), ""
// where that is not known.
func (b *Block) Location() string { return (*memory.Block)(b).Location() }

// ReadAt copies from the block, like io.ReaderAt. Of device memory it copies through
// staging buffers and waits: it is for setting up and looking, not for moving much.
func (b *Block) ReadAt(p []byte, off int64) (int, error) { return (*memory.Block)(b).ReadAt(p, off) }

// WriteAt copies into the block, like io.WriterAt; it works like ReadAt. What does
// not fit is an error.
func (b *Block) WriteAt(p []byte, off int64) (int, error) { return (*memory.Block)(b).WriteAt(p, off) }

// Free unmaps the block. Nothing may use it afterwards. Memory of somebody else's
// (Foreign) stays.
func (b *Block) Free() error { return (*memory.Block)(b).Free() }

// Stream copies like copy, past the processor's caches where it can (streaming stores, from 4 KiB on): for many
// pieces that are together larger than a cache.
func Stream(dst, src []byte) int { return memory.Stream(dst, src) }
