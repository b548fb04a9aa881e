package bind

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/topoctl/topoctl/engine"
)

// Transfer is what one batch moves. Entry i of the three lists is one op.
type Transfer struct {
	Peer                  string
	Op                    int32 // 0 READ, 1 WRITE
	Local, Remote, Length []uint64
	Notify                []byte // nil: none
	TimeoutNS             int64  // 0: the engine's default
}

// Submit starts a batch and gives its handle.
func (e *Engine) Submit(t Transfer) (int64, error) {
	r, err := t.request()
	if err != nil {
		return 0, err
	}
	return e.submit(r)
}

// Transfer is Submit and Wait in one call: the thread that has submitted a small batch reads its
// answer, too, where no other thread does. A batch that has ended is forgotten; one that runs on after the
// wait is given with the error, to be waited for and released.
func (e *Engine) Transfer(t Transfer, waitNS int64) (running int64, err error) {
	if waitNS < 0 {
		return 0, fail(Invalid, "wait of %d ns: want 0 or more", waitNS)
	}
	r, err := t.request()
	if err != nil {
		return 0, err
	}
	b, err := e.start(r)
	if err != nil {
		return 0, err
	}
	w := waiter{begin: time.Now(), timeout: nanoseconds(waitNS)}
	if !w.wait(b) {
		n := e.number(b)
		return n, fail(Timeout, "batch %d is still running after %v", n, w.timeout)
	}
	return 0, b.Err()
}

func (t *Transfer) request() (*request, error) {
	if len(t.Local) != len(t.Remote) || len(t.Local) != len(t.Length) {
		return nil, fail(Invalid, "%d local addresses, %d remote ones and %d lengths: want as many of each", len(t.Local), len(t.Remote), len(t.Length))
	}
	return &request{peer: t.Peer, op: t.Op, n: len(t.Local), notify: t.Notify, timeout: t.TimeoutNS,
		at: func(i int) (move, error) { return move{t.Local[i], t.Remote[i], t.Length[i]}, nil }}, nil
}

// move is one op by its addresses.
type move struct{ local, remote, length uint64 }

// check says whether op i has ranges of memory at all.
func (m move) check(i int) error {
	if m.length > math.MaxInt64 || m.local > math.MaxUint64-m.length || m.remote > math.MaxUint64-m.length {
		return fail(Invalid, "op %d: %d bytes at %#x and the peer's %#x: not ranges of memory", i, m.length, m.local, m.remote)
	}
	return nil
}

// request is a batch before it is one.
type request struct {
	peer    string
	op      int32
	n       int
	at      func(i int) (move, error)
	notify  []byte
	timeout int64

	begin  time.Time
	before time.Duration // until what carries the batch had it
}

func (e *Engine) submit(r *request) (int64, error) {
	b, err := e.start(r)
	if err != nil {
		return 0, err
	}
	return e.number(b), nil
}

// number gives a batch its handle.
func (e *Engine) number(b *batch) int64 {
	n := e.batches.Add(b)
	e.events.watch(e, b)
	return n
}

// start gives a batch that has no handle yet.
func (e *Engine) start(r *request) (*batch, error) {
	r.begin = time.Now()
	if r.op != 0 && r.op != 1 {
		return nil, fail(Invalid, "op %d: want TOPOCTL_READ or TOPOCTL_WRITE", r.op)
	}
	if err := e.mayBegin(r.timeout); err != nil {
		return nil, err
	}
	ctx := until{e.ctx, r.begin.Add(e.timeout(r.timeout))}
	b, err := e.begin(ctx, r)
	if err != nil {
		return nil, err
	}
	return &batch{running: b, peer: r.peer, ops: int64(r.n), begin: r.begin, before: r.before, post: time.Since(r.begin)}, nil
}

