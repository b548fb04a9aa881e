//go:build !linux || !cgo || nonvml

package nvml

import (
	"context"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/replies"
)

// Source asks no NVML.
type Source struct {
	path string
}

// GPUs says that this program cannot ask NVML.
func (s *Source) GPUs(context.Context) (*replies.GPUReport, error) {
	return nil, errNotBuilt
}

// Load says that this program cannot ask NVML.
func (s *Source) Load(context.Context) ([]counters.GPULoad, []string, error) {
	return nil, nil, errNotBuilt
}

// Close does nothing.
func (s *Source) Close() error { return nil }

const errNotBuilt = absentError("this program was built without it (needs Linux and cgo, and no build tag nonvml)")
