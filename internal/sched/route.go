package sched

import (
	"fmt"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pick"
)

// group is a Group made ready for questions.
type group struct {
	transport string
	set       *pick.Set
	lanes     []*lane // by place in the set; nil: gone
	states    []pick.State
	picker    *pick.Picker
	class     []int       // lanes that promise the same have the same class
	best      []topo.Rate // of each class: what the fastest measured lane does

	first     *lane  // any of them: for the loads of ports
	version   uint64 // peer.version of the last refresh
	freshAt   int64  // Core.clock of it
	portBound bool   // a lane had no room because of a port
	full      bool   // the last question had no answer
	least     int64  // the smallest slice that one of them takes
}

// recentNS is how long after its last job a route's sick lanes are still tested.
const recentNS = 10 * second

// adopt prepares a route that a job uses for the first time.
func (c *Core) adopt(r *Route) {
	if r.adopted {
		return
	}
	r.adopted, r.peer = true, c.peers[r.Peer]
	if r.peer != nil {
		c.regroup(r)
	}
}

// regroup makes a route's groups ready.
func (c *Core) regroup(r *Route) {
	r.peer.mirror = nil // it may be one of those that are replaced
	for _, l := range r.peer.lanes {
		l.mirror = nil
	}
	r.groups, r.cur, r.seen = make([]group, 0, len(r.Groups)), 0, 0
	for i := range r.Groups {
		from := &r.Groups[i]
		n := 0
		if from.Set != nil {
			n = min(len(from.Lanes), len(from.Set.Lanes))
		}
		if n == 0 {
			continue
		}
		g := group{transport: from.Transport, set: from.Set, lanes: make([]*lane, n), states: make([]pick.State, n),
			picker: from.Set.Picker(), class: make([]int, n)}
		for k := range n {
			g.lanes[k] = c.lanes[from.Lanes[k]]
			if g.first == nil {
				g.first = g.lanes[k]
			}
			g.states[k].Health = pick.Sick
		}
		g.classify()
		r.groups = append(r.groups, g)
	}
}

// classify finds the lanes that promise the same.
func (g *group) classify() {
	type promise struct {
		tier int
		rate topo.Rate
	}
	var known []promise
	for i := range g.lanes {
		x := promise{tier: g.set.Lanes[i].Tier}
		if r := g.set.Lanes[i].BytesPerSec(); r != nil {
			x.rate = *r
		}
		at := 0
		for at < len(known) && known[at] != x {
			at++
		}
		if at == len(known) {
			known = append(known, x)
		}
		g.class[i] = at
	}
	g.best = make([]topo.Rate, len(known))
}

// routeChanged replaces a route's groups.
func (c *Core) routeChanged(r *Route, groups []Group) {
	if r == nil {
		return
	}
	r.Groups = groups
	if !r.adopted || r.peer == nil {
		return
	}
	c.regroup(r)
	r.fresh = true
	c.changed(r.peer)
	if r.jobs > 0 {
		c.connectWanted(r)
	}
}

// freshen puts a route among those whose lanes are kept up.
func (c *Core) freshen(r *Route) {
	r.lastJob = c.now
	if !r.listed && r.peer != nil {
		r.listed = true
		c.routes = append(c.routes, r)
		c.checkBy(c.now)
	}
}

// lanes gives the lanes of all groups, each with the place of its group.
func (r *Route) lanes(yield func(group int, l *lane) bool) {
	for i := range r.groups {
		for _, l := range r.groups[i].lanes {
			if l != nil && !yield(i, l) {
				return
			}
		}
	}
}

// any says whether there is a lane of that kind.
func (r *Route) any(is func(*lane) bool) bool {
	for _, l := range r.lanes {
		if is(l) {
			return true
		}
	}
	return false
}

// backlog is what a route's jobs have not sent yet, up to a class.
func (r *Route) backlog(class Priority) int64 {
	if class == Normal {
		return r.queued[Normal] + r.queued[High]
	}
	return r.queued[High]
}

