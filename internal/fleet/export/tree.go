package export

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
)

// tree is the fleet as schedulers see networks: each host in one place, which on a fabric with rails is the
// group of leaves that its ports share. Networks for storage have no part in it.
type tree struct {
	roots   []*place
	tiers   int               // of the highest place; 0 is that of leaves
	of      map[string]*place // tier 0, by host
	outside []string          // hosts without a data port that is known to be cabled
	notes   []string
}

// place is a group of leaves (tier 0), or what switches of a tier join.
type place struct {
	name     string
	tier     int
	leaf     string   // the ID of one of the leaves in it or below it
	switches []string // names
	hosts    []string // of tier 0
	below    []*place
	above    *place
}

// sets are disjoint sets of switches. Each switch leads to another one of its set, except for the representative.
type sets map[string]string

func (s sets) of(id string) string {
	if s[id] == "" {
		return id
	}
	s[id] = s.of(s[id])
	return s[id]
}

func (s sets) join(a, b string) {
	if a, b = s.of(a), s.of(b); a != b {
		s[a] = b
	}
}

// treeOf finds the places. A host whose cables are swapped is where most of its ports are.
func treeOf(f *fleet.Fleet) *tree {
	t := &tree{of: map[string]*place{}}
	byLeaf := t.lowest(f)
	joined := sets{}
	for leaf, p := range byLeaf {
		p.leaf = cmp.Or(p.leaf, leaf)
		joined.join(leaf, p.leaf)
	}
	tier, highest := map[string]int{}, 0
	for i := range f.Switches {
		if s := &f.Switches[i]; s.Tier != nil {
			tier[s.ID], highest = *s.Tier, max(highest, *s.Tier)
		}
	}
	for at := 1; at <= highest; at++ {
		reached := func(id string) bool {
			n, known := tier[id]
			return known && n <= at && (n > 0 || byLeaf[id] != nil)
		}
		for i := range f.Links {
			if l := &f.Links[i]; !l.Down && reached(l.A) && reached(l.B) {
				joined.join(l.A, l.B)
			}
		}
		switches := map[string][]string{} // of this tier, by the set that they are of
		for i := range f.Switches {
			if s := &f.Switches[i]; s.Tier != nil && *s.Tier == at {
				switches[joined.of(s.ID)] = append(switches[joined.of(s.ID)], s.ID)
			}
		}
		t.raise(f, at, joined, switches)
	}
	return t
}

// raise puts the topmost places below those that switches of a tier make by joining them.
func (t *tree) raise(f *fleet.Fleet, tier int, joined sets, switches map[string][]string) {
	names := f.PlaceNames()
	above := map[string]*place{}
	var roots []*place
	for _, p := range t.roots {
		set := joined.of(p.leaf)
		if len(switches[set]) == 0 {
			roots = append(roots, p)
			continue
		}
		up := above[set]
		if up == nil {
			up = &place{name: names.Of(fmt.Sprint("tier", tier), switches[set]), tier: tier, leaf: p.leaf}
			for _, id := range switches[set] {
				up.switches = append(up.switches, f.SwitchName(id))
			}
			above[set], roots = up, append(roots, up)
			t.tiers = tier
		}
		p.above, up.below = up, append(up.below, p)
	}
	t.roots = roots
}

// lowest makes places of the fleet's groups of leaves, and returns them by leaf. If too few hosts show which cables are
// right, a host with swapped cables splits a group; its leaves then belong to the place where most of their hosts are.
func (t *tree) lowest(f *fleet.Fleet) (byLeaf map[string]*place) {
	groupOf := map[string]int{} // by leaf
	for i := range f.Groups {
		for _, leaf := range f.Groups[i].Leaves {
			groupOf[leaf] = i
		}
	}
	home := map[string]int{} // the group of a host
	places := make([]*place, len(f.Groups))
	for i := range f.Hosts {
		h := &f.Hosts[i]
		if !h.Known() {
			continue
		}
		var on []int
		for k := range h.Ports {
			if g, ok := groupOf[h.Ports[k].Leaf]; ok && h.Ports[k].Role == pathsel.RoleData {
				on = append(on, g)
			}
		}
		if len(on) == 0 {
			t.outside = append(t.outside, h.Host)
			continue
		}
		g := commonest(on)
		if places[g] == nil {
			places[g] = &place{name: f.Groups[g].Group}
			t.roots = append(t.roots, places[g])
		}
		places[g].hosts = append(places[g].hosts, h.Host)
		home[h.Host], t.of[h.Host] = g, places[g]
	}
	data := f.DataLeaves()
	byLeaf = map[string]*place{}
	for i := range f.Groups {
		p := places[i]
		if p == nil {
			var homes []int
			for _, h := range f.Groups[i].Hosts {
				if g, ok := home[h]; ok {
					homes = append(homes, g)
				}
			}
			if len(homes) == 0 {
				continue
			}
			p = places[commonest(homes)]
		}
		for _, leaf := range f.Groups[i].Leaves {
			if data[leaf] {
				p.switches = append(p.switches, f.SwitchName(leaf))
				byLeaf[leaf] = p
			}
		}
	}
	slices.SortFunc(t.roots, func(a, b *place) int { return topo.NaturalCompare(a.hosts[0], b.hosts[0]) })
	slices.SortFunc(t.outside, topo.NaturalCompare)
	if n := len(t.outside); n > 0 {
		t.notes = append(t.notes, fmt.Sprintf("%s no place in the fabric, because no data port of %s is known to be cabled: %s",
			text.Plural(n, "host has", "hosts have"), text.Noun(n, "it", "them"), text.List(t.outside, 8)))
	}
	if missing := f.Missing(); len(missing) > 0 {
		t.notes = append(t.notes, fmt.Sprintf("%s not in it, because %s not reached: %s",
			text.Plural(len(missing), "host is", "hosts are"), text.Noun(len(missing), "it was", "they were"), text.List(missing, 8)))
	}
	return byLeaf
}

// commonest is the number that a list has most often, and of several such the lowest.
func commonest(list []int) int {
	slices.Sort(list)
	runs := group.By(list, func(n int) int { return n })
	return slices.MaxFunc(runs, func(a, b []int) int { return len(a) - len(b) })[0]
}

// all are the places from the lowest tier up.
func (t *tree) all() []*place {
	var out []*place
	var walk func(list []*place)
	walk = func(list []*place) {
		for _, p := range list {
			out = append(out, p)
			walk(p.below)
		}
	}
	walk(t.roots)
	slices.SortStableFunc(out, func(a, b *place) int { return a.tier - b.tier })
	return out
}

// names are the names of the places in a format.
func (t *tree) names(n *namer) map[*place]string {
	out := map[*place]string{}
	for _, p := range t.all() {
		out[p] = n.name(p.name)
	}
	return out
}

// about names the switches of a place for a comment.
func (p *place) about() string {
	slices.SortFunc(p.switches, topo.NaturalCompare)
	return fmt.Sprintf("%s: %s", text.Noun(len(p.switches), "switch", "switches"), strings.Join(p.switches, ", "))
}
