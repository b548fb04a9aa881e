package sources

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"unicode"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/pathsel"
)

// File is a fleet's fabric as a fabric document: the cables that were joined to hosts' ports, and those that
// were not (unjoined, as fleet.Unjoined has them). notes say what the form cannot hold.
func File(f *fleet.Fleet, unjoined []fleet.Cable) (out *pathsel.Fabric, notes []string) {
	out = &pathsel.Fabric{Schema: pathsel.SchemaFabric, RailOnly: f.RailOnly, Hosts: []pathsel.FabricHost{}}
	names := switchNames(f.Switches)
	for i := range f.Switches {
		s := &f.Switches[i]
		x := pathsel.FabricSwitch{Switch: names[s.ID], Kind: s.Kind, Model: s.Description, Tier: s.Tier}
		if x.Switch != s.ID {
			x.ID = s.ID
		}
		out.Switches = append(out.Switches, x)
	}
	slices.SortFunc(out.Switches, func(a, b pathsel.FabricSwitch) int {
		return cmp.Or(tierOf(&a)-tierOf(&b), topo.NaturalCompare(a.Switch, b.Switch))
	})
	for i := range f.Hosts {
		h := &f.Hosts[i]
		host := pathsel.FabricHost{Host: h.Host}
		for k := range h.Ports {
			if p := &h.Ports[k]; p.Known != "" {
				host.Ports = append(host.Ports, pathsel.FabricPort{Port: p.Port, Rail: p.Rail, Plane: p.Plane, Leaf: names[p.Leaf], LeafPort: p.LeafPort, Known: p.Known})
			}
		}
		if len(host.Ports) > 0 {
			out.Hosts = append(out.Hosts, host)
		}
	}
	var uneven []string
	out.Uplinks, uneven = uplinks(f.Links, names)
	if len(uneven) > 0 {
		notes = append(notes, fmt.Sprintf("links between %s and %d other pairs of switches have different rates: their rate is left out", uneven[0], len(uneven)-1))
	}
	for _, c := range unjoined {
		x := pathsel.FabricUnjoined{What: nameOf(&c), Leaf: names[c.Leaf], LeafPort: c.LeafPort, Known: c.Known, Reason: "no host of the fleet has this port"}
		if c.Host == "" {
			x.Reason = "no host of the fleet has this GUID or MAC"
			if c.Description != "" {
				x.Reason += fmt.Sprintf("; it describes itself as %q", c.Description)
			}
		}
		out.Unjoined = append(out.Unjoined, x)
	}
	slices.SortFunc(out.Unjoined, func(a, b pathsel.FabricUnjoined) int {
		return cmp.Or(topo.NaturalCompare(a.Leaf, b.Leaf), topo.NaturalCompare(a.LeafPort, b.LeafPort), topo.NaturalCompare(a.What, b.What))
	})
	return out, notes
}

// switchNames gives each switch, by ID, what a document calls it: its name, where that can be shown and no
// other switch has it, else its ID.
func switchNames(list []fleet.Switch) map[string]string {
	count := map[string]int{}
	for i := range list {
		count[list[i].Name]++
		count[list[i].ID]++
	}
	out := map[string]string{}
	for i := range list {
		s := &list[i]
		out[s.ID] = s.ID
		if count[s.Name] == 1 && showable(s.Name) {
			out[s.ID] = s.Name
		}
	}
	return out
}

// showable says whether reports can show a name.
func showable(name string) bool {
	const most = 255
	if name == "" || len(name) > most {
		return false
	}
	for _, r := range name {
		if !unicode.IsPrint(r) || r == ' ' || r == '>' || r == unicode.ReplacementChar {
			return false
		}
	}
	return true
}

// uplinks sums parallel links up; uneven are pairs whose links have several rates, or one that is not known.
func uplinks(links []fleet.Link, names map[string]string) (out []pathsel.FabricUplink, uneven []string) {
	at := map[[2]string]int{}
	for i := range links {
		l := &links[i]
		if l.Down || l.A == l.B {
			continue
		}
		key := [2]string{names[l.A], names[l.B]}
		k, ok := at[key]
		if !ok {
			at[key] = len(out)
			out = append(out, pathsel.FabricUplink{Leaf: key[0], Spine: key[1], Count: l.Count, BytesPerSec: l.BytesPerSec, Known: l.Known})
			k = len(out) - 1
			if l.Count == 1 && l.APort != "" && l.BPort != "" {
				out[k].Ports = [][2]string{{l.APort, l.BPort}}
			}
			continue
		}
		u := &out[k]
		if u.Count += l.Count; l.Count == 1 && l.APort != "" && l.BPort != "" && len(u.Ports) == u.Count-1 {
			u.Ports = append(u.Ports, [2]string{l.APort, l.BPort})
		} else {
			u.Ports = nil
		}
		if (u.BytesPerSec == nil) != (l.BytesPerSec == nil) || u.BytesPerSec != nil && *u.BytesPerSec != *l.BytesPerSec {
			u.BytesPerSec = nil
			if pair := key[0] + " - " + key[1]; !slices.Contains(uneven, pair) {
				uneven = append(uneven, pair)
			}
		}
	}
	slices.SortFunc(out, func(a, b pathsel.FabricUplink) int {
		return cmp.Or(topo.NaturalCompare(a.Leaf, b.Leaf), topo.NaturalCompare(a.Spine, b.Spine))
	})
	return out, uneven
}

// tierOf orders switches: those whose tier is not known are last.
func tierOf(s *pathsel.FabricSwitch) int {
	if s.Tier == nil {
		return math.MaxInt32
	}
	return *s.Tier
}
