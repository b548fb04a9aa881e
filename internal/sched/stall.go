package sched

import "fmt"

// progress notes that a lane moved.
func (c *Core) progress(l *lane) {
	p := l.peer
	p.clock, p.moved = p.at(c), c.clock
	p.stalled, p.probeAt = false, 0
	l.mark, l.movedAt = p.clock, c.clock
	c.silence(l, false)
	if l.spare != nil {
		c.laneGone(l.spare)
	}
}

// at is the peer's clock, by which lanes are found to stall: it runs only while
// some lane of the peer moves, and for a while after that. So a peer that stands
// still for a moment costs no lane, and neither does its first sign of life after
// that, which comes over one lane before the others.
func (p *peer) at(c *Core) int64 {
	return p.clock + min(c.clock-p.moved, c.cfg.StallFloorNS/2)
}

// limit is how long a lane may stand still, in nanoseconds: several times what
// it needs for all that it holds.
func (c *Core) limit(l *lane) int64 {
	expected := int64(float64(l.inflight)/l.est.rate()*1e9) + l.rtt
	floor := c.cfg.StallFloorNS
	if !l.est.trusted() && !l.est.believed {
		floor *= 4 // it may be much slower than the topology promises
	}
	return max(floor, c.cfg.StallFactor*expected)
}

// silentFor is how long a lane with slices in flight has stood still.
func (c *Core) silentFor(l *lane) int64 {
	if l.posted == 0 {
		return 0
	}
	return c.clock - l.movedAt
}

// checkPeer looks for lanes that stall. While others move, such a lane is killed
// and its slices are sent again. While none does, it may be the peer: another
// lane is tried to find out, or the same one over a second connection.
func (c *Core) checkPeer(p *peer) {
	busy, still := 0, 0
	var worst *lane
	for i := 0; i < len(p.lanes); i++ {
		l := p.lanes[i]
		if l.posted == 0 || l.phase != up {
			continue
		}
		busy++
		quiet, limit := c.silentFor(l), c.limit(l)
		if quiet < limit/2 {
			c.checkBy(c.now + limit/2 - quiet)
			continue
		}
		c.silence(l, true)
		stalled := p.at(c) - l.mark
		if stalled >= limit {
			c.goSick(l, fmt.Errorf("%w for %d ms with %d bytes in flight, while other connections to the peer moved", ErrStalled, quiet/millisecond, l.inflight))
			continue
		}
		if l.of != nil && quiet >= sparePause { // it says nothing, and another may
			c.goSick(l, fmt.Errorf("%w for %d ms on a second connection", ErrStalled, quiet/millisecond))
			continue
		}
		c.checkBy(c.now + max(limit-stalled, 1))
		if quiet >= limit {
			still++
		}
		if worst == nil || l.mark < worst.mark {
			worst = l
		}
	}
	if worst != nil && c.clock-p.moved >= c.cfg.StallFloorNS/2 && c.clock >= p.probeAt {
		c.probe(worst)
	}
	if busy > 0 && still == busy && c.clock-p.moved >= c.cfg.StallFloorNS && !p.stalled {
		p.stalled = true
		c.tell(Note{Code: PeerStalled, Peer: p.id, Text: fmt.Sprintf("peer %q: no lane moved for %d ms", p.name, (c.clock-p.moved)/millisecond)})
	}
}

// probeBytes are enough to see whether a lane delivers.
const probeBytes = 4 << 10

// sparePause is how long a second connection may say nothing, and how long after one the next
// is tried.
const sparePause = second

// probe sends a copy of a little of what a silent lane holds over another one,
// which is connected for that if need be. If it arrives the silent lane is to
// blame. Where none can be asked it goes over a second connection of the lane itself, from
// another port: one connection may be swallowed where others pass, by a relay, a firewall that
// has lost its state, or one of several paths. A peer that stands still lets none in.
func (c *Core) probe(silent *lane) {
	s := silent.oldest
	r := s.Job.Route
	var dial *lane
	for i := range r.groups {
		for _, l := range r.groups[i].lanes {
			switch {
			case l == nil || l == silent || l.barred():
			case l.phase == up && !l.paused && l.posted == 0:
				c.postProbe(l, s)
				return
			case l.phase == dialing && !l.sick:
				return // soon
			case dial == nil && l.phase == idle && !l.sick:
				dial = l
			}
		}
	}
	switch x := silent.spare; {
	case dial != nil:
		c.connect(dial)
	case x != nil:
		if x.phase == up && x.posted == 0 && !x.gone {
			c.postProbe(x, s)
		}
	case silent.of == nil && c.silentFor(silent) >= c.cfg.SpareNS && c.now >= silent.spareAt:
		x = c.newLane(silent.id, silent.spec)
		silent.spare, x.of = x, silent
		c.connect(x)
	}
}

func (c *Core) postProbe(l *lane, of *Slice) {
	x := of.Spans[0]
	x.Bytes = min(x.Bytes, probeBytes)
	s := c.slice()
	s.Spans, s.Bytes, s.Read, s.Probe = append(s.Spans, x), x.Bytes, of.Read, true
	s.firstOp, s.lastOp = of.firstOp, of.lastOp
	l.peer.probeAt = c.clock + c.cfg.StallFloorNS/2
	c.post(of.Job, l, s)
}
