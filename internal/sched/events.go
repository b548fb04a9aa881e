package sched

import (
	"fmt"
)

// event takes in one thing that happened.
func (c *Core) event(e *Event) {
	switch e.Kind {
	case Submit:
		c.submit(e.Job)
	case Cancel:
		c.cancel(e.Job, e.Err)
	case Connected:
		c.connected(e)
	case ConnectFailed, Lost:
		c.closed(e)
	case Done:
		c.done(e)
	case Fenced:
		c.confirmed(e.Conn)
	case Suspend, Resume:
		c.suspend(c.lane(e.Lane), e.Kind == Suspend)
	case LaneGone:
		c.laneGone(c.lane(e.Lane))
	case PortDown, PortUp:
		c.portChanged(e, e.Kind == PortDown)
	case RouteChanged:
		c.routeChanged(e.Route, e.Groups)
	case PeerGone:
		c.peerGone(e)
	case Tick: // only time has passed
	}
}

// submit takes a job in.
func (c *Core) submit(j *Job) {
	lanes, notes, uses, fences := j.Result.Lanes[:0], j.Result.Notes[:0], j.uses[:0], j.fences[:0]
	j.Result = Result{Lanes: lanes, Notes: notes, StartNS: c.now}
	c.jobIDs++
	j.jobState = jobState{id: c.jobIDs, total: totalBytes(j.Ops), uses: uses, fences: fences, drainUntil: Never}
	j.unsent = j.total
	c.jobs.add(j)
	r := j.Route
	c.adopt(r)
	r.jobs++
	c.freshen(r)
	switch {
	case r.peer == nil:
		c.reject(j, fmt.Errorf("%w: peer %d is not known", ErrNoLane, r.Peer))
	case j.unsent == 0:
		c.settle(j)
	case !r.hasLanes():
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
	j, l := s.Job, c.holder(s.Lane, s.Conn)
	if l == nil {
		return // it came back before: no lane is forgotten while it holds slices
	}
	l.unlist(s)
	l.posted--
	l.peer.posted--
	c.posted--
	j.inflight--
	j.uses[s.use]--
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
	if l.gone && l.posted == 0 {
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
	mayLand := e.MayLand && !s.Read
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
	c.jobs.remove(j)
	for i := range j.Result.Lanes {
		if l := c.lane(j.Result.Lanes[i].Lane); l != nil && l.lastJob == j {
			l.lastJob = nil
		}
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
		n := Note{Code: UnsafeBuffer, Peer: r.Peer, Err: j.Result.Err,
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

// tell emits a note, and leaves it with the jobs of its peer that run.
func (c *Core) tell(n Note) {
	for j := c.jobs.first; j != nil; j = j.liveNext {
		if j.Route.Peer == n.Peer {
			j.note(n)
		}
	}
	c.do(Action{Do: Tell, Peer: n.Peer, Lane: n.Lane, Note: &n})
}

func (c *Core) tellDescheduled(gap int64) {
	n := Note{Code: Descheduled, Text: fmt.Sprintf("this process did not run for %d ms: no lane is blamed for that time", gap/millisecond)}
	for j := c.jobs.first; j != nil; j = j.liveNext {
		j.note(n)
	}
	c.do(Action{Do: Tell, Note: &n})
}
