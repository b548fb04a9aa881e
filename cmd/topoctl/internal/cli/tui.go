package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/tui"
)

type tuiOptions struct {
	*Host
	agents    []string // URLs
	baseline  string
	measured  Measured
	hosts     agentFlags
	replay    string
	speed     float64
	record    string
	once      bool
	view      string
	frame     frameSize // of --once
	interval  time.Duration
	every     time.Duration
	noMouse   bool
	readonly  bool
	synthetic bool
}

// tuiViews are the views by name.
var tuiViews = tui.Views()

func newTUICmd(f *Env) *cobra.Command {
	opts := &tuiOptions{Host: f.Host()}
	cmd := newCommand(opts, "tui", "Show a dashboard of the host, its problems and its traffic")
	fl := cmd.Flags()
	fl.StringArrayVar(&opts.agents, "agent", nil, "also show the engine of the agent with the HTTP address `URL` (or HOST:PORT); repeatable")
	fl.StringVar(&opts.baseline, "baseline", "", "show drift from the host in `FILE` (as for --from, or fixture:NAME), instead of from the start")
	opts.measured.Add(cmd)
	opts.hosts.add(cmd, "hosts for the probe view to measure, one per line of `FILE`",
		"host for the probe view to measure, by its agent at `[NAME=]HOST[:PORT]`; repeatable")
	fl.StringVar(&opts.replay, "replay", "", "play the recording in `FILE`; - for standard input, with --once")
	fl.Float64Var(&opts.speed, "speed", 1, "play a recording at `N` times its speed")
	fl.StringVar(&opts.record, "record", "", "record all data to `FILE`, from the start")
	fl.BoolVar(&opts.once, "once", false, "print one frame as text, as soon as it is complete")
	wordFlag(cmd, &opts.view, "view", tuiViews[0], "`VIEW` to start with: "+either(tuiViews), tuiViews)
	Var(cmd, &opts.frame, "size", "", "with --once, size of the frame (`COLUMNSxLINES`; default: that of the terminal, or 120x40)", parseFrameSize)
	timeFlag(cmd, &opts.interval, "interval", time.Second, leastInterval, unbounded, "read counters and query agents every `TIME`")
	everyFlag(cmd, &opts.every)
	fl.BoolVar(&opts.noMouse, "no-mouse", false, "do not capture the mouse")
	fl.BoolVar(&opts.readonly, "readonly", false, "disable probes")
	fl.BoolVar(&opts.synthetic, "synthetic-load", false, "simulate traffic on the host of --fixture, --root or --from")
	Offer(cmd, map[string]completer{"baseline": hostFlag, "size": Words("80x24", "120x40")})
	mainFlags(cmd, "agent", "hosts", "host", "token-file", "view", "once", "record", "replay", "synthetic-load")
	Uses(cmd, otherHost, "with", "timeout", "units")
	Lasts(cmd)
	Prints(cmd, "a screen; with --once, one frame as text")
	return cmd
}

// parse takes over the flags and refuses what makes no sense.
func (o *tuiOptions) parse(cmd *cobra.Command, _ []string) error {
	if err := cmp.Or(o.measured.Check(cmd), o.hosts.credentials.Check(cmd), checkPace(o.interval, o.every), checkTogether(cmd,
		flagRule{"with agent hosts host synthetic-load interval every " + otherHost, idleWith, "replay", ""},
		flagRule{strings.Join(credentialFlags, " "), needs, "hosts host", ""},
		flagRule{"speed", needs, "replay", ""},
		flagRule{"size", needs, "once", ""},
		flagRule{"speed record", idleWith, "once", ""},
		flagRule{"synthetic-load", needs, "fixture root from", "use --fixture NAME for a built-in machine"})); err != nil {
		return err
	}
	switch {
	case !(o.speed > 0 && o.speed <= 1e6):
		return fmt.Errorf("--speed %g: want more than 0", o.speed)
	case o.replay == "-" && !o.once:
		return errors.New("--replay cannot be standard input, from which the dashboard reads keys")
	case !o.once && o.Globals.From == "-":
		return errors.New("--from cannot be standard input, from which the dashboard reads keys")
	}
	if o.frame == (frameSize{}) {
		o.frame = frameSize{120, 40}
		if o.Streams.OutTTY && o.Streams.Width > 0 && o.Streams.Height > 1 {
			o.frame = frameSize{o.Streams.Width, o.Streams.Height - 1} // the prompt has a line, too
		}
	}
	return checkAgents(o.agents)
}

