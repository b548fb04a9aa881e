package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/pathsel"
)

// worker has one batch in flight, in its own part of the memory.
type worker struct {
	c       *cell
	part    int
	k       int64 // ops so far
	ops     []engine.Op
	options engine.SubmitOptions

	// Verification only.
	batches uint64
	scratch *engine.Region
	back    []engine.Op
}

// newWorkers makes the workers of a cell.
func newWorkers(c *cell) error {
	c.workers = nil
	for part := range c.layout.parts {
		w := &worker{c: c, part: part, ops: make([]engine.Op, c.r.o.batchFor(c.size))}
		if c.transport != Auto {
			w.options.Transport = pathsel.Transport(c.transport)
		}
		if c.verified != nil && c.op == engine.Write {
			var err error
			if w.scratch, err = c.r.verifier.engine.Alloc(c.size*int64(len(w.ops)), engine.RegionOptions{}); err != nil {
				return err
			}
			w.back = make([]engine.Op, len(w.ops))
		}
		c.workers = append(c.workers, w)
	}
	return nil
}

// closeWorkers frees what they use.
func closeWorkers(ctx context.Context, c *cell) error {
	for _, w := range c.workers {
		if w.scratch != nil {
			if err := w.scratch.Close(ctx); err != nil {
				return err
			}
		}
	}
	c.workers = nil
	return nil
}

// run submits one batch after the other. A batch that was started in time counts.
func (w *worker) run(ctx context.Context, m *meter, until time.Time) error {
	ops := int64(len(w.ops))
	for time.Now().Before(until) && ctx.Err() == nil {
		w.prepare()
		submitted := time.Now()
		b, err := w.c.r.end.peer.Submit(ctx, w.ops, w.options)
		if err == nil {
			err = b.Wait(ctx)
		}
		if err != nil {
			return err
		}
		m.done(submitted, time.Now(), ops*w.c.size, ops)
		w.c.explained.Do(func() { w.c.checksum = b.Explain().Check })
		if err := w.verify(ctx); err != nil {
			return err
		}
		w.k += ops
		w.batches++
	}
	return nil
}

// pattern is what the current batch writes.
func (w *worker) pattern() pattern {
	return pattern(w.c.r.o.Seed) + pattern(w.batches)<<16 + pattern(w.part)
}

// prepare sets up the next ops, and clears or fills memory for verification.
func (w *worker) prepare() {
	c, e := w.c, w.c.r.end
	for i := range w.ops {
		near, far := c.layout.near(w.part, w.k+int64(i)), c.layout.far(w.part, w.k+int64(i))
		w.ops[i] = engine.Op{Kind: c.op, Local: e.local.Span(near, c.size), Remote: e.remote.At(far)}
		if c.verified == nil {
			continue
		}
		here := e.local.Bytes()[near : near+c.size]
		if c.op == engine.Write {
			w.pattern().fill(here, far)
		} else {
			clear(here)
		}
	}
}

// verify compares every byte of the batch with what it must be. What was written is read back
// by another engine.
func (w *worker) verify(ctx context.Context) error {
	c := w.c
	if c.verified == nil {
		return nil
	}
	want := pattern(c.r.o.Seed)
	if c.op == engine.Write {
		want = w.pattern()
		for i := range w.back {
			w.back[i] = engine.ReadOp(w.scratch.Span(int64(i)*c.size, c.size), c.r.verifier.remote.At(w.ops[i].Remote.Offset))
		}
		b, err := c.r.verifier.peer.Submit(ctx, w.back, engine.SubmitOptions{})
		if err == nil {
			err = b.Wait(ctx)
		}
		if err != nil {
			return fmt.Errorf("read back: %w", err)
		}
	}
	for i := range w.ops {
		near, far := w.ops[i].Local.Offset, w.ops[i].Remote.Offset
		there := c.r.end.local.Bytes()[near : near+c.size]
		if c.op == engine.Write {
			there = w.scratch.Bytes()[int64(i)*c.size:][:c.size]
		}
		wrong, first := want.differs(there, far)
		c.recordCheck(int64(len(there)), wrong, far+int64(first))
	}
	return nil
}
