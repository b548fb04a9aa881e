package cli

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/picture"
	"github.com/topoctl/topoctl/internal/units"
)

type topoOptions struct {
	*Host
	only []topo.Kind
	all  bool
}

func newTopoCmd(f *Env) *cobra.Command {
	opts := &topoOptions{Host: f.Host()}
	cmd := newCommand(opts, "topo", "Draw the devices of a host and their links as a tree")
	wordListFlag(cmd, &opts.only, "only", nil, "show only these `KINDS` of device: gpu, nic, nvme, nvswitch", []topo.Kind{topo.KindGPU, topo.KindNIC, topo.KindNVMe, topo.KindNVSwitch})
	cmd.Flags().BoolVar(&opts.all, "all", false, "show every PCI function and every interface")
	Uses(cmd, inputFlags, "units")
	Formats(cmd, formatTable, formatJSON)
	return cmd
}

func (*topoOptions) parse(cmd *cobra.Command, _ []string) error {
	return checkTogether(cmd,
		flagRule{"only", excludes, "all", ""},
		flagRule{"only all units", idleWith, "output=json", "-o json has all that \"topoctl discover\" prints"})
}

func (o *topoOptions) run(ctx context.Context) error {
	t, err := o.Load(ctx)
	if err != nil {
		return err
	}
	if o.Format == formatJSON {
		err = printTopology(o.Host, t)
	} else {
		err = picture.Tree(o.Streams.Out, t, picture.TreeOptions{ASCII: o.Globals.ASCII, Color: o.Color(), Width: o.Streams.Width, All: o.all,
			Only: o.only, Units: units.System(o.Globals.Units)})
	}
	return cmp.Or(err, incomplete(t, false))
}
