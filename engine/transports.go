package engine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/internal/session"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/shm"
	"github.com/topoctl/topoctl/engine/internal/transport/tcp"
	"github.com/topoctl/topoctl/pathsel"
)

// TransportFactory makes a transport for an engine: one of Options.Transports. TCP and SHM give one, and
// rdma.Factory; programs cannot add transports of their own. Where the host does not support it, the engine works
// without it, and Engine.Unavailable says why.
type TransportFactory interface {
	String() string // the transport's name: pathsel.TCP and the like
}

// factoryOf gives what makes the transport, or an error if f does not come from this module.
func factoryOf(f TransportFactory) (*transport.Factory, error) {
	if own, ok := f.(*transport.Factory); ok {
		return own, nil
	}
	return nil, fmt.Errorf("transport %v: want SHM, TCP, or one of rdma.Factory", f)
}

// network is what one of the transports has sessions connected by, nil: the host's.
func (o *Options) network() transport.Network {
	for _, f := range o.Transports {
		if own, _ := f.(*transport.Factory); own != nil && own.Network != nil {
			return own.Network
		}
	}
	return nil
}

// TCP moves memory over TCP connections to the addresses that engines listen at. What may be set of it
// is in Security.
func TCP() TransportFactory {
	return &transport.Factory{Name: string(pathsel.TCP), Make: func(env transport.Env) (transport.Transport, error) {
		t, err := tcp.New(tcp.Options{
			Regions: env.Regions, Memory: env.Memory, Logger: env.Logger, Conns: min(4096, max(session.Files()/4, 1)), Protection: env.Protection,
			Identity: session.Identity{Name: env.Name, Epoch: env.Epoch, Credentials: env.Credentials, TLS: env.TLS},
		})
		if err != nil {
			return nil, err
		}
		return t, nil
	}}
}

// SHM moves memory between engines of the same user on one host, through memory that
// both have mapped. It needs Linux.
func SHM() TransportFactory {
	return &transport.Factory{Name: string(pathsel.SHM), Make: func(env transport.Env) (transport.Transport, error) {
		t, err := shm.New(shm.Options{Regions: env.Regions, Memory: env.Memory})
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			env.Logger.Warn("shared memory is not used, though this system has it", "error", err)
		}
		if err != nil {
			return nil, fmt.Errorf("shared memory is %w: %w", ErrUnavailable, err)
		}
		return t, nil
	}}
}

// changed is f with another view of what it makes.
func changed(f TransportFactory, change func(transport.Env, transport.Transport, error) (transport.Transport, error)) TransportFactory {
	return &transport.Factory{Name: f.String(), Make: func(env transport.Env) (transport.Transport, error) {
		own, err := factoryOf(f)
		if err != nil {
			return nil, err
		}
		t, err := own.Make(env)
		return change(env, t, err)
	}}
}

// Require has New fail where the host does not support the transport. explain makes the error of what is
// missing, which must not wrap ErrUnavailable, and of the engine's topology, nil without one.
func Require(f TransportFactory, explain func(error, *topo.Topology) error) TransportFactory {
	return changed(f, func(env transport.Env, t transport.Transport, err error) (transport.Transport, error) {
		if err != nil {
			return nil, explain(err, env.Topology)
		}
		return t, nil
	})
}

// OnPort leaves a transport one port of the topology, so that an engine on a host with many ports makes
// no unwanted lanes. One without ports of its own (TCP, shared memory) stays as it is.
func OnPort(f TransportFactory, port topo.ID) TransportFactory {
	return changed(f, func(_ transport.Env, t transport.Transport, err error) (transport.Transport, error) {
		if err != nil {
			return nil, err
		}
		return transport.OnPort(t, port), nil
	})
}

// Within bounds a transport to the addresses of a network that allow has no error for, whatever addresses a
// peer says that it has. What has no address of that kind, such as shared memory, is not bound.
func Within(f TransportFactory, allow func(ctx context.Context, to netip.AddrPort) error) TransportFactory {
	return changed(f, func(_ transport.Env, t transport.Transport, err error) (transport.Transport, error) {
		if err != nil {
			return nil, err
		}
		return transport.Within(t, allow), nil
	})
}
