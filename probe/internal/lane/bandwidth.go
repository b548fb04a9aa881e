package lane

import (
	"context"
	"time"

	"github.com/topoctl/topoctl/engine"
)

const (
	// inFlight is how many batches are under way in each direction: while one ends, the other keeps the
	// lane busy.
	inFlight = 2
	// batchBytes and batchOps bound a batch.
	batchBytes = 16 << 20
	batchOps   = 128
	// batchesPerSample is how many batches should complete during a sample: batches grow while more do,
	// and shrink if one takes longer than half a sample.
	batchesPerSample = 8
)

// bandwidth takes the samples of one size, until a time on Now (0 never).
func (r *run) bandwidth(ctx context.Context, size int64, until time.Duration, judged bool) error {
	ways := 1
	if r.BothWays {
		ways = 2
	}
	batch := r.batch(size, ways)
	var workers []*worker
	for w := range inFlight * ways {
		workers = append(workers, r.worker(w, size, batch, inFlight*ways, []engine.OpKind{engine.Write, engine.Read}[w/inFlight]))
	}
	pace := [2]*Pacer{{Now: r.Now, PerSec: r.spec.RateLimit}, {Now: r.Now, PerSec: r.spec.RateLimit}}
	s := Run{Workers: len(workers), Now: r.Now, Spec: r.spec, Tell: r.tell, Until: until}
	s.Move = func(ctx context.Context, w int) (int64, error) {
		bytes, err := workers[w].move(ctx, pace[w/inFlight])
		if err == nil && w >= inFlight { // the other direction is not what is measured
			s.Beside.Add(bytes)
			bytes = 0
		}
		return bytes, err
	}
	if judged {
		s.CPU = r.CPU
	}
	return stalledMoving(s.Size(ctx, size, r.m))
}

// batch is how many ops of a size a batch may have: as many as fit, and as the rate limit allows.
func (r *run) batch(size int64, ways int) int64 {
	most := int64(batchBytes)
	if r.spec.RateLimit > 0 {
		most = min(most, int64(float64(r.spec.RateLimit)*r.spec.SampleTime.Seconds()/batchesPerSample))
	}
	room := min(r.Local.Size(), r.Remote.Size()) / int64(inFlight*ways)
	return max(1, min(batchOps, min(most, room)/size))
}

// worker has one batch in flight, in its own part of the memory if there is enough.
type worker struct {
	run            *run
	kind           engine.OpKind
	size, most     int64 // of an op; ops of a batch
	from, slots, k int64
	ops            []engine.Op
}

func (r *run) worker(w int, size, batch int64, parts int, kind engine.OpKind) *worker {
	room := min(r.Local.Size(), r.Remote.Size())
	part := room / int64(parts)
	x := &worker{run: r, kind: kind, size: size, most: batch, ops: make([]engine.Op, 1)}
	if part < size { // one op fits, or one for each direction
		ways := int64(parts / inFlight)
		part = room / ways
		w /= inFlight
	}
	x.from, x.slots = int64(w)*part, part/size
	return x
}

// move runs one batch. The next one is larger or smaller, by how long it took.
func (x *worker) move(ctx context.Context, pace *Pacer) (bytes int64, err error) {
	bytes = x.size * int64(len(x.ops))
	if err := pace.Wait(ctx, bytes); err != nil {
		return 0, err
	}
	began := x.run.Now()
	if err := x.run.submit(ctx, x.next()); err != nil {
		return 0, err
	}
	switch took, n := x.run.Now()-began, int64(len(x.ops)); {
	case took < x.run.spec.SampleTime/batchesPerSample && n < x.most:
		x.ops = make([]engine.Op, min(2*n, x.most))
	case took > x.run.spec.SampleTime/2 && n > 1:
		x.ops = x.ops[:n/2]
	}
	return bytes, nil
}

// next are the ops of the next batch. They go forwards here and backwards at the peer, so that neighbours
// are not merged into larger ops.
func (x *worker) next() []engine.Op {
	for i := range x.ops {
		k := x.k % x.slots
		local := x.run.Local.Span(x.from+k*x.size, x.size)
		remote := x.run.Remote.At(x.from + (x.slots-1-k)*x.size)
		x.ops[i] = engine.Op{Kind: x.kind, Local: local, Remote: remote}
		x.k++
	}
	return x.ops
}
