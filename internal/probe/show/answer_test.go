package show_test

import (
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/probe/show"
	"github.com/topoctl/topoctl/probe"
)

// The first line of every form of a report is the answer.
func TestAnswer(t *testing.T) {
	all := func(v probe.Verdict, codes ...string) func(r *probe.Report) {
		return func(r *probe.Report) {
			for i := range r.Results {
				x := &r.Results[i]
				x.Verdict, x.Reasons = v, nil
				for _, c := range codes {
					x.Reasons = append(x.Reasons, probe.Reason{Code: c, Text: c})
				}
			}
			r.Blame = nil
		}
	}
	unexpected := func(r *probe.Report) {
		for i := range r.Results {
			r.Results[i].Expected = probe.Expected{Basis: topo.BasisUnknown}
		}
	}
	for _, tt := range []struct {
		name, report string
		change       func(r *probe.Report)
		want         string
	}{
		{"well", "dgx-pair", nil, "All 64 pairs do what the topology promises: 390.1 to 394.8 Gb/s"},
		{"well, nothing expected", "dgx-pair", unexpected, "All 64 pairs do as well as each other: 390.1 to 394.8 Gb/s; nothing else is known of what to expect"},
		{"a cable", "bad-cable", nil, "1 slow cable: n3/mlx5_0 sends and receives 97.3 to 97.9 Gb/s, the others 389 to 394 Gb/s"},
		{"two faults", "bad-cable", func(r *probe.Report) {
			second := r.Blame[0]
			r.Blame[0].Pairs, second.Pairs = second.Pairs[:2], second.Pairs[2:]
			r.Blame = append(r.Blame, second)
		}, "2 faults: n3/mlx5_0 receives 97.3 to 97.6 Gb/s, the others 389 to 394 Gb/s; n3/mlx5_0 sends and receives 97.4 to 97.9 Gb/s, the others 389 to 394 Gb/s"},
		{"no part", "bad-cable", func(r *probe.Report) { r.Blame[0].Suspects = nil }, "14 of 56 pairs are far slower than expected, and no part explains it"},
		{"congestion", "bad-cable", func(r *probe.Report) {
			b := r.Blame[0]
			all(probe.Pass)(r)
			b.Kind = probe.Congestion
			r.Blame = []probe.Blame{b}
		}, "Congested, not broken: 14 pairs over wire of n3/mlx5_0 (link), slow next to other traffic and fine alone"},
		{"congestion without a part", "bad-cable", all(probe.Warn, probe.CodeContended), "All 56 pairs are slow next to other traffic, fine alone"},
		{"outliers", "bad-cable", all(probe.Warn, probe.CodeOutlier), "All 56 pairs are slower than comparable ones"},
		{"measured", "local-cpu", all(probe.Measured), "Measured 10 rates; nothing is known of what to expect"},
		{"busy", "dgx-pair", func(r *probe.Report) {
			all(probe.Pass)(r)
			for i := range 3 {
				x := &r.Results[i]
				x.Verdict, x.Reasons = probe.Inconclusive, []probe.Reason{{Code: probe.CodeBusy}}
				x.Processors = []probe.ProcessorLoad{{Host: "n1", Busy: 0.9 + 0.02*float64(i)}, {Host: "n2", Busy: 0.4}}
			}
		}, "Could not tell for 3 of 64 pairs: the measuring hosts were busy (n1 94 %)"},
		{"errors", "dgx-pair", func(r *probe.Report) {
			r.Results[3].Verdict, r.Results[3].Error = probe.Error, "n2 is gone"
		}, "1 of 64 pairs was not measured: n1/mlx5_0 > n2/mlx5_4, n2 is gone"},
		{"waived", "all-waived", nil, "No pair was measured: memory cannot be bound to NUMA nodes: operation not permitted"},
		{"no pairs", "all-waived", func(r *probe.Report) { r.Results = nil }, "No pair was measured: there is none"},
	} {
		r := load(t, tt.report)
		if tt.change != nil {
			tt.change(r)
		}
		if got := show.Answer(r, show.Options{}); got != tt.want {
			t.Errorf("%s:\n%s, want\n%s", tt.name, got, tt.want)
		}
	}
}
