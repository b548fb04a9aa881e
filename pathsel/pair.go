package pathsel

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
)

// PairOptions say what is known about two hosts beyond their topologies.
type PairOptions struct {
	// Fabric is what no host can see: rails, leaves, planes; nil if nothing is known.
	Fabric *Fabric
	// LocalName and RemoteName are the hosts' names in the fabric file and in
	// texts; if empty, those in the topologies.
	LocalName, RemoteName string
}

// Pair is two hosts prepared for questions about lanes: which ports of one
// reach which ports of the other. A Pair does not change and may be used by many
// goroutines.
type Pair struct {
	local, remote         *Host
	localName, remoteName string
	here, there           []*endpoint    // the usable ports
	hereAt, thereAt       []int          // the place of a port in those, by Port.Index; -1 for others
	reach                 []reachability // here by there
	caps                  []float64      // the segments of both hosts
	offset                segment        // of the remote host's segments
	problems              []Reason
}

// maxPairs bounds the pairs of ports that are looked at: 256 by 256. The largest
// hosts have about 50 usable ports.
const maxPairs = 1 << 16

// Connect prepares the lanes between two hosts. The same Host twice is for
// transfers within one host that leave it: then the ports share its links, and
// a port reaches itself (loopback), which ranks last. Another Host of the same
// machine's topology stands for another machine of its kind.
//
// NICs of different hosts are never matched by name or index: the IDs of remote
// ports mean something within the remote topology only.
func Connect(local, remote *Host, o PairOptions) (*Pair, error) {
	if local == nil || remote == nil {
		return nil, pkgerr.New("pathsel", "connect: want two hosts")
	}
	p := &Pair{local: local, remote: remote, localName: o.LocalName, remoteName: o.RemoteName}
	if p.localName == "" {
		p.localName = local.t.Host.Name
	}
	if p.remoteName == "" {
		p.remoteName = remote.t.Host.Name
	}
	cabledHere, problems, err := o.Fabric.cable(p.localName, local)
	if err != nil {
		return nil, err
	}
	cabledThere, more, err := o.Fabric.cable(p.remoteName, remote)
	if err != nil {
		return nil, err
	}
	p.problems = problems
	if p.remoteName != p.localName {
		p.problems = append(p.problems, more...)
	}
	if note, ok := o.Fabric.unused(p.localName, p.remoteName); ok {
		p.problems = []Reason{note}
	}
	p.here, p.hereAt = local.endpoints(cabledHere)
	p.there, p.thereAt = remote.endpoints(cabledThere)
	if n := len(p.here) * len(p.there); n > maxPairs {
		return nil, pkgerr.Errorf("pathsel", "connect %q and %q: %d by %d usable ports: at most %d pairs are looked at, give roles to fewer NICs",
			p.localName, p.remoteName, len(p.here), len(p.there), maxPairs)
	}
	p.caps = local.caps
	if local != remote {
		p.offset = segment(len(local.caps))
		p.caps = append(append(make([]float64, 0, len(local.caps)+len(remote.caps)), local.caps...), remote.caps...)
	}
	p.reach = make([]reachability, 0, len(p.here)*len(p.there))
	k := hostPair{railOnly: o.Fabric != nil && o.Fabric.RailOnly, sameHost: local == remote, sameMachine: local != remote && sameMachine(local.t, remote.t)}
	if k.sameMachine {
		p.problems = append(p.problems, Reason{codeTwins, "both topologies are of one machine: taken as two hosts of its kind in the same networks", ""})
	}
	for _, a := range p.here {
		for _, b := range p.there {
			p.reach = append(p.reach, judgePair(a, b, k))
		}
	}
	return p, nil
}

// sameMachine says whether two topologies are of one machine: a device of theirs has
// one hardware address. One capture is often used for both hosts of a pair, to
// ask what a second machine of the kind would give.
func sameMachine(a, b *topo.Topology) bool {
	addresses := func(t *topo.Topology) map[string]bool {
		out := map[string]bool{}
		for i := range t.RDMADevices {
			if r := &t.RDMADevices[i]; !r.Software && r.NodeGUID != "" {
				out[r.NodeGUID] = true
			}
		}
		for i := range t.Netdevs {
			if n := &t.Netdevs[i]; n.PCI != "" && n.MAC != "" {
				out[n.MAC] = true
			}
		}
		return out
	}
	of := addresses(a)
	for address := range addresses(b) {
		if of[address] && strings.Trim(address, "0:") != "" {
			return true
		}
	}
	return false
}

// ErrNoLane is the error of Lanes when no port of one host reaches a port of the other.
var ErrNoLane = errors.New("no lane")

