package sched

import (
	"errors"
	"fmt"
)

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
		for s := j.again; s != nil; {
			next := s.next
			r.queued[j.class()] -= s.Bytes
			c.recycle(s)
			s = next
		}
		j.again = nil
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
	for i := range j.uses {
		l := c.lane(j.Result.Lanes[i].Lane)
		if j.uses[i] == 0 || l == nil || l.phase != up || !which(l) {
			continue
		}
		c.goSick(l, err)
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
	for i := range j.Route.groups {
		for _, l := range j.Route.groups[i].lanes {
			if l != nil && l.lastErr != nil && (l.sick || l.testing || l.phase != up) {
				return fmt.Errorf("%w; %w", err, &LaneError{l.spec.Name, l.lastErr})
			}
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
