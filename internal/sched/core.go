package sched

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pick"
)

// Config are the core's rules. Zero fields take the defaults that DefaultConfig
// has; times are in nanoseconds.
type Config struct {
	SliceMinBytes  int64 // a slice is no smaller unless nothing is left
	SliceMaxBytes  int64
	WindowNS       int64 // a lane holds what it moves in this time, and two slices at least
	HalfLifeNS     int64 // of the service rate
	StallFloorNS   int64 // no progress for so long, and for StallFactor times what was expected
	StallFactor    int64
	SpareNS        int64 // a lane that stands still so long, where no other can be asked, is asked over a second connection
	BackoffNS      int64 // until a sick lane is tested, doubling up to BackoffMaxNS
	BackoffMaxNS   int64
	DrainNS        int64 // at a deadline: so long slices on lanes that move may take to end
	FenceNS        int64 // and so long the peer may take to leave a connection
	MaxAttempts    int   // of one slice
	LocalPortNS    int64 // window of a local port, of all its lanes together
	RemotePortNS   int64
	MaxTickGapNS   int64     // longer gaps between steps count as this: nobody ran
	NominalUnknown topo.Rate // of lanes of which nothing is known
}

const (
	microsecond = int64(1000)
	millisecond = 1000 * microsecond
	second      = 1000 * millisecond
)

// DefaultConfig are the rules that the engine uses.
func DefaultConfig() Config {
	return Config{
		SliceMinBytes: 64 << 10, SliceMaxBytes: 1 << 20,
		WindowNS: 5 * millisecond, HalfLifeNS: 100 * millisecond,
		StallFloorNS: 50 * millisecond, StallFactor: 10, SpareNS: 500 * millisecond,
		BackoffNS: 100 * millisecond, BackoffMaxNS: 2 * second,
		DrainNS: 100 * millisecond, FenceNS: 200 * millisecond, MaxAttempts: 16,
		LocalPortNS: 10 * millisecond, RemotePortNS: 10 * millisecond,
		MaxTickGapNS: 20 * millisecond, NominalUnknown: topo.GBPerSec,
	}
}

// withDefaults fills the fields that are zero.
func (c Config) withDefaults() Config {
	d, fields := reflect.ValueOf(DefaultConfig()), reflect.ValueOf(&c).Elem()
	for i := range fields.NumField() {
		if fields.Field(i).IsZero() {
			fields.Field(i).Set(d.Field(i))
		}
	}
	c.SliceMinBytes = max(c.SliceMinBytes&^(sliceUnit-1), sliceUnit)
	c.SliceMaxBytes = max(c.SliceMaxBytes&^(sliceUnit-1), c.SliceMinBytes)
	return c
}

// Core is the scheduler of one engine. It is not safe for concurrent use.
type Core struct {
	cfg   Config
	sides map[SideID]*side
	peers map[PeerID]*peer
	lanes map[LaneID]*lane // that are not gone for good
	ids   ids

	now           int64 // of this step
	clock         int64 // like now, without the time in which nobody ran
	stepped       bool
	checkAt       int64 // when check has something to do at the latest
	gapReportedAt int64 // when Descheduled was told last

	turns  uint64 // of jobs in queues
	round  uint64 // of pumping
	posted int    // slices in flight

	jobs    []*Job   // all that are not finished
	routes  []*Route // that have jobs, or had until a moment ago
	busy    []*peer  // that have slices in flight, or had some at the last check
	waiting []*peer  // that have something queued
	dirty   []*peer  // to be pumped in this step
	wakeAll bool     // room on a port that others wait for
	rotor   int
	fences  map[ConnID]*fence
	free    []*Slice
	kills   []killing
	out     []Action
}

// ids are the next ones. They are counted and not used again, so that none that comes late
// stands for another thing; the tables have only what is there.
type ids struct {
	side SideID
	peer PeerID
	lane LaneID
	conn ConnID
	job  uint64
}

// New makes a core.
func New(c Config) *Core {
	return &Core{cfg: c.withDefaults(), checkAt: Never, gapReportedAt: math.MinInt64 / 2,
		sides: map[SideID]*side{}, peers: map[PeerID]*peer{}, lanes: map[LaneID]*lane{}, fences: map[ConnID]*fence{}}
}

