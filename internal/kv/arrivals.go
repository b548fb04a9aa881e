package kv

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
)

// Arrivals say when requests arrive. With the zero value all arrive at once.
type Arrivals struct {
	// RatePerSec is the mean number of arrivals per second; 0 or infinite: all at 0.
	RatePerSec float64
	// Burstiness is the shape of the gamma distribution of the gaps: 1 (or 0) is Poisson,
	// less is burstier, infinite gives equal gaps.
	Burstiness float64
	// Concurrency bounds the requests in flight: the next one is sent when one ends. 0:
	// unlimited. It cannot be combined with a rate.
	Concurrency int
	// TickNS puts each arrival on the last multiple of it, as traces do whose clock is
	// coarse; 0 leaves them.
	TickNS int64
}

func (a Arrivals) endless() bool { return a.RatePerSec == 0 || math.IsInf(a.RatePerSec, 1) }

func (a Arrivals) shape() float64 {
	if a.Burstiness == 0 {
		return 1
	}
	return a.Burstiness
}

// String is for people.
func (a Arrivals) String() string {
	switch {
	case a.Concurrency > 0:
		return fmt.Sprintf("concurrency %d", a.Concurrency)
	case a.endless():
		return "all at once"
	case math.IsInf(a.Burstiness, 1):
		return fmt.Sprintf("equal gaps, %.4g requests/s", a.RatePerSec)
	case a.shape() == 1:
		return fmt.Sprintf("Poisson, %.4g requests/s", a.RatePerSec)
	}
	return fmt.Sprintf("gamma, %.4g requests/s, burstiness %.4g", a.RatePerSec, a.Burstiness)
}

func (a Arrivals) check(n int) error {
	switch {
	case a.RatePerSec < 0 || math.IsNaN(a.RatePerSec):
		return fmt.Errorf("a rate of %v requests/s", a.RatePerSec)
	case a.Burstiness < 0 || math.IsNaN(a.Burstiness):
		return fmt.Errorf("a burstiness of %v: give more than 0; 1 is Poisson", a.Burstiness)
	case a.Concurrency < 0:
		return fmt.Errorf("a concurrency of %d", a.Concurrency)
	case a.Concurrency > 0 && !a.endless():
		return errors.New("a rate and a concurrency: give one of them")
	case a.TickNS < 0:
		return fmt.Errorf("ticks of %d ns", a.TickNS)
	case !a.endless() && float64(n)/a.RatePerSec*1e9 > maxSpanNS:
		return fmt.Errorf("%d requests at %v requests/s take more than 11 days", n, a.RatePerSec)
	}
	return nil
}

// draw gives n times of arrival, in order. They are made as vLLM's benchmark makes them
// (benchmarks/serve.py, get_request): gaps have the gamma distribution of shape burstiness and
// scale 1/(rate*burstiness), and their sums are scaled so that the last request comes after
// exactly n/rate. The first one comes after a gap, too.
func (a Arrivals) draw(n int, r *rand.Rand) ([]int64, error) {
	if err := a.check(n); err != nil {
		return nil, err
	}
	times := make([]int64, n)
	if a.endless() {
		return times, nil
	}
	sums, sum := make([]float64, n), 0.
	for i := range sums {
		sum += a.gap(r)
		sums[i] = sum
	}
	if sum == 0 { // a tiny shape may give nothing but zeros, which cannot be scaled
		return nil, fmt.Errorf("a burstiness of %v is too small to draw gaps with", a.Burstiness)
	}
	span := float64(n) / a.RatePerSec * 1e9
	for i := range times {
		times[i] = int64(math.Round(sums[i] / sum * span))
		if a.TickNS > 0 {
			times[i] -= times[i] % a.TickNS
		}
	}
	return times, nil
}

// gap is in mean gaps: of mean 1. Scaling the sums takes the rate in.
func (a Arrivals) gap(r *rand.Rand) float64 {
	if math.IsInf(a.Burstiness, 1) {
		return 1
	}
	return gamma(a.shape(), r) / a.shape()
}

// gamma draws from the gamma distribution of a shape above 0 and scale 1, by Marsaglia and
// Tsang, A simple method for generating gamma variables, 2000. Shapes below 1 are drawn with
// shape+1 and multiplied by U^(1/shape), as they say.
func gamma(shape float64, r *rand.Rand) float64 {
	if shape < 1 {
		return gamma(shape+1, r) * math.Pow(1-r.Float64(), 1/shape)
	}
	d := shape - 1./3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if u := 1 - r.Float64(); math.Log(u) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}
