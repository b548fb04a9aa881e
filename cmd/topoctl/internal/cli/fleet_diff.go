package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	model "github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/fleet/show"
)

type fleetDiffOptions struct {
	*Host
	old, new string
	all      bool
}

func newFleetDiffCmd(f *Env) *cobra.Command {
	opts := &fleetDiffOptions{Host: f.Host()}
	cmd := newCommand(opts, "diff OLD NEW", "Compare a fleet with how it was")
	cmd.Flags().BoolVar(&opts.all, "all", false, "name all hosts of a change")
	Uses(cmd, "timeout", "quiet")
	TakesLong(cmd)
	Formats(cmd, formatTable, formatJSON, formatTSV)
	return cmd
}

func (o *fleetDiffOptions) parse(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) < 2:
		return withHint(errors.New("want two fleets, OLD and NEW"), "create one with %q", "topoctl fleet collect SOURCE... --out-dir DIR")
	case args[0] == "-" && args[1] == "-":
		return errors.New("only one of OLD and NEW can be standard input")
	}
	o.old, o.new = args[0], args[1]
	return checkTogether(cmd, allInTables)
}

func (o *fleetDiffOptions) run(ctx context.Context) error {
	older, err := loadFleet(ctx, o.Host, []string{o.old}, "")
	if err != nil {
		return err
	}
	if err := someReached(older); err != nil { // everything would be new; of NEW, everything is lost
		return fmt.Errorf("%s: %w", o.old, err)
	}
	newer, err := loadFleet(ctx, o.Host, []string{o.new}, "")
	if err != nil {
		return err
	}
	c := model.Compare(older, newer, o.old, o.new)
	err = o.print(answer{doc: c, rows: func() string { return show.ChangeRows(c).TSV() },
		text: func() string { return show.Changes(c, show.Options{Width: o.Streams.Width, All: o.all}) }}, OutFile{})
	switch {
	case err != nil:
		return err
	case !c.Equal:
		return errBad
	case partial(older) != nil || partial(newer) != nil:
		return errPartial
	}
	return nil
}
