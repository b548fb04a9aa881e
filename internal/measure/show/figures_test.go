package show_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/internal/measure/show"
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
	want := show.Figures{Pair: "cpu:0 > cpu:1", Of: "memory by cpu, copy", Class: "X", Rate: "9.4 GB/s", Interval: "±0.5 %", Expected: "~10.0 GB/s", Efficiency: "94 %", Latency: "180 / 233 ns"}
	if got := show.FiguresOf(far, show.Local(r), show.Options{}); got != want {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if got := show.FiguresOf(far, false, show.Options{ASCII: true, Units: units.Gbit}); got.Interval != "+-0.5 %" || got.Rate != "75.5 Gb/s" || got.Pair != "node17/cpu:0 > node17/cpu:1" {
		t.Errorf("%+v", got)
	}
	waived := show.FiguresOf(at("gpu node17/cpu:0>node17/gpu:0 cuda"), true, show.Options{})
	if waived.Rate != "-" || waived.Interval != "-" || waived.Expected != "-" || waived.Efficiency != "-" || waived.Latency != "-" || !strings.Contains(waived.Reason, "libcuda") {
		t.Errorf("not measured: %+v", waived)
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

// A report's summary says what is missing, and of whom.
func TestSummaryParts(t *testing.T) {
	r := load(t, "interrupted")
	r.Hosts[0].Error = "it went away"
	parts := show.SummaryParts(r, show.Options{})
	if len(parts[0].Lines) != 2 || !strings.HasPrefix(parts[0].Lines[1], "incomplete: ") || parts[1].Title != "hosts" || !strings.HasSuffix(parts[1].Lines[0], ": it went away") {
		t.Errorf("%q", parts)
	}
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
