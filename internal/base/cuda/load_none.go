//go:build !cgo || !linux

package cuda

import "fmt"

// Soname is the library that comes with the driver.
const Soname = "libcuda.so.1"

// Load says that this program cannot use CUDA.
func Load(string) (*Lib, error) {
	return nil, fmt.Errorf("cuda: this program was built without it (needs Linux and cgo): %w", ErrUnavailable)
}
