package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/formats"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/build"
	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
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

// whole is the context of a command: --timeout bounds it, unless Lasts or TakesLong says otherwise.
func (in *Host) whole(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	length := cmd.Annotations[lengthKey]
	if length == lasts || length == takesLong && !cmd.Flags().Changed("timeout") {
		return cmd.Context(), func() {}
	}
	return in.Waiting(cmd.Context())
}

// Waiting bounds waits by --timeout: all those together that have this context. What a user asked to last,
// such as a measurement, is no wait.
func (in *Host) Waiting(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Value(waitingKey{}) != nil || in.Globals.Timeout <= 0 { // a part of a wait that is bounded already
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithValue(ctx, waitingKey{}, true), in.Globals.Timeout)
}

type waitingKey struct{}

// Ready takes over the global flags once they are parsed. An empty value is refused:
// "--root $UNSET" must not look at this host.
func (in *Host) Ready(cmd *cobra.Command) error {
	in.Globals = in.env.Globals
	g := &in.Globals
	var err error
	if in.Format, err = g.format(cmd); err != nil {
		return err
	}
	in.env.Globals.Output = in.Format // for rules about -o
	if g.ASCII = in.env.onlyASCII(); g.ASCII {
		in.Streams.Err = asciiWriter(in.Streams.Err)
		if in.Format == formatTable || in.Format == formatWide { // others are for programs
			in.Streams.Out = asciiWriter(in.Streams.Out)
		}
	}
	return cmp.Or(notEmpty(cmd), checkTogether(cmd,
		flagRule{otherHost, excludes, otherHost, "each selects the host to inspect; use only one"},
		flagRule{"with", needs, "from", "it adds the texts of network tools to a saved host"}))
}

// Described says whether the flags name a host that is described, by files or a fixture, rather than
// the one that this program runs on.
func (g *Globals) Described() bool { return g.Root+g.From+g.Fixture != "" }

// SameHost are the flags that name the same host in a command that is advised, with a blank before.
func (g *Globals) SameHost() string {
	out := ""
	add := func(flag, value string) {
		if value == "" {
			return
		}
		if strings.ContainsFunc(value, func(r rune) bool {
			return !strings.ContainsRune("/._-:=,@+", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
		}) {
			value = text.ShellQuote(value)
		}
		out += " --" + flag + " " + value
	}
	add("root", g.Root)
	add("host-root", g.HostRoot)
	add("from", g.From)
	for _, w := range g.With {
		add("with", w)
	}
	add("fixture", g.Fixture)
	return out
}

// notEmpty refuses flags whose text is empty: "--out-file $UNSET" must not print instead.
func notEmpty(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(fl *pflag.Flag) {
		values := flagValues(fl)
		blank := func(s string) bool { return strings.TrimSpace(s) == "" }
		if fl.Value.Type() != "bool" && fl.Name != "output" && fl.Name != "units" && (len(values) == 0 || slices.ContainsFunc(values, blank)) {
			err = cmp.Or(err, fmt.Errorf("--%s is empty", fl.Name))
		}
	})
	return err
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
	if t := in.fixture(); t != nil {
		return t, nil
	}
	if in.Globals.From != "" {
		return in.readFrom(ctx)
	}
	opts, err := in.Locate(ctx)
	if err != nil {
		return nil, err
	}
	limited, stop := in.Waiting(ctx)
	defer stop()
	t, err := discover.Discover(limited, opts)
	return t, in.TimeoutHint(err)
}

// fixture is the topology of the fixture that the flags name; nil where its files have to be read for it.
func (in *Host) fixture() *topo.Topology {
	if in.Globals.Fixture == "" || len(in.Sources) > 0 || in.Globals.Verbose {
		return nil
	}
	t, err := fixtures.Topology(in.Globals.Fixture)
	if err != nil {
		return nil // a file, or no fixture: Locate says so
	}
	t.Tool.Version = build.Tool().Version
	return t
}

// Say writes the warnings to stderr, and with --verbose how each source did.
func (in *Host) Say(t *topo.Topology) {
	if in.Globals.Verbose {
		printSources(in.Streams.Err, t.Sources)
	}
	if !in.Globals.Quiet {
		printWarnings(in.Streams.Err, "", t.Warnings)
	}
}

// TimeoutHint says in its own words that an error is the end of --timeout.
func (in *Host) TimeoutHint(err error) error {
	const plain = "context deadline exceeded"
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), plain) {
		return err
	}
	what := strings.ReplaceAll(pkgerr.Message(err), plain, fmt.Sprintf("gave up after %s", in.Globals.Timeout))
	out := Error{code: exitFailed, hint: "use --timeout DURATION to allow more time"}
	if advised, ok := errors.AsType[*Error](err); ok && strings.Contains(advised.hint, "--timeout") { // it says more
		out = *advised
	}
	out.err = fmt.Errorf("%s%w", what, quiet{err})
	return &out
}

