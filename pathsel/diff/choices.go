package diff

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/compare"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"
)

// paths holds the choices of both sides, and the paths between memory locations and ports that both have, if their
// rates differ.
type paths struct {
	old, new  *pathsel.Host
	locations []locationPair
	toPort    map[topo.ID]topo.ID // from a port of the old side to the same one of the new side
	changed   []pathPair          // what changes in rate
}

// locationPair is one memory location on both sides.
type locationPair struct {
	old, new pathsel.Location
	nics     []topo.ID // that the new side prefers
}

// pathPair is a path whose expected rate is not the same on both sides.
type pathPair struct {
	Path
	oldLimit, newLimit topo.LinkID // what limits it
	newName            string
	better, gpu        bool
	oldBest, newBest   bool // the port is preferred
}

// choices compares what both sides choose.
func (c *comparer) choices() error {
	if c.old.imported != c.new.imported || c.old.imported && c.old.t.Origin != c.new.t.Origin {
		lacking := c.new
		if c.old.imported {
			lacking = c.old
		}
		c.omitFor(ChoicePreferred, c.hostNode(), lacking, "a choice depends on facts that "+lacking.t.Origin+" does not contain")
		return nil
	}
	r, err := c.prepare()
	if err != nil {
		return err
	}
	c.paths = r
	c.transport(r)
	for i := range r.locations {
		l := &r.locations[i]
		x, err1 := r.old.Affinity(l.old, nil)
		y, err2 := r.new.Affinity(l.new, nil)
		if err := cmp.Or(err1, err2); err != nil {
			return pkgerr.Errorf("diff", "%s and %s: %w", l.old, l.new, err)
		}
		r.findPaths(l, x, y)
		for _, p := range preferred(y) {
			l.nics = append(l.nics, p.NIC)
		}
		c.preferred(r, l, x, y)
	}
	c.plans(r)
	return nil
}

// hostNode stands for the whole host, where a difference is not about a single node.
func (c *comparer) hostNode() Node {
	return Node{Kind: KindHost, Old: string(KindHost), New: string(KindHost), Name: string(KindHost)}
}

func (c *comparer) prepare() (*paths, error) {
	r := &paths{toPort: map[topo.ID]topo.ID{}}
	var err error
	if r.old, err = pathsel.New(c.old.t, pathsel.Options{}); err != nil {
		return nil, pkgerr.Errorf("diff", "old: %w", err)
	}
	if r.new, err = pathsel.New(c.new.t, pathsel.Options{}); err != nil {
		return nil, pkgerr.Errorf("diff", "new: %w", err)
	}
	c.matchPorts(r)
	news := r.new.Locations()
	for _, l := range r.old.Locations() {
		if n := c.old.nodes[l.Node()]; n != nil && n.match != nil && slices.Contains(news, pathsel.LocationOf(n.match.New)) {
			r.locations = append(r.locations, locationPair{old: l, new: pathsel.LocationOf(n.match.New)})
		}
	}
	return r, nil
}

// matchPorts pairs the ports that can be chosen: as nodes; where one side does not know
// ports, the only ones of their device; and on another host those of one name.
func (c *comparer) matchPorts(r *paths) {
	olds, news := r.old.Ports(), r.new.Ports()
	counterpart := func(s *side, id topo.ID) topo.ID { // as the new side calls it
		if n := s.nodes[id]; n != nil && n.match != nil {
			return n.match.New
		}
		return ""
	}
	keys := []func(s *side, ports []pathsel.Port, p *pathsel.Port) topo.ID{
		func(s *side, _ []pathsel.Port, p *pathsel.Port) topo.ID { return counterpart(s, p.ID) },
		func(s *side, ports []pathsel.Port, p *pathsel.Port) topo.ID {
			if slices.ContainsFunc(ports, func(o pathsel.Port) bool { return o.NIC == p.NIC && o.ID != p.ID }) {
				return ""
			}
			return counterpart(s, p.NIC)
		},
	}
	if c.o.Structure || c.hosts == DifferentHosts {
		keys = append(keys, func(_ *side, _ []pathsel.Port, p *pathsel.Port) topo.ID { return topo.ID(p.Name) })
	}
	taken := map[topo.ID]bool{}
	for _, key := range keys {
		byKey := map[topo.ID]topo.ID{}
		for i := range news {
			if k := key(c.new, news, &news[i]); k != "" && byKey[k] == "" && !taken[news[i].ID] {
				byKey[k] = news[i].ID
			}
		}
		for i := range olds {
			p := &olds[i]
			if id := byKey[key(c.old, olds, p)]; id != "" && r.toPort[p.ID] == "" && !taken[id] {
				r.toPort[p.ID], taken[id] = id, true
			}
		}
	}
}

// candidates are all ports of a location, the best first.
func candidates(a *pathsel.Affinity) (out []*pathsel.Candidate) {
	for _, part := range [][]pathsel.Candidate{a.Ranked, a.Rejected} {
		for i := range part {
			out = append(out, &part[i])
		}
	}
	return out
}

