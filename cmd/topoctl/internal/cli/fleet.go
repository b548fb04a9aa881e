package cli

import (
	"context"

	"github.com/spf13/cobra"
)

// fleetRuns carry the subcommands out.
type fleetRuns struct {
	collect func(context.Context, *fleetCollectOptions) error
	show    func(context.Context, *fleetShowOptions) error
	check   func(context.Context, *fleetCheckOptions) error
	diff    func(context.Context, *fleetDiffOptions) error
	fabric  func(context.Context, *fleetFabricOptions) error
	export  func(context.Context, *fleetExportOptions) error
}

func newFleetCmd(f *Env, run fleetRuns) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Compare many hosts, and find the one that is odd",
		Long: "fleet collects the topologies of many hosts in one document, compares hosts that should\n" +
			"be alike, and names the host, device or cable that differs. A host is blamed only where\n" +
			"more than 60 % of three hosts or more agree; otherwise the hosts disagree. What a host\n" +
			"does not tell is unknown, not different.",
		Example: "  topoctl fleet check node*.json\n  topoctl fleet collect --hosts hosts --launch ssh --out-dir fleet\n" +
			"  topoctl fleet check fleet --fabric fabric.json",
		Args: UnknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newFleetCollectCmd(f, run.collect), newFleetShowCmd(f, run.show), newFleetCheckCmd(f, run.check), newFleetDiffCmd(f, run.diff), newFleetFabricCmd(f, run.fabric), newFleetExportCmd(f, run.export))
	return cmd
}

// sourcesHelp is what the commands say of their arguments.
const sourcesHelp = "SOURCE is a file as for --from, a folder or a tar archive of such files, " + FixturePrefix + "NAME,\n" +
	"or - for standard input: a file or an archive. A file may have a name for its host: NAME=FILE."
