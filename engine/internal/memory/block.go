package memory

import (
	"errors"
	"math"
	"slices"
	"sync"
	"unsafe"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Block is a range of mapped memory outside Go's heap, or of a device's memory. Its methods may be used by
// many goroutines; Free must come after everything else.
type Block struct {
	bytes  []byte // nil for device memory
	size   int64
	device DeviceMemory
	info   Info

	mu     sync.Mutex
	area   area // what Free unmaps, empty for borrowed memory
	fd     int  // memfd, -1 without
	hidden bool
	owned  bool // by a table
}

// Info says what an allocation got, which may be less than was asked for.
type Info struct {
	Backing   Backing
	PageBytes int64 // of the mapping: 2 MiB where huge pages were given, else the base page
	Nodes     []int // bound to, nil: not bound
	Locked    bool
	Notes     []string // what was asked for and not given, and why
}

// maxNode is the highest NUMA node that can be asked for: kernels have room for
// 1024 of them.
const maxNode = 1023

// Alloc maps size bytes of zeroed memory, size above 0; the mapping is rounded up
// to whole pages, Bytes is not. What the system has not got is an error, except
// for what is by advice (Huge, and Shared where there is no memfd): that is
// noted in Info.
func Alloc(size int64, o Options) (*Block, error) {
	if size <= 0 || size > math.MaxInt-(2<<30) {
		return nil, pkgerr.Errorf("memory", "allocation of %d bytes: the size must be above 0 and fit the address space", size)
	}
	if o.Backing > Private || o.Pages > Huge1GiB {
		return nil, pkgerr.Errorf("memory", "allocation of %d bytes: unknown backing %d or pages %d", size, o.Backing, o.Pages)
	}
	for _, n := range o.Nodes {
		if n < 0 || n > maxNode {
			return nil, pkgerr.Errorf("memory", "allocation of %d bytes: NUMA node %d does not exist", size, n)
		}
	}
	o.Nodes = slices.Compact(slices.Sorted(slices.Values(o.Nodes)))
	b, err := allocate(size, o)
	if err != nil {
		return nil, pkgerr.Errorf("memory", "allocation of %d bytes: %w", size, err)
	}
	return b, nil
}

// Foreign wraps memory that somebody else mapped and keeps mapped: a C library's
// buffer, a tensor. It must be outside Go's heap and stacks; where the system
// tells (Linux: /proc/self/maps), memory that is not mapped readable and
// writable, or that the Go runtime manages, is refused. Kernels that do not name
// mappings leave the second to a guess: what lies in one piece with the heap.
func Foreign(address uintptr, size int64) (*Block, error) {
	blocks, err := ForeignRanges([]Range{{address, size}}, nil)
	if err != nil {
		return nil, err
	}
	return blocks[0], nil
}

// Map maps a peer's memfd of exactly size bytes (rounded up to its pages where
// these are huge), for reading only or for both. It must be sealed against
// shrinking (fcntl F_GET_SEALS), else ErrUnsealed. The descriptor stays the
// caller's.
//
// The peer can still punch holes into its file. On tmpfs they read as zeros; a
// hugetlb pool that is empty makes them fault, so whoever touches these bytes
// guards against faults.
func Map(fd int, size int64, write bool) (*Block, error) {
	if size <= 0 || size > math.MaxInt-(2<<30) {
		return nil, pkgerr.Errorf("memory", "map of %d bytes: the size must be above 0 and fit the address space", size)
	}
	b, err := mapFile(fd, size, write)
	if err != nil {
		return nil, pkgerr.Errorf("memory", "map of %d bytes of a peer: %w", size, err)
	}
	return b, nil
}

// Size is the block's length in bytes.
func (b *Block) Size() int64 { return b.size }

// Bytes are the block's bytes; nil for device memory, which ReadAt and WriteAt reach.
func (b *Block) Bytes() []byte { return b.bytes }

// Address is where the block is in this process; of device memory, what the device's users
// call its first byte.
func (b *Block) Address() uintptr {
	if b.device != nil {
		return b.device.Address()
	}
	return uintptr(unsafe.Pointer(unsafe.SliceData(b.bytes)))
}

// Info says what the block is made of.
func (b *Block) Info() Info { return b.info }

// File gives a new descriptor of the block's memfd, one that can only be mapped
// for reading unless write is set. The caller closes it. ok is false for memory
// without a file, and for a block that is hidden. The file of a region that grants
// no writing is sealed (F_SEAL_FUTURE_WRITE): nobody can map it for writing any
// more, by whatever descriptor.
func (b *Block) File(write bool) (fd int, ok bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fd < 0 {
		return -1, false, nil
	}
	fd, err = reopen(b.fd, write)
	if err != nil {
		return -1, true, pkgerr.Errorf("memory", "descriptor of a block of %d bytes: %w", b.Size(), err)
	}
	return fd, true, nil
}

// Hide makes the range inaccessible (PROT_NONE) and gives its pages back; the
// addresses stay taken until Free. Borrowed memory is left alone, device memory is
// freed.
//
// Processes that have mapped the block's memfd keep its pages until they unmap
// it. What they write there is seen by nobody: the pages are not used again.
func (b *Block) Hide() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.device != nil {
		return b.freeDevice()
	}
	if b.hidden || b.area.size == 0 {
		return nil
	}
	if err := b.area.hide(); err != nil {
		return pkgerr.Errorf("memory", "hide %d bytes: %w", b.Size(), err)
	}
	b.hidden = true
	return b.closeFile()
}

