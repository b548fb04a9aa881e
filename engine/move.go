package engine

import (
	"errors"
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/sched"
)

// work is what one goroutine needs to bring news to the core and to carry out
// what it answers. It is used again, so that nothing is allocated per slice.
type work struct {
	events  []sched.Event
	actions []sched.Action
	posts   []postGroup
	fences  []fencing
	done    []transport.Completion
	awaited *Batch // whoever carries this out waits for it then
}

// fencing is a connection that a peer is to be asked to leave.
type fencing struct {
	peer *Peer
	key  fenceKey
}

// postGroup are the slices that one connection is given at once.
type postGroup struct {
	conn     *conn
	slices   []*sched.Slice
	requests []*transport.Request
}

func (e *Engine) getWork() *work { return e.pools.works.Get().(*work) }

func (e *Engine) putWork(w *work) {
	const most = 4096 // more is not kept
	if cap(w.events) <= most && cap(w.actions) <= most {
		e.pools.works.Put(w)
	}
}

// now is the core's time: nanoseconds since the engine began.
func (e *Engine) now() int64 { return int64(time.Since(e.began)) }

// tell brings one event.
func (e *Engine) tell(event sched.Event) {
	w := e.getWork()
	w.events = append(w.events, event)
	e.run(w)
	e.putWork(w)
}

// run steps the core with the events of w, and with what comes of that at once,
// until nothing is left.
func (e *Engine) run(w *work) {
	for len(w.events) > 0 {
		e.mu.Lock()
		e.step(w)
		e.mu.Unlock()
		e.perform(w)
	}
}

