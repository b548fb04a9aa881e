package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Percentiles are those of the sorted samples by nearest rank, never lower and
// less than one part in 128 higher.
func TestRecorder(t *testing.T) {
	var below, none recorder
	if below.add(-5); below.perMille(500) != 0 || none.perMille(999) != 0 {
		t.Error("nothing is more than nothing")
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 9, 10, 99, 100, 999, 1000, 50_000} {
		var r recorder
		samples := make([]int64, n)
		for i := range samples {
			samples[i] = int64(math.Exp(random.Float64() * 43.6)) // up to nearly all that there are
			r.add(samples[i])
		}
		slices.Sort(samples)
		if r.n != int64(n) || r.max != samples[n-1] {
			t.Errorf("n %d, max %d; want %d and %d", r.n, r.max, n, samples[n-1])
		}
		for _, p := range []int64{1, 500, 900, 990, 999, 1000} {
			rank := int(math.Ceil(float64(n) * float64(p) / 1000))
			want := samples[max(rank, 1)-1]
			if got := r.perMille(p); got < want || got-want > want/128 {
				t.Errorf("%d of %d samples: %d per mille is %d, want %d", rank, n, p, got, want)
			}
		}
	}
}
