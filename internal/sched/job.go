package sched

import (
	"errors"
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/internal/direction"
)

// jobState is the core's own part of a job.
type jobState struct {
	id       uint64
	sliceCap int64 // a slice is no larger, so that several are on their way
	cursor   cursor
	total    int64
	unsent   int64  // bytes that are not cut yet
	again    *Slice // to be sent again, the first one first
	held     *Slice // likewise, once the connections that they were lost on are fenced
	inflight int
	fences   []ConnID

	ending     bool // what is not sent is dropped
	finished   bool
	noFence    bool // the peer is gone: nobody is left to confirm fences
	err        error
	drainUntil int64 // then its slices in flight are killed
	fenceUntil int64 // an ending job waits so long for fences

	place      int // in Core.jobs
	queued     bool
	turn       uint64
	prev, next *Job // in the queue of its route
}

// maxJobNotes bounds Result.Notes.
const maxJobNotes = 16

func (j *Job) note(n Note) {
	if len(j.Result.Notes) < maxJobNotes {
		j.Result.Notes = append(j.Result.Notes, n)
	}
}

// class is the job's queue.
func (j *Job) class() Priority { return min(j.Priority, High) }

// use is the place of a lane in the job's Result.Lanes.
func (j *Job) use(l *lane) int {
	lanes := j.Result.Lanes
	if l.lastUse >= len(lanes) || lanes[l.lastUse].Lane != l.id {
		l.lastUse = slices.IndexFunc(lanes, func(u LaneUse) bool { return u.Lane == l.id })
	}
	if l.lastUse < 0 {
		l.lastUse = len(lanes)
		j.Result.Lanes = append(j.Result.Lanes, LaneUse{Lane: l.id, User: l.spec.User})
	}
	return l.lastUse
}

// submit takes a job in.
func (c *Core) submit(j *Job) {
	j.Result = Result{Lanes: j.Result.Lanes[:0], Notes: j.Result.Notes[:0], StartNS: c.now}
	c.ids.job++
	j.jobState = jobState{id: c.ids.job, total: totalBytes(j.Ops), fences: j.fences[:0], drainUntil: Never, place: len(c.jobs)}
	j.unsent = j.total
	c.jobs = append(c.jobs, j)
	r := j.Route
	c.adopt(r)
	r.jobs++
	c.freshen(r)
	switch {
	case r.peer == nil:
		c.reject(j, fmt.Errorf("%w: peer %d is not known", ErrNoLane, r.Peer))
	case j.unsent == 0:
		c.settle(j)
	case !r.any(func(l *lane) bool { return !l.gone }):
		c.reject(j, ErrNoLane)
	default:
		if j.DeadlineNS != 0 {
			c.checkBy(min(j.DeadlineNS, max(j.DeadlineNS-c.cfg.FenceNS, c.now+c.cfg.StallFloorNS)))
		}
		c.enqueue(j)
		r.peer.version++
		r.queued[j.class()] += j.unsent
		c.connectWanted(r)
		if r.cur > 0 {
			j.note(r.fallbackNote())
		}
		j.sliceCap = c.sliceCap(r, j.total)
	}
}

// reject fails a job that was not queued.
func (c *Core) reject(j *Job, err error) {
	j.unsent = 0
	c.end(j, err)
}

// minSlicesPerLane is into how many slices at least a job is cut for each lane that it
// deserves, if it is large enough: so that both ends work at the same time.
const minSlicesPerLane = 4

// sliceCap bounds the slices of a job of that many bytes.
func (c *Core) sliceCap(r *Route, bytes int64) int64 {
	n := bytes / (minSlicesPerLane * int64(c.deserves(r, bytes)))
	n = (n + sliceUnit - 1) &^ (sliceUnit - 1)
	return max(n, c.cfg.SliceMinBytes)
}

// done takes a slice back.
func (c *Core) done(e *Event) {
	s := e.Slice
	j, l := s.Job, s.lane
	if l == nil {
		return // it came back before
	}
	s.lane = nil
	if l.slices = without(l.slices, s.place); s.place < len(l.slices) {
		l.slices[s.place].place = s.place
	}
	l.peer.posted--
	c.posted--
	j.inflight--
	j.Result.Lanes[s.use].inflight--
	l.load(-s.Bytes)
	c.wakeWaiting(l)
	c.touch(l.peer)
	if !l.freed {
		l.freed = true
		l.peer.freed = append(l.peer.freed, l)
	}
	refused := e.Err != nil && !e.Retry
	if e.Err == nil || refused {
		c.progress(l)
	}
	if e.Err == nil {
		c.delivered(l, j, s)
	} else {
		c.notDelivered(l, j, s, e)
	}
	if l.mirror != nil {
		l.mirrorLoad()
	}
	if l.gone && len(l.slices) == 0 {
		if l.phase == idle { // its connection was lost before
			c.forget(l)
		} else {
			c.kill(l, ErrTakenOut)
		}
	}
	c.settle(j)
}

