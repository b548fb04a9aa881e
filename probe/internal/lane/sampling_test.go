package lane

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/topoctl/topoctl/probe"
)

// spec wants 100 ms samples after 50 ms.
func spec() probe.Spec {
	return probe.Spec{Warmup: 50 * time.Millisecond, SampleTime: 100 * time.Millisecond, MinSamples: 3, MaxSamples: 10, CI: 0.025, SizesBytes: []int64{1000}}
}

// steps is one worker whose moves take a time of their own, on a clock that only they move.
func steps(s *probe.Spec, until time.Duration, each func(k int) (took time.Duration, bytes int64, err error)) *Run {
	var now time.Duration
	k := 0
	return &Run{Workers: 1, Now: func() time.Duration { return now }, Spec: s, Until: until, Move: func(context.Context, int) (int64, error) {
		took, bytes, err := each(k)
		k++
		now += took
		return bytes, err
	}}
}

// Samples begin at the first completion behind the warm-up and end at completions; what is
// moved before does not count, and a beginning or end of a move is in no figure.
func TestSize(t *testing.T) {
	s := spec()
	r := steps(&s, 0, func(k int) (time.Duration, int64, error) {
		if k < 2 { // the warm-up is slower
			return 40 * time.Millisecond, 1, nil
		}
		return 40 * time.Millisecond, 4000, nil
	})
	asked := 0
	r.CPU = func(context.Context) (time.Duration, bool) {
		asked++
		return time.Duration(asked) * time.Millisecond, true
	}
	var told []probe.Sample
	r.Tell = func(s probe.Sample) { told = append(told, s) }
	var m probe.Measurement
	if err := r.Size(t.Context(), 1000, &m); err != nil || len(m.Bandwidth) != 1 {
		t.Fatal(err)
	}
	b := m.Bandwidth[0]
	// 40 and 80 ms warm up; samples are three moves of 40 ms each.
	if !slices.Equal(b.SamplesBytesPerSec, []int64{100000, 100000, 100000}) || b.Stopped != probe.StoppedCI || b.Bytes != 36000 ||
		b.DurationNS != int64(360*time.Millisecond) || b.SizeBytes != 1000 {
		t.Errorf("%+v", b)
	}
	// From the first look to the second one 36000 bytes were moved in a millisecond of a processor.
	if cpu := m.CPUSecondsPerGB; asked != 2 || cpu == nil || *cpu != 27.7778 {
		t.Errorf("asked %d times, %v", asked, cpu)
	}
	if len(told) != 3 || told[0] != (probe.Sample{SizeBytes: 1000, BytesPerSec: 100000}) {
		t.Errorf("told %v", told)
	}
}

// measure takes the samples of ops of 1000 bytes.
func measure(ctx context.Context, r *Run) (*meter, error) {
	m := r.meter(1000)
	return m, m.run(ctx)
}

