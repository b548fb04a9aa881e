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

  %-3d  it ran, and the answer is good
  %-3d  it ran, and the answer is bad: doctor has a finding, diff a difference,
       path no port that can be used, bench a failed transfer or a wrong byte,
       probe a pair that fails or a part to blame, watch --exit-on-change a change,
       kv a request without an answer
  %-3d  it could not run: wrong usage, no permission, bad input
  %-3d  it ran and printed, but something that is there could not be read; the
       warnings on stderr and in the JSON say what ("discover --strict" makes it %d);
       of probe: a pair in error or without enough samples, a host that took no
       part, a port for data that is down, RDMA that an agent cannot use, no pair
       that was measured, or no time left (--max-duration)
  %-3d  it was interrupted; of agent, and of watch where nothing else ends it, that is
       the end that it should have, and the code is 0

"doctor -o nagios" ends as monitoring systems want it: 0 OK, 1 WARNING, 2 CRITICAL,
3 UNKNOWN.`, command.ExitOK, command.ExitBad, command.ExitFailed, command.ExitPartial, command.ExitFailed, command.ExitInterrupted)},
		{"environment", "Environment variables that topoctl reads", `NO_COLOR, TOPOCTL_NO_COLOR
  No colour if set to anything. --color and --no-color win over both.

TERM
  No colour if it is "dumb".

CUDA_VISIBLE_DEVICES
  How "topoctl export mooncake" and "topoctl export env" number this machine's
  GPUs; on AMD's GPUs ROCR_VISIBLE_DEVICES, then HIP_VISIBLE_DEVICES. --visible
  wins over all.`},
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
Another major version is refused.

` + documentsText() + `
Lists are sorted by stable identifiers. Rates are integers in bytes per second,
in one direction. null means unknown; it never stands for zero. "complete" is
false if something that is there could not be read; "warnings" say what.`
}
