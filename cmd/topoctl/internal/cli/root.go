package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/formats/texts"
	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/internal/build"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
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

	help struct {
		asked, all bool  // --help, --help-all
		none       error // why there is no help on what was named
	}
}

// onlyASCII says whether text for people is in ASCII.
func (f *Env) onlyASCII() bool { return f.Globals.ASCII || f.Streams.asciiLocale() }

// Globals are the flags that several commands have.
type Globals struct {
	Root, HostRoot, From, Fixture string
	With                          []string // texts that are laid over From

	Output, color, Units                 string
	json, noColor, ASCII, Quiet, Verbose bool
	Timeout                              time.Duration
}

// The annotations of a command: the global flags that mean something to it, the formats that -o
// takes, the first being the default, and what a command without -o prints.
const (
	usesKey    = "uses"
	formatsKey = "formats"
	printsKey  = "prints"
	lengthKey  = "length"
)

// What --timeout bounds, where it is not all of a command.
const (
	lasts     = "lasts"
	takesLong = "takes long"
)

// Lasts notes that a command runs for as long as the user wants: --timeout bounds what it waits for (Host.Waiting),
// and not the command.
func Lasts(cmd *cobra.Command) { annotate(cmd, lengthKey, lasts) }

// TakesLong notes that a command has so much to read or to compute that it may need more than the default of
// --timeout: only a --timeout that the user gives bounds it.
func TakesLong(cmd *cobra.Command) { annotate(cmd, lengthKey, takesLong) }

// Uses notes the global flags of a command. The others are refused: a flag that
// does nothing would mislead.
func Uses(cmd *cobra.Command, flags ...string) { annotate(cmd, usesKey, strings.Join(flags, " ")) }

// usesOf are the global flags of a command: those noted, those of its output, and those that every
// command takes, so that an alias or a script may always give them.
func usesOf(cmd *cobra.Command) []string {
	used := append(strings.Fields(cmd.Annotations[usesKey]), "color", "no-color", "ascii")
	if len(FormatsOf(cmd)) > 0 {
		used = append(used, "output", "json")
	}
	return used
}

// Formats notes the formats that a command's -o takes.
func Formats(cmd *cobra.Command, names ...string) {
	annotate(cmd, formatsKey, strings.Join(names, " "))
}

// FormatsOf are the formats that a command's -o takes, none if it has no -o.
func FormatsOf(cmd *cobra.Command) []string { return strings.Fields(cmd.Annotations[formatsKey]) }

// Prints notes what a command without -o prints, which is no result of its own: a script, a screen.
func Prints(cmd *cobra.Command, what string) {
	annotate(cmd, printsKey, what)
}

func annotate(cmd *cobra.Command, key, value string) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[key] = value
}

// PrintsOf is what a command without -o prints, "" unless noted.
func PrintsOf(cmd *cobra.Command) string { return cmd.Annotations[printsKey] }

// inputFlags say which host a command looks at.
const inputFlags = otherHost + " with timeout quiet verbose"

// summaryName is the command that topoctl runs where none is named.
const summaryName = "summary"

func init() { cobra.EnableCommandSorting = false } // help lists commands in the order in which people meet them

// newRoot is topoctl with the commands and help topics that it is given. The group of a command is
// its heading in the help.
func newRoot(f *Env, commands ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:           "topoctl",
		Short:         "Show how a host's GPUs, NICs, memory and CPUs are connected",
		SilenceErrors: true, SilenceUsage: true, DisableSuggestions: true,
		Args:              unknownCommand,
		RunE:              summaryRun,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return f.checkGlobals(cmd) },
	}
	root.Long, _ = readHelp(root.Name())
	root.SetIn(f.Streams.In)
	root.SetOut(f.Streams.Out)
	root.SetErr(f.Streams.Err)
	f.addGlobals(root)
	root.Version = build.Read().String()
	root.SetVersionTemplate("topoctl {{.Version}}\n")
	root.Flags().Bool("version", false, "print the version and the commit")
	root.SetUsageFunc(func(*cobra.Command) error { return nil }) // it is part of the help
	root.SetHelpFunc(f.printHelp)
	root.SetFlagErrorFunc(flagError)
	for _, c := range commands {
		if c.Name() == summaryName {
			Formats(root, FormatsOf(c)...)
		}
		if c.GroupID != "" && !root.ContainsGroup(c.GroupID) {
			root.AddGroup(&cobra.Group{ID: c.GroupID, Title: c.GroupID})
		}
	}
	root.AddCommand(commands...)
	root.SetHelpCommand(newHelpCmd())
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" { // cobra's: without a shell it helps, an unknown one is an error
			c.Short = "Print the completion script of a shell"
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			c.Args = noArgs
		}
	}
	offerNoFiles(root)
	return root
}

// summaryRun is topoctl without a command: the summary with the flags that were given.
func summaryRun(root *cobra.Command, _ []string) error {
	for _, c := range root.Commands() {
		if c.Name() == summaryName {
			c.SetContext(root.Context())
			return c.RunE(c, nil)
		}
	}
	return root.Help()
}

