package show_test

import (
	"slices"
	"testing"

	"github.com/topoctl/topoctl/internal/probe/show"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
)

func TestFigures(t *testing.T) {
	r := load(t, "local-cpu")
	at := func(id string) *probe.Result {
		i := slices.IndexFunc(r.Results, func(x probe.Result) bool { return x.ID == id })
		if i < 0 {
			t.Fatalf("no %s", id)
		}
		return &r.Results[i]
	}
	far := at("memory node17/cpu:0>node17/cpu:1 cpu copy")
	want := show.Figures{Pair: "cpu:0 > cpu:1", Class: "X", Expected: "~10.0 GB/s"}
	if got := show.FiguresOf(&far.Pair, show.Local(r), show.Options{}); got != want {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if got := show.FiguresOf(&far.Pair, false, show.Options{Units: units.Gbit}); got.Expected != "~80 Gb/s" || got.Pair != "node17/cpu:0 > node17/cpu:1" {
		t.Errorf("%+v", got)
	}
	if got := show.FiguresOf(&at("gpu node17/cpu:0>node17/gpu:0 cuda").Pair, true, show.Options{}); got.Expected != "-" {
		t.Errorf("nothing is expected: %+v", got)
	}
	var titles []string
	for _, p := range show.PairParts(nil, far, show.Options{}) {
		titles = append(titles, p.Title)
		if len(p.Lines) == 0 {
			t.Errorf("%q says nothing", p.Title)
		}
	}
	if !slices.Equal(titles, []string{"", "sizes of ops", "latency, ns", "way"}) {
		t.Errorf("%q", titles)
	}
}

func TestBlameParts(t *testing.T) {
	bad := load(t, "bad-cable")
	var titles []string
	for _, p := range show.BlameParts(&bad.Blame[0], bad, show.Options{}) {
		titles = append(titles, p.Title)
	}
	if !slices.Equal(titles, []string{"", "suspects", "evidence", "explains"}) {
		t.Errorf("%q", titles)
	}
	if show.Order(probe.Memory, probe.Port) >= 0 || show.Order("of a newer writer", probe.Port) <= 0 {
		t.Error("the order of kinds")
	}
}
