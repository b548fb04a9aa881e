package sched

import "github.com/topoctl/topoctl/internal/pick"

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
	posted   int
	oldest   *Slice // in flight, in the order of posting
	newest   *Slice
	mark     int64 // peer.at of its last progress
	movedAt  int64 // Core.clock of its last progress

	est    estimate
	target int64 // bytes of a slice
	window int64

	// mirror is what the policy sees of the lane, in the group that asked last.
	mirror   *pick.State
	mirrorAt int
	freed    bool // in peer.freed

	lastJob *Job // whose place in Result.Lanes is lastUse
	lastUse int

	// spare is a second connection, by which a lane that stands still is asked whether it is
	// the connection or the peer. It carries probes only, and is a lane with the same ID.
	spare   *lane
	of      *lane // whose spare this is, nil for others
	spareAt int64 // in the time of Step: not before that

	doneBytes, doneSlices, retries, failures int64
	lastErr                                  error
}

func (c *Core) newLane(id LaneID, s LaneSpec) *lane {
	l := &lane{id: id, spec: s, peer: c.peer(s.Peer), rtt: s.RoundTripNS}
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
	if l.posted >= max(l.limits.MaxPosted, 1) {
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

// enlist and unlist keep the lane's slices in flight.
func (l *lane) enlist(s *Slice) {
	s.prev, s.next = l.newest, nil
	if l.newest != nil {
		l.newest.next = s
	} else {
		l.oldest = s
	}
	l.newest = s
}

func (l *lane) unlist(s *Slice) {
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		l.oldest = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		l.newest = s.prev
	}
	s.prev, s.next = nil, nil
}