// NoLaneError is an ErrNoLane with what is known of it.
type NoLaneError struct {
	Short  string // why, in a clause: "their ports speak different protocols"
	Reason Reason // of the port that is rejected first, or of most pairs of ports
	Hint   string // what to do about it, "" where nothing is known
	detail string
}

// Error is a sentence with all that is known.
func (e *NoLaneError) Error() string {
	return pkgerr.Errorf("pathsel", "%w %s", ErrNoLane, e.detail).Error()
}

// Unwrap is ErrNoLane.
func (e *NoLaneError) Unwrap() error { return ErrNoLane }

// Lanes ranks every pair of ports that reach each other, for transfers between
// src, a location of the local host, and dst, one of the remote host. Data may
// flow either way: each direction of a link has its whole rate.
//
// If there is no lane at all, the error is a NoLaneError, which wraps ErrNoLane and says why and
// what to do; the set is returned too, with the reasons port by port.
func (p *Pair) Lanes(src, dst Location) (*LaneSet, error) {
	return p.lanes(src, dst, LaneOptions{})
}

func (p *Pair) lanes(src, dst Location, o LaneOptions) (*LaneSet, error) {
	here, err := p.local.Affinity(src, nil)
	if err != nil {
		return nil, fmt.Errorf("%w (local host %q)", err, p.localName)
	}
	there, err := p.remote.Affinity(dst, nil)
	if err != nil {
		return nil, fmt.Errorf("%w (remote host %q)", err, p.remoteName)
	}
	if err := p.local.assign(here, o.Local, SideLocal); err != nil {
		return nil, err
	}
	if err := p.remote.assign(there, o.Remote, SideRemote); err != nil {
		return nil, err
	}
	s := &LaneSet{LocalHost: p.localName, RemoteHost: p.remoteName, Source: src, Destination: dst,
		Transport: p.local.transport, Basis: topo.BasisUnknown, Lanes: []Lane{}, Rejected: []Rejection{}, Notes: p.problems, pair: p}
	b := newLaneBuilder(p, s, here, there)
	edges, refused := b.edges()
	b.choose(b.arrange(edges))
	s.Rejected = b.rejections(refused)
	b.index()
	if len(s.Lanes) == 0 {
		return s, b.noLane()
	}
	s.Notes = slices.Concat(s.Notes, p.local.blindLanes(p.localName, src))
	if p.local != p.remote {
		s.Notes = slices.Concat(s.Notes, p.remote.blindLanes(p.remoteName, dst))
	}
	return s, nil
}

// noLane says why there is no lane and what to do about the commonest reason.
func (b *laneBuilder) noLane() error {
	p := b.p
	between := fmt.Sprintf("between %s of %q and %s of %q over %s", b.s.Source, p.localName, b.s.Destination, p.remoteName, b.s.Transport)
	for _, side := range []struct {
		name string
		a    *Affinity
	}{{p.localName, b.here}, {p.remoteName, b.there}} {
		if len(side.a.Ranked) > 0 {
			continue
		}
		e := &NoLaneError{Short: "no port of " + side.name + " can be used"}
		why := "no network port of it is known"
		if len(side.a.Rejected) > 0 {
			c := &side.a.Rejected[0]
			why = fmt.Sprintf("%d are rejected, the first, %s: %s", len(side.a.Rejected), c.Name, c.Reason.Text)
			if e.Reason = c.Reason; c.Reason.Code == codeNoRDMA {
				e.Hint = "use the transport tcp"
			}
		}
		e.detail = fmt.Sprintf("%s: host %q has no usable port: %s", between, side.name, why)
		return e
	}
	r := b.commonest()
	short, hint := unreached(r.Reason.Code)
	return &NoLaneError{short, r.Reason, hint, fmt.Sprintf("%s: %d of %d pairs of ports are rejected with: %s; %s",
		between, r.Pairs, len(b.here.Ranked)*len(b.there.Ranked), r.Reason.Text, hint)}
}

// commonest sums the rejected pairs up by code and gives the first rejection of
// the code with the most.
func (b *laneBuilder) commonest() Rejection {
	pairs := map[Code]int{}
	for _, r := range b.s.Rejected {
		pairs[r.Reason.Code] += r.Pairs
	}
	var best Rejection
	for _, r := range b.s.Rejected {
		if n := pairs[r.Reason.Code]; r.Pairs > 0 && n > best.Pairs {
			best = r
			best.Pairs = n
		}
	}
	return best
}

