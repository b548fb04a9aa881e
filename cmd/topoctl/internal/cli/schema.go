package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl"
	"github.com/topoctl/topoctl/internal/report"
)

type schemaOptions struct {
	*Host
	schema []byte // nil: the list is asked for
}

func newSchemaCmd(f *Env) *cobra.Command {
	opts := &schemaOptions{Host: f.Host()}
	cmd := newCommand(opts, "schema [NAME]", "List the documents that topoctl writes or reads, or print the JSON Schema of one")
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return published(), cobra.ShellCompDirectiveNoFileComp
	}
	Prints(cmd, "a list of documents, or a JSON Schema")
	return cmd
}

func (o *schemaOptions) parse(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var err error
	if o.schema, err = topoctl.Schema(args[0]); err != nil {
		return suggest(fmt.Errorf("%q has no JSON Schema", args[0]), args[0], published(), "topoctl schema lists the documents that have one")
	}
	return nil
}

func (o *schemaOptions) run(context.Context) error {
	if o.schema != nil {
		return Write(o.Streams.Out, o.schema)
	}
	t := &report.Table{Head: []string{"DOCUMENT", "JSON SCHEMA", "PRINTED BY"}}
	for _, d := range documents {
		has := "no"
		if d.hasSchema() {
			has = "yes"
		}
		t.Add(d.schema, has, d.from)
	}
	return Write(o.Streams.Out, []byte(o.Streams.tableText(t)))
}
