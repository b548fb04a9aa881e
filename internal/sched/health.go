package sched

import (
	"fmt"
)

// connect dials a lane.
func (c *Core) connect(l *lane) {
	c.conns++
	l.phase, l.conn, l.dialedAt = dialing, c.conns, c.now
	l.fenced, l.orphan, l.fenceAsked = false, false, false
	c.checkBy(c.now + dialPatience)
	c.do(Action{Do: Connect, Lane: l.id, Peer: l.peer.id, Conn: l.conn})
}

// connected makes a lane usable: half-open if it was sick.
func (c *Core) connected(e *Event) {
	l := c.holder(e.Lane, e.Conn)
	if l == nil || l.conn != e.Conn || l.phase != dialing {
		return // it was killed on the way: Lost follows
	}
	l.phase, l.limits = up, e.Limits
	l.paused, l.errors = false, 0
	c.silence(l, false)
	c.size(l)
	c.changed(l.peer)
	if l.peer.posted > 0 {
		c.checkBy(c.now) // it may be wanted to see whether the peer answers
	}
	if l.barred() {
		c.kill(l, ErrTakenOut)
		return
	}
	if l.sick {
		l.sick = false
		c.test(l)
		return
	}
	l.wellSince = c.now
}

// test makes a lane half-open.
func (c *Core) test(l *lane) {
	l.testing, l.good = true, 0
	l.peer.testing++
	c.tellLane(LaneTested, l, nil, "one slice at a time until it is well")
}

// recovered ends a lane's test.
func (c *Core) recovered(l *lane) {
	c.endTest(l)
	l.wellSince = c.now
	c.changed(l.peer)
	c.tellLane(LaneWell, l, nil, "in use again")
}

func (c *Core) endTest(l *lane) {
	if l.testing {
		l.testing = false
		l.peer.testing--
	}
}

// goSick takes a lane out until a dial after its backoff succeeds, and closes
// its connection.
func (c *Core) goSick(l *lane, err error) {
	if l.of != nil {
		c.kill(l, err)
		return
	}
	was := l.sick
	if !was && !l.testing && c.now-l.wellSince > 2*l.backoff {
		l.backoff = 0 // it was well for longer than it was out
	}
	c.endTest(l)
	l.backoff = min(max(2*l.backoff, c.cfg.BackoffNS), c.cfg.BackoffMaxNS)
	l.retryAt = c.now + l.backoff
	l.sick, l.lastErr = true, err
	l.failures++
	c.checkBy(l.retryAt)
	c.changed(l.peer)
	c.kill(l, err)
	if !was {
		c.tellLane(LaneSick, l, err, "no new slices until it was tested")
	}
}

// kill closes a lane's connection, once, or gives its dial up.
func (c *Core) kill(l *lane, err error) {
	if l.phase != up && l.phase != dialing {
		return
	}
	l.phase = closing
	c.laneGone(l.spare)
	c.changed(l.peer)
	c.kills = append(c.kills, killing{l, l.conn, err})
}

// killing is a connection that is killed at the end of the step, if it is not
// lost by then.
type killing struct {
	lane *lane
	conn ConnID
	err  error
}

func (c *Core) killAll() {
	for _, k := range c.kills {
		if k.lane.phase == closing && k.lane.conn == k.conn {
			c.do(Action{Do: Kill, Lane: k.lane.id, Peer: k.lane.peer.id, Conn: k.conn, Err: k.err})
		}
	}
	clear(c.kills)
	c.kills = c.kills[:0]
}

// closed is the end of a connection or of a dial.
func (c *Core) closed(e *Event) {
	l := c.holder(e.Lane, e.Conn)
	if l == nil || l.conn != e.Conn || l.phase == idle {
		return
	}
	killed := l.phase == closing
	l.phase = idle
	c.changed(l.peer)
	if l.of != nil {
		l.gone = true
		c.forget(l)
		return
	}
	l.conn, l.limits, l.paused = 0, Limits{}, false
	c.laneGone(l.spare)
	if l.gone {
		c.forget(l)
		return
	}
	if !killed {
		err := e.Err
		if err == nil {
			err = ErrLost
		}
		c.goSick(l, err)
	}
}

