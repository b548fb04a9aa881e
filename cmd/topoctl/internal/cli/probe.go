package cli

import (
	"github.com/spf13/cobra"
)

func newProbeCmd(f *Env) *cobra.Command {
	return below(&cobra.Command{
		Use:   "probe",
		Short: "Measure whether paths are as fast as expected, and why not",
		Long: "probe measures pairs of endpoints: memory, GPUs and ports of this host, or ports of many\n" +
			"hosts. The expected rate of a pair is that of the slowest link between its endpoints.\n" +
			"Pairs that share no link are measured at the same time. Slow pairs are measured again,\n" +
			"alone and then with other endpoints. probe names the links and devices that only the\n" +
			"slow pairs use.\n\n" + verdictsText,
		Example: "  topoctl probe local\n  topoctl probe fabric --host n1=10.0.0.1 --host n2=10.0.0.2 --token-file token\n" +
			"  topoctl probe show report.json -o html --out-file report.html",
	}, newProbeLocalCmd(f, runProbeLocal), newProbeFabricCmd(f, runProbeFabric), newProbeShowCmd(f, runProbeShow))
}

// verdictsText is what help says of verdicts and exit codes.
const verdictsText = "Verdicts:\n" +
	"  PASS          as fast as expected\n" +
	"  MEASURED      measured; no rate is expected, and there is no similar pair to compare with\n" +
	"  WARN          below --warn-under of the expected rate, or an outlier among similar pairs\n" +
	"  FAIL          below --fail-under of an expected rate that was read or measured, or an\n" +
	"                outlier where there is one (assumed rates and constants never fail a pair)\n" +
	"  INCONCLUSIVE  too few samples, or processors too busy, to tell\n" +
	"  WAIVED        cannot be measured here\n" +
	"  ERROR         the measurement failed\n\n" +
	"The exit code is 1 if a pair fails or a cause is found. It is 3 if a pair has an error, has\n" +
	"too few samples or was not reached within --max-duration, if a data port is down or its\n" +
	"host's RDMA cannot be used, if a host took no part, or if no pair was measured. Otherwise it\n" +
	"is 0."

// verdictsHint is what help of the commands that measure says of them.
const verdictsHint = "\"topoctl probe --help-all\" lists the verdicts and exit codes."
