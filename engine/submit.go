package engine

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	mem "github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/internal/direction"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/sched"
	"github.com/topoctl/topoctl/pathsel"
)

// Span is a range of a local region.
type Span struct {
	Region         *Region
	Offset, Length int64
}

// RemoteSpan is a place in a peer's region; the local span has the length.
type RemoteSpan struct {
	Region *RemoteRegion
	Offset int64
}

// OpKind says in which direction an op moves bytes.
type OpKind uint8

// The kinds of ops, as seen from the engine that submits them.
const (
	Write OpKind = iota // from the local region to the peer's
	Read                // from the peer's region to the local one
)

// String is "write" or "read".
func (k OpKind) String() string { return direction.Direction(k).String() }

// Op is one piece of a batch: see WriteOp, ReadOp, WritePages and ReadPages. Layout says how the bytes
// lie; nil is contiguous.
type Op struct {
	Kind   OpKind
	Local  Span
	Remote RemoteSpan
	Layout *Layout
}

// Layout describes pieces of equal size. On each side, piece k begins k strides after
// the span's offset, or, with pages, as many strides after it as entry k says. The length
// of the local span must then be Bytes*Count, or 0. The pages must not be changed until
// the batch is done.
type Layout struct {
	Bytes                     int64
	Count                     int
	LocalStride, RemoteStride int64 // default Bytes
	LocalPages, RemotePages   []uint32
}

// WriteOp copies a local span to a peer.
func WriteOp(from Span, to RemoteSpan) Op { return Op{Local: from, Remote: to} }

// ReadOp copies from a peer into a local span.
func ReadOp(into Span, from RemoteSpan) Op { return Op{Kind: Read, Local: into, Remote: from} }

// WritePages copies pages of pageBytes to a peer: the page of each number in fromPages, counted from where from
// begins, to that of the same place in toPages, counted from where to begins. Without numbers on one side, the pages
// follow one another there. The length of from does not count. The numbers must not be changed until the batch is done.
func WritePages(from Span, fromPages []uint32, to RemoteSpan, toPages []uint32, pageBytes int64) Op {
	from.Length = 0
	return Op{Local: from, Remote: to, Layout: &Layout{
		Bytes: pageBytes, Count: max(len(fromPages), len(toPages)), LocalPages: fromPages, RemotePages: toPages,
	}}
}

// ReadPages copies pages from a peer, as WritePages does to it.
func ReadPages(into Span, intoPages []uint32, from RemoteSpan, fromPages []uint32, pageBytes int64) Op {
	o := WritePages(into, intoPages, from, fromPages, pageBytes)
	o.Kind = Read
	return o
}

// SubmitOptions are options for one batch.
type SubmitOptions struct {
	HighPriority bool
	Check        Check
	Transport    pathsel.Transport // use only this one; "" uses any
	Label        string            // appears in explanations
	// Notify is delivered to the peer's application exactly once, after the last byte
	// of the batch is in place; nil sends none. It must not be changed until the batch
	// is done.
	Notify []byte
}

// maxNotify bounds a notification.
const maxNotify = 1 << 20

// Submit starts a batch and returns at once. ctx bounds the whole batch; without a
// deadline, Options.DefaultTimeout does. All ops are checked first: if Submit fails,
// nothing moves. The memory of the ops must not be used until the batch is done; the
// slice of ops may be.
func (p *Peer) Submit(ctx context.Context, ops []Op, o SubmitOptions) (*Batch, error) {
	return p.submit(ctx, ops, o, false)
}

func (p *Peer) submit(ctx context.Context, ops []Op, o SubmitOptions, awaited bool) (*Batch, error) {
	b, err := p.prepare(ctx, ops, o)
	if err == nil {
		err = b.start(ctx, awaited)
	}
	if err != nil {
		p.engine.count.failures.add(failedSubmit, err)
		return nil, pkgerr.Errorf("engine", "peer %q: %w", p.name, err)
	}
	return b, nil
}

