// Package diff says what differs between two topologies: two captures of one
// host, a capture and the host as it is now, or two hosts of a fleet. It finds
// out which device of one is which of the other, says what was added, removed,
// moved, renumbered, degraded or changed, and which choices of network ports
// change with it.
//
// Devices are matched by what they are (UUID, GUID, MAC, serial number), then by
// their slot (PCI address, vendor and device), then by their position in the
// tree, then by name. Two hosts that share no identity are compared by slot and
// position, and identities, names that the fabric gives and addresses are no
// differences then.
//
// What only one side has is not a difference: a capture made without root
// knows less, and so do other tools' files. It is listed in Report.NotCompared
// with the reason. These are never compared, because they move by themselves
// or say nothing about the host: times, the version of the tool, where a fact
// was read, interface and IOMMU group numbers, device file numbers, names from
// pci.ids, the current speed of a GPU's link (an idle GPU lowers it), the host's
// ends of containers' interfaces, and what is computed from other facts.
//
// The package is pure: it reads two topologies, opens nothing and has no clock.
package diff

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/compare"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/redact"
)

// Options say how two topologies are compared.
type Options struct {
	// OldLabel and NewLabel are what the report calls the two sides.
	OldLabel, NewLabel string
	// Structure leaves out what tells two machines of one model apart without
	// being their structure: identities, names, addresses, software and its
	// settings.
	Structure bool
	// Ignore lists kinds of difference and attributes to leave out, of those that Ignorable lists; another word
	// leaves out nothing.
	Ignore []string
}

// Compare says what is different in the new topology. It fails if a topology is nil or not derived: those that
// packages of topoctl read or discover are derived, others have to call Derive first. It changes neither.
func Compare(older, newer *topo.Topology, o Options) (*Report, error) {
	for _, t := range []*topo.Topology{older, newer} {
		if t == nil || t.Derived == nil {
			return nil, pkgerr.New("diff", "a topology is not derived: call Derive first")
		}
	}
	c := &comparer{o: o, old: newSide(older, "old"), new: newSide(newer, "new"), reported: map[nodeAttr]bool{}, omitted: map[nodeAttr]bool{}}
	c.hosts = compareHosts(c.old, c.new)
	c.identities = c.comparesIdentities()
	match(c.old, c.new, o.Structure || c.hosts == DifferentHosts)

	c.attributes(c.wholeHost())
	c.software()
	c.nodes(c.old.numa)
	c.nodes(c.old.packages)
	c.places()
	c.functions()
	c.nodes(c.old.bridges)
	c.links()
	for _, kind := range []topo.Kind{topo.KindGPU, topo.KindNetdev, topo.KindRDMA} {
		c.devices(kind)
	}
	c.nodes(c.old.ports)
	c.devices(topo.KindNVMe)
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
	case redact.Host(c.old.t) || redact.Host(c.new.t):
		return IdentitiesRedacted
	}
	return IdentitiesCompared
}

// comparer collects what one comparison finds.
type comparer struct {
	o        Options
	old, new *side

	hosts      Hosts
	identities Identities

	found   []finding
	missing []omission
	policy  []Choice
	// reported are the differences that the report has, because others that follow from them need
	// no line of their own; omitted is what could not be compared.
	reported, omitted map[nodeAttr]bool
	// paths is nil where the choices of both sides cannot be compared.
	paths *paths
}

// nodeAttr is a node of the new side with an attribute.
type nodeAttr struct{ id, attr string }

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
type pair struct {
	old, new *node
	match    *Match
	// kind and name are those of what stands for it in a report, with the facts of the node
	// itself and the ID of what stands for it.
	kind               topo.Kind
	name               string
	shownOld, shownNew *topo.Node
}

// pairOf is a node of the old side and its match.
func pairOf(o *node) *pair {
	n := o.other
	if o.kind != topo.KindPCI {
		return &pair{o, n, o.match, o.kind, n.name, o.Node, n.Node}
	}
	x, y := standIn(o, n)
	shownOld, shownNew := *o.Node, *n.Node
	shownOld.ID, shownNew.ID = x.ID, y.ID
	return &pair{o, n, o.match, y.kind, y.name, &shownOld, &shownNew}
}

// wholeHost are the two hosts.
func (c *comparer) wholeHost() *pair {
	o, n := c.old.host, c.new.host
	return &pair{o, n, nil, o.kind, o.name, o.Node, n.Node}
}

