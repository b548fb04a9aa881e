// Package enginetest is for tests of programs that use engines: a network within the process, on which peers are killed
// and fall silent, ports in this process, and transports that a host does not have.
package enginetest

import (
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/fake"
	"github.com/topoctl/topoctl/engine/internal/transport/rdma"
	"github.com/topoctl/topoctl/internal/verbs"
)

// Options shape a transport.
type Options struct {
	BytesPerSec int64         // of each connection that is dialled here; 0: as fast as memory
	Latency     time.Duration // from a request to its completion, beside that
	// Reach says why a port does not reach another engine's; nil: all do.
	Reach func(local, remote topo.ID) error
}

// Transport is what an engine of this network has as its only transport; its name is "fake". Engines on one network
// need names of their own, and listen at addresses of loopback (Options.Listen).
func (n *Network) Transport(o Options) engine.TransportFactory {
	return &transport.Factory{Name: "fake", Network: sessions{n}, Make: func(env transport.Env) (transport.Transport, error) {
		return n.fake.Transport(env.Name, env.Regions, fake.Options{BytesPerSec: o.BytesPerSec, Latency: o.Latency}), nil
	}}
}

// RDMA is a transport called "rdma" with ports 1 of the devices. Engines on one network need names
// of their own.
func (n *Network) RDMA(o Options, devices ...string) engine.TransportFactory {
	shape := fake.Options{Name: "rdma", BytesPerSec: o.BytesPerSec, Latency: o.Latency, Reach: o.Reach}
	for _, d := range devices {
		shape.Ports = append(shape.Ports, transport.LocalPort{ID: topo.PortID(d, 1), Name: d, BytesPerSec: 1e9})
	}
	return &transport.Factory{Name: shape.Name, Make: func(env transport.Env) (transport.Transport, error) {
		mine := shape
		mine.Changed = env.Changed
		return fake.Ported{Transport: n.fake.Transport(env.Name, env.Regions, mine)}, nil
	}}
}

// Failing is a transport that cannot be made; engines go on without it if err wraps engine.ErrUnavailable.
func Failing(err error) engine.TransportFactory {
	return &transport.Factory{Name: "failing", Make: func(transport.Env) (transport.Transport, error) { return nil, err }}
}

// Verbs is RDMA over a library, as topoctl's own tests have one.
func Verbs(lib *verbs.Lib) engine.TransportFactory {
	return &transport.Factory{Name: "rdma", Make: func(env transport.Env) (transport.Transport, error) {
		return rdma.New(rdma.Options{}, lib, env.Changed)
	}}
}
