package diff

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
)

// effects finds the paths that got slower with some links that got worse, or
// faster with links that got better: those that these links limit.
func (c *comparer) effects(d *Difference, links [][2]topo.LinkID) {
	if c.rivals == nil || d.Kind != Degraded && d.Kind != Improved {
		return
	}
	r := c.rivals
	hit := map[int]bool{}
	for _, l := range links {
		key := l[1]
		if d.Kind == Improved {
			key = "old " + l[0]
		}
		for _, i := range r.byLimit[key] {
			hit[i] = hit[i] || r.paths[i].better == (d.Kind == Improved)
		}
	}
	var list []*pathPair
	for i := range r.paths {
		if hit[i] {
			list = append(list, &r.paths[i])
		}
	}
	if len(list) == 0 {
		return
	}
	before := func(p *pathPair) bool { return p.oldBest && d.Kind == Degraded || p.newBest && d.Kind == Improved }
	slices.SortStableFunc(list, func(a, b *pathPair) int {
		return cmp.Or(falseLast(before(a), before(b)), falseLast(a.gpu, b.gpu))
	})
	seen := map[string]bool{}
	for _, p := range list {
		if !seen[p.NewLocation] {
			seen[p.NewLocation] = true
			d.Paths = append(d.Paths, p.Path)
		}
	}
	d.PathsAffected = len(list)
	first := list[0]
	d.Effect = fmt.Sprintf("expected %s -> %s %s", first.NewLocation, first.newName, rates(*first.OldBytesPerSec, *first.NewBytesPerSec))
	if more := len(list) - 1; more > 0 {
		d.Effect += fmt.Sprintf(" (and %d more %s)", more, plural(more, "path"))
	}
}

func falseLast(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// consequence says what a difference means for those who set hosts up.
func (c *comparer) consequence(d *Difference) {
	many := len(d.Nodes) > 1
	switch {
	case d.Kind == Renumbered && (d.Attribute == "name" || d.Attribute == "index") && c.hosts == DifferentHosts:
		d.Effect = "settings that name " + d.Old + " fit one host only"
	case d.Kind == Renumbered && (d.Attribute == "name" || d.Attribute == "index"):
		d.Effect = fmt.Sprintf("same device under a new name: settings that name %s must be changed", d.Old)
		if many {
			d.Effect = "same devices under new names: settings that name them must be changed"
		}
		if users := c.preferredBy(d); users != "" {
			d.Effect += "; preferred by " + users
		}
	case d.Kind == Renumbered && d.Attribute == "pci_address":
		d.Effect = "same slot: settings that name the address must be changed"
	case d.Kind == Renumbered && d.Attribute == "nvml_index":
		d.Effect = "settings that count GPUs as NVML does must be changed"
	case d.Attribute == "gid_index" && c.hosts == DifferentHosts:
		d.Effect = "no one setting of the GID index fits both hosts"
	case d.Attribute == "gid_index":
		d.Effect = "settings that name the GID index must be changed"
	}
}

// preferredBy lists the locations that prefer a renamed NIC.
func (c *comparer) preferredBy(d *Difference) string {
	if c.rivals == nil || d.Nodes[0].Kind != topo.KindRDMA && d.Nodes[0].Kind != topo.KindNetdev {
		return ""
	}
	used := map[string]bool{}
	for _, n := range d.Nodes {
		for _, l := range c.rivals.users[topo.ID(n.New)] {
			used[l] = true
		}
	}
	var users []string
	for _, l := range c.rivals.locations {
		if used[string(l.new)] {
			users = append(users, string(l.new))
		}
	}
	return names(users)
}
