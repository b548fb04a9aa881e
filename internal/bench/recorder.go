package bench

import (
	"maps"
	"math"
	"slices"
)

// recorder counts durations in buckets, so that a percentile is never too low, and at most 0.8 % too high. It stays
// small, however many samples there are, and belongs to one goroutine.
type recorder struct {
	counts map[int]int64 // by bucket
	n, max int64
}

// bucketStep is the distance between the logarithms of the ends of buckets.
const bucketStep = 0.0077

// add counts a duration; below 0 it is 0.
func (r *recorder) add(ns int64) {
	if r.counts == nil {
		r.counts = map[int]int64{}
	}
	r.counts[int(math.Ceil(math.Log(float64(max(ns, 1)))/bucketStep))]++
	r.n++
	r.max = max(r.max, ns)
}

// perMille is the smallest value that at least so many thousandths of the samples
// do not exceed (nearest rank), 0 without samples.
func (r *recorder) perMille(p int64) int64 {
	rank := max(1, (r.n/1000)*p+((r.n%1000)*p+999)/1000)
	for _, bucket := range slices.Sorted(maps.Keys(r.counts)) {
		if rank -= r.counts[bucket]; rank <= 0 {
			if end := math.Exp(float64(bucket)*bucketStep) * (1 + 1e-12); end < float64(r.max) {
				return int64(end)
			}
			break
		}
	}
	return r.max
}
