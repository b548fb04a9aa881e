package engine

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/pick"
	"github.com/topoctl/topoctl/internal/sched"
	"github.com/topoctl/topoctl/pathsel"
)

// What a peer says that it has is dialled only as far as it can be of use: it may say anything.
const (
	maxOffers    = 128 // endpoints of one transport; ports are tried with each of ours, which asks the kernel for routes
	maxPerPort   = 16  // of a peer's ports, from each of ours
	maxEndpoints = 16  // of a transport that has no ports, and of addresses on this host
	maxPairs     = 64  // lanes of a transport's ports where no topology chooses
	maxLaneNotes = 16  // about pairs of ports that are no lanes
)

// laneOffer is a lane before the scheduler knows it.
type laneOffer struct {
	laneEnds
	pick.Listed // RemoteName: set by listLanes
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
		err := p.plannedNetworkLanes(g, key, offers, local, remote)
		if err == nil {
			return
		}
		g.reason = err.Error()
	}
	g.reason += ": its address is the lane"
	ends := []laneOffer{{laneEnds: laneEnds{local: here, remote: transport.Endpoint{Transport: g.carrier.name, Address: there.String()}}}}
	offered := slices.ContainsFunc(offers, func(o transport.Endpoint) bool { return o.Address == there.String() })
	for _, o := range offers {
		at, err := netip.ParseAddrPort(o.Address)
		alike := err == nil && at != there && at.Addr().IsLoopback() && at.Addr().Is4() == there.Addr().Is4()
		if alike && loopback && offered && len(ends) < maxEndpoints {
			ends = append(ends, laneOffer{laneEnds: laneEnds{remote: o}})
		}
	}
	for i := range ends {
		ends[i].LocalName = here.String()
		ends[i].name = fmt.Sprintf("%s > %s", here, ends[i].remote.Address)
	}
	p.listLanes(g, ends)
}

// plannedNetworkLanes asks pathsel, of the ports at whose addresses the peer listens.
func (p *Peer) plannedNetworkLanes(g *group, key routeKey, offers []transport.Endpoint, local, remote *pathsel.Host) error {
	at := map[netip.Addr]transport.Endpoint{}
	for _, o := range offers {
		if a, err := netip.ParseAddrPort(o.Address); err == nil {
			at[a.Addr()] = o
		}
	}
	var o pathsel.LaneOptions
	for _, port := range remote.Ports() {
		if slices.ContainsFunc(port.Addresses, func(a netip.Prefix) bool { _, ok := at[a.Addr()]; return ok }) {
			o.Remote = append(o.Remote, port.ID)
		}
	}
	if now := p.engine.ports.Load(); now != nil && now.host == local {
		o.Local = now.assigned
	}
	return p.plannedLanes(g, key, local, remote, o, func(l *pathsel.Lane) (transport.Endpoint, error) {
		end, ok := at[l.Contact.RemoteAddress]
		if !ok {
			return end, fmt.Errorf("the peer does not listen at %s", l.Contact.RemoteAddress)
		}
		return end, nil
	})
}

// portLanes makes the lanes of a transport with ports of its own: pathsel's where both
// hosts are described, else pairs of ports that reach each other.
func (p *Peer) portLanes(g *group, key routeKey, offers []transport.Endpoint, sameMachine bool) {
	g.leaves = !sameMachine
	local := g.carrier.ports.LocalPorts()
	if len(local) == 0 {
		g.reason = "this host has no port that it can use now"
		return
	}
	p.mu.RLock()
	remote, note := p.rdma, p.rdmaNote
	p.mu.RUnlock()
	now := p.engine.ports.Load()
	switch {
	case now == nil:
		g.reason = "this host's topology is not known"
	case now.rdma == nil:
		g.reason = "this host's topology: " + now.rdmaNote
	case remote == nil && note == "":
		g.reason = "the peer's topology is not known"
	case remote == nil:
		g.reason = "the peer's topology: " + note
	default:
		err := p.plannedPortLanes(g, key, local, offers, now, remote)
		if err == nil {
			return
		}
		g.reason = err.Error()
	}
	p.pairedLanes(g, local, offers)
}

