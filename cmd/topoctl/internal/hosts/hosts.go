// Package hosts has the commands about what a host has: discover, topo, matrix, doctor, diff, export, remap, fixtures.
package hosts

import (
	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/cmd/topoctl/internal/command"
)

// Commands are those about what a host has.
func Commands(f *command.Env) []*cobra.Command {
	return []*cobra.Command{newDiscoverCmd(f, runDiscover), newTopoCmd(f, runTopo), newMatrixCmd(f, runMatrix), newDoctorCmd(f, runDoctor),
		newDiffCmd(f, runDiff), newExportCmd(f, runExport), newRemapCmd(f, runRemap), newFixturesCmd(f, runFixtures)}
}
