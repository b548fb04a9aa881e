package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/app/cli/command"
)

// helpTopics are the pages of "topoctl help TOPIC".
func helpTopics() []*cobra.Command {
	topics := []struct{ name, short, long string }{
		{"exit-codes", "What the exit codes mean", fmt.Sprintf(`Every command ends with one of these codes:

  %-3d  success
  %-3d  the command ran and found a problem or a difference: doctor a finding, diff a
       difference, path no usable port, bench a failed transfer or a wrong byte, probe
       a failed pair or a cause, watch --exit-on-change a change, kv a request that was
       not answered
  %-3d  the command could not run: wrong usage, missing permission or bad input
  %-3d  the result is incomplete: something could not be read, as the warnings on stderr
       and in the JSON say ("discover --strict" exits with %d); for probe, a pair with an
       error or too few samples, a host that took no part, a data port that is down, RDMA
       that an agent cannot use, no measured pair, or no time left (--max-duration)
  %-3d  interrupted; agent, and watch without --for or --exit-on-change, exit with 0

"doctor -o nagios" uses the exit codes of monitoring plugins: 0 OK, 1 WARNING,
2 CRITICAL, 3 UNKNOWN.`, command.ExitOK, command.ExitBad, command.ExitFailed, command.ExitPartial, command.ExitFailed, command.ExitInterrupted)},
		{"environment", "Environment variables that topoctl reads", `NO_COLOR, TOPOCTL_NO_COLOR
  Disable color if set to any value. --color and --no-color override them.

TERM
  Disables color if it is "dumb".

LC_ALL, LC_CTYPE, LANG
  The first that is set decides: "C" and "POSIX" draw with ASCII characters only, as
  --ascii does.

CUDA_VISIBLE_DEVICES
  Numbers the GPUs of this host for "topoctl export mooncake" and "topoctl export
  env". For AMD GPUs, it is ROCR_VISIBLE_DEVICES, then HIP_VISIBLE_DEVICES.
  --visible overrides them.`},
		{"json", "What programs can rely on in the JSON", jsonText()},
	}
	var out []*cobra.Command
	for _, t := range topics {
		c := &cobra.Command{Use: t.name, Short: t.short, Long: t.long}
		c.SetUsageFunc(func(*cobra.Command) error { return nil }) // the text is all there is
		out = append(out, c)
	}
	return out
}

// jsonText is the help on documents.
func jsonText() string {
	return `The first key of a document is "schema": a name and a major version. Within a
major version keys are only added; readers ignore keys that they do not know.
Documents with another major version are rejected.

` + documentsText() + `
Lists are sorted by stable identifiers. Rates are integers in bytes per second,
in one direction. null means unknown, never zero. "complete" is false if
something could not be read; "warnings" lists what.`
}
