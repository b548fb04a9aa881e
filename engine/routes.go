package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/pick"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/sched"
	"github.com/topoctl/topoctl/pathsel"
)

// routeKey names a route of a peer.
type routeKey struct {
	local, remote pathsel.Location
	only          string // the only transport that may be used, "" any
	reach         uint32 // the carriers that reach the region, by bit
}

// route is the lanes between two memory locations.
type route struct {
	key routeKey
	r   *sched.Route
	// groups are what is explained; those without lanes are not the scheduler's.
	// They are replaced, never changed; the peer's mu guards the field.
	groups []group
	leaves atomic.Bool // bytes leave this host by some of them
}

// group is what one transport offers for a route.
type group struct {
	carrier *carrier
	reason  string // why there is no lane, or why these
	set     *pick.Set
	plan    *pathsel.LaneSet // that set is of; nil where the lanes are listed
	lanes   []*lane          // by place in set.Lanes
	notes   []string
	leaves  bool // bytes leave this host
}

// route finds or makes the route between two locations.
func (p *Peer) route(key routeKey) (*route, error) {
	p.mu.RLock()
	r := p.routes[key]
	p.mu.RUnlock()
	if r != nil {
		return r, nil
	}
	p.routing.Lock()
	defer p.routing.Unlock()
	p.mu.RLock()
	r = p.routes[key]
	p.mu.RUnlock()
	if r != nil {
		return r, nil
	}
	r = &route{key: key, groups: p.groups(key)}
	r.r = &sched.Route{Peer: p.id, Name: routeName(key), Groups: schedGroups(r.groups)}
	r.leaves.Store(leaves(r.groups))
	if len(r.r.Groups) == 0 {
		return nil, noLane(key, r.groups)
	}
	p.mu.Lock()
	p.routes[key] = r
	p.mu.Unlock()
	return r, nil
}

// leaves says whether bytes leave this host by any transport that may be used.
func leaves(groups []group) bool {
	return slices.ContainsFunc(groups, func(g group) bool { return g.leaves && len(g.lanes) > 0 })
}

func routeName(key routeKey) string {
	return fmt.Sprintf("%s > %s", locationName(key.local), locationName(key.remote))
}

func locationName(l pathsel.Location) string {
	if l == "" {
		return "memory"
	}
	return string(l)
}

// notOffered is why a transport has no lane that the peer does not have.
const notOffered = "the peer does not offer it"

// noLane says for each transport why it has no lane, or for the only one that may have.
func noLane(key routeKey, groups []group) error {
	var reasons []string
	var missing []pathsel.Transport
	for i := range groups {
		name, why := groups[i].carrier.name, groups[i].reason
		if len(groups[i].lanes) == 0 && (key.only == "" || key.only == name) {
			reasons = append(reasons, name+": "+why)
			if why == notOffered {
				missing = append(missing, pathsel.Transport(name))
			}
		}
	}
	err := fmt.Errorf("from %s to its %s: %w: %s", locationName(key.local), locationName(key.remote), ErrNoLane, strings.Join(reasons, "; "))
	if len(missing) > 0 {
		err = &NotOfferedError{Transports: missing, Err: err}
	}
	return err
}

func schedGroups(groups []group) []sched.Group {
	var out []sched.Group
	for i := range groups {
		g := &groups[i]
		if len(g.lanes) == 0 {
			continue
		}
		ids := make([]sched.LaneID, len(g.lanes))
		for k, l := range g.lanes {
			ids[k] = l.id
		}
		out = append(out, sched.Group{Transport: g.carrier.name, Set: g.set, Lanes: ids})
	}
	return out
}

// groups asks each transport for its lanes, in the order of preference.
func (p *Peer) groups(key routeKey) []group {
	var out []group
	for i, c := range p.engine.carriers {
		switch {
		case key.only != "" && key.only != c.name:
			out = append(out, group{carrier: c, reason: "the batch is for " + key.only + " only"})
		case key.reach&(1<<i) == 0 && p.hasOffers(c):
			out = append(out, group{carrier: c, reason: "it does not reach this region of the peer, or does not have ours"})
		default:
			out = append(out, p.group(c, key))
		}
	}
	return out
}

// hasOffers says whether the peer has a transport at all.
func (p *Peer) hasOffers(c *carrier) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return slices.ContainsFunc(p.desc.Endpoints, func(e transport.Endpoint) bool { return e.Transport == c.name })
}

func (p *Peer) group(c *carrier, key routeKey) group {
	p.mu.RLock()
	d, host, note := p.desc, p.host, p.hostNote
	p.mu.RUnlock()
	g := group{carrier: c}
	var offers []transport.Endpoint
	for _, endpoint := range d.Endpoints {
		if endpoint.Transport == c.name {
			offers = append(offers, endpoint)
		}
	}
	if n := len(offers); n > maxOffers {
		offers = offers[:maxOffers]
		g.notes = append(g.notes, fmt.Sprintf("the peer offers %d endpoints: the first %d are looked at", n, maxOffers))
	}
	e := p.engine
	sameMachine := d.Machine != "" && d.Machine == e.machine && d.Boot == e.boot
	switch {
	case len(offers) == 0:
		g.reason = notOffered
	case c.caps.SameHost && !sameMachine:
		g.reason = "the peer is on another machine"
		if d.Machine == "" || e.machine == "" {
			g.reason = "it is not known whether the peer is on this machine"
		}
	case c.ports != nil:
		p.portLanes(&g, key, offers, sameMachine)
	case c.data == nil:
		p.endpointLanes(&g, offers)
	default:
		p.networkLanes(&g, key, offers, host, note)
	}
	return g
}

