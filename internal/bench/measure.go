package bench

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/units"
)

// step is one measurement that alternates with others.
type step struct {
	name  string
	run   func(ctx context.Context, d time.Duration) error
	takes time.Duration // of one round
}

// group is what is compared: cells of one op and size, and what the machine does without an engine.
type group struct {
	op       engine.OpKind
	size     int64
	cells    []*cell
	ceilings []*ceiling // the raw socket first
}

// ceiling is a way to move ops of a group without an engine.
type ceiling struct {
	kind, name  string
	streams     int                                                        // sockets, or threads that copy
	round       func(ctx context.Context, d time.Duration) (sample, error) // nil: it cannot be measured,
	unavailable string                                                     // for this reason
	part        time.Duration                                              // it gets 1/part of the time of a measurement
	samples     samples
}

// copyThreads is the number of threads of the copies that results are compared with: as many
// as submit batches, but at most the number of processors.
func (r *run) copyThreads() int { return min(r.o.Threads, runtime.GOMAXPROCS(0)) }

// ceilings are a raw socket, and copies of memory with copyThreads and, if that is fewer, with all processors, since an
// engine may copy on more threads than call it. They get a half and a quarter of the time of a measurement, since they
// vary less.
func (r *run) ceilings(op engine.OpKind, size int64) ([]*ceiling, error) {
	raw := &ceiling{kind: RawSocket, name: describe(op.String(), size, "raw socket"), streams: 1, part: 2, unavailable: "the peer is on another host, where nothing accepts a raw socket"}
	if r.raw.IsValid() {
		raw.unavailable, raw.round = "", func(ctx context.Context, d time.Duration) (sample, error) {
			l, err := newLayout(r.memory, size, raw.streams, 1)
			if err != nil {
				return sample{}, err
			}
			return r.rawRound(ctx, op == engine.Read, l, d)
		}
	}
	out := []*ceiling{raw}
	own := r.copyThreads()
	for _, threads := range slices.Compact([]int{own, runtime.GOMAXPROCS(0)}) {
		l, err := newLayout(r.memory, size, threads, 1)
		if err != nil && threads > own {
			continue // too few pieces of this size
		} else if err != nil {
			return nil, err
		}
		for _, way := range []struct {
			kind   string
			copyTo func(dst, src []byte) int
		}{{Memcpy, func(dst, src []byte) int { return copy(dst, src) }}, {StreamingCopy, memory.Stream}} {
			out = append(out, &ceiling{kind: way.kind, name: describe("copy", size, fmt.Sprintf("%s x %d", way.kind, threads)), streams: threads, part: 4,
				round: func(ctx context.Context, d time.Duration) (sample, error) {
					return copyRound(ctx, r.copyTo.Bytes(), r.end.local.Bytes(), l, d, way.copyTo)
				}})
		}
	}
	return out, nil
}

