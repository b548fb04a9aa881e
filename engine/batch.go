package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/sched"
)

// Batch is a set of ops that was submitted. Its methods may be used by many goroutines.
type Batch struct {
	engine *Engine
	peer   *Peer
	o      SubmitOptions
	ops    int
	total  int64 // bytes
	writes bool
	// begin and deadline are in the engine's time.
	begin, deadline int64
	parts           []*part
	locals          []*Region // pinned; by handle
	remotes         []*RemoteRegion
	moved           atomic.Int64
	left            atomic.Int32 // parts that are not finished
	stopCancel      func() bool  // nil: ctx cannot end
	done            chan struct{}
	polled          atomic.Pointer[conn] // the first that has a part of it and can be polled

	// first and its neighbours hold what one part needs, which is the usual number.
	first     part
	firstList [1]*part

	mu   sync.Mutex
	errs []error
	end  int64
	over bool
	// canceled is why the batch was cancelled; canceling ends a notification that is
	// under way.
	canceled  error
	canceling context.CancelCauseFunc
	wake      func() // wakes the goroutine that sleeps in a transport until the batch is over

	// Under the engine's mutex: the list of running batches.
	prev, next *Batch
}

// part is what one job of the scheduler carries.
type part struct {
	batch *Batch
	route *route
	job   sched.Job
	*opBuffers
	bytes  int64
	result sched.Result
	over   bool // the result is there
}

// opRange is where an op of the batch is in both memories.
type opRange struct {
	op            int32 // in the user's list
	local, remote byteRange
}

func (b *Batch) addPart(r *route) *part {
	p := &b.first
	if len(b.parts) == 0 {
		b.parts = b.firstList[:0]
	} else {
		p = &part{}
	}
	p.batch, p.route = b, r
	p.opBuffers = b.engine.pools.buffers.Get().(*opBuffers)
	if len(b.parts) == 0 { // the usual number
		p.ops, p.places = slices.Grow(p.ops, b.ops), slices.Grow(p.places, b.ops)
	}
	b.parts = append(b.parts, p)
	return p
}

// opBuffers are used again: a batch needs its ops only until it is over.
type opBuffers struct {
	ops    []sched.Op
	places []opRange
}

func (e *Engine) keepBuffers(p *part) {
	const most = 1 << 14 // more is not kept
	if cap(p.ops) <= most {
		clear(p.ops)
		p.ops, p.places = p.ops[:0], p.places[:0]
		e.pools.buffers.Put(p.opBuffers)
	}
	p.opBuffers, p.job.Ops = nil, nil
}

// start hands the batch to the scheduler. Awaited says that the caller calls Wait next.
func (b *Batch) start(ctx context.Context, awaited bool) error {
	e, p := b.engine, b.peer
	b.left.Store(int32(len(b.parts)))
	w := e.getWork()
	defer e.putWork(w)
	for _, part := range b.parts {
		part.job = sched.Job{Route: part.route.r, Ops: part.ops, DeadlineNS: b.deadline, Check: e.checks(b.o.Check, part.route), User: part}
		if b.o.HighPriority {
			part.job.Priority = sched.High
		}
		w.events = append(w.events, sched.Event{Kind: sched.Submit, Job: &part.job})
	}
	e.mu.Lock()
	err := p.lost()
	if e.closing {
		err = errEngineClosed
	}
	if err != nil {
		e.mu.Unlock()
		clear(w.events)
		w.events = w.events[:0]
		b.unpin()
		return err
	}
	e.link(b)
	if ctx.Done() != nil {
		b.stopCancel = context.AfterFunc(ctx, func() { b.ended(ctx) })
	}
	if len(b.parts) > 0 {
		e.step(w)
	}
	e.mu.Unlock()
	if len(b.parts) == 0 {
		b.conclude()
		return nil
	}
	if awaited {
		w.awaited = b
	}
	e.perform(w)
	w.awaited = nil
	e.run(w)
	return nil
}