// delivered books a slice that is in place.
func (c *Core) delivered(l *lane, j *Job, s *Slice) {
	guessed := !l.est.sampled()
	l.est.done(c.clock, s.postedAt, s.Bytes, l.rtt, float64(c.cfg.HalfLifeNS))
	if guessed && l.est.sampled() && !l.est.known {
		l.peer.version++ // what was shared out by the guess is shared out anew
	}
	if l.testing {
		if l.good++; l.good >= goodSlices {
			c.recovered(l)
		}
	}
	if !s.Probe {
		l.doneBytes += s.Bytes
		l.doneSlices++
		u := &j.Result.Lanes[s.use]
		u.Bytes += s.Bytes
		u.Slices++
		u.LastNS = c.now
		j.Result.Bytes += s.Bytes
		j.Result.Slices++
	}
	c.size(l)
	c.recycle(s)
}

// notDelivered sends a slice again, or fails its job.
func (c *Core) notDelivered(l *lane, j *Job, s *Slice, e *Event) {
	mayLand := e.MayLand && s.Kind == direction.Write
	if mayLand {
		c.fence(l, j)
	}
	j.Result.Lanes[s.use].Err = e.Err
	if e.Retry {
		c.failedSlice(l, e.Err, mayLand)
	} else {
		l.lastErr = e.Err
	}
	if s.Probe && !e.Retry && !mayLand { // refused: it changed nothing
		c.recycle(s)
		return
	}
	opErr := func(err error) error {
		return &OpError{First: s.firstOp, Last: s.lastOp, Lane: l.spec.Name, Err: err}
	}
	switch {
	case !e.Retry:
		c.end(j, opErr(e.Err))
	case s.Attempt+1 >= c.cfg.MaxAttempts && !j.ending:
		c.end(j, opErr(fmt.Errorf("%w: %w", ErrAttempts, e.Err)))
	}
	j.Result.Lanes[s.use].Retries++
	l.retries++
	if j.ending {
		c.recycle(s)
		return
	}
	j.Result.Retries++
	s.Attempt++
	if mayLand && !l.fenced {
		s.next, j.held = j.held, s
		return
	}
	c.sendAgain(j, s)
}

// sendAgain puts a slice before all that its job still has to send.
func (c *Core) sendAgain(j *Job, s *Slice) {
	s.next, j.again = j.again, s
	j.Route.queued[j.class()] += s.Bytes
	c.requeue(j)
}

// settle finishes a job that has nothing left to wait for.
func (c *Core) settle(j *Job) {
	switch {
	case j.finished || j.inflight > 0:
		return
	case !j.ending && (j.unsent > 0 || j.again != nil || len(j.fences) > 0):
		return
	case j.ending && len(j.fences) > 0 && !j.noFence && c.now < j.fenceUntil:
		c.checkBy(j.fenceUntil)
		return
	}
	c.finish(j)
}

// finish ends a job.
func (c *Core) finish(j *Job) {
	j.finished = true
	c.dequeue(j)
	if c.jobs = without(c.jobs, j.place); j.place < len(c.jobs) {
		c.jobs[j.place].place = j.place
	}
	r := j.Route
	r.jobs--
	r.lastJob = c.now
	j.Result.EndNS = c.now
	j.Result.Err = j.err
	if len(j.fences) > 0 {
		j.Result.Unsafe = append([]ConnID(nil), j.fences...)
		for _, conn := range j.fences {
			c.fences[conn].remove(j)
		}
		j.Result.Err = unsafeErr(j)
		n := Note{Code: UnsafeBuffer, Peer: r.Peer, PeerName: r.peer.name, Err: j.Result.Err,
			Text: fmt.Sprintf("route %q to peer %q: a transfer ended while its bytes may still land", r.Name, r.peer.name)}
		j.note(n)
		c.do(Action{Do: Tell, Peer: r.Peer, Note: &n})
		j.fences = j.fences[:0]
	}
	c.do(Action{Do: Finish, Job: j, Peer: r.Peer})
}

