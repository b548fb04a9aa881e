package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/app/cli/build"
	"github.com/topoctl/topoctl/internal/base/pkgerr"
)

// Host is what every command has: its streams, the global flags and the output format that they
// choose, and the host that they name.
type Host struct {
	Streams Streams
	Globals Globals
	Format  string // of the output, for commands that have -o
	GPUs    discover.GPUSource
	Now     func() time.Time
	Sources []string

	env *Env
}

// Host is the part of a command's options that all commands have. Ready fills in what flags say.
func (f *Env) Host() *Host {
	return &Host{Streams: f.Streams, GPUs: f.GPUs, Now: f.Now, env: f}
}

// Action is what a command does when it runs: check the flags that several commands have, then its
// own flags and arguments by parse, then run.
func Action[O interface{ Ready(*cobra.Command) error }](opts O, parse func(*cobra.Command, []string) error, run func(context.Context, O) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := opts.Ready(cmd); err != nil {
			return err
		}
		if err := parse(cmd, args); err != nil {
			return err
		}
		return run(cmd.Context(), opts)
	}
}

// Ready takes over the global flags once they are parsed. An empty value is refused:
// "--root $UNSET" must not look at this host.
func (in *Host) Ready(cmd *cobra.Command) error {
	in.Globals = in.env.Globals
	g := &in.Globals
	var err error
	if in.Format, err = g.format(cmd); err != nil {
		return err
	}
	if err := NotEmpty(cmd, "root", "host-root", "from", "fixture"); err != nil {
		return err
	}
	var given []string
	for _, o := range []struct{ name, value string }{
		{"--root", g.Root}, {"--host-root", g.HostRoot}, {"--from", g.From}, {"--fixture", g.Fixture},
	} {
		if o.value != "" {
			given = append(given, o.name)
		}
	}
	if len(given) > 1 {
		return WithHint(fmt.Errorf("%s exclude each other", strings.Join(given, " and ")), "each names the host to look at; give one")
	}
	return nil
}

// Described says whether the flags name a host that is described, by files or a fixture, rather than
// the one that this program runs on.
func (g *Globals) Described() bool { return g.Root+g.From+g.Fixture != "" }

// NotEmpty refuses flags that are given without a value.
func NotEmpty(cmd *cobra.Command, flags ...string) error {
	for _, name := range flags {
		fl := cmd.Flag(name)
		if fl == nil || !fl.Changed {
			continue
		}
		values := []string{fl.Value.String()}
		if list, ok := fl.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		if len(values) == 0 || slices.Contains(values, "") {
			return fmt.Errorf("--%s is empty", name)
		}
	}
	return nil
}

// NoEffect refuses flags that change nothing beside others: why is "with --lat", or "without --peer".
func NoEffect(cmd *cobra.Command, why string, flags ...string) error {
	for _, name := range flags {
		if fl := cmd.Flag(name); fl != nil && fl.Changed {
			return fmt.Errorf("--%s has no effect %s", name, why)
		}
	}
	return nil
}

// Load finds the host, says on stderr what is to say, and gives its topology.
func (in *Host) Load(ctx context.Context) (*topo.Topology, error) {
	t, err := in.Find(ctx)
	if err == nil {
		in.Say(t)
	}
	return t, err
}

// Find gives the topology of the host that the flags name.
func (in *Host) Find(ctx context.Context) (*topo.Topology, error) {
	t, opts, err := in.Locate(ctx)
	if err != nil || t != nil {
		return t, err
	}
	return in.discover(ctx, opts)
}

// Say writes the warnings to stderr, and with --verbose how each source did.
func (in *Host) Say(t *topo.Topology) {
	if in.Globals.Verbose {
		printSources(in.Streams.Err, t.Sources)
	}
	if !in.Globals.Quiet {
		PrintWarnings(in.Streams.Err, t.Warnings)
	}
}

