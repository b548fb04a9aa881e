package probe_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/probe"
)

func TestLevel(t *testing.T) {
	fast, slow := topo.Rate(50e9), topo.Rate(25e9)
	top := &topo.Topology{}
	for id, rate := range map[topo.LinkID]*topo.Rate{"a": &fast, "b": &fast, "c": &fast, "d": &fast, "e": &slow, "f": nil, "g": nil} {
		top.Links = append(top.Links, topo.Link{ID: id, Kind: topo.LinkPort, BytesPerSec: rate})
	}
	top.Links = append(top.Links, topo.Link{ID: "h", Kind: topo.LinkPCIe, BytesPerSec: &fast})
	got := probe.Level(topo.Overlay{"a": 49e9, "b": 48e9, "c": 47e9, "d": 30e9, "e": 24e9, "f": 10e9, "g": 9.8e9, "h": 49.5e9, "gone": 1}, top)
	want := topo.Overlay{"a": 48e9, "b": 48e9, "c": 48e9, "d": 30e9, "e": 24e9, "f": 9.9e9, "g": 9.9e9, "h": 49.5e9}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := probe.Level(nil, top); len(got) != 0 {
		t.Error(got)
	}
}