// step runs under the engine's mutex.
func (e *Engine) step(w *work) {
	// Losses may be appended on the way.
	for i := 0; i < len(w.events); i++ {
		e.account(w, &w.events[i])
	}
	w.actions = e.core.Step(e.now(), w.events, w.actions[:0])
	clear(w.events)
	w.events = w.events[:0]
	var last *conn
	for i := range w.actions {
		a := &w.actions[i]
		switch a.Do {
		case sched.Post:
			if last == nil || last.id != a.Slice.Conn {
				last = e.conns[a.Slice.Conn]
			}
			last.outstanding++
			w.group(last).add(a.Slice)
		case sched.Connect:
			e.conns[a.Conn] = e.newConn(a.Conn, a.User.(*lane))
		case sched.Fence:
			l := a.User.(*lane)
			key := l.fenceKey(a.Conn)
			e.unfenced[a.Conn] = key
			w.fences = append(w.fences, fencing{l.peer, key})
		case sched.Finish:
			if len(a.Job.Result.Unsafe) > 0 {
				e.quarantine(a.Job.User.(*part))
			}
		}
	}
	if next := e.core.Next(); next < e.wakeAt {
		e.wakeAt = next
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
}

// account keeps the books of connections: a loss is told to the core only when
// every slice that was given to the connection has come back. So a connection is there
// as long as any of its slices can come, even where its transport says that it is lost
// before it says what became of them.
func (e *Engine) account(w *work, event *sched.Event) {
	var c *conn
	switch event.Kind {
	case sched.Done:
		c = e.conns[event.Slice.Conn]
		c.outstanding--
	case sched.Connected:
		c = e.conns[event.Conn]
		c.connected = true
	case sched.ConnectFailed:
		delete(e.conns, event.Conn)
		return
	default:
		return
	}
	if c.lost && c.connected && c.outstanding == 0 {
		delete(e.conns, c.id)
		w.events = append(w.events, sched.Event{Kind: sched.Lost, Lane: c.lane.id, Conn: c.id, Err: c.lostErr})
	}
}

// group finds the connection's place among the posts.
func (w *work) group(c *conn) *postGroup {
	for i := range w.posts {
		if w.posts[i].conn == c {
			return &w.posts[i]
		}
	}
	if len(w.posts) < cap(w.posts) {
		w.posts = w.posts[:len(w.posts)+1]
	} else {
		w.posts = append(w.posts, postGroup{})
	}
	g := &w.posts[len(w.posts)-1]
	g.conn = c
	return g
}

func (g *postGroup) add(s *sched.Slice) { g.slices = append(g.slices, s) }

// perform carries the actions out. What completes at once is left in the events.
func (e *Engine) perform(w *work) {
	for i := range w.posts {
		e.post(w, &w.posts[i])
	}
	w.posts = w.posts[:0]
	for i := range w.actions {
		a := &w.actions[i]
		switch a.Do {
		case sched.Connect:
			e.connect(a)
		case sched.Kill:
			e.kill(a)
		case sched.Finish:
			part := a.Job.User.(*part)
			part.batch.finish(part)
		case sched.Tell:
			e.note(a.Note)
		}
	}
	clear(w.actions)
	for _, f := range w.fences {
		e.fence(f)
	}
	clear(w.fences)
	w.fences = w.fences[:0]
}

// errNotPosted is for slices that a connection had no room for although the core
// keeps to its limits: it broke its promise, or was closed at this moment.
var errNotPosted = errors.New("the connection did not take the request")

// post translates slices to requests and hands them to their connection.
func (e *Engine) post(w *work, g *postGroup) {
	for _, s := range g.slices {
		r, b := e.request(s), s.Job.User.(*part).batch
		g.requests = append(g.requests, r)
		if g.conn.poller != nil {
			b.polled.CompareAndSwap(nil, g.conn)
			r.Awaited = w.awaited == b && b.polled.Load() == g.conn
		}
	}
	taken, done := g.conn.t.Post(g.requests, w.done[:0])
	w.completedAll(done)
	for _, r := range g.requests[taken:] {
		w.completed(transport.Completion{Request: r, Err: errNotPosted})
	}
	clear(done)
	w.done = done[:0]
	clear(g.slices)
	clear(g.requests)
	g.conn, g.slices, g.requests = nil, g.slices[:0], g.requests[:0]
}

// posting is a slice on its way through a transport.
type posting struct {
	request transport.Request
	slice   *sched.Slice
	part    *part
}

// request makes the transport's request of a slice.
func (e *Engine) request(s *sched.Slice) *transport.Request {
	p := e.pools.postings.Get().(*posting)
	part := s.Job.User.(*part)
	p.slice, p.part = s, part
	p.request.Op, p.request.Bytes, p.request.Check, p.request.Tag = s.Kind, s.Bytes, s.Job.Check, p
	spans := p.request.Spans[:0]
	b := part.batch
	for i := range s.Spans {
		from := &s.Spans[i]
		spans = append(spans, transport.Span{
			Local: b.locals[from.Local].r, LocalOffset: from.LocalOffset,
			Remote: b.remotes[from.Remote].keyed.Load(), RemoteOffset: from.RemoteOffset, Bytes: from.Bytes,
		})
	}
	p.request.Spans = spans
	return &p.request
}

// completedAll turns completions into events.
func (w *work) completedAll(done []transport.Completion) {
	for i := range done {
		w.completed(done[i])
	}
}

func (w *work) completed(c transport.Completion) {
	p := c.Request.Tag.(*posting)
	event := sched.Event{Kind: sched.Done, Slice: p.slice, Err: c.Err, MayLand: c.MayLand}
	b := p.part.batch
	if c.Err == nil {
		if !p.slice.Probe {
			b.moved.Add(p.slice.Bytes)
		}
	} else {
		event.Retry = !errors.Is(c.Err, transport.ErrRefused) && !errors.Is(c.Err, memory.ErrDevice)
	}
	w.events = append(w.events, event)
	b.engine.keepPosting(p)
}

// mostSpans is how many spans a posting has room for that is used again.
const mostSpans = 1024

func (e *Engine) keepPosting(p *posting) {
	if cap(p.request.Spans) > mostSpans {
		return
	}
	p.slice, p.part = nil, nil
	clear(p.request.Spans)
	p.request = transport.Request{Spans: p.request.Spans[:0]}
	e.pools.postings.Put(p)
}

// completed is the transport's Events.Done: one step for all of them, by the
// goroutine that brings them.
func (c *conn) completed(_ transport.Conn, done []transport.Completion) {
	e := c.lane.peer.engine
	w := e.getWork()
	w.completedAll(done)
	e.run(w)
	e.putWork(w)
}

// wasLost is the transport's Events.Lost.
func (c *conn) wasLost(_ transport.Conn, err error) {
	e := c.lane.peer.engine
	w := e.getWork()
	defer e.putWork(w)
	e.mu.Lock()
	c.lost, c.lostErr = true, err
	over := c.connected && c.outstanding == 0
	if over { // else the last slice that comes back, or Connected, tells the core
		// In one go: the core posts on every connection of which it knows no loss.
		delete(e.conns, c.id)
		w.events = append(w.events, sched.Event{Kind: sched.Lost, Lane: c.lane.id, Conn: c.id, Err: err})
		e.step(w)
	}
	e.mu.Unlock()
	if over {
		e.perform(w)
		e.run(w)
	}
}

// keepTime steps the core when it wants to be although nothing happened.
func (e *Engine) keepTime() {
	defer e.tasks.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		e.mu.Lock()
		e.wakeAt = e.core.Next()
		at := e.wakeAt
		e.mu.Unlock()
		timer.Reset(e.until(at))
		select {
		case <-timer.C:
			e.tell(sched.Event{Kind: sched.Tick})
		case <-e.wake:
		case <-e.stop:
			return
		}
	}
}

// until is how long to sleep; after an hour the core may be asked again.
func (e *Engine) until(at int64) time.Duration {
	if at == sched.Never {
		return time.Hour
	}
	return min(max(time.Duration(at-e.now()), 0), time.Hour)
}
