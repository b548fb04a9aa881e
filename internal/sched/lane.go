package sched

import (
	"fmt"

	"github.com/topoctl/topoctl/internal/pick"
)

// phase is the state of a lane's connection.
type phase uint8

const (
	idle    phase = iota // none
	dialing              // Connect was emitted
	up
	closing // Kill was emitted; Lost or ConnectFailed follows
)

const (
	// dialPatience is how long a dial may take before the next lane, or the next
	// transport, is tried beside it.
	dialPatience = second
	// errorPause is how long a lane gets no slices after one failed on it: mostly
	// the connection is dead and the rest of the news is on its way.
	errorPause = 5 * millisecond
	// maxErrors in errorSpan make a lane sick.
	maxErrors = 3
	errorSpan = second
	// goodSlices make a half-open lane well.
	goodSlices = 4
	// unknownSlice is the size of slices on lanes of which nothing is known.
	unknownSlice = 128 << 10
)

// lane is a lane of a peer and its connection.
type lane struct {
	id            LaneID
	spec          LaneSpec
	peer          *peer
	local, remote *port
	rtt           int64

	phase      phase
	conn       ConnID
	limits     Limits
	dialedAt   int64 // in the time of Step
	fenced     bool  // nothing of the connection can land any more
	orphan     bool  // the peer is gone: nobody can be asked to leave the connection
	fenceAsked bool  // Fence was emitted for the connection
	sick       bool  // no slices until a dial succeeds
	testing    bool  // half-open
	gone       bool
	suspended  bool
	paused     bool // until pauseEnd after an error
	silent     bool // its bytes do not count on its ports while it stands still
	good       int  // slices delivered while half-open
	retryAt    int64
	backoff    int64
	wellSince  int64
	pauseEnd   int64
	errors     int
	errorsAt   int64

	inflight int64
	slices   []*Slice // in flight
	mark     int64    // peer.at of its last progress
	movedAt  int64    // Core.clock of its last progress

	est    estimate
	target int64 // bytes of a slice
	window int64

	// mirror is what the policy sees of the lane, in the group that asked last.
	mirror   *pick.State
	mirrorAt int
	freed    bool // in peer.freed

	lastUse int // its place in the Result.Lanes of the job that used it last

	// spare is a second connection, by which a lane that stands still is asked whether it is
	// the connection or the peer. It carries probes only, and is a lane with the same ID.
	spare   *lane
	of      *lane // whose spare this is, nil for others
	spareAt int64 // in the time of Step: not before that

	doneBytes, doneSlices, retries, failures int64
	lastErr                                  error
}

func (c *Core) newLane(id LaneID, s LaneSpec) *lane {
	l := &lane{id: id, spec: s, peer: c.peers[s.Peer], rtt: s.RoundTripNS}
	if l.rtt <= 0 {
		l.rtt = int64(pick.DefaultRTT)
		if s.Transport == "tcp" {
			l.rtt = int64(pick.DefaultTCPRTT)
		}
	}
	l.local, l.remote = c.port(s.LocalSide, s.Local), c.port(s.RemoteSide, s.Remote)
	c.bound(l.local, c.cfg.LocalPortNS)
	c.bound(l.remote, c.cfg.RemotePortNS)
	l.est.prior = float64(s.RateBytesPerSec)
	l.est.believed = s.NominalIsMeasured && s.RateBytesPerSec > 0
	l.est.known = s.RateBytesPerSec > 0
	if !l.est.known {
		l.est.prior = float64(c.cfg.NominalUnknown)
	}
	c.size(l)
	if l.peer != nil {
		l.peer.lanes = append(l.peer.lanes, l)
		l.peer.seq++
	}
	return l
}

// bound sets a port's window: what its wire carries in that time, two slices at
// least.
func (c *Core) bound(p *port, ns int64) {
	if p.rate > 0 {
		p.window = max(bytesIn(p.rate, ns), 2*c.sliceOf(p.rate))
	}
}

// bytesIn is what a rate carries in some nanoseconds.
func bytesIn(rate float64, ns int64) int64 {
	return int64(min(rate*float64(ns)/1e9, 1<<60))
}

// sliceNS is what a slice takes on its lane: so little that lanes end together,
// so much that the work per slice does not count.
const sliceNS = 375 * microsecond

// sliceOf is the size of slices at a rate.
func (c *Core) sliceOf(rate float64) int64 {
	return min(max(bytesIn(rate, sliceNS), c.cfg.SliceMinBytes), c.cfg.SliceMaxBytes) &^ (sliceUnit - 1)
}