// ended is called when the context of Submit ends. Deadlines are the core's own
// business: it lets slices that are on the way arrive.
func (b *Batch) ended(ctx context.Context) {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		b.cancel(context.Cause(ctx))
	}
}

// Cancel drops what was not sent yet. The batch is done when the rest has ended; its
// error then wraps ErrCanceled, unless all bytes are in place and the peer has the
// notification, if there is one. A notification that is under way may or may not arrive.
func (b *Batch) Cancel() { b.cancel(ErrCanceled) }

func (b *Batch) cancel(cause error) {
	e := b.engine
	b.mu.Lock()
	if b.canceled == nil {
		b.canceled = cause
	}
	stop := b.canceling
	b.mu.Unlock()
	if stop != nil {
		stop(cause)
	}
	w := e.getWork()
	for _, p := range b.parts {
		w.events = append(w.events, sched.Event{Kind: sched.Cancel, Job: &p.job, Err: cause})
	}
	e.run(w)
	e.putWork(w)
}

// finish takes the result of one part; the last one concludes the batch.
func (b *Batch) finish(p *part) {
	b.mu.Lock()
	p.result, p.over = p.job.Result, true
	if err := p.result.Err; err != nil {
		b.errs = append(b.errs, b.engine.errorOf(p, err))
	}
	b.mu.Unlock()
	if b.left.Add(-1) == 0 {
		b.conclude()
	}
}

// conclude comes when no byte of the batch is on its way any more.
func (b *Batch) conclude() {
	b.mu.Lock()
	failed := len(b.errs) > 0
	b.mu.Unlock()
	var parts []*part
	if !failed && b.engine.wantsDigest(b.o.Check) {
		parts = b.uncompared()
	}
	if !failed && (parts != nil || b.o.Notify != nil) {
		if b.engine.start(func() { b.settle(parts) }) {
			return
		}
		b.fail(fmt.Errorf("the data is in place, but the engine is %w", ErrClosed))
	}
	b.unpin()
	b.close()
}

// settle compares parts with what the peer has, and tells the peer's application that everything
// is in place.
func (b *Batch) settle(parts []*part) {
	ctx, cancel := context.WithCancelCause(b.engine.ctx)
	defer cancel(nil)
	b.mu.Lock()
	canceled := b.canceled
	b.canceling = cancel
	b.mu.Unlock()
	var err error
	if parts != nil {
		if err = canceled; err == nil {
			err = b.compare(ctx, parts)
		}
		if err != nil {
			b.fail(err)
		}
	}
	b.unpin()
	if err == nil && b.o.Notify != nil {
		b.notify(ctx, canceled)
	}
	b.close()
}

// notify tells the peer's application.
func (b *Batch) notify(ctx context.Context, canceled error) {
	if canceled != nil {
		b.fail(fmt.Errorf("the data is in place, but the notification was not sent: %w", canceled))
	} else if err := b.peer.notify(ctx, b.deadline, b.o.Notify); err != nil {
		what := "the notification failed"
		if cause := context.Cause(ctx); cause != nil && b.engine.ctx.Err() == nil {
			what, err = "the notification was given up while the peer had not answered, and may or may not arrive", cause
		}
		b.fail(fmt.Errorf("the data is in place, but %s: %w", what, err))
	}
}

func (b *Batch) fail(err error) {
	b.mu.Lock()
	b.errs = append(b.errs, err)
	b.mu.Unlock()
}

// close is the batch's end.
func (b *Batch) close() {
	e := b.engine
	if b.stopCancel != nil {
		b.stopCancel()
	}
	b.stopCancel, b.o.Notify = nil, nil // they are the user's
	e.mu.Lock()
	e.unlink(b)
	if b.peer.removed {
		e.forgetFences(b.peer)
	}
	e.mu.Unlock()
	b.mu.Lock()
	b.end, b.over = e.now(), true
	wake := b.wake
	failed, unsafe, retried := len(b.errs) > 0, false, false
	for _, p := range b.parts {
		unsafe = unsafe || len(p.result.Unsafe) > 0
		retried = retried || p.result.Retries > 0
	}
	b.mu.Unlock()
	e.recent.add(b, failed || retried)
	e.count.batches.Add(1)
	if failed {
		e.count.failed.Add(1)
		e.count.failures.add(failedBatch, b.Err())
	}
	if unsafe {
		e.count.unsafe.Add(1)
	}
	for _, p := range b.parts {
		e.count.slices.Add(p.result.Slices)
		e.count.retries.Add(p.result.Retries)
		e.keepBuffers(p)
	}
	close(b.done)
	if wake != nil {
		wake()
	}
}

