package hosts

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/cmd/topoctl/internal/command"
	"github.com/topoctl/topoctl/fixtures"
)

type fixturesOptions struct{ *command.Host }

func newFixturesCmd(f *command.Env, runF func(context.Context, *fixturesOptions) error) *cobra.Command {
	opts := &fixturesOptions{f.Host()}
	cmd := &cobra.Command{
		Use:   "fixtures",
		Short: "List the machines that ship with topoctl, to try commands on",
		Long: "fixtures lists described and captured machines, which every command that looks at a host takes\n" +
			"with --fixture NAME, or as fixture:NAME where it takes a file.",
		Example: "  topoctl fixtures\n  topoctl --fixture dgx-h100\n  topoctl diff fixture:dgx-h100 fixture:dgx-h100-gpu2-x8",
		Args:    command.NoArgs,
		RunE:    command.Action(opts, func(*cobra.Command, []string) error { return nil }, runF),
	}
	command.Formats(cmd, command.FormatTable, command.FormatJSON, command.FormatTSV)
	return cmd
}

// SchemaFixtures is the name and major version of what fixtures -o json prints.
const SchemaFixtures = "topoctl.fixtures/v1"

type fixturesDoc struct {
	Schema   string    `json:"schema"`
	Fixtures []fixture `json:"fixtures"`
}

type fixture struct {
	Name    string `json:"name"`
	Machine string `json:"machine"` // what it is
}

func runFixtures(_ context.Context, o *fixturesOptions) error {
	doc := fixturesDoc{Schema: SchemaFixtures}
	t := &command.Table{Head: []string{"NAME", "MACHINE"}}
	for _, name := range slices.Concat(fixtures.Names(), fixtures.Captures()) {
		f := fixture{name, fixtures.Describe(name)}
		doc.Fixtures = append(doc.Fixtures, f)
		t.Add(f.Name, f.Machine)
	}
	if o.Format == command.FormatJSON {
		return command.PrintJSON(o.Streams.Out, doc)
	}
	return t.Print(o.Streams, o.Format)
}