// size sets a lane's slice and window by its rate. A lane of which nothing was
// measured starts with a few slices, and twice as much with each that it
// delivered, because the topology may promise more than there is.
func (c *Core) size(l *lane) {
	rate := l.est.rate()
	l.target = c.sliceOf(rate)
	if !l.est.known && !l.est.trusted() {
		l.target = min(max(unknownSlice, c.cfg.SliceMinBytes), c.cfg.SliceMaxBytes)
	}
	if l.limits.MaxBytes > 0 {
		l.target = min(l.target, max(l.limits.MaxBytes&^(sliceUnit-1), 1))
	}
	l.window = bytesIn(l.est.soFar(), c.cfg.WindowNS)
	if !l.est.trusted() && !l.est.believed {
		few := int64(8)
		if !l.est.known {
			few = 4
		}
		l.window = min(l.window, few*l.target+2*l.doneBytes)
	}
	// Those that end together must not leave it with nothing to do.
	l.window = max(l.window, 2*l.target*int64(max(l.limits.Parallel, 1)))
}

// barred says whether the lane may not be used whatever its connection is like.
func (l *lane) barred() bool {
	return l.gone || l.suspended || l.local.down || l.remote.down
}

// health is what policies see of the lane.
func (l *lane) health() pick.Health {
	switch {
	case l.phase != up || l.paused || l.barred():
		return pick.Sick
	case l.testing:
		return pick.HalfOpen
	}
	return pick.Healthy
}

// usable says whether the lane is well, or may turn out to be: it is connected,
// or can be without having failed before.
func (l *lane) usable(now int64) bool {
	if l.barred() || l.sick || l.testing {
		return false
	}
	return l.phase != dialing || now-l.dialedAt < dialPatience
}

// room is what the lane takes now beyond what it has, 0 or less: nothing. A lane
// that has nothing takes a slice of any size, as far as its ports are concerned.
func (l *lane) room() int64 {
	if len(l.slices) >= max(l.limits.MaxPosted, 1) {
		return 0
	}
	room := int64(Never)
	if l.inflight > 0 {
		room = l.window - l.inflight
	}
	return min(room, l.local.room(), l.remote.room())
}

// room is what a port takes now; one that has nothing takes anything.
func (p *port) room() int64 {
	load := p.side.load[p.index]
	if p.window == 0 || load == 0 {
		return Never
	}
	return p.window - load
}

// holdBack remembers that slices wait for room on a port.
func (l *lane) holdBack(bytes int64) {
	if l.local.room() < bytes {
		l.local.refused = true
	}
	if l.remote.room() < bytes {
		l.remote.refused = true
	}
}

// load changes what the lane has in flight.
func (l *lane) load(bytes int64) {
	l.inflight += bytes
	if !l.silent {
		l.loadPorts(bytes)
	}
}

func (l *lane) loadPorts(bytes int64) {
	l.local.side.load[l.local.index] += bytes
	if l.remote != l.local {
		l.remote.side.load[l.remote.index] += bytes
	}
}

// wakeWaiting wakes those who wait for room on the lane's ports.
func (c *Core) wakeWaiting(l *lane) {
	if l.local.refused || l.remote.refused {
		l.local.refused, l.remote.refused = false, false
		c.wakeAll = true
	}
}

// silence takes a lane that stands still out of the load of its ports, so that
// it does not hold up others, or counts it again.
func (c *Core) silence(l *lane, silent bool) {
	if l.silent == silent {
		return
	}
	if silent {
		l.loadPorts(-l.inflight)
		l.silent = true
		c.wakeWaiting(l)
		return
	}
	l.silent = false
	l.loadPorts(l.inflight)
}

// connect dials a lane.
func (c *Core) connect(l *lane) {
	c.ids.conn++
	l.phase, l.conn, l.dialedAt = dialing, c.ids.conn, c.now
	l.fenced, l.orphan, l.fenceAsked = false, false, false
	c.checkBy(c.now + dialPatience)
	c.do(Action{Do: Connect, Lane: l.id, Peer: l.peer.id, Conn: l.conn, User: l.spec.User})
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
	case len(l.slices) == 0:
		c.kill(l, ErrTakenOut)
	}
}