// findPaths notes the paths of a location whose expected rate changes.
func (r *paths) findPaths(l *locationPair, older, newer *pathsel.Affinity) {
	news := candidates(newer)
	for _, x := range candidates(older) {
		i := slices.IndexFunc(news, func(y *pathsel.Candidate) bool { return y.Port == r.toPort[x.Port] })
		if i < 0 || rates(x.BytesPerSec, news[i].BytesPerSec, x.Basis, news[i].Basis) == "" {
			continue
		}
		y := news[i]
		r.changed = append(r.changed, pathPair{
			Path:     Path{string(l.old), string(l.new), x.Port, y.Port, x.BytesPerSec, y.BytesPerSec, x.Basis, y.Basis},
			oldLimit: x.Limit, newLimit: y.Limit, newName: y.Name,
			better: *y.BytesPerSec > *x.BytesPerSec, gpu: strings.HasPrefix(string(l.new), "gpu:"),
			oldBest: x.Verdict == pathsel.Preferred, newBest: y.Verdict == pathsel.Preferred,
		})
	}
}

// transport notes that ports are chosen for another transport.
func (c *comparer) transport(r *paths) {
	x, y := string(r.old.Transport()), string(r.new.Transport())
	if x != y {
		ch := Choice{Choice: ChoiceTransport, Old: []string{x}, New: []string{y}, OldNames: []string{x}, NewNames: []string{y}, Locations: []Node{}}
		c.choose(ch, c.restsOn(r, usablePorts(r.old), usablePorts(r.new)))
	}
}

// choice is what a location chooses on both sides, and whether these differ. A port with a new name is the same port.
func (c *comparer) choice(r *paths, l *locationPair, what string, olds, news []pathsel.Candidate) (Choice, bool) {
	same := len(olds) == len(news)
	for i := range olds {
		same = same && slices.ContainsFunc(news, func(n pathsel.Candidate) bool { return n.Port == r.toPort[olds[i].Port] })
	}
	ch := Choice{Choice: what, Locations: []Node{c.location(l)}}
	ch.Old, ch.OldNames = portsOf(olds)
	ch.New, ch.NewNames = portsOf(news)
	return ch, !same
}

// portsOf are the IDs and the names of candidates.
func portsOf(list []pathsel.Candidate) (ids, names []string) {
	ids, names = []string{}, []string{}
	for i := range list {
		ids, names = append(ids, string(list[i].Port)), append(names, list[i].Name)
	}
	return ids, names
}

// preferred are the candidates that are as good as the best.
func preferred(a *pathsel.Affinity) []pathsel.Candidate {
	return slices.DeleteFunc(slices.Clone(a.Ranked), func(x pathsel.Candidate) bool { return x.Verdict != pathsel.Preferred })
}

// preferred compares which ports are as good as the best.
func (c *comparer) preferred(r *paths, l *locationPair, x, y *pathsel.Affinity) {
	if ch, differs := c.choice(r, l, ChoicePreferred, preferred(x), preferred(y)); differs {
		ch.Reason, ch.Effect = r.dropped(x, y), bestRates(x, y)
		c.choose(ch, c.restsOn(r, x.Preferred(), y.Preferred()))
	}
}

// plans compares which ports each GPU (or NUMA node, on a host without GPUs) has
// when all of them share the ports.
func (c *comparer) plans(r *paths) {
	older, ok1 := c.plan(r.old, c.old)
	newer, ok2 := c.plan(r.new, c.new)
	if !ok1 || !ok2 {
		return
	}
	why := c.restsOn(r, usablePorts(r.old), usablePorts(r.new))
	for i := range r.locations {
		l := &r.locations[i]
		x, ok1 := older.Of(string(l.old))
		y, ok2 := newer.Of(string(l.new))
		if !ok1 || !ok2 {
			continue
		}
		ch, differs := c.choice(r, l, ChoicePlan, x.Ports, y.Ports)
		if !differs {
			continue
		}
		if change := rates(x.BytesPerSec, y.BytesPerSec, x.Basis, y.Basis); change != "" && x.Basis != topo.BasisBound {
			ch.Effect = "when all are busy " + change
		}
		c.choose(ch, why)
	}
}

// plan makes one side's plan. A host with more ports than a plan is made for has
// none.
func (c *comparer) plan(h *pathsel.Host, s *side) (*pathsel.Plan, bool) {
	p, err := h.Plan(nil)
	if err != nil {
		c.omitFor(ChoicePlan, c.hostNode(), s, err.Error())
		return nil, false
	}
	return p, true
}

func (c *comparer) location(l *locationPair) Node {
	n := Node{Kind: KindLocation, Old: string(l.old), New: string(l.new), Name: string(l.new)}
	if node := c.old.nodes[l.old.Node()]; node != nil && node.match != nil {
		n.MatchedBy = node.match.By
	}
	return n
}

func usablePorts(h *pathsel.Host) []topo.ID {
	var out []topo.ID
	for _, p := range h.Ports() {
		if p.Usable {
			out = append(out, p.ID)
		}
	}
	return out
}

