package sched

import (
	"cmp"
	"container/heap"
	"fmt"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/direction"
	"github.com/topoctl/topoctl/internal/pick"
)

// lateSlice is what may land late of a slice's attempt, on a connection.
type lateSlice struct {
	job  *Job // slices are used again
	conn ConnID
}

// sim carries out what a core says, in virtual time, over links that serve
// slices one after the other. It is the engine, the transports and the peers.
type sim struct {
	t     fataler
	core  *Core
	cfg   Config
	now   int64
	heap  simHeap
	seq   int
	links map[LaneID]*simLink
	conns map[ConnID]*simConn
	used  map[ConnID]bool
	out   []Action
	log   *strings.Builder // nil: none

	wakeAt int64 // events before this are delivered then: nobody ran

	peer    PeerID
	side    SideID
	far     SideID
	tracks  map[*Job]*track
	done    []*Job
	told    []Note
	posted  map[*Slice]bool
	fenceIn int64 // answers to Fence after so long; Never: none
	late    map[*Slice]lateSlice
	asked   map[ConnID]bool // to be left
	gone    map[ConnID]bool
	posts   map[*Slice]int // s.slices when it was posted
	steps   int
	slices  int
	onDone  func(j *Job)
}

// fataler is a test, or a run of a property.
type fataler interface {
	Helper()
	Errorf(format string, a ...any)
	Fatalf(format string, a ...any)
	Fatal(a ...any)
}

// track is what the simulator saw of a job.
type track struct {
	inflight int
	spans    []piece
	spoiled  []spoiled
	may      map[ConnID]bool // landed late maybe, and not fenced
	finished bool
	resent   []int64 // times at which slices were posted again
}

// spoiled is where a slice that failed may have left other bytes than it was to bring.
type spoiled struct {
	local, from, to int64
	at              int // slices that were posted when it failed
}

// piece is a run of bytes that is contiguous on both sides.
type piece struct {
	kind          direction.Direction
	local, remote int32
	lo, ro, bytes int64
}

// simLink is what a lane runs over.
type simLink struct {
	s       *sim
	lane    LaneID
	name    string
	rate    float64 // bytes per second, 0: silent
	latency int64
	refuse  bool  // dials fail
	hold    bool  // dials do not, although it is silent
	dialIn  int64 // how long a dial takes beyond two latencies
	limits  Limits

	queue    []*simItem
	left     float64
	since    int64
	gen      int
	carried  int64
	maxQueue int64
	held     int64
}

type simItem struct {
	s    *Slice
	conn *simConn
}

type simConn struct {
	id     ConnID
	link   *simLink
	up     bool
	dead   bool
	spare  bool // the second one of its lane
	hole   bool // what is posted on it is swallowed
	posted map[*Slice]bool
	order  []*Slice
}

type simEvent struct {
	at  int64
	seq int
	run func() []Event
}

type simHeap []simEvent

