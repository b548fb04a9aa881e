package diff

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// Options say how two topologies are compared.
type Options struct {
	// OldLabel and NewLabel are what the report calls the two sides.
	OldLabel, NewLabel string
	// Structure leaves out what tells two machines of one model apart without
	// being their structure: identities, names, addresses, software and its
	// settings.
	Structure bool
	// Ignore lists kinds of difference and attributes to leave out, see Ignorable.
	Ignore []string
}

// Compare says what is different in the new topology. Both must be derived.
func Compare(older, newer *topo.Topology, o Options) (*Report, error) {
	for _, t := range []*topo.Topology{older, newer} {
		if t == nil || t.Derived == nil {
			return nil, errors.New("diff: a topology is not derived: call Derive first")
		}
	}
	if err := checkIgnore(o.Ignore); err != nil {
		return nil, err
	}
	c := &comparer{o: o, old: newSide(older, "old"), new: newSide(newer, "new"), told: map[[2]string]bool{}, unsaid: map[[2]string]bool{}}
	c.hosts = compareHosts(c.old, c.new)
	c.identities = c.comparesIdentities()
	c.m = match(c.old, c.new, o.Structure || c.hosts == DifferentHosts)
	c.old.rename, c.new.rename = c.m.current, c.m.own

	c.host()
	c.numaNodes()
	c.places()
	c.functions()
	c.links()
	c.gpus()
	c.netdevs()
	c.rdma()
	c.nvmes()
	c.presence()
	c.relations()
	if err := c.choices(); err != nil {
		return nil, err
	}
	return c.report(), nil
}

// comparesIdentities says whether what devices are, and what the network calls
// them, can be compared.
func (c *comparer) comparesIdentities() Identities {
	switch {
	case c.o.Structure:
		return IdentitiesIgnored
	case c.hosts == DifferentHosts:
		return IdentitiesOfOthers
	case c.old.redacted() || c.new.redacted():
		return IdentitiesRedacted
	}
	return IdentitiesCompared
}

// comparer collects what one comparison finds.
type comparer struct {
	o        Options
	old, new *side
	hosts    Hosts
	m        *matching

	identities Identities

	found   []finding
	missing []omission
	policy  []Choice
	// told holds what is reported already, by the new side's node and attribute:
	// other attributes that follow from it need no line of their own.
	told map[[2]string]bool
	// unsaid holds the same for what could not be compared.
	unsaid map[[2]string]bool
	// wireTells holds functions of the new side, with the attribute that their
	// RDMA port tells for the interface too.
	wireTells map[topo.ID]bool
	// rivals is nil where the choices of both sides cannot be compared.
	rivals *rivals
}

// finding is one difference of one node, before like ones are put together.
type finding struct {
	kind     Kind
	attr     string
	node     Node
	old, new value
	note     string
	links    [2]topo.LinkID // what got slower or faster, on both sides
}

// omission is what could not be compared of one node.
type omission struct {
	attr   string
	node   Node
	side   *side
	reason string
}

// pair is one node on both sides.
type pair[T any] struct {
	kind     topo.Kind
	old, new *T
	o, n     *topo.Node
	match    *Match
	name     string
}

// field is one attribute of a kind of node.
type field[T any] struct {
	attr string
	get  func(s *side, v *T) value
	// follows says that another difference tells this one already; nil: never.
	follows func(c *comparer, p *pair[T]) bool
}

// fields compares the attributes of one node.
func fields[T any](c *comparer, p pair[T], list []field[T]) {
	for _, f := range list {
		if !c.compares(f.attr) {
			continue
		}
		x, y := f.get(c.old, p.old), f.get(c.new, p.new)
		node := c.node(p.kind, p.o, p.n, p.match, p.name, f.attr)
		switch {
		case x.known != y.known:
			// What only one side tells to be absent is worth no line.
			if x.text+y.text != absent && (f.follows == nil || !f.follows(c, &p)) {
				c.omit(f.attr, node, x.known, p.o, p.n)
			}
		case x.known && x.key != y.key && (f.follows == nil || !f.follows(c, &p)):
			c.add(finding{kind: direction(x, y), attr: f.attr, node: node, old: x, new: y, links: wires(p.kind, p.o, p.n)})
		}
	}
}

// wires are the links that a node of a network is, so that the paths over them
// are found.
func wires(kind topo.Kind, o, n *topo.Node) [2]topo.LinkID {
	switch kind {
	case topo.KindPort:
		return [2]topo.LinkID{topo.LinkID(o.ID), topo.LinkID(n.ID)}
	case topo.KindNetdev:
		return [2]topo.LinkID{topo.LinkID("port:" + o.ID.Name()), topo.LinkID("port:" + n.ID.Name())}
	}
	return [2]topo.LinkID{}
}

