package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/sched"
	"github.com/topoctl/topoctl/pathsel"
)

// route finds or makes the route of a job.
func (e *Engine) route(w *Work) (*route, error) {
	key := routeKey{w.Local, w.Remote, ""}
	if o := w.LaneOptions; len(o.Local) > 0 || len(o.Remote) > 0 {
		key.ports = fmt.Sprint(o.Local, o.Remote)
	}
	if p := e.peers[w.Peer]; p != nil && p.routes[key] != nil {
		return p.routes[key], nil
	}
	pair, err := e.c.Pair(e.host, w.Peer)
	if err != nil {
		return nil, err
	}
	set, err := pair.LanesOf(w.Local, w.Remote, w.LaneOptions)
	if err != nil {
		return nil, pkgerr.Errorf("sim", "%w", err)
	}
	p := e.peer(w.Peer, set)
	r := &route{peer: p, src: w.Local, dst: w.Remote, set: set}
	g := sched.Group{Transport: string(set.Transport), Set: set.PickSet()}
	for i := range set.Lanes {
		g.Lanes = append(g.Lanes, e.lane(p, set, i))
	}
	r.r = &sched.Route{Peer: p.id, Name: fmt.Sprintf("%s > %s %s", w.Local, e.c.names[w.Peer], w.Remote), Groups: []sched.Group{g}}
	p.routes[key], e.routes[r.r] = r, r
	return r, nil
}

func (e *Engine) peer(host int, set *pathsel.LaneSet) *peer {
	if p := e.peers[host]; p != nil {
		return p
	}
	if !e.hasSide {
		e.side, e.hasSide = e.core.AddSide(set.PickSet().Local.BytesPerSec()), true
		e.portsDown()
	}
	p := &peer{id: e.core.AddPeer(e.c.names[host]), host: host, side: e.core.AddSide(set.PickSet().Remote.BytesPerSec()),
		lanes: map[[2]int]sched.LaneID{}, routes: map[routeKey]*route{}}
	e.peers[host] = p
	return p
}

// portsDown reports the ports that are down before the first job.
func (e *Engine) portsDown() {
	for i, p := range e.c.hosts[e.host].kind.ports {
		if e.c.portIsDown(e.host, p.ID) {
			e.port(e.host, i, false)
		}
	}
}

// lane finds or makes the lane at an index of a set.
func (e *Engine) lane(p *peer, set *pathsel.LaneSet, at int) sched.LaneID {
	l := &set.Lanes[at]
	key := [2]int{l.LocalIndex, l.RemoteIndex}
	if id, ok := p.lanes[key]; ok {
		return id
	}
	x := &lane{name: fmt.Sprintf("%s > %s:%s", l.LocalName, e.c.names[p.host], l.RemoteName), peer: p, local: l.Local, remote: l.Remote}
	spec := sched.LaneSpec{Peer: p.id, Name: x.name, Transport: string(set.Transport), LocalSide: e.side, RemoteSide: p.side, Local: l.LocalIndex, Remote: l.RemoteIndex,
		RoundTripNS: e.emptyRoundTrip(x)}
	if l.BytesPerSec != nil {
		spec.RateBytesPerSec, spec.NominalIsMeasured = *l.BytesPerSec, l.Basis == topo.BasisMeasured
	}
	id := e.core.AddLane(spec)
	p.lanes[key] = id
	e.lanes = append(e.lanes, x)
	return id
}

// emptyRoundTrip is the round trip between the ports of a lane while nothing else
// moves, 0 where there is no way.
func (e *Engine) emptyRoundTrip(l *lane) int64 {
	a, b := End{Host: e.host, Port: l.local}, End{Host: l.peer.host, Port: l.remote}
	there, err1 := e.c.Path(a, b, 0)
	back, err2 := e.c.Path(b, a, 0)
	if err1 != nil || err2 != nil {
		return 0
	}
	return e.c.latency(there) + e.c.latency(back)
}

// fenceRetryNS is the interval at which an unreachable peer is asked again.
const fenceRetryNS = 10_000_000

// fence has the peer leave a connection, over any pair of ports that can be
// crossed now.
func (e *Engine) fence(id sched.PeerID, conn sched.ConnID) {
	var p *peer
	for _, x := range e.peers {
		if x.id == id {
			p = x
		}
	}
	if p == nil {
		return
	}
	if rtt := e.bestRoundTrip(p); rtt > 0 {
		e.c.At(e.c.now+rtt, func() {
			e.emit(sched.Event{Kind: sched.Fenced, Peer: id, Conn: conn})
		})
		return
	}
	e.c.At(e.c.now+fenceRetryNS, func() { e.fence(id, conn) })
}

// bestRoundTrip is the round trip to a peer over the first lane that can be crossed, or 0.
func (e *Engine) bestRoundTrip(p *peer) int64 {
	ids := make([]sched.LaneID, 0, len(p.lanes))
	for _, id := range p.lanes {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		l := e.lanes[id]
		a, b := End{Host: e.host, Port: l.local}, End{Host: p.host, Port: l.remote}
		there, err1 := e.c.Path(a, b, 0)
		back, err2 := e.c.Path(b, a, 0)
		if err1 == nil && err2 == nil && e.c.open(there) && e.c.open(back) {
			return cmp.Or(e.c.latency(there)+e.c.latency(back), 1)
		}
	}
	return 0
}

// open says whether every link of a path carries something.
func (c *Cluster) open(path []Link) bool {
	return !slices.ContainsFunc(path, func(l Link) bool { return c.capacities[l] == 0 })
}
