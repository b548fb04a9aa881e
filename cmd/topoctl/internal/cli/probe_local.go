package cli

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/bench"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/measure"
	"github.com/topoctl/topoctl/probe/plan"
)

type probeLocalOptions struct {
	measuring
	kinds []probe.Kind
	ports portFlags
	rdma  RDMA
}

var pairKinds = []probe.Kind{probe.Memory, probe.GPU, probe.Port}

func newProbeLocalCmd(f *Env) *cobra.Command {
	opts := &probeLocalOptions{measuring: measuring{Host: f.Host()}}
	cmd := newCommand(opts, "local", "Measure memory, GPUs and ports of this host")
	wordListFlag(cmd, &opts.kinds, "pairs", pairKinds, "`KINDS` of pairs to measure: memory, gpu, port", pairKinds)
	opts.flags.add(cmd)
	opts.ports.add(cmd)
	opts.rdma.Add(cmd)
	Group(cmd, pairsGroup, "pairs")
	mainFlags(cmd, "pairs", "select", "duration", "fail-under", "all", "report", "out-file", "dry-run")
	Uses(cmd, inputFlags, "units")
	Lasts(cmd)
	Formats(cmd, runFormats...)
	return cmd
}

func (o *probeLocalOptions) parse(cmd *cobra.Command, _ []string) error {
	if err := o.parseMeasuring(cmd); err != nil {
		return err
	}
	if o.Globals.Described() && !o.flags.dryRun {
		return withHint(errors.New("only this host can be measured"), "use --dry-run to see what would be measured on another")
	}
	return o.rdma.Check(cmd)
}

func (o *probeLocalOptions) run(ctx context.Context) error {
	t, err := o.Load(ctx)
	if err != nil {
		return err
	}
	pairs := plan.LocalOptions{Kinds: o.kinds, Select: o.flags.selected, BothWays: o.flags.bidir, Transport: o.ports.wanted(), Memory: o.ports.memory}
	if o.flags.dryRun {
		return o.dry(o.layout(plan.Local(t, pairs)))
	}
	names := []string{bench.Auto}
	if o.ports.transport == "tcp" {
		names = []string{"shm", "tcp"}
	}
	prober, err := o.localProber(t, pairs, o.rdma.Factories(names...))
	if err != nil {
		return err
	}
	p, err := o.layout(prober.Pairs(ctx))
	if err == nil {
		err = o.measure(ctx, p, prober)
	}
	return errors.Join(err, prober.Close())
}

// localProber measures this host.
func (in *Host) localProber(t *topo.Topology, pairs plan.LocalOptions, transports []engine.TransportFactory) (*measure.LocalProber, error) {
	o := measure.LocalOptions{Pairs: pairs, Transports: transports}
	if in.Globals.HostRoot != "" {
		o.Sysfs = filepath.Join(in.Globals.HostRoot, "sys")
	}
	return measure.Local(t, o)
}
