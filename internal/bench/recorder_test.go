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
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 9, 10, 99, 100, 999, 1000, 50_000} {
		var r Recorder
		samples := make([]int64, n)
		for i := range samples {
			samples[i] = int64(math.Exp(random.Float64() * 40)) // up to 2e17
			r.Add(samples[i])
		}
		slices.Sort(samples)
		if r.N() != int64(n) || r.Max() != samples[n-1] {
			t.Errorf("n %d, max %d; want %d and %d", r.N(), r.Max(), n, samples[n-1])
		}
		for _, p := range []int64{1, 500, 900, 990, 999, 1000} {
			rank := int(math.Ceil(float64(n) * float64(p) / 1000))
			want := samples[max(rank, 1)-1]
			if got := r.PerMille(p); got < want || got-want > want/128 {
				t.Errorf("%d of %d samples: %d per mille is %d, want %d", rank, n, p, got, want)
			}
		}
	}
}

func TestRecorderBuckets(t *testing.T) {
	for _, v := range []int64{0, 1, 127, 128, 255, 256, 257, 511, 512, 1 << 20, 1<<20 + 1, math.MaxInt64 - 1, math.MaxInt64} {
		i := bucketOf(v)
		if i < 0 || i >= recorderBuckets || bucketEnd(i) < v || i > 0 && bucketEnd(i-1) >= v {
			t.Errorf("%d is in bucket %d of %d, which ends at %d", v, i, recorderBuckets, bucketEnd(i))
		}
	}
	if last := bucketEnd(recorderBuckets - 1); last != math.MaxInt64 {
		t.Errorf("the last bucket ends at %d", last)
	}
	var r Recorder
	r.Add(-5)
	if r.PerMille(500) != 0 || (&Recorder{}).PerMille(999) != 0 {
		t.Error("nothing is more than nothing")
	}
}
