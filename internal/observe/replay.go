package observe

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/topoctl/topoctl/internal/record"
)

// maxSources bounds the names in a recording that are told to have ended.
const maxSources = 1024

// ReplayFeed plays a recording.
type ReplayFeed struct {
	from  *record.Reader
	speed float64
}

// Replay plays a recording so many times as fast as it was made; 0: without waiting. It
// can be run once.
func Replay(from io.Reader, speed float64) *ReplayFeed {
	return &ReplayFeed{from: record.NewReader(from), speed: max(speed, 0)}
}

// Rescan does nothing: what is replayed has been looked at.
func (f *ReplayFeed) Rescan() {}

// readResult is what came of reading on.
type readResult struct {
	r   *record.Record
	err error
}

// Run tells the records at their times, counted from the first one, then that every
// source has ended, and waits for the end of ctx: what was seen last is still worth looking
// at. A recording that cannot be read any further ends there, and the sources say why; one
// of which nothing can be read is an error.
func (f *ReplayFeed) Run(ctx context.Context, tell func(*record.Record)) error {
	began := time.Now()
	var first, last int64
	sources := map[string]bool{}
	reading := f.readAhead(ctx)
	for n := 0; ; n++ {
		var next readResult
		select {
		case next = <-reading:
		case <-ctx.Done():
			return nil
		}
		r, err := next.r, next.err
		if err != nil {
			if n == 0 && !errors.Is(err, io.EOF) {
				return err
			}
			endSources(tell, sources, last, f.endReason(err))
			<-ctx.Done()
			return nil
		}
		if n == 0 {
			first = r.AtNS
		}
		if !f.waitUntil(ctx, began, r.AtNS-first) {
			return nil
		}
		if last = r.AtNS; len(sources) < maxSources {
			sources[r.Source] = true
		}
		tell(r)
	}
}

// readAhead reads until ctx ends, or an error. It has a goroutine of its own, which is left where
// it is while a pipe brings nothing: nobody can call it off.
func (f *ReplayFeed) readAhead(ctx context.Context) <-chan readResult {
	out := make(chan readResult)
	go func() {
		for {
			r, err := f.from.Read()
			select {
			case out <- readResult{r, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return out
}

// endReason is why a recording goes no further.
func (f *ReplayFeed) endReason(err error) string {
	switch {
	case !errors.Is(err, io.EOF):
		return oneLine(err.Error())
	case f.from.Note() != "":
		return oneLine(f.from.Note())
	}
	return "the recording has ended"
}

// endSources tells that every source has ended.
func endSources(tell func(*record.Record), sources map[string]bool, at int64, why string) {
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		tell(&record.Record{Schema: record.Schema, AtNS: at, Source: name, State: &record.SourceState{Status: record.StatusEnded, Detail: why}})
	}
}

// waitUntil waits for the time of a record; false: ctx has ended.
func (f *ReplayFeed) waitUntil(ctx context.Context, began time.Time, ns int64) bool {
	left := time.Duration(0)
	if f.speed > 0 {
		left = time.Duration(min(float64(ns)/f.speed, 1e18)) - time.Since(began)
	}
	if left <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
