package lane

import (
	"context"
	"errors"
	"time"

	"github.com/topoctl/topoctl/internal/measure/judge"
	"github.com/topoctl/topoctl/probe"
)

// series are the samples of one size.
type series struct {
	size     int64
	spec     *probe.Spec
	tell     func(probe.Sample) // nil: nobody is told
	samples  []int64
	bytes    int64
	duration time.Duration
	stopped  string
}

// add adds a sample, and says whether there are enough.
func (s *series) add(bytes int64, took time.Duration) (enough bool) {
	if took <= 0 {
		return false
	}
	rate := int64(float64(bytes) / took.Seconds())
	s.samples = append(s.samples, rate)
	s.bytes += bytes
	s.duration += took
	if s.tell != nil {
		s.tell(probe.Sample{SizeBytes: s.size, BytesPerSec: rate})
	}
	s.stopped, enough = judge.Enough(s.samples, *s.spec)
	return enough
}

// stop says why there are no more samples, unless there were enough.
func (s *series) stop(why string) {
	if s.stopped == "" {
		s.stopped = why
	}
}

// bandwidth sums the series up.
func (s *series) bandwidth() probe.Bandwidth {
	return judge.Bandwidth(s.size, s.samples, s.bytes, int64(s.duration), s.stopped)
}

// stopReason says why ctx ended sampling: Spec.PairTime, the end of the run, or the user.
func stopReason(ctx context.Context) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return probe.StoppedTime
	}
	return probe.StoppedInterrupted
}
