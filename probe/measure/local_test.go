package measure_test

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/measure"
	"github.com/topoctl/topoctl/probe/plan"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// The memory of this host is measured for a short time: first what was chosen of it, then until ctx ends. The events of
// a run are its report.
func TestLocal(t *testing.T) {
	top, err := discover.Discover(t.Context(), discover.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := measure.Local(top, measure.LocalOptions{Pairs: plan.LocalOptions{Kinds: []probe.Kind{probe.Memory}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	all, err := p.Pairs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first := slices.IndexFunc(all.Pairs, func(x probe.Pair) bool { return x.Waived == "" && x.Variant == probe.VariantRead })
	if first < 0 {
		t.Fatalf("no memory to read: %+v", all)
	}
	chosen, err := all.Select([]string{all.Pairs[first].ID})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := all.Select([]string{all.Pairs[first].ID, "no such pair"}); err == nil {
		t.Error("a pair that is not there is chosen")
	}
	spec := probe.Spec{SampleTime: 10 * time.Millisecond, MinSamples: 2, MaxSamples: 2, SizesBytes: []int64{1 << 20}, PairTime: time.Second}
	todo, err := plan.Make(chosen, plan.Options{Spec: spec})
	if err != nil || len(todo.Rounds) != 1 || todo.Estimate.Time <= 0 {
		t.Fatalf("%+v, %v", todo, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, stopped := range []bool{false, true} {
		var lines bytes.Buffer
		r, err := measure.Run(ctx, p, measure.Options{Plan: todo, Event: func(e *probe.Event) {
			data, err := e.Encode()
			if err != nil {
				t.Error(err)
			}
			lines.Write(data)
			if e.Sample != nil && stopped {
				cancel()
			}
		}})
		if stopped != (err != nil) || r.Complete == stopped {
			t.Fatalf("stopped %v: %v, complete %v", stopped, err, r.Complete)
		}
		if m := r.Results[0].Judged(); m == nil || m.MeanBytesPerSec <= 0 {
			t.Errorf("stopped %v: what was measured is lost: %+v", stopped, r.Results[0])
		}
		data, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		want, err := probe.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		got, err := probe.ReadEvents(&lines)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("stopped %v: -report +events:\n%s", stopped, diff)
		}
	}
}

// Only this host can be measured.
func TestLocalRefuses(t *testing.T) {
	if _, err := measure.Local(fixturetest.Topology(t, "cpu-2eth"), measure.LocalOptions{}); err == nil {
		t.Error("a machine that is not here is measured")
	}
}
