// Package cli is topoctl's command line. A command is in the file of its name, or in a few that
// begin with it: its flags first, then what carries it out and what it prints. root.go, help.go,
// host.go (which host a command is about), value.go (types of flags), output.go and errors.go have
// what all share; address.go, credentials.go, registry.go and transports.go what those share that
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
	return manualPages(NewRoot(f, commands(f)...), version, date)
}

// commandGroup are the commands that help shows below one title.
type commandGroup struct {
	title    string
	commands []*cobra.Command
}

// groups are topoctl's commands in the order in which people meet them.
func groups(f *Env) []commandGroup {
	return []commandGroup{
		{"See a host", []*cobra.Command{newSummaryCmd(f, runSummary), newDoctorCmd(f, runDoctor), newPathCmd(f, runPath), newTopoCmd(f, runTopo),
			newMatrixCmd(f, runMatrix), newTUICmd(f, runTUI), newWatchCmd(f, runWatch), newAuditCmd(f, runAudit)}},
		{"Save, compare and configure", []*cobra.Command{newFixturesCmd(f, runFixtures), newDiscoverCmd(f, runDiscover), newDiffCmd(f, runDiff),
			newExportCmd(f, runExport), newRemapCmd(f, runRemap), newFleetCmd(f)}},
		{"Measure and move data", []*cobra.Command{newProbeCmd(f), newBenchCmd(f, runBench), newAgentCmd(f, runAgent),
			newPeersCmd(f, runPeers), newCertCmd(f), newKVCmd(f), newPythonCmd(f, runPythonEnv)}},
		{"", []*cobra.Command{newBenchEndCmd(f), newVersionCmd(f, runVersion)}},
	}
}

// commands are topoctl's, group by group, and its help topics.
func commands(f *Env) []*cobra.Command {
	var all []*cobra.Command
	for _, g := range groups(f) {
		for _, c := range g.commands {
			c.GroupID = g.title
		}
		all = append(all, g.commands...)
	}
	return append(all, helpTopics(all)...)
}

// below makes a command of which only the subcommands do something.
func below(cmd *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	cmd.Args = UnknownCommand
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(subcommands...)
	return cmd
}
