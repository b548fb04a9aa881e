package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/app/cli/build"
	"github.com/topoctl/topoctl/internal/app/cli/command"
	"github.com/topoctl/topoctl/internal/app/observe"
	"github.com/topoctl/topoctl/internal/app/record"
	"github.com/topoctl/topoctl/internal/base/pkgerr"
	"github.com/topoctl/topoctl/tui"
)

// feed makes the feed that the flags name.
func (o *tuiOptions) feed(ctx context.Context, show *tui.Options, files *cleanup) error {
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
		sampler, err := discover.NewSampler(discover.Options{HostRoot: g.HostRoot, GPUs: o.GPUs})
		if err != nil {
			return err
		}
		files.add(sampler)
		show.Counters = true
		to.Sample = sampler.Sample
		to.Watch = func(ctx context.Context, changed, note func(string)) error {
			return discover.Watch(ctx, discover.WatchOptions{HostRoot: g.HostRoot, Note: note}, changed)
		}
		show.Feed = observe.New(to)
	}
	return nil
}

// subject is what the header calls the host.
func (o *tuiOptions) subject() string {
	switch g := &o.Globals; {
	case g.Fixture != "":
		return "fixture:" + filepath.Base(g.Fixture)
	case g.Root != "":
		return "root:" + filepath.Base(g.Root)
	case g.From == "-":
		return command.StdinName
	case g.From != "":
		return "file:" + filepath.Base(g.From)
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
		show.Replay = command.StdinName
		show.Feed = observe.Replay(o.Streams.In, speed)
		return nil
	}
	file, err := os.Open(o.replay)
	if err != nil {
		return command.OpenError(o.replay, err)
	}
	files.add(file)
	info, err := file.Stat()
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", o.replay, command.Cause(err))
	case info.IsDir():
		return fmt.Errorf("%s: is a directory", o.replay)
	case info.Mode().IsRegular(): // what cannot be played is said before the dashboard begins
		if _, err := record.NewReader(file).Read(); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: %w", o.replay, pkgerr.Plain(err))
		}
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("%s: %w", o.replay, command.Cause(err))
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
