package memory

import (
	"fmt"
	"os"
	"unsafe"
)

// checkForeign refuses a range that is not wholly mapped for reading and writing,
// and one that the Go runtime manages.
func checkForeign(address uintptr, size int64) error {
	probe := heapByte()
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("cannot check what is mapped there: %w", err)
	}
	return checkRange(parseMaps(text), uint64(address), uint64(address)+uint64(size), uint64(uintptr(unsafe.Pointer(probe))))
}

// heapByte is a byte of Go's heap.
//
//go:noinline
func heapByte() *byte { return new(byte) }