// mayBegin says why no batch with such a timeout can begin.
func (e *Engine) mayBegin(timeoutNS int64) error {
	switch {
	case timeoutNS < 0:
		return fail(Invalid, "timeout of %d ns: want 0 or more", timeoutNS)
	case e.batches.Len() >= maxBatches:
		return fail(Limit, "%d batches are not released: the limit", maxBatches)
	}
	return nil
}

// timeout is the engine's default for 0.
func (e *Engine) timeout(ns int64) time.Duration {
	if ns == 0 {
		return e.o.DefaultTimeout
	}
	return nanoseconds(ns)
}

// maxBatches are those that are not released.
const maxBatches = 1 << 20

// nanoseconds bounds a time from outside.
func nanoseconds(n int64) time.Duration {
	return time.Duration(min(max(n, 0), math.MaxInt64/4))
}

// until is a context with a deadline that the engine keeps by itself: it needs no timer and no
// goroutine to end.
type until struct {
	context.Context
	at time.Time
}

// Deadline implements context.Context.
func (u until) Deadline() (time.Time, bool) { return u.at, true }

// Done implements context.Context: the batch ends by the deadline, or with the engine.
func (u until) Done() <-chan struct{} { return nil }

// begin hands the batch to the engine at once where its peer is open. Else an operation opens the peer first, or asks
// it again what it offers, and the caller is not held up.
func (e *Engine) begin(ctx until, r *request) (running, error) {
	if x := e.opened(r.peer); x != nil && x.connected() {
		b, err := e.hand(ctx, x, r)
		if err == nil || !x.lost() && StatusOf(err) != NoRegion {
			return b, err
		}
	}
	if err := e.checkName(r.peer); err != nil {
		return nil, err
	}
	kept, err := e.kept(r)
	if err != nil {
		e.refused(err)
		return nil, err
	}
	o := &operation{peer: r.peer, ops: r.n}
	return e.operate(o, func(canceled context.Context) ([]byte, error) {
		deadline := ctx.at
		if most := r.begin.Add(e.o.DefaultTimeout); most.Before(deadline) {
			deadline = most // of opening the peer, and asking it
		}
		opening, cancel := context.WithDeadline(canceled, deadline)
		defer cancel()
		b, err := e.openAndHand(ctx, opening, kept)
		if err != nil {
			e.refused(err)
			return nil, err
		}
		return nil, o.follow(canceled, b)
	})
}

// refused counts a batch that the engine has not seen.
func (e *Engine) refused(err error) {
	own, ok := errors.AsType[*Error](err)
	switch {
	case !ok:
	case own.Status == NoRegion:
		e.noRegion.Add(1)
	case own.Status == PeerLost:
		e.restarted.Add(1)
	}
}

// kept is a request without memory of the caller, after checks of what this engine knows by itself.
func (e *Engine) kept(r *request) (*request, error) {
	moves := make([]move, r.n)
	here := cursor[*region]{space: *e.local.Load()}
	for i := range moves {
		m, err := r.at(i)
		if err == nil {
			err = m.check(i)
		}
		if err != nil {
			return nil, err
		}
		moves[i] = m
		for m.length > 0 {
			a := here.at(m.local)
			if a == nil {
				return nil, notRegistered(i, m)
			}
			n := min(m.length, a.hi-m.local)
			m = move{m.local + n, m.remote + n, m.length - n}
		}
	}
	out := *r
	out.at, out.notify = func(i int) (move, error) { return moves[i], nil }, slices.Clone(r.notify)
	return &out, nil
}

func notRegistered(i int, m move) error {
	return fail(NoRegion, "op %d: %d bytes at %#x: not registered: %w", i, m.length, m.local, engine.ErrNoRegion)
}

