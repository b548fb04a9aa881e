package observe

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/internal/text"
)

// source is asked again and again, one call at a time.
type source struct {
	name      string
	every     time.Duration // from one call to the next; 0: only when woken
	lateAfter time.Duration // a call that takes longer is told of
	// ask gives news; a nil record says that nothing has changed.
	ask  func(ctx context.Context) (*record.Record, error)
	wake <-chan struct{} // nil never
	// ready is closed when there is something to ask about; nil: there is from the beginning.
	ready <-chan struct{}
	// note is what is to be said of a source that works; nil nothing.
	note func() *string

	lastState record.SourceState // that was emitted
	failures  int                // in a row
	calls     sync.WaitGroup
	busy      atomic.Bool // a call has not returned
	callBegan time.Time   // the last one
	callEnded time.Time
}

// answer is what came of a call.
type answer struct {
	r   *record.Record
	err error
	at  int64
}

// poll asks a source until ctx ends.
func (f *Feed) poll(ctx context.Context, s *source) {
	if s.ready != nil {
		select {
		case <-s.ready:
		case <-ctx.Done():
			return
		}
	}
	for {
		a, ok := f.call(ctx, s)
		if !ok || !f.report(s, a) || !s.awaitNext(ctx) {
			return
		}
	}
}

// call asks once. Calls that take long are told of; false: ctx has ended. The call has a
// goroutine of its own, because a file or a driver may hold it whatever ctx says.
func (f *Feed) call(ctx context.Context, s *source) (answer, bool) {
	done := make(chan answer, 1)
	s.callBegan = time.Now()
	s.busy.Store(true)
	s.calls.Go(func() {
		r, err := s.ask(ctx)
		s.busy.Store(false)
		done <- answer{r, err, f.now()}
	})
	late := time.NewTimer(s.lateAfter)
	defer late.Stop()
	for {
		select {
		case a := <-done:
			s.callEnded = time.Now()
			return a, ctx.Err() == nil
		case <-ctx.Done():
			return answer{}, false
		case <-late.C:
			// What has failed is known not to work: that it hangs now is no news.
			if s.lastState.Status != record.StatusFailed {
				f.state(s, record.StatusWaiting, fmt.Sprintf("no answer for %s", s.lateAfter), f.now())
			}
		}
	}
}

// report tells what came of a call; false: the feed is over.
func (f *Feed) report(s *source, a answer) bool {
	if a.err != nil {
		s.failures++
		return f.state(s, record.StatusFailed, oneLine(a.err.Error()), a.at)
	}
	s.failures = 0
	note := ""
	if s.note != nil {
		if said := s.note(); said != nil {
			note = *said
		}
	}
	if !f.state(s, record.StatusOK, note, a.at) {
		return false
	}
	if a.r == nil {
		return true
	}
	a.r.Schema, a.r.Source, a.r.AtNS = record.Schema, s.name, a.at
	return f.emit(a.r)
}

// state tells how a source does where that has changed.
func (f *Feed) state(s *source, status, detail string, at int64) bool {
	now := record.SourceState{Status: status, Detail: detail}
	if now == s.lastState {
		return true
	}
	s.lastState = now
	return f.emit(&record.Record{Schema: record.Schema, AtNS: at, Source: s.name, State: &now})
}

// awaitNext waits for the time of the next call; false: ctx has ended.
func (s *source) awaitNext(ctx context.Context) bool {
	var due <-chan time.Time
	if d, ok := s.untilNext(); ok {
		timer := time.NewTimer(d)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-due:
		return true
	case <-s.wake:
	}
	timer := time.NewTimer(max(settleTime, minHostPause-time.Since(s.callEnded)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	}
	select {
	case <-s.wake: // what came meanwhile is seen by the same look
	default:
	}
	return true
}

// untilNext is how long it is until the next call; false: until somebody wakes the source. A
// source that takes all its time for an answer rests a tenth of it.
func (s *source) untilNext() (time.Duration, bool) {
	if s.failures > 0 {
		first := time.Second
		if s.every > 0 {
			first = min(first, s.every)
		}
		return min(maxRetryPause, first<<min(s.failures-1, 10)), true
	}
	return max(s.every-s.callEnded.Sub(s.callBegan), s.every/10), s.every > 0
}

// maxDetail is what a source may say of itself, in columns.
const maxDetail = 200

// oneLine is the first line of a text, made printable.
func oneLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return text.Cut(text.Printable(s), maxDetail, text.Dots)
}