// laneFor finds the lane of a place of the set, or adds it.
func (e *Engine) laneFor(p *Peer, g *group, place int, key laneKey, end *laneOffer) *lane {
	from := &g.set.Lanes[place]
	spec := sched.LaneSpec{
		Peer: p.id, Name: end.name, Transport: g.carrier.name, LocalSide: key.side, RemoteSide: key.other,
		Local: from.Local, Remote: from.Remote, RoundTripNS: int64(p.session.RoundTrip()),
	}
	if rate := from.BytesPerSec(); rate != nil {
		spec.RateBytesPerSec = *rate
		spec.NominalIsMeasured = g.plan != nil && g.plan.Lanes[place].Basis == topo.BasisMeasured
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := p.lanes[key]; l != nil && (!l.gone || end.remote.Address == "") {
		return l
	}
	l := &lane{laneKey: key, peer: p, rtt: p.session.RoundTrip()}
	spec.User = l
	l.id = e.core.AddLane(spec)
	p.lanes[key] = l
	return l
}

// withdrawLane tells the scheduler not to use a lane.
func (e *Engine) withdrawLane(l *lane) {
	e.mu.Lock()
	known := l.gone
	l.gone = true
	e.mu.Unlock()
	if !known {
		e.tell(sched.Event{Kind: sched.LaneGone, Lane: l.id})
	}
}

// side makes ports known to the scheduler once for each description of them.
func (p *Peer) side(what string, rates []topo.Rate) sched.SideID {
	e := p.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if id, ok := p.sides[what]; ok {
		return id
	}
	id := e.core.AddSide(rates)
	p.sides[what] = id
	return id
}

// localSide are this host's ports.
func (e *Engine) localSide(h *pathsel.Host, rates []topo.Rate) sched.SideID {
	e.mu.Lock()
	defer e.mu.Unlock()
	if id, ok := e.sides[h]; ok {
		return id
	}
	id := e.core.AddSide(rates)
	known := append(e.ports.Load().hosts(), h)
	maps.DeleteFunc(e.sides, func(h *pathsel.Host, _ sched.SideID) bool { return !slices.Contains(known, h) })
	e.sides[h] = id
	return id
}

// reroute makes every route of the peer anew: ports or addresses changed.
func (p *Peer) reroute() {
	e := p.engine
	p.routing.Lock()
	defer p.routing.Unlock()
	p.mu.RLock()
	routes := make([]*route, 0, len(p.routes))
	for _, r := range p.routes {
		routes = append(routes, r)
	}
	p.mu.RUnlock()
	used := map[*lane]bool{}
	w := e.getWork()
	for _, r := range routes {
		groups := p.groups(r.key)
		p.keepLost(r.groups, groups)
		p.mu.Lock()
		r.groups = groups
		r.leaves.Store(leaves(groups))
		p.mu.Unlock()
		w.events = append(w.events, sched.Event{Kind: sched.RouteChanged, Route: r.r, Groups: schedGroups(groups)})
		for i := range groups {
			for _, l := range groups[i].lanes {
				used[l] = true
			}
		}
	}
	e.mu.Lock()
	sides := map[sched.SideID]bool{}
	for key, l := range p.lanes {
		if used[l] {
			sides[key.side], sides[key.other] = true, true
		} else {
			delete(p.lanes, key)
			if !l.gone {
				l.gone = true
				w.events = append(w.events, sched.Event{Kind: sched.LaneGone, Lane: l.id})
			}
		}
	}
	for what, side := range p.sides {
		if !sides[side] {
			delete(p.sides, what)
			e.core.RemoveSide(side)
		}
	}
	e.mu.Unlock()
	e.run(w)
	e.putWork(w)
}

// keepLost lets a transport that has no lane any more keep those that it had, out of
// use: that another is used in its place, and when that is over, is told then.
func (p *Peer) keepLost(before, after []group) {
	for i := range after {
		if len(after[i].lanes) > 0 || i >= len(before) {
			continue
		}
		after[i].set, after[i].plan, after[i].lanes = before[i].set, before[i].plan, before[i].lanes
		for _, l := range before[i].lanes {
			p.engine.withdrawLane(l)
		}
	}
}

// Suspend stops the use of every lane of that name, whatever its peer, and closes its
// connection, until Resume. Names are those in Stats and explanations.
func (e *Engine) Suspend(lane string) error { return e.switchLanes(lane, sched.Suspend) }

// Resume tests the suspended lanes of that name at once, and uses them again if they are
// healthy.
func (e *Engine) Resume(lane string) error { return e.switchLanes(lane, sched.Resume) }

func (e *Engine) switchLanes(name string, kind sched.Kind) error {
	w := e.getWork()
	defer e.putWork(w)
	e.mu.Lock()
	var known []string
	for p := range e.peers {
		for _, l := range p.lanes {
			if l.gone {
				continue
			}
			known = append(known, fmt.Sprintf("%q", l.name))
			if l.name == name {
				l.suspended = kind == sched.Suspend
				w.events = append(w.events, sched.Event{Kind: kind, Lane: l.id})
			}
		}
	}
	e.mu.Unlock()
	if len(w.events) == 0 {
		return pkgerr.Errorf("engine", "lane %q: %w of that name: there are %s", name, ErrNoLane, orNone(known))
	}
	e.run(w)
	return nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none yet: lanes are made when a batch wants them"
	}
	return strings.Join(dedupe(names), ", ")
}