func (f *Env) addGlobals(root *cobra.Command) {
	fl := root.PersistentFlags()
	g := &f.Globals
	fl.StringVar(&g.Root, "root", "", "read the captured files of another host from `DIR`")
	fl.StringVar(&g.HostRoot, "host-root", "", "read this host's files from `DIR`, where a container mounts them")
	fl.StringVar(&g.From, "from", "", "read a saved host from `FILE`, - for standard input ("+Known("or")+")")
	fl.StringArrayVar(&g.With, "with", nil, "add to the host of --from what it lacks and `FILE` tells ("+either(texts.NetworkTexts())+"); where both tell and differ, the host of --from counts, with a warning; repeatable")
	fl.StringVar(&g.Fixture, "fixture", "", "use a built-in machine description, by `NAME` or file")
	fl.StringVarP(&g.Output, "output", "o", "", "output `FORMAT`")
	fl.BoolVar(&g.json, "json", false, "same as -o json")
	fl.BoolVarP(&g.Quiet, "quiet", "q", false, "print only errors on stderr")
	fl.BoolVarP(&g.Verbose, "verbose", "v", false, "report on stderr what each source found")
	fl.StringVar(&g.color, "color", colorAuto, "when to use color: auto, always or never (`WHEN`)")
	fl.BoolVar(&g.noColor, "no-color", false, "same as --color never")
	fl.BoolVar(&g.ASCII, "ascii", false, "use ASCII characters only (default: what the locale has)")
	fl.StringVar(&g.Units, "units", string(units.Auto), "`UNIT` of rates in text output: auto, gbit, gbyte or gibyte")
	fl.DurationVar(&g.Timeout, "timeout", time.Minute, "give up after `DURATION`")
	fl.BoolVarP(&f.help.asked, "help", "h", false, "show how to use the command")
	fl.BoolFunc("help-all", "show all of its flags and details", func(string) error {
		f.help.asked, f.help.all = true, true
		return nil
	})
	addCompletions(root)
}

// checkGlobals refuses global flags that the command does not use, and values
// that no command takes.
func (f *Env) checkGlobals(cmd *cobra.Command) error {
	used := usesOf(cmd)
	var err error
	cmd.InheritedFlags().VisitAll(func(fl *pflag.Flag) {
		if err == nil && fl.Changed && !slices.Contains(used, fl.Name) {
			hint := fmt.Sprintf("see %q", cmd.CommandPath()+" --help")
			if fl.Name == "json" || fl.Name == "output" {
				hint = `"topoctl help output" lists the formats of each command`
			}
			err = withHint(fmt.Errorf("--%s has no effect on this command", fl.Name), "%s", hint)
		}
	})
	g := &f.Globals
	switch {
	case err != nil:
		return err
	case g.color != colorAuto && g.color != colorAlways && g.color != colorNever:
		return fmt.Errorf("--color %q: want auto, always or never", g.color)
	case g.Timeout <= 0:
		return fmt.Errorf("--timeout %s: want more than 0", g.Timeout)
	}
	if _, err := units.ParseSystem(g.Units); err != nil {
		return fmt.Errorf("--units %w", pkgerr.Plain(err))
	}
	return checkTogether(cmd, flagRule{"no-color", excludes, "color=always", ""}, flagRule{"quiet", excludes, "verbose", ""})
}

// format is the output format that the flags choose for a command, "" for one that has no -o.
func (g *Globals) format(cmd *cobra.Command) (string, error) {
	known := FormatsOf(cmd)
	switch {
	case len(known) == 0:
		return "", nil
	case g.json && g.Output != "" && g.Output != formatJSON:
		return "", fmt.Errorf("--json and -o %s cannot be used together", g.Output)
	case g.json:
		return formatJSON, nil
	case g.Output == "":
		return known[0], nil
	case !slices.Contains(known, g.Output):
		err := fmt.Errorf("-o %q: want %s", g.Output, either(known))
		if _, bad := strconv.Atoi(g.Output); bad == nil && cmd.Flag("output-len") != nil {
			return "", withHint(err, "--output-len says how many tokens answers have")
		}
		return "", err
	}
	return g.Output, nil
}

// either is "json, yaml or table".
func either(names []string) string { return joined(names, "or") }

// joined is a list whose last comes after a word.
func joined(names []string, word string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " " + word + " " + names[last]
}

// Color says whether output is coloured.
func (in *Host) Color() bool { return in.Streams.color(in.Globals.color, in.Globals.noColor) }

// noArgs refuses arguments: what a command looks at is said by flags.
func noArgs(cmd *cobra.Command, args []string) error { return atMost(cmd, args, 0) }

// atMost refuses more arguments than a command has.
func atMost(cmd *cobra.Command, args []string, most int) error {
	if len(args) <= most {
		return nil
	}
	return withHint(fmt.Errorf("unexpected argument %q", args[most]), "see %q", cmd.CommandPath()+" --help")
}

// memoryLimit is how GPUs and NUMA nodes are named.
var memoryLimit = regexp.MustCompile(`^(?i:gpu|cpu|cuda|nvml):?[0-9]+$`)

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
	if memoryLimit.MatchString(args[0]) && slices.Contains(names, "path") {
		return withHint(err, "did you mean %q?", cmd.CommandPath()+" path "+strings.Join(args, " "))
	}
	if near := text.Closest(args[0], names); near != "" {
		return withHint(err, "did you mean %q?", cmd.CommandPath()+" "+near)
	}
	return withHint(err, "%q lists the commands", cmd.CommandPath()+" --help")
}

// flagError adds the next step to what the flag parser says.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		var names []string
		helpFlags(cmd).VisitAll(func(fl *pflag.Flag) { names = append(names, fl.Name) })
		if near := text.Closest(unknown.GetSpecifiedName(), names); near != "" {
			return withHint(err, "did you mean --%s?", near)
		}
	}
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return badValue(bad)
	}
	return withHint(err, "see %q", cmd.CommandPath()+" --help")
}

// Run runs the command that args name (without the program's name) and gives the exit code.
func Run(ctx context.Context, f *Env, args []string, commands ...*cobra.Command) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once

	root := newRoot(f, commands...)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		tidyCompletions(root, args[1:])
	}
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = f.help.none
	}
	errs := f.Streams.Err
	if f.onlyASCII() {
		errs = asciiWriter(errs)
	}
	return tellError(errs, strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), "topoctl"), " "), err)
}
