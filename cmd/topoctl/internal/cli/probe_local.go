package cli

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/bench"
	"github.com/topoctl/topoctl/internal/measure/local"
	"github.com/topoctl/topoctl/internal/measure/plan"
	"github.com/topoctl/topoctl/probe"
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
	pairs, err := o.pairs(t)
	if err != nil {
		return err
	}
	p, err := o.layout(pairs)
	if err != nil {
		return err
	}
	if o.flags.dryRun {
		return o.dry(p)
	}
	prober, err := o.prober(t)
	if err != nil {
		return err
	}
	return errors.Join(o.measure(ctx, p, prober, nil), prober.Close())
}

// pairs lists what can be measured of a host.
func (o *probeLocalOptions) pairs(t *topo.Topology) (*plan.Pairs, error) {
	pairs, err := plan.Local(t, plan.LocalOptions{Kinds: o.kinds, Select: o.flags.selected, BothWays: o.flags.bidir, Transport: o.ports.wanted(), Memory: o.ports.memory})
	return pairs, planHint(err)
}

func (o *probeLocalOptions) prober(t *topo.Topology) (*local.Prober, error) {
	lo := local.Options{Topology: t, Engine: o.rdma.Factories("shm", "tcp")}
	if o.ports.transport != "tcp" {
		lo.Engine = o.rdma.Factories(bench.Auto)
	}
	if o.Globals.HostRoot != "" {
		lo.Sysfs = filepath.Join(o.Globals.HostRoot, "sys")
	}
	return local.New(lo)
}
