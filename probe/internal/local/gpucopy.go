package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/cuda"
	"github.com/topoctl/topoctl/internal/self"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/internal/lane"
)

const (
	// copyBytes is the memory that copies use at each end.
	copyBytes = 64 << 20
	// maxCopies is how many copies are queued at once.
	maxCopies = 4096
	// copyLatencyBytes is the size of the copies that copy_ns times.
	copyLatencyBytes = 8
)

// gpuJob measures copies of one pair.
type gpuJob struct {
	p        *Prober
	spec     probe.Spec
	alone    bool
	main     *copies
	opposite []*copies // that keep the other direction busy
	from, to *gpuEnd
	undo     []func() error
	notes    []string
}

// gpu prepares a pair with a GPU.
func (r *round) gpu(pair *probe.Pair) (*job, error) {
	g, err := r.cuda()
	if err != nil {
		return nil, err
	}
	j := &gpuJob{p: r.Prober, spec: r.spec, alone: r.alone}
	if err := j.open(g, pair); err != nil {
		return nil, errors.Join(err, j.close())
	}
	return &job{measure: j.measure, close: j.close}, nil
}

// open acquires what the pair needs; close undoes it.
func (j *gpuJob) open(g *gpus, pair *probe.Pair) error {
	var ctx [2]*cuda.Context
	for i, id := range []topo.ID{pair.From.Node, pair.To.Node} {
		if j.p.numaNode(id) != nil {
			continue
		}
		var err error
		if ctx[i], err = g.context(j.p.o.Topology, id); err != nil {
			return err
		}
	}
	if ctx[0] == nil && ctx[1] == nil {
		return fmt.Errorf("%s and %s: neither of them is a GPU", pair.From.Node, pair.To.Node)
	}
	if ctx[0] != nil && ctx[1] != nil {
		done, err := g.setPeerAccess(ctx[0], ctx[1], pair.Variant != probe.VariantNoPeer)
		if err != nil {
			return err
		}
		j.undo = append(j.undo, done)
	}
	if err := j.allocate(pair, ctx); err != nil {
		return err
	}
	return j.verify()
}

func (j *gpuJob) allocate(pair *probe.Pair, ctx [2]*cuda.Context) (err error) {
	bytes := j.p.copyBytes
	if n := len(j.spec.SizesBytes); n > 0 {
		bytes = max(bytes, j.spec.SizesBytes[n-1])
	}
	ways := int64(1)
	if pair.Variant == probe.VariantBothWays {
		ways = 2
	}
	if j.from, err = j.memoryAt(pair.From.Node, ctx[0], ctx[1], ways*bytes); err != nil {
		return err
	}
	if j.to, err = j.memoryAt(pair.To.Node, ctx[1], ctx[0], ways*bytes); err != nil {
		return err
	}
	j.notes = append(slices.Clone(j.from.notes), j.to.notes...)
	if j.main, err = j.copies(j.from, j.to, 0, bytes); err != nil || ways == 1 {
		return err
	}
	for range oppositeStreams {
		c, err := j.copies(j.to, j.from, bytes, bytes)
		if err != nil {
			return err
		}
		j.opposite = append(j.opposite, c)
	}
	return nil
}

// oppositeStreams is how many streams keep the other direction busy: while one is waited for, the other
// copies.
const oppositeStreams = 2

// close undoes what open did, the last first.
func (j *gpuJob) close() error {
	var errs []error
	for _, undo := range slices.Backward(j.undo) {
		errs = append(errs, undo())
	}
	j.undo = nil
	return errors.Join(errs...)
}

func (j *gpuJob) measure(ctx context.Context, spec probe.Spec, tell func(probe.Sample)) probe.Measurement {
	j.spec = spec
	out := probe.Measurement{Bandwidth: []probe.Bandwidth{}, Notes: j.notes,
		Binding: probe.Binding{Threads: 1, FromMemory: j.from.node, ToMemory: j.to.node}}
	until := lane.Deadline(j.p.o.Now, &j.spec)
	if j.spec.LatencySamples > 0 {
		if out.Err = j.latency(ctx, lane.Share(j.p.o.Now(), until, chasePart), &out); out.Err != nil {
			return out
		}
	}
	stop := j.startOpposite()
	err := lane.Sizes(j.p.o.Now, &j.spec, until, func(size int64, until time.Duration, _ bool) error {
		return j.bandwidth(ctx, size, until, tell, &out)
	})
	out.Err = errors.Join(err, stop())
	return out
}

