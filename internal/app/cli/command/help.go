package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/topoctl/topoctl/internal/base/edit"
	"github.com/topoctl/topoctl/internal/base/text"
)

// plainWidth is how wide help is where there is no terminal.
const plainWidth = 80

func (s Streams) helpWidth() int {
	if s.Width > 0 {
		return s.Width
	}
	return plainWidth
}

// help prints a command's description and usage. A word that is no command has no help: cobra
// looks at --help before it looks at arguments.
func (f *Env) help(cmd *cobra.Command, _ []string) {
	if cmd.HasSubCommands() {
		if f.unhelpful = UnknownCommand(cmd, cmd.Flags().Args()); f.unhelpful != nil {
			return
		}
	}
	about := cmd.Long
	if about == "" {
		about = cmd.Short
	}
	fmt.Fprintln(cmd.OutOrStdout(), reflow(about, f.Streams.helpWidth()))
	if cmd.Runnable() || cmd.HasSubCommands() {
		fmt.Fprintln(cmd.OutOrStdout())
		if err := cmd.Usage(); err != nil {
			f.unhelpful = err
		}
	}
}

// reflow wraps the paragraphs of a text. Lines that are set in stay as they are.
func reflow(s string, width int) string {
	var out, prose []string
	flush := func() {
		if len(prose) > 0 {
			out = append(out, text.Wrap(strings.Join(prose, " "), width)...)
			prose = nil
		}
	}
	for line := range strings.SplitSeq(strings.TrimRight(s, "\n"), "\n") {
		if line != "" && line[0] != ' ' {
			prose = append(prose, line)
			continue
		}
		flush()
		out = append(out, line)
	}
	flush()
	return strings.Join(out, "\n")
}

// usage prints how a command is called, with those flags only that do something.
func usage(cmd *cobra.Command, width int) error {
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
	for _, g := range flagGroups(cmd) {
		fmt.Fprintf(&b, "\n%s:\n%s", g.Name(), g.FlagUsagesWrapped(width))
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
	known := strings.Fields(cmd.Annotations[FormatsKey])
	cmd.InheritedFlags().VisitAll(func(fl *pflag.Flag) {
		if !slices.Contains(used, fl.Name) {
			return
		}
		if fl.Name == "output" {
			own := *fl
			own.Usage, own.DefValue = "output `FORMAT`: "+Either(known), known[0]
			fl = &own
		}
		set.AddFlag(fl)
	})
	return set
}

// groupKey is the annotation of a flag that has a heading of its own in help, and of a command's headings.
const groupKey = "topoctl_group"

// Group puts flags of a command under a heading of its help. Headings are in the order of the first calls.
func Group(cmd *cobra.Command, title string, names ...string) {
	for _, name := range names {
		if err := cmd.Flags().SetAnnotation(name, groupKey, []string{title}); err != nil {
			panic(err) // a flag that is not there
		}
	}
	if titles := groupTitles(cmd); !slices.Contains(titles, title) {
		if cmd.Annotations == nil {
			cmd.Annotations = map[string]string{}
		}
		cmd.Annotations[groupKey] = strings.Join(append(titles, title), "\n")
	}
}

func groupTitles(cmd *cobra.Command) []string {
	return strings.FieldsFunc(cmd.Annotations[groupKey], func(r rune) bool { return r == '\n' })
}

// flagGroups are the flags that do something on a command under their headings, those without one last.
func flagGroups(cmd *cobra.Command) []*pflag.FlagSet {
	titles := groupTitles(cmd)
	rest := "Flags"
	if len(titles) > 0 {
		rest = "Other flags"
	}
	var out []*pflag.FlagSet
	for _, title := range append(titles, rest) {
		set := pflag.NewFlagSet(title, pflag.ContinueOnError)
		set.SortFlags = false
		out = append(out, set)
	}
	helpFlags(cmd).VisitAll(func(fl *pflag.Flag) {
		at := len(titles)
		if of := fl.Annotations[groupKey]; len(of) > 0 {
			at = slices.Index(titles, of[0])
		}
		out[at].AddFlag(fl)
	})
	return slices.DeleteFunc(out, func(set *pflag.FlagSet) bool { return !set.HasAvailableFlags() })
}

// newHelpCmd is "topoctl help": of a command or a topic.
func newHelpCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND | TOPIC]",
		Short: "Show help for a command or topic",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var out []string
			for _, c := range about.Commands() {
				if c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand() {
					out = append(out, cobra.CompletionWithDesc(c.Name(), c.Short))
				}
			}
			return out, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err == nil {
				err = UnknownCommand(about, rest)
			}
			if err != nil {
				return err
			}
			return about.Help()
		},
	}
}

// Suggest adds advice to the error of a mistyped name: the nearest of the known ones, or else what
// to do where none is near.
func Suggest(err error, typed string, known []string, otherwise string) error {
	if near := Closest(typed, known); near != "" {
		return WithHint(err, "did you mean %q?", near)
	}
	if otherwise == "" {
		return err
	}
	return WithHint(err, "%s", otherwise)
}

// Closest finds the candidate that a mistyped name most likely meant, "" where
// none is near: one edit, and one more for each four letters.
func Closest(name string, candidates []string) string {
	if len(name) > 64 { // no one types that
		return ""
	}
	best, bestDistance := "", 2+len(name)/4
	for _, c := range candidates {
		if d := edit.Distance(strings.ToLower(name), strings.ToLower(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}
