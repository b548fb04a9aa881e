// Package memory owns the memory that transfers read and write: blocks of it,
// mapped outside Go's heap, and the table of regions that says what a peer may
// do with which bytes.
//
// A Block is a mapping: allocated here (memfd or anonymous, huge pages, bound to
// NUMA nodes, faulted in at once), mapped from a peer's sealed memfd, or owned by
// somebody else. A Region is a block with an ID, a name and a grant. Whoever
// touches a region's bytes on behalf of a transfer pins it first; closing a
// region waits for the pins and then hides the bytes, so that a late write
// faults rather than lands in memory that was given to somebody else.
//
// The memfd of a block keeps its size (seals), and that of a region that grants no
// writing cannot be mapped for writing by anybody who is given it. Closing a
// region does not take back what other processes of the host have mapped: they
// keep the old pages, which are not used again.
//
// The race detector does not see this memory: tests compare bytes.
package memory

import "errors"

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
