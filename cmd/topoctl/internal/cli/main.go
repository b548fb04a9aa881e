// Package cli is topoctl's command line: its commands, by family in the packages below, the
// help topics and the version. What all families share is in package command.
package cli

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/cmd/topoctl/internal/certs"
	"github.com/topoctl/topoctl/cmd/topoctl/internal/command"
	"github.com/topoctl/topoctl/cmd/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/cmd/topoctl/internal/hosts"
	"github.com/topoctl/topoctl/cmd/topoctl/internal/live"
	"github.com/topoctl/topoctl/cmd/topoctl/internal/paths"
	"github.com/topoctl/topoctl/cmd/topoctl/internal/peers"
	"github.com/topoctl/topoctl/cmd/topoctl/internal/probing"
	"github.com/topoctl/topoctl/cmd/topoctl/internal/serving"
	"github.com/topoctl/topoctl/cmd/topoctl/internal/transfer"
	"github.com/topoctl/topoctl/discover"
)

// Streams are what topoctl reads from and writes to.
type Streams = command.Streams

// Stdio are the streams of this process.
func Stdio() Streams { return command.Stdio() }

// Main runs the command that args name (without the program's name) and gives
// the exit code. gpus and rdma are the libraries to ask on this machine; nil means
// that the program was built without one.
func Main(ctx context.Context, args []string, s Streams, gpus discover.GPUSource, rdma command.RDMASource) int {
	f := &command.Env{Streams: s, GPUs: gpus, RDMA: rdma, Now: time.Now}
	return command.Run(ctx, f, args, commands(f)...)
}

// Manual are the pages of topoctl's manual, by file name.
func Manual(version string, date time.Time) map[string][]byte {
	f := &command.Env{Streams: Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}}
	return command.Manual(command.NewRoot(f, commands(f)...), version, date)
}

// The groups of commands in the order in which people meet them, and of each the commands.
var groups = []struct {
	title string
	names []string
}{
	{"See a host", []string{command.SummaryName, "doctor", "path", "topo", "matrix", "tui", "watch", "audit"}},
	{"Save, compare and configure", []string{"fixtures", "discover", "diff", "export", "remap", "fleet"}},
	{"Measure and move data", []string{"probe", "bench", "agent", "peers", "cert", "kv", "python"}},
}

// commands are topoctl's, group by group, and its help topics.
func commands(f *command.Env) []*cobra.Command {
	all := slices.Concat([]*cobra.Command{newSummaryCmd(f, runSummary)}, hosts.Commands(f), paths.Commands(f), transfer.Commands(f), peers.Commands(f), probing.Commands(f),
		live.Commands(f), serving.Commands(f), fleet.Commands(f), certs.Commands(f), []*cobra.Command{newVersionCmd(f, runVersion)})
	rank := map[string]int{}
	for _, g := range groups {
		for _, c := range all {
			if slices.Contains(g.names, c.Name()) {
				c.GroupID = g.title
			}
		}
		for _, name := range g.names {
			rank[name] = len(rank) - len(all) // before those without a group, which have 0
		}
	}
	slices.SortStableFunc(all, func(a, b *cobra.Command) int { return rank[a.Name()] - rank[b.Name()] })
	return append(all, helpTopics(all)...)
}