// side is the ports of a host.
type side struct {
	ports []*port
	load  pick.Load // bytes in flight by port
}

// port bounds what its lanes have in flight together.
type port struct {
	side    *side
	index   int
	rate    float64 // 0 unknown
	window  int64   // bytes, 0: no bound
	refused bool    // a slice was refused for want of room
	down    bool
}

// AddSide makes the ports of one host for one transport known, by pathsel's
// Port.Index: what each one's wire carries, 0 not known.
func (c *Core) AddSide(rates []topo.Rate) SideID {
	x := &side{}
	for _, r := range rates {
		x.add(r)
	}
	id := c.ids.side
	c.ids.side++
	c.sides[id] = x
	return id
}

func (s *side) add(r topo.Rate) {
	s.ports = append(s.ports, &port{side: s, index: len(s.ports), rate: float64(max(r, 0))})
	s.load = append(s.load, 0)
}

// port is a port of a side; what the side does not list has no known rate.
func (c *Core) port(id SideID, index int) *port {
	s := c.sides[id]
	if s == nil {
		return &port{side: &side{load: pick.Load{0}}}
	}
	index = max(index, 0)
	for len(s.ports) <= index {
		s.add(0)
	}
	return s.ports[index]
}

// peer is another engine.
type peer struct {
	id    PeerID
	name  string
	lanes []*lane // spares, too

	seq     uint64   // changes when a lane of it may be used that could not, or the reverse
	version uint64   // changes then, and when there is more to send
	active  []*Route // with queued jobs
	freed   []*lane  // from which slices came back in this step
	mirror  *group   // see lane.mirror
	// waitingJobs are queued, by Priority; highRun of High were served in a row.
	waitingJobs [2]int
	highRun     int
	waitAt      int // place in Core.waiting, -1 when not there
	dirty       bool
	testing     int // lanes that are half-open

	posted  int   // slices in flight
	busy    bool  // in Core.busy
	clock   int64 // of stalls: see peer.at
	moved   int64 // Core.clock of the last progress of any lane
	stalled bool
	probeAt int64 // Core.clock from which another lane may be probed

	fallbacks []fallback
}

// AddPeer makes a peer known.
func (c *Core) AddPeer(name string) PeerID {
	id := c.ids.peer
	c.ids.peer++
	c.peers[id] = &peer{id: id, name: name, waitAt: -1}
	return id
}

// RemovePeer forgets a peer for good. It comes after PeerGone and after LaneGone
// of its lanes; what is still to be closed then is closed all the same.
func (c *Core) RemovePeer(id PeerID) {
	p := c.peers[id]
	if p == nil {
		return
	}
	delete(c.peers, id)
	c.routes = slices.DeleteFunc(c.routes, func(r *Route) bool {
		if r.peer == p {
			r.listed = false
		}
		return r.peer == p
	})
}

// RemoveSide forgets the ports of a host to which no lane will be added again.
func (c *Core) RemoveSide(id SideID) { delete(c.sides, id) }

// AddLane makes a lane known. It is connected when a job wants it.
func (c *Core) AddLane(s LaneSpec) LaneID {
	id := c.ids.lane
	c.ids.lane++
	c.lanes[id] = c.newLane(id, s)
	return id
}

// holder is the lane that has a connection, which may be the spare of the one that is named.
func (c *Core) holder(id LaneID, conn ConnID) *lane {
	l := c.lanes[id]
	if l != nil && l.spare != nil && l.spare.conn == conn {
		return l.spare
	}
	return l
}

// Step takes what happened and appends what is to be done now. now is monotonic,
// in nanoseconds, and never before that of the last step.
func (c *Core) Step(now int64, events []Event, out []Action) []Action {
	c.out = out
	c.advance(now)
	for i := range events {
		c.event(&events[i])
	}
	if c.now >= c.checkAt {
		c.check()
	}
	c.pump()
	c.killAll()
	out, c.out = c.out, nil
	return out
}

// advance moves both clocks. While slices are in flight somebody steps the core
// at least every tick: a longer gap means that this process did not run, and
// says nothing about lanes.
func (c *Core) advance(now int64) {
	gap := max(now-c.now, 0)
	if !c.stepped {
		gap, c.stepped = 0, true
		c.now = now
	}
	c.now += gap
	if c.posted > 0 && gap > c.cfg.MaxTickGapNS {
		c.clock += c.cfg.MaxTickGapNS
		if c.now-c.gapReportedAt >= second {
			c.gapReportedAt = c.now
			text := fmt.Sprintf("this process did not run for %d ms: no lane is blamed for that time", gap/millisecond)
			c.tell(Note{Code: Descheduled, Text: text})
		}
		return
	}
	c.clock += gap
}

