package lane

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/probe"
)

// This file takes samples of bandwidth by the rules of probe.Spec: a warm-up, then samples until there
// are enough, for no longer than the pair may take.

// Clock is time since some moment, by a clock that nobody steps.
type Clock func() time.Duration

// Monotonic is the clock of the system.
func Monotonic() Clock {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}

// Move moves some bytes and returns how many; 0 if they are not those that are measured. Each worker's
// goroutine calls it again and again. It returns soon, within milliseconds, or when ctx ends.
type Move func(ctx context.Context, worker int) (bytes int64, err error)

// Run measures bandwidth while workers move bytes without a pause. A sample is what arrived between two
// completions that are at least Spec.SampleTime apart, so that neither the beginning nor the end of a
// batch counts as time without bytes.
type Run struct {
	Workers int
	Move    Move
	Now     Clock
	Spec    *probe.Spec
	Tell    func(probe.Sample)
	// Until ends the series, on Now; 0 never.
	Until time.Duration
	// Start is called on each worker's goroutine before its first move, and the function it returns after
	// the last one; nil for nothing.
	Start func(worker int) (stop func(), err error)
	// CPU is the processor time so far; nil: not asked for. It may ask another host.
	CPU func(ctx context.Context) (cpu time.Duration, ok bool)
	// Beside are bytes that cost processor time and are not those that are measured.
	Beside atomic.Int64
}

// Size takes the samples of one size. It returns when all workers have, and adds to out what was measured until
// then, also beside an error.
func (r *Run) Size(ctx context.Context, size int64, out *probe.Measurement) error {
	m := r.meter(size)
	err := m.run(ctx)
	if len(m.samples) > 0 || err == nil {
		out.Bandwidth = append(out.Bandwidth, m.bandwidth())
	}
	out.CPUSecondsPerGB = m.cpu.perGB(m.moved)
	return err
}

func (r *Run) meter(size int64) *meter {
	return &meter{r: r, size: size, samples: []int64{}, cpu: cpuMeter{ask: r.CPU}}
}

// run has the workers move until there are enough samples.
func (m *meter) run(ctx context.Context) error {
	r := m.r
	m.ctx, m.start = ctx, r.Now()+r.Spec.Warmup
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if r.Until > 0 { // also where nothing comes in
		defer cancelStalled(r.Until-r.Now(), cancel)()
	}
	errs := make([]error, r.Workers)
	var running sync.WaitGroup
	for w := range r.Workers {
		running.Go(func() {
			stop, err := r.begin(w)
			if err != nil {
				errs[w] = err
				cancel(err)
				return
			}
			defer stop()
			for !m.over.Load() && ctx.Err() == nil {
				bytes, err := r.Move(ctx, w)
				if err != nil {
					if ctx.Err() == nil {
						errs[w] = err
						cancel(err) // the others need not go on
					}
					return
				}
				if bytes > 0 {
					m.add(bytes)
				}
			}
		})
	}
	running.Wait()
	err := errors.Join(errs...)
	switch {
	case err != nil:
		m.stop(probe.StoppedError)
	case errors.Is(context.Cause(ctx), ErrStalled):
		m.stop(probe.StoppedTime)
		if len(m.samples) == 0 {
			err = ErrStalled
		}
	case ctx.Err() != nil:
		m.stop(stopReason(ctx))
		err = context.Cause(ctx)
	}
	return err
}

func (r *Run) begin(worker int) (stop func(), err error) {
	if r.Start == nil {
		return func() {}, nil
	}
	return r.Start(worker)
}

// stallTime is how long after the end of the time outstanding moves are waited for. Tests wait less.
var stallTime = time.Second

// ErrStalled says that nothing was moved in the time for a pair.
var ErrStalled = pkgerr.New("probe", "nothing arrived within the time for the pair")

// cancelStalled calls cancel with ErrStalled a little after a time is over, unless stop is called before.
func cancelStalled(left time.Duration, cancel context.CancelCauseFunc) (stop func()) {
	t := time.AfterFunc(max(0, left)+stallTime, func() { cancel(ErrStalled) })
	return func() { t.Stop() }
}

// meter makes samples of completions.
type meter struct {
	r    *Run
	size int64
	ctx  context.Context // of the processor time
	over atomic.Bool

	mu       sync.Mutex
	cpu      cpuMeter
	began    bool
	start    time.Duration // of the present sample; before that, the end of the warm-up
	bytes    int64         // of the present sample
	moved    int64         // from the end of the warm-up to the end
	samples  []int64
	sampled  int64         // bytes of all samples
	duration time.Duration // of all samples
	stopped  string        // why there are no more; "" there are
}

func (m *meter) add(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.r.Now()
	late := m.r.Until > 0 && now >= m.r.Until
	switch {
	case m.over.Load():
		return
	case !m.began && now >= m.start && !late:
		m.began, m.start = true, now
		m.cpu.begin(m.ctx, m.r.Beside.Load())
		return
	case m.began:
		m.bytes += bytes
		m.moved += bytes
		if now-m.start >= m.r.Spec.SampleTime || late && len(m.samples) == 0 {
			late = m.sample(now) || late
		}
	}
	if late {
		m.stop(probe.StoppedTime)
		m.over.Store(true)
		if m.began {
			m.cpu.end(m.ctx, m.r.Beside.Load())
		}
	}
}

// sample ends a sample, and says whether there are enough.
func (m *meter) sample(now time.Duration) (enough bool) {
	bytes, took := m.bytes, now-m.start
	m.start, m.bytes = now, 0
	if took <= 0 {
		return false
	}
	rate := int64(float64(bytes) / took.Seconds())
	m.samples = append(m.samples, rate)
	m.sampled += bytes
	m.duration += took
	if m.r.Tell != nil {
		m.r.Tell(probe.Sample{SizeBytes: m.size, BytesPerSec: rate})
	}
	m.stopped, enough = m.r.Spec.Enough(m.samples)
	return enough
}

// stop says why there are no more samples, unless there were enough.
func (m *meter) stop(why string) { m.stopped = cmp.Or(m.stopped, why) }

// bandwidth sums the samples up.
func (m *meter) bandwidth() probe.Bandwidth {
	return probe.NewBandwidth(m.size, m.samples, m.sampled, int64(m.duration), m.stopped)
}

// stopReason says why ctx ended sampling: Spec.PairTime, the end of the run, or the user.
func stopReason(ctx context.Context) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return probe.StoppedTime
	}
	return probe.StoppedInterrupted
}

// Deadline is when the time for a pair that begins now is over; 0: it has no limit.
func Deadline(now Clock, spec *probe.Spec) time.Duration {
	if spec.PairTime == 0 {
		return 0
	}
	return now() + spec.PairTime
}

// Sizes measures each size of a Spec until its share of the time that is left; last is the size that is judged.
// It ends with the first error.
func Sizes(now Clock, spec *probe.Spec, until time.Duration, measure func(size int64, until time.Duration, last bool) error) error {
	for i, size := range spec.SizesBytes {
		left := len(spec.SizesBytes) - i
		if err := measure(size, Share(now(), until, left), left == 1); err != nil {
			return err
		}
	}
	return nil
}

// Share is the end of the first of parts equal parts of what is left until a time; 0 for
// a time of 0, which never comes.
func Share(now, until time.Duration, parts int) time.Duration {
	if until == 0 {
		return 0
	}
	return max(1, now+max(0, until-now)/time.Duration(parts))
}
