package bind

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/engine"
)

// operation is a batch that this package runs itself: one whose peer has to be opened or asked first, a
// call, a question, and a transfer with a stock Mooncake peer.
type operation struct {
	peer   string
	ops    int
	total  int64 // bytes
	check  string
	notes  []string
	begin  time.Time
	cancel context.CancelCauseFunc
	batch  atomic.Pointer[engine.Batch] // what carries it by now

	done   chan struct{} // closed when what follows is there
	err    error
	result []byte
	end    time.Time
}

// operate runs an operation in a goroutine of the engine, which ends it.
func (e *Engine) operate(o *operation, run func(ctx context.Context) ([]byte, error)) (*operation, error) {
	o.begin, o.done = time.Now(), make(chan struct{})
	var ctx context.Context
	ctx, o.cancel = context.WithCancelCause(e.ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		o.cancel(nil)
		return nil, errClosed
	}
	e.tasks.Go(func() {
		o.result, o.err = run(ctx)
		if cause := context.Cause(ctx); o.err != nil && errors.Is(cause, engine.ErrCanceled) && StatusOf(o.err) != Unsafe {
			o.err = cause
		}
		o.end = time.Now()
		close(o.done)
		o.cancel(nil)
	})
	return o, nil
}

// follow waits for the batch that carries the operation from now on.
func (o *operation) follow(ctx context.Context, b running) error {
	if b, ok := b.(*engine.Batch); ok {
		o.batch.Store(b)
	}
	select {
	case <-b.Done():
	case <-ctx.Done():
		b.Cancel()
		<-b.Done()
	}
	return b.Err()
}

func (o *operation) Done() <-chan struct{} { return o.done }
func (o *operation) Cancel()               { o.cancel(engine.ErrCanceled) }

func (o *operation) Err() error {
	select {
	case <-o.done:
		return o.err
	default:
		return nil
	}
}

func (o *operation) Wait(ctx context.Context) error {
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Explain says what is known where no batch of the engine carries it.
func (o *operation) Explain() *engine.Explanation {
	if b := o.batch.Load(); b != nil {
		x := b.Explain()
		x.DurationNS = int64(o.lasted())
		return x
	}
	x := &engine.Explanation{
		Schema: engine.SchemaExplain, Peer: o.peer, State: engine.BatchRunning, Total: o.total, Ops: o.ops,
		Check: o.check, Routes: []engine.RouteRecord{}, Notes: o.notes, DurationNS: int64(o.lasted()),
	}
	select {
	case <-o.done:
		x.EndedAgoNS = int64(time.Since(o.end))
		switch {
		case o.err == nil:
			x.State, x.Bytes = engine.BatchDone, o.total
		case StatusOf(o.err) == Unsafe:
			x.State, x.Error = engine.BatchUnsafe, o.err.Error()
		default:
			x.State, x.Error = engine.BatchFailed, o.err.Error()
		}
	default:
	}
	return x
}

func (o *operation) lasted() time.Duration {
	select {
	case <-o.done:
		return o.end.Sub(o.begin)
	default:
		return time.Since(o.begin)
	}
}

// ask starts an operation with a peer that is neither a READ nor a WRITE, and gives its handle.
func (e *Engine) ask(peer string, timeoutNS int64, f func(ctx context.Context) ([]byte, error)) (int64, error) {
	begin := time.Now()
	if err := errors.Join(e.mayBegin(timeoutNS), e.checkName(peer)); err != nil {
		return 0, err
	}
	o, err := e.operate(&operation{peer: peer}, func(ctx context.Context) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, e.timeout(timeoutNS))
		defer cancel()
		return f(ctx)
	})
	if err != nil {
		return 0, err
	}
	return e.number(&batch{running: o, peer: peer, begin: begin, post: time.Since(begin)}), nil
}

