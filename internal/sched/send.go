package sched

import (
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pick"
)

// queue is the jobs of one class on one route that have something to send, each
// in its turn. Those with slices to send again come first.
type queue struct{ first, last *Job }

// enqueue puts a job behind the others.
func (c *Core) enqueue(j *Job) {
	r := j.Route
	q := &r.queues[j.class()]
	c.turns++
	j.turn, j.queued = c.turns, true
	j.prev, j.next = q.last, nil
	if q.last != nil {
		q.last.next = j
	} else {
		q.first = j
	}
	q.last = j
	c.countWaiting(r, j.class(), 1)
}

// requeue puts a job before the others.
func (c *Core) requeue(j *Job) {
	j.Route.peer.version++
	c.dequeue(j)
	r := j.Route
	q := &r.queues[j.class()]
	j.turn, j.queued = 0, true
	j.prev, j.next = nil, q.first
	if q.first != nil {
		q.first.prev = j
	} else {
		q.last = j
	}
	q.first = j
	c.countWaiting(r, j.class(), 1)
}

func (c *Core) dequeue(j *Job) {
	if !j.queued {
		return
	}
	q := &j.Route.queues[j.class()]
	if j.prev != nil {
		j.prev.next = j.next
	} else {
		q.first = j.next
	}
	if j.next != nil {
		j.next.prev = j.prev
	} else {
		q.last = j.prev
	}
	j.prev, j.next, j.queued = nil, nil, false
	c.countWaiting(j.Route, j.class(), -1)
}

// countWaiting keeps the lists of who waits.
func (c *Core) countWaiting(r *Route, class Priority, n int) {
	p := r.peer
	p.waitingJobs[class] += n
	if n > 0 {
		if !r.active {
			r.active = true
			p.active = append(p.active, r)
		}
		if p.waitAt < 0 {
			p.waitAt = len(c.waiting)
			c.waiting = append(c.waiting, p)
		}
		c.touch(p)
		c.checkBy(c.now + c.tick())
		return
	}
	if p.waitingJobs[Normal]+p.waitingJobs[High] == 0 {
		if c.waiting = without(c.waiting, p.waitAt); p.waitAt < len(c.waiting) {
			c.waiting[p.waitAt].waitAt = p.waitAt
		}
		p.waitAt = -1
	}
}

// touch has a peer pumped at the end of the step.
func (c *Core) touch(p *peer) {
	if !p.dirty {
		p.dirty = true
		c.dirty = append(c.dirty, p)
	}
}

// pump gives lanes with room what waits: a slice for each peer in turn, because
// they may share ports.
func (c *Core) pump() {
	if c.wakeAll {
		c.wakeAll = false
		for _, p := range c.waiting {
			c.touch(p)
		}
	}
	if len(c.dirty) == 0 {
		return
	}
	c.round++
	c.rotor++
	due := c.dirty
	for n := len(due); n > 0; {
		left := 0
		for k := range n {
			p := due[(k+c.rotor)%n]
			if c.pumpOne(p) {
				continue
			}
			p.dirty = false
			for _, l := range p.freed {
				l.freed = false
			}
			p.freed = p.freed[:0]
		}
		for _, p := range due[:n] {
			if p.dirty {
				due[left] = p
				left++
			}
		}
		n = left
	}
	c.dirty = c.dirty[:0]
}

// highInARow is how many slices of High go before one of Normal that waits.
const highInARow = 7

// pumpOne posts one slice to a peer, if any lane takes one.
func (c *Core) pumpOne(p *peer) bool {
	first := High
	if p.waitingJobs[High] == 0 || p.highRun >= highInARow && p.waitingJobs[Normal] > 0 {
		first = Normal
	}
	return c.serve(p, first) || c.serve(p, High-first)
}