// plannedPortLanes asks pathsel, of the ports that both transports have now.
func (p *Peer) plannedPortLanes(
	g *group, key routeKey, ports []transport.LocalPort, offers []transport.Endpoint, now *ports, remote *pathsel.Host,
) error {
	here, there := map[topo.ID]bool{}, map[topo.ID][]transport.Endpoint{}
	for i := range ports {
		here[ports[i].ID] = true
	}
	for _, o := range offers {
		there[o.Port] = append(there[o.Port], o)
	}
	var o pathsel.LaneOptions
	for _, port := range now.rdma.Ports() {
		if here[port.ID] {
			o.Local = append(o.Local, port.ID)
		}
	}
	for _, port := range remote.Ports() {
		if len(there[port.ID]) > 0 {
			o.Remote = append(o.Remote, port.ID)
		}
	}
	switch {
	case len(o.Local) == 0:
		return errors.New("this host's topology has none of its ports")
	case len(o.Remote) == 0:
		return errors.New("the peer's topology has none of the ports that it offers")
	}
	ours := slices.DeleteFunc(slices.Clone(now.rdmaAssigned), func(id topo.ID) bool { return !here[id] })
	if len(ours) > 0 {
		o.Local = ours
	}
	return p.plannedLanes(g, key, now.rdma, remote, o, func(l *pathsel.Lane) (transport.Endpoint, error) {
		if !here[l.Local] {
			return transport.Endpoint{}, fmt.Errorf("%s cannot be used now", l.LocalName)
		}
		err := fmt.Errorf("the peer does not offer %s now", l.RemoteName)
		for _, o := range there[l.Remote] {
			if err = g.carrier.ports.PortReaches(l.Local, o); err == nil {
				return o, nil
			}
		}
		return transport.Endpoint{}, err
	})
}

// plannedLanes makes the lanes that pathsel finds between two described hosts. at gives the endpoint
// of the peer at which a lane is dialled, or why that is not possible now.
func (p *Peer) plannedLanes(
	g *group, key routeKey, local, remote *pathsel.Host, o pathsel.LaneOptions, at func(*pathsel.Lane) (transport.Endpoint, error),
) error {
	e := p.engine
	pair, err := pathsel.Connect(local, remote, pathsel.PairOptions{Fabric: e.o.Ports.Fabric})
	if err != nil {
		return err
	}
	src, noteHere := hostLocation(local, key.local, "this host")
	dst, noteThere := hostLocation(remote, key.remote, "the peer")
	set, err := pair.LanesOf(src, dst, o)
	if err != nil {
		return err
	}
	ends := make([]laneOffer, len(set.Lanes))
	var notes laneNotes
	usable, dialled := false, map[topo.ID]int{} // by port of this host
	for i := range set.Lanes {
		l, end := &set.Lanes[i], &ends[i]
		*end = laneOffer{Listed: pick.Listed{LocalName: l.LocalName, Tier: l.Tier}}
		end.name, end.localPort = g.carrier.laneName(l.LocalName, set.RemoteHost, l.RemoteName), l.Local
		if g.carrier.ports == nil {
			end.local = l.Contact.LocalAddress
			if port, ok := local.Port(l.Local); ok {
				end.iface = port.Netdev
			}
		}
		if l.BytesPerSec != nil {
			end.BytesPerSec = *l.BytesPerSec
		}
		to, err := at(l)
		if err == nil && dialled[l.Local] == maxPerPort {
			err = fmt.Errorf("this port has lanes to %d others of the peer", maxPerPort)
		}
		if err != nil {
			notes.add(fmt.Sprintf("lane %s: %v", end.name, err))
			continue
		}
		end.remote, usable = to, true
		dialled[l.Local]++
	}
	if !usable {
		return fmt.Errorf("no lane of both topologies can be used: %s", notes.first())
	}
	g.set, g.plan, g.notes = set.PickSet(), set, slices.Concat(g.notes, noteHere, noteThere, notes.list())
	if g.carrier.data != nil && e.o.ConnsPerLane > 1 {
		p.repeatLanes(g, ends)
		return nil
	}
	// By name: a port of the peer that goes down or comes up leaves the others as they are.
	p.addLanes(g, ends, e.localSide(local, g.set.Local.BytesPerSec()), p.side("host"+portNames(remote), g.set.Remote.BytesPerSec()))
	return nil
}

// laneName tells lanes of a transport's own ports from those that other transports have over them.
func (c *carrier) laneName(local, host, remote string) string {
	name := fmt.Sprintf("%s > %s:%s", local, host, remote)
	if c.ports != nil {
		name = c.name + " " + name
	}
	return name
}

// hostLocation is a location that the host has; where none is told, the one that has most memory.
func hostLocation(h *pathsel.Host, l pathsel.Location, whose string) (pathsel.Location, []string) {
	all := h.Locations()
	if slices.Contains(all, l) || len(all) == 0 {
		return l, nil
	}
	at := all[max(slices.IndexFunc(all, func(x pathsel.Location) bool { return strings.HasPrefix(string(x), "cpu:") }), 0)]
	if l == "" {
		return at, nil
	}
	return at, []string{fmt.Sprintf("%s has no %s: lanes are those of %s", whose, l, at)}
}