// Locate gives the options to discover the host that the flags name, which must have files: a document has none.
func (in *Host) Locate(ctx context.Context) (discover.Options, error) {
	g := &in.Globals
	opts := discover.Options{Sources: in.Sources, GPUs: in.GPUs, Now: in.Now(), ToolVersion: build.Tool().Version}
	var err error
	switch {
	case g.From != "":
		opts.FS, err = in.openFrom(ctx)
		opts.Now = time.Time{}
	case g.Fixture != "":
		opts.FS, opts.Origin, err = in.openFixture(ctx, g.Fixture)
		opts.Now = time.Time{}
	case g.Root != "":
		opts.Root, opts.Now = g.Root, time.Time{}
		err = checkDir(g.Root)
	case g.HostRoot != "":
		opts.HostRoot = g.HostRoot
		err = checkDir(g.HostRoot)
	}
	return opts, err
}

// checkDir says in words of its own why a directory cannot be looked at.
func checkDir(dir string) error {
	info, err := os.Stat(dir)
	const want = "use a directory with the sys and proc directories of another host"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return withHint(fmt.Errorf("%s: no such directory", dir), want)
	case err != nil:
		return fmt.Errorf("%s: %w", dir, Cause(err))
	case !info.IsDir():
		return withHint(fmt.Errorf("%s: not a directory", dir), "use --from to read a file")
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
func (in *Host) openFixture(ctx context.Context, name string) (fs.FS, string, error) {
	tree, unknown := fixtures.Open(name)
	if !errors.Is(unknown, fixtures.ErrUnknown) {
		return tree, "fixture:" + name, unknown
	}
	data, err := Within(ctx, in, name, func() ([]byte, error) { return readFile(name, nil) })
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, "", withHint(pkgerr.Plain(unknown), "\"topoctl fixtures\" lists all")
	case err != nil:
		return nil, "", err
	}
	if tree, err = fixtures.OpenFile(data); err != nil {
		return nil, "", fmt.Errorf("%s: %w", name, pkgerr.Plain(err))
	}
	return tree, "fixture:" + filepath.Base(name), nil
}

// fixturePrefix names a described machine where a file is expected.
const fixturePrefix = "fixture:"

