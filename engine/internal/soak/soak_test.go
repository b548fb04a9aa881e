package soak

import (
	"sync"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/fake"
	"github.com/topoctl/topoctl/engine/internal/transport/faulty"
)

// run lets workers go round until that number of slices was done.
func (w *world) run(workers int, slices int64) {
	w.t.Helper()
	local, there, remote := w.regions(int64(workers) * stripeBytes)
	start := time.Now()
	stripes := make([]*stripe, workers)
	var all sync.WaitGroup
	for i := range stripes {
		s := newStripe(w.peer, i, local, there.Bytes(), remote)
		s.noise(s.far, s.wantF)
		stripes[i] = s
		all.Go(func() {
			for !w.t.Failed() && w.a.Stats().Slices < slices {
				if err := s.round(); err != nil {
					w.t.Errorf("worker %d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
	var batches int
	var moved int64
	var longest time.Duration
	for _, s := range stripes {
		batches += s.batches
		moved += s.bytes
		longest = max(longest, s.longest)
	}
	stats := w.a.Stats()
	w.t.Logf("%d lanes: %d slices in %d batches, %d MB, %d slices sent again, %.1f s, longest batch %v",
		len(stats.Lanes), stats.Slices, batches, moved>>20, stats.Retries, time.Since(start).Seconds(), longest.Round(time.Millisecond))
	if stats.Failed != 0 || stats.Unsafe != 0 {
		w.t.Errorf("%d batches failed, %d were unsafe", stats.Failed, stats.Unsafe)
	}
}

// A million slices over a transport that does everything that the contract allows.
func TestFaultyTransport(t *testing.T) {
	slices := length(5_000, 15_000, 1_000_000)
	// Each of these ends a connection, which the scheduler punishes with seconds: so
	// many of each, whatever the length.
	rare := 12.0 / float64(slices)
	if slices >= 1_000_000 {
		rare *= 8
	}
	plan := faulty.Plan{
		Seed: 1, Drop: rare, Hold: 2 * rare, LateMax: 300 * time.Millisecond, Kill: rare, Fail: rare, Corrupt: 2 * rare,
		Delay: 0.01, DelayMax: 3 * time.Millisecond, Duplicate: 0.01, FailDial: 0.05,
	}
	var faults, leaves *faulty.Transport
	a, b := onFake(fake.Options{Lanes: 16, MaxBytes: 4096, MaxSpans: 4}, func(name string, t transport.Transport) transport.Transport {
		if name == "b" { // leaves connections, not always at the first time
			leaves = faulty.Wrap(t, faulty.Plan{Seed: 2, FailLeave: 0.1})
			return leaves
		}
		faults = faulty.Wrap(t, plan)
		return faults
	})
	w := newWorld(t, a, b, engine.CheckAlways)
	w.open("")
	w.run(8, int64(slices))
	n := faults.Counts()
	n.FailedLeaves = leaves.Counts().FailedLeaves
	t.Logf("faults: %+v", n)
	if n.Dropped == 0 || n.Delayed == 0 || n.Duplicated == 0 || n.Failed == 0 || n.Corrupted == 0 {
		t.Errorf("some faults never happened: %+v", n)
	}
}
