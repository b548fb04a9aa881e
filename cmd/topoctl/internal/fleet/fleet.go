// Package fleet has the commands about many hosts: fleet collect, show, check and diff.
package fleet

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/cmd/topoctl/internal/command"
)

// Commands are those about many hosts.
func Commands(f *command.Env) []*cobra.Command {
	return []*cobra.Command{newFleetCmd(f, runs{runCollect, runShow, runCheck, runDiff, runFabric, runExport})}
}

// runs carry the subcommands out.
type runs struct {
	collect func(context.Context, *collectOptions) error
	show    func(context.Context, *showOptions) error
	check   func(context.Context, *checkOptions) error
	diff    func(context.Context, *diffOptions) error
	fabric  func(context.Context, *fabricOptions) error
	export  func(context.Context, *exportOptions) error
}

func newFleetCmd(f *command.Env, run runs) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Compare many hosts, and find the one that is odd",
		Long: "fleet collects the topologies of many hosts in one document, compares hosts that should\n" +
			"be alike, and names the host, device or cable that differs. A host is blamed only where\n" +
			"more than 60 % of three hosts or more agree; otherwise the hosts disagree. What a host\n" +
			"does not tell is unknown, not different.",
		Example: "  topoctl fleet check node*.json\n  topoctl fleet collect --hosts hosts --launch ssh --out-dir fleet\n" +
			"  topoctl fleet check fleet --fabric fabric.json",
		Args: command.UnknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCollectCmd(f, run.collect), newShowCmd(f, run.show), newCheckCmd(f, run.check), newDiffCmd(f, run.diff), newFabricCmd(f, run.fabric), newExportCmd(f, run.export))
	return cmd
}

// sourcesHelp is what the commands say of their arguments.
const sourcesHelp = "SOURCE is a file as for --from, a folder or a tar archive of such files, " + command.FixturePrefix + "NAME,\n" +
	"or - for standard input: a file or an archive. A file may have a name for its host: NAME=FILE."
