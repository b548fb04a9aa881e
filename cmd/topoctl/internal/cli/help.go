package cli

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/topoctl/topoctl/internal/text"
)

// plainWidth is how wide help is where there is no terminal.
const plainWidth = 80

func (s Streams) helpWidth() int {
	if s.Width > 0 {
		return s.Width
	}
	return plainWidth
}

// printHelp prints what a command does and how to use it: in brief, or with --help-all in full. A
// word that is no command has no help: cobra looks at --help before it looks at arguments.
func (f *Env) printHelp(cmd *cobra.Command, _ []string) {
	if cmd.HasSubCommands() {
		if f.help.none = unknownCommand(cmd, cmd.Flags().Args()); f.help.none != nil {
			return
		}
	}
	h := helpText{width: f.Streams.helpWidth(), all: f.help.all}
	switch {
	case cmd.IsAdditionalHelpTopicCommand():
		h.line(reflow(cmd.Long, h.width))
	case cmd.HasParent():
		h.command(cmd)
	default:
		h.root(cmd)
	}
	out := cmd.OutOrStdout()
	if f.onlyASCII() {
		out = asciiWriter(out)
	}
	f.help.none = Write(out, []byte(h.String()))
}

// helpText is a page of help.
type helpText struct {
	strings.Builder
	width int
	all   bool
}

func (h *helpText) line(s string) { h.WriteString(s + "\n") }

// listed sets names and what they are in columns, the latter wrapped.
func (h *helpText) listed(rows [][]string) {
	for _, lines := range text.WrapColumns(rows, h.width) {
		h.line(strings.Join(lines, "\n"))
	}
}

// root is the help of topoctl itself: every command under the heading of its group, on one screen.
func (h *helpText) root(root *cobra.Command) {
	h.line(reflow(root.Long, h.width))
	h.line("\nUsage: topoctl [COMMAND] [flags]")
	var others, topics []string
	rows := map[string][][]string{}
	for _, c := range root.Commands() {
		switch {
		case c.IsAdditionalHelpTopicCommand():
			topics = append(topics, c.Name())
		case c.IsAvailableCommand() && c.GroupID == "":
			others = append(others, c.Name())
		case c.IsAvailableCommand():
			rows[c.GroupID] = append(rows[c.GroupID], []string{fmt.Sprintf("  %-9s", c.Name()), c.Short})
		}
	}
	for _, g := range root.Groups() {
		h.line("\n" + g.Title + ":")
		h.listed(rows[g.ID])
	}
	h.line("")
	h.listed([][]string{
		{"Other commands:", strings.Join(others, ", ") + ", help (topoctl help COMMAND)"},
		{"Help topics:", strings.Join(topics, ", ") + " (topoctl help TOPIC)"},
	})
}

// command is the help of one command: in brief the first paragraph about it, the flags that are
// used most, and where to find the rest.
func (h *helpText) command(cmd *cobra.Command) {
	about := cmp.Or(cmd.Long, cmd.Short)
	brief, rest, _ := strings.Cut(about, "\n\n")
	if strings.HasSuffix(brief, ":") { // what it announces belongs to it
		var list string
		list, rest, _ = strings.Cut(strings.TrimLeft(rest, "\n"), "\n\n")
		brief += "\n\n" + list
	}
	if !h.all {
		about = brief
	}
	h.line(reflow(about, h.width))
	line := cmd.UseLine()
	if cmd.HasAvailableSubCommands() {
		line = cmd.CommandPath() + " COMMAND [flags]"
	}
	h.line("\nUsage:\n  " + line)
	var rows [][]string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			rows = append(rows, []string{fmt.Sprintf("  %-12s", c.Name()), c.Short})
		}
	}
	if len(rows) > 0 {
		h.line("\nCommands:")
		h.listed(rows)
	}
	groups, folded := allFlags(cmd), 0
	if !h.all {
		groups, folded = briefFlags(cmd)
	}
	for _, g := range groups {
		h.WriteString("\n" + g.Name() + ":\n" + g.FlagUsagesWrapped(h.width))
	}
	h.examples(strings.Split(cmd.Example, "\n"))
	if folded > 0 || !h.all && rest != "" {
		more := "More about it"
		if folded > 0 {
			more = text.Plural(folded, "more flag")
		}
		h.line(fmt.Sprintf("\n%s: %s --help-all", more, cmd.CommandPath()))
	}
}

// briefExamples is how many examples brief help has.
const briefExamples = 3

