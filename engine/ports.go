package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/pick"
	"github.com/topoctl/topoctl/pathsel"
)

// maxPortNotes bounds what is said about pairs of ports that are no lanes.
const maxPortNotes = 16

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
func (p *Peer) plannedPortLanes(g *group, key routeKey, ports []transport.LocalPort, offers []transport.Endpoint, now *ports, remote *pathsel.Host) error {
	local := now.rdma
	pair, err := pathsel.Connect(local, remote, pathsel.PairOptions{Fabric: p.engine.o.Ports.Fabric})
	if err != nil {
		return err
	}
	x := portPlan{peer: p, group: g, dialled: dialled{}, here: map[topo.ID]bool{}, there: map[topo.ID][]transport.Endpoint{}}
	for i := range ports {
		x.here[ports[i].ID] = true
	}
	for _, o := range offers {
		x.there[o.Port] = append(x.there[o.Port], o)
	}
	var o pathsel.LaneOptions
	for _, port := range local.Ports() {
		if x.here[port.ID] {
			o.Local = append(o.Local, port.ID)
		}
	}
	for _, port := range remote.Ports() {
		if len(x.there[port.ID]) > 0 {
			o.Remote = append(o.Remote, port.ID)
		}
	}
	switch {
	case len(o.Local) == 0:
		return errors.New("this host's topology has none of its ports")
	case len(o.Remote) == 0:
		return errors.New("the peer's topology has none of the ports that it offers")
	}
	ours := slices.DeleteFunc(slices.Clone(now.rdmaAssigned), func(id topo.ID) bool { return !x.here[id] })
	if len(ours) > 0 {
		o.Local = ours
	}
	src, noteHere := hostLocation(local, key.local, "this host")
	dst, noteThere := hostLocation(remote, key.remote, "the peer")
	set, err := pair.LanesOf(src, dst, o)
	if err != nil {
		return err
	}
	ends, usable := x.ends(set)
	if !usable {
		return fmt.Errorf("no lane of both topologies can be used: %s", x.notes.first())
	}
	g.set, g.plan, g.notes = set.PickSet(), set, slices.Concat(g.notes, noteHere, noteThere, x.notes.list())
	p.addPortLanes(g, ends, local, remote)
	return nil
}

// portPlan turns pathsel's lanes into those of the transport.
type portPlan struct {
	peer    *Peer
	group   *group
	here    map[topo.ID]bool
	there   map[topo.ID][]transport.Endpoint
	dialled dialled
	notes   portNotes
}

// ends are the lanes of a set as they are dialled; those that cannot be used now
// have no address.
func (x *portPlan) ends(set *pathsel.LaneSet) (ends []laneOffer, usable bool) {
	ends = make([]laneOffer, len(set.Lanes))
	for i := range set.Lanes {
		l := &set.Lanes[i]
		ends[i] = laneOffer{Listed: pick.Listed{LocalName: l.LocalName, Tier: l.Tier}, laneEnds: laneEnds{
			name: laneName(x.group.carrier.name, l.LocalName, set.RemoteHost, l.RemoteName), localPort: l.Local,
		}}
		if l.BytesPerSec != nil {
			ends[i].BytesPerSec = *l.BytesPerSec
		}
		var err error
		if ends[i].remote, err = x.remote(l); err == nil {
			err = x.dialled.add(l.Local)
		}
		if err != nil {
			ends[i].remote = transport.Endpoint{}
			x.notes.add(fmt.Sprintf("lane %s: %v", ends[i].name, err))
			continue
		}
		usable = true
	}
	return ends, usable
}

// remote is the endpoint of the peer that a lane is dialled at.
func (x *portPlan) remote(l *pathsel.Lane) (transport.Endpoint, error) {
	if !x.here[l.Local] {
		return transport.Endpoint{}, fmt.Errorf("%s cannot be used now", l.LocalName)
	}
	err := fmt.Errorf("the peer does not offer %s now", l.RemoteName)
	for _, o := range x.there[l.Remote] {
		if err = x.group.carrier.ports.PortReaches(l.Local, o); err == nil {
			return o, nil
		}
	}
	return transport.Endpoint{}, err
}

// laneName tells lanes of ports from those that other transports have over them.
func laneName(transport, local, host, remote string) string {
	return fmt.Sprintf("%s %s > %s:%s", transport, local, host, remote)
}

