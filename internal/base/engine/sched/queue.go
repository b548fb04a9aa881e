package sched

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
		last := len(c.waiting) - 1
		c.waiting[p.waitAt] = c.waiting[last]
		c.waiting[p.waitAt].waitAt = p.waitAt
		c.waiting[last] = nil
		c.waiting, p.waitAt = c.waiting[:last], -1
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
			last := len(p.active) - 1
			p.active[i] = p.active[last]
			p.active[last] = nil
			p.active = p.active[:last]
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