// unreached says in a clause why ports do not reach each other, and what to do about it.
func unreached(code Code) (short, hint string) {
	switch code {
	case codeProtocol:
		return "their ports speak different protocols", "use the transport tcp, or name the role of NICs that speak one protocol"
	case codeOtherSubnet:
		return "their ports are in different InfiniBand subnets", "let one subnet manager serve both, or use the transport tcp"
	case codeNoRoute:
		return "their ports have no route to each other", "put the interfaces in one network, or give each a route to the other's"
	case codeGIDType:
		return "their ports have no GIDs of one type", "give both interfaces addresses of one IP version, with RoCE v2 enabled"
	case codePKey, codePKeyLimited:
		return "their ports have no partition in common", "let the subnet manager make both members of one partition, one of them a full member"
	case codeOtherPlane, codeOtherRail:
		return "their ports are on different rails", "check the cabling in the fabric file, or choose memory near ports of one rail"
	}
	return "their ports do not reach each other", "check the link with a measurement or another pair of NICs"
}

// LaneOptions restrict a set of lanes to some ports of the two hosts: where several processes
// share a host, each uses its own part of the ports (Host.Plan), and the others' only when its own
// fail.
type LaneOptions struct {
	// Local and Remote are the assigned ports of each host; without any, all are.
	Local, Remote []topo.ID
}

// LanesOf is Lanes for assigned ports: only their lanes are chosen and count in the joint
// capacity. Lanes that end at another port rank behind them, for failover. If no assigned port of
// one host reaches one of the other, the peer's other ports count as assigned too, and if that is
// not enough, all ports of both hosts; a note says so.
func (p *Pair) LanesOf(src, dst Location, o LaneOptions) (*LaneSet, error) {
	used := o
	s, err := p.lanes(src, dst, used)
	for err == nil && s.Chosen == 0 && len(used.Local)+len(used.Remote) > 0 {
		if len(used.Remote) == 0 {
			used.Local = nil
		}
		used.Remote = nil
		s, err = p.lanes(src, dst, used)
	}
	if err == nil && (len(used.Local) < len(o.Local) || len(used.Remote) < len(o.Remote)) {
		s.Notes = append(slices.Clone(s.Notes), Reason{codeNotAssigned, p.widened(o, used), ""})
	}
	return s, err
}

// widened says why a set is of more ports than were assigned.
func (p *Pair) widened(o, used LaneOptions) string {
	text := "no lane joins two assigned ports ("
	if len(o.Local) > 0 {
		text += "local " + p.local.namesOf(o.Local)
	}
	if len(o.Remote) > 0 {
		if len(o.Local) > 0 {
			text += ", "
		}
		text += "remote " + p.remote.namesOf(o.Remote)
	}
	if len(used.Local) > 0 {
		return text + "): all ports of the remote host are used"
	}
	return text + "): all ports are used"
}

// namesOf lists ports by their names.
func (h *Host) namesOf(ports []topo.ID) string {
	var out []string
	for _, id := range ports {
		out = append(out, h.ports[h.portIndex[id]].Name)
	}
	return text.Join(out, len(out))
}

// assign puts the candidates of the assigned ports first, each part in the order
// that it has. The others are no better than available.
func (h *Host) assign(a *Affinity, ports []topo.ID, side Side) error {
	if len(ports) == 0 {
		return nil
	}
	for _, id := range ports {
		if _, ok := h.portIndex[id]; !ok {
			return pkgerr.Errorf("pathsel", "assigned port %q: the %s host has no such port", id, side)
		}
	}
	var ours, others []Candidate
	for _, c := range a.Ranked {
		c.foreign = !slices.Contains(ports, c.Port)
		if c.foreign {
			c.Verdict = Available
			others = append(others, c)
			continue
		}
		ours = append(ours, c)
	}
	for i := range ours {
		ours[i].Verdict, _ = h.judge(ours, i)
	}
	a.Ranked = slices.Concat(ours, others)
	return nil
}

// linkOf is the link of a segment of either host.
func (p *Pair) linkOf(s segment) *topo.Link {
	if p.local != p.remote && s >= p.offset {
		return p.remote.linkOf(s - p.offset)
	}
	return p.local.linkOf(s)
}

func (p *Pair) sideOf(s segment) Side {
	if p.local != p.remote && s >= p.offset {
		return SideRemote
	}
	return SideLocal
}

// where names a segment's link and its host.
func (p *Pair) where(s segment) string {
	return fmt.Sprintf("%s of %s", p.linkOf(s).ID, p.hostName(p.sideOf(s)))
}

func (p *Pair) hostName(side Side) string {
	name := p.localName
	if side == SideRemote {
		name = p.remoteName
	}
	if name == "" {
		return "the " + string(side) + " host"
	}
	return name
}
