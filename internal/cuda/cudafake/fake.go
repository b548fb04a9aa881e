//go:build cgo && linux

// Package cudafake is a stand-in for libcuda for tests: GPUs in this process whose
// memory lies at addresses that no processor can read or write, so that code which
// touches it by itself crashes. Streams are threads, with a delay if wanted; each
// function can be made to fail. An exported dma-buf is a memfd.
//
// It is one for the process, as the driver is: tests that use it do not run in
// parallel.
package cudafake

/*
#cgo LDFLAGS: -lpthread
#include <stdlib.h>
#include "fake.h"
*/
import "C"

import (
	_ "embed"
	"time"
	"unsafe"

	"github.com/topoctl/topoctl/internal/cuda"
)

// Source is the C source, for a test that builds a library of it (-DFAKE_SHARED).
//
//go:embed fake.c
var Source string

// Header is the header that Source includes as "fake.h".
//
//go:embed fake.h
var Header string

// Options describe the GPUs. The zero value is two with everything, of 8 GiB each.
// GPU 0 is at 0000:1b:00.0, GPU 1 at 0000:9b:00.0.
type Options struct {
	Devices       int  // 0: two; negative: none
	NoDMABuf      bool // memory cannot be exported
	Old           bool // a driver before CUDA 11.3
	Delay         time.Duration
	MemoryBytes   int64
	PinnableBytes int64
	NoPeer        bool // GPUs cannot reach each other
	Spoil         bool // copies change a byte of what they copy
	// FromHost to Staged are rates of copies in bytes per second, for what timers tell, on
	// a clock of each stream that nothing else moves; 0: those copies take no time. Peer is
	// between GPUs directly, Staged through memory of the host. Each copy takes CopyTime
	// beside.
	FromHost, ToHost, Peer, Staged float64
	CopyTime                       time.Duration
}

// Stats are what is there now, and what was copied since Reset.
type Stats struct {
	Allocations, AllocatedBytes                  int64
	Pinned, PinnedBytes                          int64
	Streams, Events, Contexts                    int64
	Copies, CopiedBytes, UnpinnedCopies, Flushes int64
	MostQueued                                   int64 // copies on one stream at a time
}

// Reset makes the GPUs anew; what was allocated stays.
func Reset(o Options) {
	c := C.fake_options{
		devices: 2, dmabuf: 1, gpudirect: 1, flush: 1,
		delay_ns: C.int64_t(o.Delay), memory: 8 << 30, pinnable: 8 << 30,
	}
	if o.Devices != 0 {
		c.devices = C.int(max(o.Devices, 0))
	}
	if o.NoDMABuf {
		c.dmabuf = 0
	}
	if o.Old {
		c.old = 1
	}
	if o.Spoil {
		c.spoil = 1
	}
	if o.NoPeer {
		c.no_peer = 1
	}
	c.from_host, c.to_host = C.double(o.FromHost), C.double(o.ToHost)
	c.peer, c.staged = C.double(o.Peer), C.double(o.Staged)
	c.copy_seconds = C.double(o.CopyTime.Seconds())
	if o.MemoryBytes > 0 {
		c.memory = C.int64_t(o.MemoryBytes)
	}
	if o.PinnableBytes > 0 {
		c.pinnable = C.int64_t(o.PinnableBytes)
	}
	C.fake_reset(c)
}

// Load makes the GPUs anew and gives the driver.
func Load(o Options) (*cuda.Lib, error) {
	Reset(o)
	return Again()
}

// Again gives the driver without making the GPUs anew.
func Again() (*cuda.Lib, error) { return cuda.Bind(C.fake_find, nil) }

// Depth is how many contexts are current on this thread.
func Depth() int { return int(C.fake_depth()) }

// Count gives the numbers.
func Count() Stats {
	s := C.fake_count()
	return Stats{
		Allocations: int64(s.allocations), AllocatedBytes: int64(s.allocated_bytes),
		Pinned: int64(s.pinned), PinnedBytes: int64(s.pinned_bytes),
		Streams: int64(s.streams), Events: int64(s.events), Contexts: int64(s.contexts),
		Copies: int64(s.copies), CopiedBytes: int64(s.copied_bytes),
		UnpinnedCopies: int64(s.unpinned_copies), Flushes: int64(s.flushes), MostQueued: int64(s.most_queued),
	}
}

// Fail has a function ("cuMemAlloc_v2") give a code, after so many calls that work,
// so many times (-1: for ever). "copy" is a copy when it runs, which breaks the
// GPU's context.
func Fail(function string, code cuda.Result, after, times int) {
	name := C.CString(function)
	defer C.free(unsafe.Pointer(name))
	C.cudafake_fail(name, C.int(code), C.int(after), C.int(times))
}

// Lose breaks a GPU: all calls on it fail from now on.
func Lose(device int, code cuda.Result) { C.fake_lose(C.int(device), C.int(code)) }

// Hold keeps copies from running, or lets them go on.
func Hold(on bool) {
	v := C.int(0)
	if on {
		v = 1
	}
	C.fake_hold(v)
}

// Peek reads device memory from behind; false: there is none.
func Peek(address uint64, to []byte) bool {
	return C.fake_peek(C.uint64_t(address), unsafe.Pointer(unsafe.SliceData(to)), C.uint64_t(len(to))) != 0
}

// Poke writes device memory from behind; false: there is none.
func Poke(address uint64, from []byte) bool {
	return C.fake_poke(C.uint64_t(address), unsafe.Pointer(unsafe.SliceData(from)), C.uint64_t(len(from))) != 0
}
