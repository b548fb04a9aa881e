package judge

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
	mean, half, ok := Mean([]int64{100, 98, 101, 99, 102})
	if want := 2.776 * math.Sqrt(2.5/5); !ok || mean != 100 || math.Abs(half-want) > 1e-9 {
		t.Errorf("mean %v ± %v, %v; want 100 ± %v", mean, half, ok, want)
	}
	// The same ones as a slope: neighbours correlate by 0.4, without bias 0.92, taken as
	// 0.9. They count as the least, three: t(2) = 4.303.
	mean, half, ok = Mean([]int64{98, 99, 100, 101, 102})
	if want := 4.303 * math.Sqrt(10./5/2); !ok || mean != 100 || math.Abs(half-want) > 1e-9 {
		t.Errorf("a slope: %v ± %v, %v; want 100 ± %v", mean, half, ok, want)
	}
	if mean, half, ok := Mean([]int64{5, 5, 5}); !ok || mean != 5 || half != 0 {
		t.Errorf("equal samples: %v ± %v, %v", mean, half, ok)
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
		mean, half, _ := Mean(samples)
		if math.Abs(mean-1e6) <= half {
			held++
		}
	}
	if part := float64(held) / runs; part < 0.94 || part > 0.97 {
		t.Errorf("%.3f of the intervals hold the mean, want 0.95", part)
	}
}

// Samples of a busy machine are like their neighbours. What the interval holds of the truth
// when sampling ends by its own rule (5 to 30 samples, 2.5 %) is less than 95 %: the table
// says what is reached, and what an interval that takes samples for independent has.
func TestCoverageWithTheStopRule(t *testing.T) {
	for _, c := range []struct {
		correlation         float64
		deviation           float64 // of the mean
		reached, asIfApart  float64 // parts that hold the mean
		fails, failsIfApart float64 // pairs at 82 % of what is expected that end below 80 %
	}{
		{0, 0.05, 0.93, 0.93, 0.002, 0.001},
		{0.5, 0.05, 0.83, 0.70, 0.013, 0.026},
		{0.8, 0.05, 0.69, 0.43, 0.057, 0.111},
		{0.8, 0.02, 0.70, 0.54, 0.009, 0.017},
	} {
		for _, apart := range []bool{false, true} {
			held, fails := stopped(c.correlation, c.deviation, apart)
			wantHeld, wantFails := c.reached, c.fails
			if apart {
				wantHeld, wantFails = c.asIfApart, c.failsIfApart
			}
			if math.Abs(held-wantHeld) > 0.015 || math.Abs(fails-wantFails) > 0.006 {
				t.Errorf("r %v, sd %v, as if independent %v: %.3f hold the mean, want %.2f; %.3f fail, want %.3f", c.correlation, c.deviation, apart, held, wantHeld, fails, wantFails)
			}
		}
	}
}

// stopped samples until it is enough, many times: the parts whose interval holds the mean,
// and that fail at 82 % of what is expected. As if independent: by the interval that
// takes samples for independent.
func stopped(correlation, deviation float64, independent bool) (held, fails float64) {
	r := rand.New(rand.NewPCG(3, 4))
	spec := probe.Spec{MinSamples: 5, MaxSamples: 30, CI: 0.025}
	const runs = 4000
	for range runs {
		var samples []int64
		var mean, half float64
		for x, enough := r.NormFloat64(), false; !enough; {
			samples = append(samples, int64(1e9*(1+deviation*x)))
			x = correlation*x + math.Sqrt(1-correlation*correlation)*r.NormFloat64()
			_, enough = Enough(samples, spec)
			mean, half, _ = Mean(samples)
			if independent {
				half = asIfIndependent(samples, mean)
				enough = len(samples) >= spec.MinSamples && half <= spec.CI*mean || len(samples) == spec.MaxSamples
			}
		}
		if math.Abs(mean-1e9) <= half {
			held++
		}
		if 0.82*(mean+half) < 0.80*1e9 {
			fails++
		}
	}
	return held / runs, fails / runs
}

func asIfIndependent(samples []int64, mean float64) float64 {
	n, squares := float64(len(samples)), 0.0
	for _, s := range samples {
		squares += (float64(s) - mean) * (float64(s) - mean)
	}
	if n < 2 {
		return math.Inf(1)
	}
	return quantile(n-1) * math.Sqrt(squares/(n-1)/n)
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
