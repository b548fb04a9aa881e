// Package replay runs a workload in real time, with real bytes: the serving system of kv/serve
// on the system's clock, whose caches the engine moves. Computing is simulated by waiting,
// moving takes as long as it takes. serve.Run answers the same question without moving anything.
//
// This process drives one side and has its memory: that of prefill where caches are pushed,
// that of decode where they are pulled. The other side is regions of other engines, in other
// processes or on other hosts: those of "topoctl agent --region" will do. The driving side knows
// that a cache has arrived when its batches are done; the other side is not told.
//
// The engine prefers lanes near a region's location: with a region for each rank, each rank's
// bytes take their own way.
package replay

import (
	"context"
	"fmt"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/kv"
	"github.com/topoctl/topoctl/internal/kv/serve"
)

// Options say what is replayed.
type Options struct {
	// Serve is the serving system. Its instances are counted by the regions; its pools must be
	// bounded.
	Serve    serve.Config
	Workload *kv.Workload
	// Local are the pools of the instances that this process drives, Remote those of the
	// others. With serve.Pull those of decode are local, else those of prefill. An instance has
	// one or more regions, the same number for all instances of a side. Each region is for an
	// equal number of its ranks, in order, and has at least its part of RegionBytes.
	Local  [][]*engine.Region
	Remote [][]*engine.RemoteRegion
	Seed   uint64 // of the order in which pages are allocated
	// Transfer is the timeout of a transfer between two ranks; 0: 10 minutes.
	Transfer time.Duration
	// Check fills caches with a pattern that identifies their owner, and reads them back once
	// they have arrived. That delays arrival, so times mean nothing then.
	Check bool
}

// Result is the outcome of a run.
type Result struct {
	Times                 []kv.Times // in the workload's order
	EndNS                 int64      // when the last request finished, or the run was stopped
	PrefillUse, DecodeUse []serve.Use
	Lanes                 []Lane // that carried something, or failed, by peer and name
	Lost                  []Lost // peers that went away, the first one first
	// Transfers between two ranks that succeeded, and how many pieces of them were contiguous
	// on both sides.
	Transfers, Pieces int64
	// Timers is how late computing ended and requests were sent, News how long arrived caches
	// waited to be noticed.
	Timers, News Late
	CheckedBytes int64 // that were correct, with Options.Check
}

// Lane is what went over a lane.
type Lane struct {
	Peer, Name, Transport  string
	Bytes, Slices, Retries int64
	// BytesPerSec is the expected rate of the lane alone, nil not known. Where it differs by
	// memory, it is the highest.
	BytesPerSec *int64
	Error       string // its last one; "": none
}

// Lost is a peer that went away.
type Lost struct {
	Peer string // what it was opened by
	AtNS int64
	Err  error
}

// RegionBytes is the size of an instance's pool over all of its regions: a number of pages for
// each layer of each rank.
func RegionBytes(m kv.Model, s kv.Side, pages int) (int64, error) {
	p, err := s.Pool(m)
	if err != nil {
		return 0, err
	}
	if pages < 1 || float64(pages)*float64(p.PageBytes)*float64(s.TP)*float64(m.Layers) > maxBytes {
		return 0, fmt.Errorf("%d pages of %d bytes on %d ranks in %d layers: want at least one page and less than 2^50 bytes", pages, p.PageBytes, s.TP, m.Layers)
	}
	return int64(s.TP) * int64(m.Layers) * int64(pages) * p.PageBytes, nil
}

const (
	maxBytes = 1 << 50
	// MaxPages bounds the pages of an instance, since peers say how many there are and this
	// process has an entry for each.
	MaxPages        = 1 << 24
	defaultTransfer = 10 * time.Minute
)

// Run replays a workload. It fails before anything moves where something does not fit
// together; a request that cannot be answered says so in its times. If ctx ends the run, Run
// returns a result with the error, and requests that had not finished say so. Losing a peer
// fails the requests whose caches are there or on their way; later requests go to the
// remaining instances.
func Run(ctx context.Context, o Options) (*Result, error) {
	m, err := newMover(&o)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	system, err := serve.New(o.Serve, o.Workload, m.loop, m)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	m.stopRouting = func(instance int) { system.StopRouting(!m.pull(), instance) }
	moving, stop := context.WithCancel(ctx)
	m.loop.begin() // start reads the time
	m.start(moving)
	over := false
	system.Start(func() { over = true })
	m.loop.run(ctx, &over)
	end := m.loop.sinceNS()
	stop()
	m.wait()
	r := &Result{Times: system.Times(), EndNS: end, PrefillUse: system.PrefillUse(), DecodeUse: system.DecodeUse(), Lanes: m.usedLanes(), Lost: m.lostPeers,
		Transfers: m.transfers, Pieces: m.pieces, Timers: lateness(m.loop.timersLate), News: lateness(m.loop.postedLate), CheckedBytes: m.checked.Load()}
	m.failLostAnswers(r.Times)
	if over {
		return r, nil
	}
	for i := range r.Times {
		t, asked := &r.Times[i], &o.Workload.Requests[i]
		if t.Request = asked.ID; t.Failed == nil && len(t.TokensNS) < asked.Output {
			t.Failed = &kv.Failure{Kind: "stopped", Err: kv.ErrStopped}
		}
	}
	return r, fmt.Errorf("replay: stopped: %w", context.Cause(ctx))
}
