package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/base/units"
)

// completer offers the values of a flag to the shell.
type completer = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective)

func words(list ...string) completer {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return list, cobra.ShellCompDirectiveNoFileComp
	}
}

// wordList offers the words that a comma-separated list does not hold yet.
func wordList(list ...string) completer {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		head := typed[:strings.LastIndexByte(typed, ',')+1]
		var out []string
		for _, w := range list {
			if !strings.Contains(","+head, ","+w+",") {
				out = append(out, head+w)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

func dirs(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// fixtureNames offers the described machines and the captured hosts with what
// they are; files are possible too.
func fixtureNames(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, name := range slices.Concat(fixtures.Names(), fixtures.Captures()) {
		out = append(out, cobra.CompletionWithDesc(name, fixtures.Describe(name)))
	}
	return out, cobra.ShellCompDirectiveDefault
}

// formatNames offers what -o takes on the command.
func formatNames(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return strings.Fields(cmd.Annotations[formatsKey]), cobra.ShellCompDirectiveNoFileComp
}

// addCompletions tells the shell the values of the global flags.
func addCompletions(root *cobra.Command) {
	offer(root, map[string]completer{
		"root": dirs, "host-root": dirs, "fixture": fixtureNames, "output": formatNames,
		"color": words(colorAuto, colorAlways, colorNever), "units": words(units.Systems()...),
	})
}

// offer registers completions. A flag that does not exist is a mistake in this
// program that its first test run shows.
func offer(cmd *cobra.Command, values map[string]completer) {
	for flag, f := range values {
		if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
			panic(err)
		}
	}
}
