package cli

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/app/probe/show"
	"github.com/topoctl/topoctl/probe"
)

// parseProbe takes over the arguments of a comparison of reports.
func (o *diffOptions) parseProbe(f *factory, cmd *cobra.Command, args []string) error {
	for _, name := range []string{"ignore", "structure", "root", "host-root", "from", "fixture"} {
		if flag := cmd.Flags().Lookup(name); flag != nil && flag.Changed {
			return fmt.Errorf("--%s has no effect with --probe: reports are compared, not hosts", name)
		}
	}
	if len(args) < 2 {
		return withHint(errors.New("--probe: want two reports"), "%q writes one", "topoctl probe local --report FILE")
	}
	o.new, o.show = args[1], f.showOptions(o.format)
	return nil
}

func runDiffProbe(o *diffOptions) error {
	older, err := o.readReport(o.old)
	if err != nil {
		return err
	}
	newer, err := o.readReport(o.new)
	if err != nil {
		return err
	}
	d := probe.Diff(older, newer, o.label(o.old), o.label(o.new))
	if err := o.printProbe(d); err != nil {
		return err
	}
	switch {
	case !d.Equal:
		return errBad
	case !d.Complete:
		if !o.globals.quiet {
			fmt.Fprintln(o.streams.Err, "topoctl: warning: one of the runs ended early: what it did not measure was not compared")
		}
		return errPartial
	}
	return nil
}

func (o *diffOptions) printProbe(d *probe.Difference) error {
	var out bytes.Buffer
	if o.format != formatJSON {
		if err := show.Changes(&out, d.Changes, o.show); err != nil {
			return err
		}
		return write(o.streams.Out, out.Bytes())
	}
	return printJSON(o.streams.Out, d)
}
