package bind

import (
	"context"
	"encoding/json"
	"reflect"
	"time"

	"github.com/topoctl/topoctl/engine"
)

// batch is one that was submitted and is not released.
type batch struct {
	running
	peer   string
	ops    int64
	begin  time.Time
	before time.Duration // from begin until what carries it had it, and counts from there
	post   time.Duration
}

// running is what carries a batch: the engine, or Mooncake's protocol.
type running interface {
	Done() <-chan struct{}
	Err() error // nil until the batch is over
	Wait(ctx context.Context) error
	Cancel()
	Explain() *engine.Explanation
}

func (e *Engine) batch(n int64) (*batch, error) {
	b, ok := e.batches.Get(n)
	if !ok {
		return nil, fail(NoHandle, "no batch %d", n)
	}
	return b, nil
}

// ended says whether the batch is over.
func (b *batch) ended() bool {
	select {
	case <-b.Done():
		return true
	default:
		return false
	}
}

// Poll says whether a batch is over, and why it failed.
func (e *Engine) Poll(n int64) (over bool, err error) {
	b, err := e.batch(n)
	if err != nil {
		return false, err
	}
	return b.ended(), b.Err()
}

// Wait waits until all batches are over, or until the timeout, and gives why the first failed one
// did. 0 looks once.
func (e *Engine) Wait(list []int64, timeoutNS int64) error {
	batches := make([]*batch, 0, 1)
	for _, n := range list {
		b, err := e.batch(n)
		if err != nil {
			return err
		}
		batches = append(batches, b)
	}
	if timeoutNS < 0 {
		return fail(Invalid, "timeout of %d ns: want 0 or more", timeoutNS)
	}
	w := waiter{begin: time.Now(), timeout: nanoseconds(timeoutNS)}
	for i, b := range batches {
		if !w.wait(b) {
			return fail(Timeout, "batch %d is still running after %v", list[i], w.timeout)
		}
	}
	for _, b := range batches {
		if err := b.Err(); err != nil {
			return err
		}
	}
	return nil
}

// WaitAny waits until one of the batches is over, or until the timeout.
func (e *Engine) WaitAny(list []int64, timeoutNS int64) error {
	if timeoutNS < 0 {
		return fail(Invalid, "timeout of %d ns: want 0 or more", timeoutNS)
	}
	timer := time.NewTimer(nanoseconds(timeoutNS))
	defer timer.Stop()
	cases := []reflect.SelectCase{{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(timer.C)}}
	for _, n := range list {
		b, err := e.batch(n)
		if err != nil {
			return err
		}
		if b.ended() {
			return nil
		}
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(b.Done())})
	}
	if ended, _, _ := reflect.Select(cases); ended == 0 {
		return fail(Timeout, "%d batches are still running after %v", len(list), nanoseconds(timeoutNS))
	}
	return nil
}

// waiter waits for one batch after the other.
type waiter struct {
	begin   time.Time
	timeout time.Duration
}

func (w *waiter) wait(b *batch) bool {
	if b.ended() {
		return true
	}
	p := patience{until: w.begin.Add(w.timeout)}
	defer p.stop()
	_ = b.Wait(&p) // its error is asked for later
	return b.ended()
}

// patience is a context that ends at a time. Most waits are over before anyone sleeps by it, which is
// when its timer is made: making one may wake another thread.
type patience struct {
	until  time.Time
	timed  context.Context // nil: not needed so far
	cancel context.CancelFunc
}

// Deadline implements context.Context.
func (p *patience) Deadline() (time.Time, bool) { return p.until, true }

// Done implements context.Context.
func (p *patience) Done() <-chan struct{} {
	if p.timed == nil {
		p.timed, p.cancel = context.WithDeadline(context.Background(), p.until)
	}
	return p.timed.Done()
}

// Err implements context.Context.
func (p *patience) Err() error {
	if p.timed != nil {
		return p.timed.Err()
	}
	if !time.Now().Before(p.until) {
		return context.DeadlineExceeded
	}
	return nil
}

// Value implements context.Context: the context package finds its own in it.
func (p *patience) Value(key any) any {
	if p.timed != nil {
		return p.timed.Value(key)
	}
	return nil
}

func (p *patience) stop() {
	if p.cancel != nil {
		p.cancel()
	}
}

// Release forgets a batch: one that runs is cancelled, and waited for. Where that takes too long
// the batch stays, to be released again.
func (e *Engine) Release(n int64) error {
	b, err := e.batch(n)
	if err != nil {
		return err
	}
	if !b.ended() {
		b.Cancel()
		timer := time.NewTimer(e.release)
		defer timer.Stop()
		select {
		case <-b.Done():
		case <-timer.C:
			return fail(Unsafe, "batch %d was cancelled and has not ended in %v: its memory is still in use", n, e.release)
		}
	}
	e.batches.Remove(n)
	return nil
}

// Telemetry is what a batch took, as topoctl_telemetry_v1.
type Telemetry struct {
	StartUnixNS, PostNS, DurationNS, Bytes, Ops, Retries int64
}

// Telemetry says what a batch took, or has taken so far.
func (e *Engine) Telemetry(n int64) (Telemetry, error) {
	b, err := e.batch(n)
	if err != nil {
		return Telemetry{}, err
	}
	x := b.running.Explain()
	duration := int64(b.before) + x.DurationNS
	// A small batch may have ended before the call that submitted it returned.
	post := min(int64(b.post), duration)
	return Telemetry{StartUnixNS: b.begin.UnixNano(), PostNS: post, DurationNS: duration, Bytes: x.Bytes, Ops: b.ops, Retries: x.Retries}, nil
}

// Explain says how a batch was carried, as JSON (topoctl.explain/v1).
func (e *Engine) Explain(n int64) ([]byte, error) {
	b, err := e.batch(n)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(b.running.Explain())
	if err != nil {
		return nil, fail(Internal, "explanation: %w", err)
	}
	return data, nil
}