// Write copies a local span to the peer and waits for it.
func (p *Peer) Write(ctx context.Context, from Span, to RemoteSpan) error {
	return p.one(ctx, Op{Local: from, Remote: to})
}

// Read copies from the peer into a local span and waits for it.
func (p *Peer) Read(ctx context.Context, into Span, from RemoteSpan) error {
	return p.one(ctx, Op{Kind: Read, Local: into, Remote: from})
}

func (p *Peer) one(ctx context.Context, op Op) error {
	ops := [1]Op{op}
	b, err := p.submit(ctx, ops[:], SubmitOptions{}, true)
	if err != nil {
		return err
	}
	// ctx ends the batch, and the buffers are not free before.
	return b.Wait(context.Background())
}

// Notify delivers a payload of up to 1 MiB to the peer's application exactly once, and
// waits until it is there.
func (p *Peer) Notify(ctx context.Context, payload []byte) error {
	if payload == nil {
		payload = []byte{}
	}
	b, err := p.Submit(ctx, nil, SubmitOptions{Notify: payload})
	if err != nil {
		return err
	}
	<-b.Done()
	return b.Err()
}

// prepare checks the ops and makes the batch of them.
func (p *Peer) prepare(ctx context.Context, ops []Op, o SubmitOptions) (*Batch, error) {
	e := p.engine
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if len(ops) > e.o.Limits.BatchOps {
		return nil, fmt.Errorf("batch of %d ops: %w is %d", len(ops), ErrLimit, e.o.Limits.BatchOps)
	}
	if len(o.Notify) > maxNotify {
		return nil, fmt.Errorf("notification of %d bytes: %w is %d", len(o.Notify), ErrLimit, maxNotify)
	}
	if o.Transport != "" && e.carrierOf(string(o.Transport)) == nil {
		return nil, invalid("transport %q: the engine has %s", o.Transport, e.carrierNames())
	}
	b := &Batch{engine: e, peer: p, o: o, ops: len(ops), done: make(chan struct{})}
	b.begin = e.now()
	timeout := e.o.DefaultTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = time.Until(deadline)
	}
	b.deadline = b.begin + int64(min(timeout, longest))
	if err := b.build(ops); err != nil {
		b.unpin()
		return nil, err
	}
	return b, nil
}

// longest keeps deadlines far from where times overflow: a hundred years.
const longest = 100 * 365 * 24 * time.Hour

// build checks every op and sorts them by route.
func (b *Batch) build(ops []Op) error {
	t := batchBuilder{b: b, lastLocal: -1, lastRemote: -1}
	t.order.sorted = true
	for i := range ops {
		if err := t.op(&ops[i], i); err != nil {
			return &OpError{Op: i, Err: err}
		}
	}
	if err := t.overlaps(); err != nil {
		return err
	}
	if b.engine.wantsDigest(b.o.Check) {
		if err := b.checkDigest(); err != nil {
			return err
		}
	}
	return b.peer.checkQuarantine(t.b)
}

// batchBuilder makes a batch of ops.
type batchBuilder struct {
	b                     *Batch
	lastLocal, lastRemote int32
	localAt               map[*Region]int32 // where there are many
	remoteAt              map[*RemoteRegion]int32
	lastPart              *part
	reads, writes         bool
	order                 order
}

// order says whether the destinations so far are in ascending order, which makes
// the search for overlaps short.
type order struct {
	sorted bool
	region int32
	hi     int64
}

