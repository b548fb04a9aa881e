package memory

import (
	"errors"
)

// Backing is what a block's pages belong to.
type Backing uint8

// The backings.
const (
	// Shared is a sealed memfd: engines of the same host map it and copy directly.
	// Where the system has none (not Linux), it is Private.
	Shared Backing = iota
	// Private is anonymous memory: no other process can map it.
	Private
)

// Pages is the size of pages that is wanted.
type Pages uint8

// The sizes. Huge is by advice (transparent huge pages; whatever the system has
// at that moment); the others come from the hugetlb pool or Alloc fails.
const (
	BasePages Pages = iota
	Huge
	Huge2MiB
	Huge1GiB
)

// Options say how a block is allocated. The zero value is shared memory of base
// pages, faulted in, on whatever node the kernel chooses.
type Options struct {
	Backing Backing
	Pages   Pages
	// Nodes are the NUMA nodes that the pages must be on: one binds, several
	// interleave, none leaves it to the kernel.
	Nodes []int
	// Lazy leaves the pages to the first touch. Else they are faulted in by Alloc,
	// so that no transfer pays for that.
	Lazy bool
	// Lock keeps the pages from being swapped (mlock).
	Lock bool
}

// Grant is what peers may do with a region.
type Grant uint8

// The grants. None keeps a region for the engine's own ops.
const (
	None      Grant = 0
	PeerRead  Grant = 1 << 0
	PeerWrite Grant = 1 << 1
)

// ID names a region of one engine: a place in its table in the low 32 bits, and
// how often that place was used before in the high ones. A region that is closed
// leaves an ID behind that never becomes valid again. 0 is no region.
type ID uint64

// Why a region cannot be touched. Errors that wrap them name region and range.
var (
	ErrNoRegion = errors.New("no such region")      // never existed, or is closed
	ErrRange    = errors.New("outside the region")  // offset or length
	ErrDenied   = errors.New("not granted")         // read or write
	ErrClosed   = errors.New("region is closed")    // by us, while in use
	ErrUnsealed = errors.New("memfd is not sealed") // a peer could shrink it under us
)

// String names what the grant allows: "read", "write", "read and write", "none".
func (g Grant) String() string {
	switch g & (PeerRead | PeerWrite) {
	case PeerRead:
		return "read"
	case PeerWrite:
		return "write"
	case PeerRead | PeerWrite:
		return "read and write"
	default:
		return "none"
	}
}