// forget drops a lane that is gone. Its ID is not used again. One that holds slices stays
// until the last has come back: a job waits for them, and done finds it by its lane. So does
// one with a spare, which is found by it.
func (c *Core) forget(l *lane) {
	if len(l.slices) > 0 || l.spare != nil {
		return
	}
	p, of := l.peer, l.of
	if of == nil {
		delete(c.lanes, l.id)
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
	if c.sides[e.Side] == nil || e.Port < 0 {
		return
	}
	p := c.port(e.Side, e.Port)
	if p.down == down {
		return
	}
	p.down = down
	for _, l := range c.inOrder() {
		if l.local != p && l.remote != p {
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

// A service rate is believed after so many slices in so much busy time, on fast
// lanes after more slices in less time.
const (
	trustSlices     = 8
	trustNS         = 5 * millisecond
	trustManySlices = 64
	trustManyNS     = millisecond / 2
)

// estimate is the service rate of a lane: bytes completed per busy time, older
// ones counting less. Latency does not enter: an interval between completions
// counts only when the next slice was already on its way for a round trip as it
// began, so that the lane had something to do all the time.
type estimate struct {
	prior    float64 // what the topology promises, bytes per second
	known    bool    // it does
	believed bool    // and it was measured

	bytes, ns float64 // with weight by age
	slices    int64   // that were counted, ever
	total     int64   // nanoseconds that were counted, ever

	// The interval that ended last: slices that complete at one time are one.
	last struct {
		at, ns, bytes, slices int64
		counts                bool
	}
}

// rate is the best guess, bytes per second, never 0.
func (e *estimate) rate() float64 {
	if e.trusted() {
		return e.measured()
	}
	return e.prior
}

// soFar is the rate, but that a lane of which nothing is known has shown more before
// that is trusted: the prior is nobody's promise then, and bounds nothing.
func (e *estimate) soFar() float64 {
	if e.known || e.ns == 0 || e.trusted() {
		return e.rate()
	}
	return max(e.prior, e.measured())
}

// sampled says whether the estimate is better than a prior that nobody promised.
func (e *estimate) sampled() bool {
	return !e.known && e.slices >= trustSlices || e.trusted()
}

func (e *estimate) trusted() bool {
	return e.slices >= trustSlices && e.total >= trustNS || e.slices >= trustManySlices && e.total >= trustManyNS
}

func (e *estimate) measured() float64 { return max(e.bytes*1e9/max(e.ns, 1), 1) }

// begin starts a busy period.
func (e *estimate) begin(clock int64, halfLife float64) {
	e.fold(halfLife)
	e.last.at, e.last.bytes, e.last.counts = clock, 0, false
}

// done counts a completed slice that was posted at a time; rtt is what an empty
// lane takes without a payload.
func (e *estimate) done(clock, posted, bytes, rtt int64, halfLife float64) {
	if e.last.bytes > 0 && clock == e.last.at {
		e.last.bytes += bytes
		e.last.slices++
		return
	}
	e.fold(halfLife)
	ns := clock - e.last.at
	e.last.counts = posted+rtt <= e.last.at
	if !e.last.counts && posted == e.last.at && float64(bytes)*1e9/e.rate() > float64(2*rtt) {
		// The first of a busy period, and large: its way there and back hardly counts.
		e.last.counts, ns = true, max(ns-rtt, 1)
	}
	e.last.at, e.last.ns, e.last.bytes, e.last.slices = clock, ns, bytes, 1
}

// fold adds the last interval. Completions that come late and then all at once
// make an interval too short: it counts as four times the rate so far at most.
func (e *estimate) fold(halfLife float64) {
	if !e.last.counts || e.last.bytes == 0 {
		return
	}
	bytes, ns := float64(e.last.bytes), float64(e.last.ns)
	ns = max(ns, bytes*1e9/(4*e.soFar()))
	keep := halfLife / (halfLife + 0.693*ns)
	e.bytes, e.ns = e.bytes*keep+bytes, e.ns*keep+ns
	e.slices += e.last.slices
	e.total += int64(ns)
	e.last.bytes = 0
}

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
	if len(l.slices) == 0 {
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
		if len(l.slices) == 0 || l.phase != up {
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
	s := silent.slices[0]
	r := s.Job.Route
	var dial *lane
	for _, l := range r.lanes {
		switch {
		case l == silent || l.barred():
		case l.phase == up && !l.paused && len(l.slices) == 0:
			c.postProbe(l, s)
			return
		case l.phase == dialing && !l.sick:
			return // soon
		case dial == nil && l.phase == idle && !l.sick:
			dial = l
		}
	}
	switch x := silent.spare; {
	case dial != nil:
		c.connect(dial)
	case x != nil:
		if x.phase == up && len(x.slices) == 0 && !x.gone {
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
	s.Spans, s.Bytes, s.Kind, s.Probe = append(s.Spans, x), x.Bytes, of.Kind, true
	s.firstOp, s.lastOp = of.firstOp, of.lastOp
	l.peer.probeAt = c.clock + c.cfg.StallFloorNS/2
	c.post(of.Job, l, s)
}
