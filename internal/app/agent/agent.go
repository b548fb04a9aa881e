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
	// Engine is the engine's; its Topology is also what HTTP gives out.
	Engine  engine.Options
	Regions []Region
	// Probe lets controllers measure between this host and others, within these limits;
	// nil: it does not. Token and Logger are the engine's. Engine.Answer is the agent's then.
	Probe *fabric.ServerOptions
	// HTTP are the addresses to answer HTTP at; none: no HTTP.
	HTTP []string
	// Ready is told once, when everything can be reached.
	Ready func(Info)
	// Rediscover gives the host's topology anew; it is called when Look, which is asked
	// every so often, gives another text than Seen, which it gave before the topology
	// was discovered, and a little later the same again. Without it, or with Every 0,
	// the topology stays as it is.
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

// Info is what a running agent can be reached by.
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

// stopTimeout is how long requests that are being answered may take at the end.
const stopTimeout = 2 * time.Second

// Run serves until ctx ends, then stops everything and waits for it. Being
// stopped is no error.
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

// unlessStopped is an error that a user who stopped the agent need not see.
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