// standIn is what stands for a function on both sides: a device of the same kind, the switch
// whose upstream port it is, or the function itself.
func standIn(o, n *node) (x, y *node) {
	for _, kind := range deviceKinds {
		if x, y := o.device(kind), n.device(kind); x != nil && y != nil {
			return x, y
		}
	}
	if o.upstreamOf() != nil && n.upstreamOf() != nil && len(o.devices)+len(n.devices) == 0 {
		return o.face(), n.face()
	}
	return o, n
}

// face is what stands for a function: its first device, the switch whose upstream port it
// is, or the function itself.
func (n *node) face() *node {
	if len(n.devices) > 0 {
		return n.devices[0]
	}
	if sw := n.upstreamOf(); sw != nil {
		common := *n.Node
		common.ID = sw.ID
		return &node{Node: &common, side: n.side, kind: topo.KindSwitch, name: "switch " + n.name, function: n, address: n.address}
	}
	return n
}

// nodes compares the attributes of the nodes of a list that both sides have.
func (c *comparer) nodes(olds []*node) {
	for _, o := range olds {
		if o.other != nil {
			c.attributes(pairOf(o))
		}
	}
}

// attributes compares the attributes of one node.
func (c *comparer) attributes(p *pair) {
	list := rules[p.old.kind]
	for i := range list {
		r := &list[i]
		if !c.compares(r.attr) || p.match != nil && p.match.Replaced && !belongsToPlace(p.old.kind, r.attr) {
			continue
		}
		x, y := r.of(p.old), r.of(p.new)
		switch {
		case x.known != y.known:
			// That a thing is absent is worth no line where the other side does not say.
			if x.text+y.text != absent && !r.quiet && !c.followsFrom(p, r) {
				c.omit(r.attr, c.node(p, r.attr), x.known, p.shownOld, p.shownNew)
			}
		case x.known && !r.same(x, y) && !c.followsFrom(p, r):
			f := finding{kind: direction(x, y), attr: r.attr, node: c.node(p, r.attr), old: x, new: y, links: wires(p)}
			if compare.Of(r.attr).Form == compare.Label {
				f.kind, f.note = Renumbered, p.match.Why
			}
			c.add(f)
		}
	}
}

// followsFrom says whether another difference implies this one.
func (c *comparer) followsFrom(p *pair, r *rule) bool {
	for ref := range strings.FieldsSeq(r.impliedBy) {
		of, attr, qualified := strings.Cut(ref, ".")
		if !qualified {
			of, attr = "", ref
		}
		follows := false
		switch of {
		case "":
			follows = c.isReported(p.shownNew.ID, attr)
		case "host":
			follows = c.isReported(topo.ID(KindHost), attr)
		case "numa":
			follows = slices.ContainsFunc(c.new.numa, func(n *node) bool { return c.isReported(n.ID, attr) })
		case "pci":
			fn := p.new.function
			follows = fn != nil && (c.isReported(fn.ID, attr) || c.isOmitted(fn.ID, attr) || c.isOmitted(p.new.ID, "presence"))
		case "rdma":
			id, _ := p.new.attribute("rdma").(string)
			follows = c.isReported(topo.ID(id), attr) || c.isOmitted(topo.ID(id), attr)
		}
		if follows {
			return true
		}
	}
	return r.unless != nil && r.unless(c, p)
}