// pairedLanes makes lanes between ports of hosts that are not described.
func (p *Peer) pairedLanes(g *group, local []transport.LocalPort, offers []transport.Endpoint) {
	var notes laneNotes
	here, there, names := make([]pathsel.End, len(local)), make([]pathsel.End, len(offers)), make([]string, len(local))
	share := &p.engine.o.Ports
	for i := range local {
		here[i] = pathsel.End{BytesPerSec: local[i].BytesPerSec, Foreign: !ownPort(i, len(local), share.LocalRank, share.LocalSize)}
		names[i] = local[i].Name
	}
	for k := range offers {
		there[k].BytesPerSec = offers[k].BytesPerSec
	}
	chosen, failover := pathsel.ConnectEnds(here, there, func(i, k int) bool {
		err := g.carrier.ports.PortReaches(local[i].ID, offers[k])
		if err != nil {
			notes.add(fmt.Sprintf("%s to the peer's %s: %v", shortName(names[i], names), endpointName(offers[k], offers), err))
		}
		return err == nil
	}, maxPairs)
	g.notes = append(g.notes, notes.list()...)
	if len(chosen) == 0 {
		// The ports say why, and mostly for the second time.
		if _, why, _ := strings.Cut(notes.first(), ": "); !strings.HasSuffix(g.reason, why) {
			g.reason += "; no port reaches one of the peer's: " + notes.first()
		}
		return
	}
	g.reason += ": its lanes are pairs of ports that reach each other"
	var ends []laneOffer
	for n, x := range slices.Concat(chosen, failover) {
		from, to := &local[x.Local], offers[x.Remote]
		name := shortName(from.Name, names)
		ends = append(ends, laneOffer{
			laneEnds: laneEnds{name: g.carrier.laneName(name, p.name, endpointName(to, offers)), localPort: from.ID, remote: to},
			Listed: pick.Listed{LocalName: name, LocalRate: from.BytesPerSec, RemoteRate: to.BytesPerSec,
				BytesPerSec: slower(from.BytesPerSec, to.BytesPerSec), Failover: n >= len(chosen)},
		})
	}
	p.listLanes(g, ends)
}

// endpointName is what people call a peer's endpoint.
func endpointName(e transport.Endpoint, all []transport.Endpoint) string {
	if e.Port == "" {
		return e.Address
	}
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Port.Name()
	}
	return shortName(e.Port.Name(), names)
}

// shortName is the device where it has one port of those, as pathsel calls it:
// "mlx5_0" of "mlx5_0/1".
func shortName(port string, all []string) string {
	device, _, ok := strings.Cut(port, "/")
	if !ok || slices.ContainsFunc(all, func(o string) bool { return o != port && strings.HasPrefix(o, device+"/") }) {
		return port
	}
	return device
}

// slower is the lower of two rates, of which 0 is not known.
func slower(a, b topo.Rate) topo.Rate {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// ownPort says whether a port is of this engine's part, where several engines of a
// host share its ports and no topology tells which is nearer to whom.
func ownPort(port, ports, rank, size int) bool {
	if size <= 1 {
		return true
	}
	if ports < size {
		return port == rank%ports
	}
	return port%size == rank
}

// laneNotes are what is said about pairs that are no lanes.
type laneNotes struct {
	texts []string
	more  int
}

func (n *laneNotes) add(text string) {
	if len(n.texts) < maxLaneNotes {
		n.texts = append(n.texts, text)
		return
	}
	n.more++
}

func (n *laneNotes) first() string {
	if len(n.texts) == 0 {
		return "there is none"
	}
	return n.texts[0]
}

func (n *laneNotes) list() []string {
	if n.more == 0 {
		return n.texts
	}
	return append(slices.Clone(n.texts), fmt.Sprintf("and %d other pairs of ports", n.more))
}

// listLanes makes a set of exactly these lanes, each as often as there are connections
// per lane.
func (p *Peer) listLanes(g *group, ends []laneOffer) {
	o := pick.List{TCP: g.carrier.ports == nil}
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
		}
	}
	g.set, g.plan = o.Set(), nil
	slices.SortStableFunc(all, func(a, b laneOffer) int { return pick.CompareListed(a.Listed, b.Listed) }) // as the set
	// The ports of lanes that are listed are of sides of their own.
	what := fmt.Sprintf("%s to %s", g.carrier.name, p.name)
	p.addLanes(g, all, p.side("local "+what+names(all, func(x *laneOffer) string { return x.LocalName }), g.set.Local.BytesPerSec()),
		p.side("remote "+what+names(all, func(x *laneOffer) string { return x.remote.Address }), g.set.Remote.BytesPerSec()))
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
		ends[i].LocalRate, ends[i].RemoteRate = here[l.Local], there[l.Remote]
		ends[i].Failover = i >= g.set.Chosen
		out = append(out, ends[i])
	}
	p.listLanes(g, out)
}

// addLanes makes the lanes of a set known to the scheduler.
func (p *Peer) addLanes(g *group, ends []laneOffer, here, there sched.SideID) {
	for i := range ends {
		l := p.engine.laneFor(p, g, i, ends[i].key(g.carrier, here, there), &ends[i])
		g.lanes = append(g.lanes, l)
		if l.remote.Address == "" {
			p.engine.withdrawLane(l)
		}
	}
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
