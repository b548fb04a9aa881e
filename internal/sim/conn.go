package sim

import (
	"cmp"
	"errors"
	"slices"

	"github.com/topoctl/topoctl/internal/direction"
	"github.com/topoctl/topoctl/internal/sched"
)

// conn is a connection of a lane: slices cross it one after the other, reads and writes
// independently.
type conn struct {
	e       *Engine
	id      sched.ConnID
	laneID  sched.LaneID
	lane    *lane
	up      bool
	dead    bool // failed, or about to
	entropy uint64
	posted  []*sched.Slice // in order
	queues  [2]queue       // by Direction
	flows   []*laneFlow
	links   []Link // from port to port and back
	rtt     int64
	// unanswered slices have been sent, but their answers do not get through.
	unanswered int
	giveUp     Timer
}

// queue has the slices of one direction; the first is on the wire.
type queue struct {
	waiting []*sched.Slice
	flow    *laneFlow
}

// laneFlow is a connection's flow for one route and direction: its path ends at the
// route's memory.
type laneFlow struct {
	route *route
	kind  direction.Direction
	flow  *Flow
}

// How long dialing over a path that carries nothing takes to fail, and how long a connection over such a path lives.
const (
	dialNS  = 100_000_000
	retryNS = 500_000_000
)

// Errors of connections.
var (
	errNoAnswer = errors.New("dial: no answer")
	errRetries  = errors.New("transport retries exceeded")
)

// dial connects a lane, which takes a round trip, or fails after dialNS if nothing gets
// through.
func (e *Engine) dial(id sched.LaneID, connID sched.ConnID) {
	l := e.lanes[id]
	x := &conn{e: e, id: connID, laneID: id, lane: l, entropy: hash(e.c.seed, uint64(e.host), uint64(connID))}
	x.giveUp.run = func() { x.fail(errRetries) }
	e.conns[connID] = x
	a, b := End{Host: e.host, Port: l.local}, End{Host: l.peer.host, Port: l.remote}
	there, err := e.c.Path(a, b, x.entropy)
	back, err2 := e.c.Path(b, a, x.entropy)
	if err := errors.Join(err, err2); err != nil || !e.c.open(there) || !e.c.open(back) {
		e.c.At(e.c.now+dialNS, func() {
			if !x.dead {
				x.end(sched.ConnectFailed, cmp.Or(err, errNoAnswer))
			}
		})
		return
	}
	x.links = slices.Concat(there, back)
	x.rtt = e.c.latency(x.links)
	e.c.At(e.c.now+x.rtt, func() {
		if !x.dead {
			x.up = true
			e.emit(sched.Event{Kind: sched.Connected, Lane: id, Conn: connID, Limits: e.o.Limits})
		}
	})
}

// post adds a slice. On a connection that is failing it is returned with the others.
func (x *conn) post(s *sched.Slice) {
	x.posted = append(x.posted, s)
	if x.dead {
		return
	}
	q := &x.queues[s.Kind]
	q.waiting = append(q.waiting, s)
	if len(q.waiting) == 1 {
		x.begin(q)
	}
}

// begin puts the first slice of a queue on the wire.
func (x *conn) begin(q *queue) {
	s := q.waiting[0]
	f, err := x.flowOf(s)
	if err != nil {
		x.fail(err)
		return
	}
	q.flow = f
	f.flow.Extend(s.Bytes)
}

// flowOf finds or makes the flow of a slice.
func (x *conn) flowOf(s *sched.Slice) (*laneFlow, error) {
	r := x.e.routes[s.Job.Route]
	for _, f := range x.flows {
		if f.route == r && f.kind == s.Kind {
			return f, nil
		}
	}
	from, to := End{x.e.host, r.src, x.lane.local}, End{x.lane.peer.host, r.dst, x.lane.remote}
	if s.Kind == direction.Read {
		from, to = to, from
	}
	path, err := x.e.c.Path(from, to, x.entropy)
	if err != nil {
		return nil, err
	}
	kind := s.Kind // the slice is the core's again when it is done
	f := &laneFlow{route: r, kind: kind}
	f.flow = x.e.c.Start(FlowSpec{Path: path, End: func(*Flow) { x.finishSending(kind) }, Rate: func(*Flow) { x.updateRetryTimer() }})
	x.flows = append(x.flows, f)
	return f, nil
}

// finishSending is called when the first slice of a queue has left: the next one starts,
// and a round trip later the first is done.
func (x *conn) finishSending(kind direction.Direction) {
	q := &x.queues[kind]
	s := q.waiting[0]
	q.waiting[0] = nil
	q.waiting = q.waiting[1:]
	if len(q.waiting) > 0 {
		x.begin(q)
	} else {
		q.waiting = nil
	}
	x.e.c.At(x.e.c.now+x.rtt, func() { x.answer(s, false) })
}

// answerRetryNS is the interval at which a lost answer is sent again.
const answerRetryNS = 1_000_000

// answer completes a slice as soon as the path in both directions is open.
func (x *conn) answer(s *sched.Slice, late bool) {
	at := slices.Index(x.posted, s)
	if at < 0 || x.dead {
		return
	}
	if !x.e.c.open(x.links) {
		if !late {
			x.unanswered++
			x.updateRetryTimer()
		}
		x.e.c.At(x.e.c.now+answerRetryNS, func() { x.answer(s, true) })
		return
	}
	if late {
		x.unanswered--
		x.updateRetryTimer()
	}
	x.posted = slices.Delete(x.posted, at, at+1)
	x.e.emit(sched.Event{Kind: sched.Done, Slice: s})
}

// updateRetryTimer runs the timer that fails the connection while it is stuck in either
// direction.
func (x *conn) updateRetryTimer() {
	stuck := x.unanswered > 0
	for _, f := range x.flows {
		stuck = stuck || f.flow.active && f.flow.rate == 0
	}
	switch {
	case !stuck:
		x.e.c.Set(&x.giveUp, Never)
	case x.giveUp.pos == 0:
		x.e.c.Set(&x.giveUp, x.e.c.now+retryNS)
	}
}

// closeNS is how long it takes to close a connection.
const closeNS = 10_000

// fail ends a connection: its slices are returned, then the loss is reported.
func (x *conn) fail(err error) {
	if x.dead {
		return
	}
	x.dead = true
	x.e.c.Set(&x.giveUp, Never)
	for _, f := range x.flows {
		f.flow.Stop()
	}
	kind := sched.Lost
	if !x.up {
		kind = sched.ConnectFailed
	}
	x.e.c.At(x.e.c.now+closeNS, func() { x.end(kind, err) })
}

func (x *conn) end(kind sched.Kind, err error) {
	x.dead = true
	for _, s := range x.posted {
		x.e.emit(sched.Event{Kind: sched.Done, Slice: s, Err: err, MayLand: s.Kind == direction.Write, Retry: true})
	}
	x.posted = nil
	delete(x.e.conns, x.id)
	x.e.emit(sched.Event{Kind: kind, Lane: x.laneID, Conn: x.id, Err: err})
}
