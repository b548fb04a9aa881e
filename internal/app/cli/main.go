// Package cli is topoctl's command line: its commands, by family in the packages below, the
// help topics and the version. What all families share is in package command.
package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/internal/app/cli/command"
	"github.com/topoctl/topoctl/internal/app/cli/hosts"
	"github.com/topoctl/topoctl/internal/app/cli/live"
	"github.com/topoctl/topoctl/internal/app/cli/paths"
	"github.com/topoctl/topoctl/internal/app/cli/probing"
	"github.com/topoctl/topoctl/internal/app/cli/serving"
	"github.com/topoctl/topoctl/internal/app/cli/transfer"
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

// commands are topoctl's, in the order of their families, and its help topics.
func commands(f *command.Env) []*cobra.Command {
	return slices.Concat(hosts.Commands(f), paths.Commands(f), transfer.Commands(f), probing.Commands(f), live.Commands(f), serving.Commands(f),
		[]*cobra.Command{newVersionCmd(f, runVersion)}, helpTopics())
}
