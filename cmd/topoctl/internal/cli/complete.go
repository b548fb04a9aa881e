package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/units"
)

// completer offers the values of a flag to the shell.
type completer = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective)

// Words offers the words of a list.
func Words[T ~string](list ...T) completer {
	return cobra.FixedCompletions(wordsOf(list), cobra.ShellCompDirectiveNoFileComp)
}

// WordList offers the words that a comma-separated list does not hold yet.
func WordList(list ...string) completer {
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

// hostArgs offers fixture:NAME where a file or a described machine is expected, once its beginning
// is typed; before is what stands before it, "NAME=" of kv's hosts.
func hostArgs(typed, before string) ([]string, cobra.ShellCompDirective) {
	prefix := before + fixturePrefix
	if typed == before || !strings.HasPrefix(typed, prefix[:min(len(typed), len(prefix))]) {
		return nil, cobra.ShellCompDirectiveDefault
	}
	names, _ := fixtureNames(nil, nil, "")
	for i := range names {
		names[i] = prefix + names[i]
	}
	return names, cobra.ShellCompDirectiveDefault
}

// hostFlag offers the values of a flag, or arguments, that are a file or a described machine.
func hostFlag(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return hostArgs(typed, "")
}

// formatNames offers what -o takes on the command.
func formatNames(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, name := range FormatsOf(cmd) {
		out = append(out, cobra.CompletionWithDesc(name, formatAbout(name)))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// addCompletions tells the shell the values of the global flags.
func addCompletions(root *cobra.Command) {
	Offer(root, map[string]completer{
		"root": dirs, "host-root": dirs, "fixture": fixtureNames, "output": formatNames,
		"color": Words(colorAuto, colorAlways, colorNever), "units": Words(units.Systems()...),
	})
}

// offerNoFiles keeps the shell from offering files as values that are none: help calls those FILE or DIR.
func offerNoFiles(cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(fl *pflag.Flag) {
		value, _ := pflag.UnquoteUsage(fl)
		if _, known := cmd.GetFlagCompletionFunc(fl.Name); !known && value != "FILE" && value != "DIR" {
			Offer(cmd, map[string]completer{fl.Name: cobra.NoFileCompletions})
		}
	})
	for _, c := range cmd.Commands() {
		offerNoFiles(c)
	}
}

// flagsWith begins the notes on flags that mean something with one argument alone.
const flagsWith = "flags with "

// FlagsWith notes the flags that mean something with an argument of a command, and nothing with the others
// that are noted so: the shell is not offered those.
func FlagsWith(cmd *cobra.Command, arg string, flags ...string) {
	annotate(cmd, flagsWith+arg, strings.Join(flags, " "))
}

// tidyCompletions makes the descriptions of flags plain text, and hides the flags that have no effect on
// the command or with an argument that is typed already.
func tidyCompletions(root *cobra.Command, typed []string) {
	plainDescriptions(root)
	cmd, rest, err := root.Find(typed)
	if err != nil {
		return // cobra offers what it can
	}
	if used := usesOf(cmd); cmd != root {
		root.PersistentFlags().VisitAll(func(fl *pflag.Flag) {
			fl.Hidden = !slices.Contains(used, fl.Name) && !strings.HasPrefix(fl.Name, "help")
		})
	}
	for _, arg := range rest {
		flags, ok := cmd.Annotations[flagsWith+arg]
		if !ok {
			continue
		}
		for key, others := range cmd.Annotations {
			for _, name := range strings.Fields(others) {
				if strings.HasPrefix(key, flagsWith) && !slices.Contains(strings.Fields(flags), name) {
					cmd.Flag(name).Hidden = true
				}
			}
		}
		return
	}
}

// plainDescriptions takes the quotes off the values that flags are described with.
func plainDescriptions(cmd *cobra.Command) {
	plain := func(fl *pflag.Flag) { _, fl.Usage = pflag.UnquoteUsage(fl) }
	cmd.PersistentFlags().VisitAll(plain)
	cmd.Flags().VisitAll(plain)
	for _, c := range cmd.Commands() {
		plainDescriptions(c)
	}
}

// Offer registers completions. A flag that does not exist is a mistake in this
// program that its first test run shows.
func Offer(cmd *cobra.Command, values map[string]completer) {
	for flag, f := range values {
		if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
			panic(err)
		}
	}
}
