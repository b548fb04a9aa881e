package kv

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Lengths are the distribution of the tokens of prompts or answers.
type Lengths interface {
	draw(n int, r *rand.Rand) ([]int, error)
	String() string
}

// Fixed is one length for all.
func Fixed(tokens int) Lengths { return uniform{tokens: tokens} }

// Uniform draws each length between tokens*(1-ratio) and tokens*(1+ratio), both rounded
// outwards and included, but at least 1, as vLLM's random data set does with its range ratio
// of 0 up to, but not, 1.
func Uniform(tokens int, ratio float64) Lengths { return uniform{tokens, ratio} }

type uniform struct {
	tokens int
	ratio  float64
}

func (u uniform) String() string {
	if u.ratio == 0 {
		return fmt.Sprintf("%d tokens", u.tokens)
	}
	return fmt.Sprintf("%d tokens ±%.4g %%", u.tokens, 100*u.ratio)
}

func (u uniform) draw(n int, r *rand.Rand) ([]int, error) {
	if u.tokens < 1 || u.tokens > MaxTokens {
		return nil, fmt.Errorf("%d tokens: give 1 to %d", u.tokens, MaxTokens)
	}
	if !(u.ratio >= 0 && u.ratio < 1) {
		return nil, fmt.Errorf("a range ratio of %v: give 0 or more, but less than 1", u.ratio)
	}
	low := max(1, int(math.Floor(float64(u.tokens)*(1-u.ratio))))
	high := min(MaxTokens, int(math.Ceil(float64(u.tokens)*(1+u.ratio))))
	lengths := make([]int, n)
	for i := range lengths {
		lengths[i] = low + r.IntN(high-low+1)
	}
	return lengths, nil
}

// LognormalMean draws from the lognormal distribution that has this median and this mean, in
// tokens; none is longer than most, which makes their mean a little less.
func LognormalMean(median, mean, most int) Lengths {
	return lognormal{median, most, math.Sqrt(2 * math.Log(float64(mean)/float64(median))), fmt.Sprintf("mean %d", mean)}
}

type lognormal struct {
	median, max int
	sigma       float64
	other       string
}

func (l lognormal) String() string {
	return fmt.Sprintf("lognormal (median %d, %s, at most %d) tokens", l.median, l.other, l.max)
}

func (l lognormal) draw(n int, r *rand.Rand) ([]int, error) {
	if l.median < 1 || l.max < l.median || l.max > MaxTokens {
		return nil, fmt.Errorf("median %d, at most %d tokens: give 1 to %d, the median first", l.median, l.max, MaxTokens)
	}
	if !(l.sigma >= 0 && l.sigma < 10) {
		return nil, fmt.Errorf("median %d and %s do not make a lognormal distribution: the median is the smaller one", l.median, l.other)
	}
	lengths := make([]int, n)
	for i := range lengths {
		lengths[i] = min(l.max, roundTokens(float64(l.median)*math.Exp(l.sigma*r.NormFloat64())))
	}
	return lengths, nil
}

// quantiles draw by a quantile function that is linear between points. The n lengths are the
// function's values at i/(n-1) in random order, so that all percentiles of a sample are as
// given, whatever the seed.
type quantiles struct {
	name   string
	points []point
}

type point struct{ part, tokens float64 }

func (q quantiles) String() string { return q.name + " tokens" }

func (q quantiles) draw(n int, r *rand.Rand) ([]int, error) {
	lengths, at := make([]int, n), 1
	for i := range lengths {
		part := 0.5
		if n > 1 {
			part = float64(i) / float64(n-1)
		}
		for part > q.points[at].part {
			at++
		}
		a, b := q.points[at-1], q.points[at]
		lengths[i] = roundTokens(a.tokens + (b.tokens-a.tokens)*(part-a.part)/(b.part-a.part))
	}
	r.Shuffle(n, func(i, j int) { lengths[i], lengths[j] = lengths[j], lengths[i] })
	return lengths, nil
}