func (t *batchBuilder) op(o *Op, i int) error {
	b := t.b
	l, r := o.Local.Region, o.Remote.Region
	switch {
	case l == nil:
		return invalid("no local region")
	case r == nil:
		return invalid("no remote region")
	case l.engine != b.engine:
		return invalid("region %q is another engine's", l.r.Name())
	case r.peer != b.peer:
		return invalid("region %q is of another peer (%q)", r.name, r.peer.name)
	case r.closed.Load():
		return fmt.Errorf("region %q of the peer: closed there: %w", r.name, ErrNoRegion)
	}
	var f checkedOp
	if err := checkOp(o, &f); err != nil {
		return err
	}
	if err := checkPlaces(o, &f); err != nil {
		return err
	}
	var err error
	if f.op.Local, err = t.local(l); err != nil {
		return err
	}
	f.op.Remote = t.remote(r)
	if f.op.Bytes == 0 || f.op.Count == 0 {
		return nil // it is allowed, and nothing moves
	}
	if total := f.op.Bytes * int64(f.op.Count); b.total > maxBatchBytes-total {
		return fmt.Errorf("batch of more than %d bytes: %w", int64(maxBatchBytes), ErrLimit)
	} else {
		b.total += total
	}
	part, err := t.part(l, r)
	if err != nil {
		return err
	}
	part.bytes += f.op.Bytes * int64(f.op.Count)
	part.ops = append(part.ops, f.op)
	part.places = append(part.places, opRange{op: int32(i), local: f.local, remote: f.remote})
	return t.noteDestination(part)
}

// maxBatchBytes keeps sums of bytes far from where they overflow.
const maxBatchBytes = 1 << 60

// noteDestination checks the last op by itself, and keeps what the search for overlaps
// needs to know of the order.
func (t *batchBuilder) noteDestination(p *part) error {
	op, at := &p.ops[len(p.ops)-1], &p.places[len(p.places)-1]
	region, all := op.Remote, at.remote
	if op.Kind == direction.Read {
		t.reads = true
		region, all = op.Local, at.local
	} else {
		t.writes, t.b.writes = true, true
	}
	if op.Count > 1 {
		s := sideOf(op, at.op, all, op.Kind == direction.Write)
		if s.selfOverlap() {
			return fmt.Errorf("pieces of it write the same bytes: %w", ErrOverlap)
		}
	}
	o := &t.order
	if region < o.region || region == o.region && all.lo < o.hi {
		o.sorted = false
	}
	o.region, o.hi = region, all.hi
	return nil
}

// overlaps refuses batches whose result would hang on the order of slices.
func (t *batchBuilder) overlaps() error {
	if t.order.sorted && t.reads != t.writes {
		return nil
	}
	both := t.reads && t.writes
	search := t.b.engine.pools.overlaps.Get().(*overlapSearch)
	defer t.b.engine.pools.overlaps.Put(search)
	defer search.forget()
	for _, remote := range [2]bool{true, false} {
		if !both && remote == t.reads {
			continue // nothing is written there
		}
		search.outlines = slices.Grow(search.outlines[:0], t.b.ops)
		for _, p := range t.b.parts {
			for i := range p.ops {
				o := outline{p.places[i].local, p.ops[i].Local, int32(len(search.outlines))}
				if remote {
					o.byteRange, o.region = p.places[i].remote, p.ops[i].Remote
				}
				search.outlines = append(search.outlines, o)
			}
		}
		a, b, err := search.find(func(number int32) opSide { return t.side(int(number), remote) })
		if err != nil {
			return err
		}
		if a >= 0 {
			where := "in local memory"
			if remote {
				where = "in the peer's memory"
			}
			return &OpError{Op: int(b), Err: fmt.Errorf("it and op %d touch the same bytes %s, and the order is not defined: %w", a, where, ErrOverlap)}
		}
	}
	return nil
}

// side is one side of the op of this number, counted through the parts.
func (t *batchBuilder) side(number int, remote bool) opSide {
	parts := t.b.parts
	for number >= len(parts[0].ops) {
		number -= len(parts[0].ops)
		parts = parts[1:]
	}
	at := &parts[0].places[number]
	all := at.local
	if remote {
		all = at.remote
	}
	return sideOf(&parts[0].ops[number], at.op, all, remote)
}