// measure measures one group after the other.
func (r *run) measure(ctx context.Context) error {
	groups, err := r.groups()
	if err != nil {
		return err
	}
	r.watch.plan(r.total(groups))
	for _, g := range groups {
		err := r.measureGroup(ctx, g)
		r.addResults(g)
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *run) groups() ([]*group, error) {
	var out []*group
	for _, op := range r.o.Ops {
		for _, size := range r.o.Sizes {
			l, err := r.layout(size)
			if err != nil {
				return nil, err
			}
			g := &group{op: op, size: size}
			if g.ceilings, err = r.ceilings(op, size); err != nil {
				return nil, err
			}
			for _, transport := range r.o.Transports {
				c := &cell{r: r, op: op, size: size, transport: transport, layout: l}
				if r.o.Check {
					c.verified = &Check{}
				}
				g.cells = append(g.cells, c)
			}
			out = append(out, g)
		}
	}
	return out, nil
}

// total is the number of steps, and how long all of them take at least.
func (r *run) total(groups []*group) (steps int, d time.Duration) {
	for _, g := range groups {
		for _, s := range r.steps(g) {
			steps += r.o.rounds()
			d += s.takes * time.Duration(r.o.rounds())
		}
		steps += len(g.cells)
		d += r.o.Warmup * time.Duration(len(g.cells))
	}
	return steps, d
}

// steps are the parts of a group's round, in order.
func (r *run) steps(g *group) []step {
	each := r.o.Duration / time.Duration(r.o.rounds())
	var out []step
	for _, c := range g.cells {
		out = append(out, step{c.name(), func(ctx context.Context, d time.Duration) error {
			if c.err == nil { // otherwise it has already failed
				return c.round(ctx, d, true)
			}
			return ctx.Err()
		}, each})
	}
	for _, c := range g.ceilings {
		if c.round == nil {
			continue
		}
		out = append(out, step{c.name, func(ctx context.Context, d time.Duration) error {
			s, err := c.round(ctx, d)
			if err == nil {
				c.samples = append(c.samples, s)
			}
			return err
		}, each / c.part})
	}
	return out
}

// measureGroup warms the cells up, then alternates between them, forwards and backwards, so
// that a machine that gets slower or faster affects all alike.
func (r *run) measureGroup(ctx context.Context, g *group) (err error) {
	for _, c := range g.cells {
		if err := r.warmUp(ctx, g, c); err != nil {
			return err
		}
	}
	defer func() {
		for _, c := range g.cells {
			if e := closeWorkers(context.WithoutCancel(ctx), c); err == nil {
				err = e
			}
		}
	}()
	steps := r.steps(g)
	for range r.o.rounds() {
		for _, s := range steps {
			r.watch.step(s.name, s.takes)
			if err := s.run(ctx, s.takes); err != nil {
				return err
			}
		}
		slices.Reverse(steps)
	}
	return nil
}

// warmUp connects, and counts the sockets.
func (r *run) warmUp(ctx context.Context, g *group, c *cell) error {
	if c.verified != nil && c.op == engine.Read {
		if c.err = r.fillRemote(ctx, pattern(r.o.Seed)); c.err != nil {
			return cmp.Or(c.over(ctx), c.err)
		}
	}
	if err := newWorkers(c); err != nil {
		return err
	}
	r.watch.step(c.name()+", warming up", r.o.Warmup)
	if err := c.round(ctx, r.o.Warmup, false); err != nil {
		return err
	}
	g.ceilings[0].streams = max(g.ceilings[0].streams, c.streams())
	c.lanes = nil
	if c.verified != nil {
		*c.verified = Check{} // drops that of the warm-up
	}
	return nil
}

// fillPiece is how much of the peer's region is filled at a time.
const fillPiece = 4 << 20

// fillTime is how long a region of that size may take to be filled: 4 MiB/s is a third of what
// Ethernet of 100 Mb/s carries.
func fillTime(bytes int64) time.Duration {
	return 30*time.Second + time.Duration(float64(bytes)/(4<<20)*float64(time.Second))
}

// fillRemote writes a pattern into the peer's region, to compare reads with. A peer that takes it
// drop by drop does not hold the run up.
func (r *run) fillRemote(ctx context.Context, p pattern) error {
	v, limit := r.verifier, r.fillTime(r.memory)
	ctx, stop := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it has not taken %s in %s: %w", units.Bytes(r.memory), limit, context.DeadlineExceeded))
	defer stop()
	piece := min(fillPiece, r.memory)
	from, err := v.engine.Alloc(piece, engine.RegionOptions{})
	if err != nil {
		return err
	}
	for at := int64(0); at < r.memory; at += piece {
		n := min(piece, r.memory-at)
		p.fill(from.Bytes()[:n], at)
		limited, stop := context.WithTimeout(ctx, r.batchTime())
		err := v.peer.Write(limited, from.Span(0, n), v.remote.At(at))
		stop()
		if err != nil {
			return pkgerr.Errorf("bench", "fill the peer's region: %w", err)
		}
	}
	return from.Close(ctx)
}
