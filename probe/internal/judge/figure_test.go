package judge_test

import (
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/internal/judge"
)

// Of a sweep that was stopped there are the small sizes: no wire is held to those.
func TestSmallerSizesAreNotJudged(t *testing.T) {
	r := oneOf(1, 0.001, topo.BasisRead, 0, 0)
	r.Complete, r.Spec.SizesBytes = false, []int64{4096, 1 << 20}
	judge.Judge(r)
	if x := &r.Results[0]; x.Verdict != probe.Inconclusive || codes(x) != "not-measured" || len(r.Blame) != 0 {
		t.Errorf("%s (%s), blame %v", x.Verdict, codes(x), r.Blame)
	}
}

// A retest that gave no rate neither confirms that a rate is low nor takes it back.
func TestRetestWithoutARate(t *testing.T) {
	p := probe.NewPercentiles([]int64{1000, 1100})
	for name, m := range map[string]probe.Measurement{
		"no sample in time": {Bandwidth: []probe.Bandwidth{{SizeBytes: 4096, Stopped: probe.StoppedTime}}},
		"latency only":      {Latency: &probe.Latency{SizeBytes: 8, RTT: p, OneWay: p.Half()}},
	} {
		for _, slow := range []struct {
			mean float64
			want probe.Verdict
		}{{60, probe.Fail}, {85, probe.Warn}} {
			r := oneOf(slow.mean, 0.5, topo.BasisRead, 2, 100)
			judge.Verdicts(r)
			again := judge.Retests(r)
			if len(again) != 1 || r.Results[0].Verdict != slow.want {
				t.Fatalf("%d retests of %s", len(again), r.Results[0].Verdict)
			}
			judge.AddRetest(r, again[0].ID, m)
			judge.Verdicts(r)
			if x := &r.Results[0]; x.Verdict != slow.want || x.Retests[0].Error == "" || x.Retests[0].Confirms {
				t.Errorf("%s, %.0f GB/s: %s (%s), %+v", name, slow.mean, x.Verdict, codes(x), x.Retests[0])
			}
		}
	}
}