// openAndHand opens the peer where that is needed. What the peer offers may have changed, or the peer
// itself: then it is looked at again, once for each.
func (e *Engine) openAndHand(ctx until, opening context.Context, r *request) (running, error) {
	if x := e.opened(r.peer); x != nil {
		x.settle(opening, e.settle)
	}
	for {
		x, err := e.peer(opening, r.peer)
		if err != nil {
			return nil, err
		}
		b, err := e.hand(ctx, x, r)
		if StatusOf(err) == NoRegion && !x.lost() {
			if err = x.refresh(opening); err == nil {
				b, err = e.hand(ctx, x, r)
			}
		}
		if err == nil || !x.lost() || opening.Err() != nil {
			return b, err
		}
	}
}

// hand gives the batch to the engine.
func (e *Engine) hand(ctx until, x *peer, r *request) (running, error) {
	if x.stock != nil {
		r.before = time.Since(r.begin)
		return e.beginClassic(x, r, ctx.at)
	}
	o := engine.SubmitOptions{Notify: slices.Clone(r.notify)}
	if r.notify != nil && o.Notify == nil {
		o.Notify = []byte{}
	}
	ops := opLists.Get().(*opList)
	defer ops.put()
	if err := ops.fill(e, x, r); err != nil {
		return nil, err
	}
	r.before = time.Since(r.begin)
	b, err := x.p.Submit(ctx, ops.list, o)
	if err != nil {
		return nil, ops.byCaller(err)
	}
	return b, nil
}

// opList is a batch's ops by region, with the caller's number of each.
type opList struct {
	list []engine.Op
	from []int32
}

// opLists are used again: the engine keeps none.
var opLists = sync.Pool{New: func() any { return &opList{} }}

func (l *opList) put() {
	const most = 1 << 14 // more is not kept
	if cap(l.list) <= most {
		clear(l.list)
		opLists.Put(l)
	}
}

// fill finds the regions of every op. One that crosses ranges which touch is split, and one
// that goes on where the one before it ends, on both sides, is joined to it.
func (l *opList) fill(e *Engine, x *peer, r *request) error {
	l.list, l.from = slices.Grow(l.list[:0], r.n), slices.Grow(l.from[:0], r.n)
	here := cursor[*region]{space: *e.local.Load()}
	there := cursor[*engine.RemoteRegion]{space: *x.offered.Load()}
	kind := engine.Read
	if r.op == 1 {
		kind = engine.Write
	}
	for i := range r.n {
		m, err := r.at(i)
		if err != nil {
			return err
		}
		if err := m.check(i); err != nil {
			return err
		}
		for m.length > 0 {
			a, b := here.at(m.local), there.at(m.remote)
			switch {
			case a == nil:
				return notRegistered(i, m)
			case b == nil:
				return fail(NoRegion, "op %d: %d bytes at the peer's %#x: it does not offer them: %w", i, m.length, m.remote, engine.ErrNoRegion)
			}
			n := min(m.length, a.hi-m.local, b.hi-m.remote)
			l.add(engine.Op{Kind: kind, Local: a.of.Span(int64(m.local-a.lo), int64(n)), Remote: b.of.At(int64(m.remote - b.lo))}, int32(i))
			m = move{m.local + n, m.remote + n, m.length - n}
		}
	}
	return nil
}

func (l *opList) add(op engine.Op, from int32) {
	if n := len(l.list); n > 0 {
		last := &l.list[n-1]
		if last.Local.Region == op.Local.Region && last.Remote.Region == op.Remote.Region &&
			last.Local.Offset+last.Local.Length == op.Local.Offset && last.Remote.Offset+last.Local.Length == op.Remote.Offset {
			last.Local.Length += op.Local.Length
			return
		}
	}
	l.list, l.from = append(l.list, op), append(l.from, from)
}

// byCaller gives an error the caller's number of the op that it is about.
func (l *opList) byCaller(err error) error {
	op, ok := errors.AsType[*engine.OpError](err)
	if !ok || op.Op < 0 || op.Op >= len(l.from) {
		return err
	}
	return fmt.Errorf("op %d: %w", l.from[op.Op], op.Err)
}
