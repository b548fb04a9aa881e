package diff

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/units"
	"github.com/topoctl/topoctl/pathsel"
)

// rivals are what both sides choose: of every memory location and every port
// that both have, the rates.
type rivals struct {
	old, new  *pathsel.Host
	locations []locationPair
	toPort    map[topo.ID]topo.ID   // the new side's port of an old one
	paths     []pathPair            // what changes in rate
	byLimit   map[topo.LinkID][]int // paths by a link that limits them, "old " before the old side's
	users     map[topo.ID][]string  // by NIC of the new side, the locations that prefer it
}

// locationPair is one memory location on both sides.
type locationPair struct{ old, new pathsel.Location }

// pathPair is a path whose expected rate is not the same on both sides.
type pathPair struct {
	Path
	better, gpu      bool
	oldBest, newBest bool // the port is preferred
}

// choices compares what both sides choose.
func (c *comparer) choices() error {
	if c.old.imported != c.new.imported || c.old.imported && c.old.t.Origin != c.new.t.Origin {
		silent := c.new
		if c.old.imported {
			silent = c.old
		}
		c.omitFor(ChoicePreferred, Node{Kind: KindHost, Old: string(KindHost), New: string(KindHost), Name: string(KindHost)}, silent,
			"a choice rests on facts that "+silent.t.Origin+" does not tell")
		return nil
	}
	r, err := c.prepare()
	if err != nil {
		return err
	}
	c.rivals = r
	c.transport(r)
	for _, l := range r.locations {
		x, err := r.old.Affinity(l.old, nil)
		if err != nil {
			return fmt.Errorf("diff: old: %w", err)
		}
		y, err := r.new.Affinity(l.new, nil)
		if err != nil {
			return fmt.Errorf("diff: new: %w", err)
		}
		r.findPaths(l, x, y)
		r.note(l, y)
		c.preferred(r, l, x, y)
	}
	c.plans(r)
	return nil
}

// note remembers which NICs a location prefers.
func (r *rivals) note(l locationPair, y *pathsel.Affinity) {
	for i := range y.Ranked {
		x := &y.Ranked[i]
		if list := r.users[x.NIC]; x.Verdict == pathsel.Preferred && !slices.Contains(list, string(l.new)) {
			r.users[x.NIC] = append(list, string(l.new))
		}
	}
}

func (c *comparer) prepare() (*rivals, error) {
	r := &rivals{toPort: map[topo.ID]topo.ID{}, byLimit: map[topo.LinkID][]int{}, users: map[topo.ID][]string{}}
	var err error
	if r.old, err = pathsel.New(c.old.t, pathsel.Options{}); err != nil {
		return nil, fmt.Errorf("diff: old: %w", err)
	}
	if r.new, err = pathsel.New(c.new.t, pathsel.Options{}); err != nil {
		return nil, fmt.Errorf("diff: new: %w", err)
	}
	c.matchPorts(r)
	there := map[pathsel.Location]bool{}
	for _, l := range r.new.Locations() {
		there[l] = true
	}
	for _, l := range r.old.Locations() {
		if m := c.m.to[l.Node()]; m != nil && there[pathsel.LocationOf(m.New)] {
			r.locations = append(r.locations, locationPair{l, pathsel.LocationOf(m.New)})
		}
	}
	return r, nil
}

// matchPorts pairs the ports that can be chosen: as nodes, or where one side
// does not know ports, the only ones of their device.
func (c *comparer) matchPorts(r *rivals) {
	count := map[topo.ID][]topo.ID{}
	there, taken := map[topo.ID]bool{}, map[topo.ID]bool{}
	for _, p := range r.new.Ports() {
		count[p.NIC] = append(count[p.NIC], p.ID)
		there[p.ID] = true
	}
	own := map[topo.ID]int{}
	for _, p := range r.old.Ports() {
		own[p.NIC]++
		if m := c.m.to[p.ID]; m != nil && there[m.New] {
			r.toPort[p.ID] = m.New
			taken[m.New] = true
		}
	}
	for _, p := range r.old.Ports() {
		m := c.m.to[p.NIC]
		if r.toPort[p.ID] != "" || m == nil || own[p.NIC] != 1 || len(count[m.New]) != 1 || taken[count[m.New][0]] {
			continue
		}
		r.toPort[p.ID] = count[m.New][0]
		taken[count[m.New][0]] = true
	}
	if !c.m.byStructure {
		return
	}
	byName := map[string]topo.ID{} // what has no match on another host is known by its name
	for _, p := range r.new.Ports() {
		if !taken[p.ID] {
			byName[p.Name] = p.ID
		}
	}
	for _, p := range r.old.Ports() {
		if now, ok := byName[p.Name]; ok && r.toPort[p.ID] == "" {
			r.toPort[p.ID] = now
		}
	}
}

func candidates(a *pathsel.Affinity) []*pathsel.Candidate {
	out := make([]*pathsel.Candidate, 0, len(a.Ranked)+len(a.Rejected))
	for i := range a.Ranked {
		out = append(out, &a.Ranked[i])
	}
	for i := range a.Rejected {
		out = append(out, &a.Rejected[i])
	}
	return out
}

