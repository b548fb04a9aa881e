package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/report"
)

type fixturesOptions struct{ *Host }

func newFixturesCmd(f *Env) *cobra.Command {
	opts := &fixturesOptions{f.Host()}
	cmd := newCommand(opts, "fixtures", "List the machines that ship with topoctl, to try commands on")
	Formats(cmd, formatTable, formatJSON, formatTSV)
	return cmd
}

// schemaFixtures is the name and major version of what fixtures -o json prints.
const schemaFixtures = "topoctl.fixtures/v1"

type fixturesDoc struct {
	Schema   string         `json:"schema"`
	Fixtures []fixtureEntry `json:"fixtures"`
}

type fixtureEntry struct {
	Name    string `json:"name"`
	Machine string `json:"machine"` // what it is
}

func (o *fixturesOptions) run(_ context.Context) error {
	doc := fixturesDoc{Schema: schemaFixtures}
	t := &report.Table{Head: []string{"NAME", "MACHINE"}}
	for _, name := range slices.Concat(fixtures.Names(), fixtures.Captures()) {
		f := fixtureEntry{name, fixtures.Describe(name)}
		doc.Fixtures = append(doc.Fixtures, f)
		t.Add(f.Name, f.Machine)
	}
	return o.print(answer{doc: doc, rows: t.TSV, text: func() string { return o.Streams.tableText(t) }}, OutFile{})
}
