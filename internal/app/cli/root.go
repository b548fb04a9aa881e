// Package cli is topoctl's command line: one file per command, and one each for
// streams, output, errors and input. Only this package gives advice to users,
// chooses exit codes and prints.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/internal/base/replies"
	"github.com/topoctl/topoctl/internal/base/units"
)

// RDMASource tries the RDMA devices of this machine.
type RDMASource interface {
	Try(ctx context.Context) *replies.VerbsReport
}

// Main runs the command that args name (without the program's name) and gives
// the exit code. gpus and rdma are the libraries to ask on this machine; nil means
// that the program was built without one.
func Main(ctx context.Context, args []string, s Streams, gpus discover.GPUSource, rdma RDMASource) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once

	root := newRootCmd(&factory{streams: s, gpus: gpus, rdma: rdma, now: time.Now})
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args
	cmd, err := root.ExecuteContextC(ctx)
	return report(s.Err, strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), "topoctl"), " "), err)
}

// factory is what commands are made with.
type factory struct {
	streams Streams
	gpus    discover.GPUSource
	rdma    RDMASource
	now     func() time.Time
	globals globals
}

// globals are the flags that several commands have.
type globals struct {
	root, hostRoot, from, fixture string

	output, color, units               string
	json, noColor, ascii, quiet, debug bool
	timeout                            time.Duration
}

// The annotations of a command: the global flags that mean something to it, and
// the formats that -o takes, the first being the default.
const (
	usesKey    = "uses"
	formatsKey = "formats"
)

// uses notes the global flags of a command. The others are refused: a flag that
// does nothing would mislead.
func uses(cmd *cobra.Command, flags ...string) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[usesKey] = strings.Join(flags, " ")
}

// formats notes the formats that a command's -o takes.
func formats(cmd *cobra.Command, names ...string) {
	cmd.Annotations[formatsKey] = strings.Join(names, " ")
}

// inputFlags say which host a command looks at.
var inputFlags = []string{"root", "host-root", "from", "fixture", "timeout", "quiet", "verbose"}

func newRootCmd(f *factory) *cobra.Command {
	root := &cobra.Command{
		Use:   "topoctl",
		Short: "How a host's GPUs, NICs, memory and CPUs are joined",
		Long: "topoctl finds out what a host has (GPUs, NICs, NUMA nodes, PCIe switches), how it\n" +
			"is joined, and what each path should carry.",
		Example: "  topoctl topo\n  topoctl matrix\n  topoctl discover > host.json\n" +
			"  topoctl matrix --from host.json --show expected",
		SilenceErrors: true, SilenceUsage: true, DisableSuggestions: true,
		Args:              unknownCommand,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return f.checkGlobals(cmd) },
	}
	root.SetIn(f.streams.In)
	root.SetOut(f.streams.Out)
	root.SetErr(f.streams.Err)
	f.addGlobals(root)
	root.SetUsageFunc(usage)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(newDiscoverCmd(f, runDiscover), newTopoCmd(f, runTopo), newMatrixCmd(f, runMatrix), newDiffCmd(f, runDiff), newPathCmd(f, runPath),
		newExportCmd(f, runExport), newDoctorCmd(f, runDoctor), newAgentCmd(f, runAgent), newBenchCmd(f, runBench), newBenchEndCmd(f),
		newProbeCmd(f, probeRuns{runProbeLocal, runProbeFabric, runProbeShow}), newWatchCmd(f, runWatch), newTUICmd(f, runTUI), newKVCmd(f, kvRuns{runKVPredict}), newVersionCmd(f, runVersion))
	root.AddCommand(helpTopics()...)
	root.SetHelpCommand(newHelpCmd())
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" { // cobra's: without a shell it helps, an unknown one is an error
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			c.Args = noArgs
		}
	}
	return root
}

