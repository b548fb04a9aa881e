package probe

import (
	"math"
	"slices"
)

// maxCorrelation bounds the estimated correlation of neighbours: a few samples cannot
// show more.
const maxCorrelation = 0.9

// leastFreedom bounds how few samples many count as: one degree of freedom fewer would
// treble an interval, and a few samples correlate by chance.
const leastFreedom = 2

// interval gives the mean of samples in the order in which they were taken, and the half width
// of its 95 % confidence interval by Student's t; ok is false, and the half width 0, with
// fewer than two. Where neighbours are alike the samples count as fewer:
// n(1-r)/(1+r), at least three, with the correlation r of neighbours.
func interval(samples []int64) (mean, half float64, ok bool) {
	n := float64(len(samples))
	if n == 0 {
		return 0, 0, false
	}
	for _, s := range samples {
		mean += float64(s) / n
	}
	if n < 2 {
		return mean, 0, false
	}
	var squares, products, last float64
	for i, s := range samples {
		d := float64(s) - mean
		squares += d * d
		if i > 0 {
			products += d * last
		}
		last = d
	}
	if squares == 0 {
		return mean, 0, true
	}
	r := correlation(products/squares, n)
	freedom := min(n-1, max(leastFreedom, n*(1-r)/(1+r)-1))
	return mean, quantile(freedom) * math.Sqrt(squares/n/freedom), true
}

// correlation is that of neighbours among n samples, from its usual estimate, which is
// too low by about (1+4r)/n (Marriott and Pope 1954). It only widens an interval.
func correlation(estimate, n float64) float64 {
	return min(max(0, estimate+(1+4*estimate)/n), maxCorrelation)
}

// Enough says whether a measurement may end with these samples of one size, in bytes per second, and
// why: StoppedCI or StoppedMaxSamples.
func (s Spec) Enough(samples []int64) (stopped string, enough bool) {
	if len(samples) >= max(2, s.MinSamples) {
		if mean, half, ok := interval(samples); ok && half <= s.CI*mean {
			return StoppedCI, true
		}
	}
	if len(samples) >= s.MaxSamples {
		return StoppedMaxSamples, true
	}
	return "", false
}

// NewBandwidth sums samples of one size up, in bytes per second and in the order in which they were taken; bytes and
// durationNS are those of all of them, and stopped says why there are no more.
func NewBandwidth(size int64, samples []int64, bytes, durationNS int64, stopped string) Bandwidth {
	mean, half, ok := interval(samples)
	b := Bandwidth{SizeBytes: size, SamplesBytesPerSec: samples, MeanBytesPerSec: int64(math.Round(mean)),
		Bytes: bytes, DurationNS: durationNS, Stopped: stopped}
	if ok {
		ci := int64(math.Ceil(half))
		b.CI95BytesPerSec = &ci
	}
	if p := NewPercentiles(samples); p != nil {
		b.MedianBytesPerSec = p.P50
	}
	return b
}

// p999Least is how many samples a 99.9th percentile needs to be one.
const p999Least = 1000

// NewPercentiles are those of samples by nearest rank: the smallest sample that this share of all samples does not
// exceed. nil without samples, which are left as they are.
func NewPercentiles(samples []int64) *Percentiles {
	if len(samples) == 0 {
		return nil
	}
	sorted := slices.Clone(samples)
	slices.Sort(sorted)
	rank := func(perMille int) int64 { return sorted[(len(sorted)*perMille+999)/1000-1] }
	p := &Percentiles{N: len(sorted), Min: sorted[0], P50: rank(500), P90: rank(900), P99: rank(990), Max: sorted[len(sorted)-1]}
	if p.N >= p999Least {
		v := rank(999)
		p.P999 = &v
	}
	return p
}

// Half are the percentiles of half of each sample: of one way, where both are equally long.
func (p *Percentiles) Half() *Percentiles {
	if p == nil {
		return nil
	}
	h := &Percentiles{N: p.N, Min: p.Min / 2, P50: p.P50 / 2, P90: p.P90 / 2, P99: p.P99 / 2, Max: p.Max / 2}
	if p.P999 != nil {
		v := *p.P999 / 2
		h.P999 = &v
	}
	return h
}

// tTable are the 97.5 % quantiles of Student's t by degrees of freedom, from 1.
var tTable = [...]float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
	2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042}

// quantile is the 97.5 % quantile of Student's t for 1 or more degrees of freedom. Between
// those of the table it is linear in their inverse, which is never too low. Above the table
// it is the normal one's with the first two terms of its expansion (Abramowitz and Stegun
// 26.7.5), off by less than 0.001.
func quantile(freedom float64) float64 {
	if below := int(freedom); below < len(tTable) {
		lo, hi := tTable[below-1], tTable[below]
		v := float64(below)
		return lo + (hi-lo)*(1/v-1/freedom)*v*(v+1)
	}
	const z = 1.959964
	v := freedom
	return z + (z*z*z+z)/(4*v) + (5*math.Pow(z, 5)+16*z*z*z+3*z)/(96*v*v)
}
