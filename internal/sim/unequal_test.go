package sim

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

// unequalPair is two hosts on leaves of their own, a port each, and three spines: 20 GB/s links, one each,
// but for what is unequal, where no links take the pair out of the list.
func unequalPair(t *testing.T, unequal ...Uplink) (*Cluster, End, End) {
	t.Helper()
	k := kind(t, "dgx-h100")
	port := k.DataPorts()[0]
	f := &Fabric{Leaves: 2, Spines: 3, Cables: []Cable{{Host: 0, Port: port, Leaf: 0, Rail: -1}, {Host: 1, Port: port, Leaf: 1, Rail: -1}}}
	for at := range f.Leaves * f.Spines {
		u := Uplink{at / f.Spines, at % f.Spines, 1, 20 * gb}
		if i := slices.IndexFunc(unequal, func(x Uplink) bool { return x.Leaf == u.Leaf && x.Spine == u.Spine }); i >= 0 {
			u = unequal[i]
		}
		if u.Links > 0 {
			f.Uplinks = append(f.Uplinks, u)
		}
	}
	return build(t, Spec{Hosts: named(2, k), Fabric: f}), End{Host: 0, Port: port}, End{Host: 1, Port: port}
}

// spines counts the spines that connections of 600 entropies cross.
func spines(t *testing.T, c *Cluster, a, b End) [3]int {
	t.Helper()
	var out [3]int
	for e := range uint64(600) {
		path, err := c.Path(a, b, e)
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for _, l := range path {
			if leaf, spine, number, _, ok := uplinks(c, l); ok {
				out[spine]++
				seen++
				if links := c.joined[[2]int{leaf, spine}].links; number >= links {
					t.Fatalf("link %d of %d of leaf %d and spine %d", number, links, leaf, spine)
				}
			}
		}
		if seen != 2 {
			t.Fatalf("%d links of the fabric: %v", seen, path)
		}
	}
	return out
}

func TestUnequalUplinks(t *testing.T) {
	// The first leaf has three links to spine 1 and none to spine 2: one draw in four takes spine 0.
	c, a, b := unequalPair(t, Uplink{0, 1, 3, 10 * gb}, Uplink{0, 2, 0, 0})
	got := spines(t, c, a, b)
	if got[2] != 0 || got[0] < 2*600/4*8/10 || got[0] > 2*600/4*12/10 {
		t.Errorf("up and down links by spine: %v, want 300, 900 and none", got)
	}
	// The other way each spine that is left is as good as the other: the second leaf has one link to each.
	if got := spines(t, c, b, a); got[2] != 0 || got[0] < 600*9/10 || got[0] > 600*11/10 {
		t.Errorf("back, by spine: %v, want 600 and 600", got)
	}
	ten, twenty := 10*gb, 20*gb
	want := []pathsel.FabricUplink{{Leaf: "leaf0", Spine: "spine0", Count: 1, BytesPerSec: &twenty}, {Leaf: "leaf0", Spine: "spine1", Count: 3, BytesPerSec: &ten},
		{Leaf: "leaf1", Spine: "spine0", Count: 1, BytesPerSec: &twenty}, {Leaf: "leaf1", Spine: "spine1", Count: 1, BytesPerSec: &twenty}, {Leaf: "leaf1", Spine: "spine2", Count: 1, BytesPerSec: &twenty}}
	if diff := cmp.Diff(want, c.File().Uplinks); diff != "" {
		t.Errorf("fabric file (-want +got)\n%s", diff)
	}
	for _, tt := range []struct {
		spine, links int
		rate         topo.Rate
	}{{0, 1, 20 * gb}, {1, 3, 10 * gb}, {2, 0, 0}} {
		b := c.joined[[2]int{0, tt.spine}]
		if b.links != tt.links {
			t.Fatalf("spine %d: %d links, want %d", tt.spine, b.links, tt.links)
		}
		for i := range tt.links {
			if rate, ok := c.Rate(b.up + Link(i)); !ok || rate != tt.rate {
				t.Errorf("link %d to spine %d carries %d, want %d", i, tt.spine, rate, tt.rate)
			}
		}
	}
	// A flow is bounded by the link that it crosses.
	f, err := c.Move(Transfer{From: a, To: b, Bytes: Endless})
	if err != nil || f.BytesPerSec() != 20*gb && f.BytesPerSec() != 10*gb {
		t.Errorf("%d bytes/s over a link of 20 or 10 GB/s (%v)", f.BytesPerSec(), err)
	}
}

func TestUnequalRefuses(t *testing.T) {
	c, a, b := unequalPair(t, Uplink{0, 0, 0, 0}, Uplink{0, 1, 0, 0}, Uplink{1, 2, 0, 0})
	if _, err := c.Path(a, b, 0); err == nil || !strings.Contains(err.Error(), "no spine connects leaf0 and leaf1") {
		t.Errorf("leaves without a common spine: %v", err)
	}
	for _, bad := range [][]Uplink{{{2, 0, 1, 1}}, {{0, 3, 1, 1}}, {{-1, 0, 1, 1}}, {{0, 0, 0, 1}}, {{0, 0, 1, -1}}, {{0, 0, 1, 1}, {0, 0, 2, 1}}, {{0, 0, 1 << 21, 1}}} {
		if _, err := New(Spec{Hosts: named(1, kind(t, "dgx-h100")), Fabric: &Fabric{Leaves: 2, Spines: 3, Uplinks: bad}}); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}