// slice gives a slice to fill, recycle takes one back.
func (c *Core) slice() *Slice {
	if n := len(c.free); n > 0 {
		s := c.free[n-1]
		c.free = c.free[:n-1]
		return s
	}
	return &Slice{}
}

// mostSpans is how many spans a slice has room for that is used again.
const mostSpans = 1024

func (c *Core) recycle(s *Slice) {
	if cap(s.Spans) > mostSpans {
		*s = Slice{}
		return
	}
	*s = Slice{Spans: s.Spans[:0]}
	c.free = append(c.free, s)
}

// drop takes slices back that wait one behind the other, and says how many bytes they have.
func (c *Core) drop(s *Slice) (bytes int64) {
	for s != nil {
		next := s.next
		bytes += s.Bytes
		c.recycle(s)
		s = next
	}
	return bytes
}

// end fails a job: what is not sent is dropped, what is in flight may end until
// the job's deadline.
func (c *Core) end(j *Job, err error) {
	until := int64(Never)
	if j.DeadlineNS != 0 {
		until = j.DeadlineNS + c.cfg.DrainNS
	}
	c.endAt(j, err, until)
}

// endAt fails a job and gives what is in flight some time to end.
func (c *Core) endAt(j *Job, err error, until int64) {
	if j.finished {
		return
	}
	if !j.ending {
		j.ending, j.err = true, err
		r := j.Route
		r.queued[j.class()] -= j.unsent
		j.unsent = 0
		r.queued[j.class()] -= c.drop(j.again)
		c.drop(j.held)
		j.again, j.held = nil, nil
		c.dequeue(j)
	}
	if until < j.drainUntil {
		j.drainUntil = until
		c.checkBy(until)
	}
	c.settle(j)
}

// cancel ends a job because its submitter wants that.
func (c *Core) cancel(j *Job, err error) {
	if j == nil || j.finished || j.total == 0 && j.id == 0 {
		return
	}
	if err == nil {
		err = errors.New("cancelled")
	}
	c.stop(j, err)
}

// stop ends a job now: slices on lanes that move get a moment to end, those on
// lanes that stand still do not.
func (c *Core) stop(j *Job, err error) {
	c.endAt(j, err, c.now+c.cfg.DrainNS)
	if !j.finished {
		c.killUnder(j, ErrStalled, func(l *lane) bool { return c.silentFor(l) >= c.limit(l) })
	}
}

// killUnder kills the lanes that hold slices of a job.
func (c *Core) killUnder(j *Job, err error, which func(*lane) bool) {
	for i := range j.Result.Lanes {
		u := &j.Result.Lanes[i]
		l := c.lanes[u.Lane]
		if u.inflight == 0 || l == nil {
			continue
		}
		for _, x := range [...]*lane{l.spare, l} {
			if x != nil && len(x.slices) > 0 && x.phase == up && which(x) {
				c.goSick(x, err)
			}
		}
	}
}

// checkJob does what is due for a job, and says by when it wants to be looked at
// again.
func (c *Core) checkJob(j *Job) {
	if !j.ending && j.DeadlineNS != 0 {
		switch ahead := j.DeadlineNS - c.cfg.FenceNS; {
		case c.now >= j.DeadlineNS:
			c.stop(j, c.missed(j))
		case c.now >= ahead:
			// What stands still by now is fenced while there is time for that.
			c.killUnder(j, ErrStalled, func(l *lane) bool { return c.silentFor(l) >= c.limit(l) })
			c.checkBy(j.DeadlineNS)
		default:
			c.checkBy(ahead)
		}
	}
	if j.finished || !j.ending {
		return
	}
	if j.DeadlineNS != 0 {
		j.drainUntil = min(j.drainUntil, max(j.DeadlineNS, c.now)+c.cfg.DrainNS)
	}
	if j.inflight > 0 && c.now >= j.drainUntil {
		c.killUnder(j, ErrSlow, func(*lane) bool { return true })
		j.drainUntil = Never
	}
	if j.inflight > 0 && j.drainUntil != Never {
		c.checkBy(j.drainUntil)
	}
	c.settle(j)
}

