package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/app/agent"
	"github.com/topoctl/topoctl/internal/app/bench"
	"github.com/topoctl/topoctl/internal/app/diff"
	kvreport "github.com/topoctl/topoctl/internal/app/kv/report"
	"github.com/topoctl/topoctl/internal/app/record"
	"github.com/topoctl/topoctl/internal/app/watch"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/probe"
)

// usage prints how a command is called, with those flags only that do something.
func usage(cmd *cobra.Command) error {
	var b strings.Builder
	line := cmd.UseLine()
	if cmd.HasAvailableSubCommands() {
		line = cmd.CommandPath() + " COMMAND [flags]"
	}
	fmt.Fprintf(&b, "Usage:\n  %s\n", line)
	section := func(title string, wanted func(*cobra.Command) bool) {
		var lines []string
		for _, c := range cmd.Commands() {
			if wanted(c) {
				lines = append(lines, fmt.Sprintf("  %-12s  %s\n", c.Name(), c.Short))
			}
		}
		if len(lines) > 0 {
			fmt.Fprintf(&b, "\n%s:\n%s", title, strings.Join(lines, ""))
		}
	}
	section("Commands", func(c *cobra.Command) bool { return c.IsAvailableCommand() })
	section("Help topics (topoctl help TOPIC)", (*cobra.Command).IsAdditionalHelpTopicCommand)
	if flags := helpFlags(cmd); flags.HasAvailableFlags() {
		fmt.Fprintf(&b, "\nFlags:\n%s", flags.FlagUsages())
	}
	if cmd.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	_, err := fmt.Fprint(cmd.OutOrStderr(), b.String())
	return err
}

// helpFlags are the flags that do something on a command: its own, and the
// global ones that it uses.
func helpFlags(cmd *cobra.Command) *pflag.FlagSet {
	set := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
	set.SortFlags = false
	set.AddFlagSet(cmd.LocalNonPersistentFlags())
	used := strings.Fields(cmd.Annotations[usesKey])
	known := strings.Fields(cmd.Annotations[formatsKey])
	cmd.InheritedFlags().VisitAll(func(fl *pflag.Flag) {
		if !slices.Contains(used, fl.Name) {
			return
		}
		if fl.Name == "output" {
			own := *fl
			own.Usage, own.DefValue = "output `FORMAT`: "+either(known), known[0]
			fl = &own
		}
		set.AddFlag(fl)
	})
	return set
}

// newHelpCmd is "topoctl help": of a command or a topic.
func newHelpCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND | TOPIC]",
		Short: "Help on a command or a topic",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err == nil {
				err = unknownCommand(about, rest)
			}
			if err != nil {
				return err
			}
			return about.Help()
		},
	}
}

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
3 UNKNOWN.`, exitOK, exitBad, exitFailed, exitPartial, exitFailed, exitInterrupted)},
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
	return fmt.Sprintf(`The first key of a document is "schema": a name and a major version. Within a
major version keys are only added; readers ignore keys that they do not know.
Another major version is refused.

  %-23s  topoctl discover
  %-23s  topoctl matrix -o json
  %-23s  topoctl path -o json
  %-23s  topoctl path --plan -o json
  %-23s  topoctl doctor -o json
  %-23s  topoctl diff -o json
  %-23s  topoctl bench -o json
  %-23s  topoctl probe -o json
  %-23s  topoctl probe -o jsonl, a line each
  %-23s  topoctl probe --dry-run -o json
  %-23s  topoctl kv -o json
  %-23s  topoctl watch -o jsonl, a line each
  %-23s  topoctl tui --record, a line each
  %-23s  topoctl agent -o json, one line
  %-23s  GET /v1/engine of topoctl agent --http
  %-23s  topoctl version -o json

Lists are sorted by stable identifiers. Rates are integers in bytes per second,
in one direction. null means unknown; it never stands for zero. "complete" is
false if something that is there could not be read; "warnings" say what.`,
		topo.SchemaTopology, topo.SchemaMatrix, schemaPath, pathsel.SchemaPlan, doctor.Schema, diff.Schema, bench.Schema, probe.Schema, probe.EventSchema, schemaProbePlan, kvreport.Schema, watch.Schema, record.Schema, schemaAgent, agent.SchemaEngine, schemaVersion)
}