// latency times single copies of a few bytes, by the GPU's own events.
func (j *gpuJob) latency(ctx context.Context, until time.Duration, out *probe.Measurement) (err error) {
	var samples []int64
	warm := j.p.o.Now() + j.spec.Warmup/chasePart
	for len(samples) < j.spec.LatencySamples && err == nil && (until == 0 || j.p.o.Now() < until) {
		var took time.Duration
		if took, err = j.main.run(copyLatencyBytes, 1); err == nil && j.p.o.Now() >= warm {
			samples = append(samples, int64(took))
		}
		if ctx.Err() != nil {
			err = errors.Join(err, context.Cause(ctx))
		}
	}
	if p := probe.NewPercentiles(samples); p != nil {
		out.Latency = &probe.Latency{SizeBytes: copyLatencyBytes, Copy: p}
	}
	return err
}

// bandwidth takes the samples of one size by the GPU's clock: copies that take about Spec.SampleTime are queued
// at once, and timed by events before the first and behind the last.
func (j *gpuJob) bandwidth(ctx context.Context, size int64, until time.Duration, tell func(probe.Sample), out *probe.Measurement) error {
	pace := lane.Pacer{Now: j.p.o.Now, PerSec: j.spec.RateLimit}
	times, clock := 1, time.Duration(0)
	s := lane.Run{
		Workers: 1, Now: func() time.Duration { return clock }, Spec: &j.spec, Tell: tell,
		Move: func(ctx context.Context, _ int) (int64, error) {
			bytes, most := size*int64(times), j.copiesPerSample(size, times, 0)
			if err := pace.Wait(ctx, bytes); err != nil {
				return 0, err
			}
			took, err := j.main.run(size, times)
			if err == nil && took <= 0 && times >= most {
				err = fmt.Errorf("%d copies of %d bytes took no time by the GPU's own timer", times, size)
			}
			clock, times = clock+took, j.copiesPerSample(size, times, took)
			return bytes, err
		},
	}
	if until > 0 {
		s.Until = max(1, until-j.p.o.Now())
	}
	if j.alone {
		s.CPU = self.CPU
	}
	return s.Size(ctx, size, out)
}

// copiesPerSample is how many copies take about one sample, judging by how long some took, and at most
// what a rate limit allows in that time.
func (j *gpuJob) copiesPerSample(size int64, times int, took time.Duration) int {
	want := int64(maxCopies)
	if took > 0 {
		want = min(want, int64(float64(j.spec.SampleTime)/float64(took)*float64(times)))
	}
	if j.spec.RateLimit > 0 {
		want = min(want, int64(float64(j.spec.RateLimit)*j.spec.SampleTime.Seconds())/size)
	}
	return int(max(1, want))
}

// startOpposite keeps the other direction busy until stop, which returns its error.
func (j *gpuJob) startOpposite() (stop func() error) {
	if len(j.opposite) == 0 || len(j.spec.SizesBytes) == 0 {
		return func() error { return nil }
	}
	ctx, cancel := context.WithCancel(context.Background())
	size := j.spec.SizesBytes[len(j.spec.SizesBytes)-1]
	errs := make([]error, len(j.opposite))
	var running sync.WaitGroup
	for i, c := range j.opposite {
		running.Go(func() {
			for times := 1; ctx.Err() == nil && errs[i] == nil; {
				var took time.Duration
				took, errs[i] = c.run(size, times)
				times = min(maxOpposite, j.copiesPerSample(size, times, took))
			}
		})
	}
	return func() error {
		cancel()
		running.Wait()
		return errors.Join(errs...)
	}
}

// maxOpposite bounds how many copies of the other direction are queued, and waited for at the end.
const maxOpposite = 64
