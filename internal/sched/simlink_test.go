package sched

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/direction"
)

func (s *sim) connect(a *Action) {
	if s.used[a.Conn] {
		s.t.Fatalf("conn %d is used twice", a.Conn)
	}
	s.used[a.Conn] = true
	link, spare := s.links[a.Lane], s.core.holder(a.Lane, a.Conn).of != nil
	for _, other := range s.conns {
		if other.link == link && !other.dead && other.spare == spare {
			s.t.Fatalf("lane %s has two connections", link.name)
		}
	}
	c := &simConn{id: a.Conn, link: link, spare: spare, posted: map[*Slice]bool{}}
	s.conns[a.Conn] = c
	s.logf("connect %s conn %d", link.name, a.Conn)
	lane := a.Lane
	if link.refuse || link.rate == 0 && !link.hold {
		s.after(100*millisecond, func() []Event {
			if c.up || c.dead {
				return nil
			}
			return []Event{{Kind: ConnectFailed, Lane: lane, Conn: c.id, Err: errors.New("connect: timed out")}}
		})
		return
	}
	s.after(2*link.latency+link.dialIn, func() []Event {
		if c.up || c.dead {
			return nil
		}
		c.up = true
		return []Event{{Kind: Connected, Lane: lane, Conn: c.id, Limits: link.limits}}
	})
}

func (s *sim) post(a *Action) {
	x := a.Slice
	c := s.conns[a.Conn]
	switch {
	case c == nil || c.dead:
		s.t.Fatalf("post on conn %d, which is lost", a.Conn)
	case !c.up:
		s.t.Fatalf("post on conn %d, which is not connected", a.Conn)
	// One that is new may only have the memory of one that was lost.
	case x.Attempt > 0 && s.late[x].job == x.Job && !s.gone[s.late[x].conn]:
		s.t.Fatalf("a slice is sent again, and what was sent on conn %d may land after it", s.late[x].conn)
	case s.posted[x]:
		s.t.Fatalf("slice is posted twice")
	case len(x.Spans) == 0 || len(x.Spans) > c.link.limits.MaxSpans || x.Bytes > c.link.limits.MaxBytes:
		s.t.Fatalf("slice of %d bytes in %d spans is against the limits", x.Bytes, len(x.Spans))
	case s.tracks[x.Job].finished:
		s.t.Fatal("post for a job that is over")
	}
	sum := int64(0)
	for _, sp := range x.Spans {
		sum += sp.Bytes
	}
	if sum != x.Bytes {
		s.t.Fatalf("slice of %d bytes has spans of %d", x.Bytes, sum)
	}
	s.slices++
	s.posted[x], s.posts[x] = true, s.slices
	tr := s.tracks[x.Job]
	tr.inflight++
	if x.Attempt > 0 {
		tr.resent = append(tr.resent, s.now)
	}
	if s.log != nil {
		what := ""
		if x.Probe {
			what = " probe"
		}
		if x.Attempt > 0 {
			what += fmt.Sprintf(" attempt %d", x.Attempt)
		}
		s.logf("post    %s %d bytes%s", c.link.name, x.Bytes, what)
	}
	if len(c.posted) >= c.link.limits.MaxPosted {
		s.t.Fatalf("conn %d holds %d slices", c.id, len(c.posted))
	}
	c.posted[x] = true
	c.order = append(c.order, x)
	if c.link.gone(c) {
		return // a dead one: its completions are on the way
	}
	if c.hole {
		return
	}
	c.link.push(&simItem{x, c})
	l := s.core.holder(a.Lane, a.Conn)
	if len(l.slices) > 1 && l.inflight > l.window {
		s.t.Fatalf("lane %s holds %d bytes, its window is %d", c.link.name, l.inflight, l.window)
	}
	for _, p := range []*port{l.local, l.remote} {
		if load := p.side.load[p.index]; p.window > 0 && load > p.window && load != x.Bytes {
			s.t.Fatalf("a port of lane %s holds %d bytes, its window is %d", c.link.name, load, p.window)
		}
	}
}

// gone says whether the connection was lost and its slices are on the way back.
func (l *simLink) gone(c *simConn) bool { return c.order == nil }

