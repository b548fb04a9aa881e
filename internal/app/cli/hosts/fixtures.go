package hosts

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/app/cli/command"
)

type fixturesOptions struct{ *command.Host }

func newFixturesCmd(f *command.Env, runF func(context.Context, *fixturesOptions) error) *cobra.Command {
	opts := &fixturesOptions{f.Host()}
	cmd := &cobra.Command{
		Use:   "fixtures",
		Short: "List the machines that ship with topoctl, for --fixture",
		Args:  command.NoArgs,
		RunE:  command.Action(opts, func(*cobra.Command, []string) error { return nil }, runF),
	}
	command.Uses(cmd, "output")
	command.Formats(cmd, command.FormatTable, command.FormatTSV)
	return cmd
}

func runFixtures(_ context.Context, o *fixturesOptions) error {
	t := &command.Table{Head: []string{"NAME", "MACHINE"}}
	for _, name := range slices.Concat(fixtures.Names(), fixtures.Captures()) {
		t.Add(name, fixtures.Describe(name))
	}
	return t.Print(o.Streams.Out, o.Format)
}
