package sim

import (
	"cmp"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/direction"
	"github.com/topoctl/topoctl/internal/sched"
	"github.com/topoctl/topoctl/pathsel"
)

// EngineOptions configure an engine and its transport.
type EngineOptions struct {
	Sched  sched.Config
	Limits sched.Limits // of a connection; zero fields: 512 spans, 4 MiB, 256 slices
}

// Engine is the scheduler of one host, in a cluster's time.
type Engine struct {
	c       *Cluster
	host    int
	o       EngineOptions
	core    *sched.Core
	side    sched.SideID
	hasSide bool
	peers   map[int]*peer
	lanes   []*lane // by sched.LaneID
	routes  map[*sched.Route]*route
	conns   map[sched.ConnID]*conn
	events  []sched.Event
	actions []sched.Action
	step    *Timer // set while there are events
	wake    *Timer // the next time that the core asks for
	work    map[*sched.Job]*Work
	notes   []sched.Note
}

// peer is another host as an engine sees it.
type peer struct {
	id     sched.PeerID
	host   int
	side   sched.SideID
	lanes  map[[2]int]sched.LaneID // by both ports' indices
	routes map[routeKey]*route
}

type routeKey struct {
	src, dst pathsel.Location
	ports    string
}

// route is the lanes between two memory locations.
type route struct {
	r        *sched.Route
	peer     *peer
	src, dst pathsel.Location
	set      *pathsel.LaneSet
}

type lane struct {
	name          string
	peer          *peer
	local, remote topo.ID
}

// Work is a job for an engine: a transfer between a memory location of its host and
// one of another host.
type Work struct {
	Peer        int              // the other host
	Local       pathsel.Location // of the engine's host
	Remote      pathsel.Location
	Kind        direction.Direction
	Bytes       int64 // contiguous
	DeadlineNS  int64 // from now; 0: none
	LaneOptions pathsel.LaneOptions
	// Done is called when the job is over and its Result final.
	Done func(*sched.Job)
}

// Engine makes an engine of a host.
func (c *Cluster) Engine(host int, o EngineOptions) (*Engine, error) {
	if err := c.checkHosts(host); err != nil {
		return nil, err
	}
	o.Limits.MaxSpans = cmp.Or(o.Limits.MaxSpans, 512)
	o.Limits.MaxBytes = cmp.Or(o.Limits.MaxBytes, 4<<20)
	o.Limits.MaxPosted = cmp.Or(o.Limits.MaxPosted, 256)
	e := &Engine{c: c, host: host, o: o, core: sched.New(o.Sched), peers: map[int]*peer{}, routes: map[*sched.Route]*route{}, conns: map[sched.ConnID]*conn{},
		work: map[*sched.Job]*Work{}}
	e.step, e.wake = &Timer{run: e.run}, &Timer{run: e.tick}
	c.portListeners = append(c.portListeners, e.port)
	return e, nil
}

// port is called when the link of a port goes up or down.
func (e *Engine) port(host, port int, up bool) {
	if host != e.host || !e.hasSide {
		return
	}
	kind := sched.PortDown
	if up {
		kind = sched.PortUp
	}
	e.emit(sched.Event{Kind: kind, Side: e.side, Port: port})
}

// emit passes an event to the core, together with all others of the same time.
func (e *Engine) emit(v sched.Event) {
	e.events = append(e.events, v)
	if e.step.pos == 0 {
		e.c.Set(e.step, e.c.now)
	}
}

func (e *Engine) tick() { e.emit(sched.Event{Kind: sched.Tick}) }

// run steps the core and carries out its actions.
func (e *Engine) run() {
	events := e.events
	e.events = nil
	e.actions = e.core.Step(e.c.now, events, e.actions[:0])
	for i := range e.actions {
		e.perform(&e.actions[i])
	}
	e.c.Set(e.wake, e.core.Next())
	if e.events == nil {
		clear(events)
		e.events = events[:0]
	}
}

func (e *Engine) perform(a *sched.Action) {
	switch a.Do {
	case sched.Connect:
		e.dial(a.Lane, a.Conn)
	case sched.Post:
		e.conns[a.Conn].post(a.Slice)
	case sched.Kill:
		if x := e.conns[a.Conn]; x != nil {
			x.fail(a.Err)
		}
	case sched.Fence:
		e.fence(a.Peer, a.Conn)
	case sched.Finish:
		e.finish(a.Job)
	case sched.Tell:
		e.notes = append(e.notes, *a.Note)
	}
}

func (e *Engine) finish(j *sched.Job) {
	w := e.work[j]
	delete(e.work, j)
	if w != nil && w.Done != nil {
		w.Done(j)
	}
}

// Submit starts a job. It fails if pathsel finds no lane.
func (e *Engine) Submit(w Work) (*sched.Job, error) {
	r, err := e.route(&w)
	if err != nil {
		return nil, err
	}
	j := &sched.Job{Route: r.r, Ops: []sched.Op{{Kind: w.Kind, Local: 1, Remote: 2, Bytes: w.Bytes, Count: 1}}}
	if w.DeadlineNS > 0 {
		j.DeadlineNS = e.c.now + w.DeadlineNS
	}
	e.work[j] = &w
	e.emit(sched.Event{Kind: sched.Submit, Job: j})
	return j, nil
}

// Over says whether a job is over.
func (e *Engine) Over(j *sched.Job) bool { return e.work[j] == nil }

// LaneName names a lane as "mlx5_0 > n2:mlx5_0", for a job's LaneUse.
func (e *Engine) LaneName(id sched.LaneID) string { return e.lanes[id].name }

// LaneEnds are the ports of a lane, the engine's own first.
func (e *Engine) LaneEnds(id sched.LaneID) (local, remote End) {
	l := e.lanes[id]
	return End{Host: e.host, Port: l.local}, End{Host: l.peer.host, Port: l.remote}
}