func (l *simLink) push(x *simItem) {
	l.queue = append(l.queue, x)
	l.held += x.s.Bytes
	l.maxQueue = max(l.maxQueue, l.held)
	if len(l.queue) == 1 {
		l.left, l.since = float64(x.s.Bytes), l.s.now
		l.schedule()
	}
}

// schedule finds out when the first of the queue is through.
func (l *simLink) schedule() {
	l.gen++
	if len(l.queue) == 0 || l.rate <= 0 {
		return
	}
	gen := l.gen
	l.s.after(int64(l.left/l.rate*1e9), func() []Event {
		if gen != l.gen {
			return nil
		}
		l.through()
		return nil
	})
}

func (l *simLink) through() {
	x := l.queue[0]
	l.queue = l.queue[1:]
	l.held -= x.s.Bytes
	l.carried += x.s.Bytes
	if len(l.queue) > 0 {
		l.left, l.since = float64(l.queue[0].s.Bytes), l.s.now
	}
	l.schedule()
	l.s.after(l.latency, func() []Event {
		if !x.conn.posted[x.s] {
			return nil
		}
		x.conn.take(x.s)
		return []Event{{Kind: Done, Slice: x.s}}
	})
}

func (c *simConn) take(x *Slice) {
	delete(c.posted, x)
	if at := slices.Index(c.order, x); at >= 0 {
		c.order = slices.Delete(c.order, at, at+1)
	}
}

// setRate changes a link's rate, 0 makes it silent.
func (l *simLink) setRate(rate topo.Rate) {
	if len(l.queue) > 0 {
		l.left = max(0, l.left-float64(l.s.now-l.since)/1e9*l.rate)
		l.since = l.s.now
	}
	l.rate = float64(rate)
	l.schedule()
	l.s.logf("link    %s %d MB/s", l.name, rate/topo.MBPerSec)
}

// cut breaks the lane's connection.
func (l *simLink) cut(err error) {
	for _, c := range l.s.sorted() {
		if c.link == l && c.up && !c.dead && c.order != nil || c.link == l && c.up && !c.dead && len(c.posted) == 0 {
			l.s.lose(c, err, 0)
		}
	}
}

func (s *sim) sorted() []*simConn {
	var out []*simConn
	for _, c := range s.conns {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *simConn) int { return cmp.Compare(a.id, b.id) })
	return out
}

// swallow has the lane's connections carry nothing any more; those that follow do.
func (l *simLink) swallow() {
	for _, c := range l.s.sorted() {
		if c.link == l && c.up && !c.dead {
			c.hole = true
			l.unqueue(c)
			l.s.logf("swallow %s conn %d", l.name, c.id)
		}
	}
}

// unqueue takes off the link what a connection has on it.
func (l *simLink) unqueue(c *simConn) {
	var keep []*simItem
	head := len(l.queue) > 0 && l.queue[0].conn == c
	for _, x := range l.queue {
		if x.conn == c {
			l.held -= x.s.Bytes
			continue
		}
		keep = append(keep, x)
	}
	l.queue = keep
	if head {
		if len(l.queue) > 0 {
			l.left, l.since = float64(l.queue[0].s.Bytes), l.s.now
		}
		l.schedule()
	}
}

// lose returns a connection's slices and tells of its loss.
func (s *sim) lose(c *simConn, err error, in int64) {
	l := c.link
	l.unqueue(c)
	c.order = nil
	if err == nil {
		err = errors.New("connection reset")
	}
	told := false
	s.after(in, func() []Event {
		if told || c.dead {
			return nil
		}
		told = true
		var events []Event
		var back []*Slice
		for x := range c.posted {
			back = append(back, x)
		}
		slices.SortFunc(back, func(a, b *Slice) int {
			return cmp.Compare(s.posts[a], s.posts[b])
		})
		for _, x := range back {
			events = append(events, Event{Kind: Done, Slice: x, Err: err, MayLand: x.Kind == direction.Write, Retry: true})
			delete(c.posted, x)
		}
		return append(events, Event{Kind: Lost, Lane: l.lane, Conn: c.id, Err: err})
	})
}
