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
	"github.com/topoctl/topoctl/internal/build"
	"github.com/topoctl/topoctl/internal/observe"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
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
		err = tui.Run(ctx, show, o.Streams.In, o.Streams.Out)
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
	show := tui.Options{Now: o.Now, Color: o.Color(), ASCII: o.Globals.ASCII, Mouse: !o.noMouse, Units: units.System(o.Globals.Units), View: o.view,
		Save: saveHere, Agents: len(o.agents), Suspend: hasShell()}
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
	if err := o.recorder(&show, files); err != nil {
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
	to := observe.Options{Start: record.Start{Tool: build.Tool(), Host: o.subject()},
		Agents: o.agents, Every: o.every, Interval: o.interval, Discover: o.Find}
	var t *topo.Topology
	described := g.Described()
	if described || o.measured.File != "" { // what is wrong with it is said before the dashboard begins
		var err error
		if t, err = o.Find(ctx); err != nil {
			return err
		}
		if show.Overlay, err = o.measured.Start(o.Host, t); err != nil {
			return err
		}
		show.Measured, show.MeasuredName = o.measured.Report, o.measured.File
	}
	switch {
	case o.synthetic:
		show.Counters = true
		show.Feed = observe.Synthetic(to, t, 1)
	case g.Fixture != "" || g.From == "-":
		show.Feed = observe.Static(to, t)
	case described: // files, which may change
		show.Feed = observe.New(to)
	default:
		feed, sampler, err := o.live(to)
		if err != nil {
			return err
		}
		files.add(sampler)
		show.Counters = true
		show.Feed = feed
	}
	return nil
}

// live is a feed of this host: its counters where there is an interval, and a new look where the kernel reports a
// change. The closer is for after it.
func (in *Host) live(to observe.Options) (*observe.Feed, io.Closer, error) {
	to.Watch = func(ctx context.Context, changed, note func(string)) error {
		return discover.Watch(ctx, discover.WatchOptions{Note: note}, changed)
	}
	if to.Interval == 0 {
		return observe.New(to), io.NopCloser(nil), nil
	}
	sampler, err := discover.NewSampler(discover.Options{HostRoot: in.Globals.HostRoot, GPUs: in.GPUs, Now: in.Now()})
	if err != nil {
		return nil, nil, err
	}
	to.Sample = sampler.Sample
	return observe.New(to), sampler, nil
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
	show.Replay = filepath.Base(o.replay)
	speed := o.speed
	if o.once {
		speed = 0 // without waiting
	}
	if o.replay == "-" {
		show.Replay = stdinName
		show.Feed = observe.Replay(o.Streams.In, speed)
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
	show.Feed = observe.Replay(file, speed)
	if o.measured.File != "" {
		report, err := o.ReadReport(o.measured.File)
		if err != nil {
			return fmt.Errorf("--probe: %w", err)
		}
		show.Measured, show.MeasuredName = report, o.measured.File
	}
	return nil
}

// recorder says where recordings go: the first to --record, those that the key begins to
// files of their own.
func (o *tuiOptions) recorder(show *tui.Options, files *tuiCleanup) error {
	var first *recordFile
	if o.record != "" {
		if err := o.overwrites(); err != nil {
			return err
		}
		file, err := os.OpenFile(o.record, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, ownerOnly)
		if err != nil {
			return fmt.Errorf("--record %s: %w", o.record, Cause(err))
		}
		first = newRecordFile(file)
		files.add(first)
		show.RecordAtOnce = true
	}
	show.Record = func() (tui.Recording, error) {
		if to := first; to != nil {
			first = nil
			return to, nil
		}
		name := "topoctl-" + o.Now().UTC().Format("20060102-150405") + ".jsonl"
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, ownerOnly)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, Cause(err))
		}
		return newRecordFile(file), nil
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

// recordFile is a recording in a file. A record that cannot be written as one is left out,
// and Close says so; a file that cannot be written to ends the recording.
type recordFile struct {
	file    *os.File
	to      *record.Writer
	refused int
	why     error // why the first one was
	closed  bool
}

func newRecordFile(file *os.File) *recordFile {
	return &recordFile{file: file, to: record.NewWriter(file)}
}

// Write writes a record.
func (r *recordFile) Write(x *record.Record) error {
	err := r.to.Write(x)
	if cause := Cause(err); cause != err { //nolint:errorlint // Cause finds what the system says
		return cause
	}
	if err != nil {
		if r.refused++; r.refused == 1 {
			r.why = err
		}
	}
	return nil
}

// Name is the file's.
func (r *recordFile) Name() string { return r.file.Name() }

// Close says what was lost; it may be called again.
func (r *recordFile) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	err := r.file.Close()
	if r.refused > 0 {
		err = errors.Join(err, fmt.Errorf("%s: %s left out: %w", r.Name(), text.Plural(r.refused, "record"), r.why))
	}
	return err
}

// saveHere writes a file into the working directory or, where that cannot be written to,
// into the one for temporary files, and says where it is.
func saveHere(name string, data []byte) (string, error) {
	var first error
	for _, dir := range []string{".", os.TempDir()} {
		path, err := filepath.Abs(filepath.Join(dir, name))
		if err == nil {
			err = writeFile(path, data, ownerOnly)
		}
		if err == nil {
			return path, nil
		}
		if first == nil {
			first = err
		}
	}
	return "", first
}