// serve posts one slice of a class, of the job whose turn it is.
func (c *Core) serve(p *peer, class Priority) bool {
	if p.waitingJobs[class] == 0 {
		return false
	}
	for {
		r := c.nextRoute(p, class)
		if r == nil {
			return false
		}
		j := r.queues[class].first
		if !c.sendNext(r, j) {
			r.blocked[class] = c.round
			continue
		}
		if class == Normal {
			p.highRun = 0
		} else if p.waitingJobs[Normal] > 0 {
			p.highRun++
		}
		switch {
		case j.unsent == 0 && j.again == nil:
			c.dequeue(j)
		case j.again == nil && j.next != nil:
			c.dequeue(j)
			c.enqueue(j)
		case j.again == nil: // alone on its route
			c.turns++
			j.turn = c.turns
		}
		return true
	}
}

// nextRoute is the route whose first job has waited longest, nil if none has a
// lane with room. It drops routes that have nothing queued.
func (c *Core) nextRoute(p *peer, class Priority) *Route {
	var best *Route
	for i := 0; i < len(p.active); i++ {
		r := p.active[i]
		if r.queues[Normal].first == nil && r.queues[High].first == nil {
			r.active = false
			p.active = without(p.active, i)
			i--
			continue
		}
		if q := &r.queues[class]; q.first != nil && r.blocked[class] != c.round &&
			(best == nil || q.first.turn < best.queues[class].first.turn) {
			best = r
		}
	}
	return best
}

// sendNext posts one slice of a job, if a lane should take it now.
func (c *Core) sendNext(r *Route, j *Job) bool {
	if r.seen != r.peer.seq {
		c.connectWanted(r)
	}
	if len(r.groups) == 0 {
		return false
	}
	bytes := c.sizeFor(r, j)
	l := c.tester(r, j, bytes)
	if l == nil {
		l = c.choose(r, j, bytes)
	}
	if l == nil {
		return false
	}
	s := c.nextSlice(j, l, bytes)
	c.post(j, l, s)
	return true
}

// sizeFor is how large the next slice of a job is at least: as the slowest lane
// takes them.
func (c *Core) sizeFor(r *Route, j *Job) int64 {
	if j.again != nil {
		return j.again.Bytes
	}
	g := &r.groups[r.cur]
	target := g.least
	if len(g.lanes) == 1 && g.first != nil {
		target = g.first.target
	}
	if target == 0 {
		target = c.cfg.SliceMinBytes
	}
	return min(target, j.sliceCap, j.unsent)
}

// tester is a half-open lane that waits for a slice. Of a better transport than
// the one in use it always gets one, else only where much is left to send.
func (c *Core) tester(r *Route, j *Job, bytes int64) *lane {
	if r.peer.testing == 0 {
		return nil
	}
	much := r.backlog(j.class()) >= minSlicesPerLane*bytes
	for i := 0; i <= r.cur; i++ {
		if i == r.cur && !much {
			return nil
		}
		for _, l := range r.groups[i].lanes {
			if l != nil && l.health() == pick.HalfOpen && len(l.slices) == 0 && l.room() >= bytes {
				return l
			}
		}
	}
	return nil
}

// choose asks the policy for a lane.
func (c *Core) choose(r *Route, j *Job, bytes int64) *lane {
	g := &r.groups[r.cur]
	if len(g.lanes) == 1 && len(g.set.Lanes) == 1 {
		return g.only(bytes)
	}
	slice := pick.Slice{Bytes: bytes, Remaining: max(r.backlog(j.class()), bytes)}
	if g.current(c, r.peer) {
		if l, decided := c.amongFreed(r, g, &slice); decided {
			return l
		}
		if l := g.pick(&slice); l == nil || l.room() >= bytes {
			g.full = l == nil
			return l
		}
	}
	c.refresh(r, g, bytes)
	l := g.pick(&slice)
	g.full = l == nil
	return l
}

// pick asks the policy.
func (g *group) pick(slice *pick.Slice) *lane {
	at := g.picker.Pick(*slice, g.policyStates())
	if at < 0 || at >= len(g.lanes) {
		return nil
	}
	return g.lanes[at]
}

// policyStates is what the policy sees.
func (g *group) policyStates() pick.States {
	states := pick.States{Lanes: g.states}
	if l := g.first; l != nil {
		states.Local, states.Remote = l.local.side.load, l.remote.side.load
	}
	return states
}