// findPaths notes the paths of a location whose expected rate changes.
func (r *rivals) findPaths(l locationPair, older, newer *pathsel.Affinity) {
	news := map[topo.ID]*pathsel.Candidate{}
	for _, y := range candidates(newer) {
		news[y.Port] = y
	}
	for _, x := range candidates(older) {
		y := news[r.toPort[x.Port]]
		if y == nil || !comparable(x, y) || *x.BytesPerSec == *y.BytesPerSec {
			continue
		}
		r.byLimit["old "+x.Limit] = append(r.byLimit["old "+x.Limit], len(r.paths))
		r.byLimit[y.Limit] = append(r.byLimit[y.Limit], len(r.paths))
		r.paths = append(r.paths, pathPair{
			Path:   Path{string(l.old), string(l.new), x.Port, y.Port, x.BytesPerSec, y.BytesPerSec, x.Name, y.Name},
			better: *y.BytesPerSec > *x.BytesPerSec, gpu: strings.HasPrefix(string(l.new), "gpu:"),
			oldBest: x.Verdict == pathsel.Preferred, newBest: y.Verdict == pathsel.Preferred,
		})
	}
}

// transport notes that ports are chosen for another transport.
func (c *comparer) transport(r *rivals) {
	x, y := string(r.old.Transport()), string(r.new.Transport())
	if x == y {
		return
	}
	ch := Choice{Choice: ChoiceTransport, Old: []string{x}, New: []string{y}, OldNames: []string{x}, NewNames: []string{y}, Locations: []Node{}}
	if why := c.restsOn(r, usablePorts(r.old), usablePorts(r.new)); why != nil {
		c.unsure(ch, Node{Kind: KindHost, Old: string(KindHost), New: string(KindHost), Name: string(KindHost)}, why)
		return
	}
	c.choose(ch)
}

// preferred compares which ports are as good as the best. A port under another
// name is the same choice.
func (c *comparer) preferred(r *rivals, l locationPair, x, y *pathsel.Affinity) {
	if r.samePorts(x.Preferred(), y.Preferred()) {
		return
	}
	ch := Choice{Choice: ChoicePreferred, Locations: []Node{c.location(l)}}
	ch.Old, ch.OldNames = portLists(x)
	ch.New, ch.NewNames = portLists(y)
	ch.Reason = r.dropped(x, y)
	ch.Effect = bestRates(x, y)
	if why := c.restsOn(r, x.Preferred(), y.Preferred()); why != nil {
		c.unsure(ch, ch.Locations[0], why)
		return
	}
	c.choose(ch)
}

func (c *comparer) location(l locationPair) Node {
	return c.node(KindLocation, &topo.Node{ID: topo.ID(l.old)}, &topo.Node{ID: topo.ID(l.new)}, c.m.to[l.old.Node()], string(l.new), "")
}

// samePorts says whether two sets of ports are the same ones.
func (r *rivals) samePorts(olds, news []topo.ID) bool {
	if len(olds) != len(news) {
		return false
	}
	there := make(map[topo.ID]bool, len(news))
	for _, id := range news {
		there[id] = true
	}
	return !slices.ContainsFunc(olds, func(id topo.ID) bool { return !there[r.toPort[id]] })
}

// portLists gives the preferred ports as IDs and as names.
func portLists(a *pathsel.Affinity) (ids, names []string) {
	ids, names = []string{}, []string{}
	for i := range a.Ranked {
		if x := &a.Ranked[i]; x.Verdict == pathsel.Preferred {
			ids, names = append(ids, string(x.Port)), append(names, x.Name)
		}
	}
	return ids, names
}

// dropped says why the first port that is no longer preferred is not.
func (r *rivals) dropped(x, y *pathsel.Affinity) string {
	now := map[topo.ID]*pathsel.Candidate{}
	for _, cand := range candidates(y) {
		now[cand.Port] = cand
	}
	for i := range x.Ranked {
		was := &x.Ranked[i]
		if was.Verdict != pathsel.Preferred {
			continue
		}
		switch cand := now[r.toPort[was.Port]]; {
		case cand == nil:
			return was.Name + " is gone"
		case cand.Verdict != pathsel.Preferred:
			return cand.Name + ": " + behind(y, cand)
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
		return fmt.Sprintf("%s, %s has %s", rateText(x), best.Name, rateText(best))
	}
	return x.Reason.Text
}

// rateText is an expected rate, "at most" where it is an upper bound.
func rateText(x *pathsel.Candidate) string {
	s := units.Rate(int64(*x.BytesPerSec), units.Gbyte)
	if x.Basis == topo.BasisAssumed {
		return "at most " + s
	}
	return s
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
	if !comparable(p, q) || *p.BytesPerSec == *q.BytesPerSec {
		return ""
	}
	return "expected " + rates(*p.BytesPerSec, *q.BytesPerSec)
}

// comparable says whether two rates can be held against each other: an upper
// bound only against another one.
func comparable(x, y *pathsel.Candidate) bool {
	return x.BytesPerSec != nil && y.BytesPerSec != nil && (x.Basis == topo.BasisAssumed) == (y.Basis == topo.BasisAssumed)
}

// rates are two rates with one unit: "50.0 -> 31.5 GB/s".
func rates(p, q topo.Rate) string {
	return units.RateNumber(int64(p), units.Gbyte) + " -> " + units.Rate(int64(q), units.Gbyte)
}

// choose notes a choice that changes; locations that choose alike are told together.
func (c *comparer) choose(ch Choice) {
	attr := ch.Choice
	if attr == ChoiceTransport {
		attr += "_choice"
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