// wires are the links that a node of a network is, so that the paths over them
// are found.
func wires(p *pair) [2]topo.LinkID {
	switch p.kind {
	case topo.KindPort:
		return [2]topo.LinkID{topo.LinkID(p.old.ID), topo.LinkID(p.new.ID)}
	case topo.KindNetdev:
		return [2]topo.LinkID{topo.LinkID("port:" + p.shownOld.ID.Name()), topo.LinkID("port:" + p.shownNew.ID.Name())}
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
func (c *comparer) node(p *pair, attr string) Node {
	out := Node{Kind: p.kind, Name: p.name, Old: string(p.shownOld.ID), OldEvidence: evidence(p.shownOld, attr),
		New: string(p.shownNew.ID), NewEvidence: evidence(p.shownNew, attr)}
	if p.match != nil {
		out.MatchedBy = p.match.By
	}
	return out
}

// add notes a difference. What the caller wants ignored still counts as reported:
// what follows from it is ignored with it.
func (c *comparer) add(f finding) {
	c.reported[nodeAttr{f.node.New, f.attr}] = true
	if c.wants(f.kind, f.attr) {
		c.found = append(c.found, f)
	}
}

// isReported says whether a difference of a node's attribute is reported, isOmitted whether it could
// not be compared.
func (c *comparer) isReported(id topo.ID, attr string) bool {
	return c.reported[nodeAttr{string(id), attr}]
}
func (c *comparer) isOmitted(id topo.ID, attr string) bool {
	return c.omitted[nodeAttr{string(id), attr}]
}

// omit notes that only one side has an attribute.
func (c *comparer) omit(attr string, node Node, oldHas bool, o, n *topo.Node) {
	lacking, own, other := c.new, n, o
	if !oldHas {
		lacking, own, other = c.old, o, n
	}
	c.omitFor(attr, node, lacking, lacking.whyUnknown(own, other, attr))
}

// omitFor notes that a side lacks something, for a reason.
func (c *comparer) omitFor(attr string, node Node, lacking *side, reason string) {
	if slices.Contains(c.o.Ignore, attr) || !c.compares(attr) {
		return
	}
	c.omitted[nodeAttr{node.New, attr}] = true
	c.missing = append(c.missing, omission{attr, node, lacking, reason})
}

// whyUnknown says why a side lacks an attribute that the other has: own is
// its own node, other the other side's.
func (s *side) whyUnknown(own, other *topo.Node, attr string) string {
	var fact topo.Fact
	if other != nil {
		fact, _ = other.Facts.Get(attr)
	}
	if own != nil {
		warnings := s.warned[own.ID]
		if n := s.nodes[own.ID]; n != nil && n.function != nil && n.function != n {
			warnings = slices.Concat(warnings, s.warned[n.function.ID])
		} else if sw := s.index.Switch(own.ID); sw != nil {
			warnings = slices.Concat(warnings, s.warned[sw.Upstream])
		}
		for _, w := range warnings {
			what, _, ok := strings.Cut(w.Detail, ": ")
			named := ok && w.Partial() && (what == attr || what != "" && strings.Contains(" "+fact.Where+" ", " "+what+" "))
			if named || w.Code == topo.CodeVanished {
				return fmt.Sprintf("%s: %s (%s)", w.Code, w.Detail, w.Evidence)
			}
		}
	}
	if s.imported {
		return "a file of another tool (" + s.t.Origin + ") does not say"
	}
	if i := slices.IndexFunc(s.t.Sources, func(r topo.SourceReport) bool {
		return r.Source == fact.Source && r.Status != topo.StatusOK && r.Status != topo.StatusPartial
	}); i >= 0 {
		r := &s.t.Sources[i]
		return strings.TrimSuffix(fmt.Sprintf("source %s was %s: %s", r.Source, r.Status, r.Detail), ": ")
	}
	if attr == "acs" {
		return "its configuration space could not be read that far (needs root)"
	}
	return "was not read"
}

// report puts like findings together and sorts them.
func (c *comparer) report() *Report {
	r := &Report{Schema: Schema, Hosts: c.hosts, Identities: c.identities, StructureOnly: c.o.Structure,
		Ignored: append([]string{}, slices.Compact(slices.Sorted(slices.Values(c.o.Ignore)))...),
		Old:     sideOf(c.old.t, c.o.OldLabel, "old"), New: sideOf(c.new.t, c.o.NewLabel, "new"),
		Differences: c.differences(), Policy: append([]Choice{}, c.policy...), NotCompared: c.omissions(), Matches: []Match{}}
	for _, d := range c.old.devices {
		if d.match != nil {
			r.Matches = append(r.Matches, *d.match)
		}
	}
	slices.SortStableFunc(r.Matches, func(a, b Match) int { return topo.NaturalCompare(string(a.Old), string(b.Old)) })
	r.Equal = len(r.Differences)+len(r.Policy) == 0
	r.FingerprintsEqual = r.Old.Fingerprint == r.New.Fingerprint
	return r
}

func sideOf(t *topo.Topology, label, word string) Side {
	return Side{Label: cmp.Or(label, word), Host: t.Host.Name, Origin: t.Origin, CapturedAt: t.CapturedAt,
		Complete: t.Complete, Fingerprint: t.Host.Fingerprint}
}