// deserves is how many lanes a given number of bytes is worth on a route's best group: at the
// rates that they promise, or at those that were measured where these are lower.
func (c *Core) deserves(r *Route, bytes int64) int {
	g := &r.groups[r.cur]
	rtt := int64(0)
	if l := g.lanes[0]; l != nil {
		rtt = l.spec.RoundTripNS
	}
	k := max(1, g.set.Deserves(bytes, as(pick.DefaultRTT, rtt)))
	best := 0.0
	for _, l := range g.lanes {
		if l != nil && l.phase == up && l.est.trusted() {
			best = max(best, l.est.measured())
		}
	}
	if best > 0 && rtt > 0 {
		busy := float64(bytes) / best * 1e9 // on one lane, in nanoseconds
		k = max(k, int(min(busy/float64(2*rtt), float64(g.set.Chosen))))
	}
	return k
}

// as converts to the type of a sample: the core imports no clock, and a
// Duration is asked for.
func as[T ~int64](_ T, n int64) T { return T(n) }

// connectWanted dials the first lanes that a route's backlog deserves, and tests those
// that are sick and due.
func (c *Core) connectWanted(r *Route) {
	c.selectGroup(r)
	if len(r.groups) == 0 {
		return
	}
	k := c.deserves(r, r.backlog(Normal))
	for _, l := range r.groups[r.cur].lanes {
		if k == 0 {
			break
		}
		if l == nil || !l.usable(c.now) {
			continue
		}
		if l.phase == idle && r.jobs > 0 {
			c.connect(l)
		}
		if l.phase != closing {
			k--
		}
	}
	c.retest(r)
}

// retest dials the route's sick lanes that are due. A lane that failed often is
// left alone for long only while jobs have others.
func (c *Core) retest(r *Route) {
	patience := c.cfg.BackoffMaxNS
	if r.jobs > 0 && !r.any(func(l *lane) bool { return l.usable(c.now) }) {
		patience = 2 * c.cfg.BackoffNS
	}
	for _, l := range r.lanes {
		if !l.sick || l.phase != idle || l.barred() {
			continue
		}
		if due := l.retryAt - max(l.backoff-patience, 0); c.now >= due {
			c.connect(l)
		} else {
			c.checkBy(due)
		}
	}
}

// selectGroup chooses the transport: the first with a lane that is well or may
// be; else the first with a lane that is being tested; else it stays.
func (c *Core) selectGroup(r *Route) {
	if r.seen == r.peer.seq || len(r.groups) == 0 {
		return
	}
	r.seen = r.peer.seq
	best, half := -1, -1
	for i, l := range r.lanes {
		switch {
		case best < 0 && l.usable(c.now):
			best = i
		case half < 0 && l.testing && l.health() == pick.HalfOpen:
			half = i
		}
	}
	if best < 0 {
		best = half
	}
	// New groups begin with the first: what was used before them is the peer's to know.
	if best < 0 || best == r.cur && !(r.fresh && best == 0 && r.peer.insteadOf(r.groups[0].transport) != "") {
		return
	}
	r.cur, r.fresh = best, false
	c.switched(r)
}

// fallback is what is used in place of a transport that a peer's routes prefer.
type fallback struct {
	from, to string // to is "" when all is well
}

// insteadOf is the transport that is used in place of another, "" where that is well.
func (p *peer) insteadOf(transport string) string {
	for i := range p.fallbacks {
		if p.fallbacks[i].from == transport {
			return p.fallbacks[i].to
		}
	}
	return ""
}

// switched tells of a change of transport, once for all routes of a peer.
func (c *Core) switched(r *Route) {
	p, from := r.peer, r.groups[0].transport
	at := 0
	for at < len(p.fallbacks) && p.fallbacks[at].from != from {
		at++
	}
	if at == len(p.fallbacks) {
		p.fallbacks = append(p.fallbacks, fallback{from: from})
	}
	to := ""
	n := Note{Code: FallbackOver, Peer: r.Peer, Text: fmt.Sprintf("peer %q: %s is in use again", p.name, from)}
	if r.cur > 0 {
		to, n = r.groups[r.cur].transport, r.fallbackNote()
	}
	if p.fallbacks[at].to != to {
		p.fallbacks[at].to = to
		c.tell(n)
		return
	}
	for _, j := range c.jobs {
		if j.Route == r {
			j.note(n) // another route has told it
		}
	}
}

func (r *Route) fallbackNote() Note {
	return Note{Code: Fallback, Peer: r.Peer, Text: fmt.Sprintf("peer %q: %s is used in place of %s, which has no healthy lane",
		r.peer.name, r.groups[r.cur].transport, r.groups[0].transport)}
}
