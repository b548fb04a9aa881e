package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagRule says how flags of a command go together. Flags are names with blanks between them; NAME=VALUE is a flag
// that has this value, given or by default, and output is the format that -o, --json or the command chooses.
type flagRule struct {
	flags    string
	relation flagRelation
	others   string
	hint     string // why, or what to do instead; "" where the error says enough
}

// flagRelation is what each of some flags is to others, as its error says it.
type flagRelation string

const (
	needs    flagRelation = "%s needs %s"                       // one of them
	idleWith flagRelation = "%s has no effect with %s"          // any of them
	excludes flagRelation = "%s and %s cannot be used together" // any of them
)

// The flags that name a saved host, and all that name another host than this one.
const (
	savedHost = "root from fixture"
	otherHost = "root host-root from fixture"
)

// allInTables is the rule of commands whose tables are short unless --all is given.
var allInTables = flagRule{"all", needs, "output=table", ""}

// readOnce is why two flags cannot both be "-".
const readOnce = "standard input is read once"

// checkTogether refuses flags that do not go together.
func checkTogether(cmd *cobra.Command, rules ...flagRule) error {
	for _, r := range rules {
		if err := r.check(cmd); err != nil && r.hint != "" {
			return withHint(err, "%s", r.hint)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (r flagRule) check(cmd *cobra.Command) error {
	flags, _ := flagsGiven(cmd, r.flags)
	others, all := flagsGiven(cmd, r.others)
	for _, flag := range flags {
		beside := slices.IndexFunc(others, func(o string) bool { return o != flag })
		switch {
		case r.relation == needs && beside < 0:
			return fmt.Errorf(string(r.relation), flag, either(all))
		case r.relation != needs && beside >= 0:
			return fmt.Errorf(string(r.relation), flag, others[beside])
		}
	}
	return nil
}

// flagsGiven are those of some flags of a rule that are given, and all of them, as a user types them. A flag that
// the command does not have is a mistake in this program that its first test run shows.
func flagsGiven(cmd *cobra.Command, flags string) (given, all []string) {
	for _, flag := range strings.Fields(flags) {
		name, want, valued := strings.Cut(flag, "=")
		fl := cmd.Flag(name)
		if fl == nil {
			panic(cmd.CommandPath() + " has no --" + name)
		}
		typed := "--" + name
		if name == "output" {
			typed = "-o"
		}
		holds := fl.Changed && (fl.Value.Type() != "bool" || fl.Value.String() == "true")
		if valued {
			typed += " " + want
			holds = slices.Contains(flagValues(fl), want)
		}
		if all = append(all, typed); holds {
			given = append(given, typed)
		}
	}
	return given, all
}

// flagValues are the values of a flag, of which lists have any number.
func flagValues(fl *pflag.Flag) []string {
	if list, ok := fl.Value.(interface{ GetSlice() []string }); ok {
		return list.GetSlice()
	}
	return []string{fl.Value.String()}
}
