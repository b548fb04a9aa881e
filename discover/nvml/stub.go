//go:build !linux || !cgo || nonvml

package nvml

import (
	"context"

	"github.com/topoctl/topoctl/discover/topo"
)

// GPUs says that this program cannot ask NVML.
func (s *Source) GPUs(context.Context) (*topo.GPUReport, error) {
	return nil, absentError("this program was built without it (needs Linux and cgo, and no build tag nonvml)")
}