// dropped says why the first port that is no longer preferred is not.
func (r *paths) dropped(x, y *pathsel.Affinity) string {
	now := candidates(y)
	for _, was := range preferred(x) {
		i := slices.IndexFunc(now, func(is *pathsel.Candidate) bool { return is.Port == r.toPort[was.Port] })
		switch {
		case i < 0:
			return was.Name + " is gone"
		case now[i].Verdict != pathsel.Preferred:
			return now[i].Name + ": " + behind(y, now[i])
		}
	}
	return ""
}

// behind says what is worse about a port than about the best.
func behind(a *pathsel.Affinity, x *pathsel.Candidate) string {
	if x.Verdict == pathsel.Rejected || len(a.Ranked) == 0 {
		return x.Reason.Text
	}
	for _, n := range x.Notes {
		if n.Code == pathsel.CodeStateUnknown || n.Code == pathsel.CodeLinkLocal {
			return n.Text
		}
	}
	best := &a.Ranked[0]
	switch {
	case x.Role != best.Role:
		return fmt.Sprintf("role %s, %s is %s", x.Role, best.Name, best.Role)
	case x.Class != best.Class:
		return fmt.Sprintf("class %s, %s is %s", cmp.Or(x.Class.String(), "unknown"), best.Name, cmp.Or(best.Class.String(), "unknown"))
	case x.BytesPerSec != nil && best.BytesPerSec != nil:
		return fmt.Sprintf("%s, %s has %s", x.Basis.Text(x.BytesPerSec.String()), best.Name,
			best.Basis.Text(best.BytesPerSec.String()))
	}
	return x.Reason.Text
}

// bestRates says how the expected rate of the best port changes, "" if it does not.
func bestRates(x, y *pathsel.Affinity) string {
	zero := topo.Rate(0)
	best := func(a *pathsel.Affinity) *pathsel.Candidate {
		if len(a.Ranked) == 0 {
			return &pathsel.Candidate{BytesPerSec: &zero, Basis: topo.BasisRead}
		}
		return &a.Ranked[0]
	}
	p, q := best(x), best(y)
	if change := rates(p.BytesPerSec, q.BytesPerSec, p.Basis, q.Basis); change != "" {
		return "expected " + change
	}
	return ""
}

// rates says how two rates differ: "50.0 -> 31.5 GB/s". It is "" if they do not, or if they cannot be compared: a bound
// compares with another bound only.
func rates(p, q *topo.Rate, was, is topo.Basis) string {
	if p == nil || q == nil || *p == *q || (was == topo.BasisBound) != (is == topo.BasisBound) {
		return ""
	}
	return was.Text(units.RateNumber(int64(*p), units.Gbyte)) + " -> " + is.Text(q.String())
}

// restsOn finds a fact about some ports that only one side knows, and that may be the only reason for a different
// choice among them; nil if there is no such fact.
func (c *comparer) restsOn(r *paths, olds, news []topo.ID) *omission {
	involved := [2]map[string]bool{{}, {}} // nodes of both sides
	note := func(i int, h *pathsel.Host, id topo.ID) {
		if p, ok := h.Port(id); ok {
			for _, node := range []topo.ID{p.ID, p.NIC, topo.NetdevID(p.Netdev)} {
				involved[i][string(node)] = true
			}
		}
	}
	for _, id := range olds {
		note(0, r.old, id)
		note(1, r.new, r.toPort[id])
	}
	for _, id := range news {
		note(1, r.new, id)
	}
	for i := range c.missing {
		m := &c.missing[i]
		if compare.Of(m.attr).Decides && (involved[0][m.node.Old] || involved[1][m.node.New]) {
			return m
		}
	}
	for i := range c.missing {
		if m := &c.missing[i]; m.attr == "presence" && m.node.Kind == topo.KindGPU {
			return m // roles are judged by where the GPUs are
		}
	}
	return nil
}

// choose notes a choice that changes, unless it may do so only because one side knows less.
// Locations that choose alike are reported together.
func (c *comparer) choose(ch Choice, unless *omission) {
	attr, node := ch.Choice, c.hostNode()
	if attr == ChoiceTransport {
		attr += "_choice"
	}
	if len(ch.Locations) > 0 {
		node = ch.Locations[0]
	}
	if unless != nil {
		c.omitFor(attr, node, unless.side, fmt.Sprintf("%s instead of %s, but that depends on the %s of %s, which it does not contain",
			cmp.Or(names(ch.NewNames), absent), cmp.Or(names(ch.OldNames), absent), compare.Of(unless.attr).Words, unless.node.Name))
		return
	}
	if !c.wants(Policy, attr) {
		return
	}
	ch.Kind = Policy
	for i := range c.policy {
		p := &c.policy[i]
		if p.Choice == ch.Choice && p.Reason == ch.Reason && p.Effect == ch.Effect && slices.Equal(p.Old, ch.Old) && slices.Equal(p.New, ch.New) {
			p.Locations = append(p.Locations, ch.Locations...)
			return
		}
	}
	c.policy = append(c.policy, ch)
}
