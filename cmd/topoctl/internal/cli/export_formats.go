package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel/export"
)

// exportFormat is one thing that an export command writes, and the flags that mean something to it alone.
type exportFormat[W any] struct {
	name, about string
	flags       []string
	write       W
}

// exportFormats are all formats of a command, in the order of the help.
type exportFormats[W any] []exportFormat[W]

func (l exportFormats[W]) names() []string {
	var out []string
	for _, f := range l {
		out = append(out, f.name)
	}
	return out
}

// help has a line for each.
func (l exportFormats[W]) help() string {
	var rows [][]string
	for _, f := range l {
		rows = append(rows, []string{"  " + f.name, f.about})
	}
	return strings.Join(text.Columns(rows), "\n")
}

// flagsWith has the shell offer the flags of a format after its name.
func (l exportFormats[W]) flagsWith(cmd *cobra.Command) {
	for _, f := range l {
		FlagsWith(cmd, f.name, f.flags...)
	}
}

// offer has the shell offer formats.
func (l exportFormats[W]) offer() (out []string, directive cobra.ShellCompDirective) {
	for _, f := range l {
		out = append(out, cobra.CompletionWithDesc(f.name, f.about))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// choose is the format that the first argument names. Flags that mean something to others alone are refused.
func (l exportFormats[W]) choose(cmd *cobra.Command, args []string) (chosen exportFormat[W], err error) {
	names := l.names()
	if len(args) == 0 {
		return chosen, withHint(errors.New("no format"), "formats: %s", strings.Join(names, ", "))
	}
	i := slices.Index(names, args[0])
	if i < 0 {
		return chosen, suggest(fmt.Errorf("unknown format %q", args[0]), args[0], names, "formats: "+strings.Join(names, ", "))
	}
	for _, f := range l {
		for _, flag := range f.flags {
			if cmd.Flag(flag).Changed && !slices.Contains(l[i].flags, flag) {
				return chosen, fmt.Errorf("--%s has no effect with %s", flag, args[0])
			}
		}
	}
	return l[i], nil
}

// engineWords are the engines that --for takes.
func engineWords() []string { return wordsOf(export.Engines()) }

// wantEngine is the error where --for is not given.
func wantEngine(given export.Engine) error {
	if given == "" {
		return withHint(errors.New("--for is required"), "--for ENGINE: %s", either(engineWords()))
	}
	return nil
}
