package probe

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestInterval(t *testing.T) {
	// Five samples of mean 100 and standard deviation sqrt(2.5): t(4) = 2.776.
	mean, half, ok := interval([]int64{100, 98, 101, 99, 102})
	if want := 2.776 * math.Sqrt(2.5/5); !ok || mean != 100 || math.Abs(half-want) > 1e-9 {
		t.Errorf("mean %v ± %v, %v; want 100 ± %v", mean, half, ok, want)
	}
	// The same ones as a slope: neighbours correlate by 0.4, without bias 0.92, taken as
	// 0.9. They count as the least, three: t(2) = 4.303.
	mean, half, ok = interval([]int64{98, 99, 100, 101, 102})
	if want := 4.303 * math.Sqrt(10./5/2); !ok || mean != 100 || math.Abs(half-want) > 1e-9 {
		t.Errorf("a slope: %v ± %v, %v; want 100 ± %v", mean, half, ok, want)
	}
	if mean, half, ok := interval([]int64{5, 5, 5}); !ok || mean != 5 || half != 0 {
		t.Errorf("equal samples: %v ± %v, %v", mean, half, ok)
	}
	if _, _, ok := interval([]int64{7}); ok {
		t.Error("one sample has an interval")
	}
	if _, _, ok := interval(nil); ok {
		t.Error("no sample has an interval")
	}
}

// Published values of the table that the expansion has to meet.
func TestQuantile(t *testing.T) {
	for freedom, want := range map[float64]float64{1: 12.706, 10: 2.228, 30: 2.042, 31: 2.0395, 40: 2.0211, 60: 2.0003, 120: 1.9799, 100000: 1.9600} {
		if got := quantile(freedom); math.Abs(got-want) > 0.001 {
			t.Errorf("t(%v) = %v, want %v", freedom, got, want)
		}
	}
	for v := 1.0; v < 40; v += 0.05 {
		if a, b := quantile(v), quantile(v+0.05); b > a+0.001 {
			t.Fatalf("t(%v) = %v < t(%v) = %v", v, a, v+0.05, b)
		}
	}
}

// Of many measurements 95 % hold the true mean; a little more, because a correlation that
// is there by chance widens an interval too.
func TestCoverage(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	held := 0
	const runs = 4000
	for range runs {
		samples := make([]int64, 6)
		for i := range samples {
			samples[i] = int64(1e6 + 1e4*r.NormFloat64())
		}
		mean, half, _ := interval(samples)
		if math.Abs(mean-1e6) <= half {
			held++
		}
	}
	if part := float64(held) / runs; part < 0.94 || part > 0.97 {
		t.Errorf("%.3f of the intervals hold the mean, want 0.95", part)
	}
}

// Samples of a busy machine are like their neighbours. What the interval holds of the truth when sampling ends by its own
// rule (5 to 30 samples, 2.5 %) is less than 95 %: the table says what is reached.
func TestCoverageWithTheStopRule(t *testing.T) {
	for _, c := range []struct {
		correlation float64
		deviation   float64 // of the mean
		reached     float64 // part that holds the mean
		fails       float64 // pairs at 82 % of what is expected that end below 80 %
	}{{0, 0.05, 0.93, 0.002}, {0.5, 0.05, 0.83, 0.013}, {0.8, 0.05, 0.69, 0.057}, {0.8, 0.02, 0.70, 0.009}} {
		r := rand.New(rand.NewPCG(3, 4))
		spec := Spec{MinSamples: 5, MaxSamples: 30, CI: 0.025}
		const runs = 4000
		held, fails := 0, 0
		for range runs {
			var samples []int64
			for x, enough := r.NormFloat64(), false; !enough; _, enough = spec.Enough(samples) {
				samples = append(samples, int64(1e9*(1+c.deviation*x)))
				x = c.correlation*x + math.Sqrt(1-c.correlation*c.correlation)*r.NormFloat64()
			}
			mean, half, _ := interval(samples)
			if math.Abs(mean-1e9) <= half {
				held++
			}
			if 0.82*(mean+half) < 0.80*1e9 {
				fails++
			}
		}
		if h, f := float64(held)/runs, float64(fails)/runs; math.Abs(h-c.reached) > 0.015 || math.Abs(f-c.fails) > 0.006 {
			t.Errorf("%+v: %.3f hold the mean, %.3f fail", c, h, f)
		}
	}
}

func TestEnough(t *testing.T) {
	spec := Spec{MinSamples: 3, MaxSamples: 5, CI: 0.025}
	for _, c := range []struct {
		samples []int64
		stopped string
	}{
		{nil, ""},
		{[]int64{100, 100}, ""}, // fewer than the least
		{[]int64{100, 100, 100}, StoppedCI},
		{[]int64{100, 50, 100}, ""},
		{[]int64{100, 50, 100, 50, 100}, StoppedMaxSamples},
		{[]int64{0, 0, 0}, StoppedCI}, // it carries nothing, and that is certain
	} {
		if got, enough := spec.Enough(c.samples); got != c.stopped || enough != (got != "") {
			t.Errorf("%v: %q, %v; want %q", c.samples, got, enough, c.stopped)
		}
	}
}

func TestPercentilesAreNearestRanks(t *testing.T) {
	if NewPercentiles(nil) != nil {
		t.Error("no samples have percentiles")
	}
	rapid.Check(t, func(t *rapid.T) {
		samples := rapid.SliceOfN(rapid.Int64Range(0, 1e12), 1, 1200).Draw(t, "samples")
		before := slices.Clone(samples)
		p := NewPercentiles(samples)
		if !slices.Equal(before, samples) {
			t.Fatal("the samples were moved")
		}
		ranks := map[int]int64{0: p.Min, 500: p.P50, 900: p.P90, 990: p.P99, 1000: p.Max}
		if p.P999 != nil {
			ranks[999] = *p.P999
		}
		if p.N != len(samples) || (p.P999 != nil) != (p.N >= 1000) {
			t.Fatalf("%+v of %d samples", p, len(samples))
		}
		for perMille, v := range ranks {
			least, below := 0, 0
			for _, s := range samples {
				if s <= v {
					least++
				}
				if s < v {
					below++
				}
			}
			if least*1000 < perMille*len(samples) || below*1000 >= max(perMille, 1)*len(samples) || !slices.Contains(samples, v) {
				t.Fatalf("%d per mille of %d samples is %d", perMille, len(samples), v)
			}
		}
	})
}
