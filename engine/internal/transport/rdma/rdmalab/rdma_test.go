//go:build vmlab && linux && cgo

package rdma

import (
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/transport/rdma"
	"github.com/topoctl/topoctl/test/vmlab"
)

// rdma makes the transport with the devices of the rails.
func (s Spec) rdma() engine.TransportFactory {
	o := rdma.Options{Depth: s.Depth}
	for _, rail := range s.Rails {
		o.Devices = append(o.Devices, vmlab.RDMADev(rail))
	}
	return rdma.Factory(o)
}
