//go:build vmlab && linux && cgo

package rdma

import (
	"errors"
	"fmt"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/transport/rdma"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
	"github.com/topoctl/topoctl/test/vmlab/hardware"
)

// rdma makes the transport with the devices of the rails.
func (s Spec) rdma() engine.Transport {
	return func(env engine.TransportEnv) (transport.Transport, error) {
		o := rdma.Options{Depth: s.Depth, Changed: env.Changed}
		for _, rail := range s.Rails {
			o.Devices = append(o.Devices, hardware.RDMADev(rail))
		}
		t, err := rdma.New(o)
		if errors.Is(err, rdma.ErrUnavailable) {
			err = fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
		}
		if err != nil {
			return nil, err
		}
		return t, nil
	}
}
