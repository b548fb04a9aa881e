package measure

import (
	"context"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/internal/local"
	"github.com/topoctl/topoctl/probe/plan"
)

// LocalOptions say which pairs of this host are measured, and by what.
type LocalOptions struct {
	Pairs plan.LocalOptions // the zero value: all
	// Transports carry pairs of ports; nil: those that an engine has by default.
	Transports []engine.TransportFactory
	// Sysfs is where the kernel's files about links are; "": /sys.
	Sysfs string
}

// LocalProber is a Prober of the memory, GPUs and ports of this host. Memory is allocated, and engines and the driver of
// GPUs are opened, when the first pair needs them.
type LocalProber struct {
	topology *topo.Topology
	pairs    plan.LocalOptions
	local    *local.Prober
}

// Local makes a Prober of this host, whose topology t is, as discover.Discover finds it: that of a file or of another
// host is an error. Call Close in the end.
func Local(t *topo.Topology, o LocalOptions) (*LocalProber, error) {
	p, err := local.New(local.Options{Topology: t, Engine: o.Transports, Sysfs: o.Sysfs})
	if err != nil {
		return nil, err
	}
	return &LocalProber{t, o.Pairs, p}, nil
}

// Pairs lists what can be measured; see plan.Local.
func (p *LocalProber) Pairs(context.Context) (*plan.Pairs, error) {
	return plan.Local(p.topology, p.pairs)
}

// Round measures pairs at the same time; see Prober. Preparing them counts as part of their time, of
// which at least half is for measuring.
func (p *LocalProber) Round(ctx context.Context, pairs []probe.Pair, spec probe.Spec, tell func(pair int, s probe.Sample)) []probe.Measurement {
	return p.local.Round(ctx, pairs, spec, tell)
}

// Hosts are nil: this host is as it was when its pairs were listed.
func (p *LocalProber) Hosts() []probe.Host { return nil }

// Close gives back what was allocated and opened. No Round may be running.
func (p *LocalProber) Close() error { return p.local.Close() }
