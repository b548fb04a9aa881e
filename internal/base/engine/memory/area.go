package memory

import (
	"unsafe"
)

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