type frameSize struct{ columns, lines int }

// parseFrameSize reads "80x24".
func parseFrameSize(s string) (f frameSize, err error) {
	const most = 1000
	w, h, _ := strings.Cut(s, "x")
	f.columns, err = strconv.Atoi(w)
	lines, err2 := strconv.Atoi(h)
	if f.lines = lines; errors.Join(err, err2) != nil || min(f.columns, f.lines) < 1 || max(f.columns, f.lines) > most {
		return f, fmt.Errorf("%q: want COLUMNSxLINES, as in 120x40, each at most %d", s, most)
	}
	return f, nil
}

func (o *tuiOptions) run(ctx context.Context) error {
	if !o.once {
		if err := o.Streams.Screen(); err != nil {
			return err
		}
	}
	show, done, err := o.dashboard(ctx)
	if err != nil {
		return err
	}
	if o.once {
		err = o.printFrame(ctx, show)
	} else {
		ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP) // the terminal went away
		err = tui.Run(ctx, show)
		stop()
	}
	return errors.Join(err, done())
}

// printFrame prints one picture.
func (o *tuiOptions) printFrame(ctx context.Context, show tui.Options) error {
	limited, stop := o.Waiting(ctx)
	defer stop()
	text, whole, err := tui.Frame(limited, show, o.frame.columns, o.frame.lines)
	if err := errors.Join(ctx.Err(), err); err != nil {
		return err
	}
	if err := Write(o.Streams.Out, []byte(text)); err != nil {
		return err
	}
	if !whole {
		fmt.Fprintf(o.Streams.Err, "topoctl: warning: the frame is incomplete: not all sources answered within %s\n", o.Globals.Timeout)
		return errPartial
	}
	return nil
}

// dashboard gathers what the dashboard shows, and what to do after it.
func (o *tuiOptions) dashboard(ctx context.Context) (tui.Options, func() error, error) {
	var files tuiCleanup
	show, err := o.assemble(ctx, &files)
	if err != nil {
		return show, nil, errors.Join(err, files.close())
	}
	return show, files.close, nil
}

// tuiCleanup is what to close, the last first.
type tuiCleanup []io.Closer

func (c *tuiCleanup) add(x io.Closer) {
	if x != nil {
		*c = append(*c, x)
	}
}

func (c *tuiCleanup) close() error {
	var errs []error
	for _, x := range slices.Backward(*c) {
		errs = append(errs, x.Close())
	}
	*c = nil
	return errors.Join(errs...)
}

func (o *tuiOptions) assemble(ctx context.Context, files *tuiCleanup) (tui.Options, error) {
	show := tui.Options{In: o.Streams.In, Out: o.Streams.Out, Now: o.Now, Color: o.Color(), ASCII: o.Globals.ASCII, Mouse: !o.noMouse,
		Units: o.Globals.Units, View: o.view, Suspend: hasShell(), Create: o.create, Record: o.record}
	if o.baseline != "" {
		t, err := o.Named(ctx, o.baseline)
		if err != nil {
			return show, fmt.Errorf("--baseline %w", err)
		}
		show.Baseline, show.BaselineName = t, o.baseline
	}
	if err := o.feed(ctx, &show, files); err != nil {
		return show, err
	}
	if err := o.overwrites(); err != nil {
		return show, err
	}
	notLive := ""
	switch {
	case o.readonly:
		notLive = "--readonly"
	case o.replay != "":
		notLive = "a recording is playing"
	case o.once:
		notLive = "--once measures nothing"
	}
	prober, closer, why, err := newDashboardProber(ctx, o.Host, o.hosts, notLive)
	if err != nil {
		return show, err
	}
	files.add(closer)
	show.NoProber = why
	if prober != nil {
		show.Prober = prober
	}
	return show, nil
}

