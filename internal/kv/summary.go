package kv

import "slices"

// Summary is what is said of a set of samples, in milliseconds. A set without samples has
// none: it is nil, never zeros.
type Summary struct {
	N      int     `json:"n"`
	Mean   float64 `json:"mean"`
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
}

// nsPerMS makes milliseconds of nanoseconds.
const nsPerMS = 1e6

// summarize sorts the samples, which are nanoseconds. Sorted they are summed up too, so
// that their order makes no difference.
func summarize[T int64 | float64](ns []T) *Summary {
	if len(ns) == 0 {
		return nil
	}
	slices.Sort(ns)
	var sum T
	for _, v := range ns {
		sum += v
	}
	// Rounding must not put a mean beside its samples.
	mean := min(max(float64(sum)/float64(len(ns)), float64(ns[0])), float64(ns[len(ns)-1]))
	return &Summary{N: len(ns), Mean: mean / nsPerMS, Median: Percentile(ns, 50) / nsPerMS, P99: Percentile(ns, 99) / nsPerMS}
}

// Percentile is NumPy's with its default, linear interpolation: the value at p/100*(n-1)
// of the sorted samples, between two of them on the straight line. There must be one.
func Percentile[T int64 | float64](sorted []T, p float64) float64 {
	at := p / 100 * float64(len(sorted)-1)
	i := min(int(at), len(sorted)-1)
	a, b := float64(sorted[i]), float64(sorted[min(i+1, len(sorted)-1)])
	part := at - float64(i)
	if part >= 0.5 { // as NumPy: exact at both ends
		return b - (b-a)*(1-part)
	}
	return a + (b-a)*part
}
