package sched

import "slices"

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
		if !l.fenceAsked { // who opens the peer again can ask it then
			l.fenceAsked = true
			c.do(Action{Do: Fence, Lane: l.id, Peer: l.peer.id, Conn: l.conn})
		}
		return
	}
	f := c.fences[l.conn]
	if f == nil {
		f = &fence{peer: l.peer}
		c.fences[l.conn], l.fenceAsked = f, true
		c.do(Action{Do: Fence, Lane: l.id, Peer: l.peer.id, Conn: l.conn})
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
	p := c.peer(e.Peer)
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
	for j := c.jobs.first; j != nil; {
		next := j.liveNext
		if j.Route.peer == p {
			j.noFence = true
			c.endAt(j, err, c.now)
		}
		j = next
	}
	if !e.Restarted {
		for _, conn := range conns { // nobody answers
			delete(c.fences, conn)
		}
	}
	p.stalled = false
	c.changed(p)
}
