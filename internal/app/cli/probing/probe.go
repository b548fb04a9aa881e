// Package probing has the commands that measure, probe local, fabric and show, and the prober of
// the dashboard.
package probing

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/app/cli/command"
)

// probeRuns carry the subcommands out.
type probeRuns struct {
	local  func(context.Context, *probeLocalOptions) error
	fabric func(context.Context, *probeFabricOptions) error
	show   func(context.Context, *probeShowOptions) error
}

// Commands are those that measure.
func Commands(f *command.Env) []*cobra.Command {
	return []*cobra.Command{newProbeCmd(f, probeRuns{runProbeLocal, runProbeFabric, runProbeShow})}
}

func newProbeCmd(f *command.Env, run probeRuns) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Measure whether every path is as fast as it should be, and which part is to blame",
		Long: "probe measures pairs of ends: memory and GPUs of this host, its ports, the ports of\n" +
			"many hosts. What each pair should carry follows from the topology: the slowest link\n" +
			"on its way. Pairs that share no link are measured at the same time. Slow pairs are\n" +
			"measured again alone, then with partners that are well, and the links and devices\n" +
			"that the bad pairs have in common, and the good ones have not, are named.",
		Example: "  topoctl probe local\n  topoctl probe fabric --host n1=10.0.0.1 --host n2=10.0.0.2 --token-file token\n" +
			"  topoctl probe show report.json -o html --out-file report.html",
		Args: command.UnknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newProbeLocalCmd(f, run.local), newProbeFabricCmd(f, run.fabric), newProbeShowCmd(f, run.show))
	return cmd
}

// verdictsText is what help says of verdicts and exit codes.
const verdictsText = "Verdicts: PASS; WARN below --warn-under of what is expected, or an outlier among\n" +
	"equals; FAIL below --fail-under of a rate that was read or measured, or an outlier where\n" +
	"such a rate is known (a constant or an assumption never fails a pair); INCONCLUSIVE where\n" +
	"the samples do not suffice, or nothing is known to compare with; WAIVED where it cannot\n" +
	"be measured here; ERROR.\n\n" +
	"The exit code is 1 if a pair FAILs or a part is blamed, 3 if a pair is in ERROR, had not\n" +
	"enough samples or was not reached in --max-duration, if a port for data is down, or if no\n" +
	"pair was measured, 0 otherwise."
