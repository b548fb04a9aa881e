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
)

// TransportFactory makes a transport for an engine: TCP and SHM give one, and rdma.Factory.
// Its parameters are internal: programs cannot add transports of their own. An error that wraps
// ErrUnavailable says that this host cannot have it: the engine works without, and
// Engine.Unavailable says why.
type TransportFactory func(transport.Env) (transport.Transport, error)

// TCP moves memory over TCP connections to the addresses that engines listen at. What may be set of it
// is in Options (Protection, TLS), which env has here.
func TCP() TransportFactory {
	return func(env transport.Env) (transport.Transport, error) {
		t, err := tcp.New(tcp.Options{
			Regions: env.Regions, Memory: env.Memory, Logger: env.Logger, Conns: min(4096, max(session.Files()/4, 1)), Protection: env.Protection,
			Identity: session.Identity{Name: env.Name, Epoch: env.Epoch, Credentials: env.Credentials, TLS: env.TLS},
		})
		if err != nil {
			return nil, err
		}
		return t, nil
	}
}

// SHM moves memory between engines of the same user on one host, through memory that
// both have mapped. It needs Linux.
func SHM() TransportFactory {
	return func(env transport.Env) (transport.Transport, error) {
		t, err := shm.New(shm.Options{Regions: env.Regions, Memory: env.Memory})
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			env.Logger.Warn("shared memory is not used, though this system has it", "error", err)
		}
		if err != nil {
			return nil, fmt.Errorf("shared memory is %w: %w", ErrUnavailable, err)
		}
		return t, nil
	}
}

// Require has New fail where the host does not support the transport. explain makes the error of what is
// missing, which must not wrap ErrUnavailable, and of the engine's topology, nil without one.
func Require(f TransportFactory, explain func(error, *topo.Topology) error) TransportFactory {
	return func(env transport.Env) (transport.Transport, error) {
		t, err := f(env)
		if err != nil {
			return nil, explain(err, env.Topology)
		}
		return t, nil
	}
}

// OnPort leaves a transport one port of the topology, so that an engine on a host with many ports makes
// no unwanted lanes. One without ports of its own (TCP, shared memory) stays as it is.
func OnPort(f TransportFactory, port topo.ID) TransportFactory {
	return func(env transport.Env) (transport.Transport, error) {
		t, err := f(env)
		if err != nil {
			return nil, err
		}
		return transport.OnPort(t, port), nil
	}
}

// Within bounds a transport to the addresses of a network that allow has no error for, whatever addresses a
// peer says that it has. What has no address of that kind, such as shared memory, is not bound.
func Within(f TransportFactory, allow func(ctx context.Context, to netip.AddrPort) error) TransportFactory {
	return func(env transport.Env) (transport.Transport, error) {
		t, err := f(env)
		if err != nil {
			return nil, err
		}
		return transport.Within(t, allow), nil
	}
}
