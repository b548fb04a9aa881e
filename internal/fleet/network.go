package fleet

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

// anyHost stands in a fabric file for every host without an entry of its own.
const anyHost = "*"

// KnownByFile is the source of cables that a fabric file lists.
const KnownByFile = "fabric file"

// FromFabric makes a network of a topoctl.fabric/v1 document. The ID of a switch is the one in the document, or else its
// name.
func FromFabric(f *pathsel.Fabric, source string) *Network {
	n := &Network{Source: source, RailOnly: f.RailOnly}
	said := map[string]*pathsel.FabricSwitch{}
	for i := range f.Switches {
		said[f.Switches[i].Switch] = &f.Switches[i]
	}
	id := func(name string) string {
		if s := said[name]; s != nil && s.ID != "" {
			return s.ID
		}
		return name
	}
	tier := map[string]*int{} // by name
	for name, s := range said {
		tier[name] = s.Tier
	}
	enter := func(name string) {
		if _, ok := tier[name]; !ok {
			tier[name] = nil
		}
	}
	leaf := func(name string) {
		if tier[name] == nil {
			tier[name] = new(int)
		}
	}
	for _, h := range f.Hosts {
		for _, p := range h.Ports {
			at := ""
			if p.Leaf != "" {
				at = id(p.Leaf)
				leaf(p.Leaf)
			}
			n.Cables = append(n.Cables, Cable{Host: h.Host, Port: p.Port, Rail: p.Rail, Plane: p.Plane, Leaf: at, LeafPort: p.LeafPort, Known: cmp.Or(p.Known, KnownByFile)})
		}
	}
	above := map[string]bool{}
	for _, u := range f.Uplinks {
		enter(u.Spine)
		above[u.Spine] = true
	}
	for _, u := range f.Uplinks {
		if enter(u.Leaf); !above[u.Leaf] {
			leaf(u.Leaf)
		}
		l := Link{A: id(u.Leaf), B: id(u.Spine), BytesPerSec: u.BytesPerSec, Count: u.Links(), Known: cmp.Or(u.Known, KnownByFile)}
		if len(u.Ports) == 0 {
			n.Links = append(n.Links, l)
		}
		for _, ends := range u.Ports {
			l.APort, l.BPort, l.Count = ends[0], ends[1], 1
			n.Links = append(n.Links, l)
		}
	}
	unjoined := map[string]int{}
	for _, u := range f.Unjoined {
		if u.Leaf != "" {
			leaf(u.Leaf)
			unjoined[u.Leaf]++
		}
	}
	for name, t := range tier {
		s := Switch{ID: id(name), Tier: t, UnjoinedPorts: unjoined[name]}
		if s.ID != name {
			s.Name = name
		}
		if x := said[name]; x != nil {
			s.Kind, s.Description = x.Kind, x.Model
		}
		n.Switches = append(n.Switches, s)
	}
	n.SetTiers()
	return n
}

// SetTiers sets the tier of each switch to its distance from the leaves, which have tier 0, and turns links so that A is
// the lower end. Known tiers stay; a switch that no link leads to keeps an unknown tier.
func (n *Network) SetTiers() {
	switches, near := map[string]*Switch{}, map[*Switch][]*Switch{}
	levels := map[int][]*Switch{} // by tier
	for i := range n.Switches {
		s := &n.Switches[i]
		if switches[s.ID] = s; s.Tier != nil {
			levels[*s.Tier] = append(levels[*s.Tier], s)
		}
	}
	for i := range n.Links {
		if a, b := switches[n.Links[i].A], switches[n.Links[i].B]; a != nil && b != nil {
			near[a], near[b] = append(near[a], b), append(near[b], a)
		}
	}
	for len(levels) > 0 {
		tier := slices.Min(slices.Collect(maps.Keys(levels)))
		up := tier + 1
		for _, s := range levels[tier] {
			for _, above := range near[s] {
				if above.Tier == nil {
					above.Tier = &up
					levels[up] = append(levels[up], above)
				}
			}
		}
		delete(levels, tier)
	}
	for i := range n.Links {
		l := &n.Links[i]
		a, b := switches[l.A], switches[l.B]
		if a != nil && b != nil && a.Tier != nil && b.Tier != nil && *a.Tier > *b.Tier {
			l.A, l.APort, l.B, l.BPort = l.B, l.BPort, l.A, l.APort
		}
	}
}

// network is the network that the document already contains, nil if there is none.
func (f *Fleet) network() *Network {
	n := &Network{RailOnly: f.RailOnly, Switches: f.Switches, Links: f.Links}
	for h, p := range f.Ports() {
		if p.Known != "" {
			n.Cables = append(n.Cables, Cable{Host: h.Host, Port: p.Port, Rail: p.Rail, Plane: p.Plane, Leaf: p.Leaf,
				LeafPort: p.LeafPort, Description: p.Description, Known: p.Known})
		}
	}
	if len(n.Switches)+len(n.Cables) == 0 {
		return nil
	}
	return n
}

