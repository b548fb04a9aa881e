package observe

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/topoctl/topoctl/internal/record"
)

// lookAtHost looks at the host. It is news where anything but the time differs from what was
// told last.
func (f *Feed) lookAtHost(ctx context.Context) (*record.Record, error) {
	t, err := f.o.Discover(ctx)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, errors.New("the discovery gave no topology")
	}
	timeless := *t
	timeless.CapturedAt = nil
	data, err := timeless.Encode()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	first := f.topology.Swap(t) == nil
	if first {
		close(f.haveTopology)
	}
	if !first && sum == f.lastTopologySum {
		return nil, nil //nolint:nilnil // no news, and nothing is wrong
	}
	f.lastTopologySum = sum
	return &record.Record{Topology: t}, nil
}

// readCounters reads the counters of the host as it was seen last.
func (f *Feed) readCounters(ctx context.Context) (*record.Record, error) {
	c, err := f.o.Sample(ctx, f.topology.Load(), time.Since(f.began))
	if err != nil {
		return nil, err
	}
	if c == nil {
		return nil, errors.New("the counters gave no sample")
	}
	return &record.Record{Counters: c}, nil
}

// maxNotes is how many notes of a watch are shown.
const maxNotes = 4

// watch has the host looked at when something says that it may have changed. What it
// cannot be told of is noted; where it is told of nothing, that is noted, and tried again.
func (f *Feed) watch(ctx context.Context) {
	pause := time.Second
	for {
		var notes []string
		show := func() {
			text := strings.Join(notes, "; ")
			f.watchNote.Store(&text)
			f.Rescan()
		}
		err := f.o.Watch(ctx, func(string) { show() }, func(text string) {
			if text = oneLine(text); len(notes) < maxNotes && !slices.Contains(notes, text) {
				notes = append(notes, text)
				show()
			}
		})
		if ctx.Err() != nil {
			return
		}
		why := "the watch has ended"
		if err != nil {
			why = oneLine(err.Error())
		}
		text := "no news of changes (" + why + "): looked at when asked to"
		if f.o.Every > 0 {
			text = fmt.Sprintf("no news of changes (%s): looked at every %s", why, f.o.Every)
		}
		if was := f.watchNote.Swap(&text); was == nil || *was != text {
			f.Rescan() // what it has missed, and to tell of it
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		pause = min(2*pause, time.Minute)
	}
}
