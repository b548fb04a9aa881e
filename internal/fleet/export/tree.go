package export

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
)

// tree is the fleet as schedulers see networks: each host in one place, which on a fabric with rails is the
// group of leaves that its ports share. Networks for storage have no part in it.
type tree struct {
	roots   []*place
	tiers   int               // of the highest place; 0 is that of leaves
	of      map[string]*place // tier 0, by host
	outside []string          // hosts that no data port of is known to be cabled
	notes   []string
}

// place is a group of leaves (tier 0), or what switches of a tier join.
type place struct {
	name     string
	tier     int
	switches []string // names
	hosts    []string // of tier 0
	below    []*place
	above    *place
}

// treeOf finds the places. A host whose cables are swapped is where most of its ports are.
func treeOf(f *fleet.Fleet) *tree {
	t := &tree{of: map[string]*place{}}
	t.join(f, t.lowest(f))
	return t
}

// join puts places below those that switches of the tiers above join.
func (t *tree) join(f *fleet.Fleet, byLeaf map[string]*place) {
	tier, tiers := map[string]int{}, map[int]bool{}
	for i := range f.Switches {
		if n := f.Switches[i].Tier; n != nil {
			tier[f.Switches[i].ID] = *n
			tiers[*n] = true
		}
	}
	group := map[string]string{} // union-find over switches, those of a place being one
	var find func(id string) string
	find = func(id string) string {
		up, ok := group[id]
		if !ok || up == id {
			return id
		}
		group[id] = find(up)
		return group[id]
	}
	first := map[*place]string{}
	for _, leaf := range slices.SortedFunc(maps.Keys(byLeaf), topo.NaturalCompare) {
		p := byLeaf[leaf]
		if first[p] == "" {
			first[p] = leaf
		}
		group[find(leaf)] = find(first[p])
	}
	names := f.PlaceNames()
	for _, at := range slices.Sorted(maps.Keys(tiers)) {
		if at == 0 {
			continue
		}
		for i := range f.Links {
			l := &f.Links[i]
			a, okA := tier[l.A]
			b, okB := tier[l.B]
			if okA && okB && !l.Down && max(a, b) <= at && (a > 0 || byLeaf[l.A] != nil) && (b > 0 || byLeaf[l.B] != nil) {
				group[find(l.A)] = find(l.B)
			}
		}
		switches := map[string][]string{} // of this tier, by what they join
		for i := range f.Switches {
			if s := &f.Switches[i]; s.Tier != nil && *s.Tier == at {
				switches[find(s.ID)] = append(switches[find(s.ID)], s.ID)
			}
		}
		above := map[string]*place{}
		var next []*place
		for _, p := range t.roots {
			root := find(first[p])
			if len(switches[root]) == 0 {
				next = append(next, p)
				continue
			}
			up := above[root]
			if up == nil {
				up = &place{name: names.Of(fmt.Sprint("tier", at), switches[root]), tier: at}
				for _, id := range switches[root] {
					up.switches = append(up.switches, f.SwitchName(id))
				}
				above[root], next = up, append(next, up)
				first[up], t.tiers = first[p], at
			}
			p.above, up.below = up, append(up.below, p)
		}
		t.roots = next
	}
}

// lowest makes places of the fleet's groups of leaves, and gives them by leaf. Where too few hosts say which cables
// are right, groups differ by a host whose cables are swapped; such a group of leaves belongs to the one where most of
// its hosts are.
func (t *tree) lowest(f *fleet.Fleet) (byLeaf map[string]*place) {
	groupOf := map[string]int{}
	for i := range f.Groups {
		for _, leaf := range f.Groups[i].Leaves {
			groupOf[leaf] = i
		}
	}
	home := map[string]int{} // group by host
	for i := range f.Hosts {
		h := &f.Hosts[i]
		if !h.Known() {
			continue
		}
		count := map[int]int{}
		for k := range h.Ports {
			if p := &h.Ports[k]; p.Leaf != "" && p.Role == pathsel.RoleData {
				if g, ok := groupOf[p.Leaf]; ok {
					count[g]++
				}
			}
		}
		if len(count) == 0 {
			t.outside = append(t.outside, h.Host)
			continue
		}
		best := -1
		for g, n := range count {
			if best < 0 || n > count[best] || n == count[best] && g < best {
				best = g
			}
		}
		home[h.Host] = best
	}
	data := f.DataLeaves()
	into := map[int]*place{}
	for i := range f.Groups {
		p := &place{name: f.Groups[i].Group}
		for _, h := range f.Groups[i].Hosts {
			if at, ok := home[h]; ok && at == i {
				p.hosts = append(p.hosts, h)
				t.of[h] = p
			}
		}
		if len(p.hosts) > 0 {
			into[i] = p
			t.roots = append(t.roots, p)
		}
	}
	byLeaf = map[string]*place{}
	for i := range f.Groups {
		at := i
		if into[i] == nil {
			count := map[int]int{}
			at = -1
			for _, h := range f.Groups[i].Hosts {
				if g, ok := home[h]; ok {
					count[g]++
					if at < 0 || count[g] > count[at] {
						at = g
					}
				}
			}
		}
		for _, leaf := range f.Groups[i].Leaves {
			if p := into[at]; p != nil && data[leaf] {
				p.switches = append(p.switches, f.SwitchName(leaf))
				byLeaf[leaf] = p
			}
		}
	}
	slices.SortFunc(t.roots, func(a, b *place) int { return topo.NaturalCompare(a.hosts[0], b.hosts[0]) })
	slices.SortFunc(t.outside, topo.NaturalCompare)
	if len(t.outside) > 0 {
		t.notes = append(t.notes, fmt.Sprintf("%s no place in the fabric, because no data port of %s is known to be cabled: %s", text.Plural(len(t.outside), "host has", "hosts have"),
			text.Noun(len(t.outside), "it", "them"), text.List(t.outside, 8)))
	}
	if missing := f.Missing(); len(missing) > 0 {
		t.notes = append(t.notes, fmt.Sprintf("%s not in it, because %s not reached: %s", text.Plural(len(missing), "host is", "hosts are"),
			text.Noun(len(missing), "it was", "they were"), text.List(missing, 8)))
	}
	return byLeaf
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
