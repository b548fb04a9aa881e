//go:build vmlab && linux && cgo

package rdma

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/engine"
)

// traffic moves random ranges, WRITEs and READs mixed, until it is stopped. Each worker
// has a stripe of both regions for itself, and keeps its part of the shadows true.
type traffic struct {
	d       *duo
	maxOp   int64
	maxOps  int
	stop    context.CancelFunc
	workers sync.WaitGroup

	batches, reads, writes, readBytes, writtenBytes atomic.Int64
	slowest                                         atomic.Int64 // ns, of a batch since it was asked for
	last                                            atomic.Pointer[engine.Batch]
}

// startTraffic has each worker move batches of up to maxOps ranges of up to maxOp bytes.
func (d *duo) startTraffic(workers, maxOps int, maxOp int64, rng *rand.Rand) *traffic {
	ctx, cancel := context.WithCancel(context.Background())
	t := &traffic{d: d, maxOp: maxOp, maxOps: maxOps, stop: cancel}
	stripe := min(int64(len(d.here)), int64(len(d.there))) / int64(workers)
	for w := range workers {
		own := rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))
		t.workers.Go(func() {
			for ctx.Err() == nil {
				if err := t.batch(int64(w)*stripe, stripe, own); err != nil {
					d.Errorf("worker %d: %v", w, err)
					return
				}
			}
		})
	}
	return t
}

// end stops it, and waits.
func (t *traffic) end() {
	t.stop()
	t.workers.Wait()
}

func (t *traffic) String() string {
	return fmt.Sprintf("%d batches, %d WRITEs of %d bytes, %d READs of %d bytes", t.batches.Load(),
		t.writes.Load(), t.writtenBytes.Load(), t.reads.Load(), t.readBytes.Load())
}

// takeSlowest is the longest that a batch took since it was last asked for.
func (t *traffic) takeSlowest() time.Duration { return time.Duration(t.slowest.Swap(0)) }

// move is one op and its places.
type move struct {
	read               bool
	local, remote, len int64
}

// batch moves one batch in a stripe, and checks what was read.
func (t *traffic) batch(at, size int64, rng *rand.Rand) error {
	d := t.d
	n := 1 + rng.IntN(t.maxOps)
	pitch := size / int64(n)
	places := rng.Perm(n)
	ops, moves := make([]engine.Op, n), make([]move, n)
	for i := range ops {
		bytes := 1 + rng.Int64N(min(t.maxOp, pitch-1))
		m := move{rng.IntN(2) == 0, at + int64(i)*pitch + rng.Int64N(pitch-bytes), at + int64(places[i])*pitch + rng.Int64N(pitch-bytes), bytes}
		moves[i] = m
		local, remote := d.mine.Span(m.local, m.len), d.theirs.At(m.remote)
		if m.read {
			ops[i] = engine.ReadOp(local, remote)
			continue
		}
		noise(d.here[m.local:m.local+m.len], rng)
		copy(d.mine.Bytes()[m.local:], d.here[m.local:m.local+m.len])
		ops[i] = engine.WriteOp(local, remote)
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	began := time.Now()
	b, err := d.peer.Submit(ctx, ops, engine.SubmitOptions{})
	if err != nil {
		return err
	}
	<-b.Done()
	t.last.Store(b)
	took := time.Since(began)
	if err := b.Err(); err != nil {
		return fmt.Errorf("a batch of %d ops failed after %v: %w\n%s", n, took, err, b.Explain().Text())
	}
	for old := t.slowest.Load(); int64(took) > old && !t.slowest.CompareAndSwap(old, int64(took)); old = t.slowest.Load() {
	}
	if err := t.settle(moves); err != nil {
		return fmt.Errorf("%w\n%s", err, b.Explain().Text())
	}
	return nil
}

// settle brings the shadows to what must be true now, and compares what was read.
func (t *traffic) settle(moves []move) error {
	d := t.d
	var errs []error
	for _, m := range moves {
		here, there := d.here[m.local:m.local+m.len], d.there[m.remote:m.remote+m.len]
		if !m.read {
			copy(there, here)
			t.writes.Add(1)
			t.writtenBytes.Add(m.len)
			continue
		}
		if got := d.mine.Bytes()[m.local : m.local+m.len]; !bytes.Equal(got, there) {
			errs = append(errs, fmt.Errorf("a READ of %d bytes at %d to %d brought wrong bytes: %s", m.len, m.remote, m.local, t.wrong(got, here, there)))
		}
		copy(here, there)
		t.reads.Add(1)
		t.readBytes.Add(m.len)
	}
	t.batches.Add(1)
	return errors.Join(errs...)
}

// wrong says what a READ brought that should have brought want, to where before was: what
// did not land, what came from another place, and what is there some time later.
func (t *traffic) wrong(got, before, want []byte) string {
	first, last, stale := -1, 0, 0
	for i := range got {
		if got[i] == want[i] {
			continue
		}
		if first < 0 {
			first = i
		}
		last = i
		if got[i] == before[i] {
			stale++
		}
	}
	text := fmt.Sprintf("from %d to %d, of which %d bytes are as they were before", first, last, stale)
	const some = 16
	if part := got[first:min(first+some, len(got))]; len(part) == some {
		text += fmt.Sprintf("; the first of them are at %d of the peer's region, as it should be, and at %d of this one", bytes.Index(t.d.there, part), bytes.Index(t.d.here, part))
	}
	time.Sleep(time.Second)
	if bytes.Equal(got, want) {
		return text + "; a second later all is right"
	}
	return text + "; a second later it is still wrong"
}
