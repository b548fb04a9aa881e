package lane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/topoctl/topoctl/internal/measure/judge"
	"github.com/topoctl/topoctl/probe"
)

// Limits of what a Spec may ask for, which may have come from another host.
const (
	maxSamples  = 1 << 16
	maxLatency  = 1 << 20
	maxSizes    = 64
	maxDuration = 24 * time.Hour
)

// Check refuses a Spec that makes no sense or asks for more than one process should hold.
func Check(s *probe.Spec) error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"warm-up", s.Warmup}, {"sample", s.SampleTime}, {"time for a pair", s.PairTime}} {
		if d.value < 0 || d.value > maxDuration {
			return fmt.Errorf("%s of %v: want 0 to %v", d.name, d.value, maxDuration)
		}
	}
	switch {
	case len(s.SizesBytes) > maxSizes:
		return fmt.Errorf("%d sizes: want at most %d", len(s.SizesBytes), maxSizes)
	case len(s.SizesBytes) > 0 && s.SampleTime == 0:
		return errors.New("samples of bandwidth take no time: want more than 0")
	case len(s.SizesBytes) > 0 && (s.MaxSamples < 1 || s.MaxSamples > maxSamples || s.MinSamples < 0 || s.MinSamples > s.MaxSamples):
		return fmt.Errorf("%d to %d samples: want up to %d, and a minimum that is not above the maximum", s.MinSamples, s.MaxSamples, maxSamples)
	case !(s.CI >= 0): // also NaN
		return fmt.Errorf("confidence interval of %v: want a part of the mean", s.CI)
	case s.LatencySamples < 0 || s.LatencySamples > maxLatency:
		return fmt.Errorf("%d samples of latency: want 0 to %d", s.LatencySamples, maxLatency)
	case s.RateLimit < 0:
		return fmt.Errorf("rate limit of %d bytes/s: want 0 or more", s.RateLimit)
	}
	last := int64(0)
	for _, size := range s.SizesBytes {
		if size <= last {
			return fmt.Errorf("sizes %v: want 1 byte or more, ascending", s.SizesBytes)
		}
		last = size
	}
	return nil
}

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
