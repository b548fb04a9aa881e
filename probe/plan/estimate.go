package plan

import (
	"math"
	"time"

	"github.com/topoctl/topoctl/probe"
)

// opTime is how long one timed op takes, for estimates: a round trip of TCP is the longest.
var opTime = map[string]time.Duration{
	probe.CPU:  200 * time.Nanosecond,
	probe.CUDA: 20 * time.Microsecond,
	probe.RDMA: 10 * time.Microsecond,
	probe.TCP:  100 * time.Microsecond,
}

// estimate adds up the rounds: each takes as long as its longest pair.
func (p *Plan) estimate() Estimate {
	var total Estimate
	for _, round := range p.Rounds {
		e := p.estimateRound(round)
		total.Time, total.MostTime = sum(total.Time, e.Time), sum(total.MostTime, e.MostTime)
		total.Bytes, total.MostBytes = sum(total.Bytes, e.Bytes), sum(total.MostBytes, e.MostBytes)
		total.UnknownRates += e.UnknownRates
	}
	return total
}

func (p *Plan) estimateRound(round []int) Estimate {
	var out Estimate
	s := &p.Spec
	for _, i := range round {
		pair := &p.Pairs.Pairs[i]
		latency := times(opTime[pair.Transport], s.LatencySamples)
		sizes := len(s.SizesBytes)
		fewest := times(sum(s.Warmup, times(s.SampleTime, s.MinSamples)), sizes)
		most := times(sum(s.Warmup, times(s.SampleTime, max(s.MinSamples, s.MaxSamples))), sizes)
		if s.PairTime > 0 {
			fewest, most = min(fewest, s.PairTime), min(most, s.PairTime)
		}
		out.Time, out.MostTime = max(out.Time, sum(latency, fewest)), max(out.MostTime, sum(latency, most))
		rate := math.Inf(1)
		if r := pair.Expected.BytesPerSec; r != nil {
			rate = float64(*r)
		}
		if s.RateLimit > 0 {
			rate = min(rate, float64(s.RateLimit))
		}
		if math.IsInf(rate, 1) {
			out.UnknownRates++
			continue
		}
		if pair.Variant == probe.VariantBothWays {
			rate *= 2
		}
		out.Bytes = sum(out.Bytes, bytesOf(rate, fewest))
		out.MostBytes = sum(out.MostBytes, bytesOf(rate, most))
	}
	return out
}

func bytesOf(rate float64, d time.Duration) int64 {
	return int64(min(rate*d.Seconds(), math.MaxInt64/2))
}

// times is n times d, without overflow.
func times(d time.Duration, n int) time.Duration {
	if d <= 0 || n <= 0 {
		return 0
	}
	if time.Duration(n) > math.MaxInt64/2/d {
		return math.MaxInt64 / 2
	}
	return d * time.Duration(n)
}

// sum is a plus b, both not below zero, without overflow.
func sum[T ~int64](a, b T) T {
	if a > math.MaxInt64/2-b {
		return math.MaxInt64 / 2
	}
	return a + b
}
