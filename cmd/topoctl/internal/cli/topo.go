package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/picture"
	"github.com/topoctl/topoctl/internal/units"
)

type topoOptions struct {
	*Host
	only []string
	all  bool
	tree picture.TreeOptions
}

// treeKinds are the devices that a tree can be limited to.
var treeKinds = map[string]topo.Kind{
	"gpu": topo.KindGPU, "nic": topo.KindNIC, "nvme": topo.KindNVMe, "nvswitch": topo.KindNVSwitch,
}

var treeKindNames = []string{"gpu", "nic", "nvme", "nvswitch"}

func newTopoCmd(f *Env, runF func(context.Context, *topoOptions) error) *cobra.Command {
	opts := &topoOptions{Host: f.Host()}
	cmd := &cobra.Command{
		Use:   "topo",
		Short: "Draw the devices of a host and their links as a tree",
		Args:  noArgs,
		RunE:  action(opts, opts.parse, runF),
	}
	cmd.Flags().StringSliceVar(&opts.only, "only", nil, "show only these `KINDS` of device: gpu, nic, nvme, nvswitch")
	cmd.Flags().BoolVar(&opts.all, "all", false, "show every PCI function and every interface")
	Offer(cmd, map[string]completer{"only": WordList(treeKindNames...)})
	Uses(cmd, inputFlags, "units")
	Formats(cmd, formatTable, formatJSON)
	return cmd
}

func (o *topoOptions) parse(cmd *cobra.Command, _ []string) error {
	if err := checkTogether(cmd,
		flagRule{"only", excludes, "all", ""},
		flagRule{"only all units", idleWith, "output=json", "-o json has all that \"topoctl discover\" prints"}); err != nil {
		return err
	}
	only, err := kindsOf("--only", o.only, treeKinds, treeKindNames)
	o.tree = picture.TreeOptions{ASCII: o.Globals.ASCII, Color: o.Color(), Width: o.Streams.Width, All: o.all,
		Only: only, Units: units.System(o.Globals.Units)}
	return err
}

func runTopo(ctx context.Context, opts *topoOptions) error {
	t, err := opts.Load(ctx)
	if err != nil {
		return err
	}
	if opts.Format == formatJSON {
		err = printTopology(opts.Host, t)
	} else {
		err = picture.Tree(opts.Streams.Out, t, opts.tree)
	}
	if err != nil {
		return err
	}
	return incomplete(t, false)
}

// kindsOf reads a list of kinds of device.
func kindsOf(flag string, names []string, known map[string]topo.Kind, order []string) ([]topo.Kind, error) {
	var out []topo.Kind
	for _, name := range names {
		kind, ok := known[name]
		if !ok {
			return nil, fmt.Errorf("%s %q: want %s", flag, name, either(order))
		}
		out = append(out, kind)
	}
	return out, nil
}
