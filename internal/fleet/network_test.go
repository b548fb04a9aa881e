package fleet_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/pathsel"
)

// In a file written by hand, a switch above spines is in a tier of its own, wherever its links stand; what the file says
// of tiers counts.
func TestTiersOfFile(t *testing.T) {
	up := func(leaf, spine string) pathsel.FabricUplink { return pathsel.FabricUplink{Leaf: leaf, Spine: spine} }
	seven := 7
	n := fleet.FromFabric(&pathsel.Fabric{
		Hosts:    []pathsel.FabricHost{{Host: "n1", Ports: []pathsel.FabricPort{{Port: "p", Leaf: "l0"}}}},
		Uplinks:  []pathsel.FabricUplink{up("s1", "core"), up("s0", "core"), up("l0", "s0"), up("l1", "s1"), up("x0", "x1"), up("core", "said"), up("said", "above")},
		Switches: []pathsel.FabricSwitch{{Switch: "said", Tier: &seven}, {Switch: "lonely"}},
	}, "file")
	want := map[string]int{"l0": 0, "l1": 0, "s0": 1, "s1": 1, "core": 2, "x0": 0, "x1": 1, "said": 7, "above": 8, "lonely": -1}
	for _, s := range n.Switches {
		tier := -1
		if s.Tier != nil {
			tier = *s.Tier
		}
		if tier != want[s.ID] {
			t.Errorf("%s: tier %d, want %d", s.ID, tier, want[s.ID])
		}
		delete(want, s.ID)
	}
	if len(want) > 0 {
		t.Errorf("not there: %v", want)
	}
}

// However links are listed, a tier that is counted is one above the lowest neighbour's, and every link leads up.
func TestSetTiers(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		count := rapid.IntRange(1, 12).Draw(rt, "switches")
		n, given := &fleet.Network{}, map[string]bool{}
		for i := range count {
			s := fleet.Switch{ID: fmt.Sprint("s", i)}
			if tier := rapid.IntRange(-3, 4).Draw(rt, "tier"); tier >= 0 {
				s.Tier, given[s.ID] = &tier, true
			}
			n.Switches = append(n.Switches, s)
		}
		at := rapid.IntRange(0, count) // one more than there are: a link to a switch that is not listed
		for range rapid.IntRange(0, 30).Draw(rt, "links") {
			n.Links = append(n.Links, fleet.Link{A: fmt.Sprint("s", at.Draw(rt, "a")), B: fmt.Sprint("s", at.Draw(rt, "b")), Count: 1})
		}
		n.SetTiers()
		tier := map[string]*int{}
		for _, s := range n.Switches {
			tier[s.ID] = s.Tier
		}
		for _, s := range n.Switches {
			var lowest *int
			for _, l := range n.Links {
				for _, ends := range [][2]string{{l.A, l.B}, {l.B, l.A}} {
					if x := tier[ends[1]]; ends[0] == s.ID && ends[1] != s.ID && x != nil && (lowest == nil || *x < *lowest) {
						lowest = x
					}
				}
			}
			switch {
			case given[s.ID]:
			case (s.Tier == nil) != (lowest == nil), s.Tier != nil && *s.Tier != *lowest+1:
				rt.Fatalf("%s: tier %v, lowest neighbour %v", s.ID, s.Tier, lowest)
			}
		}
		for _, l := range n.Links {
			if a, b := tier[l.A], tier[l.B]; a != nil && b != nil && *a > *b {
				rt.Fatalf("%+v leads down", l)
			}
		}
	})
}
