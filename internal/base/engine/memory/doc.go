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
