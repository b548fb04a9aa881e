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

func newProbeShowCmd(f *Env, runF func(context.Context, *probeShowOptions) error) *cobra.Command {
	opts := &probeShowOptions{measuring: measuring{Host: f.Host()}}
	cmd := &cobra.Command{
		Use:   "show FILE",
		Short: "Print a report as a table, heat map or HTML page",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "" {
				return withHint(errors.New("no report"), "create one with %q", "topoctl probe local --report FILE")
			}
			return atMost(cmd, args, 1)
		},
		RunE: action(opts, opts.parse, runF),
	}
	opts.flags.addPrinted(cmd)
	Uses(cmd, "quiet", "units")
	Formats(cmd, formatTable, formatWide, formatTSV, formatJSON, formatSVG, formatHTML)
	return cmd
}

func (o *probeShowOptions) parse(cmd *cobra.Command, args []string) error {
	o.file = args[0]
	o.prepareShow()
	return notEmpty(cmd, "out-file")
}

func runProbeShow(_ context.Context, o *probeShowOptions) error {
	r, err := o.ReadReport(o.file)
	if err != nil {
		return err
	}
	if err := o.print(r); err != nil {
		return err
	}
	return o.outcome(r)
}
