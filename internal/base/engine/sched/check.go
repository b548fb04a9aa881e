package sched

// check does what time alone brings about, and finds out when that is due next.
func (c *Core) check() {
	c.checkAt = Never
	if c.posted > 0 {
		for _, p := range c.peers {
			if p != nil && p.posted > 0 {
				c.checkPeer(p)
			}
		}
	}
	for j := c.jobs.first; j != nil; {
		next := j.liveNext
		c.checkJob(j)
		j = next
	}
	c.checkRoutes()
	if c.posted > 0 || len(c.waiting) > 0 {
		c.checkBy(c.now + c.tick())
		c.wakeAll = true
	}
}

// checkRoutes dials what routes with jobs want and tests what is sick, and
// forgets routes that were not used for a while.
func (c *Core) checkRoutes() {
	kept := c.routes[:0]
	for _, r := range c.routes {
		if r.jobs == 0 && c.now-r.lastJob >= recentNS {
			r.listed = false
			continue
		}
		kept = append(kept, r)
		r.seen = 0 // a dial that takes long changes what may be used
		c.want(r)
		for i := range r.groups {
			for _, l := range r.groups[i].lanes {
				if l != nil {
					c.checkLane(l)
				}
			}
		}
	}
	clear(c.routes[len(kept):])
	c.routes = kept
}

// checkLane ends a lane's pause after an error.
func (c *Core) checkLane(l *lane) {
	if !l.paused {
		return
	}
	if c.now < l.pauseEnd {
		c.checkBy(l.pauseEnd)
		return
	}
	l.paused = false
	c.changed(l.peer)
}
