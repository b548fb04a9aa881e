package engine

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
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
	r.r = &sched.Route{Peer: p.id, Name: routeName(key), Policy: pick.Policy(p.engine.o.Policy), Groups: schedGroups(r.groups)}
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
	var reasons, missing []string
	for i := range groups {
		name, why := groups[i].carrier.name, groups[i].reason
		if len(groups[i].lanes) == 0 && (key.only == "" || key.only == name) {
			reasons = append(reasons, name+": "+why)
			if why == notOffered {
				missing = append(missing, name)
			}
		}
	}
	err := fmt.Errorf("from %s to its %s: %w: %s", locationName(key.local), locationName(key.remote), ErrNoLane, strings.Join(reasons, "; "))
	if len(missing) > 0 {
		err = &transport.NotOfferedError{Transports: missing, Err: err}
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

// What a peer says that it has is dialled only as far as it can be of use: it may say anything.
const (
	maxOffers    = 128 // endpoints of one transport; ports are tried with each of ours, which asks the kernel for routes
	maxPerPort   = 16  // of a peer's ports, from each of ours
	maxEndpoints = 16  // of a transport that has no ports, and of addresses on this host
)

// dialled counts the peer's ports that each of ours dials.
type dialled map[topo.ID]int

func (d dialled) add(local topo.ID) error {
	if d[local] == maxPerPort {
		return fmt.Errorf("this port has lanes to %d others of the peer", maxPerPort)
	}
	d[local]++
	return nil
}

// endpointLanes makes one lane of each endpoint that a transport offers by itself.
func (p *Peer) endpointLanes(g *group, offers []transport.Endpoint) {
	var ends []laneOffer
	for i := range offers[:min(len(offers), maxEndpoints)] {
		name := g.carrier.name
		if len(offers) > 1 {
			name = fmt.Sprintf("%s > %s", name, offers[i].Address)
		}
		ends = append(ends, laneOffer{laneEnds: laneEnds{name: name, remote: offers[i]}, Listed: pick.Listed{LocalName: g.carrier.name}})
	}
	p.listLanes(g, ends)
}

// networkLanes makes the lanes of a transport over the network: pathsel's where both
// hosts are described, else to the address at which the session is.
func (p *Peer) networkLanes(g *group, key routeKey, offers []transport.Endpoint, remote *pathsel.Host, note string) {
	local := p.engine.currentHost()
	here, there := p.session.Local().Addr().Unmap(), p.session.Remote()
	loopback := there.Addr().IsLoopback() || there.Addr() == here
	g.leaves = !loopback
	switch {
	case loopback:
		g.reason = "the peer was opened at an address of this host: " + there.String()
	case local == nil:
		g.reason = "this host's topology is not known"
	case remote == nil:
		g.reason = "the peer's topology is not known"
		if note != "" {
			g.reason = note
		}
	default:
		err := p.plannedLanes(g, key, offers, local, remote)
		if err == nil {
			return
		}
		g.reason = err.Error()
	}
	g.reason += ": its address is the lane"
	ends := []laneOffer{{laneEnds: laneEnds{local: here, remote: transport.Endpoint{Transport: g.carrier.name, Address: there.String()}}}}
	for _, o := range offers {
		at, err := netip.ParseAddrPort(o.Address)
		offered := slices.ContainsFunc(offers, func(o transport.Endpoint) bool { return o.Address == there.String() })
		if len(ends) < maxEndpoints && err == nil && loopback && offered && at != there && at.Addr().IsLoopback() && at.Addr().Is4() == there.Addr().Is4() {
			ends = append(ends, laneOffer{laneEnds: laneEnds{remote: o}})
		}
	}
	for i := range ends {
		ends[i].LocalName = here.String()
		ends[i].name = fmt.Sprintf("%s > %s", here, ends[i].remote.Address)
	}
	p.listLanes(g, ends)
}

// laneOffer is a lane before the scheduler knows it.
type laneOffer struct {
	laneEnds
	pick.Listed           // RemoteName: set by listLanes
	localRate, remoteRate topo.Rate
}

// listLanes makes a set of exactly these lanes, each as often as there are connections
// per lane.
func (p *Peer) listLanes(g *group, ends []laneOffer) {
	o := pick.List{TCP: g.carrier.ports == nil, LocalRates: map[string]topo.Rate{}, RemoteRates: map[string]topo.Rate{}}
	copies := 1
	if g.carrier.data != nil {
		copies = p.engine.o.ConnsPerLane
	}
	var all []laneOffer
	for _, end := range ends {
		for k := range copies {
			one := end
			if k > 0 {
				one.name = fmt.Sprintf("%s #%d", end.name, k+1)
			}
			one.RemoteName = cmp.Or(string(one.remote.Port), one.remote.Address)
			all, o.Lanes = append(all, one), append(o.Lanes, one.Listed)
			o.LocalRates[one.LocalName], o.RemoteRates[one.RemoteName] = one.localRate, one.remoteRate
		}
	}
	g.set, g.plan = o.Set(), nil
	slices.SortStableFunc(all, func(a, b laneOffer) int { return pick.CompareListed(a.Listed, b.Listed) }) // as the set
	p.addLanes(g, all, fmt.Sprintf("%s to %s", g.carrier.name, p.name))
}

// plannedLanes asks pathsel.
func (p *Peer) plannedLanes(g *group, key routeKey, offers []transport.Endpoint, local, remote *pathsel.Host) error {
	e := p.engine
	pair, err := pathsel.Connect(local, remote, pathsel.PairOptions{Fabric: e.o.Ports.Fabric})
	if err != nil {
		return err
	}
	at, reachable := listening(offers, remote)
	o := pathsel.LaneOptions{Remote: reachable}
	if now := e.ports.Load(); now != nil && now.host == local {
		o.Local = now.assigned
	}
	src, noteHere := hostLocation(local, key.local, "this host")
	dst, noteThere := hostLocation(remote, key.remote, "the peer")
	set, err := pair.LanesOf(src, dst, o)
	if err != nil {
		return err
	}
	ends := make([]laneOffer, len(set.Lanes))
	any := false
	notes := slices.Concat(g.notes, noteHere, noteThere)
	count := dialled{}
	for i := range set.Lanes {
		ends[i] = endOf(&set.Lanes[i], set, local, at)
		if ends[i].remote.Address == "" {
			notes = append(notes, fmt.Sprintf("lane %s: the peer does not listen at %s", ends[i].name, set.Lanes[i].Contact.RemoteAddress))
		} else if err := count.add(ends[i].localPort); err != nil {
			ends[i].remote = transport.Endpoint{}
			notes = append(notes, fmt.Sprintf("lane %s: %v", ends[i].name, err))
		} else {
			any = true
		}
	}
	if !any {
		return errors.New("the peer listens at no address that our ports can reach")
	}
	g.set, g.plan, g.notes = set.PickSet(), set, notes
	if e.o.ConnsPerLane > 1 {
		p.repeatLanes(g, ends)
		return nil
	}
	p.addPortLanes(g, ends, local, remote)
	return nil
}

// listening says at which addresses a peer listens, and which ports have those.
func listening(offers []transport.Endpoint, remote *pathsel.Host) (at map[netip.Addr]transport.Endpoint, ports []topo.ID) {
	at = map[netip.Addr]transport.Endpoint{}
	for _, o := range offers {
		if a, err := netip.ParseAddrPort(o.Address); err == nil {
			at[a.Addr()] = o
		}
	}
	for _, port := range remote.Ports() {
		if slices.ContainsFunc(port.Addresses, func(a netip.Prefix) bool { _, ok := at[a.Addr()]; return ok }) {
			ports = append(ports, port.ID)
		}
	}
	return at, ports
}

// endOf is one of pathsel's lanes as it is dialled.
func endOf(l *pathsel.Lane, set *pathsel.LaneSet, local *pathsel.Host, at map[netip.Addr]transport.Endpoint) laneOffer {
	end := laneOffer{Listed: pick.Listed{LocalName: l.LocalName, Tier: l.Tier}, laneEnds: laneEnds{
		name:  fmt.Sprintf("%s > %s:%s", l.LocalName, set.RemoteHost, l.RemoteName),
		local: l.Contact.LocalAddress, localPort: l.Local, remote: at[l.Contact.RemoteAddress],
	}}
	if port, ok := local.Port(l.Local); ok {
		end.iface = port.Netdev
	}
	if l.BytesPerSec != nil {
		end.BytesPerSec = *l.BytesPerSec
	}
	return end
}

// hostLocation is a location that the host has: what is not told is where most memory is.
func hostLocation(h *pathsel.Host, l pathsel.Location, whose string) (pathsel.Location, []string) {
	all := h.Locations()
	if slices.Contains(all, l) || len(all) == 0 {
		return l, nil
	}
	at := all[0]
	for _, x := range all {
		if strings.HasPrefix(string(x), "cpu:") {
			at = x
			break
		}
	}
	if l == "" {
		return at, nil
	}
	return at, []string{fmt.Sprintf("%s has no %s: lanes are those of %s", whose, l, at)}
}

// addLanes makes lanes of a listed set known to the scheduler. Their ports are of
// sides of their own.
func (p *Peer) addLanes(g *group, ends []laneOffer, what string) {
	e := p.engine
	local := p.side("local "+what+names(ends, func(x *laneOffer) string { return x.LocalName }), g.set.Local.BytesPerSec())
	remote := p.side("remote "+what+names(ends, func(x *laneOffer) string { return x.remote.Address }), g.set.Remote.BytesPerSec())
	for i := range ends {
		g.lanes = append(g.lanes, e.laneFor(p, g, i, ends[i].key(g.carrier, local, remote), &ends[i]))
	}
}

// addPortLanes makes lanes between ports of two described hosts known.
func (p *Peer) addPortLanes(g *group, ends []laneOffer, local, remote *pathsel.Host) {
	e := p.engine
	here := e.localSide(local, g.set.Local.BytesPerSec())
	// By name: a port of the peer that goes down or comes up leaves the others as they are.
	there := p.side("host"+portNames(remote), g.set.Remote.BytesPerSec())
	for i := range ends {
		l := e.laneFor(p, g, i, ends[i].key(g.carrier, here, there), &ends[i])
		g.lanes = append(g.lanes, l)
		if l.remote.Address == "" {
			e.withdrawLane(l)
		}
	}
}

// repeatLanes lists pathsel's lanes, each several times.
func (p *Peer) repeatLanes(g *group, ends []laneOffer) {
	var out []laneOffer
	here, there := g.set.Local.BytesPerSec(), g.set.Remote.BytesPerSec()
	for i := range ends {
		l := &g.set.Lanes[i]
		if ends[i].remote.Address == "" {
			continue
		}
		ends[i].localRate, ends[i].remoteRate = here[l.Local], there[l.Remote]
		ends[i].Failover = i >= g.set.Chosen
		out = append(out, ends[i])
	}
	p.listLanes(g, out)
}

func portNames(h *pathsel.Host) string {
	var b strings.Builder
	b.WriteString(" over " + string(h.Transport()))
	for _, port := range h.Ports() {
		b.WriteString(" " + string(port.ID))
	}
	return b.String()
}

func (x *laneOffer) key(c *carrier, local, remote sched.SideID) laneKey {
	k := laneKey{c, x.laneEnds, local, remote}
	k.remote.BytesPerSec = 0 // another rate makes no other lane
	return k
}

func names(ends []laneOffer, of func(*laneOffer) string) string {
	var b strings.Builder
	for i := range ends {
		b.WriteByte(' ')
		b.WriteString(of(&ends[i]))
	}
	return b.String()
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
	l.id = e.core.AddLane(spec)
	e.lanes[l.id] = l
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