// Call sends a request to a peer's application and gives the handle of a batch whose result is the answer. It runs
// there at most once. An empty request is a probe: it asks whether the peer is there, which every engine answers.
func (e *Engine) Call(peer string, request []byte, timeoutNS int64) (int64, error) {
	if len(request) > engine.MaxCallBytes {
		return 0, fail(Limit, "a request of %d bytes: at most %d", len(request), engine.MaxCallBytes)
	}
	request = slices.Clone(request)
	return e.ask(peer, timeoutNS, func(ctx context.Context) ([]byte, error) {
		if len(request) == 0 {
			return nil, e.probe(ctx, peer)
		}
		x, err := e.peer(ctx, peer)
		if err != nil {
			return nil, err
		}
		if x.stock != nil {
			return nil, fail(Invalid, "peer %.80q: a stock Mooncake peer takes no calls", peer)
		}
		if x.settle(ctx, e.settle); x.lost() {
			if x, err = e.peer(ctx, peer); err != nil {
				return nil, err
			}
		}
		answer, err := x.p.Call(ctx, request)
		if _, ok := errors.AsType[*engine.RemoteError](err); ok {
			err = &Error{Refused, err}
		}
		return answer, err
	})
}

func (e *Engine) probe(ctx context.Context, peer string) error {
	for {
		x, err := e.peer(ctx, peer)
		if err != nil {
			return err
		}
		if x.stock != nil {
			return x.stock.Probe(ctx)
		}
		_, err = x.p.Call(ctx, nil)
		_, answered := errors.AsType[*engine.RemoteError](err)
		switch {
		case err == nil || answered:
			return nil
		case ctx.Err() != nil:
			return &Error{NoPeer, err}
		case !x.lost():
			return err
		}
	}
}

// PeerRanges asks a peer which ranges of memory it offers. The result of the batch is their addresses and lengths,
// each a u64, little endian, in the order of addresses.
func (e *Engine) PeerRanges(peer string, timeoutNS int64) (int64, error) {
	return e.ask(peer, timeoutNS, func(ctx context.Context) ([]byte, error) {
		x, err := e.peer(ctx, peer)
		if err == nil {
			err = x.refresh(ctx)
		}
		if err != nil {
			return nil, err
		}
		var out []byte
		for _, r := range *x.offered.Load() {
			out = binary.LittleEndian.AppendUint64(out, r.lo)
			out = binary.LittleEndian.AppendUint64(out, r.hi-r.lo)
		}
		return out, nil
	})
}

// Find waits until a peer is there and offers a region of that name. The result of the batch is its address and length,
// as of PeerRanges.
func (e *Engine) Find(peer, name string, timeoutNS int64) (int64, error) {
	if name == "" {
		return 0, fail(Invalid, "the region of peer %.80q has no name", peer)
	}
	return e.ask(peer, timeoutNS, func(ctx context.Context) ([]byte, error) {
		for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
			r, err := e.findNow(ctx, peer, name)
			if err == nil {
				address, ok := r.Address()
				if !ok {
					return nil, fail(NoRegion, "peer %.80q: region %.80q: it does not tell its address (engine.RegionOptions.OfferAddress)", peer, name)
				}
				out := binary.LittleEndian.AppendUint64(nil, address)
				return binary.LittleEndian.AppendUint64(out, uint64(r.Size())), nil
			}
			if !slices.ContainsFunc(absences, func(absent error) bool { return errors.Is(err, absent) }) {
				return nil, err
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return nil, err
			}
		}
	})
}

// absences are the errors of a peer that may come, or come back.
var absences = []error{engine.ErrUnreachable, engine.ErrNoPeer, engine.ErrPeerEnded, engine.ErrPeerLost, engine.ErrPeerRestarted}

func (e *Engine) findNow(ctx context.Context, peer, name string) (*engine.RemoteRegion, error) {
	x, err := e.peer(ctx, peer)
	if err != nil {
		return nil, err
	}
	if x.stock != nil {
		return nil, fail(Invalid, "peer %.80q: the memory of a stock Mooncake peer has no names", peer)
	}
	if err := x.refresh(ctx); err != nil {
		if ctx.Err() != nil {
			err = fail(NoPeer, "peer %.80q: no answer in time: %w", peer, context.Cause(ctx))
		}
		return nil, err
	}
	return x.p.Region(ctx, name)
}

// Result is what a batch of Call, Find or PeerRanges was answered.
func (e *Engine) Result(n int64) ([]byte, error) {
	b, err := e.batch(n)
	if err != nil {
		return nil, err
	}
	o, ok := b.running.(*operation)
	switch {
	case !b.ended():
		return nil, fail(Timeout, "batch %d is still running: its result is not there", n)
	case b.Err() != nil || !ok:
		return nil, b.Err()
	}
	return o.result, nil
}
