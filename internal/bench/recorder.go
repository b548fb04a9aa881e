package bench

import "math/bits"

// Recorder counts durations in buckets that are at most 1/128 wide, so that a
// percentile is never told too low and at most 0.8 % too high. It takes 64 KiB,
// however many samples there are, and belongs to one goroutine.
type Recorder struct {
	counts [recorderBuckets]int64
	n, max int64
}

// Values below 2^recorderBits have a bucket each; from there on each power of two
// has half as many.
const (
	recorderBits    = 8
	recorderBuckets = 1<<recorderBits + (63-recorderBits)<<(recorderBits-1)
)

// Add counts a duration; below 0 it is 0.
func (r *Recorder) Add(ns int64) {
	ns = max(ns, 0)
	r.counts[bucketOf(ns)]++
	r.n++
	r.max = max(r.max, ns)
}

// N is how many samples there are.
func (r *Recorder) N() int64 { return r.n }

// Max is the largest sample, as it was.
func (r *Recorder) Max() int64 { return r.max }

// PerMille is the smallest value that at least so many thousandths of the samples
// do not exceed (nearest rank), 0 without samples.
func (r *Recorder) PerMille(p int64) int64 {
	if r.n == 0 {
		return 0
	}
	rank := max(1, (r.n/1000)*p+((r.n%1000)*p+999)/1000)
	for i, c := range r.counts {
		if rank -= c; rank <= 0 {
			return min(bucketEnd(i), r.max)
		}
	}
	return r.max
}

func bucketOf(v int64) int {
	if v < 1<<recorderBits {
		return int(v)
	}
	shift := bits.Len64(uint64(v)) - recorderBits
	const half = 1 << (recorderBits - 1)
	return shift*half + int(v>>shift)
}

// bucketEnd is the largest value of a bucket.
func bucketEnd(i int) int64 {
	const half = 1 << (recorderBits - 1)
	if i < 1<<recorderBits {
		return int64(i)
	}
	shift := i/half - 1
	return (int64(i-shift*half)+1)<<shift - 1
}