const linearSearchMax = 8

// local gives the batch's handle of a region, which it pins.
func (t *batchBuilder) local(r *Region) (int32, error) {
	b := t.b
	if t.lastLocal >= 0 && b.locals[t.lastLocal] == r {
		return t.lastLocal, nil
	}
	at, known := find(b.locals, t.localAt, r)
	if !known {
		if !r.pin() {
			return 0, fmt.Errorf("region %q: %w", r.r.Name(), ErrClosed)
		}
		at = int32(len(b.locals))
		b.locals = append(b.locals, r)
		t.localAt = index(b.locals, t.localAt)
	}
	t.lastLocal, t.lastPart = at, nil
	return at, nil
}

func (t *batchBuilder) remote(r *RemoteRegion) int32 {
	b := t.b
	if t.lastRemote >= 0 && b.remotes[t.lastRemote] == r {
		return t.lastRemote
	}
	at, known := find(b.remotes, t.remoteAt, r)
	if !known {
		at = int32(len(b.remotes))
		b.remotes = append(b.remotes, r)
		t.remoteAt = index(b.remotes, t.remoteAt)
	}
	t.lastRemote, t.lastPart = at, nil
	return at
}

func find[T comparable](list []T, at map[T]int32, x T) (int32, bool) {
	if at != nil {
		i, ok := at[x]
		return i, ok
	}
	for i, y := range list {
		if x == y {
			return int32(i), true
		}
	}
	return 0, false
}

// index keeps a map once there are many.
func index[T comparable](list []T, at map[T]int32) map[T]int32 {
	if len(list) <= linearSearchMax {
		return nil
	}
	if at == nil {
		at = map[T]int32{}
		for i, x := range list {
			at[x] = int32(i)
		}
	}
	at[list[len(list)-1]] = int32(len(list) - 1)
	return at
}

// part finds the part of the batch for the route between two regions.
func (t *batchBuilder) part(l *Region, r *RemoteRegion) (*part, error) {
	if t.lastPart != nil {
		return t.lastPart, nil
	}
	b := t.b
	route, err := b.peer.route(routeKey{l.location, r.location, string(b.o.Transport), r.reach.Load() &^ l.unregistered})
	if err != nil {
		return nil, err
	}
	for _, p := range b.parts {
		if p.route == route {
			t.lastPart = p
			return p, nil
		}
	}
	p := b.addPart(route)
	t.lastPart = p
	return p, nil
}

// byteRange is a range of bytes [lo, hi).
type byteRange struct{ lo, hi int64 }

// checkedOp is an op as both the scheduler and the checks need it.
type checkedOp struct {
	op            sched.Op  // without the regions' handles
	local, remote byteRange // first to last byte
}

// checkOp checks that an op makes sense by itself.
func checkOp(o *Op, f *checkedOp) error {
	f.op = sched.Op{Kind: direction.Direction(o.Kind), LocalOffset: o.Local.Offset, RemoteOffset: o.Remote.Offset, Bytes: o.Local.Length, Count: 1}
	if o.Kind > Read {
		return invalid("op of kind %d: want Write or Read", uint8(o.Kind))
	}
	l := o.Layout
	if l != nil {
		f.op.Bytes, f.op.Count = l.Bytes, l.Count
		f.op.LocalStride, f.op.RemoteStride = l.LocalStride, l.RemoteStride
		f.op.LocalPages, f.op.RemotePages = l.LocalPages, l.RemotePages
		if err := checkLayout(l, o.Local.Length); err != nil {
			return err
		}
		if f.op.LocalStride == 0 {
			f.op.LocalStride = l.Bytes
		}
		if f.op.RemoteStride == 0 {
			f.op.RemoteStride = l.Bytes
		}
	}
	if f.op.Bytes < 0 {
		return invalid("%s of %d bytes", o.Kind, f.op.Bytes)
	}
	if f.op.Count > 1 && f.op.Bytes > math.MaxInt64/int64(f.op.Count) {
		return fmt.Errorf("%d pieces of %d bytes: %w", f.op.Count, f.op.Bytes, ErrRange)
	}
	var ok, okThere bool
	f.local, ok = span(f.op.LocalOffset, f.op.LocalStride, f.op.LocalPages, &f.op)
	f.remote, okThere = span(f.op.RemoteOffset, f.op.RemoteStride, f.op.RemotePages, &f.op)
	if !ok {
		return placeError(o, f, o.Local.Region.r.Name(), o.Local.Offset, o.Local.Region.Size(), "")
	}
	if !okThere {
		return placeError(o, f, o.Remote.Region.name, o.Remote.Offset, o.Remote.Region.t.Bytes, " of the peer")
	}
	return nil
}

