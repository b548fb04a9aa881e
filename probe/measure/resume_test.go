package measure_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/measure"
	"github.com/topoctl/topoctl/probe/plan"
)

// A pair that was stopped between two sizes, or before the first, is not done: it is
// nobody's fault, and is measured when the run goes on.
func TestResumeBetweenSizes(t *testing.T) {
	for _, done := range []int{0, 1} {
		w := newWorld("a", "b")
		o := w.options(t)
		spec := spec()
		spec.SizesBytes, spec.LatencySamples = []int64{4096, 1 << 20}, 2
		var err error
		if o.Plan, err = plan.Make(w.pairs(), plan.Options{Spec: spec}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		stopped := false
		w.answer = func(id string, m *probe.Measurement) {
			p := probe.NewPercentiles([]int64{1000, 1100})
			m.Latency = &probe.Latency{SizeBytes: 8, RTT: p, OneWay: p.Half()}
			small, large := []int64{1e9, 1e9, 1e9}, []int64{49e9, 49e9, 49e9}
			m.Bandwidth = []probe.Bandwidth{probe.NewBandwidth(4096, small, 1<<30, 3e8, probe.StoppedCI), probe.NewBandwidth(1<<20, large, 1<<30, 3e8, probe.StoppedCI)}
			if !stopped {
				stopped = true
				cancel()
				m.Bandwidth, m.Err = m.Bandwidth[:done], fmt.Errorf("probe: %s: %w", id, context.Canceled)
			}
		}
		old, err := measure.Run(ctx, w, o)
		if err == nil || old.Summary.Inconclusive != 2 || len(old.Blame) > 0 {
			t.Fatalf("%d sizes: %v, %+v, blame %v", done, err, old.Summary, old.Blame)
		}
		w.rounds, o.Resume = nil, old
		r, err := measure.Run(context.Background(), w, o)
		if err != nil || len(w.rounds) != 2 || r.Summary.Pass != 2 {
			t.Errorf("%d sizes: %v, rounds %v, %+v", done, err, w.rounds, r.Summary)
		}
	}
}

// What a retest confirmed was by the rules of that run.
func TestResumeWithOtherRules(t *testing.T) {
	w := newWorld("a", "b")
	o := w.options(t)
	o.Rules.FailUnder, o.Rules.WarnUnder = 0.6, 0.65
	seen := map[string]bool{}
	w.answer = func(id string, m *probe.Measurement) { // half of the wire beside others, 70 % alone
		rate := int64(25e9)
		if seen[id] {
			rate = 35e9
		}
		seen[id] = true
		m.Bandwidth = []probe.Bandwidth{probe.NewBandwidth(1<<20, []int64{rate, rate, rate}, 1<<30, 3e8, probe.StoppedCI)}
	}
	old, err := measure.Run(context.Background(), w, o)
	if err != nil || old.Summary.Warn != 2 {
		t.Fatalf("%v, %+v", err, old.Summary)
	}
	o.Resume, o.Rules = old, probe.DefaultRules()
	if r, err := measure.Run(context.Background(), w, o); err != nil || r.Summary.Fail != 2 {
		t.Errorf("%v, %+v", err, r.Summary)
	}
}
