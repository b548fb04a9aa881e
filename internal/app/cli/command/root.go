// Package command is what all commands share: the root with the flags that several of them have,
// the host that those flags name, streams, output formats and looks, errors with their exit codes
// and hints. Only the packages of the command line give advice to users, choose exit codes and print.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/internal/app/cli/build"
	"github.com/topoctl/topoctl/internal/base/nettext"
	"github.com/topoctl/topoctl/internal/base/pkgerr"
	"github.com/topoctl/topoctl/internal/base/replies"
	"github.com/topoctl/topoctl/internal/base/units"
)

// RDMASource tries the RDMA devices of this machine.
type RDMASource interface {
	Try(ctx context.Context) *replies.VerbsReport
}

// Env is what commands are made with.
type Env struct {
	Streams Streams
	GPUs    discover.GPUSource
	RDMA    RDMASource
	Now     func() time.Time
	Globals Globals

	unhelpful error // why there is no help on what was named
}

// Globals are the flags that several commands have.
type Globals struct {
	Root, HostRoot, From, Fixture string
	With                          []string // texts that are laid over From

	Output, color, Units                 string
	json, noColor, ASCII, Quiet, Verbose bool
	Timeout                              time.Duration
}

// The annotations of a command: the global flags that mean something to it, and
// the formats that -o takes, the first being the default.
const (
	usesKey    = "uses"
	FormatsKey = "formats"
)

// Uses notes the global flags of a command. The others are refused: a flag that
// does nothing would mislead.
func Uses(cmd *cobra.Command, flags ...string) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[usesKey] = strings.Join(flags, " ")
}

// everywhere are the flags that every command takes, in colour or not, so that an alias or a script
// may always give them.
var everywhere = []string{"color", "no-color"}

// Formats notes the formats that a command's -o takes.
func Formats(cmd *cobra.Command, names ...string) {
	cmd.Annotations[FormatsKey] = strings.Join(names, " ")
}

// InputFlags say which host a command looks at.
var InputFlags = []string{"root", "host-root", "from", "with", "fixture", "timeout", "quiet", "verbose"}

// NewRoot is topoctl with the commands and help topics that it is given.
func NewRoot(f *Env, commands ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:   "topoctl",
		Short: "Show how a host's GPUs, NICs, memory and CPUs are connected",
		Long: "topoctl discovers a host's GPUs, NICs, NUMA nodes and PCIe switches, how they are\n" +
			"connected, and the bandwidth that each path should reach.",
		Example: "  topoctl topo\n  topoctl matrix\n  topoctl discover > host.json\n" +
			"  topoctl matrix --from host.json --show expected",
		SilenceErrors: true, SilenceUsage: true, DisableSuggestions: true,
		Args:              UnknownCommand,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return f.checkGlobals(cmd) },
	}
	root.SetIn(f.Streams.In)
	root.SetOut(f.Streams.Out)
	root.SetErr(f.Streams.Err)
	f.addGlobals(root)
	root.Version = build.Read().String()
	root.SetVersionTemplate("topoctl {{.Version}}\n")
	root.Flags().Bool("version", false, "print the version and the commit")
	root.SetUsageFunc(func(cmd *cobra.Command) error { return usage(cmd, f.Streams.helpWidth()) })
	root.SetHelpFunc(f.help)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(commands...)
	root.SetHelpCommand(newHelpCmd())
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" { // cobra's: without a shell it helps, an unknown one is an error
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			c.Args = NoArgs
		}
	}
	return root
}

func (f *Env) addGlobals(root *cobra.Command) {
	fl := root.PersistentFlags()
	g := &f.Globals
	fl.StringVar(&g.Root, "root", "", "read the captured files of another host from `DIR`")
	fl.StringVar(&g.HostRoot, "host-root", "", "read this host's files from `DIR`, where a container mounts them")
	fl.StringVar(&g.From, "from", "", "read a saved host from `FILE`, - for standard input ("+Known("or")+")")
	fl.StringArrayVar(&g.With, "with", nil, "lay the text of `FILE` over the host of --from ("+Either(nettext.Formats)+"); repeat it for more")
	fl.StringVar(&g.Fixture, "fixture", "", "use a built-in machine description, by `NAME` or file")
	fl.StringVarP(&g.Output, "output", "o", "", "output `FORMAT`")
	fl.BoolVar(&g.json, "json", false, "same as -o json")
	fl.BoolVarP(&g.Quiet, "quiet", "q", false, "print no warnings")
	fl.BoolVarP(&g.Verbose, "verbose", "v", false, "report on stderr what each source found")
	fl.StringVar(&g.color, "color", colorAuto, "when to use color: auto, always or never (`WHEN`)")
	fl.BoolVar(&g.noColor, "no-color", false, "same as --color never")
	fl.BoolVar(&g.ASCII, "ascii", false, "use ASCII characters only")
	fl.StringVar(&g.Units, "units", string(units.Auto), "`UNIT` of rates in text output: auto, gbit, gbyte or gibyte")
	fl.DurationVar(&g.Timeout, "timeout", time.Minute, "give up after `DURATION`")
	addCompletions(root)
}

