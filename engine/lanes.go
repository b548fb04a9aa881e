package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/engine/sched"
	"github.com/topoctl/topoctl/pathsel"
)

// know makes lanes of a listed set known to the scheduler. Their ports are of
// sides of their own.
func (p *Peer) know(g *group, ends []laneEnd, what string) {
	e := p.engine
	local := p.side("local "+what+names(ends, func(x *laneEnd) string { return x.localName }), g.set.PortRates(pathsel.SideLocal))
	remote := p.side("remote "+what+names(ends, func(x *laneEnd) string { return x.remote.Address }), g.set.PortRates(pathsel.SideRemote))
	for i := range ends {
		g.lanes = append(g.lanes, e.knowLane(p, g, i, ends[i].key(g.carrier, local, remote), &ends[i]))
	}
}

// knowPorts makes lanes between ports of two described hosts known.
func (p *Peer) knowPorts(g *group, ends []laneEnd, local, remote *pathsel.Host) {
	e := p.engine
	here := e.localSide(local, g.set.PortRates(pathsel.SideLocal))
	// By name: a port of the peer that goes down or comes up leaves the others as they are.
	there := p.side("host"+portNames(remote), g.set.PortRates(pathsel.SideRemote))
	for i := range ends {
		l := e.knowLane(p, g, i, ends[i].key(g.carrier, here, there), &ends[i])
		g.lanes = append(g.lanes, l)
		if l.remote.Address == "" {
			e.takeOut(l)
		}
	}
}

// repeat lists pathsel's lanes, each several times.
func (p *Peer) repeat(g *group, key routeKey, ends []laneEnd) {
	var out []laneEnd
	here, there := g.set.PortRates(pathsel.SideLocal), g.set.PortRates(pathsel.SideRemote)
	for i := range ends {
		l := &g.set.Lanes[i]
		if ends[i].remote.Address == "" {
			continue
		}
		ends[i].localRate, ends[i].remoteRate = here[l.LocalIndex], there[l.RemoteIndex]
		ends[i].failover = i >= g.set.Chosen
		out = append(out, ends[i])
	}
	p.list(g, key, out)
}

func portNames(h *pathsel.Host) string {
	var b strings.Builder
	b.WriteString(" over " + string(h.Transport()))
	for _, port := range h.Ports() {
		b.WriteString(" " + string(port.ID))
	}
	return b.String()
}

func (x *laneEnd) key(c *carrier, local, remote sched.SideID) laneKey {
	return laneKey{
		transport: c.name, local: x.local, iface: x.iface, localPort: string(x.localPort),
		remotePort: string(x.remote.Port), address: x.remote.Address, name: x.name, side: local, other: remote,
	}
}

func names(ends []laneEnd, of func(*laneEnd) string) string {
	var b strings.Builder
	for i := range ends {
		b.WriteByte(' ')
		b.WriteString(of(&ends[i]))
	}
	return b.String()
}

// knowLane finds the lane of a place of the set, or adds it.
func (e *Engine) knowLane(p *Peer, g *group, place int, key laneKey, end *laneEnd) *lane {
	from := &g.set.Lanes[place]
	spec := sched.LaneSpec{
		Peer: p.id, Name: end.name, Transport: g.carrier.name, LocalSide: key.side, RemoteSide: key.other,
		Local: from.LocalIndex, Remote: from.RemoteIndex, RoundTripNS: int64(p.session.RoundTrip()),
	}
	if from.BytesPerSec != nil {
		spec.RateBytesPerSec = *from.BytesPerSec
		spec.NominalIsMeasured = from.Basis == topo.BasisMeasured
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := p.lanes[key]; l != nil && (!l.gone || end.remote.Address == "") {
		return l
	}
	l := &lane{key: key, peer: p, carrier: g.carrier, name: end.name, remote: end.remote, rtt: p.session.RoundTrip()}
	l.id = e.core.AddLane(spec)
	e.lanes[l.id] = l
	p.lanes[key] = l
	return l
}

// takeOut tells the scheduler not to use a lane.
func (e *Engine) takeOut(l *lane) {
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
	id := e.core.AddSide(sched.Side{Rates: rates})
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
	id := e.core.AddSide(sched.Side{Rates: rates})
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
		after[i].set, after[i].lanes = before[i].set, before[i].lanes
		for _, l := range before[i].lanes {
			p.engine.takeOut(l)
		}
	}
}

// Suspend takes every lane of that name, to whatever peer, out of use until
// Resume: its connection is closed. Names are those of Stats and explanations.
func (e *Engine) Suspend(lane string) error { return e.switchLanes(lane, sched.Suspend) }

// Resume has the suspended lanes of that name tested at once, and used when they
// are well.
func (e *Engine) Resume(lane string) error { return e.switchLanes(lane, sched.Resume) }

func (e *Engine) switchLanes(name string, kind sched.Kind) error {
	w := e.getWork()
	defer e.putWork(w)
	e.mu.Lock()
	var known []string
	for _, l := range e.lanes {
		if l.gone {
			continue
		}
		known = append(known, fmt.Sprintf("%q", l.name))
		if l.name == name {
			l.suspended = kind == sched.Suspend
			w.events = append(w.events, sched.Event{Kind: kind, Lane: l.id})
		}
	}
	e.mu.Unlock()
	if len(w.events) == 0 {
		return fmt.Errorf("engine: lane %q: %w of that name: there are %s", name, ErrNoLane, orNone(known))
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
