package tui

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/tui/internal/state"
)

// Frame returns the dashboard's first complete picture as text of h lines of at most w columns,
// without escape codes unless Options.Color is set. It waits until the topology is known and the
// counters and each agent have been read twice or failed, or until the recording, the feed or ctx
// ends. whole is false if ctx ended first; the error is that of a feed that failed, or ErrInvalid.
func Frame(ctx context.Context, o Options, w, h int) (text string, whole bool, err error) {
	o, err = o.checked()
	if err != nil {
		return "", false, err
	}
	end, err := o.Feed.begin()
	if err != nil {
		return "", false, err
	}
	defer end()
	m := newModel(o)
	m.look.Bare = !o.Color
	m.w, m.h = w, h
	inner, stop := context.WithCancel(ctx)
	defer stop()
	in := make(chan *record.Record)
	ended := make(chan error, 1)
	var feed sync.WaitGroup
	feed.Go(func() {
		ended <- o.Feed.source.Run(inner, func(r *record.Record) {
			select {
			case in <- r:
			case <-inner.Done():
			}
		})
	})
	looks := map[string]int{}
	for more := true; more && !whole; {
		select {
		case r := <-in:
			m.apply(r)
			if r.Counters != nil || r.Engine != nil {
				looks[r.Source]++
			}
			whole = m.whole(looks)
		case err = <-ended:
			whole, more = err == nil, false
		case <-inner.Done():
			more = false
		}
	}
	stop()
	feed.Wait()
	if err != nil {
		return "", false, pkgerr.Errorf("tui", "%w", err)
	}
	return plain(m.draw(&m.look)), whole, nil
}

// whole says whether a picture has what the feed can bring, after this many readings of each
// source.
func (m *model) whole(looks map[string]int) bool {
	if m.o.Feed.replay != "" {
		return m.replayEnded()
	}
	agents := 0
	for i := range m.live.Sources {
		x := &m.live.Sources[i]
		done := looks[x.Name] > 1 || x.Status == record.StatusFailed
		switch {
		case x.Name == record.SourceCounters && !done:
			return false
		case strings.HasPrefix(x.Name, record.AgentPrefix) && done:
			agents++
		}
	}
	counters := !m.o.Feed.counters || slices.ContainsFunc(m.live.Sources, func(x state.Source) bool { return x.Name == record.SourceCounters })
	return m.live.Topology != nil && counters && agents >= m.o.Feed.agents
}

// plain is a frame as lines of a file.
func plain(frame string) string {
	var out strings.Builder
	for line := range strings.SplitSeq(frame, "\n") {
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return out.String()
}
