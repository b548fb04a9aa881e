// Package agent is one server for everything that peers and tools want of a host:
// an engine that serves regions, the host's topology, and figures for monitoring.
package agent

import (
	"context"
	"errors"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/app/probe/fabric"
)

// Options say what an agent serves.
type Options struct {
	// Engine are the options of the engine; its Topology is also served by HTTP.
	Engine  engine.Options
	Regions []Region
	// Probe lets controllers measure between this host and others, within these limits; nil
	// does not. Token and Logger are taken from the engine, and Engine.Answer is set.
	Probe *fabric.ServerOptions
	// HTTP are the addresses to serve HTTP at; none: no HTTP.
	HTTP []string
	// Ready is called once, when everything can be reached.
	Ready func(Info)
	// Rediscover discovers the host's topology again. It is called when PortState, polled
	// every PollInterval, has changed from InitialPortState (its text before the topology
	// was discovered) and is the same at the next poll. Without Rediscover, or with a
	// PollInterval of 0, the topology stays as it is.
	Rediscover       func(context.Context) (*topo.Topology, error)
	PortState        func() string
	InitialPortState string
	PollInterval     time.Duration
}

// Region is memory that peers may use.
type Region struct {
	Bytes int64
	engine.RegionOptions
}

// Info says how a running agent can be reached.
type Info struct {
	Name       string
	Epoch      uint64
	Addresses  []string // that the engine listens at
	Advertised []engine.Advertised
	HTTP       []string
	Regions    []engine.RegionStats
	// Unavailable are the transports that this host cannot have, and why.
	Unavailable []string
}

// stopTimeout bounds the requests that are being answered when the agent stops.
const stopTimeout = 2 * time.Second

// Run serves until ctx ends, then stops everything and waits for it. Being stopped is
// not an error.
func Run(ctx context.Context, o Options) (err error) {
	var prober *fabric.Server
	if o.Probe != nil {
		p := *o.Probe
		p.Token, p.Logger = o.Engine.Token, o.Engine.Logger
		prober = fabric.NewServer(p)
		o.Engine.Answer = prober.Answer
	}
	e, err := engine.New(ctx, o.Engine)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	if prober != nil {
		defer prober.Close()
	}
	stopFollowing := follow(ctx, &o, e)
	defer stopFollowing()
	for _, r := range o.Regions {
		if _, err := e.Alloc(r.Bytes, r.RegionOptions); err != nil {
			return err
		}
	}
	pages, err := ServePages(ctx, o.HTTP, e)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	if prober != nil {
		prober.Serve(e)
	}
	if o.Ready != nil {
		o.Ready(info(e, pages))
	}
	select {
	case <-ctx.Done():
	case err = <-pages.Failed():
	}
	return errors.Join(err, pages.Stop(ctx))
}

// unlessStopped drops an error that only says that the user stopped the agent.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

func info(e *engine.Engine, pages *Pages) Info {
	i := Info{Name: e.Name(), Epoch: e.Epoch(), Addresses: []string{}, Advertised: e.Advertised(), HTTP: pages.Addresses(), Regions: e.Stats().Regions, Unavailable: []string{}}
	for _, err := range e.Unavailable() {
		i.Unavailable = append(i.Unavailable, err.Error())
	}
	for _, a := range e.Addrs() {
		i.Addresses = append(i.Addresses, a.String())
	}
	return i
}