// current says whether what the policy sees is up to date but for what lanes
// have in flight, which they keep up themselves.
func (g *group) current(c *Core, p *peer) bool {
	return p.mirror == g && g.version == p.version && c.clock-g.freshAt < millisecond && !g.portBound
}

// amongFreed saves asking the policy where no lane had room when it was asked last: only lanes from
// which a slice has come back can have room. Where that decides, a lane of nil means that the slice
// waits; otherwise the policy is asked.
func (c *Core) amongFreed(r *Route, g *group, slice *pick.Slice) (*lane, bool) {
	if !g.full {
		return nil, false
	}
	room, states := false, g.policyStates()
	for _, l := range r.peer.freed {
		if l.room() < slice.Bytes {
			continue
		}
		room = true
		if l.mirror != nil && g.picker.Another(l.mirrorAt, slice, &states) {
			return l, true
		}
	}
	return nil, !room
}

// only is the lane of a group that has no other.
func (g *group) only(bytes int64) *lane {
	l := g.lanes[0]
	if l == nil {
		return nil
	}
	switch l.health() {
	case pick.Sick:
		return nil
	case pick.HalfOpen:
		if len(l.slices) > 0 {
			return nil
		}
	}
	if l.room() < bytes {
		l.holdBack(bytes)
		return nil
	}
	return l
}

// refresh brings what the policy sees up to date.
func (c *Core) refresh(r *Route, g *group, bytes int64) {
	p := r.peer
	if p.mirror != g {
		for _, l := range p.lanes {
			l.mirror = nil
		}
		p.mirror = g
	}
	g.version, g.freshAt, g.portBound = p.version, c.clock, false
	clear(g.best)
	for i, l := range g.lanes {
		if l != nil && l.phase == up && l.est.sampled() {
			g.best[g.class[i]] = max(g.best[g.class[i]], topo.Rate(l.est.measured()))
		}
	}
	g.least = 0
	changed := false
	for i := range g.lanes {
		st := &g.states[i]
		was := *st
		g.refreshLane(i, bytes)
		changed = changed || st.Health != was.Health || st.Rate != was.Rate
	}
	if changed { // at first every lane is sick, and nothing is prepared for that
		g.picker.Prepare(g.policyStates())
	}
}

// refreshLane brings what the policy sees of a lane up to date.
func (g *group) refreshLane(i int, bytes int64) {
	l, st := g.lanes[i], &g.states[i]
	*st = pick.State{Health: pick.Sick}
	if l == nil {
		return
	}
	l.mirror, l.mirrorAt = st, i
	if st.Health = l.health(); st.Health == pick.Sick {
		return
	}
	l.mirrorLoad()
	if min(l.local.room(), l.remote.room()) < bytes {
		st.Window, g.portBound = -1, true
		l.holdBack(bytes)
	}
	st.Rate = g.policyRate(i, l)
	if g.least == 0 || l.target < g.least {
		g.least = l.target
	}
}

// mirrorLoad shows the policy what a lane has in flight.
func (l *lane) mirrorLoad() {
	l.mirror.Inflight, l.mirror.Window = l.inflight, l.window
	if len(l.slices) >= max(l.limits.MaxPosted, 1) {
		l.mirror.Window = -1
	}
}

// policyRate is a lane's rate as policies get it. Lanes that promise the same and do
// nearly the same count as equal, and one that was not measured does as well as
// the best of its kind: an estimate is never exact, and small differences would
// give all of a small transfer to one lane.
func (g *group) policyRate(i int, l *lane) topo.Rate {
	best := g.best[g.class[i]]
	if !l.est.sampled() {
		return best // 0: what the topology promises
	}
	rate := topo.Rate(l.est.measured())
	if rate >= best-best/4 {
		return best
	}
	return rate
}