const linkEthernet = "Ethernet"

// join sets where each port is cabled to. It returns the cables for which no host has a port.
func (f *Fleet) join(n *Network) (unmatched []Cable) {
	byPort, byNode, byMAC, byName := map[string]*Port{}, map[string]*Port{}, map[string]*Port{}, map[[2]string]*Port{}
	generic, called := map[*Port]bool{}, map[string]int{}
	for i := range f.Hosts {
		h := &f.Hosts[i]
		called[h.Host]++
		if h.Name != h.Host {
			called[h.Name]++
		}
	}
	for i := range f.Hosts {
		h := &f.Hosts[i]
		names := namesOf(h, called)
		for j := range h.Ports {
			p := &h.Ports[j]
			p.Rail, p.Plane, p.Leaf, p.LeafPort, p.Known, p.Description = nil, nil, "", "", "", ""
			if p.LinkLayer != linkEthernet { // no subnet has the GUIDs of Ethernet ports
				addUnique(byPort, p.GUID, p)
				addUnique(byNode, p.NodeGUID, p)
			}
			addUnique(byMAC, strings.ToLower(p.MAC), p)
			for _, host := range names {
				for _, name := range []string{p.Port, p.Device, p.Netdev} {
					if at := [2]string{host, name}; name != "" && byName[at] == nil {
						byName[at] = p
					}
				}
			}
		}
	}
	for i := range n.Cables {
		c := &n.Cables[i]
		if c.Host == anyHost {
			continue
		}
		p := byName[[2]string{c.Host, c.Port}]
		for _, by := range []struct {
			ports map[string]*Port
			key   string
		}{{byMAC, strings.ToLower(c.MAC)}, {byNode, c.GUID}, {byNode, c.NodeGUID}, {byPort, c.GUID}} { // the last one counts
			if found := by.ports[by.key]; by.key != "" && found != nil {
				p = found
			}
		}
		if p == nil {
			unmatched = append(unmatched, *c)
			continue
		}
		p.cabled(c)
	}
	for i := range n.Cables {
		c := &n.Cables[i]
		if c.Host != anyHost {
			continue
		}
		for j := range f.Hosts {
			if p := byName[[2]string{f.Hosts[j].Host, c.Port}]; p != nil && (p.Known == "" || generic[p]) {
				generic[p] = true
				p.cabled(c)
			}
		}
	}
	return unmatched
}

// namesOf are what a fabric file may call a host: its name in the fleet, and what it calls itself where no
// other host is called so.
func namesOf(h *Host, called map[string]int) []string {
	if h.Name == "" || h.Name == h.Host || called[h.Name] > 1 {
		return []string{h.Host}
	}
	return []string{h.Host, h.Name}
}

// Unjoined are the cables of the network for which no host has a port.
func (f *Fleet) Unjoined() []Cable { return f.unjoined }

// addUnique enters a port by an identity. An identity of two ports identifies neither.
func addUnique(m map[string]*Port, key string, p *Port) {
	if key == "" {
		return
	}
	if _, ok := m[key]; ok {
		p = nil
	}
	m[key] = p
}

func (p *Port) cabled(c *Cable) {
	p.Rail, p.Plane, p.Leaf, p.LeafPort, p.Description = c.Rail, c.Plane, c.Leaf, c.LeafPort, c.Description
	p.Known = cmp.Or(c.Known, "unknown source")
}

// sortNetwork puts switches and links in the order of a document.
func (f *Fleet) sortNetwork() {
	slices.SortFunc(f.Switches, func(a, b Switch) int { return topo.NaturalCompare(a.ID, b.ID) })
	slices.SortFunc(f.Links, func(a, b Link) int {
		return cmp.Or(topo.NaturalCompare(a.A, b.A), topo.NaturalCompare(a.B, b.B), topo.NaturalCompare(a.APort, b.APort), topo.NaturalCompare(a.BPort, b.BPort))
	})
}

// SwitchName is what people call a switch.
func (f *Fleet) SwitchName(id string) string {
	if s := f.switchOf(id); s != nil && s.Name != "" {
		return s.Name
	}
	return id
}

func (f *Fleet) switchOf(id string) *Switch {
	if i, ok := slices.BinarySearchFunc(f.Switches, id, func(s Switch, id string) int { return topo.NaturalCompare(s.ID, id) }); ok {
		return &f.Switches[i]
	}
	return nil
}