func (f *factory) addGlobals(root *cobra.Command) {
	fl := root.PersistentFlags()
	g := &f.globals
	fl.StringVar(&g.root, "root", "", "read another host's captured files under `DIR`")
	fl.StringVar(&g.hostRoot, "host-root", "", "this host's files are under `DIR` (in a container)")
	fl.StringVar(&g.from, "from", "", "read a saved host from `FILE`, or from - (our JSON, NCCL XML, hwloc XML, nvidia-smi topo -m, a capture)")
	fl.StringVar(&g.fixture, "fixture", "", "look at a described or captured machine: `NAME` or file")
	fl.StringVarP(&g.output, "output", "o", "", "output `FORMAT`")
	fl.BoolVar(&g.json, "json", false, "same as -o json")
	fl.BoolVarP(&g.quiet, "quiet", "q", false, "no warnings on stderr")
	fl.BoolVarP(&g.debug, "verbose", "v", false, "say on stderr how each source did")
	fl.StringVar(&g.color, "color", colorAuto, "colour `WHEN`: auto, always or never")
	fl.BoolVar(&g.noColor, "no-color", false, "same as --color never")
	fl.BoolVar(&g.ascii, "ascii", false, "draw with ASCII characters")
	fl.StringVar(&g.units, "units", string(units.Auto), "`UNIT` of rates for people: auto, gbit, gbyte or gibyte")
	fl.DurationVar(&g.timeout, "timeout", time.Minute, "give up what has not answered after `DURATION`")
	addCompletions(root)
}

// checkGlobals refuses global flags that the command does not use, and values
// that no command takes.
func (f *factory) checkGlobals(cmd *cobra.Command) error {
	used := strings.Fields(cmd.Annotations[usesKey])
	var err error
	cmd.InheritedFlags().VisitAll(func(fl *pflag.Flag) {
		if err == nil && fl.Changed && cmd.HasParent() && !slices.Contains(used, fl.Name) {
			hint := fmt.Sprintf("see %q", cmd.CommandPath()+" --help")
			if fl.Name == "json" || fl.Name == "output" {
				hint = `"topoctl discover" prints JSON`
			}
			err = withHint(fmt.Errorf("--%s has no effect on this command", fl.Name), "%s", hint)
		}
	})
	g := &f.globals
	switch {
	case err != nil:
		return err
	case g.color != colorAuto && g.color != colorAlways && g.color != colorNever:
		return fmt.Errorf("--color %q: want auto, always or never", g.color)
	case g.noColor && g.color == colorAlways:
		return errors.New("--no-color and --color always exclude each other")
	case g.quiet && g.debug:
		return errors.New("--quiet and --verbose exclude each other")
	case g.timeout <= 0:
		return fmt.Errorf("--timeout %s: want more than 0", g.timeout)
	}
	if _, err := units.ParseSystem(g.units); err != nil {
		return fmt.Errorf("--units %w", trimmedError{err})
	}
	return nil
}

// format is the output format that the flags choose for a command.
func (f *factory) format(cmd *cobra.Command) (string, error) {
	known := strings.Fields(cmd.Annotations[formatsKey])
	g := &f.globals
	switch {
	case g.json && g.output != "" && g.output != formatJSON:
		return "", fmt.Errorf("--json and -o %s exclude each other", g.output)
	case g.json:
		return formatJSON, nil
	case g.output == "":
		return known[0], nil
	case !slices.Contains(known, g.output):
		return "", fmt.Errorf("-o %q: want %s", g.output, either(known))
	}
	return g.output, nil
}

// either is "json, yaml or table".
func either(names []string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

func (f *factory) color() bool { return f.streams.color(f.globals.color, f.globals.noColor) }

// noArgs refuses arguments: what a command looks at is said by flags.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return withHint(fmt.Errorf("unexpected argument %q", args[0]), "see %q", cmd.CommandPath()+" --help")
}

// unknownCommand refuses arguments of a command that has subcommands.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	err := fmt.Errorf("unknown command %q", args[0])
	if near := closest(args[0], names); near != "" {
		return withHint(err, "did you mean %q?", cmd.CommandPath()+" "+near)
	}
	return withHint(err, "%q lists the commands", cmd.CommandPath()+" --help")
}

var unknownFlag = regexp.MustCompile(`^unknown flag: --(.*)$`)

// flagError adds the next step to what the flag parser says.
func flagError(cmd *cobra.Command, err error) error {
	if m := unknownFlag.FindStringSubmatch(err.Error()); m != nil {
		var names []string
		helpFlags(cmd).VisitAll(func(fl *pflag.Flag) { names = append(names, fl.Name) })
		if near := closest(m[1], names); near != "" {
			return withHint(err, "did you mean --%s?", near)
		}
	}
	return withHint(err, "see %q", cmd.CommandPath()+" --help")
}
