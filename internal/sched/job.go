package sched

import (
	"errors"
	"fmt"
)

// Job is the part of a batch that one route carries. The submitter fills in the
// first fields and hands it to the core with Submit; the result may be read after
// Finish. A job may be submitted again after its Finish: its Result is then
// overwritten, in the same memory.
type Job struct {
	Route      *Route
	Ops        []Op
	Priority   Priority
	DeadlineNS int64 // in the time of Step; 0: none
	Check      bool  // a checksum for each slice
	User       any   // the engine's own

	Result Result

	jobState
}

// Result is how a job ended and what it took.
type Result struct {
	// Err is nil where every byte is in place. It wraps the cause; an *OpError says
	// which op was refused or failed too often, a *LaneError what was wrong with a
	// lane. It names neither route nor peer.
	Err error
	// Unsafe are the connections over which bytes may still land in the peer's
	// memory: the job's remote ranges must not be used until they are fenced.
	Unsafe  []ConnID
	StartNS int64
	EndNS   int64
	Bytes   int64 // in place
	Slices  int64
	Retries int64
	Lanes   []LaneUse // in the order of first use
	Notes   []Note    // that came up while it ran, the first ones
}

// LaneUse is what one lane did for a job.
type LaneUse struct {
	Lane    LaneID
	Bytes   int64
	Slices  int64
	Retries int64 // slices that it did not deliver
	FirstNS int64 // first post
	LastNS  int64 // last completion
	Err     error // the last
}

// jobState is the core's own part of a job.
type jobState struct {
	id       uint64
	sliceCap int64 // a slice is no larger, so that several are on their way
	cursor   cursor
	total    int64
	unsent   int64  // bytes that are not cut yet
	again    *Slice // to be sent again, the first one first
	held     *Slice // likewise, once the connections that they were lost on are fenced
	index    uint32 // of the next slice
	inflight int
	uses     []int // slices in flight, for each of Result.Lanes
	fences   []ConnID

	ending     bool // what is not sent is dropped
	finished   bool
	noFence    bool // the peer is gone: nobody is left to confirm fences
	err        error
	drainUntil int64 // then its slices in flight are killed
	fenceUntil int64 // an ending job waits so long for fences

	queued             bool
	turn               uint64
	prev, next         *Job // in the queue of its route
	livePrev, liveNext *Job
}

// jobList is the jobs that are not finished.
type jobList struct{ first, last *Job }

func (l *jobList) add(j *Job) {
	j.livePrev, j.liveNext = l.last, nil
	if l.last != nil {
		l.last.liveNext = j
	} else {
		l.first = j
	}
	l.last = j
}

func (l *jobList) remove(j *Job) {
	if j.livePrev != nil {
		j.livePrev.liveNext = j.liveNext
	} else {
		l.first = j.liveNext
	}
	if j.liveNext != nil {
		j.liveNext.livePrev = j.livePrev
	} else {
		l.last = j.livePrev
	}
	j.livePrev, j.liveNext = nil, nil
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
	if l.lastJob == j && l.lastUse < len(j.uses) && j.Result.Lanes[l.lastUse].Lane == l.id {
		return l.lastUse
	}
	at := 0
	for at < len(j.Result.Lanes) && j.Result.Lanes[at].Lane != l.id {
		at++
	}
	if at == len(j.Result.Lanes) {
		j.Result.Lanes = append(j.Result.Lanes, LaneUse{Lane: l.id})
		j.uses = append(j.uses, 0)
	}
	l.lastJob, l.lastUse = j, at
	return at
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
		for s := j.again; s != nil; {
			next := s.next
			r.queued[j.class()] -= s.Bytes
			c.recycle(s)
			s = next
		}
		j.again = nil
		for s := j.held; s != nil; {
			next := s.next
			c.recycle(s)
			s = next
		}
		j.held = nil
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
		if j.uses[i] == 0 || l == nil {
			continue
		}
		for _, x := range [...]*lane{l.spare, l} {
			if x != nil && x.posted > 0 && x.phase == up && which(x) {
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
