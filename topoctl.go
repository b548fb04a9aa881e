// Package topoctl gives programs an engine that uses every NIC of the host: it joins
// discovery, the vendor libraries that this program was built with (NVML, libibverbs,
// CUDA; each is loaded when it is first asked, and may be absent) and package engine,
// which imports none of them.
//
//	e, err := topoctl.NewEngine(ctx, engine.Options{Listen: []string{":7411"}, Token: token})
//	kv, err := e.Alloc(1<<30, engine.RegionOptions{Name: "kv", Grant: memory.PeerWrite})
//	peer, err := e.Open(ctx, "node2:7411")
//
// A program that wants less in its binary, or to choose more, uses those packages itself.
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

// Discover finds out what this host has and how it is joined. A library that is absent
// or fails costs what it would have added: the topology's Warnings say so.
func Discover(ctx context.Context) (*topo.Topology, error) {
	return discover.Discover(ctx, discover.Options{GPUs: nvml.New(), Now: time.Now()})
}

// Transports are all that this module has, in the order of preference: shared memory,
// RDMA with its defaults, TCP.
func Transports() []engine.TransportFactory {
	return []engine.TransportFactory{engine.SHM(), rdma.Factory(rdma.Options{}), engine.TCP()}
}

// NewEngine is engine.New with this host's topology and all transports, where o has none.
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

// OpenGPUs gives the GPUs of an engine's host, whose memory Engine.Register takes: one of
// the engine's Topology is called "gpu:N" as there. The error wraps cuda.ErrUnavailable
// where there is no CUDA driver or GPU.
func OpenGPUs(e *engine.Engine) (*cuda.Driver, error) {
	return cuda.Open(cuda.Options{Topology: e.Topology()})
}