func (h simHeap) Len() int { return len(h) }
func (h simHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h simHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *simHeap) Push(x any)   { *h = append(*h, x.(simEvent)) }
func (h *simHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

func newSim(t fataler, cfg Config) *sim {
	s := &sim{t: t, core: New(cfg), cfg: cfg.withDefaults(), links: map[LaneID]*simLink{}, conns: map[ConnID]*simConn{}, used: map[ConnID]bool{},
		tracks: map[*Job]*track{}, posted: map[*Slice]bool{}, fenceIn: 200 * microsecond, gone: map[ConnID]bool{}, late: map[*Slice]lateSlice{}, posts: map[*Slice]int{}}
	s.peer = s.core.AddPeer("n2")
	s.now = second
	return s
}

const gbit = topo.Rate(125_000_000)

// lanesOf adds lanes with links of the given rates; promised is what the
// topology says (0 unknown).
type laneOf struct {
	rate     topo.Rate
	promised topo.Rate
	tier     int
	latency  int64
}

func same(rates ...topo.Rate) []laneOf {
	out := make([]laneOf, len(rates))
	for i, r := range rates {
		out[i] = laneOf{rate: r, promised: r}
	}
	return out
}

func (s *sim) group(transport string, lanes []laneOf) Group {
	return s.groupTo(s.peer, transport, lanes)
}

func (s *sim) groupTo(peer PeerID, transport string, lanes []laneOf) Group {
	o := pick.List{TCP: true}
	rates := make([]topo.Rate, len(lanes))
	for i, l := range lanes {
		o.Lanes = append(o.Lanes, pick.Listed{LocalName: fmt.Sprintf("eth%d", i), RemoteName: fmt.Sprintf("eth%d", i), BytesPerSec: l.promised, Tier: l.tier})
		rates[i] = l.promised
	}
	here, there := s.core.AddSide(rates), s.core.AddSide(rates)
	if transport == "tcp" {
		s.side, s.far = here, there
	}
	g := Group{Transport: transport, Set: o.Set()}
	for i := range g.Set.Lanes {
		at := g.Set.Lanes[i].Local
		l := lanes[at]
		name := fmt.Sprintf("%s%d", transport, at)
		id := s.core.AddLane(LaneSpec{Peer: peer, Name: name, Transport: transport, LocalSide: here, RemoteSide: there, Local: at, Remote: at,
			RateBytesPerSec: l.promised})
		s.links[id] = &simLink{s: s, lane: id, name: name, rate: float64(l.rate), latency: cmp.Or(l.latency, 20*microsecond),
			limits: Limits{MaxSpans: 512, MaxBytes: 4 << 20, MaxPosted: 256}}
		g.Lanes = append(g.Lanes, id)
	}
	return g
}

func (s *sim) route(groups ...Group) *Route {
	return &Route{Peer: s.peer, Name: "cpu:0 > n2 cpu:0", Groups: groups}
}

func (s *sim) link(name string) *simLink {
	for _, l := range s.links {
		if l.name == name {
			return l
		}
	}
	s.t.Fatalf("no link %s", name)
	return nil
}

func (s *sim) after(ns int64, run func() []Event) {
	s.seq++
	heap.Push(&s.heap, simEvent{s.now + ns, s.seq, run})
}

// at runs something at a time from now, as an event.
func (s *sim) in(ns int64, do func()) {
	s.after(ns, func() []Event { do(); return nil })
}

func (s *sim) logf(format string, a ...any) {
	if s.log != nil {
		fmt.Fprintf(s.log, "%9.3f ms  "+format+"\n", append([]any{float64(s.now-second) / 1e6}, a...)...)
	}
}

// writeOf is a job of contiguous bytes.
func writeOf(r *Route, bytes int64) *Job {
	return &Job{Route: r, Ops: []Op{{Bytes: bytes, Count: 1, Local: 1, Remote: 2, RemoteOffset: 4096}}}
}

func (s *sim) submit(j *Job) *Job {
	s.step(Event{Kind: Submit, Job: j})
	return j
}

// step brings events to the core and carries out what it answers.
func (s *sim) step(events ...Event) {
	s.steps++
	for i := range events {
		s.saw(&events[i])
	}
	s.out = s.core.Step(s.now, events, s.out[:0])
	for i := range s.out {
		s.act(&s.out[i])
	}
	if next := s.core.Next(); next < s.now {
		s.t.Fatalf("Next is %d ns in the past", s.now-next)
	}
}

// repair takes out what a slice has brought that was posted after the others had failed.
func (tr *track) repair(x *Slice, posted int) {
	for _, sp := range x.Spans {
		var left []spoiled
		for _, b := range tr.spoiled {
			from, to := max(b.from, sp.LocalOffset), min(b.to, sp.LocalOffset+sp.Bytes)
			if b.local != int64(sp.Local) || from >= to || posted <= b.at {
				left = append(left, b)
				continue
			}
			if b.from < from {
				left = append(left, spoiled{b.local, b.from, from, b.at})
			}
			if to < b.to {
				left = append(left, spoiled{b.local, to, b.to, b.at})
			}
		}
		tr.spoiled = left
	}
}

// saw keeps the books of what the core is told.
func (s *sim) saw(e *Event) {
	switch e.Kind {
	case Submit:
		s.tracks[e.Job] = &track{may: map[ConnID]bool{}}
	case Done:
		j := e.Slice.Job
		tr := s.tracks[j]
		tr.inflight--
		delete(s.posted, e.Slice)
		conn := e.Slice.Conn
		if e.Err == nil && !e.Slice.Probe {
			for _, x := range e.Slice.Spans {
				tr.spans = append(tr.spans, piece{e.Slice.Kind, x.Local, x.Remote, x.LocalOffset, x.RemoteOffset, x.Bytes})
			}
		}
		if e.Err == nil {
			tr.repair(e.Slice, s.posts[e.Slice])
		} else if e.MayLand || e.Retry {
			for _, x := range e.Slice.Spans {
				tr.spoiled = append(tr.spoiled, spoiled{int64(x.Local), x.LocalOffset, x.LocalOffset + x.Bytes, s.slices})
			}
		}
		delete(s.late, e.Slice)
		if e.MayLand && e.Slice.Kind == direction.Write && !s.gone[conn] {
			tr.may[conn] = true
			s.late[e.Slice] = lateSlice{j, conn}
		}
		if e.Err != nil {
			s.logf("failed  %s %d bytes: %v", s.conns[conn].link.name, e.Slice.Bytes, e.Err)
		} else if s.log != nil {
			s.logf("done    %s %d bytes", s.conns[conn].link.name, e.Slice.Bytes)
		}
	case Fenced:
		s.gone[e.Conn] = true
		for _, tr := range s.tracks {
			delete(tr.may, e.Conn)
		}
		s.logf("fenced  conn %d", e.Conn)
	case Lost:
		s.logf("lost    conn %d", e.Conn)
		c := s.conns[e.Conn]
		if len(c.posted) > 0 {
			s.t.Fatalf("the simulator loses conn %d with %d slices", e.Conn, len(c.posted))
		}
		c.dead = true
	case ConnectFailed:
		s.conns[e.Conn].dead = true
	case PeerGone:
		if e.Restarted {
			for id := range s.conns {
				s.gone[id] = true
			}
			for _, tr := range s.tracks {
				clear(tr.may)
			}
		}
	}
}

func (s *sim) act(a *Action) {
	switch a.Do {
	case Connect:
		s.connect(a)
	case Post:
		s.post(a)
	case Kill:
		c := s.conns[a.Conn]
		if c == nil || c.dead {
			s.t.Fatalf("kill of conn %d, which is lost", a.Conn)
		}
		s.logf("kill    %s conn %d: %v", c.link.name, a.Conn, a.Err)
		if c.up {
			s.lose(c, a.Err, 10*microsecond)
		} else {
			c.up = true // Connected is not told any more
			s.after(10*microsecond, func() []Event { return []Event{{Kind: ConnectFailed, Lane: c.link.lane, Conn: c.id, Err: a.Err}} })
		}
	case Fence:
		s.logf("fence   conn %d", a.Conn)
		if s.asked[a.Conn] {
			s.t.Fatalf("conn %d is to be left twice", a.Conn)
		}
		if s.asked == nil {
			s.asked = map[ConnID]bool{}
		}
		s.asked[a.Conn] = true
		if s.fenceIn != Never {
			conn := a.Conn
			s.after(s.fenceIn, func() []Event { return []Event{{Kind: Fenced, Peer: a.Peer, Conn: conn}} })
		}
	case Finish:
		s.finish(a.Job)
	case Tell:
		s.logf("note    %s: %s", a.Note.Code, a.Note.Text)
		s.told = append(s.told, *a.Note)
	}
}

// run goes on until a condition holds, nothing is left to happen, or a time.
func (s *sim) run(until int64, done func() bool) {
	for !done() {
		at := s.core.Next()
		if len(s.heap) > 0 {
			at = min(at, s.heap[0].at)
		}
		if at == Never || at > until {
			if until != Never {
				s.now = max(s.now, until)
			}
			return
		}
		at = max(at, s.now, s.wakeAt)
		s.now = at
		var events []Event
		for len(s.heap) > 0 && s.heap[0].at <= at {
			x := heap.Pop(&s.heap).(simEvent)
			events = append(events, x.run()...)
		}
		if len(events) == 0 && s.core.Next() > s.now {
			continue
		}
		if len(events) == 0 {
			events = append(events, Event{Kind: Tick})
		}
		s.step(events...)
	}
}

// all runs until every job is over.
func (s *sim) all() {
	s.t.Helper()
	until := s.now + 300*second
	s.run(until, func() bool { return len(s.done) == len(s.tracks) })
	if len(s.done) != len(s.tracks) {
		s.t.Fatalf("%d of %d jobs are not over: %+v", len(s.tracks)-len(s.done), len(s.tracks), s.core.Lanes(nil))
	}
}

// settle runs for a while.
func (s *sim) settle(ns int64) { s.run(s.now+ns, func() bool { return false }) }

func (s *sim) count(code NoteCode) int {
	n := 0
	for i := range s.told {
		if s.told[i].Code == code {
			n++
		}
	}
	return n
}

// took is how long a job ran.
func took(j *Job) float64 { return float64(j.Result.EndNS-j.Result.StartNS) / 1e9 }