// nextSlice makes the slice for a lane: what is to be sent again first, else the next
// bytes of the job.
func (c *Core) nextSlice(j *Job, l *lane, bytes int64) *Slice {
	spans := max(l.limits.MaxSpans, 1)
	most := l.limits.MaxBytes
	if most <= 0 {
		most = Never
	}
	if s := j.again; s != nil {
		if s.Bytes <= most && s.Bytes <= 2*l.target && len(s.Spans) <= spans {
			j.again, s.next = s.next, nil
			c.unqueued(j, s.Bytes)
			return s
		}
		part := c.slice()
		s.carve(part, min(most, l.target), spans)
		c.unqueued(j, part.Bytes)
		return part
	}
	want, room := min(l.target, j.sliceCap), l.room()
	if want > room {
		want = max(bytes, room&^(sliceUnit-1))
	}
	if left := j.unsent - want; left < want/4 && j.unsent <= room {
		want = j.unsent // a small rest is not worth a slice
	}
	s := c.slice()
	j.cursor.cut(j.Ops, s, min(want, most, j.unsent), spans)
	j.unsent -= s.Bytes
	c.unqueued(j, s.Bytes)
	return s
}

func (c *Core) unqueued(j *Job, bytes int64) { j.Route.queued[j.class()] -= bytes }

// post hands a slice to a lane.
func (c *Core) post(j *Job, l *lane, s *Slice) {
	p := l.peer
	if p.posted == 0 {
		p.moved = c.clock
		if !p.busy {
			p.busy = true
			c.busy = append(c.busy, p)
		}
	}
	if len(l.slices) == 0 {
		l.est.begin(c.clock, float64(c.cfg.HalfLifeNS))
		l.mark, l.movedAt = p.at(c), c.clock
	}
	s.Job, s.Lane, s.Conn, s.postedAt = j, l.id, l.conn, c.clock
	s.use = j.use(l)
	u := &j.Result.Lanes[s.use]
	u.inflight++
	if u.FirstNS == 0 {
		u.FirstNS = c.now
	}
	j.inflight++
	s.lane, s.place = l, len(l.slices)
	l.slices = append(l.slices, s)
	p.posted++
	c.posted++
	l.load(s.Bytes)
	if l.mirror != nil {
		l.mirrorLoad()
	}
	c.checkBy(c.now + c.tick())
	c.do(Action{Do: Post, Job: j, Slice: s, Lane: l.id, Peer: p.id, Conn: l.conn})
}

// sliceUnit is what sizes of slices are multiples of.
const sliceUnit = 4 << 10

// cursor is how far a job has been cut.
type cursor struct {
	op    int
	piece int
	off   int64 // in the piece
}

// empty says whether an op moves nothing.
func (o *Op) empty() bool { return o.Bytes <= 0 || o.Count <= 0 }

// dense says whether an op's pieces follow each other without gaps on both
// sides: then it is one piece.
func (o *Op) dense() bool {
	return o.Count == 1 && o.LocalPages == nil && o.RemotePages == nil ||
		o.LocalPages == nil && o.RemotePages == nil && o.LocalStride == o.Bytes && o.RemoteStride == o.Bytes
}

// totalBytes is what the ops of a job move.
func totalBytes(ops []Op) int64 {
	n := int64(0)
	for i := range ops {
		if o := &ops[i]; !o.empty() {
			n += o.Bytes * int64(o.Count)
		}
	}
	return n
}

// cut fills a slice from where the cursor stands with about want bytes: less
// where the direction changes or the spans are used up, and up to a quarter less
// where a piece would be torn for it.
func (c *cursor) cut(ops []Op, s *Slice, want int64, maxSpans int) {
	s.Spans, s.Bytes = s.Spans[:0], 0
	for c.op < len(ops) && s.Bytes < want {
		o := &ops[c.op]
		if o.empty() {
			c.next()
			continue
		}
		if len(s.Spans) == 0 {
			s.Kind, s.firstOp = o.Kind, c.op
		} else if s.Kind != o.Kind {
			return
		}
		before := s.Bytes
		var more bool
		if o.dense() {
			more = c.cutDense(o, s, want, maxSpans)
		} else {
			more = c.cutPieces(o, s, want, maxSpans)
		}
		if s.Bytes > before {
			s.lastOp = c.op
		}
		if !more {
			return
		}
		c.next()
	}
}

func (c *cursor) next() { c.op, c.piece, c.off = c.op+1, 0, 0 }