// discover looks at a host within the time limit.
func (in *Host) discover(ctx context.Context, opts discover.Options) (*topo.Topology, error) {
	limited, stop := context.WithTimeout(ctx, in.Globals.Timeout)
	defer stop()
	t, err := discover.Discover(limited, opts)
	return t, in.TimeoutHint(err)
}

// TimeoutHint says what ended a discovery that took too long.
func (in *Host) TimeoutHint(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return WithHint(fmt.Errorf("gave up after %s%w", in.Globals.Timeout, quiet{err}), "--timeout DURATION gives it more time")
	}
	return err
}

// Locate finds the host: a topology where the input is a document, otherwise the
// options to discover it.
func (in *Host) Locate(ctx context.Context) (*topo.Topology, discover.Options, error) {
	g := &in.Globals
	opts := discover.Options{Sources: in.Sources, GPUs: in.GPUs, Now: in.Now(), ToolVersion: build.Tool().Version}
	var err error
	switch {
	case g.From != "":
		var t *topo.Topology
		if t, opts.FS, err = in.readFrom(ctx, g.From); t != nil || err != nil {
			return t, opts, err
		}
		opts.Now = time.Time{}
	case g.Fixture != "":
		opts.FS, opts.Origin, err = openFixture(g.Fixture)
		opts.Now = time.Time{}
	case g.Root != "":
		opts.Root, opts.Now = g.Root, time.Time{}
		err = checkDir(g.Root)
	case g.HostRoot != "":
		opts.HostRoot = g.HostRoot
		err = checkDir(g.HostRoot)
	}
	return nil, opts, err
}

// checkDir says in words of its own why a directory cannot be looked at.
func checkDir(dir string) error {
	info, err := os.Stat(dir)
	const want = "give a directory that holds another host's sys and proc directories"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return WithHint(fmt.Errorf("%s: no such directory", dir), want)
	case err != nil:
		return fmt.Errorf("%s: %w", dir, Cause(err))
	case !info.IsDir():
		return WithHint(fmt.Errorf("%s: not a directory", dir), "--from reads files")
	}
	return nil
}

// Cause is an error without the operation and the path, which the caller names.
func Cause(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// openFixture opens a machine by its name, or from a file.
func openFixture(name string) (fs.FS, string, error) {
	tree, unknown := fixtures.Open(name)
	if !errors.Is(unknown, fixtures.ErrUnknown) {
		return tree, "fixture:" + name, unknown
	}
	data, err := readFile(name, nil)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, "", unknown
	case err != nil:
		return nil, "", err
	}
	if tree, err = fixtures.OpenFile(data); err != nil {
		return nil, "", fmt.Errorf("%s: %w", name, pkgerr.Plain(err))
	}
	return tree, "fixture:" + filepath.Base(name), nil
}

// FixturePrefix names a described machine where a file is expected.
const FixturePrefix = "fixture:"

// Named gives the topology of what an argument names; "" is the host that the
// flags name.
func (in *Host) Named(ctx context.Context, arg string) (*topo.Topology, error) {
	other := *in
	if arg != "" {
		g := &other.Globals
		g.Root, g.HostRoot, g.From, g.Fixture = "", "", "", ""
		name, isFixture := strings.CutPrefix(arg, FixturePrefix)
		info, err := os.Stat(arg)
		switch {
		case isFixture:
			g.Fixture = name
		case err == nil && info.IsDir():
			g.Root = arg
		default:
			g.From = arg
		}
	}
	return other.Find(ctx)
}

// Incomplete gives the error for a topology that lacks something.
func Incomplete(t *topo.Topology, strict bool) error {
	switch {
	case t.Complete:
		return nil
	case strict:
		return WithHint(errors.New("the topology is incomplete (--strict)"), "the warnings say what could not be read")
	}
	return ErrPartial
}

// QuietHost is an input that writes nothing to the terminal, which is the dashboard's.
func QuietHost(in *Host) *Host {
	own := *in
	own.Streams.Err, own.Globals.Quiet, own.Globals.Verbose = io.Discard, true, false
	return &own
}