// missed is the error of a deadline: how far the job came and what was wrong
// with the lanes.
func (c *Core) missed(j *Job) error {
	err := fmt.Errorf("%w with %d of %d bytes in place", ErrDeadline, j.Result.Bytes, j.total)
	if len(j.fences) > 0 && j.Result.Bytes == j.total {
		return err
	}
	for _, l := range j.Route.lanes {
		if l.lastErr != nil && (l.sick || l.testing || l.phase != up) {
			return fmt.Errorf("%w; %w", err, &LaneError{l.spec.Name, l.lastErr})
		}
	}
	if j.Route.peer.stalled {
		err = fmt.Errorf("%w; the peer does not answer on any lane", err)
	}
	return err
}

// unsafeErr adds to a job's error that its bytes may still land.
func unsafeErr(j *Job) error {
	err := fmt.Errorf("%w: it was not confirmed that the peer has left %d connections", ErrUnsafe, len(j.fences))
	if j.err != nil {
		return fmt.Errorf("%w; %w", j.err, err)
	}
	return err
}

// fence is a connection that the peer was asked to leave, because slices that
// were posted on it may still land.
type fence struct {
	peer *peer
	jobs []*Job // that wait for it
}

func (f *fence) remove(j *Job) {
	if f == nil {
		return
	}
	if at := slices.Index(f.jobs, j); at >= 0 {
		f.jobs = slices.Delete(f.jobs, at, at+1)
	}
}

// fence makes a job wait until the peer has left a lane's connection.
func (c *Core) fence(l *lane, j *Job) {
	if l.fenced {
		return
	}
	known := slices.Contains(j.fences, l.conn)
	if !known {
		j.fences = append(j.fences, l.conn)
		j.fenceUntil = max(j.fenceUntil, c.now+c.cfg.FenceNS)
	}
	if l.orphan {
		j.noFence = true
		if !l.fenceAsked { // an engine that opens the peer again can ask it then
			l.fenceAsked = true
			c.do(Action{Do: Fence, Lane: l.id, Peer: l.peer.id, Conn: l.conn, User: l.spec.User})
		}
		return
	}
	f := c.fences[l.conn]
	if f == nil {
		f = &fence{peer: l.peer}
		c.fences[l.conn], l.fenceAsked = f, true
		c.do(Action{Do: Fence, Lane: l.id, Peer: l.peer.id, Conn: l.conn, User: l.spec.User})
	}
	if !known {
		f.jobs = append(f.jobs, j)
	}
}

// confirmed ends a fence: nothing of that connection can land any more, whatever
// it still reports.
func (c *Core) confirmed(conn ConnID) {
	f := c.fences[conn]
	if f == nil {
		return
	}
	delete(c.fences, conn)
	for _, l := range f.peer.lanes {
		if l.conn == conn {
			l.fenced = true
		}
	}
	for _, j := range f.jobs {
		j.fences = slices.DeleteFunc(j.fences, func(x ConnID) bool { return x == conn })
		c.release(j, conn)
		c.settle(j)
	}
}

// release sends again what a job has lost on a connection.
func (c *Core) release(j *Job, conn ConnID) {
	held := j.held
	j.held = nil
	for s := held; s != nil; {
		next := s.next
		if s.Conn == conn {
			c.sendAgain(j, s)
		} else {
			s.next, j.held = j.held, s
		}
		s = next
	}
}

// peerGone fails the jobs of a peer. One that restarted has no memory left in
// which anything could land.
func (c *Core) peerGone(e *Event) {
	p := c.peers[e.Peer]
	if p == nil {
		return
	}
	err := e.Err
	if err == nil {
		err = ErrLost
	}
	var conns []ConnID
	for conn, f := range c.fences {
		if f.peer == p {
			conns = append(conns, conn)
		}
	}
	slices.Sort(conns)
	if e.Restarted {
		for _, conn := range conns {
			c.confirmed(conn)
		}
	}
	for _, l := range p.lanes {
		c.endTest(l)
		l.sick, l.backoff, l.retryAt = false, 0, 0
		l.lastErr = err
		if l.phase != idle {
			l.fenced, l.orphan = l.fenced || e.Restarted, true
			c.kill(l, err)
		}
	}
	for i := len(c.jobs) - 1; i >= 0; i-- {
		if j := c.jobs[i]; j.Route.peer == p {
			j.noFence = true
			c.endAt(j, err, c.now)
		}
	}
	if !e.Restarted {
		for _, conn := range conns { // nobody answers
			delete(c.fences, conn)
		}
	}
	p.stalled = false
	c.changed(p)
}