// feed makes the feed that the flags name.
func (o *tuiOptions) feed(ctx context.Context, show *tui.Options, files *tuiCleanup) error {
	if o.replay != "" {
		return o.replayFeed(show, files)
	}
	g := &o.Globals
	to := tui.LiveOptions{Name: o.subject(), Agents: o.agents, Every: o.every, Interval: o.interval, Discover: o.Find, SyntheticLoad: o.synthetic}
	if g.Described() || o.measured.File != "" { // what is wrong with it is said before the dashboard begins
		t, err := o.Find(ctx)
		if err != nil {
			return err
		}
		if show.Overlay, err = o.measured.Start(o.Host, t); err != nil {
			return err
		}
		show.Measured, show.MeasuredName = o.measured.Report, o.measured.File
		if o.synthetic || g.Fixture != "" || g.From == "-" { // others are files, which may change
			to.Discover, to.Every = func(context.Context) (*topo.Topology, error) { return t, nil }, 0
		}
	}
	if !g.Described() {
		var err error
		if to.Sampler, err = o.sampler(); err != nil {
			return err
		}
		files.add(to.Sampler)
	}
	show.Feed = tui.Live(to)
	return nil
}

// sampler reads the counters of this host.
func (in *Host) sampler() (*discover.Sampler, error) {
	return discover.NewSampler(discover.Options{HostRoot: in.Globals.HostRoot, GPUs: in.GPUs, Now: in.Now()})
}

// subject is what the header calls the host.
func (o *tuiOptions) subject() string {
	switch g := &o.Globals; {
	case g.Fixture != "":
		return "fixture:" + filepath.Base(g.Fixture)
	case g.Root != "":
		return "root:" + filepath.Base(g.Root)
	case g.From == "-":
		return stdinName
	case g.From != "":
		return "file:" + filepath.Base(g.From)
	}
	return "live"
}

// replayFeed plays a recording.
func (o *tuiOptions) replayFeed(show *tui.Options, files *tuiCleanup) error {
	speed := o.speed
	if o.once {
		speed = 0 // without waiting
	}
	if o.replay == "-" {
		show.Feed = tui.Replay(stdinName, o.Streams.In, speed)
		return nil
	}
	file, err := os.Open(o.replay)
	if err != nil {
		return openError(o.replay, err)
	}
	files.add(file)
	info, err := file.Stat()
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", o.replay, Cause(err))
	case info.IsDir():
		return fmt.Errorf("%s: is a directory", o.replay)
	case info.Mode().IsRegular(): // what cannot be played is said before the dashboard begins
		if _, err := record.NewReader(file).Read(); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: %w", o.replay, pkgerr.Plain(err))
		}
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("%s: %w", o.replay, Cause(err))
		}
	}
	show.Feed = tui.Replay(filepath.Base(o.replay), file, speed)
	if o.measured.File != "" {
		report, err := o.ReadReport(o.measured.File)
		if err != nil {
			return fmt.Errorf("--probe: %w", err)
		}
		show.Measured, show.MeasuredName = report, o.measured.File
	}
	return nil
}

// overwrites refuses to record into a file that is read: it would be empty.
func (o *tuiOptions) overwrites() error {
	to, err := os.Stat(o.record)
	if err != nil || !to.Mode().IsRegular() {
		return nil //nolint:nilerr // opening it says what is wrong
	}
	files := [][2]string{{"replay", o.replay}, {"from", o.Globals.From}, {"baseline", o.baseline}, {"probe", o.measured.File}, {"hosts", o.hosts.file}}
	for _, name := range o.Globals.With {
		files = append(files, [2]string{"with", name})
	}
	for _, read := range files {
		if from, err := os.Stat(read[1]); err == nil && os.SameFile(from, to) {
			return fmt.Errorf("--record %s: recording would overwrite the file of --%s", o.record, read[0])
		}
	}
	return nil
}

// create makes a file for the dashboard: that of --record, else one of the name in the working directory or, where
// that cannot be written to, in the one for temporary files.
func (o *tuiOptions) create(name string) (io.WriteCloser, error) {
	if o.record != "" && name == o.record {
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, ownerOnly)
		if err != nil {
			return nil, fmt.Errorf("--record %s: %w", name, Cause(err))
		}
		return file, nil
	}
	var first error
	for _, dir := range []string{".", os.TempDir()} {
		path, err := filepath.Abs(filepath.Join(dir, name))
		var file *os.File
		if err == nil {
			file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, ownerOnly)
		}
		if err == nil {
			return file, nil
		}
		first = cmp.Or(first, fmt.Errorf("%s: %w", path, Cause(err)))
	}
	return nil, first
}
