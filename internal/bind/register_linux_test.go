package bind

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkRegister registers one range, and gives it back, in a process with few mappings and one with many.
func BenchmarkRegister(b *testing.B) {
	e := open(b, "")
	_, address := mapped(b, 1<<20)
	for _, mappings := range []int{0, 10_000} {
		for range mappings / 2 {
			two, err := unix.Mmap(-1, 0, 2*4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
			must(b, err)
			defer unix.Munmap(two)
			must(b, unix.Mprotect(two[:4096], unix.PROT_READ))
		}
		b.Run(fmt.Sprintf("mappings=%d", mappings), func(b *testing.B) {
			for b.Loop() {
				must(b, e.Register([]uint64{address}, []uint64{4096}, "", both))
				must(b, e.Unregister([]uint64{address}))
			}
		})
	}
}
