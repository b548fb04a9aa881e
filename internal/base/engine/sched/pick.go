package sched

import (
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

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
			if l != nil && l.health() == pathsel.HalfOpen && l.posted == 0 && l.room() >= bytes {
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
	slice := pathsel.Slice{Bytes: bytes, Remaining: max(r.backlog(j.class()), bytes), Request: j.id<<32 | uint64(j.cursor.op), Index: j.index}
	if j.again != nil {
		slice.Index, slice.Attempt = j.again.index, j.again.Attempt
	}
	if g.current(c, r.peer) {
		if l, sure := c.pull(r, g, &slice); sure {
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

// pick asks the policy. One that knows no windows may choose a lane whose connection is
// full: then the slice waits.
func (g *group) pick(slice *pathsel.Slice) *lane {
	at := g.picker.Prepared(*slice, g.policyStates())
	if at < 0 || at >= len(g.lanes) {
		return nil
	}
	if l := g.lanes[at]; l.posted < max(l.limits.MaxPosted, 1) {
		return l
	}
	return nil
}

// policyStates is what the policy sees.
func (g *group) policyStates() pathsel.LaneStates {
	states := pathsel.LaneStates{Lanes: g.states}
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

// pull is short where no lane had room when the policy was asked last: only those from
// which a slice came back can have any. It says whether it is sure.
func (c *Core) pull(r *Route, g *group, slice *pathsel.Slice) (*lane, bool) {
	if !g.full || !g.pulls {
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
	case pathsel.Sick:
		return nil
	case pathsel.HalfOpen:
		if l.posted > 0 {
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
	*st = pathsel.LaneState{Health: pathsel.Sick}
	if l == nil {
		return
	}
	l.mirror, l.mirrorAt = st, i
	if st.Health = l.health(); st.Health == pathsel.Sick {
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
	if l.posted >= max(l.limits.MaxPosted, 1) {
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
	s.index = j.index
	j.index++
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
	}
	if l.posted == 0 {
		l.est.begin(c.clock, float64(c.cfg.HalfLifeNS))
		l.mark, l.movedAt = p.at(c), c.clock
	}
	s.Job, s.Lane, s.Conn, s.postedAt = j, l.id, l.conn, c.clock
	s.use = j.use(l)
	j.uses[s.use]++
	if u := &j.Result.Lanes[s.use]; u.FirstNS == 0 {
		u.FirstNS = c.now
	}
	j.inflight++
	l.posted++
	p.posted++
	c.posted++
	l.load(s.Bytes)
	if l.mirror != nil {
		l.mirrorLoad()
	}
	l.enlist(s)
	c.checkBy(c.now + c.tick())
	c.do(Action{Do: Post, Job: j, Slice: s, Lane: l.id, Peer: p.id, Conn: l.conn})
}
