package cli

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// job is what a command does, with its options: parse checks the flags and arguments that are its own, run carries it
// out. All jobs have a Host.
type job interface {
	common() *Host
	parse(cmd *cobra.Command, args []string) error
	run(ctx context.Context) error
}

func (in *Host) common() *Host { return in }

// parse is that of commands without flags and arguments.
func (*Host) parse(*cobra.Command, []string) error { return nil }

// newCommand is a command that does a job: it checks the flags that several commands have, then those of the job, and
// runs it in the time that --timeout gives. How many arguments it takes its use tells.
func newCommand(j job, use, short string) *cobra.Command {
	most := len(strings.Fields(use)) - 1
	return &cobra.Command{
		Use: use, Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case strings.Contains(use, "--"): // another program's arguments
				return nil
			case slices.Contains(args, ""):
				return errors.New("an argument is empty")
			case strings.Contains(use, "..."):
				return nil
			}
			return atMost(cmd, args, most)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			in := j.common()
			if err := in.Ready(cmd); err != nil {
				return err
			}
			if err := j.parse(cmd, args); err != nil {
				return forNagios(in, err)
			}
			ctx, stop := in.whole(cmd)
			defer stop()
			return forNagios(in, in.TimeoutHint(j.run(ctx)))
		},
	}
}