// Named gives the topology of what an argument names; "" is the host that the
// flags name.
func (in *Host) Named(ctx context.Context, arg string) (*topo.Topology, error) {
	other := *in
	if arg != "" {
		g := &other.Globals
		g.Root, g.HostRoot, g.From, g.Fixture, g.With = "", "", "", "", nil
		name, isFixture := strings.CutPrefix(arg, fixturePrefix)
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

// incomplete gives the error for a topology that lacks something.
func incomplete(t *topo.Topology, strict bool) error {
	switch {
	case t.Complete:
		return nil
	case strict:
		return withHint(errors.New("the topology is incomplete (--strict)"), "see the warnings for what could not be read")
	}
	return errPartial
}

// quietHost is an input that writes nothing to the terminal, which is the dashboard's.
func quietHost(in *Host) *Host {
	own := *in
	own.Streams.Err, own.Globals.Quiet, own.Globals.Verbose = io.Discard, true, false
	return &own
}

// stdinName is what --from - is called in messages.
const stdinName = "standard input"

// readFrom reads the host of --from, with what --with adds to it.
func (in *Host) readFrom(ctx context.Context) (*topo.Topology, error) {
	name, data, err := in.savedHost(ctx)
	if err != nil {
		return nil, err
	}
	var with []formats.Text
	for _, name := range in.Globals.With {
		data, err := in.ReadFile(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("--with %w", err)
		}
		with = append(with, formats.Text{Name: name, Data: data})
	}
	return in.decode(ctx, name, data, with)
}

// openFrom opens the files of the host of --from.
func (in *Host) openFrom(ctx context.Context) (fs.FS, error) {
	name, data, err := in.savedHost(ctx)
	if err != nil {
		return nil, err
	}
	f, err := formats.Detect(data)
	switch {
	case err != nil:
		return nil, in.fileError(name, err)
	case f.Open == nil:
		return nil, fmt.Errorf("--capture needs the files of a host; %s is a document", name)
	}
	tree, err := f.Open(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, pkgerr.Plain(err))
	}
	return tree, nil
}

// savedHost is the content of the file that --from names, and what errors call it.
func (in *Host) savedHost(ctx context.Context) (name string, data []byte, err error) {
	if data, err = in.ReadFile(ctx, in.Globals.From); errors.Is(err, syscall.EISDIR) {
		err = withHint(err, "use --root to read a captured file tree")
	}
	if in.Globals.From == "-" {
		return stdinName, data, err
	}
	return in.Globals.From, data, err
}

// Decode gives the topology of a saved host in any format that --from reads. name is what errors call it.
func (in *Host) Decode(ctx context.Context, name string, data []byte) (*topo.Topology, error) {
	return in.decode(ctx, name, data, nil)
}

func (in *Host) decode(ctx context.Context, name string, data []byte, with []formats.Text) (*topo.Topology, error) {
	if len(in.Sources) > 0 {
		if f, err := formats.Detect(data); err == nil && f.Open == nil {
			return nil, fmt.Errorf("%s: --sources has no effect on a document (%s)", name, f.Name)
		}
	}
	ctx, stop := in.Waiting(ctx)
	defer stop()
	t, err := formats.Read(ctx, data, formats.Options{Name: name, With: with, Sources: in.Sources, ToolVersion: build.Tool().Version})
	if err != nil {
		return nil, in.fileError(name, err)
	}
	return t, nil
}

// fileError says of an error of package formats what to do about it.
func (in *Host) fileError(name string, err error) error {
	if errors.Is(err, formats.ErrUnknown) {
		return withHint(fmt.Errorf("%s: %w", name, formats.ErrUnknown), "--from reads %s", Known("and"))
	}
	file, ok := errors.AsType[*formats.FileError](err)
	err = pkgerr.Plain(err)
	switch {
	case !ok || file.Format != formats.NetworkTexts:
		return in.TimeoutHint(err)
	case file.Name == "":
		return fmt.Errorf("--with: %w", err)
	}
	return fmt.Errorf("--with %w", err)
}

// Known lists what --from reads, by a word that joins the last.
func Known(word string) string {
	var names []string
	for _, f := range formats.Formats() {
		names = append(names, f.Name)
	}
	return joined(names, word)
}

// ReadFile reads the file, or standard input for "-". A pipe may keep it
// waiting for ever, so the wait ends with ctx.
func (in *Host) ReadFile(ctx context.Context, name string) ([]byte, error) {
	var r io.Reader
	if name == "-" {
		if in.Streams.InTTY {
			return nil, withHint(errors.New("--from - reads standard input, which is a terminal"), "pipe a file into it")
		}
		name, r = stdinName, in.Streams.In
	}
	return Within(ctx, in, name, func() ([]byte, error) { return readFile(name, r) })
}

// Within is what read gives, which may wait for ever: to open a named pipe is to wait for its writer.
// It fails when ctx ends or the time of --timeout is over.
func Within[T any](ctx context.Context, in *Host, name string, read func() (T, error)) (T, error) {
	ctx, stop := in.Waiting(ctx)
	defer stop()
	value, err := interruptible(ctx, read)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		err = withHint(fmt.Errorf("%s: could not be read within %s", name, in.Globals.Timeout), "use --timeout DURATION to allow more time")
	case errors.Is(err, context.Canceled):
		err = fmt.Errorf("%s: %w", name, err)
	}
	return value, err
}

// interruptible is what run gives, or the error of ctx where that ends first: run is left behind then, and the
// program ends.
func interruptible[T any](ctx context.Context, run func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := run()
		done <- result{value, err}
	}()
	select {
	case got := <-done:
		return got.value, got.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// readFile reads a whole file, or r where it is given, and unpacks gzip. What is
// empty, too large or no file is refused in one line.
func readFile(name string, r io.Reader) ([]byte, error) {
	if r == nil {
		file, err := os.Open(name)
		if err != nil {
			return nil, openError(name, err)
		}
		defer file.Close()
		info, err := file.Stat()
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", name, Cause(err))
		case info.IsDir():
			return nil, fmt.Errorf("%s: %w", name, syscall.EISDIR)
		}
		r = file
	}
	data, err := io.ReadAll(io.LimitReader(r, formats.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, Cause(err))
	}
	data, err = document.Unpack(data, formats.MaxBytes)
	switch {
	case errors.Is(err, document.ErrTar):
		return nil, withHint(fmt.Errorf("%s: %w", name, err), "unpack it and pass the directory to --root")
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return data, nil
}

// ReadFabric reads the file that --fabric names, nil without it.
func (in *Host) ReadFabric(ctx context.Context, name string) (*pathsel.Fabric, error) {
	if name == "" {
		return nil, nil //nolint:nilnil // none was asked for
	}
	data, err := in.ReadFile(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("--fabric: %w", err)
	}
	f, err := pathsel.ParseFabric(data)
	if err != nil {
		return nil, fmt.Errorf("--fabric %s: %w", name, pkgerr.Plain(err))
	}
	return f, nil
}

// openError is the error of a file that could not be opened, with advice.
func openError(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: no such file%w", name, quiet{err})
	}
	return fmt.Errorf("%s: %w", name, Cause(err))
}

// quiet keeps an error in the chain without printing it.
type quiet struct{ error }

func (quiet) Error() string   { return "" }
func (q quiet) Unwrap() error { return q.error }
