// Topoctl shows how a host's GPUs, NICs, memory and CPUs are connected.
package main

import (
	"context"
	"os"

	"github.com/topoctl/topoctl/cmd/topoctl/internal/cli"
	"github.com/topoctl/topoctl/discover/nvml"
	"github.com/topoctl/topoctl/internal/verbscheck"
)

func main() {
	os.Exit(cli.Main(context.Background(), os.Args[1:], cli.Stdio(), nvml.New(), verbscheck.New()))
}