// direction says whether a change is for the better, for the worse, or neither.
func direction(x, y value) Kind {
	switch {
	case x.rank == nil || y.rank == nil || *x.rank == *y.rank:
		return Changed
	case *y.rank < *x.rank:
		return Degraded
	}
	return Improved
}

// node is a node of a difference, with where the attribute was read.
func (c *comparer) node(kind topo.Kind, o, n *topo.Node, m *Match, name, attr string) Node {
	out := Node{Kind: kind, Name: name}
	if o != nil {
		out.Old, out.OldEvidence = string(o.ID), evidence(o, attr)
	}
	if n != nil {
		out.New, out.NewEvidence = string(n.ID), evidence(n, attr)
	}
	if m != nil {
		out.MatchedBy = m.By
	}
	return out
}

// add notes a difference. What the caller wants ignored still counts as told:
// what follows from it is ignored with it.
func (c *comparer) add(f finding) {
	c.told[[2]string{f.node.New, f.attr}] = true
	if c.wants(f.kind, f.attr) {
		c.found = append(c.found, f)
	}
}

// tells says whether a difference of a node's attribute is reported.
func (c *comparer) tells(id topo.ID, attr string) bool { return c.told[[2]string{string(id), attr}] }

// omit notes that only one side tells an attribute.
func (c *comparer) omit(attr string, node Node, oldTells bool, o, n *topo.Node) {
	silent, other, told := c.new, n, o
	if !oldTells {
		silent, other, told = c.old, o, n
	}
	c.omitFor(attr, node, silent, silent.silence(other, told, attr))
}

// omitFor notes that a side does not tell something, for a given reason.
func (c *comparer) omitFor(attr string, node Node, silent *side, reason string) {
	if slices.Contains(c.o.Ignore, attr) || !c.compares(attr) {
		return
	}
	c.unsaid[[2]string{node.New, attr}] = true
	c.missing = append(c.missing, omission{attr, node, silent, reason})
}

// silence says why a side does not tell an attribute that the other has: node is
// its own node, told the other side's.
func (s *side) silence(node, told *topo.Node, attr string) string {
	var fact topo.Fact
	if told != nil {
		fact, _ = told.Facts.Get(attr)
	}
	if node != nil {
		for _, w := range slices.Concat(s.warned[node.ID], s.warned[s.function[node.ID]]) {
			what, _, ok := strings.Cut(w.Detail, ": ")
			named := ok && w.Partial() && (what == attr || what != "" && strings.Contains(" "+fact.Where+" ", " "+what+" "))
			if named || w.Code == topo.CodeVanished {
				return fmt.Sprintf("%s: %s (%s)", w.Code, w.Detail, w.Evidence)
			}
		}
	}
	if s.imported {
		return "a file of another tool (" + s.t.Origin + ") does not tell"
	}
	if i := slices.IndexFunc(s.t.Sources, func(r topo.SourceReport) bool {
		return r.Source == fact.Source && r.Status != topo.StatusOK && r.Status != topo.StatusPartial
	}); i >= 0 {
		r := &s.t.Sources[i]
		return strings.TrimSuffix(fmt.Sprintf("source %s was %s: %s", r.Source, r.Status, r.Detail), ": ")
	}
	if attr == "acs" {
		return "its configuration space was not readable that far (that needs root)"
	}
	return "not in what was read"
}

// report puts like findings together and sorts them.
func (c *comparer) report() *Report {
	r := &Report{Schema: Schema, Hosts: c.hosts, Identities: c.identities, StructureOnly: c.o.Structure, Ignored: slices.Clone(c.o.Ignore),
		Old: sideOf(c.old.t, c.o.OldLabel, "old"), New: sideOf(c.new.t, c.o.NewLabel, "new"),
		Differences: c.differences(), Policy: c.policy, NotCompared: c.omissions(), Matches: c.matches()}
	slices.Sort(r.Ignored)
	r.Ignored = slices.Compact(r.Ignored)
	if r.Ignored == nil {
		r.Ignored = []string{}
	}
	if r.Policy == nil {
		r.Policy = []Choice{}
	}
	r.Equal = len(r.Differences)+len(r.Policy) == 0
	r.FingerprintsEqual = r.Old.Fingerprint == r.New.Fingerprint
	return r
}

func sideOf(t *topo.Topology, label, word string) Side {
	return Side{Label: cmp.Or(label, word), Host: t.Host.Name, Origin: t.Origin, CapturedAt: t.CapturedAt,
		Complete: t.Complete, Fingerprint: t.Host.Fingerprint}
}

// matches lists the devices of both sides that are the same.
func (c *comparer) matches() []Match {
	out := []Match{}
	for _, d := range c.old.all {
		if m := c.m.to[d.id]; m != nil {
			out = append(out, *m)
		}
	}
	slices.SortStableFunc(out, func(a, b Match) int { return topo.NaturalCompare(string(a.Old), string(b.Old)) })
	return out
}
