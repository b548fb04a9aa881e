// Package replay works a workload off in real time, with real bytes: the serving system of
// kv/serve on the system's clock, whose caches the engine moves. Computing is waited for,
// moving takes what it takes. kv/predict gives the same answer without doing any of it.
//
// This process drives one side and has its memory: that of prefill where caches are pushed,
// that of decode where they are pulled. The other side is regions of other engines, in other
// processes or on other hosts: those of "topoctl agent --region" will do. Who drives knows that
// a cache is there when its batches are done; the other side is not told.
//
// Where a region says that it is, the engine takes the lanes that are near: a region for each rank
// has each rank's bytes go its own way.
package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/app/kv"
	"github.com/topoctl/topoctl/internal/app/kv/layout"
	"github.com/topoctl/topoctl/internal/app/kv/serve"
)

// Options say what is replayed.
type Options struct {
	// Serve is the serving system. Its instances are counted by the regions; its pools need
	// a bound.
	Serve    serve.Config
	Workload *kv.Workload
	// Local are the pools of the instances that this process drives, Remote those of the
	// others. With serve.Pull those of decode are local, else those of prefill. An instance has
	// one region or several, on one side all as many: each is for as many of its ranks, in
	// their order, and has its part of RegionBytes at least.
	Local  [][]*engine.Region
	Remote [][]*engine.RemoteRegion
	Seed   uint64 // of the order in which pages are given out
	// Transfer is when a transfer between two ranks is given up; 0: after 10 minutes.
	Transfer time.Duration
	// Check fills caches with a pattern that says whose they are, and reads them back once
	// they are there. A cache counts as arrived after that: times are worthless then.
	Check bool
}

// Result is what came of it.
type Result struct {
	Times                 []kv.Times // in the workload's order
	EndNS                 int64      // when the last request was over, or the run was stopped
	PrefillUse, DecodeUse []serve.Use
	Lanes                 []Lane // that carried something, or failed, by peer and name
	Lost                  []Lost // peers that went away, the first one first
	// Transfers between two ranks that ended well, and what is contiguous in them on both
	// sides.
	Transfers, Pieces int64
	// Timers is how late computing ended and requests were sent, News how long word of
	// caches that had come lay about.
	Timers, News Late
	CheckedBytes int64 // that were as they should be, with Options.Check
}

// Lane is what went over a lane.
type Lane struct {
	Peer, Name, Transport  string
	Bytes, Slices, Retries int64
	// BytesPerSec is what it should carry alone by what is known of both hosts, nil not known.
	// Where that is not the same for all memory, it is the most.
	BytesPerSec *int64
	Error       string // its last one; "": none
}

// Lost is a peer that went away.
type Lost struct {
	Peer string // what it was opened by
	AtNS int64
	Err  error
}

// RegionBytes is what the pool of an instance takes, in all of its regions: all layers of all
// ranks, each with so many pages.
func RegionBytes(m layout.Model, s layout.Side, pages int) (int64, error) {
	p, err := s.Pool(m)
	if err != nil {
		return 0, err
	}
	if pages < 1 || float64(pages)*float64(p.PageBytes)*float64(s.TP)*float64(m.Layers) > maxBytes {
		return 0, fmt.Errorf("%d pages of %d bytes on %d ranks in %d layers: give a page at least, and less than 2^50 bytes", pages, p.PageBytes, s.TP, m.Layers)
	}
	return int64(s.TP) * int64(m.Layers) * int64(pages) * p.PageBytes, nil
}

const (
	maxBytes = 1 << 50
	// MaxPages bounds the pages of an instance: there is an entry for each here, and how many
	// there are peers say.
	MaxPages        = 1 << 24
	defaultTransfer = 10 * time.Minute
)

// Run replays a workload. It fails before anything moves where something does not fit
// together; a request that cannot be answered says so in its times. Where ctx ends it, there
// is a result beside the error, and requests that were not over say so. A peer that is lost
// fails the requests whose caches are on their way to it or there; those that come later go to
// the instances that are left.
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
	m.loop.begin() // those that start ask it for the time
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
			t.Failed = &kv.Failure{Kind: "stopped", Err: errors.New("not over when the run was stopped")}
		}
	}
	return r, fmt.Errorf("replay: stopped: %w", context.Cause(ctx))
}