// Free unmaps the block. Nothing may use it afterwards.
func (b *Block) Free() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.device != nil {
		return b.freeDevice()
	}
	if b.area.size == 0 {
		return nil
	}
	if err := b.area.unmap(); err != nil {
		return pkgerr.Errorf("memory", "free %d bytes: %w", b.Size(), err)
	}
	b.area = area{}
	b.bytes, b.size = nil, 0
	return b.closeFile()
}

// addresses is how many bytes of addresses the block takes.
func (b *Block) addresses() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int64(b.area.size)
}

// unmap gives the addresses of a hidden block back. Bytes stays as it is: it is read
// without the lock.
func (b *Block) unmap() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.area.unmap(); err != nil {
		return pkgerr.Errorf("memory", "free %d bytes: %w", b.size, err)
	}
	b.area = area{}
	return nil
}

// own makes the block a region's, once, and seals its file for the region's grant.
func (b *Block) own(grant Grant) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.owned:
		return errors.New("the block is a region already")
	case b.hidden || b.size == 0:
		return errors.New("the block is hidden or freed")
	}
	if err := b.seal(grant); err != nil {
		return err
	}
	b.owned = true
	return nil
}

// freeDevice gives device memory back, once. mu is held.
func (b *Block) freeDevice() error {
	if b.hidden {
		return nil
	}
	if err := b.device.Free(); err != nil {
		return pkgerr.Errorf("memory", "free %d bytes of %s: %w", b.size, b.device.Device(), err)
	}
	b.hidden = true
	return nil
}

// area is a mapped range of addresses, whole pages.
type area struct {
	start uintptr
	size  uintptr
}

// pointer is the address as a pointer. It is mapped memory that the garbage
// collector does not know, so the rules about uintptr do not apply.
func pointer(address uintptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}

// bytesAt are size bytes at an address outside Go's heap.
func bytesAt(address uintptr, size int64) []byte {
	return unsafe.Slice((*byte)(pointer(address)), size)
}

// roundUp rounds n up to a multiple of a power of two.
func roundUp(n, to int64) int64 { return (n + to - 1) &^ (to - 1) }

// touch writes a zero into each page of fresh memory.
func touch(b []byte, page int64) {
	for i := int64(0); i < int64(len(b)); i += page {
		b[i] = 0
	}
}
