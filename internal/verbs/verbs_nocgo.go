//go:build !(cgo && linux && (amd64 || arm64))

package verbs

import "fmt"

// Lib is libibverbs, which such a program cannot load.
type Lib struct{}

// Load says so.
func Load() (*Lib, error) {
	return nil, fmt.Errorf("%w: this program was built without cgo, or not for 64-bit Linux: build with CGO_ENABLED=1", ErrUnavailable)
}
