package pathsel

import (
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/text"
)

// LaneOptions say which ports of the two hosts a set of lanes is for: one process
// of several on a host uses its own part of the ports (Host.Plan), and those of
// the others only when its own fail.
type LaneOptions struct {
	// Local and Remote are the assigned ports of each host; without any, all are.
	Local, Remote []topo.ID
}

// LanesOf is Lanes for the assigned ports: only lanes of those are chosen, and
// only those count in the joint capacity. Lanes that end at another port rank
// behind, for failover. Where no assigned port of one host reaches one of the
// other, the peer's other ports count as assigned too, and if that is not enough
// all ports of both: a note says so.
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
	text := "no lane ends at assigned ports only ("
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
			return fmt.Errorf("pathsel: assigned port %q: the %s host has no such port", id, side)
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
		ours[i].Verdict, _ = judge(ours, i)
	}
	a.Ranked = slices.Concat(ours, others)
	return nil
}

// notAssigned says whose the ports of a lane are not.
func (b *laneBuilder) notAssigned(e *edge) Reason {
	c, d := &b.here.Ranked[e.i], &b.there.Ranked[e.j]
	text := ""
	switch {
	case c.foreign && d.foreign:
		text = fmt.Sprintf("neither %s of %s nor %s of %s is assigned", c.Name, b.hostName(SideLocal), d.Name, b.hostName(SideRemote))
	case c.foreign:
		text = fmt.Sprintf("%s of %s is not assigned", c.Name, b.hostName(SideLocal))
	default:
		text = fmt.Sprintf("%s of %s is not assigned", d.Name, b.hostName(SideRemote))
	}
	return Reason{codeNotAssigned, text + ": for when assigned ports fail", ""}
}