// Never is the time of something that does not happen.
const Never = math.MaxInt64

// Next is when Step wants to be called at the latest, with Tick if nothing else
// happened; Never if there is nothing to wait for.
func (c *Core) Next() int64 { return c.checkAt }

// checkBy has check run at a time or before.
func (c *Core) checkBy(at int64) { c.checkAt = min(c.checkAt, at) }

// tick is the longest time between checks while anything is going on.
func (c *Core) tick() int64 { return max(min(c.cfg.MaxTickGapNS/2, c.cfg.StallFloorNS/8), 1) }

func (c *Core) do(a Action) { c.out = append(c.out, a) }

// without takes an element out of a list; the last one gets its place.
func without[T any](list []*T, at int) []*T {
	last := len(list) - 1
	list[at], list[last] = list[last], nil
	return list[:last]
}

// check does what time alone brings about, and finds out when that is due next.
func (c *Core) check() {
	c.checkAt = Never
	c.busy = slices.DeleteFunc(c.busy, func(p *peer) bool {
		p.busy = p.posted > 0
		if p.busy {
			c.checkPeer(p)
		}
		return !p.busy
	})
	for i := len(c.jobs) - 1; i >= 0; i-- { // a job that ends gives its place to one that was looked at
		c.checkJob(c.jobs[i])
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
		c.connectWanted(r)
		for _, l := range r.lanes {
			c.checkLane(l)
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
		c.suspend(c.lanes[e.Lane], e.Kind == Suspend)
	case LaneGone:
		c.laneGone(c.lanes[e.Lane])
	case PortDown, PortUp:
		c.portChanged(e, e.Kind == PortDown)
	case RouteChanged:
		c.routeChanged(e.Route, e.Groups)
	case PeerGone:
		c.peerGone(e)
	case Tick: // only time has passed
	}
}

// tell emits a note, and leaves it with the jobs of its peer, or of all.
func (c *Core) tell(n Note) {
	if p := c.peers[n.Peer]; p != nil && n.Code != Descheduled {
		n.PeerName = p.name
	}
	for _, j := range c.jobs {
		if j.Route.Peer == n.Peer || n.Code == Descheduled {
			j.note(n)
		}
	}
	c.do(Action{Do: Tell, Peer: n.Peer, Lane: n.Lane, Note: &n})
}

// inOrder are the lanes in the order of their IDs.
func (c *Core) inOrder() []*lane {
	return slices.SortedFunc(maps.Values(c.lanes), func(a, b *lane) int { return cmp.Compare(a.id, b.id) })
}

// Lanes appends the lanes' states to buf, in the order of their IDs. Lanes that
// are gone and have nothing left to do are not listed.
func (c *Core) Lanes(buf []LaneStats) []LaneStats {
	for _, l := range c.inOrder() {
		s := LaneStats{
			Lane: l.id, User: l.spec.User, Peer: l.spec.Peer, Name: l.spec.Name, Transport: l.spec.Transport, Health: l.healthText(), Conn: l.conn,
			BytesPerSec: l.spec.RateBytesPerSec, Measured: l.est.trusted() || l.est.believed,
			InflightBytes: l.inflight, Inflight: len(l.slices), WindowBytes: l.window,
			DoneBytes: l.doneBytes, DoneSlices: l.doneSlices, Retries: l.retries, Failures: l.failures,
		}
		if l.est.trusted() {
			s.BytesPerSec = topo.Rate(l.est.measured())
		}
		if l.lastErr != nil {
			s.LastError = l.lastErr.Error()
		}
		buf = append(buf, s)
	}
	return buf
}

func (l *lane) healthText() string {
	switch {
	case l.gone:
		return "gone"
	case l.sick || l.barred() || l.phase == closing:
		return "sick"
	case l.testing:
		return "half-open"
	case l.phase == dialing:
		return "dialling"
	case l.phase == idle:
		return "idle"
	}
	return "healthy"
}