func (b *Batch) unpin() {
	for _, r := range b.locals {
		r.r.Unpin()
	}
}

// Done is closed when the batch is over and its local buffers are free. If Err wraps
// ErrUnsafeBuffer, its remote ranges may still change.
func (b *Batch) Done() <-chan struct{} { return b.done }

// Wait waits until the batch is over, and returns Err. If ctx ends first, the batch
// continues and its buffers are still in use.
func (b *Batch) Wait(ctx context.Context) error {
	if b.poll(ctx) {
		return b.Err()
	}
	select {
	case <-b.done:
		return b.Err()
	case <-ctx.Done():
		return pkgerr.Errorf("engine", "peer %q: waiting for a batch, which goes on: %w", b.peer.name, context.Cause(ctx))
	}
}

// poll tries to end the wait itself, where the batch's connection lets it. ctx ends the
// wait, not the batch.
func (b *Batch) poll(ctx context.Context) (over bool) {
	w := (*waiter)(b)
	c := b.polled.Load()
	switch {
	case c == nil:
	case ctx == context.Background():
		c.poller.Poll(w)
	default:
		c.poller.Poll(&boundWaiter{waiter: w, ctx: ctx})
	}
	return w.Over()
}

// waiter is a batch as a connection sees it that is polled.
type waiter Batch

// Over says whether the batch is done.
func (w *waiter) Over() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// Brief says whether the batch is so small that it may be over before a goroutine is
// woken. One that only reads leaves nothing to others: what comes is all there is to do.
func (w *waiter) Brief() bool { return w.total <= 256<<10 || !w.writes && w.total <= 1<<20 }

// Asleep takes the function that wakes the goroutine which is about to sleep until the batch is over; nil: it is
// awake. It reports false if that goroutine must not sleep.
func (w *waiter) Asleep(wake func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if wake != nil && (w.over || w.wake != nil) {
		return false
	}
	w.wake = wake
	return true
}

// boundWaiter is one whose wait a context ends.
type boundWaiter struct {
	*waiter
	ctx  context.Context
	stop func() bool
}

// Over says whether the batch is done, or the context.
func (w *boundWaiter) Over() bool { return w.ctx.Err() != nil || w.waiter.Over() }

// Asleep has the context wake that goroutine, too.
func (w *boundWaiter) Asleep(wake func()) bool {
	if wake == nil {
		w.stop()
		return w.waiter.Asleep(nil)
	}
	if w.ctx.Err() != nil || !w.waiter.Asleep(wake) {
		return false
	}
	w.stop = context.AfterFunc(w.ctx, wake)
	return true
}

// Err is why the batch failed. It is nil while the batch runs, and if all bytes are in
// place and the notification was received.
func (b *Batch) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over || len(b.errs) == 0 {
		return nil
	}
	err := b.errs[0]
	if len(b.errs) > 1 {
		err = errors.Join(b.errs...)
	}
	return pkgerr.Errorf("engine", "peer %q: %w", b.peer.name, err)
}

// Progress says how far a batch has come.
type Progress struct {
	Bytes int64 // in place
	Total int64 // of the batch
	Done  bool
}

// Progress says how far the batch has come.
func (b *Batch) Progress() Progress {
	p := Progress{Bytes: min(b.moved.Load(), b.total), Total: b.total}
	b.mu.Lock()
	p.Done = b.over
	b.mu.Unlock()
	return p
}