// checkGlobals refuses global flags that the command does not use, and values
// that no command takes.
func (f *Env) checkGlobals(cmd *cobra.Command) error {
	used := append(strings.Fields(cmd.Annotations[usesKey]), everywhere...)
	var err error
	cmd.InheritedFlags().VisitAll(func(fl *pflag.Flag) {
		if err == nil && fl.Changed && cmd.HasParent() && !slices.Contains(used, fl.Name) {
			hint := fmt.Sprintf("see %q", cmd.CommandPath()+" --help")
			if fl.Name == "json" || fl.Name == "output" {
				hint = `"topoctl discover" prints JSON`
			}
			err = WithHint(fmt.Errorf("--%s has no effect on this command", fl.Name), "%s", hint)
		}
	})
	g := &f.Globals
	switch {
	case err != nil:
		return err
	case g.color != colorAuto && g.color != colorAlways && g.color != colorNever:
		return fmt.Errorf("--color %q: want auto, always or never", g.color)
	case g.noColor && g.color == colorAlways:
		return errors.New("--no-color and --color always cannot be used together")
	case g.Quiet && g.Verbose:
		return errors.New("--quiet and --verbose cannot be used together")
	case g.Timeout <= 0:
		return fmt.Errorf("--timeout %s: want more than 0", g.Timeout)
	}
	if _, err := units.ParseSystem(g.Units); err != nil {
		return fmt.Errorf("--units %w", pkgerr.Plain(err))
	}
	return nil
}

// format is the output format that the flags choose for a command, "" for one that has no -o.
func (g *Globals) format(cmd *cobra.Command) (string, error) {
	known := strings.Fields(cmd.Annotations[FormatsKey])
	switch {
	case len(known) == 0:
		return "", nil
	case g.json && g.Output != "" && g.Output != FormatJSON:
		return "", fmt.Errorf("--json and -o %s cannot be used together", g.Output)
	case g.json:
		return FormatJSON, nil
	case g.Output == "":
		return known[0], nil
	case !slices.Contains(known, g.Output):
		err := fmt.Errorf("-o %q: want %s", g.Output, Either(known))
		if _, bad := strconv.Atoi(g.Output); bad == nil && cmd.Flag("output-len") != nil {
			return "", WithHint(err, "--output-len says how many tokens answers have")
		}
		return "", err
	}
	return g.Output, nil
}

// Either is "json, yaml or table".
func Either(names []string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// Color says whether output is coloured.
func (in *Host) Color() bool { return in.Streams.color(in.Globals.color, in.Globals.noColor) }

// NoArgs refuses arguments: what a command looks at is said by flags.
func NoArgs(cmd *cobra.Command, args []string) error { return AtMost(cmd, args, 0) }

// AtMost refuses more arguments than a command has.
func AtMost(cmd *cobra.Command, args []string, most int) error {
	if len(args) <= most {
		return nil
	}
	return WithHint(fmt.Errorf("unexpected argument %q", args[most]), "see %q", cmd.CommandPath()+" --help")
}

// UnknownCommand refuses arguments of a command that has subcommands.
func UnknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	err := fmt.Errorf("unknown command %q", args[0])
	if near := Closest(args[0], names); near != "" {
		return WithHint(err, "did you mean %q?", cmd.CommandPath()+" "+near)
	}
	return WithHint(err, "%q lists the commands", cmd.CommandPath()+" --help")
}

// flagError adds the next step to what the flag parser says.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		var names []string
		helpFlags(cmd).VisitAll(func(fl *pflag.Flag) { names = append(names, fl.Name) })
		if near := Closest(unknown.GetSpecifiedName(), names); near != "" {
			return WithHint(err, "did you mean --%s?", near)
		}
	}
	return WithHint(err, "see %q", cmd.CommandPath()+" --help")
}

// Run runs the command that args name (without the program's name) and gives the exit code.
func Run(ctx context.Context, f *Env, args []string, commands ...*cobra.Command) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once

	root := NewRoot(f, commands...)
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = f.unhelpful
	}
	return report(f.Streams.Err, strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), "topoctl"), " "), err)
}