// examples are commands, too long ones continued as a shell reads them.
func (h *helpText) examples(list []string) {
	if list[0] == "" {
		return
	}
	h.line("\nExamples:")
	if !h.all {
		list = list[:min(briefExamples, len(list))]
	}
	for _, line := range list {
		for text.Width(line) > h.width {
			at := strings.LastIndex(line[:h.width-1], " -")
			if strings.TrimSpace(line[:max(0, at)]) == "" {
				break
			}
			h.line(line[:at] + ` \`)
			line = "     " + line[at:]
		}
		h.line(line)
	}
}

// reflow wraps the paragraphs of a text, also those that are set in and the rows of lists ("  NAME
// about it"). Other lines that are set in stay as they are: commands, JSON.
func reflow(s string, width int) string {
	var out []string
	lead, prose := "", ""
	flush := func() {
		if prose != "" {
			for i, line := range text.Wrap(prose, width-text.Width(lead)) {
				if i == 1 {
					lead = strings.Repeat(" ", text.Width(lead))
				}
				out = append(out, lead+line)
			}
			prose = ""
		}
	}
	for line := range strings.SplitSeq(strings.TrimRight(s, "\n"), "\n") {
		words := strings.TrimLeft(line, " ")
		indent := line[:len(line)-len(words)]
		row := listRow.FindStringSubmatch(line)
		switch {
		case words == "" || words[0] == '{':
			flush()
			out = append(out, line)
		case row != nil:
			flush()
			lead, prose = row[1], row[2]
		case prose != "" && len(indent) == text.Width(lead):
			prose += " " + words
		case indent == "" || unicode.IsUpper(rune(words[0])):
			flush()
			lead, prose = indent, words
		default:
			flush()
			out = append(out, line)
		}
	}
	flush()
	return strings.Join(out, "\n")
}

// listRow is a row of a list: what it is about, and a text at least two blanks after it.
var listRow = regexp.MustCompile(`^( +\S+(?: \S+)* {2,})(\S.*)$`)

// helpFlags are the flags that do something on a command: its own, and the
// global ones that it uses.
func helpFlags(cmd *cobra.Command) *pflag.FlagSet {
	set := flagSet(cmd.Name())
	set.AddFlagSet(cmd.LocalNonPersistentFlags())
	var used []string // a command with subcommands prints help only
	if !cmd.HasSubCommands() {
		used = usesOf(cmd)
	}
	known := FormatsOf(cmd)
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

// groupKey is the annotation of a flag that has a heading of its own in help, and of a command's headings.
const groupKey = "topoctl_group"

// Group puts flags of a command under a heading of its help. Headings are in the order of the first calls.
func Group(cmd *cobra.Command, title string, names ...string) {
	noteFlags(cmd, groupKey, title, names)
	if titles := groupTitles(cmd); !slices.Contains(titles, title) {
		annotate(cmd, groupKey, strings.Join(append(titles, title), "\n"))
	}
}

func groupTitles(cmd *cobra.Command) []string {
	return strings.FieldsFunc(cmd.Annotations[groupKey], func(r rune) bool { return r == '\n' })
}

// mainFlags notes the flags of a command that its brief help shows, where it has many.
func mainFlags(cmd *cobra.Command, names ...string) { noteFlags(cmd, mainKey, "true", names) }

// noteFlags sets an annotation of flags.
func noteFlags(cmd *cobra.Command, key, value string, names []string) {
	for _, name := range names {
		if err := cmd.Flags().SetAnnotation(name, key, []string{value}); err != nil {
			panic(err) // a flag that is not there
		}
	}
}

// mainKey is the annotation of flags that brief help shows.
const mainKey = "topoctl_main"

// briefFlags are the flags that brief help shows: a command's own, or the main ones of them, -o and
// --fixture. folded counts the others.
func briefFlags(cmd *cobra.Command) (groups []*pflag.FlagSet, folded int) {
	all := helpFlags(cmd)
	set := flagSet("Flags")
	some := false
	all.VisitAll(func(fl *pflag.Flag) { some = some || fl.Annotations[mainKey] != nil })
	all.VisitAll(func(fl *pflag.Flag) {
		switch shared := cmd.InheritedFlags().Lookup(fl.Name) != nil; {
		case shared && (fl.Name == "output" || fl.Name == "fixture"), !shared && (!some || fl.Annotations[mainKey] != nil):
			set.AddFlag(fl)
		default:
			folded++
		}
	})
	if !set.HasAvailableFlags() {
		return nil, folded
	}
	return []*pflag.FlagSet{set}, folded
}

func flagSet(name string) *pflag.FlagSet {
	set := pflag.NewFlagSet(name, pflag.ContinueOnError)
	set.SortFlags = false
	return set
}

// allFlags are the flags that do something on a command under their headings, those without one last.
func allFlags(cmd *cobra.Command) []*pflag.FlagSet {
	titles := groupTitles(cmd)
	rest := "Flags"
	if len(titles) > 0 {
		rest = "Other flags"
	}
	var out []*pflag.FlagSet
	for _, title := range append(titles, rest) {
		out = append(out, flagSet(title))
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
				err = unknownCommand(about, rest)
			}
			if err != nil {
				return err
			}
			return about.Help()
		},
	}
}

// suggest adds advice to the error of a mistyped name: the nearest of the known ones, or else what
// to do where none is near.
func suggest(err error, typed string, known []string, otherwise string) error {
	if near := text.Closest(typed, known); near != "" {
		return withHint(err, "did you mean %q?", near)
	}
	if otherwise == "" {
		return err
	}
	return withHint(err, "%s", otherwise)
}
