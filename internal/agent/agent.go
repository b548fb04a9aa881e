// Package agent is one server for everything that peers and tools want of a host:
// an engine that serves regions, the host's topology, and figures for monitoring.
package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/probe/measure"
)

// Options say what an agent serves.
type Options struct {
	// Engine are the options of the engine; its Topology is also served by HTTP.
	Engine  engine.Options
	Regions []Region
	// Probe lets controllers measure between this host and others, within these limits; nil
	// does not. Credentials and Logger are taken from the engine, and Engine.Answer is set.
	Probe *measure.ServerOptions
	// Grants say which peer may do what, as the file says it at the time; nil: every peer may do what
	// regions grant, and measure. Engine.Permit is set.
	Grants *File
	// HTTP are the addresses to serve HTTP at; none: no HTTP.
	HTTP []string
	// HostMetrics looks at the host and gives what it sees as Prometheus metrics, for HTTP; nil:
	// there is no such page.
	HostMetrics func(context.Context) ([]byte, error)
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

	// Beside starts what else is served until the agent stops; nil for nothing. topology gives that of
	// this host as it is then.
	Beside func(ctx context.Context, topology func() *topo.Topology) (Service, error)

	reloadEvery time.Duration // of Grants; default 1 s
}

// Service is something that is served until it is stopped.
type Service interface {
	Failed() <-chan error
	Stop(context.Context) error
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
	// Registered says whether the registry has the agent: peers find it by Name.
	Registered bool
	// Unavailable are the transports that this host cannot have, and why.
	Unavailable []string
}

// stopTimeout bounds the requests that are being answered when the agent stops.
const stopTimeout = 2 * time.Second

// Run serves until ctx ends, then stops everything, waits, and logs how many sessions were
// closed. Being stopped is not an error.
func Run(ctx context.Context, o Options) (err error) {
	o.Engine.Limits.Notifications = -1 // no one reads them here, so they would stay
	if o.Engine.Logger == nil {
		o.Engine.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Grants != nil {
		o.Engine.Security.Permit = func(id trust.PeerID) engine.Permissions { return o.Grants.Current().Permit(id) }
	}
	var prober *measure.Server
	if o.Probe != nil {
		p := *o.Probe
		p.Credentials, p.Logger = o.Engine.Security.Credentials, o.Engine.Logger
		if o.Grants != nil {
			p.TargetsOf = func(id trust.PeerID) (measure.Targets, bool) { return o.Grants.Current().Probe(id) }
		}
		prober = measure.NewServer(p)
		o.Engine.Serve.Answer = prober.Answer
	} else {
		o.Engine.Serve.Answer = func(context.Context, trust.PeerID, []byte) ([]byte, error) { return nil, errNoProbes }
	}
	e, err := engine.New(ctx, o.Engine)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	defer func() {
		sessions := e.Stats().Sessions
		if err = errors.Join(err, e.Close()); err == nil {
			o.Engine.Logger.Info("stopped", "sessions_closed", sessions)
		}
	}()
	if prober != nil {
		defer prober.Close()
	}
	defer follow(ctx, &o, e)()
	if o.Grants != nil {
		defer every(ctx, cmp.Or(o.reloadEvery, time.Second), func(context.Context) {
			if o.Grants.Reload(o.Engine.Logger) {
				e.RecheckPermissions()
			}
		})()
	}
	for _, r := range o.Regions {
		if _, err := e.Alloc(r.Bytes, r.RegionOptions); err != nil {
			return err
		}
	}
	pages, err := ServePages(ctx, o.HTTP, e, o.HostMetrics)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	var besideFailed <-chan error
	if o.Beside != nil {
		beside, failure := o.Beside(ctx, e.Topology)
		if failure != nil {
			return errors.Join(unlessStopped(ctx, failure), pages.Stop(ctx))
		}
		besideFailed = beside.Failed()
		defer func() { err = errors.Join(err, beside.Stop(ctx)) }()
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
	case err = <-besideFailed:
	}
	return errors.Join(err, pages.Stop(ctx))
}

var errNoProbes = errors.New("this agent does not serve probes: start it with --serve-probes")

// unlessStopped drops an error that only says that the user stopped the agent.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

func info(e *engine.Engine, pages *Pages) Info {
	s := e.Stats()
	i := Info{Name: e.Name(), Epoch: e.Epoch(), Addresses: []string{}, Advertised: e.Advertised(), HTTP: pages.Addresses(), Regions: s.Regions, Registered: s.Registry != nil && s.Registry.Published, Unavailable: []string{}}
	for _, err := range e.Unavailable() {
		i.Unavailable = append(i.Unavailable, err.Error())
	}
	for _, a := range e.Addrs() {
		i.Addresses = append(i.Addresses, a.String())
	}
	return i
}
