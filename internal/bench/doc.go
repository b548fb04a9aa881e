// Package bench measures the transfer engine between this process and a peer,
// and beside it, in turns in the same run, what the machine can do without an
// engine: a raw socket and a copy of memory over the same footprint.
//
// Every figure comes from bytes that moved: ops walk through the whole of the
// memory on both sides, so that the working set does not fit a cache, and pieces
// that follow each other here lie apart there, so that ops are not merged into
// larger ones.
package bench