func TestStopped(t *testing.T) {
	unsteady := func(k int) (time.Duration, int64, error) {
		return 100 * time.Millisecond, int64(1000 + k%2*9000), nil
	}
	s := spec()
	m, err := measure(t.Context(), steps(&s, 0, unsteady))
	if b := m.bandwidth(); err != nil || b.Stopped != probe.StoppedMaxSamples || len(b.SamplesBytesPerSec) != 10 {
		t.Errorf("unsteady: %+v, %v", b, err)
	}
	m, err = measure(t.Context(), steps(&s, 450*time.Millisecond, unsteady))
	if b := m.bandwidth(); err != nil || b.Stopped != probe.StoppedTime || len(b.SamplesBytesPerSec) != 4 {
		t.Errorf("no time: %+v, %v", b, err)
	}
	// A sample that the end cuts short is taken where there is no other.
	m, err = measure(t.Context(), steps(&s, 130*time.Millisecond, func(int) (time.Duration, int64, error) { return 60 * time.Millisecond, 600, nil }))
	if b := m.bandwidth(); err != nil || b.Stopped != probe.StoppedTime || !slices.Equal(b.SamplesBytesPerSec, []int64{10000}) {
		t.Errorf("hardly any time: %+v, %v", b, err)
	}
	broken := errors.New("broken")
	m, err = measure(t.Context(), steps(&s, 0, func(k int) (time.Duration, int64, error) {
		if k == 4 {
			return 0, 0, broken
		}
		return unsteady(k)
	}))
	if b := m.bandwidth(); !errors.Is(err, broken) || b.Stopped != probe.StoppedError || len(b.SamplesBytesPerSec) != 3 {
		t.Errorf("broken: %+v, %v", b, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	m, err = measure(ctx, steps(&s, 0, func(k int) (time.Duration, int64, error) {
		if k == 4 {
			cancel()
		}
		return 100 * time.Millisecond, int64(1000 + k*1000), nil
	}))
	if b := m.bandwidth(); !errors.Is(err, context.Canceled) || b.Stopped != probe.StoppedInterrupted || len(b.SamplesBytesPerSec) < 3 {
		t.Errorf("interrupted: %+v, %v", b, err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	r := Run{Workers: 2, Now: Monotonic(), Spec: &s, Move: func(ctx context.Context, _ int) (int64, error) { <-ctx.Done(); return 0, ctx.Err() }}
	m, err = measure(ctx, &r)
	if b := m.bandwidth(); len(m.samples) > 0 || !errors.Is(err, context.DeadlineExceeded) || b.Stopped != probe.StoppedTime || b.SamplesBytesPerSec == nil {
		t.Errorf("the run's end: %+v, %v", b, err)
	}
}

// stallSoon has a test wait less for moves that never end.
func stallSoon(t *testing.T) {
	before := stallTime
	stallTime = 20 * time.Millisecond
	t.Cleanup(func() { stallTime = before })
}

// Where nothing comes in at all, the time for the pair ends it, and it is an error.
func TestSamplingStalled(t *testing.T) {
	stallSoon(t)
	s := spec()
	now := Monotonic()
	r := Run{Workers: 1, Now: now, Spec: &s, Until: now() + time.Millisecond, Move: func(ctx context.Context, _ int) (int64, error) { <-ctx.Done(); return 0, ctx.Err() }}
	m, err := measure(t.Context(), &r)
	if b := m.bandwidth(); len(m.samples) > 0 || !errors.Is(err, ErrStalled) || b.Stopped != probe.StoppedTime {
		t.Errorf("%+v, %v", b, err)
	}
}

// Each worker is set up on its goroutine and undone, and one that cannot be ends the others.
func TestStart(t *testing.T) {
	s := spec()
	s.Warmup, s.SampleTime, s.CI = 0, time.Nanosecond, 1
	var mu sync.Mutex
	open := 0
	r := Run{Workers: 4, Now: Monotonic(), Spec: &s, Move: func(context.Context, int) (int64, error) { return 1, nil }}
	r.Start = func(int) (func(), error) {
		mu.Lock()
		defer mu.Unlock()
		open++
		return func() { mu.Lock(); open--; mu.Unlock() }, nil
	}
	if _, err := measure(t.Context(), &r); err != nil || open != 0 {
		t.Errorf("%d are open, %v", open, err)
	}
	refused := errors.New("refused")
	start := r.Start
	s.MaxSamples, s.MinSamples = 1<<16, 1<<16
	r.Start = func(w int) (func(), error) {
		if w == 2 {
			return nil, refused
		}
		return start(w)
	}
	if _, err := measure(t.Context(), &r); !errors.Is(err, refused) || open != 0 {
		t.Errorf("%d are open, %v", open, err)
	}
}

func TestShare(t *testing.T) {
	for _, c := range []struct {
		now, until, want time.Duration
		parts            int
	}{{5, 0, 0, 2}, {0, 100, 50, 2}, {40, 100, 60, 3}, {100, 100, 100, 3}, {120, 100, 120, 1}} {
		if got := Share(c.now, c.until, c.parts); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// The pace is kept over many small pieces and few large ones.
func TestPacer(t *testing.T) {
	for _, piece := range []int64{1000, 100_000} {
		p := Pacer{Now: Monotonic(), PerSec: 2_000_000}
		start := time.Now()
		for range 200_000 / piece {
			if err := p.Wait(t.Context(), piece); err != nil {
				t.Fatal(err)
			}
		}
		// All but the last piece's time is waited for.
		if took, least := time.Since(start), time.Duration(200_000-piece)*time.Second/2_000_000; took < least {
			t.Errorf("pieces of %d bytes took %v, want %v", piece, took, least)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := Pacer{Now: Monotonic(), PerSec: 1}
	if err := errors.Join(p.Wait(t.Context(), 100), p.Wait(ctx, 1)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A burst goes at once, what follows at the rate, and a pause allows a burst again.
func TestPacerBurst(t *testing.T) {
	now := time.Duration(0)
	p := Pacer{Now: func() time.Duration { return now }, PerSec: 32, Burst: 511 * time.Second / 32}
	for i := range 512 {
		if d := p.next(1); d != 0 {
			t.Fatalf("%d waits %v", i, d)
		}
	}
	if d := p.next(1); d != time.Second/32 {
		t.Errorf("one more waits %v", d)
	}
	now = 2 * time.Second
	if d := p.next(1); d != 0 {
		t.Errorf("later, one waits %v", d)
	}
}

func TestCPU(t *testing.T) {
	spent := 3 * time.Second
	c := cpuMeter{ask: func(context.Context) (time.Duration, bool) { spent += time.Second; return spent, true }}
	c.begin(t.Context(), 0)
	c.begun.Wait()
	c.end(t.Context(), 1e9)
	if got := c.perGB(3e9); got == nil || *got != 0.25 {
		t.Errorf("%v", got)
	}
	unknown := cpuMeter{ask: func(context.Context) (time.Duration, bool) { return 0, false }}
	unknown.begin(t.Context(), 0)
	unknown.end(t.Context(), 0)
	if got := unknown.perGB(1e9); got != nil {
		t.Errorf("%v", *got)
	}
	if got := (&cpuMeter{}).perGB(1e9); got != nil {
		t.Errorf("never asked: %v", *got)
	}
}
