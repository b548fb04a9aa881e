//go:build !cgo || !linux

package cuda

import (
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Soname is the library that comes with the driver.
const Soname = "libcuda.so.1"

// Loaded says whether this program can have found memory of CUDA's.
func Loaded() bool { return false }

// Load says that this program cannot use CUDA.
func Load(string) (*Lib, error) {
	return nil, pkgerr.Errorf("cuda", "this program was built without it (needs Linux and cgo): %w", ErrUnavailable)
}