// pairedLanes makes lanes without pathsel: pairs of ports that reach each other, so that
// each is used, and others for when those fail.
func (p *Peer) pairedLanes(g *group, local []transport.LocalPort, offers []transport.Endpoint) {
	var notes portNotes
	m := newPairing(len(local), len(offers))
	names := make([]string, len(local))
	for i := range local {
		names[i] = local[i].Name
	}
	for i := range local {
		m.here[i] = portLoad{rate: local[i].BytesPerSec, foreign: !ownPort(i, len(local), p.engine.o.Ports.LocalRank, p.engine.o.Ports.LocalSize)}
		for k := range offers {
			m.there[k].rate = offers[k].BytesPerSec
			if err := g.carrier.ports.PortReaches(local[i].ID, offers[k]); err != nil {
				notes.add(fmt.Sprintf("%s to the peer's %s: %v", shortName(names[i], names), endpointName(offers[k], offers), err))
				continue
			}
			m.reaches[i][k] = true
		}
	}
	chosen, spare := m.pair()
	if len(chosen) == 0 {
		// The ports say why, and mostly for the second time.
		if _, why, _ := strings.Cut(notes.first(), ": "); !strings.HasSuffix(g.reason, why) {
			g.reason += "; no port reaches one of the peer's: " + notes.first()
		}
		g.notes = append(g.notes, notes.list()...)
		return
	}
	g.reason += ": its lanes are pairs of ports that reach each other"
	ends := make([]laneOffer, 0, len(chosen)+len(spare))
	for n, x := range slices.Concat(chosen, spare) {
		here, there := &local[x.here], offers[x.there]
		name := shortName(here.Name, names)
		ends = append(ends, laneOffer{
			laneEnds:  laneEnds{name: laneName(g.carrier.name, name, p.name, endpointName(there, offers)), localPort: here.ID, remote: there},
			Listed:    pick.Listed{LocalName: name, BytesPerSec: slower(here.BytesPerSec, there.BytesPerSec), Failover: n >= len(chosen)},
			localRate: here.BytesPerSec, remoteRate: there.BytesPerSec,
		})
	}
	p.listLanes(g, ends)
	g.notes = append(g.notes, notes.list()...)
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

// portNotes are what is said about pairs that are no lanes.
type portNotes struct {
	texts []string
	more  int
}

func (n *portNotes) add(text string) {
	if len(n.texts) < maxPortNotes {
		n.texts = append(n.texts, text)
		return
	}
	n.more++
}

func (n *portNotes) first() string {
	if len(n.texts) == 0 {
		return "there is none"
	}
	return n.texts[0]
}

func (n *portNotes) list() []string {
	if n.more == 0 {
		return n.texts
	}
	return append(slices.Clone(n.texts), fmt.Sprintf("and %d other pairs of ports", n.more))
}

// maxPairs bounds the lanes of a transport's ports where no topology chooses.
const maxPairs = 64

// pairing finds the pairs of ports to use where nothing is known but which reach
// each other, and what some of them carry.
type pairing struct {
	here, there []portLoad
	reaches     [][]bool // [here][there]
}

// portLoad is a port and what chosen pairs ask of it.
type portLoad struct {
	rate    topo.Rate // 0 not known
	foreign bool      // another engine's: for failover only
	pairs   int
	used    topo.Rate
}

// portPair is a pair of ports, by place.
type portPair struct{ here, there int }

func newPairing(here, there int) *pairing {
	m := &pairing{here: make([]portLoad, here), there: make([]portLoad, there), reaches: make([][]bool, here)}
	for i := range m.reaches {
		m.reaches[i] = make([]bool, there)
	}
	return m
}

// pair gives the pairs that use each port, the fastest ports first, and others that
// step in when those fail: those whose ports carry the fewest first.
func (m *pairing) pair() (chosen, spare []portPair) {
	if !slices.ContainsFunc(m.candidates(), func(x portPair) bool { return !m.here[x.here].foreign }) {
		for i := range m.here { // what is ours reaches nothing
			m.here[i].foreign = false
		}
	}
	all := m.candidates()
	taken := map[portPair]bool{}
	take := func(x portPair) {
		taken[x] = true
		chosen = append(chosen, x)
		rate := slower(m.free(&m.here[x.here]), m.free(&m.there[x.there]))
		for _, p := range []*portLoad{&m.here[x.here], &m.there[x.there]} {
			p.pairs++
			p.used += rate
		}
	}
	for _, x := range m.match(all) {
		take(x)
	}
	// Ports that are left over join the partner that has most to spare.
	for {
		x, ok := m.leftOver(all, taken)
		if !ok || len(chosen) == maxPairs {
			break
		}
		take(x)
	}
	for _, x := range all {
		if !taken[x] {
			spare = append(spare, x)
		}
	}
	m.sortSpare(spare)
	return chosen, spare[:min(len(spare), maxPairs-len(chosen))]
}

// candidates are the pairs that reach each other, the fastest first.
func (m *pairing) candidates() []portPair {
	var out []portPair
	for i := range m.here {
		for k := range m.there {
			if m.reaches[i][k] {
				out = append(out, portPair{i, k})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b portPair) int {
		return cmp.Compare(slower(m.here[b.here].rate, m.there[b.there].rate), slower(m.here[a.here].rate, m.there[a.there].rate))
	})
	return out
}

// match is a largest set of pairs in which no port comes twice.
func (m *pairing) match(all []portPair) []portPair {
	partner := make([]int, len(m.there)) // of each port of the peer, -1 none
	for k := range partner {
		partner[k] = -1
	}
	var join func(i int, seen []bool) bool
	join = func(i int, seen []bool) bool {
		for _, x := range all {
			if x.here != i || seen[x.there] {
				continue
			}
			seen[x.there] = true
			if partner[x.there] < 0 || join(partner[x.there], seen) {
				partner[x.there] = i
				return true
			}
		}
		return false
	}
	paired := make([]bool, len(m.here))
	for _, x := range all { // in this order the fastest ports get a partner first
		if !paired[x.here] && partner[x.there] < 0 && !m.here[x.here].foreign {
			paired[x.here], partner[x.there] = true, x.here
		}
	}
	// A port that was left out may take a partner from one that has another choice.
	for i := range m.here {
		if !paired[i] && !m.here[i].foreign {
			join(i, make([]bool, len(m.there)))
		}
	}
	var out []portPair
	for _, x := range all {
		if partner[x.there] == x.here {
			out = append(out, x)
		}
	}
	return out[:min(len(out), maxPairs)]
}

// leftOver finds a port without a pair, and the partner that has most to spare.
func (m *pairing) leftOver(all []portPair, taken map[portPair]bool) (best portPair, ok bool) {
	for _, x := range all {
		a, b := &m.here[x.here], &m.there[x.there]
		if taken[x] || a.foreign || a.pairs > 0 && b.pairs > 0 {
			continue
		}
		if !ok || m.better(x, best) {
			best, ok = x, true
		}
	}
	return best, ok
}

// better says whether the busier port of one pair has more to spare than that of
// another.
func (m *pairing) better(x, y portPair) bool {
	busy := func(x portPair) (pairs int, free topo.Rate) {
		p := &m.here[x.here]
		if q := &m.there[x.there]; q.pairs > p.pairs {
			p = q
		}
		return p.pairs, m.free(p)
	}
	xPairs, xFree := busy(x)
	yPairs, yFree := busy(y)
	if xFree != yFree && xFree > 0 && yFree > 0 {
		return xFree > yFree
	}
	return xPairs < yPairs
}

// free is what a port has to spare, 0 not known; a full one has next to nothing.
func (m *pairing) free(p *portLoad) topo.Rate {
	if p.rate == 0 {
		return 0
	}
	return max(p.rate-p.used, 1)
}

// sortSpare puts our own pairs first, then those whose ports have the fewest.
func (m *pairing) sortSpare(spare []portPair) {
	foreign := func(x portPair) int {
		if m.here[x.here].foreign {
			return 1
		}
		return 0
	}
	pairs := func(x portPair) int { return m.here[x.here].pairs + m.there[x.there].pairs }
	slices.SortStableFunc(spare, func(a, b portPair) int {
		return cmp.Or(cmp.Compare(foreign(a), foreign(b)), cmp.Compare(pairs(a), pairs(b)))
	})
}
