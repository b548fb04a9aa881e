package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/app/observe"
	"github.com/topoctl/topoctl/internal/app/record"
	"github.com/topoctl/topoctl/tui"
)

// feed makes the feed that the flags name.
func (o *tuiOptions) feed(ctx context.Context, show *tui.Options, files *cleanup) error {
	if o.replay != "" {
		return o.replayFeed(show, files)
	}
	g := &o.globals
	to := observe.Options{Start: record.Start{Tool: topo.Tool{Name: "topoctl", Version: buildInfo().Version}, Host: o.subject()},
		Agents: o.agents, Every: o.every, Interval: o.interval, Discover: o.find}
	var t *topo.Topology
	described := g.root+g.from+g.fixture != ""
	if described || o.measured.file != "" { // what is wrong with it is said before the dashboard begins
		var err error
		if t, err = o.find(ctx); err != nil {
			return err
		}
		if show.Overlay, err = o.measured.start(o.input, t); err != nil {
			return err
		}
		show.Measured, show.MeasuredName = o.measured.report, o.measured.file
	}
	switch {
	case o.synthetic:
		show.Counters = true
		show.Feed = observe.Synthetic(to, t, 1)
	case g.fixture != "" || g.from == "-":
		show.Feed = observe.Static(to, t)
	case described: // files, which may change
		show.Feed = observe.New(to)
	default:
		sampler, err := discover.NewSampler(discover.Options{HostRoot: g.hostRoot, GPUs: o.gpus})
		if err != nil {
			return err
		}
		files.add(sampler)
		show.Counters = true
		to.Sample = sampler.Sample
		to.Watch = func(ctx context.Context, changed, note func(string)) error {
			return discover.Watch(ctx, discover.WatchOptions{HostRoot: g.hostRoot, Note: note}, changed)
		}
		show.Feed = observe.New(to)
	}
	return nil
}

// subject is what the header calls the host.
func (o *tuiOptions) subject() string {
	switch g := &o.globals; {
	case g.fixture != "":
		return "fixture:" + filepath.Base(g.fixture)
	case g.root != "":
		return "root:" + filepath.Base(g.root)
	case g.from == "-":
		return stdinName
	case g.from != "":
		return "file:" + filepath.Base(g.from)
	}
	return "live"
}

// replayFeed plays a recording.
func (o *tuiOptions) replayFeed(show *tui.Options, files *cleanup) error {
	show.Replay = filepath.Base(o.replay)
	speed := o.speed
	if o.once {
		speed = 0 // without waiting
	}
	if o.replay == "-" {
		show.Replay = stdinName
		show.Feed = observe.Replay(o.streams.In, speed)
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
		return fmt.Errorf("%s: %w", o.replay, bare(err))
	case info.IsDir():
		return fmt.Errorf("%s: is a directory", o.replay)
	case info.Mode().IsRegular(): // what cannot be played is said before the dashboard begins
		if _, err := record.NewReader(file).Read(); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: %w", o.replay, trimmedError{err})
		}
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("%s: %w", o.replay, bare(err))
		}
	}
	show.Feed = observe.Replay(file, speed)
	if o.measured.file != "" {
		report, err := o.readReport(o.measured.file)
		if err != nil {
			return fmt.Errorf("--probe: %w", err)
		}
		show.Measured, show.MeasuredName = report, o.measured.file
	}
	return nil
}