// failedSlice lowers a lane's health after an error that may be tried again.
func (c *Core) failedSlice(l *lane, err error, mayLand bool) {
	l.lastErr = err
	if l.phase != up {
		return
	}
	if c.now-l.errorsAt > errorSpan {
		l.errors, l.errorsAt = 0, c.now
	}
	l.errors++
	if mayLand || l.testing || l.of != nil || l.errors >= maxErrors {
		c.goSick(l, err)
		return
	}
	l.paused, l.pauseEnd = true, c.now+errorPause
	c.checkBy(l.pauseEnd)
	c.changed(l.peer)
}

// suspend takes a lane out, or puts it back to be tested.
func (c *Core) suspend(l *lane, suspended bool) {
	if l == nil || l.suspended == suspended {
		return
	}
	l.suspended = suspended
	c.changed(l.peer)
	if suspended {
		c.endTest(l)
		c.takeOut(l, ErrTakenOut)
		return
	}
	l.retryAt = c.now
	c.checkBy(c.now)
}

// takeOut kills a lane's connection because of what the user or a port did. If
// it had one it is tested before it is used again.
func (c *Core) takeOut(l *lane, err error) {
	if l.phase == up || l.phase == dialing {
		l.sick = true
		l.retryAt = c.now
		l.failures++
		l.lastErr = err
		c.endTest(l)
		c.kill(l, err)
		c.tellLane(LaneSick, l, err, "no new slices until it is back")
	}
}

// laneGone lets a lane end what it has, and closes it then.
func (c *Core) laneGone(l *lane) {
	if l == nil || l.gone {
		return
	}
	l.gone = true
	c.endTest(l)
	c.changed(l.peer)
	switch {
	case l.phase == idle:
		c.forget(l)
	case l.posted == 0:
		c.kill(l, ErrTakenOut)
	}
}

// forget drops a lane that is gone. Its ID is not used again. One that holds slices stays
// until the last has come back: a job waits for them, and done finds it by its lane. So does
// one with a spare, which is found by it.
func (c *Core) forget(l *lane) {
	if l.posted > 0 || l.spare != nil {
		return
	}
	p, of := l.peer, l.of
	if of == nil {
		c.lanes[l.id] = nil
	} else {
		of.spare, of.spareAt = nil, c.now+sparePause
	}
	for i := range p.lanes {
		if p.lanes[i] == l {
			p.lanes = append(p.lanes[:i], p.lanes[i+1:]...)
			break
		}
	}
	p.seq++
	if of != nil && of.gone && of.phase == idle {
		c.forget(of)
	}
}

// portChanged follows the link of a port.
func (c *Core) portChanged(e *Event, down bool) {
	if int(e.Side) >= len(c.sides) || c.sides[e.Side] == nil || e.Port < 0 {
		return
	}
	p := c.port(e.Side, e.Port)
	if p.down == down {
		return
	}
	p.down = down
	for _, l := range c.lanes {
		if l == nil || l.local != p && l.remote != p {
			continue
		}
		c.changed(l.peer)
		if down {
			c.takeOut(l, ErrLinkDown)
			continue
		}
		l.retryAt, l.backoff = c.now, 0
		c.checkBy(c.now)
	}
}

// changed says that lanes of a peer may be used that could not, or the reverse.
func (c *Core) changed(p *peer) {
	p.seq++
	p.version++
	c.touch(p)
}

// tellLane emits a note about a lane.
func (c *Core) tellLane(code NoteCode, l *lane, err error, what string) {
	c.tell(Note{Code: code, Peer: l.peer.id, Lane: l.id, Err: err,
		Text: fmt.Sprintf("lane %s to peer %q: %s", l.spec.Name, l.peer.name, what)})
}