// cutDense takes from an op that is one piece, and says whether it is used up.
func (c *cursor) cutDense(o *Op, s *Slice, want int64, maxSpans int) bool {
	left := o.Bytes*int64(o.Count) - c.off
	n := fit(s, left, want, s.follows(o.Local, o.Remote, o.LocalOffset+c.off, o.RemoteOffset+c.off))
	if n == 0 || !s.add(o.Local, o.Remote, o.LocalOffset+c.off, o.RemoteOffset+c.off, n, maxSpans) {
		return false
	}
	c.off += n
	return n == left
}

// cutPieces takes pieces of a regular op, and says whether it is used up.
func (c *cursor) cutPieces(o *Op, s *Slice, want int64, maxSpans int) bool {
	for c.piece < o.Count {
		if s.Bytes >= want {
			return false
		}
		here, there := int64(c.piece), int64(c.piece)
		if o.LocalPages != nil {
			here = int64(o.LocalPages[c.piece])
		}
		if o.RemotePages != nil {
			there = int64(o.RemotePages[c.piece])
		}
		local, remote := o.LocalOffset+here*o.LocalStride+c.off, o.RemoteOffset+there*o.RemoteStride+c.off
		left := o.Bytes - c.off
		n := left
		if s.Bytes+left > want {
			n = fit(s, left, want, s.follows(o.Local, o.Remote, local, remote))
		}
		if n == 0 || !s.add(o.Local, o.Remote, local, remote, n, maxSpans) {
			return false
		}
		if n < left {
			c.off += n
			return false
		}
		c.piece, c.off = c.piece+1, 0
	}
	return true
}

// fit is how much of a piece a slice takes: all of it, what there is room for,
// or nothing where a small piece would be torn although the slice is nearly full.
func fit(s *Slice, left, want int64, follows bool) int64 {
	room := want - s.Bytes
	switch {
	case left <= room:
		return left
	case !follows && left <= want/4 && s.Bytes >= want-want/4:
		return 0
	}
	return room
}

// follows says whether a piece continues the slice's last span on both sides.
func (s *Slice) follows(local, remote int32, here, there int64) bool {
	if len(s.Spans) == 0 {
		return false
	}
	l := &s.Spans[len(s.Spans)-1]
	return l.LocalOffset+l.Bytes == here && l.RemoteOffset+l.Bytes == there && l.Local == local && l.Remote == remote
}

// add appends a piece, or lengthens the last span by it. It says whether there
// was room.
func (s *Slice) add(local, remote int32, here, there, bytes int64, maxSpans int) bool {
	if n := len(s.Spans); n > 0 {
		l := &s.Spans[n-1]
		if l.LocalOffset+l.Bytes == here && l.RemoteOffset+l.Bytes == there && l.Local == local && l.Remote == remote {
			l.Bytes += bytes
			s.Bytes += bytes
			return true
		}
		if n >= maxSpans {
			return false
		}
	}
	s.Spans = append(s.Spans, Span{local, remote, here, there, bytes})
	s.Bytes += bytes
	return true
}

// carve moves the first bytes of a slice, whole spans where possible, to
// another: a lane that takes less than the one that failed gets a part of it.
func (s *Slice) carve(part *Slice, want int64, maxSpans int) {
	part.Spans, part.Bytes = part.Spans[:0], 0
	part.Kind, part.Probe, part.firstOp, part.lastOp, part.Attempt = s.Kind, s.Probe, s.firstOp, s.lastOp, s.Attempt
	used := 0
	for used < len(s.Spans) && len(part.Spans) < maxSpans && part.Bytes < want {
		x := &s.Spans[used]
		n := min(x.Bytes, want-part.Bytes)
		part.Spans = append(part.Spans, Span{x.Local, x.Remote, x.LocalOffset, x.RemoteOffset, n})
		part.Bytes += n
		if n < x.Bytes {
			x.LocalOffset, x.RemoteOffset, x.Bytes = x.LocalOffset+n, x.RemoteOffset+n, x.Bytes-n
			break
		}
		used++
	}
	s.Spans = append(s.Spans[:0], s.Spans[used:]...)
	s.Bytes -= part.Bytes
}
