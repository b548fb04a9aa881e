package hosts

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/app/cli/command"
	"github.com/topoctl/topoctl/internal/app/probe/compare"
	"github.com/topoctl/topoctl/internal/app/probe/show"
)

// parseProbe takes over the arguments of a comparison of reports.
func (o *diffOptions) parseProbe(f *command.Env, cmd *cobra.Command, args []string) error {
	for _, name := range []string{"ignore", "structure", "root", "host-root", "from", "fixture"} {
		if flag := cmd.Flags().Lookup(name); flag != nil && flag.Changed {
			return fmt.Errorf("--%s has no effect with --probe: reports are compared, not hosts", name)
		}
	}
	if len(args) < 2 {
		return command.WithHint(errors.New("--probe: want two reports"), "%q writes one", "topoctl probe local --report FILE")
	}
	o.new, o.show = args[1], f.ReportOptions(o.format)
	return nil
}

func runDiffProbe(o *diffOptions) error {
	older, err := o.ReadReport(o.old)
	if err != nil {
		return err
	}
	newer, err := o.ReadReport(o.new)
	if err != nil {
		return err
	}
	d := compare.NewDocument(older, newer, o.label(o.old), o.label(o.new))
	if err := o.printProbe(d); err != nil {
		return err
	}
	switch {
	case !d.Equal:
		return command.ErrBad
	case !d.Complete:
		if !o.Globals.Quiet {
			fmt.Fprintln(o.Streams.Err, "topoctl: warning: one of the runs ended early: what it did not measure was not compared")
		}
		return command.ErrPartial
	}
	return nil
}

func (o *diffOptions) printProbe(d *compare.Document) error {
	var out bytes.Buffer
	if o.format != command.FormatJSON {
		if err := show.Changes(&out, d.Changes, o.show); err != nil {
			return err
		}
		return command.Write(o.Streams.Out, out.Bytes())
	}
	return command.PrintJSON(o.Streams.Out, d)
}