func checkLayout(l *Layout, length int64) error {
	switch {
	case l.Count < 0:
		return invalid("layout of %d pieces", l.Count)
	case l.LocalStride < 0 || l.RemoteStride < 0:
		return invalid("layout with a negative stride")
	case l.LocalPages != nil && len(l.LocalPages) != l.Count:
		return invalid("layout of %d pieces with %d local pages", l.Count, len(l.LocalPages))
	case l.RemotePages != nil && len(l.RemotePages) != l.Count:
		return invalid("layout of %d pieces with %d remote pages", l.Count, len(l.RemotePages))
	case length != 0 && (l.Bytes <= 0 || length/l.Bytes != int64(l.Count) || length%l.Bytes != 0):
		return invalid("layout of %d pieces of %d bytes with a span of %d bytes: want that many, or 0", l.Count, l.Bytes, length)
	}
	return nil
}

// span finds the first and the last byte of one side; false where that is no
// number.
func span(offset, stride int64, pages []uint32, o *sched.Op) (byteRange, bool) {
	if offset < 0 {
		return byteRange{}, false
	}
	if o.Count == 0 || o.Bytes == 0 {
		return byteRange{offset, offset}, true
	}
	first, last := int64(0), int64(o.Count-1)
	if pages != nil {
		first, last = int64(slices.Min(pages)), int64(slices.Max(pages))
	}
	if last > 0 && stride > math.MaxInt64/last {
		return byteRange{}, false
	}
	most := last * stride
	if most > math.MaxInt64-o.Bytes || most+o.Bytes > math.MaxInt64-offset {
		return byteRange{}, false
	}
	return byteRange{offset + first*stride, offset + most + o.Bytes}, true
}

// checkPlaces checks both ranges of an op and the peer's grant.
func checkPlaces(o *Op, f *checkedOp) error {
	if f.local.hi > o.Local.Region.Size() {
		return placeError(o, f, o.Local.Region.r.Name(), o.Local.Offset, o.Local.Region.Size(), "")
	}
	r := o.Remote.Region
	if f.remote.hi > r.t.Bytes {
		return placeError(o, f, r.name, o.Remote.Offset, r.t.Bytes, " of the peer")
	}
	want := mem.PeerWrite
	if o.Kind == Read {
		want = mem.PeerRead
	}
	if r.t.Grant&want == 0 {
		return fmt.Errorf("region %q of the peer: %s: %w", r.name, o.Kind, ErrDenied)
	}
	return nil
}

func placeError(o *Op, f *checkedOp, region string, offset, size int64, whose string) error {
	if o.Layout != nil {
		return fmt.Errorf("region %q%s: %s of %d pieces of %d bytes from %d: %w (%d bytes)",
			region, whose, o.Kind, f.op.Count, f.op.Bytes, offset, ErrRange, size)
	}
	return fmt.Errorf("region %q%s: %s of %d bytes at %d: %w (%d bytes)",
		region, whose, o.Kind, f.op.Bytes, offset, ErrRange, size)
}
