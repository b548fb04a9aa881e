// Package cli is topoctl's command line. A command is in the file of its name, or in a few that
// begin with it: its flags first, then what carries it out and what it prints; what help says of it is
// in the folder help. root.go, command.go, help.go, host.go (which host a command is about), value.go (flags that
// check their values), output.go and errors.go have what all share; address.go, credentials.go, registry.go and transports.go what those share that
// run engines.
package cli

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover"
)

// Main runs the command that args name (without the program's name) and gives
// the exit code. gpus and rdma are the libraries to ask on this machine; nil means
// that the program was built without one.
func Main(ctx context.Context, args []string, s Streams, gpus discover.GPUSource, rdma RDMASource) int {
	f := &Env{Streams: s, GPUs: gpus, RDMA: rdma, Now: time.Now}
	return Run(ctx, f, args, commands(f)...)
}

// Manual are the pages of topoctl's manual, by file name.
func Manual(version string, date time.Time) map[string][]byte {
	f := &Env{Streams: Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}}
	return manualPages(newRoot(f, commands(f)...), version, date)
}

// commandGroup are the commands that help shows below one title.
type commandGroup struct {
	title    string
	commands []*cobra.Command
}

// groups are topoctl's commands in the order in which people meet them.
func groups(f *Env) []commandGroup {
	return []commandGroup{
		{"See a host", []*cobra.Command{newSummaryCmd(f), newDoctorCmd(f), newPathCmd(f), newTopoCmd(f),
			newMatrixCmd(f), newTUICmd(f), newWatchCmd(f), newAuditCmd(f)}},
		{"Save, compare and configure", []*cobra.Command{newFixturesCmd(f), newDiscoverCmd(f), newDiffCmd(f),
			newExportCmd(f), newRemapCmd(f),
			family("fleet", "Compare many hosts, and find the one that is odd", newFleetCollectCmd(f), newFleetShowCmd(f),
				newFleetCheckCmd(f), newFleetDiffCmd(f), newFleetFabricCmd(f), newFleetExportCmd(f))}},
		{"Measure and move data", []*cobra.Command{
			family("probe", "Measure whether paths are as fast as expected, and why not", newProbeLocalCmd(f),
				newProbeFabricCmd(f), newProbeShowCmd(f)),
			newBenchCmd(f), newAgentCmd(f), newPeersCmd(f),
			family("cert", "Make and explain the certificates by which hosts know each other", newCertCACmd(f),
				newCertHostCmd(f), newCertShowCmd(f)),
			family("kv", "Predict how NICs and paths affect LLM serving that moves KV caches", newPredictCmd(f),
				newReplayCmd(f), newPresetCmd(f)),
			family("python", "Run Python programs for Mooncake or NIXL on topoctl's engine", newPythonEnvCmd(f))}},
		{"", []*cobra.Command{newVersionCmd(f), newSchemaCmd(f)}},
	}
}

// commands are topoctl's, group by group, and its help topics. Those in no group say all in a line.
func commands(f *Env) []*cobra.Command {
	var all, explained []*cobra.Command
	for _, g := range groups(f) {
		for _, c := range g.commands {
			c.GroupID = g.title
		}
		all = append(all, g.commands...)
		if g.title != "" {
			explained = append(explained, g.commands...)
		}
	}
	topics := helpTopics()
	setTexts(append(explained, topics...), all)
	return append(all, topics...)
}

// family is a command of which only the subcommands do something.
func family(name, short string, subcommands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short, Args: unknownCommand, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(subcommands...)
	return cmd
}
