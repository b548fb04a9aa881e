package memory

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// canStream says whether the processor (and the system) has AVX2.
var canStream = cpu.X86.HasAVX2

// streamStep is what one call of the assembly copies at most: it cannot be
// preempted there, so that the garbage collector would wait for all of it.
const streamStep = 256 << 10

// copyStream copies n bytes past the cache. dst is a multiple of 32, n of 128 and
// not 0; the ranges do not overlap.
//
//go:noescape
func copyStream(dst, src unsafe.Pointer, n uintptr)

// stream copies two slices of equal length, at least 256 bytes.
func stream(dst, src []byte) int {
	d, s := uintptr(unsafe.Pointer(&dst[0])), uintptr(unsafe.Pointer(&src[0]))
	n := uintptr(len(dst))
	if d < s+n && s < d+n {
		return copy(dst, src) // they overlap
	}
	head := int(-d & 31)
	copy(dst[:head], src)
	at := head
	for len(dst)-at >= 128 {
		step := min(len(dst)-at, streamStep) &^ 127
		copyStream(unsafe.Pointer(&dst[at]), unsafe.Pointer(&src[at]), uintptr(step))
		at += step
	}
	copy(dst[at:], src[at:])
	return len(dst)
}
