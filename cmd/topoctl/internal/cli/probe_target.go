package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/internal/measure/fabric"
	"github.com/topoctl/topoctl/internal/measure/plan"
	proberun "github.com/topoctl/topoctl/internal/measure/run"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/probe"
)

// localTarget is this host.
type localTarget struct {
	o        probeLocalOptions
	topology *topo.Topology
}

func (g *localTarget) pairs(ctx context.Context) (*plan.Pairs, error) {
	t, err := g.o.Find(ctx)
	if err != nil {
		return nil, err
	}
	pairs, err := g.o.pairs(t)
	if err != nil {
		return nil, err
	}
	g.topology = t
	return pairs, nil
}

// prober is one for each run: between runs this process holds no memory for it.
func (g *localTarget) prober(context.Context) (proberun.Prober, func() error, error) {
	p, err := g.o.prober(g.topology)
	if err != nil {
		return nil, nil, err
	}
	return p, p.Close, nil
}

func (*localTarget) hosts() func() []probe.Host { return nil }

// fleetTarget are hosts with agents. It holds the agents, which one controller at a time can, only
// while it lists pairs or measures: others want to probe beside a dashboard that is left open.
type fleetTarget struct {
	o           probeFabricOptions
	to          []probe.Host
	credentials func() *trust.Credentials
	fleet       *fabric.Fleet // nil: not held
}

func newFleetTarget(ctx context.Context, o probeFabricOptions, warn io.Writer) (*fleetTarget, error) {
	to, _, err := o.listHosts(ctx)
	if err != nil {
		return nil, err
	}
	if len(to) < 2 {
		return nil, withHint(fmt.Errorf("%s: want two or more", text.Plural(len(to), "host")), "to include this host, run an agent on it")
	}
	loud := *o.Host
	loud.Streams.Err = warn
	credentials, err := o.hosts.credentials.Read(ctx, &loud, nil)
	return &fleetTarget{o: o, to: to, credentials: credentials}, err
}

func (g *fleetTarget) pairs(ctx context.Context) (*plan.Pairs, error) {
	if err := g.open(ctx); err != nil {
		return nil, err
	}
	pairs, err := g.list(ctx)
	return pairs, errors.Join(err, g.close())
}

// list lists the pairs of the agents that are held.
func (g *fleetTarget) list(ctx context.Context) (*plan.Pairs, error) {
	var lost []error
	for _, h := range g.fleet.Hosts() {
		if h.Error != "" {
			lost = append(lost, fmt.Errorf("%s does not take part: %s", h.Name, h.Error))
		}
	}
	hosts, err := g.o.usable(g.fleet)
	if err != nil {
		return nil, errors.Join(append([]error{err}, lost...)...)
	}
	notes := g.o.withoutRDMA(hosts, g.fleet.Hosts())
	pairs, err := g.o.pairs(ctx, hosts)
	if err != nil {
		return nil, err
	}
	pairs.Notes = append(pairs.Notes, notes...)
	return pairs, errors.Join(lost...)
}

// open takes hold of the agents.
func (g *fleetTarget) open(ctx context.Context) error {
	fleet, err := fabric.Open(ctx, fabric.Options{Hosts: g.to, Credentials: g.credentials, DialTime: g.o.dialTime})
	if err != nil {
		return g.o.openHint(pkgerr.Plain(err))
	}
	g.fleet = fleet
	return nil
}

func (g *fleetTarget) prober(ctx context.Context) (proberun.Prober, func() error, error) {
	if err := g.open(ctx); err != nil {
		return nil, nil, err
	}
	return g.fleet, g.close, nil
}

func (g *fleetTarget) hosts() func() []probe.Host { return hostsOf(g.fleet) }

// close gives the agents back.
func (g *fleetTarget) close() error {
	fleet := g.fleet
	g.fleet = nil
	if err := fleet.Close(); err != nil {
		return pkgerr.Plain(err)
	}
	return nil
}
