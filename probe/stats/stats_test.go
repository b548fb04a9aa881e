package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/probe"
)

func TestMean(t *testing.T) {
	// Five samples of mean 100 and standard deviation sqrt(2.5): t(4) = 2.776.
	mean, half, ok := Mean([]int64{98, 99, 100, 101, 102})
	if want := 2.776 * math.Sqrt(2.5/5); !ok || mean != 100 || math.Abs(half-want) > 1e-9 {
		t.Errorf("mean %v ± %v, %v; want 100 ± %v", mean, half, ok, want)
	}
	if _, _, ok := Mean([]int64{7}); ok {
		t.Error("one sample has an interval")
	}
	if _, _, ok := Mean(nil); ok {
		t.Error("no sample has an interval")
	}
}

// Published values of the table that the expansion has to meet.
func TestQuantile(t *testing.T) {
	for freedom, want := range map[int]float64{1: 12.706, 10: 2.228, 30: 2.042, 31: 2.0395, 40: 2.0211, 60: 2.0003, 120: 1.9799, 100000: 1.9600} {
		if got := quantile(freedom); math.Abs(got-want) > 0.001 {
			t.Errorf("t(%d) = %v, want %v", freedom, got, want)
		}
	}
}

// Of many measurements 95 % hold the true mean.
func TestCoverage(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	held := 0
	const runs = 4000
	for range runs {
		samples := make([]int64, 6)
		for i := range samples {
			samples[i] = int64(1e6 + 1e4*r.NormFloat64())
		}
		mean, half, _ := Mean(samples)
		if math.Abs(mean-1e6) <= half {
			held++
		}
	}
	if part := float64(held) / runs; part < 0.94 || part > 0.96 {
		t.Errorf("%.3f of the intervals hold the mean, want 0.95", part)
	}
}

func TestEnough(t *testing.T) {
	spec := probe.Spec{MinSamples: 3, MaxSamples: 5, CI: 0.025}
	for _, c := range []struct {
		samples []int64
		stopped string
	}{
		{nil, ""},
		{[]int64{100, 100}, ""}, // fewer than the least
		{[]int64{100, 100, 100}, probe.StoppedCI},
		{[]int64{100, 50, 100}, ""},
		{[]int64{100, 50, 100, 50, 100}, probe.StoppedMaxSamples},
		{[]int64{0, 0, 0}, probe.StoppedCI}, // it carries nothing, and that is certain
	} {
		if got, enough := Enough(c.samples, spec); got != c.stopped || enough != (got != "") {
			t.Errorf("%v: %q, %v; want %q", c.samples, got, enough, c.stopped)
		}
	}
}

func TestPercentiles(t *testing.T) {
	if Percentiles(nil) != nil {
		t.Error("no samples have percentiles")
	}
	p := Percentiles([]int64{5, 1, 4, 2, 3})
	if p.N != 5 || p.Min != 1 || p.P50 != 3 || p.P90 != 5 || p.Max != 5 || p.P999 != nil {
		t.Errorf("%+v", p)
	}
	thousand := make([]int64, 1000)
	for i := range thousand {
		thousand[i] = int64(1000 - i)
	}
	if p := Percentiles(thousand); p.P999 == nil || *p.P999 != 999 || p.P50 != 500 || p.P99 != 990 {
		t.Errorf("%+v", p)
	}
}

func TestPercentilesAreNearestRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples := rapid.SliceOfN(rapid.Int64Range(0, 1e12), 1, 1200).Draw(t, "samples")
		before := slices.Clone(samples)
		p := Percentiles(samples)
		if !slices.Equal(before, samples) {
			t.Fatal("the samples were moved")
		}
		for perMille, v := range map[int]int64{500: p.P50, 900: p.P90, 990: p.P99} {
			least, below := 0, 0
			for _, s := range samples {
				if s <= v {
					least++
				}
				if s < v {
					below++
				}
			}
			if least*1000 < perMille*len(samples) || below*1000 >= perMille*len(samples) || !slices.Contains(samples, v) {
				t.Fatalf("%d per mille of %d samples is %d", perMille, len(samples), v)
			}
		}
	})
}
