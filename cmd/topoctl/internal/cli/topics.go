package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/text"
)

// helpTopics are the pages of "topoctl help TOPIC" about some commands.
func helpTopics(commands []*cobra.Command) []*cobra.Command {
	topics := []struct{ name, short, long string }{
		{"exit-codes", "What the exit codes mean", fmt.Sprintf(`Every command ends with one of these codes:

  %-3d  success
  %-3d  the command ran and found a problem or a difference: doctor a finding, diff a
       difference, path no usable port, bench a failed transfer or a wrong byte, probe
       a failed pair or a cause, watch --exit-on-change a change, audit a plan that was
       missed or nothing that moved, kv a request that was not answered, cert show a
       certificate that peers would refuse, peers a record that cannot be used
  %-3d  the command could not run: wrong usage, missing permission or bad input
  %-3d  the result is incomplete: something could not be read, as the warnings on stderr
       and in the JSON say ("discover --strict" exits with %d); for probe, a pair with an
       error or too few samples, a host that took no part, a data port that is down, RDMA
       that an agent cannot use, no measured pair, or no time left (--max-duration); for
       audit, a planned port whose counters do not say
  %-3d  interrupted; agent, peers --watch, and watch without --duration or --exit-on-change, exit with 0

"doctor -o nagios" uses the exit codes of monitoring plugins: 0 OK, 1 WARNING,
2 CRITICAL, 3 UNKNOWN.`, ExitOK, ExitBad, ExitFailed, ExitPartial, ExitFailed, ExitInterrupted)},
		{"environment", "Environment variables that topoctl reads", `NO_COLOR, TOPOCTL_NO_COLOR
  Disable color if set to any value. --color and --no-color override them.

TERM
  Disables color if it is "dumb".

LC_ALL, LC_CTYPE, LANG
  The first that is set decides: a locale without UTF-8, such as "C", gets ASCII
  characters only in text for people, as --ascii does. Without any of them, UTF-8.

CUDA_VISIBLE_DEVICES
  Numbers the GPUs of this host for "topoctl export mooncake" and "topoctl export
  env". For AMD GPUs, it is ROCR_VISIBLE_DEVICES, then HIP_VISIBLE_DEVICES.
  --visible overrides them.

ETCDCTL_ENDPOINTS, ETCDCTL_CACERT, ETCDCTL_CERT, ETCDCTL_KEY, ETCDCTL_USER
  How --registry etcd:// reaches etcd, where the URL does not say; as etcdctl has them.`},
		{"output", "Which command prints which formats", outputText(commands)},
		{"json", "What programs can rely on in the JSON", jsonText()},
	}
	var out []*cobra.Command
	for _, t := range topics {
		out = append(out, &cobra.Command{Use: t.name, Short: t.short, Long: t.long})
	}
	return out
}

// outputText is the help on formats: what is the same everywhere, and a row for each command.
func outputText(commands []*cobra.Command) string {
	var b strings.Builder
	b.WriteString(`Every command that prints a result has -o FORMAT (--output), with table and json at
least. Without it, a command prints the first format of its row.

`)
	var rows [][]string
	for _, c := range runnable(commands) {
		what := strings.Join(FormatsOf(c), " ")
		if what == "" {
			what = PrintsOf(c) + " (no -o)"
		}
		rows = append(rows, []string{"  " + c.CommandPath(), what})
	}
	b.WriteString(strings.Join(text.Columns(rows), "\n") + "\n\n")
	rows = nil
	for _, f := range FormatsKnown {
		rows = append(rows, []string{"  " + f.Name, f.About})
	}
	b.WriteString(strings.Join(text.Columns(rows), "\n"))
	b.WriteString(`

The result goes to stdout, warnings and progress to stderr. --quiet leaves only errors on
stderr, and changes neither the result nor the exit code. A pipe gets the same text as a
terminal, without colors and not fitted to the width of a window. Text for people may
change: programs read json ("topoctl help json") or tsv. --json is -o json.

Every command has --color (auto, always, never), --no-color, --ascii, --help and
--help-all, and the same exit codes ("topoctl help exit-codes").`)
	return b.String()
}

// runnable are the commands that do something, of families their subcommands. No root is above them:
// their path has no "topoctl".
func runnable(commands []*cobra.Command) []*cobra.Command {
	var out []*cobra.Command
	for _, c := range commands {
		switch {
		case c.HasSubCommands():
			out = append(out, runnable(c.Commands())...)
		case c.Runnable() && !c.Hidden:
			out = append(out, c)
		}
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
