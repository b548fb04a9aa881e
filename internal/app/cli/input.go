package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
)

// input says which host a command looks at, and how.
type input struct {
	streams Streams
	globals globals
	gpus    discover.GPUSource
	now     func() time.Time
	sources []string
}

func (f *factory) input() *input {
	return &input{streams: f.streams, gpus: f.gpus, now: f.now}
}

// choose takes over the flags once they are parsed.
func (in *input) choose(f *factory) error {
	in.globals = f.globals
	g := &in.globals
	var given []string
	for _, o := range []struct{ name, value string }{
		{"--root", g.root}, {"--host-root", g.hostRoot}, {"--from", g.from}, {"--fixture", g.fixture},
	} {
		if o.value != "" {
			given = append(given, o.name)
		}
	}
	if len(given) > 1 {
		return withHint(fmt.Errorf("%s exclude each other", strings.Join(given, " and ")), "each names the host to look at; give one")
	}
	return nil
}

// checkInput refuses an empty value: "--root $UNSET" must not look at this host.
func checkInput(cmd *cobra.Command) error {
	return notEmpty(cmd, "root", "host-root", "from", "fixture")
}

// notEmpty refuses flags that are given without a value.
func notEmpty(cmd *cobra.Command, flags ...string) error {
	for _, name := range flags {
		if fl := cmd.Flag(name); fl != nil && fl.Changed && fl.Value.String() == "" {
			return fmt.Errorf("--%s is empty", name)
		}
	}
	return nil
}

// load finds the host, says on stderr what is to say, and gives its topology.
func (in *input) load(ctx context.Context) (*topo.Topology, error) {
	t, err := in.find(ctx)
	if err == nil {
		in.say(t)
	}
	return t, err
}

// find gives the topology of the host that the flags name.
func (in *input) find(ctx context.Context) (*topo.Topology, error) {
	t, opts, err := in.place(ctx)
	if err != nil || t != nil {
		return t, err
	}
	return in.discover(ctx, opts)
}

// say writes the warnings to stderr, and with --verbose how each source did.
func (in *input) say(t *topo.Topology) {
	if in.globals.debug {
		printSources(in.streams.Err, t.Sources)
	}
	if !in.globals.quiet {
		printWarnings(in.streams.Err, t.Warnings)
	}
}

// discover looks at a host within the time limit.
func (in *input) discover(ctx context.Context, opts discover.Options) (*topo.Topology, error) {
	limited, stop := context.WithTimeout(ctx, in.globals.timeout)
	defer stop()
	t, err := discover.Discover(limited, opts)
	return t, in.timeoutHint(err)
}

// timeoutHint says what ended a discovery that took too long.
func (in *input) timeoutHint(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return withHint(fmt.Errorf("gave up after %s%w", in.globals.timeout, quiet{err}), "--timeout DURATION gives it more time")
	}
	return err
}

// place finds the host: a topology where the input is a document, otherwise the
// options to discover it.
func (in *input) place(ctx context.Context) (*topo.Topology, discover.Options, error) {
	g := &in.globals
	opts := discover.Options{Sources: in.sources, GPUs: in.gpus, Now: in.now(), ToolVersion: buildInfo().Version}
	var err error
	switch {
	case g.from != "":
		var t *topo.Topology
		if t, opts.FS, err = in.readFrom(ctx, g.from); t != nil || err != nil {
			return t, opts, err
		}
		opts.Now = time.Time{}
	case g.fixture != "":
		opts.FS, opts.Origin, err = openFixture(g.fixture)
		opts.Now = time.Time{}
	case g.root != "":
		opts.Root, opts.Now = g.root, time.Time{}
		err = checkDir(g.root)
	case g.hostRoot != "":
		opts.HostRoot = g.hostRoot
		err = checkDir(g.hostRoot)
	}
	return nil, opts, err
}

// checkDir says in words of its own why a directory cannot be looked at.
func checkDir(dir string) error {
	info, err := os.Stat(dir)
	const want = "give a directory that holds another host's sys and proc directories"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return withHint(fmt.Errorf("%s: no such directory", dir), want)
	case err != nil:
		return fmt.Errorf("%s: %w", dir, bare(err))
	case !info.IsDir():
		return withHint(fmt.Errorf("%s: not a directory", dir), "--from reads files")
	}
	return nil
}

// bare is an error without the operation and the path, which the caller names.
func bare(err error) error {
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
		return nil, "", fmt.Errorf("%s: %w", name, trimmedError{err})
	}
	return tree, "fixture:" + filepath.Base(name), nil
}
