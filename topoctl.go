// Package topoctl gives programs an engine that uses every NIC of the host: it combines discovery,
// the vendor libraries that this program was built with (NVML, libibverbs, CUDA; each is loaded on
// first use, and may be absent) and package engine, which imports none of them.
//
//	security := engine.Security{Credentials: trust.Secret(token)}
//	e, err := topoctl.NewEngine(ctx, engine.Options{Listen: []string{":7411"}, Security: security})
//	kv, err := e.Alloc(1<<30, engine.RegionOptions{Name: "kv", Grant: memory.PeerWrite})
//	peer, err := e.Open(ctx, "node2:7411")
//
// A program that wants a smaller binary or more control uses those packages directly.
package topoctl

import (
	"context"
	"fmt"
	"time"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/nvml"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory/cuda"
	"github.com/topoctl/topoctl/engine/transport/rdma"
)

// Discover finds out what hardware this host has and how it is connected. If a library is absent
// or fails, what it would have added is missing, and the topology's Warnings say so.
func Discover(ctx context.Context) (*topo.Topology, error) {
	return discover.Discover(ctx, discover.Options{GPUs: nvml.New(), Now: time.Now()})
}

// Transports lists all transports of this module in the order of preference: shared memory, RDMA
// with its defaults, TCP.
func Transports() []engine.TransportFactory {
	return []engine.TransportFactory{engine.SHM(), rdma.Factory(rdma.Options{}), engine.TCP()}
}

// NewEngine is engine.New with this host's topology and all transports, unless o has its own.
// ctx bounds discovery and the making of the engine.
func NewEngine(ctx context.Context, o engine.Options) (*engine.Engine, error) {
	if o.Ports.Topology == nil {
		t, err := Discover(ctx)
		if err != nil {
			return nil, fmt.Errorf("topoctl: %w", err)
		}
		o.Ports.Topology = t
	}
	if o.Transports == nil {
		o.Transports = Transports()
	}
	return engine.New(ctx, o)
}

// OpenGPUs opens the GPUs of an engine's host, whose memory Engine.Register accepts. They are
// named as in the engine's Topology, "gpu:N". The error wraps cuda.ErrUnavailable if there is no
// CUDA driver or GPU.
func OpenGPUs(e *engine.Engine) (*cuda.Driver, error) {
	return cuda.Open(cuda.Options{Topology: e.Topology()})
}
