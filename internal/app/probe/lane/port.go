package lane

import (
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/base/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
)

// OnPort makes transports that have only one port of the topology, so that an engine on a host with many
// ports makes no unwanted lanes. Those without ports of their own (TCP, shared memory) stay as they are.
func OnPort(all []engine.TransportFactory, port topo.ID) []engine.TransportFactory {
	out := make([]engine.TransportFactory, len(all))
	for i, make := range all {
		out[i] = func(env transport.Env) (transport.Transport, error) {
			t, err := make(env)
			if err != nil {
				return nil, err
			}
			if ported, ok := transport.As[transport.Ported](t); ok {
				return onPort{t, ported, port}, nil
			}
			return t, nil
		}
	}
	return out
}

// onPort is a transport that shows one of its ports.
type onPort struct {
	transport.Transport
	all  transport.Ported
	port topo.ID
}

var _ transport.Ported = onPort{}

// Unwrap is the transport with all ports.
func (o onPort) Unwrap() transport.Transport { return o.Transport }

// Offers are the port's.
func (o onPort) Offers() []transport.Endpoint {
	return slices.DeleteFunc(slices.Clone(o.all.Offers()), func(e transport.Endpoint) bool { return e.Port != o.port })
}

// LocalPorts is the port, if it can be dialled from now.
func (o onPort) LocalPorts() []transport.LocalPort {
	return slices.DeleteFunc(slices.Clone(o.all.LocalPorts()), func(p transport.LocalPort) bool { return p.ID != o.port })
}

// Key is the transport's.
func (o onPort) Key(r *memory.Region) string { return o.all.Key(r) }

// PortReaches asks the transport.
func (o onPort) PortReaches(local topo.ID, remote transport.Endpoint) error {
	return o.all.PortReaches(local, remote)
}
