package cli

import (
	"github.com/spf13/cobra"
)

func newFleetCmd(f *Env) *cobra.Command {
	return below(&cobra.Command{
		Use:   "fleet",
		Short: "Compare many hosts, and find the one that is odd",
		Long: "fleet collects the topologies of many hosts in one document, compares hosts that should\n" +
			"be alike, and names the host, device or cable that differs. A host is blamed only where\n" +
			"more than 60 % of three hosts or more agree; otherwise the hosts disagree. What a host\n" +
			"does not tell is unknown, not different.",
		Example: "  topoctl fleet check node*.json\n  topoctl fleet collect --hosts hosts --launch ssh --out-dir fleet\n" +
			"  topoctl fleet check fleet --fabric fabric.json",
	}, newFleetCollectCmd(f, runFleetCollect), newFleetShowCmd(f, runFleetShow), newFleetCheckCmd(f, runFleetCheck), newFleetDiffCmd(f, runFleetDiff), newFleetFabricCmd(f, runFleetFabric), newFleetExportCmd(f, runFleetExport))
}

// sourcesHelp is what the commands say of their arguments.
const sourcesHelp = "SOURCE is a file as for --from, a folder or a tar archive of such files, " + FixturePrefix + "NAME,\n" +
	"or - for standard input: a file or an archive. A file may have a name for its host: NAME=FILE."
