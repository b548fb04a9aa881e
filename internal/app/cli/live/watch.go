package live

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/app/cli/command"
	"github.com/topoctl/topoctl/internal/app/observe"
)

type watchOptions struct {
	*command.Host
	format       string
	color        bool
	interval     time.Duration // of counters, 0 none
	every        time.Duration // of looks at the whole host, 0 only when something says so
	limit        time.Duration // 0: until it is stopped
	exitOnChange bool
	infos        bool
	baseline     string
	agents       []string
}

func newWatchCmd(f *command.Env, runF func(context.Context, *watchOptions) error) *cobra.Command {
	opts := &watchOptions{Host: f.Host()}
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Print what changes on this host, as it happens",
		Long: "watch looks at this host again and again and prints what changes: ports that go down\n" +
			"and come back, with what that costs, PCIe links and ports that run at another speed,\n" +
			"error counters that move, findings of the doctor that appear and go, and drift: how\n" +
			"the host differs from what it was at the start, or from --baseline.\n\n" +
			"Counters are read every --interval. The whole host is looked at when the kernel says\n" +
			"that something has changed, and every --every. It begins with what is wrong already.\n\n" +
			"It prints lines for people, and with -o jsonl (or json) one JSON object a line, also to\n" +
			"a pipe nothing else (topoctl.watch/v1; docs/watch.md). Another host that the flags name\n" +
			"is looked at once.\n\n" +
			"The exit code is 1 if --exit-on-change saw a change, and 0 if the time is over or, where\n" +
			"nothing else would end it, when you stop it; 130 when you stop it before --for or\n" +
			"--exit-on-change did.",
		Example: "  topoctl watch\n  topoctl watch -o jsonl >> events.jsonl\n" +
			"  topoctl discover > good.json; topoctl watch --baseline good.json\n" +
			"  topoctl watch --exit-on-change --for 10m && echo nothing happened\n" +
			"  topoctl watch --fixture dgx-h100-port-down --baseline fixture:dgx-h100",
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.parse(f, cmd); err != nil {
				return err
			}
			return runF(cmd.Context(), opts)
		},
	}
	fl := cmd.Flags()
	fl.DurationVar(&opts.interval, "interval", time.Second, "read counters (and ask agents) every `TIME`; 0: no counters")
	fl.DurationVar(&opts.every, "every", 30*time.Second, "look at the whole host every `TIME`, and when something has changed; 0: only then")
	fl.DurationVar(&opts.limit, "for", 0, "stop after `TIME`")
	fl.BoolVar(&opts.exitOnChange, "exit-on-change", false, "stop with exit code 1 at the first change")
	fl.BoolVar(&opts.infos, "all", false, "also tell findings that are only good to know")
	fl.StringVar(&opts.baseline, "baseline", "", "tell drift against the host in `FILE` (as diff reads them, also "+command.FixturePrefix+"NAME), not against the start")
	fl.StringSliceVar(&opts.agents, "agent", nil, "also watch whether the agent at `URL` (its --http) answers; repeatable")
	command.Offer(cmd, map[string]command.Completer{"interval": command.Words("1s"), "every": command.Words("30s"), "for": command.Words(), "agent": command.Words()})
	command.Uses(cmd, append(append([]string{}, command.InputFlags...), "output", "json", "color", "no-color")...)
	command.Formats(cmd, command.FormatText, command.FormatJSONL, command.FormatJSON)
	return cmd
}

// leastEvery is how often a whole host is looked at at most: it takes a good part of a
// second.
const leastEvery = time.Second

// parse takes over the flags and refuses what makes no sense.
func (o *watchOptions) parse(f *command.Env, cmd *cobra.Command) error {
	var err error
	if o.format, err = f.Format(cmd); err != nil {
		return err
	}
	if err := errors.Join(command.CheckHost(cmd), o.Choose(f)); err != nil {
		return err
	}
	o.color = f.Color() && o.format == command.FormatText
	changed := cmd.Flags().Changed
	switch {
	case o.interval < 0, o.interval > 0 && o.interval < 100*time.Millisecond:
		return fmt.Errorf("--interval %s: want 100ms or more, or 0", o.interval)
	case o.every < 0, o.every > 0 && o.every < leastEvery:
		return fmt.Errorf("--every %s: want %s or more, or 0", o.every, leastEvery)
	case changed("for") && o.limit <= 0:
		return fmt.Errorf("--for %s: want more than 0", o.limit)
	case changed("baseline") && o.baseline == "":
		return errors.New("--baseline is empty")
	case changed("agent") && len(o.agents) == 0:
		return errors.New("--agent is empty")
	case o.baseline == "-" && o.Globals.From == "-":
		return errors.New("--from - and --baseline - exclude each other: there is one standard input")
	}
	if o.described() {
		for _, name := range []string{"interval", "every", "for", "exit-on-change", "agent"} {
			if changed(name) {
				return command.WithHint(fmt.Errorf("--%s has no effect on a host that does not change", name), "leave out the flag that names a host: this one is watched")
			}
		}
	}
	for i, a := range o.agents {
		if o.agents[i], err = observe.AgentURL(a); err != nil {
			return fmt.Errorf("--%w", err) // it begins with "agent"
		}
	}
	return nil
}

// described says whether the host is a file, which is looked at once.
func (o *watchOptions) described() bool {
	return o.Globals.Root+o.Globals.From+o.Globals.Fixture != ""
}

// against is what drift is told against; nil is the start.
func (o *watchOptions) against(ctx context.Context) (*topo.Topology, error) {
	if o.baseline == "" {
		return nil, nil //nolint:nilnil // none was asked for
	}
	t, err := o.Named(ctx, o.baseline)
	if err != nil {
		return nil, fmt.Errorf("--baseline: %w", err)
	}
	return t, nil
}
