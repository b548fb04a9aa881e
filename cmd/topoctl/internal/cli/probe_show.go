package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
)

type probeShowOptions struct {
	measuring
	file string
}

func newProbeShowCmd(f *Env) *cobra.Command {
	opts := &probeShowOptions{measuring: measuring{Host: f.Host()}}
	cmd := newCommand(opts, "show FILE", "Print a report as a table, heat map or HTML page")
	opts.flags.addPrinted(cmd)
	Uses(cmd, "quiet", "units")
	Formats(cmd, formatTable, formatWide, formatTSV, formatJSON, formatSVG, formatHTML)
	return cmd
}

func (o *probeShowOptions) parse(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return withHint(errors.New("no report"), "create one with %q", "topoctl probe local --report FILE")
	}
	o.file = args[0]
	o.prepareShow()
	return nil
}

func (o *probeShowOptions) run(_ context.Context) error {
	r, err := o.ReadReport(o.file)
	if err != nil {
		return err
	}
	if err := o.printReport(r); err != nil {
		return err
	}
	return o.outcome(r)
}
