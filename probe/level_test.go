package probe_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
)

func TestLevel(t *testing.T) {
	fast, slow := topo.Rate(50e9), topo.Rate(25e9)
	top := &topo.Topology{}
	add := func(kind topo.LinkKind, basis topo.Basis, rate *topo.Rate, ids ...topo.LinkID) {
		for _, id := range ids {
			top.Links = append(top.Links, topo.Link{ID: id, Kind: kind, BytesPerSec: rate, Basis: basis})
		}
	}
	add(topo.LinkPort, topo.BasisRead, &fast, "well", "enough", "faster", "a", "b", "c", "lone", "far")
	add(topo.LinkPort, topo.BasisRead, &slow, "other rate")
	add(topo.LinkPort, topo.BasisUnknown, nil, "open", "open too")
	add(topo.LinkPCIe, topo.BasisRead, &fast, "pcie", "slow pcie") // 45.3e9 without headers
	add(topo.LinkSocket, topo.BasisConstant, &slow, "socket")
	got := probe.Level(topo.Overlay{"well": 49e9, "enough": 46.5e9, "faster": 53e9, "a": 46e9, "b": 45e9, "c": 44e9, "lone": 30e9, "far": 80e9,
		"other rate": 20e9, "open": 10e9, "open too": 9.8e9, "pcie": 43e9, "slow pcie": 40e9, "socket": 24.9e9, "gone": 1}, top)
	want := topo.Overlay{"a": 45e9, "b": 45e9, "c": 45e9, "lone": 30e9, "far": 80e9,
		"other rate": 20e9, "open": 9.9e9, "open too": 9.9e9, "slow pcie": 40e9, "socket": 24.9e9}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := probe.Level(nil, top); len(got) != 0 {
		t.Error(got)
	}
}

// A port that was measured and is well is neither before nor behind its equals that
// were not; one that is slow comes last.
func TestLevelledPortsEqualOthers(t *testing.T) {
	host := discoverFixture(t, "dgx-h100")
	first := func(rates topo.Overlay) []pathsel.Candidate {
		h, err := pathsel.New(host, pathsel.Options{Overlay: probe.Level(rates, host)})
		if err != nil {
			t.Fatal(err)
		}
		a, err := h.Affinity("cpu:0", nil)
		if err != nil {
			t.Fatal(err)
		}
		return a.Ranked
	}
	names := func(list []pathsel.Candidate) (out []string) {
		for i := range list {
			out = append(out, string(list[i].Port))
		}
		return out
	}
	unmeasured := first(nil)
	best := topo.LinkID(unmeasured[0].Port)
	if diff := cmp.Diff(names(unmeasured), names(first(topo.Overlay{best: 48.8e9}))); diff != "" {
		t.Errorf("measured and well: (-before +after)\n%s", diff)
	}
	if got := names(first(topo.Overlay{best: 12e9})); got[0] == string(best) {
		t.Errorf("a slow port comes first: %v", got)
	}
}
