// Package inprocess runs topoctl in the process of a test.
package inprocess

import (
	"context"

	"github.com/topoctl/topoctl/cmd/topoctl/internal/cli"

	"github.com/topoctl/topoctl/discover"
)

// Main runs topoctl on the standard streams and returns its exit status. Without gpus and rdma it is as where
// their libraries are not installed.
func Main(ctx context.Context, args []string, gpus discover.GPUSource, rdma cli.RDMASource) int {
	return cli.Main(ctx, args, cli.Stdio(), gpus, rdma)
}
