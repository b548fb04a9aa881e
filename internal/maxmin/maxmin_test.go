package maxmin

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var unknown = math.Inf(1)

func TestShare(t *testing.T) {
	one := func(segments ...Segment) Flow { return Flow{Segments: segments, Weight: 1} }
	for _, tt := range []struct {
		name       string
		capacities []float64
		flows      []Flow
		rates      []float64
		limits     []Segment
	}{
		{"alone: the smallest on its way", []float64{50, 31, 60}, []Flow{one(0, 1, 2)}, []float64{31}, []Segment{1}},
		{"two share a link", []float64{50, 50, 60}, []Flow{one(0, 2), one(1, 2)}, []float64{30, 30}, []Segment{2, 2}},
		{"a slow one leaves its part to the fast one", []float64{4, 50, 60}, []Flow{one(0, 2), one(1, 2)}, []float64{4, 50}, []Segment{0, 1}},
		{"weights", []float64{60}, []Flow{{Segments: []Segment{0}, Weight: 2}, one(0)}, []float64{40, 20}, []Segment{0, 0}},
		{"a link that is crossed twice carries half", []float64{60}, []Flow{one(0, 0)}, []float64{30}, []Segment{0}},
		{"a long way and two short ones", []float64{10, 10}, []Flow{one(0, 1), one(0), one(1)}, []float64{5, 5, 5}, []Segment{0, 0, 1}},
		{"of two full links the first on its way", []float64{10, 10}, []Flow{one(1, 0)}, []float64{10}, []Segment{1}},
		{"a link that carries nothing", []float64{0, 10}, []Flow{one(0, 1), one(1)}, []float64{0, 10}, []Segment{0, 1}},
		{"unknown capacity limits nothing", []float64{unknown, 10}, []Flow{one(0), one(0, 1)}, []float64{unknown, 10}, []Segment{None, 1}},
		{"no way at all", []float64{10}, []Flow{one(), one(0)}, []float64{unknown, 10}, []Segment{None, 0}},
		{"no flows", []float64{10}, nil, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			New(tt.capacities).Share(tt.flows)
			var rates []float64
			var limits []Segment
			for _, f := range tt.flows {
				rates, limits = append(rates, f.Rate), append(limits, f.Limit)
				if f.Unlimited() != (f.Limit == None) {
					t.Errorf("rate %g, limit %d", f.Rate, f.Limit)
				}
			}
			if diff := cmp.Diff(tt.rates, rates); diff != "" {
				t.Errorf("rates (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(tt.limits, limits); diff != "" {
				t.Errorf("limits (-want +got)\n%s", diff)
			}
		})
	}
}

func TestLeft(t *testing.T) {
	a := New([]float64{50, 60, 70})
	a.Share([]Flow{{Segments: []Segment{0, 1}, Weight: 1}})
	if got := []float64{a.Left(0), a.Left(1), a.Left(2)}; !slices.Equal(got, []float64{0, 10, 70}) {
		t.Errorf("left %v", got)
	}
	a.Share([]Flow{{Segments: []Segment{2}, Weight: 1}})
	if got := []float64{a.Left(0), a.Left(1), a.Left(2)}; !slices.Equal(got, []float64{50, 60, 0}) {
		t.Errorf("left %v by flows that are gone", got)
	}
}

// No segment carries more than it can, and every flow is limited by a full segment
// on which nobody has more per weight: so none can get more without one that has as
// little getting less. The order of flows changes nothing, nor do the flows before.
func TestSharesAreMaxMinFair(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		capacities := rapid.SliceOfN(rapid.OneOf(rapid.Just(unknown), rapid.Float64Range(0, 1e12)), 1, 6).Draw(rt, "capacities")
		crossed := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Segment {
			return Segment(rapid.IntRange(0, len(capacities)-1).Draw(t, "segment"))
		}), 0, 4)
		flows := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Flow {
			return Flow{Segments: crossed.Draw(t, "segments"), Weight: rapid.Float64Range(0.01, 100).Draw(t, "weight")}
		}), 0, 8).Draw(rt, "flows")
		a := New(capacities)
		a.Share(flows)

		load, most := make([]float64, len(capacities)), make([]float64, len(capacities))
		for i := range flows {
			for _, s := range flows[i].Segments {
				load[s] += flows[i].Rate
				most[s] = max(most[s], flows[i].Rate/flows[i].Weight)
			}
		}
		near := func(x, y float64) bool { return math.Abs(x-y) <= 1e-6*max(math.Abs(x), math.Abs(y), 1) }
		for i, f := range flows {
			if f.Limit == None {
				for _, s := range f.Segments {
					if !math.IsInf(capacities[s], 1) {
						rt.Fatalf("flow %d crosses segment %d of capacity %g without a limit", i, s, capacities[s])
					}
				}
				continue
			}
			if !near(load[f.Limit], capacities[f.Limit]) || !near(f.Rate/f.Weight, most[f.Limit]) {
				rt.Fatalf("flow %d has %g: segment %d carries %g of %g, and a flow across it has %g per weight",
					i, f.Rate, f.Limit, load[f.Limit], capacities[f.Limit], most[f.Limit])
			}
		}
		for s, c := range capacities {
			if !math.IsInf(c, 1) && load[s] > c && !near(load[s], c) {
				rt.Fatalf("segment %d carries %g of %g", s, load[s], c)
			}
		}

		shuffled := rapid.Permutation(flows).Draw(rt, "order")
		a.Share(shuffled)
		for _, f := range shuffled {
			if !slices.ContainsFunc(flows, func(g Flow) bool {
				return slices.Equal(f.Segments, g.Segments) && f.Weight == g.Weight && near(min(f.Rate, 1e18), min(g.Rate, 1e18))
			}) {
				rt.Fatalf("in another order: %+v, not one of %+v", f, flows)
			}
		}
	})
}
